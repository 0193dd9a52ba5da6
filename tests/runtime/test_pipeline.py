"""The path from a call to the programs on the devices, and the options that every call shares."""

import inspect
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from chaotic_algorithm import PER_ITERATION, wandering

import jaxrl
from envs.bandits.bernoulli import BernoulliBandit
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli import main as cli
from jaxrl.runtime import execution, programs
from jaxrl.runtime.checkpoints.identity_file import IDENTITY
from jaxrl.runtime.options import (
    BanditOptions,
    Options,
    PlanOptions,
    PopulationOptions,
    RunOptions,
    SearchOptions,
    checked,
    options_of,
)
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.programs import compilations

MOST_FRAMES, MOST_FILES = 9, 5  # one of which enters JAX's settings in its thread
PACKAGE = Path(jaxrl.__file__).parent


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


def run(algo: Algorithm, **changes: Any) -> jaxrl.Result:
    options: dict[str, Any] = {
        "seeds": 6,
        "env_steps": 4 * PER_ITERATION,
        "evals": 2,
        "eval_episodes": 2,
        "block": 2,
        "devices": jax.devices()[:1],
        "progress": False,
    }
    return jaxrl.train(algo, **(options | changes))


# --- frames -------------------------------------------------------------------------------


def own_frames(frame: Any) -> list[tuple[str, str]]:
    """The file and the name of each of jaxrl's frames, innermost first."""
    actual = []
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if PACKAGE in file.parents:
            actual.append((str(file.relative_to(PACKAGE)), frame.f_code.co_name))
        frame = frame.f_back
    return actual


