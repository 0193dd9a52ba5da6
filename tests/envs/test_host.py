"""Gymnasium's environments on the host: pure functions of seeds and actions, independent of the cached simulators."""

import copy
import gc
import subprocess
import sys
from collections import OrderedDict
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs.adapters.incoming import host, simulators
from envs.base import spaces
from envs.errors import UserValueError
from envs.settings import own_settings
from jaxrl.algorithms.contract import policy_shapes
from jaxrl.algorithms.registry import build, describe
from jaxrl.learning.actor import memoryless
from jaxrl.learning.rollout import reset_all, rollout

SMALL = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,))


class Forgetful(gymnasium.Env):
    """An environment that draws from a generator without a seed."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.random.default_rng().uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        return self.reset()[0], 0.0, False, False, {}


class Odd(gymnasium.Env):
    """An environment with all kinds of spaces, which truncates by itself after 4 steps."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
            "pair": gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3, start=1), gymnasium.spaces.MultiBinary(2)]),
            "double": gymnasium.spaces.Box(-np.inf, np.inf, (), np.float64),
        }
    )
    action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 1])

    def __init__(self, length: int = 4):
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.last = 0, np.array([0, 1])
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.time, self.last = self.time + 1, action
        return self._obs(), float(action.sum()), False, self.time == self.length, {}

    def _obs(self) -> Any:
        draw = self.np_random.integers(1, 4)
        return {"image": np.full((2, 2), 200, np.uint8), "pair": (draw, self.last % 2), "double": self.time / 2}


class Pushed(Odd):
    """An environment that takes a tree of actions, in its own order, and rewards the received values."""

    action_space = gymnasium.spaces.Dict(
        OrderedDict(
            push=gymnasium.spaces.Box(-1.0, 2.0, (2,)),
            both=gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 3, (2,), np.int32), gymnasium.spaces.Discrete(3)]),
        )
    )

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        counts, choice = action["both"]
        return self._obs(), float(action["push"].sum() + 10 * counts.sum() + 100 * choice), False, False, {}


class Big(Odd):
    """An environment that shows a number of 64 bits without bounds, multiplied at every step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.int64)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def step(self, action: Any) -> Any:
        self.time += action
        return self._obs(), 0.0, False, False, {}

    def _obs(self) -> Any:
        return np.array([7 - 2 ** (10 * self.time)])


class Board(Big):
    """An environment that shows a table of small integers."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 4), np.uint8)

    def _obs(self) -> Any:
        return np.arange(0, 256, 17, dtype=np.uint8).reshape(4, 4)


class Bounded(Odd):
    def __init__(self, low: Any, high: Any, dtype: Any, acts: bool = False):
        super().__init__()
        space: Any = gymnasium.spaces.Box(np.array(low), np.array(high), dtype=np.dtype(dtype).type)
        if acts:
            self.action_space = space
        else:
            self.observation_space = space


class Words(Odd):
    action_space = gymnasium.spaces.Text(3)


@pytest.fixture(autouse=True, scope="module")
def _registered():
    kinds = {
        "Forgetful-v0": Forgetful,
        "Odd-v0": Odd,
        "Words-v0": Words,
        "Counted-v0": Counted,
        "Pushed-v0": Pushed,
        "Big-v0": Big,
        "Board-v0": Board,
        "Bounded-v0": Bounded,
    }
    for name, kind in kinds.items():
        gymnasium.register(f"tests/{name}", kind)
    yield
    for name in kinds:
        del gymnasium.registry[f"tests/{name}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gymnasium/CartPole-v1", "gymnasium/Pendulum-v1", "gymnasium/tests/Odd-v0", "gymnasium/tests/Pushed-v0"]
)
def test_the_laws_hold(name: str):
    envs.check(envs.make(name), num_steps=24)


