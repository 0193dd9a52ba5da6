"""Checkpoints: a run that was killed, stopped, moved or extended ends like an undisturbed one."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from previous_format import write_json
from same_bits import assert_same_bits

import envs
import jaxrl
from envs.bandits import BernoulliBandit
from jaxrl.algorithms.contract import Algorithm
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.runtime.checkpoints.identity import difference
from jaxrl.runtime.checkpoints.store import CHECKPOINTS, Checkpoints
from jaxrl.runtime.runs import Runs

PER_ITERATION = 32
RUN: Any = {"seeds": 3, "env_steps": 12 * PER_ITERATION, "evals": 4, "eval_episodes": 4, "progress": False, "block": 2}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, num_epochs=1, hidden=(8,))
    return jaxrl.ppo(envs.make("cartpole"), config)


@pytest.fixture(scope="module")
def whole(algo: Algorithm) -> Result:
    return jaxrl.train(algo, **RUN)


def stopped(algo: Algorithm, out: Path, after: int, number: int = signal.SIGTERM, **changes: Any) -> Result:
    """A call that a signal ends after some evaluations."""
    seen = itertools.count(1)

    def stop(env_step: int, metrics: Any) -> None:
        if next(seen) == after:
            os.kill(os.getpid(), number)

    return jaxrl.train(algo, **RUN | {"on_chunk": stop, "out": out} | changes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_run_that_a_signal_ended_continues_bit_for_bit(
    algo: Algorithm, whole: Result, tmp_path: Path, number: int
) -> None:
    early = stopped(algo, tmp_path / "x", 2, number)
    assert [name.isdigit() for name in os.listdir(tmp_path / "x" / CHECKPOINTS)] == [True]
    assert early.metrics.attrs["interrupted"] == 1 and early.metrics.sizes["env_step"] == 2
    seen: list[int] = []
    on = jaxrl.train(algo, **RUN, out=tmp_path / "x", resume=True, on_chunk=lambda env_step, _: seen.append(env_step))
    assert seen == [9 * PER_ITERATION, 12 * PER_ITERATION] and on.metrics.attrs["interrupted"] == 0
    assert_same_bits(on, whole)
    assert_same_bits(jaxrl.load_result(tmp_path / "x"), whole)


def stopped_within(algo: Algorithm, out: Path, after: int, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Result:
    """A call that a signal ends between two evaluations, while iteration `after` is under way."""
    advance = Runs.advance

    def advance_one(self: Runs, count: int) -> None:
        advance(self, 1)
        if self.iteration == after:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Runs, "advance", advance_one)
        return jaxrl.train(algo, **RUN | {"out": out} | changes)


@pytest.mark.parametrize("after", [4, 5, 6])
def test_a_signal_between_two_evaluations_changes_no_bit(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    early = stopped_within(algo, tmp_path / "x", after, monkeypatch)
    assert early.metrics["env_step"].values.tolist() == [3 * PER_ITERATION, after * PER_ITERATION]
    seen: list[int] = []
    on = jaxrl.train(algo, **RUN, out=tmp_path / "x", resume=True, on_chunk=lambda env_step, _: seen.append(env_step))
    assert seen == [point * PER_ITERATION for point in (6, 9, 12) if point > after]
    assert on.metrics["env_step"].values.tolist() == whole.metrics["env_step"].values.tolist()
    assert_same_bits(on, whole)


def test_the_directory_shows_how_to_continue_and_a_finished_run_computes_nothing(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: Any
) -> None:
    stopped(algo, tmp_path / "x", 1)
    assert_same_bits(jaxrl.resume(tmp_path / "x", progress=False), whole)

    def refuse(*_: Any) -> None:
        raise AssertionError("a finished run is not advanced")

    monkeypatch.setattr("jaxrl.runtime.runs.Runs.advance", refuse)
    monkeypatch.setattr("jaxrl.runtime.runs.Runs.evaluate", refuse)
    assert_same_bits(jaxrl.resume(tmp_path / "x", progress=False), whole)


def test_resume_starts_where_there_is_nothing_to_continue_with(algo: Algorithm, whole: Result, tmp_path: Path) -> None:
    assert_same_bits(jaxrl.train(algo, **RUN, out=tmp_path / "x", resume=True), whole)


def test_an_extended_run_equals_a_longer_one(algo: Algorithm, tmp_path: Path) -> None:
    jaxrl.train(algo, **RUN, out=tmp_path / "x")
    longer = jaxrl.resume(tmp_path / "x", env_steps=18 * PER_ITERATION, progress=False)
    assert_same_bits(longer, jaxrl.train(algo, **RUN | {"env_steps": 18 * PER_ITERATION, "evals": 6}))
    with pytest.raises(ValueError, match="env_steps must be at least that of the original call, 576, got 32"):
        jaxrl.resume(tmp_path / "x", env_steps=PER_ITERATION, progress=False)


def test_a_schedule_over_the_whole_run_stays_at_its_end(algo: Algorithm, tmp_path: Path) -> None:
    annealed = algo._replace(hparams=algo.hparams.replace(lr_end=0.5))
    jaxrl.train(annealed, **RUN, out=tmp_path / "x")
    with pytest.warns(RuntimeWarning, match=r"end after the first 384 env steps, and their final values are kept"):
        longer = jaxrl.resume(tmp_path / "x", env_steps=18 * PER_ITERATION, progress=False)
    rates = longer.values("learning_rate")[0, 0]
    assert rates[-1] == pytest.approx(0.5 * float(algo.hparams.lr), rel=1e-6) and rates[0] > rates[3]


@pytest.mark.slow
def test_a_sweep_continues_with_its_names_and_on_another_number_of_devices(algo: Algorithm, tmp_path: Path) -> None:
    sweep = jaxrl.grid(algo.hparams, {"discount": [0.9, "beta:mu=0.98,eta=0.5"], "env.gravity": [9.8, 12.0]})
    changes = {"hparams": sweep, "seeds": [5, 7]}
    expected = jaxrl.train(algo, **RUN | changes)
    stopped(algo, tmp_path / "x", 2, **changes, devices=jax.devices()[:1])
    on = jaxrl.resume(tmp_path / "x", progress=False)
    assert_same_bits(on, expected)
    assert on.settings == expected.settings and on.seeds == [5, 7] and on.dims == expected.dims


@pytest.mark.slow
def test_bandits_continue_too(tmp_path: Path) -> None:
    ucb, bandit = jaxrl.bandits.ucb1(), BernoulliBandit(num_arms=3)
    settings: Any = {"steps": 64, "runs": 4, "points": [8, 16, 64], "progress": False}

    def stop(env_step: int, metrics: Any) -> None:
        if env_step == 16:
            os.kill(os.getpid(), signal.SIGTERM)

    jaxrl.run_bandit(ucb, bandit, **settings, out=tmp_path / "b", on_chunk=stop)
    on = jaxrl.run_bandit(ucb, bandit, **settings, out=tmp_path / "b", resume=True)
    assert_same_bits(on, jaxrl.run_bandit(ucb, bandit, **settings))
    with pytest.raises(ResultError, match="repeat its call with resume=True"):
        jaxrl.resume(tmp_path / "b", progress=False)


# --- what is refused ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def begun(algo: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("begun") / "x"
    stopped(algo, out, 2)
    return out


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"seeds": 2}, r"seeds is \[0, 1, 2\] there and \[0, 1\] here"),
        ({"block": 1}, "block is 2 there and 1 here"),
        ({"eval_episodes": 5}, "eval_episodes is 4 there and 5 here"),
        ({"evals": 3}, "points is .* there and .* here"),
    ],
)
def test_a_checkpoint_of_another_call_is_refused(algo: Algorithm, begun: Path, changes: Any, reported: str) -> None:
    before = sorted(begun.rglob("*"))
    with pytest.raises(ResultError, match=f"holds a checkpoint of another configuration: {reported}"):
        jaxrl.train(algo, **RUN | changes, out=begun, resume=True)
    assert sorted(begun.rglob("*")) == before


def test_a_checkpoint_of_other_hyper_parameters_or_networks_is_refused(algo: Algorithm, begun: Path) -> None:
    other = algo._replace(hparams=algo.hparams.replace(lr=1e-3))
    with pytest.raises(ResultError, match=r"hparams.lr is 0.00025 there and 0.001 here"):
        jaxrl.train(other, **RUN, out=begun, resume=True)


def test_other_versions_are_reported_and_the_run_continues(
    algo: Algorithm, whole: Result, begun: Path, tmp_path: Path
) -> None:
    shutil.copytree(begun, tmp_path / "x")
    reported = json.loads((tmp_path / "x" / "run.json").read_text())
    reported["versions"]["jax"] = "0.0.1"
    write_json(tmp_path / "x" / "run.json", reported)
    with pytest.warns(RuntimeWarning, match=r"may round differently: versions.jax is \"0.0.1\" there"):
        assert_same_bits(jaxrl.resume(tmp_path / "x", progress=False), whole)


def test_bad_input(algo: Algorithm, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="there is no such directory"):
        jaxrl.resume(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultError, match=r"holds no run that can be resumed: run\.json is missing"):
        jaxrl.resume(tmp_path / "empty")
    (tmp_path / "empty" / "search.json").touch()
    with pytest.raises(ResultError, match=r"it holds a search, which jaxrl resume in the shell"):
        jaxrl.resume(tmp_path / "empty")
    with pytest.raises(ResultError, match=r"empty holds a search: .* comes with its end: jaxrl resume .*empty\.$"):
        jaxrl.load_result(tmp_path / "empty")
    (tmp_path / "empty" / "incumbent").mkdir()
    with pytest.raises(ResultError, match=r"empty holds a search: the result of its best setting is in .*incumbent\.$"):
        jaxrl.load_result(tmp_path / "empty")
    with pytest.raises(ValueError, match="resume takes out, the directory with the checkpoint"):
        jaxrl.train(algo, **RUN, resume=True)
    with pytest.raises(ValueError, match=r"checkpoint_minutes must be a number above 0, or None .*, got 0"):
        jaxrl.train(algo, **RUN, out=tmp_path / "x", checkpoint_minutes=0)
    assert not (tmp_path / "x").exists()


def test_a_checkpoint_cut_in_half_is_reported(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "x")
    files = [file for file in (tmp_path / "x" / CHECKPOINTS).rglob("*") if file.is_file() and "/states/" in str(file)]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ResultError, match=r"The checkpoint .* is damaged"):
        jaxrl.resume(tmp_path / "x", progress=False)


def test_without_checkpoints_none_is_written(algo: Algorithm, tmp_path: Path) -> None:
    jaxrl.train(algo, **RUN, out=tmp_path / "x", checkpoint_minutes=None)
    assert not (tmp_path / "x" / CHECKPOINTS).exists()


@pytest.mark.parametrize(
    ("saved", "expected", "reported"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b is 1 there and 2 here"),
        ({"a": 1}, {"a": 1, "b": 2}, "b is set here only"),
        ({"a": 1, "b": 2}, {"a": 1}, "b is set there only"),
        ({"a": [1, 2]}, {"a": [1, 2]}, None),
        (
            {"a": list(range(64))},
            {"a": list(range(32))},
            f"a is {str(list(range(64)))[:57]}... (64 of them) there and 32 here",
        ),
    ],
)
def test_difference(saved: Any, expected: Any, reported: str | None) -> None:
    assert difference(saved, expected) == reported


# --- any end of the process ----------------------------------------------------------------

SCRIPT = """
import sys, warnings
import envs, jaxrl, jaxrl.runtime.drive.driver

