"""Pgx's games under the contract."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_suites import STEPS, Native, allowed_actions, assert_parity

import envs
import jaxrl
from jaxrl.algorithms.registry import build, describe

pgx: Any = pytest.importorskip("pgx", reason="takes pgx: make test-suites installs it")
pytestmark = pytest.mark.slow

ALONE = (
    "2048",
    "minatar-asterix",
    "minatar-breakout",
    "minatar-freeway",
    "minatar-seaquest",
    "minatar-space_invaders",
)
# The most moves that others can make between two of ours: two in Leduc hold'em, where the first player begins both
# rounds, and in backgammon one for each of four dice.
GAMES = {
    "tic_tac_toe": 1,
    "connect_four": 1,
    "othello": 1,
    "hex": 1,
    "go_9x9": 1,
    "kuhn_poker": 1,
    "leduc_holdem": 2,
    "animal_shogi": 1,
    "gardner_chess": 1,
    "backgammon": 4,
    "sparrow_mahjong": 2,
}


def alone(env_id: str) -> Native:
    """A game for one player by Pgx's own functions, in which Freeway's end is a time limit."""
    task = pgx.make(env_id)

    def reset(key: jax.Array) -> Any:
        state = task.init(key)
        return state.observation, state

    def step(key: jax.Array, state: Any, action: Any) -> Any:
        state = task.step(state, action, key)
        limit = state.terminated & (env_id == "minatar-freeway")
        return state.observation, state, state.rewards[0], state.terminated & ~limit, limit

    return Native(reset, step)


def seated(env_id: str, moves: int, seat: int | None = None, **fields: Any) -> Native:
    """A game by Pgx's own functions against random players, who may move up to so many times between our moves."""
    task = type(pgx.make(env_id))(**fields) if fields else pgx.make(env_id)

    def answered(key: jax.Array, state: Any, player: Any) -> Any:
        def move(_: Any, carry: Any) -> Any:
            key, state, reward = carry
            key, choice, own = jax.random.split(key, 3)
            action = jax.random.categorical(choice, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
            after = task.step(state, action, own)
            theirs = (state.current_player != player) & ~state.terminated
            reward += jnp.where(theirs, after.rewards[player], 0.0)
            return key, jax.tree.map(lambda new, old: jnp.where(theirs, new, old), after, state), reward

        _, state, reward = jax.lax.fori_loop(0, moves, move, (key, state, jnp.float32(0)))
        return state, reward

    def observed(state: Any, player: Any) -> Any:
        return task._observe(state, player)

    def reset(key: jax.Array) -> Any:
        own, others = jax.random.split(key)
        state = jax.tree.map(jnp.asarray, task.init(own))
        player = jnp.int32(0) if seat is None else (state.current_player + seat) % 2
        state, _ = answered(others, state, player)
        return observed(state, player), (state, player)

    def step(key: jax.Array, held: Any, action: Any) -> Any:
        own, others = jax.random.split(key)
        state = task.step(held[0], action, own)
        first = state.rewards[held[1]]
        state, later = answered(others, state, held[1])
        return observed(state, held[1]), (state, held[1]), first + later, state.terminated, jnp.bool_(False)

    return Native(reset, step)


def first_allowed(key: jax.Array, obs: Any, mask: jax.Array) -> jax.Array:
    """An opponent that takes the first legal action."""
    del key, obs
    return jnp.argmax(mask)


def first_of_all(key: jax.Array, obs: Any, mask: jax.Array) -> int:
    """An opponent that knows no rules."""
    del key, obs, mask
    return 0


def played(env: Any, key: jax.Array, actions: list[int]) -> Any:
    """Rewards, flags and metrics of one episode of these actions, and its states."""
    params = env.default_params
    state = env.reset_env(key, params)[1]
    steps = []
    for action in actions:
        _, state, reward, terminated, info = env.step_env(key, state, action, params)
        steps.append((state, float(reward), bool(terminated), {k: int(v) for k, v in info["metrics"].items()}))
    return steps


@pytest.mark.parametrize("env_id", ALONE)
def test_500_legal_steps_of_one_player_equal_the_suites_own(env_id: str, key: jax.Array):
    env: Any = envs.make(f"pgx/{env_id}")
    ours = assert_parity(env, alone(env_id), key, actions=allowed_actions(env, key))
    assert np.any(ours.terminated) or env.default_params.max_steps_in_episode > STEPS


@pytest.mark.parametrize("env_id", GAMES)
def test_500_legal_steps_against_random_players_equal_the_suites_own(env_id: str, key: jax.Array):
    env: Any = envs.make(f"pgx/{env_id}")
    ours = assert_parity(env, seated(env_id, GAMES[env_id]), key, actions=allowed_actions(env, key))
    assert np.any(ours.terminated) and not np.any(np.asarray(ours.truncated) & ~np.asarray(ours.terminated))
    if env_id not in ("animal_shogi", "gardner_chess"):
        assert np.any(ours.reward > 0) and np.any(ours.reward < 0)


@pytest.mark.parametrize("seat", [0, 1])
def test_seats_equal_the_suites_own_order(seat: int, key: jax.Array):
    env: Any = envs.make("pgx/connect_four", seat=seat)
    assert_parity(env, seated("connect_four", 1, seat), key, 200, actions=allowed_actions(env, key, 200))
    obs, _ = jax.vmap(lambda key: env.reset_env(key, env.default_params))(jax.random.split(key, 20))
    np.testing.assert_array_equal(np.sum(obs, axis=(1, 2, 3)), seat)  # one piece lies there if the other began


def test_seats_are_drawn_at_resets(key: jax.Array):
    """Of 200 fair draws, 60 to 140 begin: a bound of 5.6 standard deviations of 7.07."""
    env: Any = envs.make("pgx/tic_tac_toe")
    obs, _ = jax.vmap(lambda key: env.reset_env(key, env.default_params))(jax.random.split(key, 200))
    assert 60 < int(np.sum(obs)) < 140


def test_random_players_choose_all_legal_actions_alike(key: jax.Array):
    """The counts of 9 first moves in 1,800 games are within 5 standard deviations of 200, each of 13.3."""
    env: Any = envs.make("pgx/tic_tac_toe", seat=1)
    obs, _ = jax.vmap(lambda key: env.reset_env(key, env.default_params))(jax.random.split(key, 1800))
    counts = np.sum(obs, axis=(0, 3)).ravel()
    assert counts.sum() == 1800 and np.all(np.abs(counts - 200) < 67)


@pytest.mark.parametrize("env_id", ["minatar-breakout", "2048", "tic_tac_toe", "kuhn_poker", "backgammon"])
def test_it_keeps_the_laws(env_id: str):
    envs.check(envs.make(f"pgx/{env_id}"), progress=False)


def test_a_fixed_opponent_plays_and_pays(key: jax.Array):
    """It fills the cells of tic-tac-toe in their order: three in a row win, and it blocks none."""
    env: Any = envs.make("pgx/tic_tac_toe", seat=0, opponent=first_allowed)
    *_, (state, reward, ended, metrics) = played(env, key, [4, 8, 6])  # it takes 0, 1 and 2
    assert reward == -1 and ended and metrics == {"won": 0, "drawn": 0}
    assert int(np.sum(np.asarray(state.inner.game._x.board) >= 0)) == 6
    *_, (_, reward, ended, metrics) = played(env, key, [2, 4, 6])  # it takes 0 and 1
    assert reward == 1 and ended and metrics == {"won": 1, "drawn": 0}
    *rest, (_, reward, ended, metrics) = played(env, key, [4, 2, 3, 7, 8])  # it takes 0, 1, 5 and 6
    assert reward == 0 and ended and metrics == {"won": 0, "drawn": 1}
    assert not any(step[1] or step[2] or any(step[3].values()) for step in rest)


def test_illegal_actions_end_the_game_with_a_penalty(key: jax.Array):
    env: Any = envs.make("pgx/tic_tac_toe", seat=0)
    (*_, first), (*_, reward, ended, metrics) = played(env, key, [4, 4])
    assert first == {"won": 0, "drawn": 0} and reward == -1 and ended and metrics == {"won": 0, "drawn": 0}
    unruly: Any = envs.make("pgx/tic_tac_toe", seat=0, opponent=first_of_all)
    ((*_, reward, ended, metrics),) = played(unruly, key, [0])
    assert reward == 1 and ended and metrics == {"won": 1, "drawn": 0}
    board: Any = envs.make("pgx/2048")
    _, states = jax.vmap(lambda key: board.reset_env(key, board.default_params))(jax.random.split(key, 50))
    masks = jax.vmap(lambda state: board.action_mask(state, board.default_params))(states)
    stuck = int(np.argmin(np.all(masks, axis=1)))  # a board on which some move changes nothing
    state, mask = jax.tree.map(lambda leaf: leaf[stuck], (states, masks))
    assert mask.shape == (4,) and not np.all(mask)
    _, _, reward, ended, _ = board.step_env(key, state, jnp.argmin(mask), board.default_params)
    assert float(reward) == -1 and bool(ended)


def test_the_mask_is_that_of_the_game(key: jax.Array):
    env: Any = envs.make("pgx/connect_four", seat=0, opponent=lambda key, obs, mask: jnp.int32(3))
    params = env.default_params
    state = env.reset_env(key, params)[1]
    for _ in range(3):
        assert np.all(env.action_mask(state, params))
        state = env.step_env(key, state, 3, params)[1]
    np.testing.assert_array_equal(env.action_mask(state, params), np.arange(7) != 3)
    assert envs.make("pgx/minatar-asterix").action_mask(state, params) is None


def test_freeways_limit_truncates_and_its_clock_does_not_terminate(key: jax.Array):
    env: Any = envs.make("pgx/minatar-freeway")
    assert env.default_params.max_steps_in_episode == 2501
    task = pgx.make("minatar-freeway")

    def theirs(state: Any, key: jax.Array) -> Any:
        state = task.step(state, 0, key)
        return state, state.terminated

    def ours(state: Any, key: jax.Array) -> Any:
        _, state, _, terminated, _ = env.step_env(key, state, 0, env.default_params)
        return state, (terminated, env.is_truncated(state, env.default_params))

    keys = jax.random.split(key, 2600)
    ended = jax.jit(lambda state: jax.lax.scan(theirs, state, keys)[1])(task.init(key))
    assert int(np.argmax(ended)) + 1 == 2501
    start = env.reset_env(key, env.default_params)[1]
    terminated, truncated = jax.jit(lambda state: jax.lax.scan(ours, state, keys)[1])(start)
    assert not np.any(terminated) and int(np.argmax(truncated)) + 1 == 2501


def test_last_observations_are_kept(key: jax.Array):
    env: Any = envs.make("pgx/tic_tac_toe", seat=0, opponent=first_allowed)
    params = env.default_params
    _, state = env.reset(key, params)
    for action in (2, 4):
        _, state, *_ = env.step(key, state, action, params)
    obs, _, reward, terminated, _, info = env.step(key, state, 6, params)
    assert float(reward) == 1 and bool(terminated) and not np.any(obs)
    np.testing.assert_array_equal(np.argwhere(np.asarray(info["final_observation"])[..., 0].ravel())[:, 0], [2, 4, 6])
    short: Any = envs.make("pgx/minatar-breakout")
    params = short.default_params.replace(max_steps_in_episode=1)
    start, state = short.reset(key, params)
    _, _, _, terminated, truncated, info = short.step(key, state, 0, params)
    assert bool(truncated) and not bool(terminated)
    assert np.any(np.asarray(info["final_observation"]) != np.asarray(start))


def test_sticky_actions_are_traced_and_minimal_sets_static(key: jax.Array):
    """After one action to the right, a step to the left repeats it where actions always stick."""
    env: Any = envs.make("pgx/minatar-breakout")

    def place(probability: jax.Array) -> jax.Array:
        params = env.default_params.replace(sticky_action_prob=probability)
        state = env.reset_env(key, params)[1]
        state = env.step_env(key, state, 2, env.default_params.replace(sticky_action_prob=0.0))[1]
        return env.step_env(key, state, 1, params)[1].inner._pos

    np.testing.assert_array_equal(jax.jit(jax.vmap(place))(jnp.array([0.0, 1.0])), [4, 6])
    assert env.action_space().n == 3
    whole: Any = envs.make("pgx/minatar-breakout", use_minimal_action_set=False)
    assert whole.action_space().n == 6
    with pytest.raises(ValueError, match=r"env.sticky_action_prob must be at most 1, got 1\.5"):
        env.check_params(env.default_params.replace(sticky_action_prob=1.5))
    assert env.default_params.sticky_action_prob == 0.1 and env.default_params.max_steps_in_episode == 1000


def test_stakes_bound_the_returns():
    ranges = {"tic_tac_toe": 1, "kuhn_poker": 2, "leduc_holdem": 13, "backgammon": 3}
    for env_id, stakes in ranges.items():
        env = envs.make(f"pgx/{env_id}")
        assert env.return_range(env.default_params) == (-stakes, stakes)
    env = envs.make("pgx/sparrow_mahjong")
    assert env.return_range(env.default_params) is None


def test_names_and_static_fields_are_kept(key: jax.Array):
    env: Any = envs.make("pgx/go_9x9", komi=6.5, max_terminal_steps=31, seat=1)
    assert env == envs.make("pgx/go_9x9", seat=1, komi=6.5, max_terminal_steps=31) == copy.deepcopy(env)
    assert hash(env) == hash(copy.deepcopy(env)) and env != envs.make("pgx/go_9x9")
    assert env.default_params.max_steps_in_episode == 16 and env.inner._game.komi == 6.5
    assert env.reset_env(key, env.default_params)[0].shape == (9, 9, 17)
    small: Any = envs.make("pgx/tic_tac_toe", seat=1)
    spec = describe(jaxrl.ppo(small))
    assert spec["environment"] == {"name": "pgx/tic_tac_toe", "static": {"seat": 1}}
    assert build(spec).env == small


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'pgx/tictactoe'; did you mean"):
        envs.make("pgx/tictactoe")
    with pytest.raises(ValueError, match="has no static field 'oponent'; did you mean 'opponent'"):
        envs.make("pgx/hex", oponent="random")
    with pytest.raises(ValueError, match="'pgx/2048' has no static field 'opponent'; it has no static fields"):
        envs.make("pgx/2048", opponent="random")
    with pytest.raises(TypeError, match=r"opponent must be 'random' or a function .* got 'minimax'"):
        envs.make("pgx/hex", opponent="minimax")
    with pytest.raises(TypeError, match=r"opponent must be 'random' or a function \(key, obs, mask\) -> action, got"):
        envs.make("pgx/hex", opponent=lambda key, obs: 0)
    with pytest.raises(ValueError, match="seat must be one of None, 0, 1, got 2"):
        envs.make("pgx/hex", seat=2)
    assert "pgx/connect_four" in envs.names("pgx") and "pgx/bridge_bidding" not in envs.names("pgx")


def test_images_of_games_for_one(key: jax.Array):
    from envs.rendering import frame

    for env_id in ("minatar-asterix", "2048"):
        env = envs.make(f"pgx/{env_id}")
        _, state = env.reset_env(key, env.default_params)
        image = frame(env, state, env.default_params)
        assert image.shape[2] == 3 and len(np.unique(image)) > 5
    env = envs.make("pgx/hex")
    with pytest.raises(ValueError, match="PgxGame cannot be drawn"):
        frame(env, env.reset_env(key, env.default_params)[1], env.default_params)
