"""Characters: rewards compared with plain Python, random actions, and task objects that do not fit."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.cooperation.characters import Character, Characters, draw_characters, with_characters
from envs.cooperation.foraging import Foraging
from envs.cooperation.learned import learned_characters
from envs.cooperation.levers import LeverGame
from envs.cooperation.partners import behaviours


def floats(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


RATIONAL = Character(floats([-0.2, 0.5, 1.0]), np.float32(0.4), np.float32(0.25), np.float32(1.0))


def played(env: Characters, character: Character, actions: np.ndarray, params: Any) -> tuple[Any, np.ndarray]:
    """States of the game `[T]` and rewards under these actions."""
    _, state = env.reset_env(jax.random.key(3), params)
    state = dataclasses.replace(state, character=jax.tree.map(jnp.asarray, character))

    def step(state: Any, xs: Any) -> Any:
        obs, state, reward, _, _ = env.step_env(xs[0], state, xs[1], params)
        return state, (obs, state, reward)

    keys = jax.random.split(jax.random.key(0), len(actions))
    return jax.tree.map(np.asarray, jax.jit(lambda: jax.lax.scan(step, state, (keys, jnp.int32(actions)))[1])())[1:]


def follows(option: int, paid: int) -> int:
    """1 for the option after the last paid one and for the first, otherwise -1."""
    return 1 if paid < 0 or option == (paid + 1) % 3 else -1


def test_rewards_are_those_of_plain_python() -> None:
    """Beside a partner that copies, an agent that repeats a lever is paid for it, and one that moves on is not."""
    env = with_characters(LeverGame(num_levers=3))
    inner = dataclasses.replace(
        env.default_params.inner, population=behaviours(("copy",), 3), weights=np.ones(3, np.float32), num_steps=99
    )
    params = dataclasses.replace(env.default_params, inner=inner, impatience=0.8)
    actions = np.array([0, 1, 1, 1, 2, 2, 0, 0, 3, 2, 2, 0, 1, 1])
    states, rewards = played(env, RATIONAL, actions, params)
    paid, copied = -1, None
    for time, action in enumerate(actions):
        copied = int(states.inner.game.last[0, 1]) if copied is None else copied
        if action == copied < 3:
            payoff = 0.9 if action == 0 else 1.0
            expected = payoff * (0.6 * RATIONAL.weights[action] + 0.4 * follows(action, paid))
            paid = action
        else:
            expected = -0.8 * 0.75 * (action < 3)
        assert rewards[time] == pytest.approx(expected, rel=1e-6), time
        assert states.paid[time] == paid
        # A partner that copies has its own preference where the agent pulled none.
        copied = action if action < 3 else int(states.inner.member[0])
    assert len(set(np.round(rewards, 6))) > 5


@pytest.mark.slow
def test_rewards_of_foraging_are_by_kind_and_for_waiting() -> None:
    env = with_characters(Foraging(size=4, num_kinds=3))
    params = dataclasses.replace(env.default_params, max_steps_in_episode=400)
    target = np.repeat(np.random.default_rng(1).integers(0, 3, 40), 10)
    _, first = env.reset_env(jax.random.key(3), params)

    def step(state: Any, xs: Any) -> Any:
        game = state.inner.game
        action = env.task.to_action(game, 0, xs[1], params.inner)
        _, after, reward, _, _ = env.step_env(xs[0], state, action, params)
        return after, (game, after.inner.game, after.paid, reward)

    state = dataclasses.replace(first, character=jax.tree.map(jnp.asarray, RATIONAL))
    xs = (jax.random.split(jax.random.key(0), len(target)), jnp.int32(target))
    before, after, paid, rewards = jax.tree.map(np.asarray, jax.jit(lambda: jax.lax.scan(step, state, xs)[1])())
    last = -1
    for time, reward in enumerate(rewards):
        on = [int(kind) for kind in range(3) if np.array_equal(after.place[time, 0], before.fruit[time, kind])]
        if after.eaten[time]:
            expected = 0.6 * RATIONAL.weights[on[0]] + 0.4 * follows(on[0], last)
            last = on[0]
        else:
            expected = -0.3 * 0.75 * len(on)
        assert reward == pytest.approx(expected, rel=1e-6), time
        assert paid[time] == last
    assert after.eaten.sum() > 5 and (rewards < 0).sum() > 5


def test_an_irrational_agent_acts_at_random() -> None:
    env = with_characters(LeverGame(num_levers=3))
    inner = dataclasses.replace(env.default_params.inner, num_steps=9_999)
    params = dataclasses.replace(env.default_params, inner=inner)
    states, _ = played(env, dataclasses.replace(RATIONAL, rationality=np.float32(0.7)), np.full(4_000, 1), params)
    share = np.bincount(states.inner.game.last[:, 0], minlength=4) / 4_000
    # Five standard errors of a share of 4,000 independent draws.
    np.testing.assert_allclose(share, [0.075, 0.775, 0.075, 0.075], atol=5 * 0.5 / np.sqrt(4_000))


def test_characters_are_drawn_from_their_ranges_and_seen() -> None:
    env: Any = envs.make("cooperation/levers-characters")
    assert env == with_characters(envs.make("cooperation/levers")) and env.name == "cooperation/levers-characters"
    drawn = jax.tree.map(np.asarray, draw_characters(jax.random.key(0), env.task, 2_000, 0.5))
    assert drawn.weights.shape == (2_000, 4)
    for name, low in (("weights", -1), ("order", 0), ("patience", 0), ("rationality", 0.5)):
        values = getattr(drawn, name)
        assert values.min() >= low and values.max() <= 1 and values.min() < low + 0.01 and values.max() > 0.99
    obs, state = env.reset(jax.random.key(1))
    character = state.character
    expected = [*character.weights, character.order, character.patience, character.rationality]
    np.testing.assert_array_equal(obs[-7:], floats(expected))
    np.testing.assert_array_equal(obs[-11:-7], np.zeros(4))  # no lever was paid yet


def act(key: Any, params: Any, memory: Any, obs: Any) -> Any:
    """The lever with the highest sum of the network's number and the weight."""
    return jnp.argmax(params + obs[-6:-3]).astype(jnp.int32), memory


