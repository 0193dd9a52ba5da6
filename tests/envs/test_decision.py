"""Rewards of the decision tasks match their exact values, and their preferences the known ones."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.decision.delayed_choice import DelayedChoice
from envs.decision.pathworld import Pathworld, PathworldParams
from envs.decision.preference_reversal import LATER, SOONER, PreferenceReversal
from envs.decision.random_dilemmas import RandomDilemmas, RandomDilemmasParams
from jaxrl.discounts.parsing import BetaWeighted, Hyperbolic, as_discount


def curve_of(discount: Any, horizon: int = 400) -> np.ndarray:
    return np.asarray(as_discount(discount).curve(horizon), np.float64)


def play(env: Any, actions: Any, params: Any = None, key: int = 0) -> tuple[np.ndarray, Any]:
    """Rewards of one episode `[T]`, 0 after its end, and other values of each step."""
    params = env.default_params if params is None else params
    rewards, record = jax.tree.map(np.asarray, _play(env, jax.random.key(key), jnp.asarray(actions), params))
    return rewards, {**record, "length": int(record["alive"].sum())}


@functools.partial(jax.jit, static_argnums=0)
def _play(env: Any, key: jax.Array, actions: jax.Array, params: Any) -> tuple[jax.Array, dict[str, Any]]:
    reset_key, step_key = jax.random.split(key)
    _, state = env.reset_env(reset_key, params)

    def step(carry: Any, action: Any) -> Any:
        state, alive = carry
        masks = env.action_mask(state, params)
        obs, state, reward, terminated, info = env.step_env(step_key, state, action, params)
        record = {"alive": alive, "masks": masks, "obs": obs, "info": info}
        return (state, alive & ~terminated), (jnp.where(alive, reward, 0), record)

    return jax.lax.scan(step, (state, jnp.ones((), bool)), actions)[1]


# --- pathworld ---------------------------------------------------------------------------


def test_the_published_errors_of_pathworld() -> None:
    """Rewards 0 to 14, hazard uniform in (0, 0.1): the fork's heuristic for the Beta, hyperbolic, three rates."""
    mean, variance = 0.95, 0.05**2  # the heuristic: odds p against 1 - the mean, twice a Beta of "deviation" 1 - mean
    odds = (1 - mean) / mean
    alpha = 2 * (odds - variance) / variance
    beta = odds * alpha
    np.testing.assert_allclose((alpha, beta), (40.105, 2.111), atol=5e-4)
    discounts = (
        BetaWeighted(mu=alpha / (alpha + beta), eta=1 / beta),
        Hyperbolic(k=0.05),
        0.975,
        0.95,
        0.99,
    )
    env = Pathworld("uniform")
    errors = [env.mean_squared_error(curve_of(discount)) for discount in discounts]
    expected = (0.0431, 0.2473, 0.241, 0.449, 3.952)
    for error, value in zip(errors, expected, strict=True):
        assert f"{error:.3g}" == f"{value:.3g}"
    np.testing.assert_allclose(errors, expected, atol=5e-4)  # all digits shown: the shortest have three decimals


def test_survival_is_the_mean_over_hazards() -> None:
    """Against numerical integration of exp(-hazard t) over the density of the hazard."""
    steps, k = np.array([0, 1, 10, 196]), 0.07
    u = (np.arange(200_000) + 0.5) / 200_000  # the midpoint rule over quantiles
    quantiles = {"uniform": 2 * k * u, "exponential": -k * np.log1p(-u), "constant": np.full_like(u, k)}
    for hazard, values in quantiles.items():
        actual = Pathworld(hazard).survival(steps, k)  # type: ignore[arg-type]
        np.testing.assert_allclose(actual, np.exp(-values[:, None] * steps).mean(0), rtol=0, atol=5e-6)
        assert actual[0] == 1
    # An unknown hazard is survived longer, and an exponential one as a hyperbolic discount.
    np.testing.assert_allclose(Pathworld("exponential").survival(np.arange(197)), curve_of(Hyperbolic(k=0.05), 196))
    assert (
        Pathworld("constant").survival(50) < Pathworld("uniform").survival(50) < Pathworld("exponential").survival(50)
    )