class Watched:
    """A compiled program that records its callers: in its thread, and in the waiting one."""

    def __init__(self, program: Any, stacks: list[list[tuple[str, str]]]):
        self._program, self._stacks = program, stacks

    def __call__(self, *arguments: Any) -> Any:
        frames = own_frames(sys._getframe())
        if threading.current_thread() is not threading.main_thread():
            frames += own_frames(sys._current_frames()[threading.main_thread().ident or 0])
        self._stacks.append(frames)
        return self._program(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Any:
    actual: list[list[tuple[str, str]]] = []
    compile_programs = programs.compile_programs

    def watched(*arguments: Any) -> Any:
        return [[Watched(program, actual) for program in each] for each in compile_programs(*arguments)]

    programs.forget()
    monkeypatch.setattr(programs, "compile_programs", watched)
    yield actual
    programs.forget()


def assert_short(stacks: list[list[tuple[str, str]]], call: str) -> None:
    assert stacks
    for frames in stacks:
        assert frames[-1][1] == call
        assert len(frames) <= MOST_FRAMES, frames
        assert len({file for file, _ in frames}) <= MOST_FILES, frames


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_way_from_train_to_a_program_is_short(algo: Algorithm, stacks: Any, tmp_path: Path, num_threads: int):
    run(algo, devices=jax.devices()[:1] * num_threads, out=tmp_path / "x", checkpoint_minutes=1e-9)
    assert_short(stacks, "train")


@pytest.mark.slow
def test_so_is_that_of_a_call_in_parts(algo: Algorithm, stacks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    runs_of_part = Plan.fits.fget

    def fits(self: Plan) -> bool:
        return self.num_parts == 3 and bool(runs_of_part and runs_of_part(self))

    monkeypatch.setattr(Plan, "fits", property(fits))
    assert run(algo, out=tmp_path / "x").metrics.attrs["num_parts"] == 3
    assert_short(stacks, "train")


@pytest.mark.slow
def test_and_that_of_bandits(stacks: Any):
    bandit = BernoulliBandit(num_arms=3)
    jaxrl.run_bandit(jaxrl.bandits.ucb1(), bandit, steps=8, runs=4, points=2, block=2, progress=False)
    assert_short(stacks, "run_bandit")


# --- work that a call does once -----------------------------------------------------------


def test_run_json_is_read_once(algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(algo, out=tmp_path / "x")
    reads, read_bytes = [], Path.read_bytes

    def counted(self: Path, *arguments: Any, **options: Any) -> bytes:
        reads.append(self.name)
        return read_bytes(self, *arguments, **options)

    monkeypatch.setattr(Path, "read_bytes", counted)
    for resume in (
        lambda: run(algo, out=tmp_path / "x", resume=True),
        lambda: jaxrl.resume(tmp_path / "x", algo=algo, progress=False),
        lambda: cli.main(["resume", str(tmp_path / "x")]),  # which cannot build the algorithm
    ):
        reads.clear()
        resume()
        assert reads.count(IDENTITY) == 1


def test_signals_are_handled_in_one_place(algo: Algorithm, monkeypatch: pytest.MonkeyPatch):
    hearing, stop_on_signals = [], execution.stop_on_signals

    def counted(say: bool = False) -> Any:
        hearing.append(say)
        return stop_on_signals(say)

    for module in list(sys.modules.values()):
        if getattr(module, "stop_on_signals", None) is stop_on_signals:
            monkeypatch.setattr(module, "stop_on_signals", counted)
    run(algo)
    assert hearing == [False]


def test_another_number_of_threads_compiles_nothing(algo: Algorithm):
    device = jax.devices()[0]
    run(algo, devices=[device])
    before = compilations()
    run(algo, devices=[device] * 2)
    run(algo, devices=[device] * 3, seeds=5)
    assert compilations() == before


@pytest.mark.slow
def test_sharded_runs_are_in_the_same_cache(monkeypatch: pytest.MonkeyPatch):
    config = jaxrl.PPOConfig(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(3,))
    cartpole: Any = jaxrl.ppo(jaxrl.preset("ppo", "cartpole").algo.env, config)
    options: dict[str, Any] = {"env_steps": 32, "eval_episodes": 2, "progress": False, "shard_environments": True}
    before = compilations()
    jaxrl.train(cartpole, devices=jax.devices()[:1], seeds=[1], **options)
    assert compilations() == before + 1
    jaxrl.train(cartpole, devices=jax.devices()[:1], seeds=[2], **options)
    assert compilations() == before + 1


# --- options ------------------------------------------------------------------------------

TAKEN: dict[Callable[..., Any], type] = {
    jaxrl.train: RunOptions,
    jaxrl.run_bandit: BanditOptions,
    jaxrl.search: SearchOptions,
    jaxrl.population_based_training: PopulationOptions,
    jaxrl.plan: PlanOptions,
}


def test_every_option_is_documented_once():
    documented = re.findall(r"^  (\w+): [A-Z]", inspect.cleandoc(RunOptions.__doc__ or ""), flags=re.MULTILINE)
    assert sorted(documented) == sorted(options_of(RunOptions))
    for takes in TAKEN.values():
        smaller = options_of(takes)
        assert smaller.items() <= options_of(RunOptions).items()
    for call in TAKEN:
        assert not set(inspect.signature(call).parameters) & set(options_of(RunOptions))


def test_omitted_options_have_their_defaults():
    options = checked(jaxrl.plan, PlanOptions, {"block": 3})
    assert options.block == 3 and options.progress is True and options.checkpoint_minutes == 10
    assert vars(options).keys() == options_of(RunOptions).keys()
    with pytest.raises(AttributeError, match="block cannot be changed"):
        options.block = 4
    with pytest.raises(AttributeError, match="there is no option blocks"):
        _ = Options({}).blocks


@pytest.mark.parametrize(
    ("call", "wrong", "sentence"),
    [
        (jaxrl.train, {"seed": 3}, r"^train takes .*, and the options block, .*, got seed; did you mean 'seeds'\?$"),
        (jaxrl.train, {"worker": 3}, r"^train takes .*, and the options .*shard_environments, got worker$"),
        (
            jaxrl.search,
            {"trackers": ()},
            r"^search takes .*, and the options block, devices, memory, precision, out, progress",
        ),
        (jaxrl.plan, {"resume": True}, r"^plan takes .*, and the options block, devices, memory, precision, shard, .*"),
        (jaxrl.population_based_training, {"shard": "0/2"}, r"^population_based_training takes .*, got shard"),
        (jaxrl.train, {"out": 3}, r"^out takes a directory, such as 'runs/x', got 3$"),
    ],
)
def test_an_option_that_a_call_does_not_take_is_reported(
    algo: Algorithm, call: Any, wrong: dict[str, Any], sentence: str
):
    space: Any = () if call in (jaxrl.train, jaxrl.plan) else ({"lr": jaxrl.Uniform(0.1, 0.2)},)
    with pytest.raises(TypeError, match=sentence):
        call(algo, *space, env_steps=64, **wrong)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"precision": "low"}, "precision must be one of default, high"),
        ({"memory": "much"}, "memory must be a size such as 8GiB"),
        ({"checkpoint_minutes": 0}, "checkpoint_minutes must be a number above 0, or None"),
        ({"resume": True}, "resume takes out, the directory with the checkpoint, got resume=True without out"),
        ({"shard_environments": True, "block": 2}, "block has no effect with shard_environments, got 2"),
    ],
)
def test_an_option_out_of_range_is_reported(wrong: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        checked(jaxrl.train, RunOptions, wrong)