def native(env_id: str, seed: int, actions: Any) -> list[Any]:
    """An episode in Gymnasium itself, up to its end."""
    env = gymnasium.make(env_id)
    seen: list[Any] = [(env.reset(seed=seed)[0], 0.0, False, False)]
    for action in np.asarray(actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append((obs, reward, terminated, truncated))
        if terminated or truncated:
            break
    return seen


@pytest.mark.slow_rows("CartPole-v1")
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_random_rollouts_equal_the_native_ones(env_id: str, key: jax.Array):
    env = envs.make(f"gymnasium/{env_id}", time_limit=40)
    params = env.default_params
    actions = jax.vmap(env.action_space(params).sample)(jax.random.split(key, 40))

    @jax.jit
    def run(keys: jax.Array) -> Any:
        def body(state: Any, action: Any) -> Any:
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            return state, (obs, reward, terminated, env.is_truncated(state, params))

        def one(key: jax.Array) -> Any:
            obs, state = env.reset_env(key, params)
            return state.seed, obs, jax.lax.scan(body, state, actions)[1]

        return jax.vmap(one)(keys)

    seeds, first, (obs, reward, terminated, truncated) = jax.device_get(run(jax.random.split(key, 5)))
    for i, seed in enumerate(seeds):
        seen = native(env_id, int(seed), actions)
        np.testing.assert_array_equal(first[i], np.float32(seen[0][0]))
        for t, (expected, expected_reward, ended, _) in enumerate(seen[1:]):
            np.testing.assert_array_equal(obs[i, t], np.float32(expected))
            np.testing.assert_array_equal(reward[i, t], np.float32(expected_reward))
            assert bool(terminated[i, t]) == ended
        after = len(seen) - 1
        if terminated[i].any():  # nothing changes after the end
            assert terminated[i, after:].all() and not reward[i, after:].any()
    assert truncated[:, -1].all() and not truncated[:, :-1].any()


def test_states_can_be_copied_and_continued_twice(key: jax.Array):
    """A state always steps to the same state, and two continuations of it are independent."""
    env = envs.make("gymnasium/CartPole-v1", time_limit=30)
    params, step = env.default_params, jax.jit(env.step_env)
    _, start = jax.jit(env.reset_env)(key, params)
    state = start
    for action in (0, 1, 1):
        _, state, *_ = step(key, state, jnp.int32(action), params)
    left, right, again = (step(key, state, jnp.int32(action), params) for action in (0, 1, 0))
    np.testing.assert_array_equal(left[0], again[0])
    assert not np.array_equal(left[0], right[0])
    expected = native("CartPole-v1", int(state.seed), [0, 1, 1, 1])
    np.testing.assert_array_equal(right[0], np.float32(expected[-1][0]))
    further, *_ = step(key, left[1], jnp.int32(1), params)
    expected = native("CartPole-v1", int(state.seed), [0, 1, 1, 0, 1])
    np.testing.assert_array_equal(further, np.float32(expected[-1][0]))
    assert host._simulators(env).repeated >= 6  # twice the three actions before the state


@pytest.mark.slow
def test_a_state_outlives_the_process(key: jax.Array):
    """A checkpoint is sufficient without any simulator."""
    env = envs.make("gymnasium/CartPole-v1", time_limit=20)
    params, step = env.default_params, jax.jit(env.step_env)
    state = env.reset_env(key, params)[1]
    for _ in range(3):
        _, state, *_ = step(key, state, jnp.int32(0), params)
    expected = step(key, state, jnp.int32(1), params)
    host._simulators.cache_clear()
    jax.clear_caches()
    np.testing.assert_array_equal(jax.jit(env.step_env)(key, state, jnp.int32(1), params)[0], expected[0])


@pytest.mark.slow
def test_rollouts_with_resets_repeat_nothing_and_keep_few_simulators(key: jax.Array):
    """Unused fresh states, blocks of runs and ends of episodes cause no repeated actions."""
    env = envs.make("gymnasium/CartPole-v1", time_limit=25)
    kept, params = host._simulators(env), env.default_params

    def run(key: jax.Array) -> Any:
        carry = reset_all(env, key, params, 3)

        actor = memoryless(lambda *_: {}, jax.random.uniform, lambda draw, *_: ((draw > 0.5).astype(jnp.int32), draw))

        def once(carry: Any, key: jax.Array) -> Any:
            carry, steps, _ = rollout(env, params, actor, None, key, carry, jax.random.uniform(key, (40, 3)))
            return carry, (steps.reward, steps.terminated, steps.truncated)

        return jax.lax.scan(once, carry, jax.random.split(key, 3))[1]

    reward, terminated, truncated = jax.jit(jax.vmap(run))(jax.random.split(key, 2))
    assert reward.shape == (2, 3, 40, 3) and np.all(np.asarray(reward) == 1.0)
    assert int(np.sum(terminated)) > 10 and np.sum(terminated) + np.sum(truncated) < 60
    assert kept.repeated == 0
    assert kept.made <= 2 * 3 + 1  # one for each episode, and one that fresh states share


@pytest.mark.slow
@pytest.mark.parametrize("limit", [200, 30])
def test_blocks_of_runs_leave_each_other_their_simulators(limit: int, key: jax.Array):
    """Each block draws 40 fresh states per rollout while the episodes of the others wait for their next rollout."""
    env = envs.make("gymnasium/Pendulum-v1")
    kept, params = host._simulators(env), envs.EnvParams(max_steps_in_episode=limit)
    before = kept.made

    actor = memoryless(lambda *_: {}, jax.random.uniform, lambda draw, *_: (draw, draw))

    @jax.jit
    def go_on(carry: Any, key: jax.Array) -> Any:
        noise = jax.random.uniform(key, (40, 4, 1))
        return rollout(env, params, actor, None, key, carry, noise, reset_pool=10)[0]

    blocks = [reset_all(env, each, params, 4) for each in jax.random.split(key, 6)]
    for _ in range(2):
        blocks = [go_on(carry, key) for carry in blocks]
    jax.block_until_ready(blocks)
    assert kept.repeated == 0
    assert kept.made - before <= 6 * 4  # one for each episode; fresh states share the existing one


@pytest.mark.slow
def test_runs_are_independent_of_each_other():
    """Two runs, a block each, on two devices, compared with one of them alone, without simulators."""
    config = jaxrl.PPOConfig(num_envs=2, num_steps=64, num_epochs=1, num_minibatches=2, hidden=(8,))

    def trained(seeds: list[int]) -> tuple[Any, Any]:
        host._simulators.cache_clear()
        algo = jaxrl.ppo(envs.make("gymnasium/Pendulum-v1", time_limit=100), config)
        result = jaxrl.train(algo, seeds=seeds, env_steps=512, evals=2, eval_episodes=3, block=1, progress=False)
        return result.metrics, host._simulators(algo.env)

    (both, kept), (alone, _) = trained([0, 1]), trained([1])
    assert kept.repeated == 0
    assert not np.array_equal(both["return"].sel(seed=0), both["return"].sel(seed=1))
    for name in ("return", "return_sampled"):
        np.testing.assert_array_equal(both[name].sel(seed=1), alone[name].sel(seed=1))


class Counted(Odd):
    """An environment that counts its instances."""

    opened = closed = 0

    def __init__(self):
        super().__init__(100)
        Counted.opened += 1

    def close(self) -> None:
        Counted.closed += 1


@pytest.mark.slow
def test_simulators_are_few_and_closed(key: jax.Array):
    env = envs.make("gymnasium/tests/Counted-v0")
    params, step, action = env.default_params, jax.jit(env.step_env), (jnp.int32(1), jnp.int32(2))
    for each in jax.random.split(key, 300):
        env.reset_env(each, params)
    assert Counted.opened == 1
    for each in jax.random.split(key, 3):
        step(each, env.reset_env(each, params)[1], action, params)
    assert (Counted.opened, Counted.closed) == (3, 0)
    host._simulators.cache_clear()
    gc.collect()
    assert Counted.closed == 0  # the program of `step` may still be called
    jax.clear_caches()
    gc.collect()
    assert Counted.closed == 3


@pytest.mark.slow
def test_simulators_are_closed_at_the_end():
    code = """
import gymnasium
import jax
import envs
from gymnasium.envs.classic_control import CartPoleEnv

class Loud(CartPoleEnv):
    def close(self):
        print("closed")

gymnasium.register("Loud-v0", Loud)
env = envs.make("gymnasium/Loud-v0")
jax.block_until_ready(jax.jit(env.reset_env)(jax.random.key(0), env.default_params))
print("ready")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["ready", "closed"]


def test_an_id_registered_again_makes_another_environment(key: jax.Array):
    class New(Odd):
        action_space = gymnasium.spaces.Discrete(5)

        def step(self, action: Any) -> Any:
            return self._obs(), 7.0, False, False, {}

    kinds: list[Any] = [Odd, New]
    gymnasium.register("tests/Again-v0", kinds[0])
    try:
        old = envs.make("gymnasium/tests/Again-v0")
        assert old == envs.make("gymnasium/tests/Again-v0") == copy.deepcopy(old)
        del gymnasium.registry["tests/Again-v0"]
        gymnasium.register("tests/Again-v0", kinds[1], max_episode_steps=9)
        new = envs.make("gymnasium/tests/Again-v0")
    finally:
        del gymnasium.registry["tests/Again-v0"]
    assert new != old
    assert (old.default_params.max_steps_in_episode, new.default_params.max_steps_in_episode) == (1000, 9)
    space: Any = new.action_space(new.default_params)
    assert space.n == 5

    def reward(env: Any, action: Any) -> float:
        params = env.default_params
        return float(jax.jit(env.step_env)(key, env.reset_env(key, params)[1], action, params)[2])

    assert (reward(old, (jnp.int32(1), jnp.int32(0))), reward(new, jnp.int32(3))) == (2.0, 7.0)


def test_the_oldest_episode_lends_its_simulator(monkeypatch: pytest.MonkeyPatch, key: jax.Array):
    """The number of simulators is limited for any number of episodes, and observations remain correct."""
    monkeypatch.setattr(simulators, "_MOST_KEPT", 4)
    env = envs.make("gymnasium/CartPole-v1", time_limit=31)
    params, step = env.default_params, jax.jit(env.step_env)
    states = [env.reset_env(each, params)[1] for each in jax.random.split(key, 6)]
    for action in (0, 1):
        reported = [step(key, state, jnp.int32(action), params) for state in states]
        states = [state for _, state, *_ in reported]
    for state, (obs, *_) in zip(states, reported, strict=True):
        np.testing.assert_array_equal(obs, np.float32(native("CartPole-v1", int(state.seed), [0, 1])[-1][0]))
    kept = host._simulators(env)
    assert (kept.made, kept.repeated) == (4, 6)


def test_actions_and_observations_are_translated(key: jax.Array):
    env = envs.make("gymnasium/tests/Odd-v0")
    params, step = env.default_params, jax.jit(env.step_env)
    assert repr(env.action_space(params)) == repr(spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]))
    obs, state = env.reset_env(key, params)
    assert obs["image"].dtype == jnp.uint8 and obs["double"].dtype == jnp.float32
    for t in range(4):
        obs, state, reward, terminated, _ = step(key, state, (jnp.int32(1), jnp.int32(2)), params)
        assert float(reward) == 1 + 3  # the second choice starts at 1
        assert obs["pair"][1].tolist() == [1, 1]
        assert float(obs["double"]) == (t + 1) / 2
        assert not terminated
        assert bool(env.is_truncated(state, params)) == (t == 3)  # its own end, without a time limit


@pytest.mark.parametrize("mapping", [dict, OrderedDict])
def test_trees_of_actions_are_taken_and_clipped(mapping: Any, key: jax.Array):
    env = envs.make("gymnasium/tests/Pushed-v0")
    params, step = env.default_params, jax.jit(env.step_env)
    state = env.reset_env(key, params)[1]
    beyond = mapping(both=(jnp.array([-7, 9], jnp.int32), jnp.int32(2)), push=jnp.array([-5.0, 5.0]))
    _, state, reward, *_ = step(key, state, beyond, params)
    assert float(reward) == (-1 + 2) + 10 * (0 + 3) + 100 * 2
    _, state, reward, *_ = step(key, state, env.action_space(params).sample(key), params)
    assert np.isfinite(reward)


def test_time_limits_and_fields(key: jax.Array):
    env = envs.make("gymnasium/FrozenLake-v1", is_slippery=False, time_limit=7)
    assert env == envs.make("gymnasium/FrozenLake-v1", time_limit=7, is_slippery=False)
    assert env.default_params.max_steps_in_episode == 7
    assert envs.make("gymnasium/CartPole-v1").default_params.max_steps_in_episode == 500
    assert envs.make("gymnasium/Blackjack-v1").default_params.max_steps_in_episode == 1000
    algo = jaxrl.ppo(env)
    spec = describe(algo)
    assert spec["environment"]["name"] == "gymnasium/FrozenLake-v1"
    assert build(spec).env == env
    state = env.reset_env(key, env.default_params)[1]
    step = jax.jit(env.step_env)
    places = []
    for action in (2, 2, 1, 1, 1, 2):
        obs, state, reward, terminated, _ = step(key, state, jnp.int32(action), env.default_params)
        places.append(int(obs))
    assert (places, float(reward), bool(terminated)) == ([1, 2, 6, 10, 14, 15], 1.0, True)


@pytest.mark.slow
def test_a_policy_is_evaluated():
    """Half the limit of CartPole is reached by a policy that leans against the pole's fall."""
    from jaxrl.learning.evaluation import evaluate

    env = envs.make("gymnasium/CartPole-v1", time_limit=60)

    def choose(noise: jax.Array, scores: Any, greedy: Any, mask: Any) -> tuple[jax.Array, None]:
        return jnp.where(greedy, scores["fall"] > 0, noise).astype(jnp.int32), None

    actor = memoryless(
        lambda policy, obs, mask: {"fall": obs[..., 2] + obs[..., 3]},
        lambda key, shape: jax.random.bernoulli(key, shape=shape),
        choose,
    )

    @jax.jit
    def evaluated(key: jax.Array) -> Any:
        return evaluate(env, env.default_params, actor, None, key, 8, lambda t, weight: weight * 0.9)

    metrics = evaluated(jax.random.key(1))
    assert float(metrics["return"]) == float(metrics["length"]) == 60.0
    assert float(metrics["return_sampled"]) < 40.0
    assert float(metrics["discounted_return"]) == pytest.approx((1 - 0.9**60) / (1 - 0.9), rel=1e-4)


def test_an_integer_without_bounds_is_shown_as_far_as_32_bits_go(key: jax.Array, caplog: pytest.LogCaptureFixture):
    env = envs.make("gymnasium/tests/Big-v0")
    params, step = env.default_params, jax.jit(env.step_env)
    space: Any = env.observation_space(params)
    assert (space.dtype, space.low.tolist(), space.high.tolist()) == (np.int32, [-(2**31)], [2**31 - 1])
    obs, state = env.reset_env(key, params)
    for expected in (7 - 2**10, 7 - 2**20, 7 - 2**30):
        obs, state, *_ = step(key, state, jnp.int32(0), params)
        assert obs.tolist() == [expected]
    sentence = f"An observation holds {7 - 2**40}; its integers are taken as int32."
    with pytest.raises(Exception, match=sentence):  # JAX's own, where a user's program calls back
        jax.block_until_ready(step(key, state, jnp.int32(0), params))
    with pytest.raises(UserValueError, match=f"^{sentence}$") as raised, own_settings():
        jax.block_until_ready(step(key, state, jnp.int32(0), params))
    assert raised.value.__cause__ is None and raised.value.__suppress_context__
    assert not caplog.records  # JAX logs tracebacks of callbacks
    with pytest.raises(jax.errors.JaxRuntimeError, match="of the program"), own_settings():
        raise jax.errors.JaxRuntimeError("an error of the program itself")


@pytest.mark.slow  # the test above has the same without training
def test_training_ends_in_the_error_of_the_environment(capfd: pytest.CaptureFixture[str]):
    algo = jaxrl.ppo(envs.make("gymnasium/tests/Big-v0", time_limit=8), SMALL)
    with pytest.raises(UserValueError, match=r"^An observation holds -\d+; its integers are taken as int32\.$"):
        jaxrl.train(algo, seeds=2, env_steps=64, progress=False)
    assert "Traceback" not in capfd.readouterr().err


def test_a_table_of_small_integers_is_an_observation_like_others(key: jax.Array):
    """A plain network flattens it, and the values reach it unchanged."""
    env = envs.make("gymnasium/tests/Board-v0")
    space: Any = env.observation_space(env.default_params)
    obs, state = env.reset_env(key, env.default_params)
    assert (space.shape, space.dtype, obs.dtype) == ((4, 4), np.uint8, np.uint8)
    np.testing.assert_array_equal(obs, np.arange(0, 256, 17).reshape(4, 4))
    algo = jaxrl.ppo(env, SMALL)
    shapes = policy_shapes(algo)
    params = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 2.0**-11, leaf.dtype), shapes)
    logits = algo.actor.scores(params, (), obs[None], None)[0]["logits"]
    # Eight units of tanh(sum(obs) / 2^11 + 1 / 2^11); rounding of some ten operations.
    expected = 8 * np.tanh((np.arange(0, 256, 17).sum() + 1) / 2**11) / 2**11 + 1 / 2**11
    np.testing.assert_allclose(logits, np.full((1, 2), expected), rtol=1e-6)
    assert env.step_env(key, state, jnp.int32(0), env.default_params)[0].shape == (4, 4)