@pytest.mark.slow
@pytest.mark.parametrize("hazard", ["uniform", "exponential", "constant"])
def test_paths_pay_their_values(hazard: Any) -> None:
    env, episodes = Pathworld(hazard, num_paths=5), 4000
    params = env.default_params

    def episode(key: jax.Array, path: jax.Array) -> Any:
        reset_key, step_key = jax.random.split(key)
        _, state = env.reset_env(reset_key, params)

        def step(carry: Any, key: jax.Array) -> Any:
            state, alive, total = carry
            _, state, reward, terminated, _ = env.step_env(key, state, path, params)
            return (state, alive & ~terminated, total + jnp.where(alive, reward, 0)), None

        keys = jax.random.split(step_key, params.max_steps_in_episode)
        return jax.lax.scan(step, (state, jnp.ones((), bool), jnp.zeros(())), keys)[0][1:]

    keys = jax.random.split(jax.random.key(0), (5, episodes))
    alive, totals = jax.jit(jax.vmap(jax.vmap(episode, (0, None))))(keys, jnp.arange(5))
    assert not np.any(alive)  # the default limit is long enough for every path
    error = np.std(totals, axis=1) / np.sqrt(episodes)
    assert np.all(np.abs(np.mean(totals, axis=1) - env.values()) <= 4.5 * error)  # 15 of them: 1e-4 in all
    assert np.all(error[2:] < 0.1) and np.all(np.mean(totals, axis=1)[1:] > 0.5)


def test_a_path_is_walked_in_its_square_of_steps() -> None:
    env: Any = Pathworld(num_paths=4)
    params = env.default_params.replace(mean_hazard=0.0)
    assert params.max_steps_in_episode == 10
    for path in range(4):
        actions = np.full(10, path)
        rewards, record = play(env, actions, params)
        assert record["length"] == path**2 + 1 and rewards.sum() == path == rewards[path**2]
        np.testing.assert_array_equal(record["masks"][0], [True] * 4)
        if path:
            np.testing.assert_array_equal(record["masks"][1], np.arange(4) == path)
            np.testing.assert_allclose(record["obs"][0], [0, path / 3, (path**2 - 1) / 9], rtol=1e-6)
        curve = curve_of("hyperbolic:k=0.3", 10)
        np.testing.assert_allclose(curve[:10] @ rewards, env.estimates(curve)[path], rtol=1e-6)
    np.testing.assert_array_equal(env.values(mean_hazard=1e-300), np.arange(4))


def test_the_mean_hazard_is_traced() -> None:
    env: Any = Pathworld("constant")

    def hazard(k: jax.Array) -> jax.Array:
        return env.reset_env(jax.random.key(0), env.default_params.replace(mean_hazard=k))[1].hazard

    np.testing.assert_array_equal(jax.jit(jax.vmap(hazard))(jnp.array([0.1, 0.2])), np.array([0.1, 0.2], np.float32))


# --- delayed choice ----------------------------------------------------------------------


def test_a_delayed_choice_pays_with_its_last_step() -> None:
    env: Any = DelayedChoice()
    curve = curve_of("hyperbolic:k=0.01")
    for action, reward in enumerate((1.75, 1.0)):
        # Later choices have no effect.
        rewards, record = play(env, [action] + [1 - action] * 109)
        assert record["length"] == 100 and rewards[99] == reward == rewards.sum()
        np.testing.assert_allclose(curve[:110] @ rewards, env.values(curve)[action], rtol=1e-6)
        np.testing.assert_array_equal(record["masks"][:2], [[True, True], np.arange(2) == action])
        np.testing.assert_array_equal(record["info"]["metrics"]["chose_first"], [action == 0] + [False] * 109)
        np.testing.assert_allclose(record["obs"][48], [0, 2 * action - 1, 0.51], rtol=1e-6)
    short = env.default_params.replace(num_steps=3, second_reward=4.0)
    assert play(env, [1, 0, 0, 0], short)[0].tolist() == [0, 0, 4, 0]
    np.testing.assert_allclose(env.values([1, 0.5, 0.25], short), [1.75 / 4, 1])


# --- preference reversal -----------------------------------------------------------------


