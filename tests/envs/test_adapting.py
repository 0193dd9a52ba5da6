"""Objects of other interfaces under the contract."""

from typing import Any

import corridor_interfaces as corridor
import gymnasium
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jumanji.registration import make as make_jumanji

import envs
import jaxrl
from envs.adapters.incoming.their_spaces import value_of
from envs.base import spaces

INTERFACES = {
    "gymnax 0.x": corridor.OldGymnax,
    "gymnax 1.x": corridor.NewGymnax,
    "Brax": corridor.Brax,
    "jumanji": corridor.Jumanji,
    "timesteps": corridor.Timesteps,
}


def steps(env: Any, key: jax.Array, actions: list[int]) -> Any:
    """First observation, and observations, rewards and both flags of an episode of these choices 0, 1, 2."""
    params = env.default_params
    box = isinstance(env.action_space(params), spaces.Box)
    values = jnp.float32(actions)[:, None] - 1 if box else jnp.int32(actions)

    def body(state: Any, action: Any) -> Any:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return state, (obs, reward, terminated, env.is_truncated(state, params))

    obs, state = env.reset_env(key, params)
    return obs, jax.lax.scan(body, state, values)[1]


@pytest.mark.parametrize("interface", INTERFACES)
def test_one_task_is_the_same_in_every_interface(interface: str, key: jax.Array, capsys: pytest.CaptureFixture[str]):
    env: Any = envs.adapt(INTERFACES[interface]())
    assert f"as an environment of {interface}, at most 8 steps" in capsys.readouterr().err
    assert env.default_params.max_steps_in_episode == 8
    first, (obs, reward, terminated, truncated) = steps(env, key, [0, 0, 2, 2, 2, 2, 2])
    cells = [max(float(first[0]) - 2, 0)]
    cells = [max(float(first[0]) - 1, 0), *cells, *(cells[0] + i for i in range(1, 6))]
    np.testing.assert_array_equal(np.asarray(obs)[:, 0], cells)
    goal = np.array(cells) >= corridor.END
    np.testing.assert_array_equal(terminated, goal)
    np.testing.assert_allclose(reward, goal - 0.01, rtol=1e-6)  # one rounding of a float32
    assert goal[-1] and not np.any(truncated)
    *_, (_, _, terminated, truncated) = steps(env, key, [0] * 8)
    np.testing.assert_array_equal(truncated, [False] * 7 + [True])
    assert not np.any(terminated), "the time limit is no termination"


@pytest.mark.slow
@pytest.mark.parametrize("interface", INTERFACES)
def test_it_keeps_the_laws(interface: str):
    envs.check(envs.adapt(INTERFACES[interface](), verbose=False))


@struct.dataclass
class Prices:
    """Parameters without a time limit."""

    price: float = 0.01


class OwnLimit(corridor.NewGymnax):
    """gymnax 1.x with a limit of 7 steps that is not a parameter."""

    default_params: Any = Prices()

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step_env(key, state, action, corridor.Params(price=params.price))

    def is_truncated(self, state: Any, params: Any) -> Any:
        return state.time >= 7


def test_parameters_without_a_limit_are_traced_and_the_own_truncation_counts(key: jax.Array):
    env: Any = envs.adapt(OwnLimit(), time_limit=20)
    assert env.default_params.max_steps_in_episode == 20 and env.default_params.inner.price == 0.01
    jaxrl.a2c(env)  # its checks take the limit from the outer parameters
    *_, (_, _, terminated, truncated) = steps(env, key, [0] * 8)
    np.testing.assert_array_equal(truncated, [False] * 6 + [True] * 2)
    assert not np.any(terminated)


def test_parameters_of_gymnax_are_traced(key: jax.Array):
    env: Any = envs.adapt(corridor.OldGymnax(), time_limit=3)
    params = env.default_params
    assert params == corridor.Params(max_steps_in_episode=3)
    _, state = env.reset_env(key, params)
    rewards = jax.vmap(lambda price: env.step_env(key, state, jnp.int32(1), params.replace(price=price))[2])
    np.testing.assert_allclose(rewards(jnp.array([0.5, 2.0])), [-0.5, -2.0])


def test_the_mask_leaves_the_observation(key: jax.Array):
    env: Any = envs.adapt(corridor.Jumanji())
    obs, state = env.reset_env(key, env.default_params)
    assert obs.shape == (1,)
    for action in (2, 2, 0, 0, 0, 0):
        mask = env.action_mask(state, env.default_params)
        np.testing.assert_array_equal(mask, [obs[0] > 0, True, True])
        obs, state, *_ = env.step_env(key, state, jnp.int32(action), env.default_params)
    np.testing.assert_array_equal(env.action_mask(state, env.default_params), [False, True, True])