def begin(params: Any) -> Any:
    return ()


@pytest.mark.slow
def test_partners_have_characters_and_share_networks() -> None:
    networks = floats([[0.1, 0.0, 0.0], [0.0, 0.0, 5.0]])
    weights = floats([[0, 1, 0], [0, 1, 0], [1, 0, 0], [1, 0, 0]])
    ones = np.ones(4, np.float32)
    partner, population = learned_characters(begin, act, networks, Character(weights, ones, ones, ones))
    env = LeverGame(num_levers=3, partner=partner)
    params = dataclasses.replace(env.default_params, population=population, weights=ones)
    envs.check(env, params, progress=False)

    @jax.jit
    def lever(member: Any) -> Any:
        own = dataclasses.replace(params, weights=jax.nn.one_hot(member, 4))
        _, state = env.reset_env(jax.random.key(0), own)
        _, state, _, _, info = env.step_env(jax.random.key(0), state, jnp.int32(0), own)
        return state.game.last[1], info["behaviour"]

    pulled, behaviour = zip(*(lever(jnp.int32(member)) for member in range(4)), strict=True)
    assert [int(each) for each in pulled] == [1, 2, 0, 2]
    np.testing.assert_array_equal(behaviour[2][0], weights[2])
    np.testing.assert_array_equal(behaviour[2][1], np.ones(3))


def remembered(params: Any) -> Any:
    return jnp.zeros(int(params[0].shape[0]))


def remember(key: Any, params: Any, memory: Any, obs: Any) -> Any:
    """A memory of the last observation, and the action 2."""
    return jnp.full((), 2, jnp.int32), obs


