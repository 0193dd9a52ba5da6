"""Evaluation against episodes that are added up by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from envs.base import Environment, EnvParams, EnvState, MetricRule, spaces
from jaxrl.discounts.parsing import (
    BetaWeighted,
    Exponential,
    FixedHorizon,
    Hyperbolic,
    QuasiHyperbolic,
    Tabulated,
    TruncatedDiscount,
    prepare,
    stack,
)
from jaxrl.learning.actor import Actor, memoryless
from jaxrl.learning.evaluation import evaluate

LIVES = 6
EPISODES = 16
EPS = float(np.finfo(np.float32).eps)


@struct.dataclass
class Params(EnvParams):
    max_steps_in_episode: jax.Array | int = 100


@struct.dataclass
class State(EnvState):
    time: jax.Array
    life: jax.Array


@dataclass(frozen=True)
class Decaying(Environment):
    """A reset draws a life of 1 to 6 steps; step t pays life * t + action; all values are NaN beyond the life.

    The metrics named after numbers are 1 in an episode of that life, so that their means are
    the shares of lives in an evaluation.
    """

    @property
    def default_params(self) -> Params:
        return Params()

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        rules: dict[str, MetricRule] = {str(i + 1): "last" for i in range(LIVES)}
        rules.update(time_sum="sum", time_mean="mean", time_last="last")
        return rules

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, State]:
        state = State(jnp.zeros((), jnp.int32), jax.random.randint(key, (), 1, LIVES + 1))
        return jnp.ones(1), state

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[jax.Array, State, jax.Array, jax.Array, dict[Any, Any]]:
        state = State(state.time + 1, state.life)
        decay = jnp.where(state.time <= state.life, 1.0, jnp.nan)
        time = state.time * decay
        metrics = {"time_sum": time, "time_mean": time, "time_last": time}
        metrics |= {str(i + 1): (state.life == i + 1) * decay for i in range(LIVES)}
        # Terminated at its life alone: later steps must not count although it continues.
        reward = state.life * time + action
        return decay[None], state, reward, state.time == state.life, {"metrics": metrics}

    def action_space(self, params: Params | None = None) -> spaces.Discrete:
        return spaces.Discrete(2)

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        return spaces.Box(1.0, 1.0, (1,))


def choose(noise: jax.Array, scores: Any, greedy: jax.Array, mask: Any) -> tuple[jax.Array, None]:
    """The action 1 if greedy, otherwise 0 or 1 at random."""
    return jnp.where(greedy, 1, noise), None


ACTOR = memoryless(
    lambda policy, obs, mask: {},
    lambda key, shape: jax.random.bernoulli(key, shape=shape).astype(jnp.int32),
    choose,
)


@partial(jax.jit, static_argnames="num_episodes")
def evaluated(key: jax.Array, params: Params, prepared: Any, num_episodes: int) -> dict[str, jax.Array]:
    return evaluate(Decaying(), params, ACTOR, None, key, num_episodes, prepared.next_weight)


def shares_of_lives(metrics: Mapping[str, Any], suffix: str = "") -> np.ndarray:
    return np.array([metrics[f"{i + 1}{suffix}"] for i in range(LIVES)], np.float64)


def by_hand(life: int, limit: int, curve: np.ndarray) -> dict[str, float]:
    """One greedy episode, step by step."""
    totals = {"return": 0.0, "discounted_return": 0.0, "length": 0, "time_sum": 0.0, "time_last": 0.0}
    for t in range(min(life, limit)):
        reward = life * (t + 1) + 1
        totals["return"] += reward
        totals["discounted_return"] += curve[t] * reward
        totals["length"] += 1
        totals["time_sum"] += t + 1
        totals["time_last"] = t + 1
    return totals | {"time_mean": totals["time_sum"] / totals["length"]}


def assert_close(actual: Any, exact: float) -> None:
    # Sums of at most 6 rewards, averaged over 16 episodes: fewer than 50 roundings.
    assert abs(float(actual) - exact) <= 50 * EPS * max(1.0, abs(exact))


@pytest.mark.slow_rows("3")
@pytest.mark.parametrize("limit", [3, 100])
def test_metrics_of_whole_episodes_equal_sums_by_hand(limit: int) -> None:
    params = Params(max_steps_in_episode=jnp.int32(limit))
    metrics = jax.device_get(evaluated(jax.random.key(0), params, prepare(0.9, 8), EPISODES))
    shares = shares_of_lives(metrics)
    assert shares.sum() == 1 and np.count_nonzero(shares) > 3
    assert shares[:2].sum() > 0, "some life must be shorter than the limit, so that a NaN follows it"
    episodes = [by_hand(life, limit, 0.9 ** np.arange(LIVES)) for life in range(1, LIVES + 1)]
    for name in episodes[0]:
        assert_close(metrics[name], float(shares @ [episode[name] for episode in episodes]))
    assert_close(metrics["length_sampled"], metrics["length"])
    assert {name for name in metrics if not name.endswith("_sampled")} == {*episodes[0], *"123456"}
    assert all(np.isfinite(value) and np.shape(value) == () for value in metrics.values())


def test_greedy_and_sampled_start_from_the_same_states() -> None:
    first, second = (
        jax.device_get(evaluated(jax.random.key(seed), Params(jnp.int32(100)), prepare(0.9, 8), EPISODES))
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(shares_of_lives(first), shares_of_lives(first, "_sampled"))
    assert not np.array_equal(shares_of_lives(first), shares_of_lives(second))


def test_sampled_actions_are_random_and_greedy_ones_are_not() -> None:
    metrics = jax.device_get(evaluated(jax.random.key(0), Params(jnp.int32(100)), prepare(0.9, 8), EPISODES))
    shares = shares_of_lives(metrics)
    paid = shares @ [life * life * (life + 1) / 2 for life in range(1, LIVES + 1)]
    steps = EPISODES * metrics["length"]
    greedy, sampled = (EPISODES * (metrics[f"return{suffix}"] - paid) for suffix in ("", "_sampled"))
    assert round(float(greedy)) == round(float(steps))
    # A binomial of half the steps; five of its standard deviations.
    assert abs(sampled - steps / 2) < 2.5 * np.sqrt(steps)
    assert sampled != greedy


def beta_curve(mu: float, eta: float) -> np.ndarray:
    """The Beta moments, as the product of (alpha + t) / (alpha + beta + t)."""
    alpha, beta = mu / (eta * (1 - mu)), 1 / eta
    ratios = [(alpha + t) / (alpha + beta + t) for t in range(LIVES - 1)]
    return np.concatenate([[1.0], np.cumprod(ratios)])


T = np.arange(LIVES)
TABLE = [1.0, 0.5, 0.25, 0.25]
FAMILIES: list[tuple[Any, np.ndarray]] = [
    (Exponential(0.8), 0.8**T),
    (QuasiHyperbolic(0.5, 0.8), np.where(T == 0, 1.0, 0.5) * 0.8**T),
    (Hyperbolic(0.5), 1 / (1 + 0.5 * T)),
    (BetaWeighted(0.8, 0.5), beta_curve(0.8, 0.5)),
    (FixedHorizon(3), (T < 3).astype(float)),
    (TruncatedDiscount(Exponential(0.8), 2), 0.8**T * (T < 2)),
    (Tabulated(TABLE), np.array([*TABLE, 0.0, 0.0])),
]


@pytest.mark.slow
def test_the_discounted_return_weighs_each_reward_by_the_discount() -> None:
    prepared = prepare(stack([discount for discount, _ in FAMILIES]), 8)
    metrics = jax.jit(jax.vmap(lambda one: evaluated(jax.random.key(0), Params(), one, EPISODES)))(prepared)
    for i, (discount, curve) in enumerate(FAMILIES):
        shares = shares_of_lives(jax.tree.map(lambda values, i=i: values[i], metrics))
        exact = shares @ [by_hand(life, 100, curve)["discounted_return"] for life in range(1, LIVES + 1)]
        # A hyperbolic's own ratio, 1 - step / (1 + t step), adds a few roundings at each step.
        assert abs(float(metrics["discounted_return"][i]) - exact) <= 100 * EPS * exact, str(discount)
    np.testing.assert_array_equal(metrics["return"], np.broadcast_to(metrics["return"][0], len(FAMILIES)))


# --- several agents ----------------------------------------------------------------------


def crowd_metrics(actor: Actor, masked: bool, limit: int) -> dict[str, Any]:
    params = agents.CrowdParams(pay=jnp.float32(0.5), max_steps_in_episode=jnp.int32(limit))
    env = agents.Crowd(3, masked)
    run = jax.jit(lambda: evaluate(env, params, actor, None, jax.random.key(0), 2, lambda t, w: 0.5 * w))
    return jax.device_get(run())


def test_a_policy_remembers_for_every_agent_of_every_episode() -> None:
    """Agent i acts for i + 2 steps, by the number of steps that it remembers: 0, 1, 2, 2, ..."""

    def scores(policy: Any, memory: jax.Array, obs: Any, mask: Any) -> tuple[dict[str, jax.Array], jax.Array]:
        return {"steps": memory}, memory + 1

    def choose(noise: Any, scores: Any, memory: jax.Array, greedy: Any, mask: Any) -> Any:
        return jnp.minimum(scores["steps"], 2), None, memory

    actor = Actor(lambda policy: jnp.zeros((), jnp.int32), scores, jax.random.normal, choose)
    metrics = crowd_metrics(actor, masked=False, limit=100)
    exact = sum(0.5 * (i + 1) * min(t, 2) / 3 for i in range(3) for t in range(i + 2))
    for suffix in ("", "_sampled"):
        assert_close(metrics[f"return{suffix}"], exact)


def test_without_a_discount_there_is_no_discounted_return() -> None:
    metrics = jax.jit(lambda: evaluate(Decaying(), Params(), ACTOR, None, jax.random.key(0), 2, None))()
    assert "return" in metrics and not any(name.startswith("discounted_return") for name in metrics)


@pytest.mark.parametrize("masked", [False, True])
def test_a_crowds_returns_are_means_over_its_agents(masked: bool) -> None:
    def allowed(policy: Any, obs: jax.Array, mask: Any) -> dict[str, jax.Array]:
        assert obs.shape == (3, 2) and (mask is None) == (not masked)
        return {"allowed": jnp.ones((3, 3), bool) if mask is None else mask}

    def largest(noise: jax.Array, scores: Any, greedy: jax.Array, mask: Any) -> tuple[jax.Array, None]:
        assert noise.shape == (3,) and (mask is None) == (not masked)
        return jnp.max(jnp.where(scores["allowed"], jnp.arange(3), 0), axis=-1), None

    actor = memoryless(allowed, lambda key, shape: jax.random.uniform(key, shape), largest)
    metrics = crowd_metrics(actor, masked, limit=3)
    total = discounted = acting = last = 0.0
    for t in range(3):
        for i in range(3):
            if t < i + 2:
                action = 1 if masked and (t + i) % 3 == 2 else 2
                total += 0.5 * (i + 1) * action / 3
                discounted += 0.5**t * 0.5 * (i + 1) * action / 3
                acting += 1
                last += action / 3
    exact = {"return": total, "discounted_return": discounted, "acting": acting, "total": last, "length": 3}
    exact["share"] = acting / 9
    for name, value in exact.items():
        assert_close(metrics[name], value)
        assert_close(metrics[f"{name}_sampled"], value)


def test_an_empty_place_changes_no_metric() -> None:
    """Three people in three places and in eight: an agent that is never active does not count, for any reward."""

    class Padded(agents.Crowd):
        def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
            obs, state, reward, _, info = super().step_env(key, state, action, params)
            here = jnp.arange(self.num_agents) < 3
            acting = info["active"] & here
            metrics = {"acting": jnp.sum(acting), "share": jnp.sum(acting) / 3, "total": jnp.sum(state.total * here)}
            over = jnp.all(info["agent_terminated"] | ~here)
            return obs, state, jnp.where(here, reward, 7.0), over, info | {"active": acting, "metrics": metrics}

    actor = memoryless(lambda policy, obs, mask: {}, jax.random.normal, lambda n, s, g, m: (jnp.full(n.shape, 2), None))
    runs = [
        jax.jit(
            lambda places=places: evaluate(
                Padded(places), agents.CrowdParams(), actor, None, jax.random.key(0), 2, lambda t, w: 0.5 * w
            )
        )()
        for places in (3, 8)
    ]
    for name, value in runs[0].items():
        assert_close(runs[1][name], float(value))
    assert_close(runs[0]["return"], sum(2 * (i + 1) * (i + 2) for i in range(3)) / 3)