def test_objects_of_the_libraries(key: jax.Array):
    cartpole: Any = envs.adapt(gymnax.make("CartPole-v1")[0])
    assert repr(cartpole) == "<CartPole as an environment of gymnax 1.x, at most 500 steps>"
    action = jnp.int32(1)
    ours = envs.make("gymnax/CartPole-v1")
    for env in (cartpole, ours):
        env.reset_env(key, env.default_params)
    results = [
        env.step_env(key, env.reset_env(key, env.default_params)[1], action, env.default_params)
        for env in (cartpole, ours)
    ]
    jax.tree.map(np.testing.assert_array_equal, results[0][0], results[1][0])
    # Its observations show the share of the limit that has passed.
    chains = [envs.adapt(gymnax.make("DiscountingChain-bsuite")[0]), envs.make("gymnax/DiscountingChain-bsuite")]
    jax.tree.map(np.testing.assert_array_equal, *(steps(env, key, [1, 0, 1]) for env in chains))
    with pytest.raises(TypeError, match=r"^Snake reports its time limit as a termination; envs.make\('jumanji/...'\)"):
        envs.adapt(make_jumanji("Snake-v1"))


class Limited(corridor.Timesteps):
    """Timesteps whose limit has another name."""

    max_steps: Any = None


def test_an_end_that_the_object_reports_truncates(key: jax.Array):
    for env in (envs.adapt(Limited()), envs.adapt(corridor.Timesteps(), time_limit=100)):
        *_, (_, _, terminated, truncated) = steps(env, key, [0] * 8)
        np.testing.assert_array_equal(truncated, [False] * 7 + [True])
        assert not np.any(terminated)


def test_equal_bounds_make_equal_environments():
    task = corridor.Brax()

    def pushed(high: float) -> Any:
        return envs.adapt(task, actions=spaces.Box(-1.0, high, (1,)))

    assert pushed(1.0) == pushed(1.0) and pushed(1.0) != pushed(2.0)
    assert pushed(1.0) != envs.adapt(corridor.Brax(), actions=spaces.Box(-1.0, 1.0, (1,)))
    assert value_of(envs.MultiDiscrete([3, 3])) == value_of(envs.MultiDiscrete([3, 3]))
    assert value_of(envs.MultiDiscrete([3, 3])) != value_of(envs.MultiDiscrete([3, 3], low=-1))


def test_ours_are_returned_unchanged():
    env = envs.make("cartpole")
    assert envs.adapt(env) is env


class Nothing:
    """An object without functions."""


class Stateful:
    """An object whose reset takes no key."""

    def reset(self) -> int:
        return 0

    def step(self, action: int) -> int:
        return action


class Longer(corridor.OldGymnax):
    """gymnax 0.x whose step returns more numbers than its reset."""

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step_env(key, state, action, params)
        return jnp.concatenate([obs, obs]), *rest


class Six(corridor.OldGymnax):
    """A step with two flags."""

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, done, info = super().step_env(key, state, action, params)
        return obs, state, reward, done, done, info


class NoActions(corridor.Timesteps):
    """An object without an action space."""

    num_actions: Any = property()


class Unlimited(corridor.Timesteps):
    """Timesteps with a limit that is not a number of steps."""

    max_steps: Any = 2.5


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Nothing(), r"^Nothing has none of the interfaces gymnax 1.x or 0.x .*: it has no functions reset and step; "),
        (Stateful(), r"^Stateful has none of the interfaces .*: reset\(key\) fails \(TypeError: .*\); envs.from_f"),
        (corridor.Brax, r"^env is the class Brax; it must be an object, such as Brax\(\)\.$"),
        (corridor.AutoResetWrapper(corridor.Brax()), r"^AutoResetWrapper resets episodes inside step, which hides"),
        (Unlimited(), r"^Unlimited: max_steps is 2.5; pass time_limit=, a whole number\.$"),
        (Longer(), r"^its step must return an obs of the shapes that the reset of Longer returns, float32\[1\], got f"),
        (Six(), r"^Six\.step_env must return \(obs, state, reward, done, info\), got 6 values"),
        (
            "jumanji/Snake-v1",
            r"^env is 'jumanji/Snake-v1'; it must be an object; envs\.make\('jumanji/Snake-v1'\) takes",
        ),
        (
            gymnax.make("CartPole-v1"),
            r"^env is a tuple; pass the environment alone, which gymnax\.make returns first\.$",
        ),
        (gymnasium.make("CartPole-v1"), r"^TimeLimit|^OrderEnforcing runs on the host; envs.make\('gymnasium/ID'\)"),
        (NoActions(), r"^NoActions has no action space; pass actions=, a number of actions or a space of envs.spaces"),
    ],
    ids=[
        "nothing",
        "stateful",
        "class",
        "auto-reset",
        "limit",
        "shapes",
        "values",
        "name",
        "pair",
        "gymnasium",
        "no-actions",
    ],
)
def test_errors_are_one_sentence(env: Any, message: str):
    with pytest.raises(TypeError, match=message):
        envs.adapt(env)


def test_an_object_without_action_space_takes_one():
    assert envs.adapt(NoActions(), actions=3).action_space(None).n == 3  # pyright: ignore
    with pytest.raises(ValueError, match="actions must be a whole number of at least 1, or an action space of envs"):
        envs.adapt(NoActions(), actions=0)


@pytest.mark.slow
def test_a_policy_learns_the_corridor():
    env = envs.adapt(corridor.OldGymnax())
    result = jaxrl.train(jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=16, num_steps=32)), seeds=4, env_steps=40_000)
    assert float(result.metrics["return"].isel(env_step=-1).min()) > 0.9