def test_plans_pay_their_values() -> None:
    env, curve = PreferenceReversal(), curve_of("hyperbolic:k=0.01")
    values = env.values(curve)
    plans = {"sooner": [SOONER] * 205, "later": [LATER] * 205, "switching": [LATER] * 99 + [SOONER] * 106}
    ends = {"sooner": (99, 1.0), "later": (199, 1.75), "switching": (99, 0.99)}
    for name, actions in plans.items():
        rewards, record = play(env, actions)
        step, reward = ends[name]
        assert record["length"] == 200 and rewards[step] == np.float32(reward) and rewards.sum() == rewards[step]
        np.testing.assert_allclose(curve[:205] @ rewards, getattr(values, name), rtol=1e-6)
        metrics = {metric: steps[:200].sum() for metric, steps in record["info"]["metrics"].items()}
        assert metrics == {"chose_later": name != "sooner", "switched": name == "switching"}
        choices = [0] if name == "sooner" else [0, 99]
        np.testing.assert_array_equal(np.flatnonzero(record["masks"][:200].all(1)), choices)
        shown = np.flatnonzero(record["obs"][:199, 1] == 1) + 1  # the observation after step t is of t + 1
        assert set(choices) - {0} == set(shown.tolist())
    # At the second choice the clock restarts.
    assert values.switch == 1 - 0.01 and values.hold == 1.75 * curve[100]


def test_only_the_later_reward_can_be_left() -> None:
    env = PreferenceReversal()
    rewards, record = play(env, [SOONER] + [LATER] * 204)
    assert rewards[99] == 1 == rewards.sum() and not record["info"]["metrics"]["switched"].any()
    np.testing.assert_array_equal(record["masks"][1:100], [[True, False]] * 99)
    early, _ = play(env, [LATER] + [SOONER] * 98 + [LATER] * 106)
    assert early[199] == 1.75 == early.sum()
    switched, record = play(env, [LATER] * 99 + [SOONER] + [LATER] * 105)  # no rewards follow
    assert switched[99] == switched.sum() == np.float32(0.99)
    np.testing.assert_array_equal(record["masks"][100:200], [[True, False]] * 100)


def test_a_hyperbolic_agent_changes_its_mind() -> None:
    """.585 against .503 at first, .99 against .875 at step 99."""
    values = PreferenceReversal().values(curve_of("hyperbolic:k=0.01"))
    assert (round(values.later, 3), round(values.sooner, 3)) == (0.585, 0.503)
    assert (round(values.switch, 2), round(values.hold, 3)) == (0.99, 0.875)
    assert values.plans_later and values.would_switch and values.reverses and not values.foreseeing_later
    assert PreferenceReversal().values(curve_of("quasi:beta=0.8,gamma=0.996")).reverses
    exponential = PreferenceReversal().values(curve_of(0.99))
    assert (round(exponential.sooner, 3), round(exponential.later, 3)) == (0.370, 0.237)


def test_an_exponential_agent_is_consistent_up_to_the_tax() -> None:
    env, tax = PreferenceReversal(), 0.01
    for gamma in np.linspace(0.98, 1.0, 401):
        values = env.values(gamma ** np.arange(200))
        assert not values.reverses
        # Its first choice is the second one without the tax, at a longer delay.
        afar = gamma**99
        np.testing.assert_allclose(values.later - values.sooner, afar * (values.hold - values.switch - tax), atol=1e-12)
        if values.plans_later != (not values.would_switch):
            assert 0 <= values.hold - values.switch <= tax + 1e-12


def test_rewards_and_steps_are_traced() -> None:
    env: Any = PreferenceReversal()
    base_params = env.default_params.replace(sooner_step=2, later_step=4)

    def total(tax: jax.Array, sooner_step: jax.Array) -> jax.Array:
        params = base_params.replace(tax=tax, sooner_step=sooner_step)
        _, state = env.reset_env(jax.random.key(0), params)
        _, state, *_ = env.step_env(jax.random.key(0), state, jnp.int32(LATER), params)
        return env.step_env(jax.random.key(0), state, jnp.int32(SOONER), params)[2]

    actual = jax.jit(jax.vmap(total))(jnp.array([0.25, 0.5, 0.5]), jnp.array([1, 1, 2]))
    np.testing.assert_array_equal(actual, [0.75, 0.5, 0])
    values = env.values([1, 0.9, 0.8, 0.7, 0.6], base_params)
    np.testing.assert_allclose(values, (0.8, 1.75 * 0.6, 0.99 * 0.8, 0.99, 1.75 * 0.8))


# --- random dilemmas ---------------------------------------------------------------------


