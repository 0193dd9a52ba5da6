"""Classic control against Gymnasium (float64) and gymnax, step by step, over 100,000 random actions each.

Every step starts both from the same state, so errors do not accumulate. Gymnasium's state is rounded
to float32 for jaxrl; then, to first order, output i may differ by

    eps / 2 * sum_j |d output_i / d state_j| |state_j|     (the rounding of the state; exact derivatives)
  + eps * ROUNDINGS * size                                 (the rounding of jaxrl's operations)

with `size` a bound on the terms of sums inside a step and ROUNDINGS the operations on its longest path.
A flag may differ only where its threshold lies within that tolerance; on these trajectories none does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import envs

EPS = float(np.finfo(np.float32).eps)
STEPS = 100_000


class Case(NamedTuple):
    """One task.

    Attributes:
      angles: Indices of outputs (state after, then observation, then reward) that are angles, equal modulo 2 pi.
      roundings: Number of roundings, see the module.
      size: Bound of the numbers added up, see the module; takes states `[T, D]` and returns `[T, 1 or outputs]`.
      resets: Bounds of the uniform reset, a pair for each coordinate of the state.
    """

    name: str
    gymnasium_id: str
    angles: tuple[int, ...]
    roundings: int
    size: Callable[[np.ndarray], np.ndarray]
    resets: tuple[tuple[float, float], ...]


def _constant(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda state: np.full((len(state), 1), value)


CASES = [
    # Accelerations are below 60 (10 N on 1.1 kg; a pole of 0.5 m), times 0.02 s; states are below 5.
    Case("cartpole", "CartPole-v1", (), 25, _constant(5.0), ((-0.05, 0.05),) * 4),
    # Rates up to 8, costs up to pi^2 + 6.4 + 0.004; the angle is never wrapped and grows.
    Case(
        "pendulum",
        "Pendulum-v1",
        (),
        12,
        lambda state: 16.5 + np.abs(state[:, :1]),
        ((-np.pi, np.pi), (-1.0, 1.0)),
    ),
    # Coriolis terms grow with squared rates; of the four stages of about 20 operations each carries its weight.
    Case(
        "acrobot",
        "Acrobot-v1",
        (0, 1),
        20,
        lambda state: 4 + 0.2 * np.sum(state[:, 2:] ** 2, axis=1, keepdims=True),
        ((-0.1, 0.1),) * 4,
    ),
    # Positions up to 1.2; the reward is -1.
    Case("mountain-car", "MountainCar-v0", (), 8, _constant(1.2), ((-0.6, -0.4), (0.0, 0.0))),
    # As above, but for the reward, 100 at the goal.
    Case(
        "mountain-car-continuous",
        "MountainCarContinuous-v0",
        (),
        8,
        lambda state: np.tile([1.2, 1.2, 1.2, 1.2, 100.0], (len(state), 1)),
        ((-0.6, -0.4), (0.0, 0.0)),
    ),
]
BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Record(NamedTuple):
    """Gymnasium's transitions: `[T]` and `[T, D]`, float64."""

    state: np.ndarray
    time: np.ndarray
    action: np.ndarray
    outputs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def record(case: Case, steps: int, seed: int, limit: int | None, *, pump: bool = False) -> tuple[Record, np.ndarray]:
    """Play random actions in Gymnasium; also the states that its resets gave, `[R, D]`.

    Random actions never bring a mountain car to its goal; with `pump` three of four follow the velocity.
    """
    env: Any = gymnasium.make(case.gymnasium_id, disable_env_checker=True, max_episode_steps=limit)
    inner: Any = env.unwrapped
    rng = np.random.default_rng(seed)
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    if discrete:
        actions = rng.integers(env.action_space.n, size=steps)
    else:  # beyond the bounds too, where the clipping shows
        actions = rng.uniform(1.5 * env.action_space.low, 1.5 * env.action_space.high, (steps, 1)).astype(np.float32)
    pumped = rng.random(steps) < 0.75 * pump
    rows, resets, time = [], [], 0
    env.reset(seed=seed)
    resets.append(np.array(inner.state, np.float64))
    for action, pumps in zip(actions, pumped, strict=True):
        state = np.array(inner.state, np.float64)
        if pumps:
            action = np.int64(2 * (state[1] >= 0)) if discrete else np.sign(state[1:] + 1e-9).astype(np.float32)
        obs, reward, terminated, truncated, _ = env.step(int(action) if discrete else action)
        outputs = np.concatenate([np.array(inner.state, np.float64), np.asarray(obs, np.float64), [reward]])
        rows.append((state, time, action, outputs, terminated, truncated))
        time += 1
        if terminated or truncated:
            env.reset()
            resets.append(np.array(inner.state, np.float64))
            time = 0
    return Record(*(np.array(column) for column in zip(*rows, strict=True))), np.array(resets)


