"""Files of results in the format of the previous version, without checksums, for tests of the other checks."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(file: Path, values: Mapping[str, Any]) -> None:
    """Write a `config.json` or `run.json` without checksums."""
    file.write_text(json.dumps({name: value for name, value in values.items() if name not in ("checksum", "files")}))