@pytest.mark.slow
def test_dilemmas_pay_their_values() -> None:
    env, curve = RandomDilemmas(), curve_of("beta:mu=0.99,eta=0.5")
    for key in range(3):
        obs, state = env.reset_env(jax.random.split(jax.random.key(key))[0], env.default_params)
        np.testing.assert_array_equal(obs[:2], state.rewards)
        for action in range(2):
            rewards, record = play(env, [action] + [1 - action] * 399, key=key)
            delay = int(state.delays[action])
            assert record["length"] == delay + 1 and rewards[delay] == rewards.sum() == state.rewards[action]
            np.testing.assert_allclose(curve[:400] @ rewards, env.values(curve, obs)[action], rtol=1e-6)
            np.testing.assert_array_equal(record["masks"][1], np.arange(2) == action)
            assert record["info"]["metrics"]["chosen_delay"].sum() == delay
            after = record["obs"][9]  # both options are the chosen one, 10 steps nearer
            np.testing.assert_array_equal(after[:2], [rewards[delay]] * 2)
            np.testing.assert_allclose(after[2:], [max(delay - 10, 0) / 400] * 2, rtol=1e-6)


@pytest.mark.slow
def test_dilemmas_cover_their_ranges() -> None:
    env: Any = RandomDilemmas()
    count = 20_000
    params = env.default_params.replace(max_delay=7, max_reward=2.0)
    obs, state = jax.vmap(env.reset_env, (0, None))(jax.random.split(jax.random.key(0), count), params)
    delays, rewards = np.asarray(state.delays), np.asarray(state.rewards)
    share = np.bincount(delays.ravel(), minlength=7) / delays.size
    # 40,000 draws: a share of 1/7 has a deviation of 0.00175, a mean of uniforms on (0, 2) one of 0.0029.
    assert share.size == 7 and np.abs(share - 1 / 7).max() < 0.008
    assert abs(rewards.mean() - 1) < 0.015 and rewards.min() < 0.01 and 1.99 < rewards.max() < 2
    np.testing.assert_allclose(np.asarray(obs)[:, 2:], delays / 7, rtol=1e-6)
    np.testing.assert_array_equal(
        env.values([1, 0.5, 0, 0, 0, 0, 0], obs, params), rewards * np.where(delays == 0, 1, 0.5 * (delays == 1))
    )


# --- all ---------------------------------------------------------------------------------


def test_names_and_refusals() -> None:
    for name in ("pathworld", "delayed-choice", "preference-reversal", "random-dilemmas"):
        assert envs.make(name).name == name
    assert envs.make("pathworld", hazard="constant", num_paths=5) == Pathworld("constant", 5)
    with pytest.raises(ValueError, match="hazard is 'normal'; it takes uniform, exponential, constant"):
        envs.make("pathworld", hazard="normal")
    with pytest.raises(ValueError, match="num_paths is 1; it takes a whole number of at least 2"):
        Pathworld(num_paths=1)
    with pytest.raises(ValueError, match=r"curve has the shape \(100,\); it takes at least 200 entries"):
        PreferenceReversal().values(np.ones(100))


# --- the best returns --------------------------------------------------------------------


@pytest.mark.parametrize("discount", [None, 0.97, Hyperbolic(k=0.05)])
def test_the_optimum_of_pathworld_is_the_best_path(discount: Any) -> None:
    """Against numerical integration over the quantiles of the hazard."""
    env = Pathworld("exponential", num_paths=8)
    params = PathworldParams(mean_hazard=0.02, max_steps_in_episode=40)
    hazards = -0.02 * np.log1p(-(np.arange(100_000) + 0.5) / 100_000)
    curve = np.ones(50) if discount is None else curve_of(discount, 50)
    best = max(i * curve[i * i] * np.mean(np.exp(-hazards * i * i)) for i in range(7))  # path 7 takes 50 steps
    assert env.optimum(params, discount) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("discount", [None, 0.5])
def test_the_optimum_of_random_dilemmas_is_the_mean_of_the_higher_value(discount: Any) -> None:
    """Against the midpoint rule over both rewards, for every pair of delays."""
    env = RandomDilemmas()
    params = RandomDilemmasParams(max_reward=3.0, max_delay=4, max_steps_in_episode=3)
    rewards = 3.0 * (np.arange(400) + 0.5) / 400
    weights = np.array([1, *(np.full(2, discount or 1) ** [1, 2]), 0])  # the longest delay comes after the limit
    values = [np.maximum.outer(a * rewards, b * rewards).mean() for a in weights for b in weights]
    assert env.optimum(params, discount) == pytest.approx(np.mean(values), rel=1e-5)
    assert env.optimum() == pytest.approx(10 / 3)
