"""Memory of compiling: it is measured, included in plans, and limited before compilation."""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, wandering

import envs
import jaxrl
from jaxrl.cli.main import main
from jaxrl.runtime import call as calls
from jaxrl.runtime import layout
from jaxrl.runtime.layout import compile_programs, plan_layout
from jaxrl.runtime.machine import compiling
from jaxrl.runtime.machine.compiling import check_loops, check_room, compiling_within
from jaxrl.runtime.machine.memory import GIB, MIB, Peak, at_least, give_back, parse_size, resident
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.plan.planner import Planner, Sizes
from jaxrl.runtime.programs import compilations
from jaxrl.runtime.training import points_of, training_call

SIZES = Sizes(
    state=MIB, arguments=0, metrics=0, kept=0, arrays=0, evaluated_arrays=0, advancing=8 * MIB, evaluating=0, block=8
)


def planner(limit: int | None, asked: bool = True) -> Planner:
    algo = wandering()
    points = points_of(algo, 4 * PER_ITERATION, 2, 2)
    call = training_call(algo, None, seeds=list(range(8)), points=points, eval_episodes=2)
    return Planner(call, plan_layout(8, 8, jax.devices()[:1]), limit, asked=asked)


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    """No compiled programs on disk."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    yield
    jax.config.update("jax_enable_compilation_cache", before)


# --- watching ----------------------------------------------------------------------------


def test_a_peak_is_the_highest_within_its_contexts() -> None:
    give_back()
    peak, before = Peak(), resident()
    with peak:
        held = np.ones(96 * MIB, np.uint8)
        assert held[-1]
        time.sleep(20 * Peak.INTERVAL)  # a process that once took more reports no new peak, and is sampled
        del held
    assert before + 90 * MIB < peak.highest < before + 200 * MIB
    first = peak.highest
    with peak:
        pass
    assert peak.highest == first


def test_a_size_to_ask_for_is_never_less() -> None:
    for number in (1, 3 * MIB, 700 * MIB + 1, 9 * GIB, 10 * GIB, 64.2 * GIB):
        assert number < parse_size(at_least(number)) <= 1.02 * number + (10 * MIB if number < 9 * GIB else GIB)


# --- plans -------------------------------------------------------------------------------


def test_compiling_counts_where_it_takes_more_than_running() -> None:
    low = planner(None).at(SIZES, 8, 1, 500 * MIB, 400 * MIB)
    assert low.memory == low.running
    high: Plan = planner(None).at(SIZES, 8, 1, 500 * MIB, 2 * GIB)
    assert high.memory == 2 * GIB and high.running == low.running
    assert "about 2.0 GiB of memory: 2.0 GiB while it compiles, then process 500 MiB, " in str(high)


def test_compiling_over_the_memory_asked_for_is_refused_with_the_least() -> None:
    compiled = planner(1 * GIB).at(SIZES, 8, 1, 300 * MIB, 2 * GIB)
    assert compiled.running < GIB and not compiled.fits
    with pytest.raises(
        ValueError, match=r"^memory must be at least 2090MiB for this call, got 1.0 GiB: it takes 2.0 GiB"
    ):
        planner(1 * GIB).fitted(SIZES, 300 * MIB, compiled)
    # Without a requested limit, the memory of finished compilations does not count.
    assert planner(1 * GIB, asked=False).at(SIZES, 8, 1, 300 * MIB, 2 * GIB).fits


# --- compiling ---------------------------------------------------------------------------


def lower(device: Any) -> jax.stages.Lowered:
    shape = jax.ShapeDtypeStruct((4,), np.float32, sharding=jax.sharding.SingleDeviceSharding(device))
    return jax.jit(lambda x: jnp.sin(x).sum()).lower(shape)


@pytest.mark.parametrize("in_turn", [False, True])
def test_programs_are_compiled_in_turn_where_memory_is_tight(in_turn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(layout, "give_back", lambda: given_back.append(1))
    monkeypatch.setattr(compiling, "SIDE_BY_SIDE", GIB if in_turn else 0)
    with compiling_within(resident() + GIB):
        programs = compile_programs([lower, lower], jax.devices()[:1] * 2)
    assert len(given_back) == (2 if in_turn else 0)
    assert [[float(program(np.zeros(4, np.float32))) for program in each] for each in programs] == [[0, 0], [0, 0]]


@pytest.mark.usefixtures("nothing_kept")
def test_a_program_that_memory_asked_for_does_not_compile_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lower(jax.devices()[0])
    monkeypatch.setattr(compiling, "ALONE", MIB)  # a letter
    with (
        compiling_within(resident() + 64 * MIB, asked=True),
        pytest.raises(ValueError, match=r"^memory must be at least"),
    ):
        check_room(program)
    check_room(program)
    with compiling_within(resident() + 64 * MIB):
        check_room(program)
    monkeypatch.setattr(compiling, "ALONE", 1)
    with compiling_within(resident() + 64 * MIB, asked=True):
        check_room(program)


def test_programs_on_disk_are_refused_where_the_process_has_too_much_already(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jax.config.values["jax_compilation_cache_dir"] and jax.config.values["jax_enable_compilation_cache"]
    program = lower(jax.devices()[0])
    monkeypatch.setattr(compiling, "ALONE", MIB)
    with compiling_within(resident() + 64 * MIB, asked=True):
        check_room(program)
    with (
        compiling_within(MIB, asked=True),
        pytest.raises(ValueError, match=r"^memory must be at least \d+[MG]iB .* got 1 MiB"),
    ):
        check_room(program)


def test_loops_that_no_memory_holds_are_refused_before_compiling() -> None:
    runs, steps, num_envs = 4, 128, 10**7
    each = runs * steps * num_envs * 4

    def rollouts(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (carry + 1, carry), x, length=steps)[1]

    program = jax.jit(rollouts).lower(jax.ShapeDtypeStruct((runs, num_envs), np.float32))
    with compiling_within(resident() + each // 2):
        check_loops(program, runs)  # two of the four runs fit
    with compiling_within(resident() + each // 5), pytest.raises(ValueError) as reported:
        check_loops(program, runs)
    assert str(reported.value).startswith("memory must be at least ") and "a loop of it takes 4.8 GiB" in str(
        reported.value
    )
    check_loops(program, runs)


# --- numbers beyond any memory -----------------------------------------------------------


def test_too_many_seeds_are_refused_before_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> list[int]:
        raise AssertionError("seeds were listed")

    monkeypatch.setattr(calls, "available", lambda: 16 * GIB)
    monkeypatch.setattr(calls, "seed_list", never)
    algo, before = wandering(), compilations()
    most = 16 * GIB // calls.BYTES_PER_RUN
    for function in (jaxrl.train, jaxrl.plan):
        with pytest.raises(
            ValueError, match=rf"^seeds must be at most {most:,} here, .* 16.0 GiB .* got 1,000,000,000$"
        ):
            function(algo, seeds=10**9, env_steps=PER_ITERATION)
    sweep = jaxrl.grid(algo.hparams, {"lr": [0.1, 0.2]})
    with pytest.raises(ValueError, match=rf"^seeds must be at most {most // 2:,} here"):
        jaxrl.train(algo, sweep, seeds=10**8, env_steps=PER_ITERATION)
    bandit: Any = envs.make("bandit/bernoulli")
    with pytest.raises(ValueError, match=r"^runs must be at most"):
        jaxrl.run_bandit(jaxrl.bandits.ucb1(), bandit, steps=10, runs=10**9)
    assert compilations() == before


def test_too_many_environments_are_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", "cartpole", "--config.num-envs", "1e8"]) == 2
    assert capsys.readouterr().err == (
        "jaxrl: num_envs * num_steps * agents must be at most 2,147,483,647 samples of an iteration, which int32 "
        "counts, got 12,800,000,000\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 7])
def test_a_plan_holds_for_the_peak_of_a_fresh_process(number: int) -> None:
    from bench.memory_peak import CONFIGURATIONS, MOST_ABOVE, measured

    args = CONFIGURATIONS[number - 1].split()
    plan, run = (measured(command, args) for command in ("plan", "train"))
    if "--memory" in args:
        assert plan["status"] == run["status"] == 2
        assert run["said"].startswith("jaxrl: memory must be at least ")
        assert run["highest"] < parse_size(args[args.index("--memory") + 1])
    else:
        assert plan["status"] == run["status"] == 0
        assert run["highest"] <= plan["planned"] <= (1 + MOST_ABOVE) * run["highest"]
