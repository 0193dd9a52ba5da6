"""Compilation with little memory, and calls that no memory can hold."""

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
from jaxrl.runtime.layout import compile_programs
from jaxrl.runtime.machine.memory import GIB, MIB, at_least, parse_size
from jaxrl.runtime.programs import compilations


def test_a_size_to_ask_for_is_never_less() -> None:
    for number in (1, 3 * MIB, 700 * MIB + 1, 9 * GIB, 10 * GIB, 64.2 * GIB):
        assert number < parse_size(at_least(number)) <= 1.02 * number + (10 * MIB if number < 9 * GIB else GIB)


# --- compiling ---------------------------------------------------------------------------


def lower(device: Any) -> jax.stages.Lowered:
    shape = jax.ShapeDtypeStruct((4,), np.float32, sharding=jax.sharding.SingleDeviceSharding(device))
    return jax.jit(lambda x: jnp.sin(x).sum()).lower(shape)


@pytest.mark.parametrize("in_turn", [False, True])
def test_programs_are_compiled_in_turn_where_memory_is_tight(in_turn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, counts = layout._threads, list[int]()
    monkeypatch.setattr(layout, "_threads", lambda count: counts.append(count) or threads(count))
    monkeypatch.setattr(layout, "available", lambda: layout.TIGHT - in_turn)
    programs = compile_programs([lower, lower], jax.devices()[:1] * 2)
    assert counts == [1 if in_turn else 2]
    assert [[float(program(np.zeros(4, np.float32))) for program in each] for each in programs] == [[0, 0], [0, 0]]


# --- numbers beyond any memory -----------------------------------------------------------


def test_too_many_seeds_are_refused_before_listing(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_too_many_environments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", "cartpole", "--config.num-envs", "1e8"]) == 2
    assert capsys.readouterr().err == (
        "jaxrl: num_envs * num_steps * agents must be at most 2,147,483,647 samples of an iteration, which int32 "
        "counts, got 12,800,000,000\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 6])
def test_a_plan_holds_for_the_peak_of_a_fresh_process(number: int) -> None:
    from bench.memory_peak import CONFIGURATIONS, MOST_ABOVE, measured

    args = CONFIGURATIONS[number - 1].split()
    plan, run = (measured(command, args) for command in ("plan", "train"))
    assert plan["status"] == run["status"] == 0
    assert run["highest"] <= plan["planned"] <= (1 + MOST_ABOVE) * run["highest"]