jaxrl.runtime.drive.driver.SECONDS_PER_CHUNK = {seconds}
config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, num_epochs=1, hidden=(8,))
algo = jaxrl.ppo(envs.make("cartpole"), config)
def say(env_step, metrics):
    print(env_step, flush=True)
result = jaxrl.train(
    algo, seeds=3, env_steps={env_steps}, evals={evals}, eval_episodes=4, progress=False, block=2,
    out=sys.argv[1], resume=True, checkpoint_minutes={minutes}, on_chunk=say,
)
print("interrupted" if result.metrics.attrs["interrupted"] else "done", flush=True)
"""


def started(out: Path, **settings: float) -> subprocess.Popen[str]:
    """A process that resumes a run; it compiles nothing that a previous one has compiled."""
    script = textwrap.dedent(SCRIPT).format(**settings)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(out.parent / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | cache,
    )


def ended_at_random(
    algo: Algorithm, out: Path, numbers: Sequence[int], within: float, iterations: int, evals: int, **settings: float
) -> None:
    """A run that each of the signals ends at a random moment, after which it equals an undisturbed run."""
    long = {"env_steps": iterations * PER_ITERATION, "evals": evals}
    expected = jaxrl.train(algo, **RUN | long)
    generator, left, done = np.random.default_rng(0), list(numbers), False
    while not done:
        process = started(out, **long, **settings)
        assert process.stdout is not None
        first = process.stdout.readline()  # it trains, or had nothing left to do
        number = left.pop() if first != "done\n" and left else 0
        if number:
            time.sleep(generator.uniform(0, within))
            process.send_signal(number)
        reported, error = process.communicate(timeout=300)
        # A signal after the last chunk ends Python as it always does.
        assert process.returncode in (0, -number, 128 + number), error
        done = "done" in (first + reported).split()
    assert not left
    assert_same_bits(jaxrl.load_result(out), expected)


@pytest.mark.slow
def test_twenty_kills_lose_nothing(algo: Algorithm, tmp_path: Path) -> None:
    """Killed at 20 random moments, most of them while a checkpoint is being written: one follows every chunk."""
    ended_at_random(algo, tmp_path / "x", [signal.SIGKILL] * 20, 0.4, 600, 60, minutes=1e-6, seconds=1.0)


@pytest.mark.slow
def test_signals_at_random_moments_change_no_bit(algo: Algorithm, tmp_path: Path) -> None:
    """Between evaluations far apart, most of them, where the only checkpoint is the one that the signal makes."""
    ended_at_random(
        algo, tmp_path / "x", [signal.SIGTERM, signal.SIGINT] * 4, 0.05, 20_000, 20, minutes=10, seconds=0.02
    )


@pytest.mark.slow
def test_a_full_disk_ends_no_run_and_leaves_the_last_checkpoint(algo: Algorithm, begun: Path, tmp_path: Path) -> None:
    """No file may grow beyond 1,000 bytes, as on a full disk: there is a sentence, and the checkpoint is unchanged."""
    shutil.copytree(begun, tmp_path / "x")
    before = sorted(os.listdir(tmp_path / "x" / CHECKPOINTS))
    code = (
        "import resource, signal, sys, jaxrl; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY));"
        "jaxrl.resume(sys.argv[1], progress=False)"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "x")]
    process = subprocess.run(run, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert process.returncode == 0 and "Traceback" not in process.stderr
    assert "RuntimeWarning: the result is not saved" in process.stderr and "cannot be written" in process.stderr
    assert sorted(name for name in os.listdir(tmp_path / "x" / CHECKPOINTS) if name.isdigit()) == before
    assert_same_bits(jaxrl.resume(tmp_path / "x", progress=False), jaxrl.train(algo, **RUN))


def test_a_checkpoint_that_cannot_be_written_is_reported_and_the_run_continues(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: Any
) -> None:
    def full(self: Any, checkpoint: Any) -> None:
        raise ResultError("No checkpoint could be written to x: no space left on device; the previous one is intact.")

    monkeypatch.setattr(Checkpoints, "write", full)
    with pytest.warns(RuntimeWarning, match="no space left on device; the previous one is intact"):
        assert_same_bits(jaxrl.train(algo, **RUN, out=tmp_path / "x"), whole)
