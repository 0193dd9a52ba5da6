"""`jaxrl meta`: its table and files, a signal and what resumes it, shards, options, and one sentence for bad input."""

import contextlib
import inspect
import io
import signal
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import jaxrl
from jaxrl.cli.main import main
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.tuning.outer.outer_runs import OuterRuns

START = "meta ppo cartpole --no-preset --no-progress --theta lr=log:1e-5:1"
SHORT = f"{START} --inner-steps 1"  # which is refused where nothing else is
COMMAND = (
    f"{START} --config.num-envs 2 --config.num-steps 8 --config.num-minibatches 1 --config.num-epochs 1 "
    "--config.hidden 4 --inner-steps 32 --generations 2 --population 4 --eval-episodes 1 --seeds 2 --test-seeds 2 "
    "--std 2"
).split()


class Ran(NamedTuple):
    """A command that has ended: exit status, text on standard output, on standard error, and its directory."""

    status: int
    out: str
    err: str
    directory: Path

    @property
    def table(self) -> str:
        """Text without the last line, which names the directory."""
        return self.out[: self.out.index("\nWrote ")]


def run(directory: Path, *further: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default", RuntimeWarning)  # not an error, as in all tests
        status = main([*COMMAND, "--out", str(directory), *further])
    return Ran(status, out.getvalue(), err.getvalue(), directory)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A command that nothing has interrupted."""
    return run(tmp_path_factory.mktemp("meta") / "whole")


def same(one: Result, other: Result) -> None:
    assert set(one.metrics.data_vars) == set(other.metrics.data_vars)
    for name in one.metrics.data_vars:
        np.testing.assert_array_equal(one.values(str(name)), other.values(str(name)))


def held_out(directory: Path) -> Result:
    return jaxrl.load_result(directory / "held-out" / "0-cartpole")


def test_the_table_is_printed_and_the_result_is_read(whole: Ran):
    assert (whole.status, whole.err) == (0, "")
    loaded = jaxrl.load_result(whole.directory)
    assert loaded.seeds == [0, 1] and loaded.metrics.sizes["env_step"] == 2
    # 4 members of 32 steps in each of 2 generations.
    assert loaded.metrics["env_step"].values.tolist() == [128, 256]
    assert np.all(loaded.values("distance") > 0)
    tested = held_out(whole.directory)
    values = tested.values("return")[:, :, -1]
    assert values.shape == (3, 2)  # the start and two outer seeds, on two test seeds
    first, second, title, header, start, learned, last = filter(None, whole.out.splitlines())
    assert first == "Starting from the defaults of ppo."  # without a default number of steps, which --inner-steps gives
    assert second == "Learning lr of ppo on cartpole"
    assert title.startswith("return on test seeds: interquartile mean") and header.split()[:3] == [
        "task",
        "theta",
        "iqm",
    ]
    for row, name, means, runs in ((start, "start", values[0], 2), (learned, "learned", values[1:].mean(axis=1), 4)):
        words = row.split()
        assert words[:2] == ["cartpole", name] and words[-2:] == [str(runs), "0"]
        assert float(words[2]) == pytest.approx(means.mean(), abs=0.05)  # of at most two runs each, all within
    assert last == f"Wrote {whole.directory} (next: jaxrl plot {whole.directory})"


def test_the_next_command_that_is_named_draws_the_outer_curve(whole: Ran, capsys: pytest.CaptureFixture[str]):
    words = whole.out.splitlines()[-1].partition("(next: jaxrl ")[2].removesuffix(")").split()
    assert main(words) == 0
    assert (whole.directory / "return.png").read_bytes().startswith(b"\x89PNG")


def test_the_default_number_of_inner_steps_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(jaxrl, "meta", lambda *args, **options: outcome())
    assert main(START.split()) == 0
    assert "Each run takes 50,000 environment steps (--inner-steps changes this).\n" in capsys.readouterr().out


def test_a_command_that_a_signal_stopped_resumes(whole: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    generation, begun = OuterRuns._generation, []

    def stopped(self: OuterRuns) -> bool:
        begun.append(self.iteration)
        if self.iteration == 1:
            signal.raise_signal(signal.SIGTERM)
        return generation(self)

    monkeypatch.setattr(OuterRuns, "_generation", stopped)
    cut = run(tmp_path / "x")
    assert cut.status == 128 + signal.SIGTERM and begun == [0, 1]
    first, second, wrote, last = cut.out.splitlines()
    assert (first, second) == tuple(whole.out.splitlines()[:2])
    assert wrote.startswith(f"Wrote {cut.directory} ") and last == "Stopped; to resume: the same command with --resume"
    assert cut.err == ""  # standard output has it, in terms of options
    assert jaxrl.load_result(cut.directory).metrics.sizes["env_step"] == 1
    assert not (cut.directory / "held-out").exists()

    monkeypatch.setattr(OuterRuns, "_generation", lambda self: begun.append(self.iteration) or generation(self))
    resumed = run(tmp_path / "x", "--resume")
    assert (resumed.status, resumed.err, resumed.table) == (0, "", whole.table)
    assert begun == [0, 1, 1]  # the first generation is not repeated
    same(jaxrl.load_result(resumed.directory), jaxrl.load_result(whole.directory))
    same(held_out(resumed.directory), held_out(whole.directory))


def test_a_result_is_not_overwritten_without_resume_or_force(whole: Ran):
    again = run(whole.directory)
    assert again.status == 2 and again.err.startswith(f"jaxrl: {whole.directory} holds a result already")


def test_shards_are_written_apart_and_merged(whole: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "x"
    for i in range(2):
        shard = run(out, "--shard", f"{i}/2")
        assert (shard.status, shard.err) == (0, "")
        merge = f"(when all shards are finished: jaxrl merge {out}-* --out {out})"
        assert shard.out.splitlines()[-1] == f"Wrote {out}-{i} {merge}"
        assert jaxrl.load_result(f"{out}-{i}").seeds == [i]
    assert not out.exists()
    assert main(["merge", f"{out}-0", f"{out}-1", "--out", str(out)]) == 0
    same(jaxrl.load_result(out), jaxrl.load_result(whole.directory))


@pytest.mark.parametrize("of", ["", "held-out/0-cartpole"])
def test_the_status_shows_that_a_result_is_not_saved(
    of: str, whole: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    directory = tmp_path / "x"
    save = Result.save

    def full(self: Result, where: str | Path, *arguments: Any, **options: Any) -> Path:
        if Path(where) == directory / of:
            raise ResultError(f"{where} cannot be written: no space left on device.")
        return save(self, where, *arguments, **options)

    monkeypatch.setattr(Result, "save", full)
    ran = run(directory)
    assert ran.status == 2
    assert ran.err.startswith("jaxrl: warning: the result is not saved") and ran.err.count("\n") == 1
    printed = whole.table.splitlines()
    assert ran.out.splitlines()[: len(printed)] == printed and "(next:" not in ran.out


def outcome(**changes: Any) -> SimpleNamespace:
    """A result of `jaxrl.meta` without a table."""
    return SimpleNamespace(
        **{"result": SimpleNamespace(unsaved=False), "held_out": {}, "stopped_by_signal": 0} | changes
    )


def test_every_option_reaches_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    given: dict[str, Any] = {
        "held_out": ["mountain-car"],
        "inner_steps": 1000,
        "generations": 3,
        "population": 4,
        "inner_seeds": 2,
        "strategy": "snes",
        "lr": 0.5,
        "std": 0.2,
        "std_decay": 0.9,
        "shaping": "raw",
        "objective": "area",
        "discount": "hyperbolic:k=0.1",
        "evals": 3,
        "eval_episodes": 5,
        "seeds": (7, 8),
        "test_seeds": 6,
        "test_steps": 2000,
    }
    further = {"tasks": ["cartpole", "acrobot"], "block": 3, "checkpoint_minutes": 2.0, "out": str(tmp_path / "x")}
    words = [*START.split(), "--hparams.lam", "0.9", "--config.hidden", "4", "--resume"]
    for name, value in (given | further).items():
        listed = ["7:9"] if name == "seeds" else value if isinstance(value, list) else [value]
        words += ["--" + name.replace("_", "-"), *map(str, listed)]
    seen: dict[str, Any] = {}

    def meta(algo: Any, theta: Any, tasks: Any, **options: Any) -> SimpleNamespace:
        seen.update(options, algo=algo, theta=theta, tasks=tasks)
        return outcome()

    names = inspect.signature(jaxrl.meta).parameters.values()
    assert set(given) == {each.name for each in names if each.kind is each.KEYWORD_ONLY}  # none is forgotten here
    monkeypatch.setattr(jaxrl, "meta", meta)
    assert main(words) == 0
    assert {name: seen[name] for name in (given | further)} == given | further
    assert seen["resume"] is True and seen["progress"] is False and seen["shard"] is None
    assert seen["algo"].config.hidden == (4,) and seen["algo"].hparams.lam == 0.9
    assert seen["theta"].name == "lr" and list(seen["theta"].initial) == ["lr"]


def test_tasks_are_the_environment_of_the_command_if_none_is_named(monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []
    monkeypatch.setattr(
        jaxrl, "meta", lambda algo, theta, tasks, **options: seen.append((tasks, options["held_out"])) or outcome()
    )
    assert main(START.split()) == 0
    assert seen == [(None, None)]


def test_a_stopped_command_without_a_directory_names_no_way_to_resume(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(jaxrl, "meta", lambda *args, **options: outcome(stopped_by_signal=2))
    assert main(START.split()) == 130
    assert capsys.readouterr().out.splitlines()[-1] == "Stopped."


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            f"{SHORT} --hparams.lam 0.9 0.95",
            "--hparams.lam takes one value here, at which its theta starts, or which stays",
        ),
        (f"{SHORT} --hparams.lr 1e-3 1e-4", "--hparams.lr takes one value here, at which its theta starts"),
        (f"{START} --hparams.lr=2", "ranges takes ends on both sides of the own value of lr, 2, got 1e-05 to"),
        ("meta ppo cartpole", "missing from jaxrl meta ppo cartpole: --theta THETA|PATH=RANGE"),
        ("meta ppo cartpole --theta", "--theta takes names of numbers to learn, such as discount:mixture"),
        ("meta ppo cartpole --theta lr=1e-4,1e-3", "--theta takes ranges, such as lr=1e-4:1e-2"),
        ("meta ppo", "meta takes an algorithm and an environment first, such as: jaxrl meta ppo"),
        (f"{START} --objective best", "invalid choice 'best' for argument '--objective'."),
        (f"{START} --shard 0/2", "--shard takes --out as well"),
        (f"{START} --population 1", "population must be a whole number of at least 2, got 1"),
        (f"{START} --tasks cartpol", "There is no environment 'cartpol'; did you mean 'cartpole'"),
        (
            f"{START} --env.gravity 3",
            "unrecognized options: --env.gravity, 3; this command has no options for the environment's parameters "
            "(its static fields take --static NAME=VALUE) (see jaxrl meta ppo cartpole --help)\n",
        ),
    ],
)
def test_bad_input_gets_one_sentence(args: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    assert main(args.split()) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"jaxrl: {sentence}") and message.count("\n") == 1
    assert "JAXRL_TRACEBACK" not in message
