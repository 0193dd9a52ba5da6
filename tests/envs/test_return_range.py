"""The range of returns that environments state: every episode lies in it, and only some wrappers keep it."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit

import envs
from envs import registry, wrappers
from envs.control.cartpole import CartPole
from jaxrl.results.description import return_range

STATED = [
    "cartpole",
    "pendulum",
    "acrobot",
    "mountain-car",
    "mountain-car-continuous",
    "cartpole-swing-up",
    "acrobot-continuous",
    "reacher",
    "motor/dc",
    "motor/dc-finite",
    "motor/synchronous",
    "motor/synchronous-finite",
    "quadrotor/hover",
    "quadrotor/tracking",
    "pde/burgers",
    "pde/kuramoto-sivashinsky",
    "fishery",
    "inventory",
    "stopping",
    "replacement",
    "kelly",
    "queue",
    "river",
    "maze",
    "memory/repeat-first",
    "memory/t-maze",
    "memory/delayed-match",
    "memory/chain",
    "memory/bandit",
    "memory/autoencode",
    "memory/count-recall",
    "memory/concentration",
    "memory/battleship-small",
    "memory/cartpole",
    "memory/pendulum",
    "memory/acrobot",
    "memory/mountain-car",
    "memory/mountain-car-continuous",
    "memory/noisy-cartpole",
    "memory/noisy-pendulum",
]
EPS = float(np.finfo(np.float32).eps)


def range_of(env, params):
    stated = env.return_range(params)
    assert stated is not None
    return stated


def test_these_environments_state_a_range():
    names = [name for name in registry.ROWS if not name.startswith(("bandit/", "crowd/"))]
    stated = [name for name in names if (env := envs.make(name)).return_range(env.default_params) is not None]
    assert stated == STATED


@pytest.mark.parametrize("name", [name for name in STATED if registry.ROWS[name].wraps is None])
def test_returns_of_random_actions_lie_in_the_range(name):
    env = envs.make(name)
    params = env.default_params.replace(max_steps_in_episode=40)

    def episode(key):
        first, key = jax.random.split(key)
        _, state = env.reset_env(first, params)

        def body(carry, key):
            state, total, over = carry
            act, move = jax.random.split(key)
            action = env.action_space(params).sample(act)
            _, after, reward, terminated, _ = env.step_env(move, state, action, params)
            total = total + jnp.where(over, 0.0, reward)
            over = over | terminated
            return (after, total, over), None

        return jax.lax.scan(body, (state, jnp.float32(0), jnp.zeros((), bool)), jax.random.split(key, 40))[0][1]

    returns = np.asarray(quick_jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 64)), np.float64)
    low, high = range_of(env, params)
    # A float32 sum of at most 40 numbers, each rounded in relation to the largest of the sums.
    slack = 40 * EPS * max(abs(float(low)), abs(float(high)))
    assert low - slack <= returns.min() <= returns.max() <= high + slack


def test_ranges_follow_the_parameters_of_each_setting():
    env = envs.make("cartpole")
    params = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (2,)), env.default_params)
    low, high = range_of(env, params.replace(max_steps_in_episode=np.array([10, 500])))
    assert low == 1.0 and high.tolist() == [10.0, 500.0]


def test_wrappers_keep_the_range_only_with_the_returns():
    env = envs.make("cartpole")
    for kept in (wrappers.frame_stack(env, 2), wrappers.delay_rewards(env, 3), wrappers.action_repeat(env, 4)):
        low, high = range_of(kept, kept.default_params)
        assert (low, int(high)) == (1.0, 500)
    changed = wrappers.transform_reward(env, jnp.negative)
    assert changed.return_range(changed.default_params) is None


class Centred(CartPole):
    """Changed rewards, as in the README."""

    def step_env(self, key, state, action, params):
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, reward - 0.1 * jnp.abs(state.x), terminated, info


class Bounded(Centred):
    def return_range(self, params):
        return 0.0, super().return_range(params)[1]


def test_a_subclass_with_other_rewards_states_its_own_range():
    for env, stated in ((CartPole(), 1.0), (Centred(), None), (Bounded(), 0.0)):
        for each in (env, wrappers.hide(env, 1)):
            ends = each.stated_return_range(each.default_params)
            assert (None if ends is None else ends[0]) == stated
            described = return_range(SimpleNamespace(env=each), None)
            assert described == ({} if stated is None else {"return_low": stated, "return_high": 500.0})
