"""Files of results as the version before wrote them, without checksums, for what is then checked beside these."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(file: Path, values: Mapping[str, Any]) -> None:
    """Writes a `config.json` or `run.json` that tells no checksums."""
    file.write_text(json.dumps({name: value for name, value in values.items() if name not in ("checksum", "files")}))