def our_step(case: Case, params: Any) -> Callable[[Any, Any, Any], tuple[jax.Array, tuple[jax.Array, jax.Array]]]:
    """`(state [D], time, action) -> (state after, observation, reward as one vector), (terminated, truncated)`."""
    env = envs.make(case.name)
    kind: Any = type(env.reset_env(jax.random.key(0), params)[1])

    def step(state: jax.Array, time: jax.Array, action: jax.Array) -> Any:
        obs, after, reward, terminated, _ = env.step_env(jax.random.key(0), kind(time, *state), action, params)
        vector = jnp.stack(jax.tree.leaves(after)[1:])
        return jnp.concatenate([vector, obs, reward[None]]), (terminated, env.is_truncated(after, params))

    return step


def difference(case: Case, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Absolute differences `[T, outputs]`, of angles modulo 2 pi."""
    gap = ours.astype(np.float64) - theirs
    angles = list(case.angles)
    gap[:, angles] -= 2 * np.pi * np.round(gap[:, angles] / (2 * np.pi))
    return np.abs(gap)


@pytest.mark.slow
@BY_NAME
def test_parity_with_gymnasium(case: Case) -> None:
    """100,000 random actions."""
    played, _ = record(case, STEPS, 0, None)
    assert played.truncated.any() or case.name == "cartpole"
    assert played.terminated.any() or case.name != "cartpole"
    assert_parity(case, played, None)


@pytest.mark.slow_rows("acrobot", "pendulum")
@BY_NAME
def test_parity_with_gymnasium_under_a_short_limit(case: Case) -> None:
    """5,000 random actions with a limit that CartPole's random episodes reach too."""
    played, _ = record(case, 5_000, 1, 12)
    assert played.truncated.any()
    assert_parity(case, played, 12)


@pytest.mark.parametrize("case", CASES[3:], ids=lambda case: case.name)
def test_parity_with_gymnasium_at_the_goal(case: Case) -> None:
    """10,000 actions that mostly pump the car up."""
    played, _ = record(case, 10_000, 2, None, pump=True)
    assert played.terminated.sum() > 10
    assert_parity(case, played, None)


def assert_parity(case: Case, played: Record, limit: int | None) -> None:
    """Steps of jaxrl from each of Gymnasium's states, compared with Gymnasium's next state."""
    params = envs.make(case.name).default_params
    if limit is not None:
        params = params.replace(max_steps_in_episode=limit)
    step = our_step(case, params)
    state = played.state.astype(np.float32)
    inputs = (state, played.time.astype(np.int32), played.action)
    ours, (terminated, truncated) = jax.jit(jax.vmap(step))(*inputs)
    slope = jax.jit(jax.vmap(jax.jacfwd(lambda *args: step(*args)[0])))(*inputs)

    rounded_state = EPS / 2 * np.einsum("tij,tj->ti", np.abs(np.asarray(slope, np.float64)), np.abs(played.state))
    tolerance = rounded_state + EPS * case.roundings * case.size(played.state)
    gap = difference(case, np.asarray(ours), played.outputs)
    worst = np.unravel_index(np.argmax(gap / tolerance), gap.shape)
    assert np.all(gap <= tolerance), f"output {worst[1]} at step {worst[0]}: {gap[worst]} > {tolerance[worst]}"
    assert np.max(gap / tolerance) > 0.005  # the bound is tight enough to matter

    np.testing.assert_array_equal(terminated, played.terminated)
    np.testing.assert_array_equal(truncated, played.truncated)


@pytest.mark.parametrize("case", CASES[1:3], ids=lambda case: case.name)
def test_single_steps_are_gymnasiums(case: Case) -> None:
    """From random states that float32 holds exactly, so that only the operations of jaxrl round."""
    env: Any = gymnasium.make(case.gymnasium_id, disable_env_checker=True).unwrapped
    env.reset(seed=0)
    step, draws = jax.jit(our_step(case, envs.make(case.name).default_params)), np.random.default_rng(6)
    for _ in range(40):
        # Pendulum's angle is not wrapped, and both have rates of up to 8 and 4 pi.
        state = draws.uniform(-7, 7, len(case.resets)).astype(np.float32)
        if case.angles:
            state[list(case.angles)] /= 3
        action = draws.integers(3) if case.angles else draws.uniform(-3, 3, 1).astype(np.float32)
        env.state = state.astype(np.float64)
        obs, reward, terminated, _, _ = env.step(action)
        theirs = np.concatenate([np.asarray(env.state, np.float64), obs, [reward]])
        ours, (ended, _) = step(state, jnp.int32(0), action)
        size = np.broadcast_to(case.size(state[None].astype(np.float64)), (1, len(theirs)))[0]
        # Gymnasium's observations are float32, one rounding more.
        assert np.all(difference(case, np.asarray(ours)[None], theirs[None])[0] <= EPS * (case.roundings + 1) * size)
        assert bool(ended) == terminated


@pytest.mark.slow
@BY_NAME
def test_resets_are_drawn_from_gymnasium_s_distribution(case: Case) -> None:
    """Kolmogorov-Smirnov tests of the resets of both against the uniform law in Gymnasium's source."""
    env = envs.make(case.name)
    _, drawn = jax.vmap(env.reset_env, (0, None))(jax.random.split(jax.random.key(1), 20_000), env.default_params)
    ours = np.stack(jax.tree.leaves(drawn)[1:], axis=1)
    assert not np.any(jax.tree.leaves(drawn)[0])
    theirs = record(case, 5_000, 3, 5)[1]
    for index, (low, high) in enumerate(case.resets):
        for sample in (ours[:, index], theirs[:, index]):
            # Uniform numbers of jaxrl and stored states of Gymnasium may round outwards by half an ulp.
            assert sample.min() >= low - EPS * abs(low) and sample.max() <= high + EPS * abs(high)
            if high > low:  # fixed keys; a sound generator fails one of some 14 tests in 700 choices of keys
                assert stats.kstest(sample, "uniform", (low, high - low)).pvalue > 1e-4


@pytest.mark.slow
@BY_NAME
def test_parity_with_gymnax(case: Case) -> None:
    """The same keys give the same resets, bit for bit, and steps that agree to rounding, resets included.

    gymnax's MountainCarContinuous departs from Gymnasium in one thing: at the left wall it keeps a velocity
    into the wall, where Gymnasium and jaxrl stop the car. That step is compared in all else.
    """
    env, other = envs.make(case.name), envs.make(f"gymnax/{case.gymnasium_id}")
    params, other_params = env.default_params, other.default_params
    kind: Any = type(env.reset_env(jax.random.key(0), params)[1])
    num_envs, num_steps = 100, STEPS // 100

    def vector(state: Any) -> jax.Array:
        """The common fields of both states, without the time (gymnax's Pendulum also keeps its last torque)."""
        return jnp.stack([leaf for leaf, _ in zip(_numbers(state), case.resets, strict=False)])

    def body(state: Any, key: jax.Array) -> Any:
        action_key, step_key = jax.random.split(key)
        action = env.action_space(params).sample(action_key)
        own_state = kind(state.time, *vector(state))
        own_key = jax.random.split(step_key)[0]
        results = []
        for which, start, numbers in ((env, own_state, params), (other, state, other_params)):
            _, after, reward, _, _ = which.step_env(own_key, start, action, numbers)
            obs, new, _, terminated, truncated, info = which.step(step_key, start, action, numbers)
            outputs = jnp.concatenate([vector(after), info["final_observation"], reward[None]])
            results.append((outputs, (terminated, truncated), (vector(new), new.time, obs)))
        return new, (vector(state), *results)

    @jax.jit
    def run(key: jax.Array) -> Any:
        reset_key, key = jax.random.split(key)
        first, state = env.reset_env(reset_key, params)
        other_first, other_state = other.reset_env(reset_key, other_params)
        _, steps = jax.lax.scan(body, other_state, jax.random.split(key, num_steps))
        return (first, vector(state)), (other_first, vector(other_state)), steps

    first, other_first, (state, ours, theirs) = jax.vmap(run)(jax.random.split(jax.random.key(5), num_envs))
    np.testing.assert_array_equal(first[1], other_first[1])
    # sin and cos of the first observation come from two implementations, each within an ulp of 1.
    np.testing.assert_allclose(first[0], other_first[0], rtol=0, atol=3 * EPS)

    flat = [np.asarray(leaf).reshape(STEPS, -1) for leaf in (state, ours[0], theirs[0])]
    gap = difference(case, flat[1], flat[2].astype(np.float64))
    # Both round, from the same state: twice the term for jaxrl's operations, and no other.
    tolerance = np.broadcast_to(2 * EPS * case.roundings * case.size(flat[0].astype(np.float64)), gap.shape).copy()
    if case.name == "mountain-car-continuous":
        wall = flat[1][:, 0] <= params.min_position
        assert np.all(flat[1][wall, 1] == 0) and np.all(flat[2][wall, 1] <= 0)
        tolerance[wall, 1] = tolerance[wall, 3] = np.inf
    worst = np.unravel_index(np.argmax(gap / tolerance), gap.shape)
    assert np.all(gap <= tolerance), f"output {worst[1]} at step {worst[0]}: {gap[worst]} > {tolerance[worst]}"
    for flag, other_flag in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(flag, other_flag)

    done = np.asarray(ours[1][0] | ours[1][1])
    assert done.sum() >= num_envs  # resets are included
    np.testing.assert_array_equal(np.asarray(ours[2][0])[done], np.asarray(theirs[2][0])[done])
    np.testing.assert_array_equal(ours[2][1], theirs[2][1])
    np.testing.assert_allclose(np.asarray(ours[2][2])[done], np.asarray(theirs[2][2])[done], rtol=0, atol=3 * EPS)


def _numbers(state: Any) -> list[jax.Array]:
    return [value for name, value in vars(state).items() if name != "time"]


@pytest.mark.slow
def test_cartpole_s_reward_beyond_the_end() -> None:
    """gymnax pays 0 for a step that starts outside the limits; an episode never takes one, and jaxrl pays 1."""
    env, other = envs.make("cartpole"), envs.make("gymnax/CartPole-v1")
    params, other_params = env.default_params, other.default_params
    key = jax.random.key(0)
    outside = jnp.float32(3.0)
    _, _, reward, terminated, _ = env.step_env(key, env.reset(key)[1].replace(x=outside), jnp.int32(0), params)
    _, _, other_reward, _, _ = other.step_env(key, other.reset(key)[1].replace(x=outside), jnp.int32(0), other_params)
    assert (float(reward), float(other_reward), bool(terminated)) == (1.0, 0.0, True)


def test_derived_constants_follow_the_swept_ones() -> None:
    """Total mass and the pole's moment come from their parts, so a heavier cart is heavier throughout."""
    case = CASES[0]
    changed = {"masscart": 3.0, "masspole": 0.4, "length": 0.8, "gravity": 5.0}
    env: Any = gymnasium.make("CartPole-v1", disable_env_checker=True).unwrapped
    for name, value in changed.items():
        setattr(env, name, value)
    env.total_mass, env.polemass_length = 3.0 + 0.4, 0.4 * 0.8
    step = jax.jit(our_step(case, envs.make("cartpole").default_params.replace(**changed)))
    env.reset(seed=0)
    for index in range(20):
        state = np.array(env.state)
        env.step(index % 2)
        ours = np.asarray(step(state.astype(np.float32), jnp.int32(0), jnp.int32(index % 2))[0])[:4]
        np.testing.assert_allclose(ours, env.state, rtol=0, atol=EPS * case.roundings * 5)


@pytest.mark.slow
def test_sin_cos() -> None:
    """Within 1.5e-7 up to 5e4, in [-1, 1], with the derivative of the other."""
    from envs.control.trigonometry import sin_cos

    rng = np.random.default_rng(0)
    for size in (1.0, 10.0, 1000.0, 5e4):
        angle = rng.uniform(-size, size, 200_000).astype(np.float32)
        angle = np.concatenate([angle, (np.arange(-500, 500) * np.pi / 4).astype(np.float32)]) if size < 5e4 else angle
        sin, cos = (np.asarray(leaf, np.float64) for leaf in jax.jit(sin_cos)(angle))
        exact = angle.astype(np.float64)
        assert np.abs(sin - np.sin(exact)).max() < 1.5e-7 and np.abs(cos - np.cos(exact)).max() < 1.5e-7
        assert np.abs(sin).max() <= 1 and np.abs(cos).max() <= 1
    slope = jax.vmap(jax.grad(lambda x: sin_cos(x)[0]))(jnp.linspace(-7, 7, 101))
    # The derivative of the polynomial for sin stops a term earlier: at pi / 4, (pi / 4)^10 / 10! = 2.5e-8.
    np.testing.assert_allclose(slope, np.cos(np.linspace(-7, 7, 101)), rtol=0, atol=1e-6)
