"""The programs of a call: their creation and its side effects."""

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, wandering

import envs
import jaxrl
from envs.loops import traced_for
from jaxrl.runtime.programs import cached, compilations, forget, over_runs

BERNOULLI: Any = envs.make("bandit/bernoulli")


@pytest.mark.slow_rows("False")
@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_off_during_compilation_and_restored_after(
    monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    seen = []

    def fail(*_: Any) -> None:
        seen.append(gc.isenabled())
        raise RuntimeError("no compiler")

    monkeypatch.setattr("jaxrl.runtime.programs.compile_programs", fail)
    config = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(3,))
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError, match="no compiler"):
            jaxrl.train(jaxrl.ppo(envs.make("cartpole"), config), seeds=1, env_steps=16, progress=False)
        assert seen == [False]
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


@contextlib.contextmanager
def _other_settings() -> Iterator[None]:
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
        jax.debug_infs(True),
        jax.transfer_guard("disallow"),
    ):
        yield


def test_settings_of_jax_around_a_call_change_neither_its_programs_nor_its_numbers() -> None:
    algo = wandering()

    def trained() -> tuple[np.ndarray, Any]:
        result = jaxrl.train(algo, seeds=2, env_steps=2 * PER_ITERATION, evals=1, eval_episodes=2, progress=False)
        return result.metrics["norm"].values, result.policy(seed=0)(np.zeros((2, 2)))

    forget()
    with _other_settings():
        metrics, action = trained()
        made = compilations()
    again, same_action = trained()
    assert compilations() == made
    np.testing.assert_array_equal(metrics, again)
    np.testing.assert_array_equal(action, same_action)
    assert action.dtype == np.int32


@pytest.mark.parametrize(
    ("inner", "call"),
    [
        (
            "bandits.runner.carry_out",
            lambda _: jaxrl.run_bandit(jaxrl.bandits.ucb1(), BERNOULLI, steps=20, runs=2, points=2),
        ),
        ("runtime.evaluate_again.check_count", lambda _: jaxrl.evaluate_result(None, 2)),  # type: ignore[arg-type]
        ("runtime.plan_call.checked", lambda _: jaxrl.plan(wandering(), seeds=1, env_steps=16)),
        (
            "tuning.population.check_count",
            lambda _: jaxrl.population_based_training(wandering(), {"lr": jaxrl.Uniform(0, 1)}, env_steps=16),
        ),
        (
            "tuning.search.stop_on_signals",
            lambda _: jaxrl.search(wandering(), {"lr": jaxrl.Uniform(0, 1)}, env_steps=16),
        ),
        ("runtime.laws.algorithm_laws.check_members", lambda _: jaxrl.check(wandering())),
        ("policies.rendering._play", lambda path: jaxrl.render(envs.make("pathworld"), None, path / "a.gif")),
    ],
)
def test_every_call_replaces_settings_of_jax(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inner: str, call: Callable[[Path], Any]
) -> None:
    class ReachedError(Exception):
        pass

    def report(*_: Any, **__: Any) -> None:
        raise ReachedError(jax.config.values["jax_enable_x64"])

    monkeypatch.setattr(f"jaxrl.{inner}", report)
    with jax.enable_x64(True), pytest.raises(ReachedError, match="False"):
        call(tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        lambda: jaxrl.train(wandering(), seeds=1, env_steps=16),
        lambda: jaxrl.plan(wandering(), seeds=1, env_steps=16),
        lambda: jaxrl.search(wandering(), {"lr": jaxrl.Uniform(0, 1)}, env_steps=16),
        lambda: jaxrl.population_based_training(wandering(), {"lr": jaxrl.Uniform(0, 1)}, env_steps=16),
        lambda: jaxrl.run_bandit(jaxrl.bandits.ucb1(), BERNOULLI, steps=20),
        lambda: jaxrl.resume("nowhere"),
        lambda: jaxrl.evaluate_result(None, 2),  # type: ignore[arg-type]
    ],
    ids=["train", "plan", "search", "population", "bandit", "resume", "evaluate"],
)
def test_calls_without_compilation_are_refused_at_once(call: Callable[[], Any]) -> None:
    with jax.disable_jit(), pytest.raises(ValueError, match=r"^jax_disable_jit \(.* JAX_DISABLE_JIT\) must be False"):
        call()


class _Made:
    """Stands for compiled programs, and can be referenced weakly."""


@pytest.fixture
def caches_of_jax(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An entry for each time that JAX's caches, which other tests need, would have been cleared."""
    cleared: list[str] = []
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append("cleared"))
    return cleared


def test_the_programs_of_sixteen_calls_are_kept_until_cleared(caches_of_jax: list[str]) -> None:
    jaxrl.clear_programs()
    made = [weakref.ref(cached(("bound", i), (), _Made)) for i in range(20)]
    assert [each() is not None for each in made] == [False] * 4 + [True] * 16
    jaxrl.clear_programs()
    assert not any(each() for each in made)
    assert caches_of_jax == ["cleared", "cleared"]


@pytest.mark.usefixtures("caches_of_jax")
def test_cleared_programs_leave_no_executable_of_a_call_behind() -> None:
    algo = wandering()
    result = jaxrl.train(algo, seeds=2, env_steps=PER_ITERATION, evals=1, eval_episodes=2, progress=False)
    kept = [weakref.ref(each) for each in gc.get_objects() if isinstance(each, jax.stages.Compiled)]
    assert len(kept) >= 3
    jaxrl.clear_programs()
    assert not any(each() for each in kept)
    assert result.policy(seed=0)(np.zeros((2, 2))).dtype == np.int32


@pytest.mark.parametrize(("block", "platform", "rank"), [(1, "cpu", 2), (3, "cpu", 3), (1, "gpu", 3)])
def test_programs_of_a_block_of_one_have_no_axis_of_runs_on_a_cpu(block: int, platform: str, rank: int) -> None:
    def step(state: jax.Array, kernel: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state @ kernel + count, jnp.sum(kernel)

    state, kernel = (jax.random.normal(jax.random.key(i), (block, 4, 4)) for i in range(2))
    arguments = state, kernel, jnp.int32(1)
    with traced_for(platform):
        mapped = over_runs(step, block, 2)
    jaxpr = jax.make_jaxpr(mapped)(*arguments).jaxpr
    products = [each for each in jaxpr.eqns if each.primitive.name == "dot_general"]
    assert [each.outvars[0].aval.ndim for each in products] == [rank]
    # Sums of at most 16 terms below 4 in size, in any order; products of the state and the kernel are below 16.
    for actual, expected in zip(mapped(*arguments), jax.vmap(step, (0, 0, None))(*arguments), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0.0, atol=256 * float(np.finfo(np.float32).eps))
