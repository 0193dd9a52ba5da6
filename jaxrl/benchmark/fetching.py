"""Places of the benchmark's data, which a clone has and a wheel has not: download, and remedies of damage."""

from __future__ import annotations

import gzip
import http.client
import io
import os
import shlex
import tarfile
import tempfile
import urllib.request
import zlib
from pathlib import Path, PurePosixPath

from jaxrl.results.dataset import ResultError
from jaxrl.results.format import reason
from jaxrl.version import REPOSITORY, __version__

__all__ = ["ASSET", "TRUSTED", "address", "cached", "download", "of_clone", "remedy"]

ASSET = "benchmark.tar.gz"  # file of a release, with the directory `benchmark`
TIMEOUT = 60.0  # seconds without an answer
TRUSTED = "trust=True, or --trust of compare and report, ignores this"  # remedy of a checksum that does not match


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


def of_clone() -> Path:
    """Directory of the data in the clone from which jaxrl is imported, whether there is one or not."""
    return Path(__file__).parents[2] / "bench" / "benchmark"


def remedy(file: Path, command: str, effect: str) -> str:
    """Last words of a message on a damaged file: how to get it anew, which depends on the place.

    Args:
      file: Path of the file.
      command: Command that makes it anew, without its directory.
      effect: Phrase on the command, such as "`COMMAND` trains the cell again", with COMMAND in its place.
    """
    directory = file.parent.resolve()
    if directory == cached().resolve():
        return f"delete {directory}, and it is downloaded again"
    if directory != of_clone().resolve():
        command = f"{command} --data {shlex.quote(str(directory))}"
    return effect.replace("COMMAND", command)


def download(source: str, target: Path) -> None:
    """Download and unpack the data, all or nothing; only files directly in `benchmark/` are unpacked.

    Args:
      source: Address of the archive.
      target: Directory to make.

    Raises:
      ResultError: There is no answer, the archive is damaged or has other contents, or the directory cannot be made.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as part:
            with urllib.request.urlopen(source, timeout=TIMEOUT) as stream:
                contents = gzip.decompress(stream.read())  # whole, which compares the checksum at its end
            unpacked = Path(part, "benchmark")
            unpacked.mkdir()
            with tarfile.open(fileobj=io.BytesIO(contents)) as files:
                for member in files:
                    _unpack(files, member, unpacked)
            if not any(unpacked.iterdir()):
                raise ResultError(f"{source} is not an archive of the benchmark: it has no files in `benchmark/`")
            try:
                unpacked.replace(target)
            except OSError:
                if not target.is_dir():  # else another process was faster
                    raise
    except (OSError, EOFError, zlib.error, http.client.HTTPException, tarfile.TarError) as error:
        raise ResultError(f"the data of the benchmark cannot be downloaded from {source}: {reason(error)}") from None


def _unpack(files: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Write a file of an archive; other members but the directory itself are an error."""
    place = PurePosixPath(member.name)
    if member.isdir() and str(place) == "benchmark":
        return
    stream = files.extractfile(member) if member.isfile() else None
    if stream is None or place.parent != PurePosixPath("benchmark") or place.name in ("", "..", "."):
        raise tarfile.TarError(f"{member.name} is not a file in `benchmark/`")
    (directory / place.name).write_bytes(stream.read())