@pytest.mark.slow
def test_ppo_learns_a_little():
    """Enough steps for CartPole to balance: 16,384 of two runs, compared with about 20 of a random policy."""
    algo = jaxrl.preset("ppo", "cartpole").on(envs.make("gymnasium/CartPole-v1"))
    result = jaxrl.train(algo, seeds=2, env_steps=30_000, evals=1, eval_episodes=16, progress=False)
    assert float(result.metrics["return"].isel(env_step=-1).min()) > 150.0


def bounded(low: Any, high: Any, dtype: str = "int64", acts: bool = False) -> Any:
    return envs.make("gymnasium/tests/Bounded-v0", low=low, high=high, dtype=dtype, acts=acts)


@pytest.mark.parametrize(
    ("do", "error", "sentence"),
    [
        (
            lambda: envs.make("gymnasium/CartPol-v1"),
            ValueError,
            "no environment 'gymnasium/CartPol-v1'; did you mean",
        ),
        (lambda: envs.make("gymnasium/zzz"), ValueError, r"`envs.names\('gymnasium'\)` lists its"),
        (lambda: envs.make("gymnasium/CartPole-v1", gravity=9.0), ValueError, "no static field 'gravity'; its static"),
        (lambda: envs.make("gymnasium/Pendulum-v1", h=[1]), ValueError, "no static field 'h'"),
        (lambda: envs.make("gymnasium/Pendulum-v1", g=[1]), TypeError, "the static field 'g' is .1., which cannot"),
        (lambda: envs.make("gymnasium/Pendulum-v1", time_limit=0), ValueError, "time_limit takes a whole number"),
        (lambda: envs.make("gymnasium/tests/Words-v0"), ValueError, "tests/Words-v0: the action space is a Text;"),
        (lambda: envs.make("gymnasium/tests/Forgetful-v0"), ValueError, "gave two different episodes for one seed"),
        (
            lambda: bounded((0,), (2**40,)),
            ValueError,
            f"Bounded-v0: a space has the bound {2**40}; its integers are adap",
        ),
        (lambda: bounded((-(2**31) - 1,), (0,)), ValueError, f"a space has the bound -{2**31 + 1}; its integers"),
        (lambda: bounded((0,), (2**32,), "uint64"), ValueError, f"bound {2**32}; its integers are adapted as uint32"),
        (lambda: bounded((0, 0), (1, 2**40), acts=True), ValueError, f"a space has the bound {2**40}; its integers"),
        (
            lambda: bounded((0,), (2**40,), acts=True),
            ValueError,
            f"has {2**40 + 1} choices; supported spaces have at",
        ),
        (
            lambda: envs.make("gymnasium/Pendulum-v1").check_params(envs.EnvParams(max_steps_in_episode=300)),
            ValueError,
            "at most 200 on gymnasium/Pendulum-v1, got 300; a longer episode takes",
        ),
    ],
)
def test_bad_input_gets_one_sentence(do: Any, error: type, sentence: str):
    with pytest.raises(error, match=sentence) as caught:
        do()
    assert "\n" not in str(caught.value)
