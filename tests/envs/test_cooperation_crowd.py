"""The crowd with manners: velocities compared with plain Python, the payoff, meetings, and bad input."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.cooperation.crowd import SharedCrowd
from envs.cooperation.walking_manners import Manner, MannerRule, evading
from envs.crowd import steering
from envs.rendering import frame

LEFT, RIGHT = Manner(np.int32(0), np.float32(0.5), np.float32(1)), Manner(np.int32(1), np.float32(0.5), np.float32(1))


def velocities(state: Any, side: int, patience: float, pace: float) -> np.ndarray:
    """The rule in float64, one walker and one neighbour at a time."""
    position, goal = np.asarray(state.walkers.position, np.float64), np.asarray(state.goals.centre, np.float64)
    half, walking = np.asarray(state.goals.half, np.float64), np.asarray(state.walking)
    speed = np.minimum(
        *(np.asarray(each, np.float64) for each in (state.traits.preferred_speed, state.traits.max_speed))
    )
    rows = []
    for i, place in enumerate(position):
        way = np.clip(place, goal[i] - half[i], goal[i] + half[i]) - place
        velocity = pace * speed[i] * way / math.hypot(*way)
        others = [position[j] - place for j in range(len(position)) if j != i and walking[j]]
        distance = min([math.hypot(*away) for away in others if np.dot(away, velocity) > 0], default=math.inf)
        near = max(0.0, 1 - distance / 3)
        angle = near * math.pi / 3 * (1 if side == 0 else -1)
        turned = complex(*velocity) * complex(math.cos(angle), math.sin(angle)) * (1 - patience * near)
        rows.append((turned.real, turned.imag))
    return np.array(rows)


@pytest.mark.fast_rows("1-1.0-0.7")
@pytest.mark.parametrize(("side", "patience", "pace"), [(0, 0.0, 1.0), (1, 1.0, 0.7), (1, 0.3, 1.5)])
def test_velocities_are_those_of_plain_python(side: int, patience: float, pace: float) -> None:
    crowd = SharedCrowd(num_agents=5).crowd
    _, state = crowd.reset_env(jax.random.key(3), crowd.default_params)
    position = jnp.float32([[0, 0], [1, 0.2], [2.5, -1], [0.3, 1.8], [-1, -0.5]])
    walkers = dataclasses.replace(state.walkers, position=position)
    state = dataclasses.replace(state, walkers=walkers, arrived=jnp.arange(5) == 4)
    manner = Manner(jnp.int32(side), jnp.float32(patience), jnp.float32(pace))
    expected = velocities(state, side, patience, pace)
    tolerance = 20 * 2 * float(np.finfo(np.float32).eps)  # some twenty roundings of numbers of at most 2
    np.testing.assert_allclose(np.asarray(evading(state, manner)), expected, atol=tolerance)
    assert np.ptp(np.abs(expected[:, 0])) > 0.1


def walked(own: Manner, others: Manner) -> tuple[np.ndarray, np.ndarray]:
    """Contacts of episodes in which agent 0 walks with its own manners, and whether all arrived."""
    env = SharedCrowd()
    population = jax.tree.map(lambda leaf: np.asarray(leaf)[None], others)
    params = dataclasses.replace(env.default_params, population=population, weights=np.ones(1, np.float32))

    def one(key: jax.Array) -> Any:
        _, state = env.reset_env(key, params)

        def step(carry: Any, key: jax.Array) -> Any:
            state, over = carry
            action = steering.steer(env.crowd, params.crowd, state.game, evading(state.game, own))[0]
            _, state, _, terminated, info = env.step_env(key, state, action, params)
            return (state, over | terminated), jnp.where(over, 0.0, info["metrics"]["contacts"])

        (_, over), contacts = jax.lax.scan(step, (state, jnp.zeros((), bool)), jax.random.split(key, 200))
        return jnp.sum(contacts), over

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 16)))


@pytest.mark.slow
def test_partners_that_evade_on_the_same_side_pass_and_others_collide() -> None:
    for others in (LEFT, RIGHT):
        same, arrived = walked(others, others)
        assert arrived.all() and same.mean() < 1
    different, _ = walked(LEFT, RIGHT)
    assert different.mean() > 10


def test_the_space_of_an_oracle_can_be_read_while_tracing() -> None:
    env: Any = envs.make("cooperation/crowd", reveals=True)
    space = jax.eval_shape(
        lambda: env.observation_space(env.default_params).spaces["behaviour"].sample(jax.random.key(0))
    )
    assert space.shape == (4,)


@pytest.mark.slow
def test_a_step_is_that_of_the_crowd_with_the_mean_reward() -> None:
    env: Any = envs.make("cooperation/crowd", reveals=True)
    params = env.default_params
    obs, state = env.reset_env(jax.random.key(5), params)
    member = jax.tree.map(lambda leaf: leaf[int(state.member)], params.population)
    side = jax.nn.one_hot(member.side, 2)
    np.testing.assert_array_equal(obs["behaviour"], [*side, member.patience, member.pace])
    for step in range(3):
        action = jnp.float32([0.3, -0.2 * step])
        others = steering.steer(env.crowd, params.crowd, state.game, evading(state.game, member))
        actions = others.at[0].set(action)
        seen, game, rewards, _, _ = env.crowd.step_env(jax.random.key(0), state.game, actions, params.crowd)
        obs, state, reward, terminated, info = env.step_env(jax.random.key(0), state, action, params)
        assert not terminated and info["active"] and reward.shape == ()
        np.testing.assert_allclose(reward, np.mean(rewards), rtol=1e-5)
        jax.tree.map(np.testing.assert_array_equal, (seen["own"][0], game), (obs["own"], state.game))
        assert int(info["behaviour"][0]) == int(member.side)
    assert frame(env, state, params).shape == (560, 560, 3)


def test_the_reward_of_the_crowd_changes_in_training() -> None:
    env = SharedCrowd()
    params = env.default_params
    crowd = dataclasses.replace(
        params.crowd, switch_env_steps=100.0, later_weights=dataclasses.replace(params.crowd.weights, collision=-7.0)
    )
    for env_steps, expected in ((99.0, params.crowd.weights.collision), (100.0, -7.0)):
        later = env.params_at(dataclasses.replace(params, crowd=crowd), env_steps)
        assert float(later.crowd.weights.collision) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("side", 2, r"env\.population\.side must lie in \[0, 1\], got 2"),
        ("side", 1, r"env\.population\.side must be of an integer type, got float32"),
        ("patience", -0.5, r"env\.population\.patience must lie in \[0, 1\], got -0\.5"),
        ("pace", 2.0, r"env\.population\.pace must lie in \[0\.5, 1\.5\], got 2\.0"),
    ],
)
def test_manners_outside_their_range_are_refused(name: str, value: float, sentence: str) -> None:
    env = SharedCrowd()
    params = env.default_params
    wrong = dataclasses.replace(params.population, **{name: np.full(18, value, np.float32)})
    with pytest.raises(ValueError, match=sentence):
        env.check_params(dataclasses.replace(params, population=wrong))


def test_a_crowd_of_one_and_other_partners_are_refused() -> None:
    with pytest.raises(ValueError, match="num_agents must be a whole number of at least 2, the agent and at least one"):
        SharedCrowd(num_agents=1)
    with pytest.raises(ValueError, match="partner must be one of scripted, got 'polite'"):
        SharedCrowd(partner="polite")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"partner takes 'scripted' or an .*Partner, got None"):
        SharedCrowd(partner=None)  # type: ignore[arg-type]
    assert len(MannerRule().population(SharedCrowd()).side) == 18
