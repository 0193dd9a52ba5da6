"""Download of the benchmark's data, which a clone has and a wheel has not."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from jaxrl.results.dataset import ResultError
from jaxrl.results.format import reason
from jaxrl.version import REPOSITORY, __version__

__all__ = ["ASSET", "address", "cached", "download"]

ASSET = "benchmark.tar.gz"  # file of a release, with the directory `benchmark`
TIMEOUT = 60.0  # seconds without an answer


def address(repository: str = REPOSITORY) -> str | None:
    """Address of the data of this version; None until the project is published.

    Args:
      repository: Address of the repository.
    """
    return f"{repository}/releases/download/v{__version__}/{ASSET}" if repository else None


def cached() -> Path:
    """Directory to which the data of this version are downloaded, below that of the user's caches."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "jaxrl" / f"benchmark-{__version__}"


def download(source: str, target: Path) -> None:
    """Download and unpack the data, all or nothing; every file is checked by its checksum where it is read.

    Args:
      source: Address of the archive.
      target: Directory to make.

    Raises:
      ResultError: There is no answer, or the archive has other contents.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as part:
        archive = Path(part, ASSET)
        try:
            with urllib.request.urlopen(source, timeout=TIMEOUT) as stream, archive.open("wb") as file:
                shutil.copyfileobj(stream, file)
            with tarfile.open(archive) as files:
                files.extractall(part, filter="data")  # which refuses links and places outside
        except (OSError, tarfile.TarError) as error:
            raise ResultError(
                f"the data of the benchmark cannot be downloaded from {source}: {reason(error)}"
            ) from None
        unpacked = Path(part, "benchmark")
        if not unpacked.is_dir():
            raise ResultError(f"{source} is not an archive of the benchmark: it has no directory `benchmark`")
        if not target.exists():  # else another process was faster
            unpacked.replace(target)
