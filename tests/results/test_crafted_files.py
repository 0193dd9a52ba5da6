"""Files made to read another file, to wait for one, or to take all memory get one sentence, at once."""

import io
import json
import os
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import previous_format
import pytest
from chaotic_algorithm import PER_ITERATION, wandering

import jaxrl
from envs.errors import UserError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.results.array_files import read_npz
from jaxrl.results.loading import load_metrics, load_result
from jaxrl.runtime.checkpoints.store import Checkpoint, Checkpoints

SECRET = b"TOP-SECRET-KEY-0123456789abcdefg"
MOST = 16 << 20  # bytes; the run of these tests has some tens of kB


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


@pytest.fixture(scope="module")
def kept(algo: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "x"
    options: Any = {"env_steps": 2 * PER_ITERATION, "evals": 2, "eval_episodes": 1, "seeds": 2, "progress": False}
    jaxrl.train(algo, **options, out=out)
    return out


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    """A copy whose files are not guarded by checksums, which a sender can compute too."""
    shutil.copytree(kept, tmp_path / "run")
    for name in ("config.json", "run.json"):
        previous_format.write_json(tmp_path / "run" / name, json.loads((kept / name).read_text()))
    return tmp_path / "run"


def refused(call: Callable[[], Any]) -> str:
    """The one sentence with which a call ends, without taking more memory than `MOST`."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            call()
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- metrics.nc -----------------------------------------------------------------------------


def external(file: h5py.File, name: str, secret: Path) -> None:
    file.create_dataset(name, (8,), "<f4", external=[(str(secret), 0, 32)])


def virtual(file: h5py.File, name: str, secret: Path) -> None:
    with h5py.File(secret.with_suffix(".h5"), "w") as other:
        other["secret"] = np.frombuffer(SECRET, "<f4")
    layout = h5py.VirtualLayout((8,), "<f4")
    layout[:] = h5py.VirtualSource(str(secret.with_suffix(".h5")), "secret", (8,))
    file.create_virtual_dataset(name, layout)


def external_link(file: h5py.File, name: str, secret: Path) -> None:
    with h5py.File(secret.with_suffix(".h5"), "w") as other:
        other["secret"] = np.frombuffer(SECRET, "<f4")
    file[name] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "secret")


def soft_link(file: h5py.File, name: str, secret: Path) -> None:
    file[name] = h5py.SoftLink("/seed")


def group(file: h5py.File, name: str, secret: Path) -> None:
    file.create_group(name)


def named_pipe(file: h5py.File, name: str, secret: Path) -> None:
    os.mkfifo(secret.with_suffix(".pipe"))
    file.create_dataset(name, (8,), "<f4", external=[(str(secret.with_suffix(".pipe")), 0, 32)])


def without_data(file: h5py.File, name: str, secret: Path) -> None:
    file.create_dataset(name, (4 * 10**11,), "<f4", chunks=(1024,))


def not_allocated(file: h5py.File, name: str, secret: Path) -> None:
    file.create_dataset(name, (10**12,), "<f8")


def compressed(file: h5py.File, name: str, secret: Path) -> None:
    file.create_dataset(name, data=np.zeros(10**6), compression="gzip")


def compound(file: h5py.File, name: str, secret: Path) -> None:
    file.create_dataset(name, data=np.zeros(3, [("a", "<f4"), ("b", "<f4")]))


def objects(file: h5py.File, name: str, secret: Path) -> None:
    file.create_dataset(name, (1,), h5py.ref_dtype)[0] = file.ref


NETCDF = {
    external: "is stored in other files",
    virtual: "is stored in other files",
    external_link: "is a link to another place",
    soft_link: "is a link to another place",
    group: "is not an array",
    named_pipe: "is stored in other files",
    without_data: "of which it has no numbers",
    not_allocated: "of which it has no numbers",
    compressed: "is compressed",
    compound: "neither numbers nor strings",
    objects: "neither numbers nor strings",
}


@pytest.mark.parametrize("craft", NETCDF, ids=lambda craft: craft.__name__)
def test_only_plain_arrays_of_the_file_itself_are_read(craft: Callable[..., None], run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    with h5py.File(run / "metrics.nc", "a") as file:
        craft(file, "crafted", secret)
    sentence = refused(lambda: load_metrics(run))
    assert "metrics.nc is damaged or not a result of jaxrl: 'crafted' " in sentence and NETCDF[craft] in sentence


def test_a_metric_is_not_replaced_by_another_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    shape = load_metrics(run).metrics["return"].shape
    with h5py.File(run / "metrics.nc", "a") as file:
        del file["return"]
        file.create_dataset("return", shape, "<f4", external=[(str(tmp_path / "secret"), 0, 32)])
    assert "'return' is stored in other files, and only arrays of the file itself" in refused(lambda: load_metrics(run))


def test_dimensions_of_length_0_are_refused(run: Path) -> None:
    import xarray

    data = xarray.load_dataset(run / "metrics.nc", engine="h5netcdf").isel(seed=slice(0))
    data.to_netcdf(run / "metrics.nc", engine="h5netcdf")
    assert "its dimension 'seed' has the length 0" in refused(lambda: load_metrics(run))


def test_many_strings_are_counted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxrl.results.array_files._FEW_BYTES", 0)
    import xarray

    labels = ["x" * 10**5, "y"]
    data = xarray.load_dataset(run / "metrics.nc", engine="h5netcdf").assign_coords(label=("seed", labels))
    data.to_netcdf(run / "metrics.nc", engine="h5netcdf")
    assert load_metrics(run).metrics["label"].values.tolist() == labels
    monkeypatch.setattr("jaxrl.results.array_files._plain_bytes", lambda *_: 10**6)
    assert "it declares more bytes than it has" in refused(lambda: load_metrics(run))


# --- policies.npz ---------------------------------------------------------------------------


def member(header: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def declaring(shape: str, dtype: str = "<f4") -> bytes:
    return member(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n".encode(), bytes(32))


NPZ = {
    "10^12": (declaring("(1000000000000,)"), "declares float32[1000000000000], which is not the 32 bytes it has"),
    "10^30": (declaring(f"({10**30},)"), "which is not the 32 bytes it has"),
    "negative": (declaring("(-8,)"), "which is not the 32 bytes it has"),
    "no dictionary": (member(b"3\n"), "the header of 'crafted.npy' is damaged"),
    "open bracket": (member(b"(((\n"), "the header of 'crafted.npy' is damaged"),
    "nested": (member(b"(" * 9000 + b"\n"), "the header of 'crafted.npy' is damaged"),
    "version": (b"\x93NUMPY\x09\x00" + bytes(64), "the header of 'crafted.npy' is damaged"),
    "objects": (declaring("(4,)", "|O"), "'crafted.npy' holds objects, which are not read"),
    "extra": (declaring("(8,)"), "it holds 2 arrays, and takes 1, without 'crafted'"),
}


@pytest.mark.parametrize("name", NPZ)
def test_arrays_are_read_where_their_headers_are_as_expected(name: str, run: Path, algo: Algorithm) -> None:
    content, reason = NPZ[name]
    with zipfile.ZipFile(run / "policies.npz", "a") as archive:
        archive.writestr("crafted.npy", content)
    assert reason in refused(lambda: load_result(run, algo=algo))


@pytest.mark.parametrize("name", ["the policies", "crafted"])
def test_an_archive_is_not_unpacked(name: str, run: Path, algo: Algorithm) -> None:
    size = 32 << 20
    names = list(np.load(run / "policies.npz")) if name == "the policies" else ["crafted"]
    with zipfile.ZipFile(run / "policies.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},)}}\n".encode()
        archive.writestr(f"{names[0]}.npy", member(header, bytes(size)))
    assert "it is compressed" in refused(lambda: load_result(run, algo=algo))
    assert "it is compressed" in refused(lambda: load_result(run))


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, a=np.zeros(1000))
    with zipfile.ZipFile(file, "a") as archive:
        (first,) = archive.infolist()
        archive.filelist += [first] * 9
        archive._didModify = True  # pyright: ignore[reportAttributeAccessIssue] -- writes the directory again
    with pytest.raises(UserError, match="it declares more bytes than it has"):
        read_npz(file)


def test_files_of_savez_are_read(tmp_path: Path) -> None:
    arrays = {
        "none": np.zeros((3, 0), np.float32),
        "scalar": np.array(3, np.int64),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "flags": np.array([True, False]),
        "big": np.arange(3, dtype=">i4"),
    }
    np.savez(tmp_path / "a.npz", allow_pickle=False, **arrays)
    back = read_npz(tmp_path / "a.npz")
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    assert zipfile.ZipFile(io.BytesIO((tmp_path / "a.npz").read_bytes())).testzip() is None


# --- JSON -----------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [101, 200_000])
@pytest.mark.parametrize("name", ["config.json", "run.json"])
def test_json_is_not_followed_into_its_depths(name: str, depth: int, run: Path, algo: Algorithm) -> None:
    text = (run / name).read_text()
    (run / name).write_text(text[:-1] + f', "deep": {"[" * depth}{"]" * depth}}}')
    call = (lambda: load_result(run, algo=algo)) if name == "config.json" else lambda: jaxrl.resume(run, algo=algo)
    assert f"{name} is damaged" in (sentence := refused(call)) and "nested more than 100 deep" in sentence


def test_a_deep_config_json_does_not_keep_a_run_from_its_end(run: Path, algo: Algorithm) -> None:
    (run / "config.json").write_text("[" * 200_000)
    resumed = jaxrl.resume(run, algo=algo, progress=False)
    assert int(resumed.metrics["env_step"][-1]) == 2 * PER_ITERATION


# --- checkpoints ----------------------------------------------------------------------------

STATES = {"a": np.arange(6.0, dtype=np.float32).reshape(3, 2), "b": np.arange(3)}
METRICS = {"return": np.zeros(3, np.float32)}


def change(file: Path, **entries: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def renamed(at: Path) -> None:
    file = at / "evaluations" / "_METADATA"
    file.write_text(file.read_text().replace('"return"', '"../../../elsewhere"'))


def linked(at: Path) -> None:
    (at / "states" / "0000").rename(at.parents[1] / "elsewhere")
    (at / "states" / "0000").symlink_to(at.parents[1] / "elsewhere")


def piped(at: Path) -> None:
    (at / "states" / "0001" / "0").unlink()
    os.mkfifo(at / "states" / "0001" / "0")


def deep(at: Path) -> None:
    (at / "done" / "metadata").write_text("[" * 200_000)


HUGE = [3, 10**12]
CHECKPOINT: dict[str, tuple[Callable[[Path], None], str]] = {
    "shape": (
        lambda at: change(at / "states/0000/.zarray", shape=HUGE, chunks=HUGE),
        "states/0000 is float32[3, 1000000000000], not float32[3, 2]",
    ),
    "chunks": (lambda at: change(at / "states/0000/.zarray", chunks=HUGE), "0000 is not an array in one piece"),
    "type": (lambda at: change(at / "states/0000/.zarray", dtype="|S1000000"), "states/0000 is |S1000000[3, 2], not"),
    "metric": (
        lambda at: change(at / "evaluations/return/.zarray", shape=HUGE, chunks=HUGE),
        "evaluations/return is float32[3, 1000000000000]",
    ),
    "name": (renamed, "its metrics are not those of this algorithm"),
    "link": (linked, "4/states/0000 is neither a file nor a folder"),
    "pipe": (piped, "4/states/0001/0 is neither a file nor a folder"),
    "time": (lambda at: change(at / "_CHECKPOINT_METADATA", init_timestamp_nsecs=1.5), ""),
    "deep": (deep, ""),
}


@pytest.mark.parametrize("name", CHECKPOINT)
def test_a_crafted_checkpoint_is_damaged(name: str, tmp_path: Path) -> None:
    craft, reason = CHECKPOINT[name]
    writer = Checkpoints(tmp_path, {"points": [2, 4]})
    writer.write(Checkpoint(4, STATES, [2], {"return": np.ones((3, 1), np.float32)}))
    writer.close()
    (step,) = (tmp_path / "checkpoints").iterdir()
    step = step.rename(step.with_name("4"))
    craft(step)
    reader = Checkpoints(tmp_path, {"points": [2, 4]})
    sentence = refused(lambda: reader.load(STATES, METRICS))
    reader.close()
    assert "is damaged (" in sentence and reason in sentence


@pytest.mark.parametrize("name", ["x", "0000-of-0000", "1-of-2-of-3"])
def test_a_folder_that_is_no_part_is_named(name: str, run: Path, algo: Algorithm) -> None:
    (run / "parts" / name).mkdir(parents=True)
    assert f"holds parts/{name}, which would be replaced" in refused(
        lambda: jaxrl.resume(run, algo=algo, progress=False)
    )


def test_more_parts_than_runs_are_refused(run: Path, algo: Algorithm) -> None:
    (run / "parts" / "0-of-999999999999").mkdir(parents=True)
    assert "it has 999,999,999,999 parts for 2 runs" in refused(
        lambda: jaxrl.resume(run, algo=algo, progress=False, env_steps=4 * PER_ITERATION)
    )


# --- named pipes ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metrics.nc", "policies.npz", "config.json", "run.json"])
def test_a_named_pipe_is_not_waited_for(name: str, run: Path, algo: Algorithm) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    options: Any = {"env_steps": PER_ITERATION, "progress": False, "out": run}
    if name != "run.json":
        assert f"{name} is missing" in refused(lambda: load_result(run, algo=algo))
    refused(lambda: jaxrl.train(algo, **options))
    if name == "run.json":
        assert "run.json is missing" in refused(lambda: jaxrl.resume(run, algo=algo))
