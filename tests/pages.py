"""Contents of the pages that jaxrl writes."""

import json
import re
from pathlib import Path
from typing import Any


def episode_in(file: Path) -> dict[str, Any]:
    """The episode in a page of the player."""
    (text,) = re.findall(r'<script type="application/json" id="episode">(.*?)</script>', file.read_text())
    return json.loads(text)
