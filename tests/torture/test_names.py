"""Run directories of any name: trained into, stopped, resumed, read, drawn, exported and merged."""

import os
import signal
from pathlib import Path

import pytest
from torturing import assert_same_bits, quiet

import jaxrl
from jaxrl.cli import main as cli
from jaxrl.results.result import Result

TRAIN = str.split(
    "train ppo cartpole --no-preset --no-progress --env-steps 256 --evals 4 --eval-episodes 2 --seeds 2 --block 1 "
    "--config.num-envs 2 --config.num-steps 16 --config.num-minibatches 2 --config.num-epochs 1 --config.hidden 8"
)

NAMES = [
    "runs[1]",
    "a*b?",
    "with spaces in it ",
    "ünï-模型-🤖",
    "cafe\N{COMBINING ACUTE ACCENT}",
    "-x",
    "--out",
    "x" * 250,
    "/".join(["deep" * 10] * 20),
    "...",
    ".hidden",
    "x/",
    "x/.",
    "../inside/x",
    "a/../x",
    "%20{x}%s{0}",
    "~",
    "$HOME",
    "a'b\"c`d`",
    "back\\slash",
    "new\nline",
    "a=b:c,d;e",
    "#1",
    "1",
    "x.nc",
    "checkpoints",
    "parts",
    "config.json",
    os.fsdecode(b"l\xe4ufe"),
]
REFUSED = ["", "x" * 256, "/".join(["y" * 200] * 30), "file/x", "nul\0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("whole") / "x"
    assert cli.main([*TRAIN, f"--out={out}"]) == 0
    return jaxrl.load_result(out)


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")


def positional(name: str) -> str:
    """A directory as an argument that cannot be parsed as an option."""
    return f"./{name}" if name.startswith("-") else name


def everything(name: str, whole: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands on a directory of this name."""
    from jaxrl.runtime.checkpoints.store import Checkpoints

    save, saved = Checkpoints.save_if_due, []

    def stop(self: Checkpoints, checkpoint: object) -> None:
        save(self, checkpoint)  # pyright: ignore[reportArgumentType]
        saved.append(checkpoint)
        if len(saved) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save_if_due", stop)
        assert cli.main([*TRAIN, f"--out={name}"]) == 128 + signal.SIGTERM
    at = positional(name)
    assert cli.main(["resume", at, "--no-progress"]) == 0
    assert_same_bits(jaxrl.load_result(name), whole)
    assert cli.main(["plot", at]) == cli.main(["evaluate", at, "--episodes", "2"]) == 0
    assert cli.main(["export", at, "--seed", "0"]) == 0
    assert cli.main(["report", at, "--out", "page.html"]) == 0
    assert (Path(name) / "return.png").is_file() and (Path(name) / "policy.stablehlo").is_file()
    shards = [f"{name.rstrip('/.')}-{i}" for i in range(2)] if len(name) < 250 else []
    for i in range(len(shards)):
        assert cli.main([*TRAIN, f"--out={name.rstrip('/.') or 'x'}", "--shard", f"{i}/2"]) == 0
    if shards and name.strip("/."):
        assert cli.main(["merge", *map(positional, shards), "--out=merged", "--force"]) == 0
        assert_same_bits(jaxrl.load_result("merged"), whole)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_directory_may_have_any_name(
    name: str, whole: Result, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    everything(name, whole, monkeypatch)
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err and "jaxrl: " not in captured.err.replace("jaxrl: warning", "")


def test_a_directory_may_be_a_link_and_is_absolute_or_not(
    whole: Result, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path("link").symlink_to(tmp_path / "elsewhere")
    everything("link", whole, monkeypatch)
    assert (tmp_path / "elsewhere" / "config.json").is_file()
    everything(str(tmp_path / "absolute"), whole, monkeypatch)


@pytest.mark.parametrize("name", REFUSED, ids=range(len(REFUSED)))
def test_names_that_cannot_be_directories_get_one_sentence(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("file").touch()
    for command in ([*TRAIN, f"--out={name}"], ["resume", name], ["plot", name], ["merge", name, f"--out={name}"]):
        with quiet():
            assert cli.main(command) == 2
        error = capfd.readouterr().err
        assert error.startswith("jaxrl: ") and error.count("\n") == 1 and "JAXRL_TRACEBACK" not in error, command[:1]
