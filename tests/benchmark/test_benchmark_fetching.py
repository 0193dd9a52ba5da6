"""The data of the benchmark outside a clone: an archive from a server, and what may go wrong."""

import functools
import http.server
import io
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxrl
from jaxrl.benchmark import CELLS, run
from jaxrl.benchmark.data import load
from jaxrl.benchmark.fetching import address, cached, download
from jaxrl.cli.benchmark import run_benchmark
from jaxrl.results.dataset import ResultError
from jaxrl.version import __version__


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def release(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address of a repository on this machine, and the archive of its release."""
    archive = tmp_path / "served" / "releases" / "download" / f"v{__version__}" / "benchmark.tar.gz"
    archive.parent.mkdir(parents=True)
    handler = functools.partial(Quiet, directory=tmp_path / "served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", archive
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No clone, and an empty cache."""
    monkeypatch.setattr("jaxrl.benchmark.data.of_clone", lambda: tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.chdir(tmp_path)


def publish(repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the data be those of a repository."""
    monkeypatch.setattr("jaxrl.benchmark.data.address", lambda: address(repository))


def test_data_are_downloaded_once_and_say_so(
    release: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository, archive = release
    real = Path(jaxrl.__file__).parents[1] / "bench" / "benchmark"
    with tarfile.open(archive, "w:gz") as files:
        for file in sorted(real.glob("a2c-on-delayed-choice.*")):
            files.add(file, f"benchmark/{file.name}")
    publish(repository, monkeypatch)
    benchmark = load()
    assert benchmark.origin == "download" and benchmark.directory == cached()
    assert repr(benchmark).startswith("Benchmark(1 of ") and repr(benchmark).endswith(", download)")
    assert f"downloading the benchmark from {repository}/releases/" in capsys.readouterr().err
    assert len(benchmark.result("a2c", "delayed-choice").seeds) == 32
    archive.unlink()
    for name in ("a2c-on-delayed-choice.parquet", "a2c-on-delayed-choice.json"):
        (cached() / name).write_bytes(b"nothing")
        with pytest.raises(ResultError, match=rf"damaged.*; delete {cached()}, and it is downloaded again"):
            benchmark.result("a2c", "delayed-choice")
    assert load().cells == benchmark.cells and load(real).origin == "directory"
    assert capsys.readouterr().err == ""
    assert [file.name for file in cached().parent.iterdir()] == [cached().name]


def test_an_installed_package_takes_the_data_of_the_clone_in_which_it_is_started(tmp_path: Path) -> None:
    real, place = Path(jaxrl.__file__).parents[1] / "bench" / "benchmark", tmp_path / "bench" / "benchmark"
    place.mkdir(parents=True)
    for file in real.glob("a2c-on-delayed-choice.*"):
        shutil.copy(file, place)
    with pytest.raises(ResultError, match="the current directory is not a clone"):  # without the sealed references
        load()
    shutil.copy(real / "references.csv", place)
    benchmark = load()
    assert benchmark.origin == "clone" and benchmark.directory == place
    mine = benchmark.result("a2c", "delayed-choice")
    assert jaxrl.compare({"mine": mine}, "benchmark").names == ["mine", "benchmark a2c"]
    with pytest.raises(ResultError, match="new data of the benchmark belong in a clone"):
        run(CELLS[0])


def test_failed_downloads_raise_one_error_and_leave_no_files(
    release: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, archive = release
    with pytest.raises(ResultError, match=r"in bench/benchmark: .* does not exist, .* and no release is published yet"):
        load()
    publish(repository, monkeypatch)
    with pytest.raises(ResultError, match=r"cannot be downloaded from http://127.*404"):
        load()
    with tarfile.open(archive, "w:gz") as files:
        files.add(Path(__file__), "benchmark/x.json")
    whole = archive.read_bytes()
    checksum = bytes([whole[-8] ^ 1])  # of the contents, before their length
    for damaged in (b"nothing", whole[: len(whole) // 2], whole[:-8] + checksum + whole[-7:]):
        archive.write_bytes(damaged)
        with pytest.raises(ResultError, match="cannot be downloaded from http://127"):
            load()
    for name, kind in (
        ("other/x.json", tarfile.REGTYPE),
        ("../x.json", tarfile.REGTYPE),
        ("benchmark/..", tarfile.REGTYPE),
        ("benchmark/x/y.json", tarfile.REGTYPE),
        ("benchmark/x.json", tarfile.SYMTYPE),
        ("benchmark", tarfile.SYMTYPE),
    ):
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "elsewhere"
        with tarfile.open(archive, "w:gz") as files:
            files.addfile(member, io.BytesIO())
        with pytest.raises(ResultError, match=r"is not a file in `benchmark/`"):
            load()
    with tarfile.open(archive, "w:gz"):
        pass
    with pytest.raises(ResultError, match=r"it has no files in `benchmark/`"):
        load()
    assert not list(cached().parent.iterdir())


def test_the_download_of_another_process_is_taken(
    release: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, archive = release
    with tarfile.open(archive, "w:gz") as files:
        files.add(Path(__file__), "benchmark/mine.json")
    theirs = cached() / "theirs.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    source = address(repository)
    assert source is not None
    download(source, cached())
    assert [file.name for file in cached().iterdir()] == ["theirs.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be downloaded"):
        download(source, tmp_path / "file" / "target")


def test_nothing_is_written_into_a_download(release: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    publish(release[0], monkeypatch)
    cached().mkdir(parents=True)
    for write in (
        lambda: run_benchmark(["references", "cartpole"]),
        lambda: run(CELLS[0]),
        lambda: run_benchmark(["run", "--missing"]),
    ):
        with pytest.raises(ResultError, match="new data of the benchmark belong in a clone"):
            write()
    assert not list(cached().iterdir())
