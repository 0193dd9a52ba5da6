"""Tasks that require a memory: exact values compared with brute force, and hand-written policies that earn them."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs import discount_curves
from envs.base import OPTIMUM_KINDS
from envs.memory import repeat_first
from envs.memory.chain import MemoryChain
from envs.memory.delayed_match import DelayedMatch
from envs.memory.repeat_first import RANKS, SUITS, RepeatFirst
from envs.memory.t_maze import DOWN, FORWARD, UP, TMaze
from jaxrl.algorithms.registry import build, describe

EPISODES = 512
GAMMAS = (None, 0.9)


class Tree:
    """A small task that is random only at its start, unrolled by its own `step_env`: brute force over policies.

    Args:
      env: Task.
      params: Its parameters, with a short time limit.
      starts: States in which an episode can begin, all equally likely.
      observe: First observation of a state.
    """

    def __init__(self, env: Any, params: Any, starts: list[Any], observe: Callable[[Any], Any]):
        self.actions = range(env.num_actions)
        self.starts = [(1 / len(starts), state, np.asarray(observe(state)).tobytes()) for state in starts]
        step = jax.jit(env.step_env)
        self._step = lambda state, action: step(jax.random.key(0), state, jnp.int32(action), params)
        self._limit = int(params.max_steps_in_episode)
        self._known: dict[Any, tuple[bytes, Any, float, bool]] = {}

    def step(self, state: Any, action: int) -> tuple[bytes, Any, float, bool]:
        """Observation, state, reward in float64 and whether the episode is over."""
        where = (*(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)), action)
        if where not in self._known:
            obs, state, reward, terminated, _ = jax.tree.map(np.asarray, self._step(state, action))
            over = bool(terminated) or int(state.time) >= self._limit
            self._known[where] = (obs.tobytes(), state, float(reward), over)
        return self._known[where]

    def best(self, curve: np.ndarray) -> float:
        """The largest return of a policy that remembers everything, over all histories."""
        return self._best_after(self.starts, 0, curve)

    def _best_after(self, alike: list[Any], time: int, curve: np.ndarray) -> float:
        """The best return over episodes `(probability, state, observation)` of one history except the last one."""
        total = 0.0
        for seen in {obs for *_, obs in alike}:
            values = []
            for action in self.actions:
                value, going_on = 0.0, []
                for probability, state, obs in alike:
                    if obs == seen:
                        obs, state, reward, over = self.step(state, action)
                        value += probability * curve[time] * reward
                        going_on += [] if over else [(probability, state, obs)]
                values.append(value + (self._best_after(going_on, time + 1, curve) if going_on else 0.0))
            total += max(values)
        return total

    def best_memoryless(self, curve: np.ndarray, policy: dict[bytes, int] | None = None) -> float:
        """The largest return of a function from observations to actions, over all that differ where used."""
        policy = {} if policy is None else policy
        total = 0.0
        for probability, state, obs in self.starts:
            over, time = False, 0
            while not over:
                if obs not in policy:
                    return max(self.best_memoryless(curve, {**policy, obs: action}) for action in self.actions)
                obs, state, reward, over = self.step(state, policy[obs])
                total += probability * curve[time] * reward
                time += 1
        return total


def t_maze(length: int, limit: int) -> tuple[Any, Any, Tree]:
    env = TMaze(length)
    params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
    state = env.reset_env(jax.random.key(0), params)[1]
    starts = [dataclasses.replace(state, goal=jnp.int32(goal)) for goal in (UP, DOWN)]
    signs = {UP: [1.0, 0, 0, 0], DOWN: [0, 1.0, 0, 0]}
    return env, params, Tree(env, params, starts, lambda state: np.array(signs[int(state.goal)], np.float32))


def chain(length: int, limit: int, num_bits: int = 1) -> tuple[Any, Any, Tree]:
    env = MemoryChain(length, num_bits)
    params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
    state = env.reset_env(jax.random.key(0), params)[1]
    asked = itertools.product(itertools.product((0, 1), repeat=num_bits), range(num_bits))
    starts = [dataclasses.replace(state, context=jnp.int32(bits), query=jnp.int32(query)) for bits, query in asked]
    return env, params, Tree(env, params, starts, lambda state: env.inner.inner.get_obs(state, params))


def delayed_match(delay: int, limit: int) -> tuple[Any, Any, Tree]:
    env = DelayedMatch(num_symbols=3, delay=delay, num_trials=1)
    params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
    state = env.reset_env(jax.random.key(0), params)[1]
    pairs = [
        (sample, test) for sample, test in itertools.product(range(3), repeat=2) for _ in range(1 + (sample == test))
    ]
    starts = [dataclasses.replace(state, sample=jnp.int32(sample), test=jnp.int32(test)) for sample, test in pairs]
    return env, params, Tree(env, params, starts, lambda state: np.eye(5, dtype=np.float32)[int(state.sample)])


SMALL = {
    "t-maze of 1": lambda: t_maze(1, 4),
    "t-maze of 2": lambda: t_maze(2, 4),
    "chain of 1": lambda: chain(1, 10),
    "chain of 2 bits": lambda: chain(3, 4, num_bits=2),
    "match": lambda: delayed_match(1, 3),
    "match at once": lambda: delayed_match(0, 2),
}


@pytest.mark.parametrize("task", SMALL)
def test_optimum_and_memoryless_are_the_best_of_all_policies(task: str) -> None:
    env, params, tree = SMALL[task]()
    for gamma in GAMMAS:
        curve = discount_curves.of(gamma, 12)
        # Costs and pay are float32; an episode adds up at most four of them.
        assert env.optimum(params, gamma) == pytest.approx(tree.best(curve), abs=1e-6)
        assert env.memoryless(params, gamma) == pytest.approx(tree.best_memoryless(curve), abs=1e-6)


def test_a_discount_that_rises_may_reward_waiting_in_a_t_maze() -> None:
    """To wait for a step costs 0.1, and the reward is then worth 0.5 more."""
    env, params, tree = t_maze(1, 3)
    rising = np.array([1.0, 1.0, 1.5])
    assert tree.best(rising) == pytest.approx(1.4, abs=1e-6)
    assert [env.optimum(params, rising, kind) for kind in OPTIMUM_KINDS] == [None] * 3
    assert env.optimum(params, rising[:2]) == 1.0  # what is not known of a curve does not count as a rise
    assert env.optimum(params, 1 + 1e-7 * np.arange(3)) == pytest.approx(1)
    slowly = 1 + 8e-7 * np.arange(100)
    assert discount_curves.rises(slowly, 100) and not discount_curves.rises(slowly, 2)


@dataclasses.dataclass
class KnownFor:
    """A discount of 1 that is known for some steps."""

    steps: int

    def curve(self, horizon: int) -> np.ndarray:
        if horizon > self.steps:
            raise ValueError(f"horizon must be at most the {self.steps} steps, got {horizon}")
        return np.ones(horizon + 1)


def test_rises_of_an_object_are_sought_up_to_the_time_limit_and_of_a_number_nowhere() -> None:
    env: Any = TMaze()
    params = env.default_params.replace(length=3, max_steps_in_episode=8)
    assert env.optimum(params, KnownFor(8)) == 1.0
    with pytest.raises(ValueError, match="horizon must be at most the 4 steps, got 8"):
        env.optimum(params, KnownFor(4))
    endless = params.replace(max_steps_in_episode=2_000_000_000)  # a curve of which exceeds most memories
    assert env.optimum(endless) == 1.0 and env.optimum(endless, 0.5) == 0.125
    with pytest.raises(ValueError, match=r"discount is 1.5; it takes None, a number from 0 to 1"):
        discount_curves.rises(1.5, 2_000_000_000)


def test_repeat_first_among_all_policies_and_all_orders_of_a_small_deck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat_first, "RANKS", 2)
    env = RepeatFirst()
    orders = np.array(sorted(set(itertools.permutations([suit for suit in range(SUITS) for _ in range(2)]))))
    assert orders.shape == (2520, 8) and env.num_cards == 8
    for gamma, limit in itertools.product(GAMMAS, (8, 3)):
        params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
        curve = discount_curves.of(gamma, limit)
        # Returns of answers[..., action] where the first card is seen, and elsewhere, by the observation.
        right = np.where(orders[:, :1, None] == np.arange(SUITS), 1.0, -1.0) / 7 / len(orders)
        at_first, later = np.zeros((SUITS, SUITS)), np.zeros((SUITS, SUITS))
        np.add.at(at_first, orders[:, 0], right[:, 0])
        for time in range(1, limit):
            np.add.at(later, orders[:, time], curve[time] * right[:, 0])
        policies = np.array(list(itertools.product(range(SUITS), repeat=SUITS)))  # of one kind of observation
        earned = [values[np.arange(SUITS), policies].sum(axis=1) for values in (at_first, later)]
        best = (earned[0][:, None] + earned[1]).max()
        assert env.memoryless(params, gamma) == pytest.approx(best, abs=1e-12)
        assert env.optimum(params, gamma) == pytest.approx(curve.sum() / 7, abs=1e-12)


def test_the_known_values_of_repeat_first() -> None:
    env = envs.make("memory/repeat-first")
    assert isinstance(env, RepeatFirst)
    assert env.optimum() == pytest.approx(52 / 51, abs=1e-12) and f"{env.optimum():.4f}" == "1.0196"
    assert env.memoryless() == pytest.approx(-24 / 51, abs=1e-12) and f"{env.memoryless():.4f}" == "-0.4706"


def test_stochastic_policies_without_memory_earn_no_more_in_a_t_maze() -> None:
    """By dynamic programming in float64 over cells and time, for policies drawn at random."""
    length, limit, cost = 2, 8, 0.1
    env: Any = TMaze(length)
    params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
    for gamma, seed in itertools.product(GAMMAS, range(100)):
        policy = np.random.default_rng(seed).dirichlet(np.full(4, 0.2), size=4)  # at each observation
        earned = 0.0
        for goal in (UP, DOWN):
            values = np.zeros(length + 1)
            for time in reversed(range(limit)):
                row = [policy[goal - UP], *[policy[2]] * (length - 1), policy[3]]
                worth = discount_curves.of(gamma, limit)[time]
                after = np.zeros(length + 1)
                for cell, chances in enumerate(row):
                    junction = cell == length
                    ahead = -cost * worth + values[cell] if junction else values[cell + 1]
                    back = -cost * worth + values[max(cell - 1, 0)]
                    turns = [
                        (action == goal) * worth if junction else -cost * worth + values[cell] for action in (UP, DOWN)
                    ]
                    after[cell] = chances @ [ahead, back, *turns]
                values = after
            earned += values[0] / 2
        assert earned <= env.memoryless(params, gamma) + 1e-12


# --- policies by hand --------------------------------------------------------------------


def _kept(obs: jax.Array, memory: jax.Array, time: jax.Array) -> jax.Array:
    return jnp.where(time == 0, obs, memory)


def _t_maze(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    memory = _kept(obs, memory, time)
    return jnp.where(obs[3] > 0, jnp.where(memory[0] > 0, UP, DOWN), FORWARD), memory


def _repeat(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    memory = _kept(obs, memory, time)
    return jnp.argmax(memory[1:]), memory


def _other_suit(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    suit = jnp.argmax(obs[1:])
    return jnp.where(obs[0] > 0, suit, (suit + 1) % SUITS), memory


def _match(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    memory = jnp.where(obs[-2] > 0, obs, memory)
    return jnp.where(jnp.all(memory[:-2] == obs[:-2]), 1, 0), memory


def _chain(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    memory = _kept(obs, memory, time)
    return jnp.where(memory[2:][obs[1].astype(jnp.int32)] > 0, 1, 0), memory


@functools.partial(jax.jit, static_argnums=(0, 1))
def returns(env: Any, policy: Callable[..., Any], params: Any) -> tuple[jax.Array, jax.Array]:
    """Returns and lengths of many episodes."""

    def episode(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        reset_key, key = jax.random.split(key)
        obs, state = env.reset_env(reset_key, params)

        def step(carry: Any, key: jax.Array) -> Any:
            obs, state, memory, alive = carry
            action, memory = policy(obs, memory, state.time)
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            on = alive & ~terminated & ~env.is_truncated(state, params)
            return (obs, state, memory, on), (jnp.where(alive, reward, 0), alive)

        keys = jax.random.split(key, 104)
        rewards, alive = jax.lax.scan(step, (obs, state, obs, jnp.bool_(True)), keys)[1]
        return rewards.sum(), alive.sum()

    return jax.vmap(episode)(jax.random.split(jax.random.key(0), EPISODES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields", "policy", "length"),
    [
        ("memory/t-maze", {"length": 7}, _t_maze, 8),
        ("memory/delayed-match", {"delay": 3}, _match, 20),
        ("memory/chain", {"num_bits": 3}, _chain, 21),
        ("memory/repeat-first", {}, _repeat, 52),
        ("memory/repeat-first", {"num_decks": 2}, _repeat, 104),
    ],
)
def test_a_policy_that_remembers_attains_the_optimum_in_every_episode(
    name: str, fields: dict[str, int], policy: Any, length: int
) -> None:
    env = envs.make(name, **fields)
    paid, lengths = returns(env, policy, env.default_params)
    np.testing.assert_array_equal(lengths, length)
    # Shares of 51 are rounded, and so is each sum; all others are exact in float32.
    tolerance = 104 * 2**-23 if "repeat" in name else 0
    best: Any = env.optimum()
    np.testing.assert_allclose(paid, best, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_naming_another_suit_earns_the_memoryless_return() -> None:
    """The next suit is right for all 13 cards of the one before the first, in every order."""
    env = RepeatFirst()
    paid, _ = returns(env, _other_suit, env.default_params)
    np.testing.assert_allclose(paid, env.memoryless(), rtol=0, atol=52 * 2**-23)


@pytest.mark.slow
def test_decks_are_dealt_whole_and_first_cards_are_as_likely() -> None:
    env = RepeatFirst()
    _, state = jax.vmap(env.reset_env, (0, None))(jax.random.split(jax.random.key(1), 4096), env.default_params)
    shares = np.bincount(np.asarray(state.first), minlength=SUITS) / 4096
    assert np.all(np.abs(shares - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / 4096))
    shown = [int(state.shown[0])]
    one = jax.tree.map(lambda leaf: leaf[0], state)
    step = jax.jit(env.step_env)
    for time in range(env.num_cards):
        obs, one, _, terminated, _ = step(jax.random.key(time), one, jnp.int32(0), env.default_params)
        shown.append(int(one.shown))
        assert bool(terminated) == (time == env.num_cards - 1) and obs[0] == 0
    assert np.bincount(shown[:-1]).tolist() == [RANKS] * SUITS
    assert shown[-1] == SUITS and not np.any(obs)


def test_the_first_suit_is_rewarded_until_the_deck_is_empty() -> None:
    """The suit of the first card is named in every second step, and another suit in between."""
    env, keys = RepeatFirst(), jax.random.split(jax.random.key(0), 53)
    step, params = jax.jit(env.step_env), env.default_params
    obs, state = env.reset_env(keys[0], params)
    first, shown = int(np.argmax(obs[1:])), []
    for time, key in enumerate(keys[1:]):
        action = first if time % 2 == 0 else (first + 1) % SUITS
        shown.append(int(np.argmax(obs[1:])))
        obs, state, reward, terminated, _ = step(key, state, jnp.int32(action), params)
        np.testing.assert_allclose(reward, (1 if action == first else -1) / 51, rtol=1e-6)
        assert bool(terminated) == (time == 51)
    np.testing.assert_array_equal(np.bincount(shown), [13] * SUITS)
    assert not np.any(obs)


def test_a_sample_is_seen_once_and_answered_after_the_delay() -> None:
    """Two trials of five steps: the sample, a delay of three without a symbol, and the test, where the answer pays."""
    env = DelayedMatch(num_symbols=3, delay=3, num_trials=2)
    step, params = jax.jit(env.step_env), env.default_params
    obs, state = env.reset_env(jax.random.key(0), params)
    seen, rewards, ends = [obs], [], []
    for key in jax.random.split(jax.random.key(1), 10):
        obs, state, reward, terminated, _ = step(key, state, jnp.int32(1), params)
        seen, rewards, ends = [*seen, obs], [*rewards, float(reward)], [*ends, bool(terminated)]
    for trial in (0, 5):
        sample, test = (int(np.argmax(seen[trial + at][:3])) for at in (0, 4))
        np.testing.assert_array_equal(seen[trial], np.eye(5)[sample] + np.eye(5)[3])
        np.testing.assert_array_equal(seen[trial + 1 : trial + 4], np.zeros((3, 5)))
        np.testing.assert_array_equal(seen[trial + 4], np.eye(5)[test] + np.eye(5)[4])
        assert rewards[trial : trial + 5] == [0, 0, 0, 0, 0.5 if sample == test else -0.5]
    assert ends == [False] * 9 + [True]


@pytest.mark.slow
def test_half_of_the_trials_match_and_each_draws_its_own() -> None:
    env = DelayedMatch(num_symbols=3)
    sample, test = jax.vmap(env._draw)(jax.random.split(jax.random.key(0), 6000))
    table = np.zeros((3, 3))
    np.add.at(table, (np.asarray(sample), np.asarray(test)), 1 / 6000)
    expected = np.full((3, 3), 1 / 12) + np.eye(3) / 12
    assert np.all(np.abs(table - expected) < 4.5 * np.sqrt(expected / 6000))


# --- names, fields and errors ------------------------------------------------------------


def test_the_shortest_sufficient_limit_is_taken() -> None:
    tasks: tuple[Any, ...] = ((TMaze(), 21), (MemoryChain(), 21), (DelayedMatch(), 12))
    for env, limit in tasks:
        env.check_params(dataclasses.replace(env.default_params, max_steps_in_episode=limit))


def test_lengths_are_swept_and_named() -> None:
    env: Any = envs.make("memory/t-maze", length=20)
    assert (env, env.default_params.max_steps_in_episode) == (TMaze(20), 84)
    assert (envs.make("memory/chain", length=5).default_params.memory_length, MemoryChain().length) == (5, 20)
    assert envs.make("memory/chain", length=2000).default_params.max_steps_in_episode == 2001
    algo = jaxrl.ppo(TMaze(5))
    assert describe(algo)["environment"] == {"name": "memory/t-maze", "static": {"length": 5}}
    sweep = jaxrl.grid(algo.hparams, {"env.length": [2, 4]})
    assert (sweep.dims, sweep.shape) == (("env.length",), (2,))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("cartpole", [0, 2]),
        ("pendulum", [0, 1]),
        ("acrobot", [0, 1, 2, 3]),
        ("mountain-car", [0]),
        ("mountain-car-continuous", [0]),
    ],
)
def test_positions_alone_are_shown_under_a_name_that_results_know(name: str, kept: list[int]) -> None:
    env, whole = envs.make(f"memory/{name}"), envs.make(name)
    hidden = [index for index in range(whole.observation_space(whole.default_params).shape[0]) if index not in kept]
    assert env == envs.wrappers.hide(whole, *hidden) and env.name == f"memory/{name}"
    assert env.optimum() is None and env.memoryless() is None
    obs, state = env.reset_env(jax.random.key(3), env.default_params)
    seen, inside = whole.reset_env(jax.random.key(3), whole.default_params)
    np.testing.assert_array_equal(obs, seen[np.array(kept)])
    jax.tree.map(np.testing.assert_array_equal, state, inside)
    described = describe(jaxrl.ppo(env))
    assert described["environment"] == {"name": f"memory/{name}", "static": {}}
    assert build(described).env == env
    with pytest.raises(ValueError, match="has no static field 'components'"):
        envs.make(f"memory/{name}", components=(0,))


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_noise_on_positions_is_drawn_with_a_swept_scale(name: str) -> None:
    """The noise of a step by its definition: the deviation times normal numbers of the wrapper's own key."""
    env, positions = envs.make(f"memory/noisy-{name}"), envs.make(f"memory/{name}")
    assert env == envs.wrappers.observation_noise(positions, 0.1) and env.name == f"memory/noisy-{name}"
    assert envs.wrappers.observation_noise(positions, 0.2).name == f"observation_noise(memory/{name})"
    params = env.default_params
    assert float(params.scale) == 0.1 and env.optimum() is None and env.memoryless() is None
    for scale in (0.0, 0.1, 0.3):
        key = jax.random.key(5)
        obs, state = env.reset_env(key, dataclasses.replace(params, scale=scale))
        noise_key, reset_key = jax.random.split(key)
        clean, inside = positions.reset_env(reset_key, positions.default_params)
        noise = np.asarray(jax.random.normal(jax.random.fold_in(noise_key, 0), clean.shape), np.float64)
        np.testing.assert_allclose(obs, np.asarray(clean, np.float64) + scale * noise, rtol=0, atol=2**-22)
        jax.tree.map(np.testing.assert_array_equal, state, inside)
    algo = jaxrl.ppo(env)
    assert jaxrl.grid(algo.hparams, {"env.scale": [0.1, 0.3]}).dims == ("env.scale",)
    described = describe(algo)
    assert described["environment"] == {"name": f"memory/noisy-{name}", "static": {}}
    assert build(described).env == env


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TMaze(0), "length must be a whole number of at least 1, got 0"),
        (lambda: RepeatFirst(0), "num_decks must be a whole number of at least 1, got 0"),
        (lambda: DelayedMatch(1), "num_symbols must be a whole number of at least 2, got 1"),
        (lambda: MemoryChain(0), "length must be a whole number of at least 1, got 0"),
        (
            lambda: TMaze().check_params(dataclasses.replace(TMaze().default_params, idle_cost=-1.0)),
            "env.idle_cost must be at least 0",
        ),
        (
            lambda: TMaze().check_params(dataclasses.replace(TMaze().default_params, length=np.array([3, 0]))),
            "env.length must be at le",
        ),
        (
            lambda: DelayedMatch().check_params(dataclasses.replace(DelayedMatch().default_params, delay=-1)),
            "env.delay must be at le",
        ),
        (
            lambda: MemoryChain().check_params(dataclasses.replace(MemoryChain().default_params, memory_length=0)),
            "env.memory_length ",
        ),
        (
            lambda: TMaze().check_params(dataclasses.replace(TMaze().default_params, length=np.array([3, 84]))),
            r"^env\.max_steps_in_episode must be at least 85 where env\.length is 84, got 84$",
        ),
        (
            lambda: MemoryChain().check_params(
                dataclasses.replace(MemoryChain().default_params, max_steps_in_episode=20)
            ),
            r"^env\.max_steps_in_episode must be at least 21 where env\.memory_length is 20, got 20$",
        ),
        (
            lambda: DelayedMatch().check_params(dataclasses.replace(DelayedMatch().default_params, delay=47)),
            r"^env\.max_steps_in_episode must be at least 49 where env\.delay is 47, got 48$",
        ),
        (lambda: TMaze().optimum(discount="exp"), "discount is 'exp'; it takes None, a number from 0 to 1, a curve"),
        (lambda: TMaze().optimum(discount=1.5), r"discount is 1\.5; it takes None, a number from 0 to 1"),
        (lambda: TMaze().optimum(discount=np.ones(5)), "takes at least 21 entries"),
        (lambda: envs.make("t-maze"), "did you mean 'maze' or 'memory/t-maze'"),
    ],
)
def test_invalid_arguments_are_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_optima_take_any_discount() -> None:
    env = TMaze(3)
    hyperbolic = jaxrl.Hyperbolic(k=0.5)
    assert env.optimum(discount=hyperbolic) == pytest.approx(1 / (1 + 0.5 * 3), rel=1e-6)
    assert env.optimum(discount=[1.0, 0.5, 0.25, 0.2]) == 0.2
    assert envs.make("cartpole").optimum() is None