@pytest.mark.slow
@pytest.mark.parametrize("game", [LeverGame(num_levers=3), Foraging(size=4)])
def test_a_partner_and_an_agent_with_its_character_observe_the_same(game: Any) -> None:
    """Compared with the last paid option of the whole history, for both a random and a certain action."""
    half = np.full(1, 0.5, np.float32)
    character = Character(floats([[0.3, -0.2, 0.9]]), half, half, half)
    width = with_characters(game).observation_space().shape[0]
    partner, population = learned_characters(remembered, remember, [np.ones((1, width), np.float32)], character)
    env = dataclasses.replace(game, partner=partner)
    params = dataclasses.replace(env.default_params, population=population, weights=np.ones(1, np.float32))
    _, state = env.reset_env(jax.random.key(0), params)

    def step(state: Any, xs: Any) -> Any:
        key, option = xs
        action = env.to_action(state.game, 0, option, params)
        _, after, *_ = env.step_env(key, state, action, params)
        own = env.observe(state.game, params)[1]
        view = env.view(after.game, 1, params)
        chosen = env.view(after.game, 0, params).other[0]
        return after, (after.memory[0], own, view.success, view.other[0], chosen)

    options = np.repeat(np.random.default_rng(2).integers(0, 3, 60), 6)
    xs = (jax.random.split(jax.random.key(1), len(options)), jnp.int32(options))
    saw, own, paid, option, chosen = jax.tree.map(np.asarray, jax.jit(lambda: jax.lax.scan(step, state, xs)[1])())
    last = None
    for time in range(len(options)):
        expected = [*own[time], *(float(last == each) for each in range(3)), 0.3, -0.2, 0.9, 0.5, 0.5, 0.5]
        np.testing.assert_array_equal(saw[time], floats(expected))
        last = int(option[time]) if paid[time] else last
    assert paid.sum() >= 3 and len(set(option[paid])) == 3
    if isinstance(game, LeverGame):
        # Half of the actions are random, a quarter of which are 2 as well; five standard errors of a share.
        assert np.mean(chosen == 2) == pytest.approx(0.625, abs=5 * 0.5 / np.sqrt(len(options)))


def test_unsupported_games_and_bad_characters_are_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a cooperative task of two agents with .* got cooperation/levers-"):
        with_characters(envs.make("cooperation/levers-self-play"))
    with pytest.raises(ValueError, match="takes a task with reveals=False"):
        with_characters(envs.make("cooperation/levers", reveals=True))
    env = envs.make("cooperation/levers-characters")
    for change, sentence in (
        ({"impatience": -1.0}, r"env\.impatience must be at least 0"),
        ({"least_rationality": 1.5}, r"env\.least_rationality must lie in \[0, 1\], got 1.5"),
    ):
        with pytest.raises(ValueError, match=sentence):
            env.check_params(dataclasses.replace(env.default_params, **change))
    ones = np.ones(2, np.float32)
    several = Character(np.ones((2, 4), np.float32), ones, ones, ones)
    partner, population = learned_characters(begin, act, np.ones((1, 4), np.float32), several)
    beside = LeverGame(partner=partner)
    params = dataclasses.replace(beside.default_params, population=population, weights=ones)
    beside.check_params(params)
    beside.check_params(jax.tree.map(lambda leaf: np.stack([leaf, leaf]), params))  # two settings
    with pytest.raises(ValueError, match=r"env\.population must have the parameters of trained partners"):
        beside.check_params(beside.default_params)
    for wrong, sentence in (
        ({"network": np.array([0, 1], np.int32)}, r"env\.population\.network must lie in \[0, 0\], got 1"),
        ({"network": np.zeros(2)}, r"env\.population\.network must hold whole numbers, got dtype float64"),
        ({"params": np.ones((2, 4), np.float32)}, r"\['params'\] must have the shape \(1, 4\)"),
        (
            {"characters": dataclasses.replace(several, order=2 * ones)},
            r"env\.population\.characters\.order must lie in \[0, 1\], got 2",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            beside.check_params(dataclasses.replace(params, population=population | wrong))
    with pytest.raises(ValueError, match=r"characters must be arrays \[P, \.\.\.\] of at least one partner"):
        learned_characters(begin, act, np.ones((1, 4)), dataclasses.replace(several, order=np.ones(3)))
