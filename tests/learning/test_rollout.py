"""Rollouts against plain Python loops that step one environment at a time."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import envs
from envs.base import Environment, EnvParams, EnvState, spaces
from jaxrl.learning.actor import Actor, memories, memoryless
from jaxrl.learning.rollout import Carry, Transition, default_reset_pool, reset_all, rollout, step_once, value_ends

NUM_ENVS = 3
NUM_STEPS = 24
LIMIT = 4


@struct.dataclass
class Params(EnvParams):
    max_steps_in_episode: jax.Array | int = LIMIT


@struct.dataclass
class State(EnvState):
    time: jax.Array
    name: jax.Array
    life: jax.Array
    total: jax.Array


@dataclass(frozen=True)
class Mortal(Environment):
    """A reset draws a name and a life of 1 to 6 steps; a step adds the action to a total and draws noise."""

    @property
    def default_params(self) -> Params:
        return Params()

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, State]:
        name_key, life_key = jax.random.split(key)
        life = jax.random.randint(life_key, (), 1, 7)
        zero = jnp.zeros((), jnp.int32)
        state = State(zero, jax.random.uniform(name_key), life, zero)
        return self._observe(state, jnp.zeros(())), state

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[Any, State, jax.Array, jax.Array, dict[Any, Any]]:
        state = State(state.time + 1, state.name, state.life, state.total + action)
        reward = state.name + 10.0 * action + 100.0 * state.time
        return self._observe(state, jax.random.uniform(key)), state, reward, state.time >= state.life, {}

    def action_mask(self, state: State, params: Params) -> jax.Array:
        return jnp.stack([state.time % 2 == 0, state.total % 3 != 0])

    def action_space(self, params: Params | None = None) -> spaces.Discrete:
        return spaces.Discrete(2)

    def observation_space(self, params: Params | None = None) -> spaces.Dict:
        return spaces.Dict({"numbers": spaces.Box(0.0, 100.0, (4,)), "noise": spaces.Box(0.0, 1.0, ())})

    def _observe(self, state: State, noise: jax.Array) -> dict[str, jax.Array]:
        numbers = jnp.stack([state.name, *(x.astype(jnp.float32) for x in (state.life, state.time, state.total))])
        return {"numbers": numbers, "noise": noise}


def unused_noise(key: jax.Array, shape: tuple[int, ...]) -> Any:
    raise AssertionError("a rollout takes its noise from its caller")


def the_time(policy: Any, obs: Any, mask: jax.Array) -> dict[str, jax.Array]:
    return {"time": obs["numbers"][:, 2].astype(jnp.int32) + policy, "mask": mask}


def choose(wish: jax.Array, scores: Any, greedy: Any, mask: jax.Array) -> tuple[jax.Array, Any]:
    """The desired action, shifted by the observed time; the raw action is the desired one and both masks."""
    assert greedy is False
    return (wish + scores["time"]) % 2, {"wish": wish, "mask": mask, "scored_mask": scores["mask"]}


WISHING = memoryless(the_time, unused_noise, choose)


@partial(jax.jit, static_argnames="pool")
def roll(key: jax.Array, carry: Carry, wishes: Any, params: Params, pool: int | None = None) -> Any:
    return rollout(Mortal(), params, WISHING, 0, key, carry, wishes, pool)


def wishes(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (NUM_STEPS, NUM_ENVS), dtype=np.int32)


@pytest.fixture(scope="module")
def start() -> Carry:
    return reset_all(Mortal(), jax.random.key(1), Params(), NUM_ENVS)


@pytest.fixture(scope="module")
def rolled(start: Carry) -> Any:
    return jax.tree.map(np.asarray, roll(jax.random.key(2), start, wishes(), Params(), NUM_STEPS))


def stepped_by_hand(steps: Transition, wish: np.ndarray, limit: int) -> int:
    """Follow every environment with Python numbers; only fresh states are taken from the rollout."""
    both = 0
    for n in range(NUM_ENVS):
        fresh = True
        for t in range(NUM_STEPS):
            numbers = steps.obs["numbers"][t, n]
            if fresh:
                name, life, time, total = float(numbers[0]), int(numbers[1]), 0, 0
            assert numbers.tolist() == [name, life, time, total]
            mask = [time % 2 == 0, total % 3 != 0]
            assert steps.mask[t, n].tolist() == mask
            assert steps.raw_action["mask"][t, n].tolist() == steps.raw_action["scored_mask"][t, n].tolist() == mask
            assert steps.raw_action["wish"][t, n] == wish[t, n]
            action = (int(wish[t, n]) + time) % 2
            time, total = time + 1, total + action
            assert steps.next_obs["numbers"][t, n].tolist() == [name, life, time, total]
            # One rounding of each of two sums of at most 711.
            assert abs(steps.reward[t, n] - (name + 10 * action + 100 * time)) <= 711 * np.finfo(np.float32).eps
            terminated = time >= life
            assert steps.terminated[t, n] == terminated
            assert steps.agent_terminated[t, n] == terminated
            assert steps.truncated[t, n] == (time >= limit and not terminated)
            assert steps.active[t, n]
            fresh = terminated or time >= limit
            both += terminated and time >= limit
    return both


def test_every_step_equals_that_of_a_python_loop(rolled: Any) -> None:
    _, steps, reused = rolled
    both = stepped_by_hand(steps, wishes(), LIMIT)
    assert both > 0, "the limit and a termination must fall together somewhere"
    assert steps.terminated.any() and steps.truncated.any()
    assert not np.any(steps.terminated & steps.truncated)
    assert reused == 0


@pytest.mark.parametrize("reset_pool", [0, -1])
def test_a_pool_without_room_is_refused(reset_pool: int) -> None:
    env = envs.make("cartpole")
    carry = reset_all(env, jax.random.key(0), env.default_params, 2)

    actor = memoryless(lambda *_: {}, unused_noise, lambda action, *_: (action, None))
    with pytest.raises(ValueError, match=rf"^reset_pool must be at least 1, got {reset_pool}$"):
        rollout(env, env.default_params, actor, None, jax.random.key(1), carry, jnp.zeros((3, 2), int), reset_pool)


def test_steps_keep_the_types_and_shapes_of_the_environment(rolled: Any) -> None:
    _, steps, reused = rolled
    flags = (steps.terminated, steps.truncated, steps.agent_terminated, steps.active, steps.mask)
    assert {flag.dtype for flag in flags} == {np.dtype(bool)}
    assert steps.reward.dtype == np.float32
    assert reused.dtype == np.int32 and reused.shape == ()
    assert jax.tree.map(np.shape, steps.next_obs) == {
        "numbers": (NUM_STEPS, NUM_ENVS, 4),
        "noise": (NUM_STEPS, NUM_ENVS),
    }


@pytest.mark.slow
def test_a_second_rollout_continues_where_the_first_ended(start: Carry) -> None:
    carry, first, _ = roll(jax.random.key(2), start, wishes()[: NUM_STEPS // 2], Params(), NUM_STEPS)
    _, second, _ = roll(jax.random.key(3), carry, wishes()[NUM_STEPS // 2 :], Params(), NUM_STEPS)
    stepped_by_hand(jax.tree.map(lambda *x: np.concatenate(x), first, second), wishes(), LIMIT)


def test_every_step_draws_its_own_noise(rolled: Any) -> None:
    noise = rolled[1].next_obs["noise"]
    assert len(np.unique(noise)) == noise.size


def born(steps: Transition, n: int) -> list[float]:
    """The names that environment n was reset to, in order, among those seen in a step."""
    done = steps.terminated[:, n] | steps.truncated[:, n]
    return steps.obs["numbers"][1:, n, 0][done[:-1]].tolist()


@pytest.mark.slow_rows("3")
@pytest.mark.parametrize("pool", [1, 3, NUM_STEPS])
def test_fresh_states_are_given_out_once_and_in_order(start: Carry, rolled: Any, pool: int) -> None:
    _, steps, reused = jax.tree.map(np.asarray, roll(jax.random.key(2), start, wishes(), Params(), pool))
    first_ones = []
    for n in range(NUM_ENVS):
        names = born(steps, n)
        assert len(names) > 4
        assert names == [names[i % pool] for i in range(len(names))]
        first_ones += names[:pool]
    assert len(set(first_ones)) == len(first_ones)
    assert not set(first_ones) & set(np.asarray(start.state.name).tolist())
    resets = (steps.terminated | steps.truncated).sum(axis=0)
    assert reused == sum(max(int(count) - pool, 0) for count in resets)
    assert (reused == 0) == (pool == NUM_STEPS)


@pytest.mark.slow
def test_every_fresh_state_has_a_key_of_its_environment(start: Carry) -> None:
    key, pool = jax.random.key(2), 3
    _, steps, _ = jax.tree.map(np.asarray, roll(key, start, wishes(), Params(), pool))
    keys = jax.random.split(jax.random.split(key)[0], (NUM_ENVS, pool))
    for n in range(NUM_ENVS):
        named = [float(Mortal().reset_env(own, Params())[1].name) for own in keys[n]]
        assert born(steps, n)[:pool] == named


def test_another_key_gives_other_fresh_states_and_noise(start: Carry, rolled: Any) -> None:
    _, steps, _ = jax.tree.map(np.asarray, roll(jax.random.key(3), start, wishes(), Params(), NUM_STEPS))
    assert not {name for n in range(NUM_ENVS) for name in born(steps, n)} & set(born(rolled[1], 0))
    assert not np.intersect1d(steps.next_obs["noise"], rolled[1].next_obs["noise"]).size


def test_a_neighbours_resets_change_nothing(start: Carry, rolled: Any) -> None:
    state, obs, _ = start
    elder = state.replace(time=state.time.at[0].set(-1000))
    elder_obs = {**obs, "numbers": obs["numbers"].at[0, 2].set(-1000.0)}
    _, steps, _ = roll(jax.random.key(2), Carry(elder, elder_obs), wishes(), Params(), NUM_STEPS)
    assert not np.any((steps.terminated | steps.truncated)[:, 0])
    assert np.any((rolled[1].terminated | rolled[1].truncated)[:, 0])
    for changed, before in zip(jax.tree.leaves(steps), jax.tree.leaves(rolled[1]), strict=True):
        np.testing.assert_array_equal(np.asarray(changed)[:, 1:], before[:, 1:])


@pytest.mark.slow
def test_the_time_limit_is_traced(start: Carry) -> None:
    traced = []

    @jax.jit
    def compiled(params: Params) -> Any:
        traced.append(1)
        return rollout(Mortal(), params, WISHING, 0, jax.random.key(2), start, wishes(), NUM_STEPS)

    for limit in (2, 3):
        _, steps, _ = jax.tree.map(np.asarray, compiled(Params(max_steps_in_episode=jnp.int32(limit))))
        stepped_by_hand(steps, wishes(), limit)
        assert steps.next_obs["numbers"][..., 2].max() == limit
    assert len(traced) == 1


def test_the_pool_has_room_for_a_reset_every_eighth_step() -> None:
    assert [default_reset_pool(steps, 8) for steps in (1, 2, 3, 16, 17, 128)] == [1, 1, 2, 2, 3, 16]
    assert [default_reset_pool(128, longest) for longest in (500, 7, 3, 1)] == [16, 19, 43, 128]


@pytest.mark.slow
def test_without_a_pool_size_the_default_is_used(start: Carry) -> None:
    _, steps, reused = jax.tree.map(np.asarray, roll(jax.random.key(2), start, wishes(), Params()))
    resets = (steps.terminated | steps.truncated).sum(axis=0)
    # In 24 steps with a time limit of 4.
    assert reused == sum(max(int(count) - 6, 0) for count in resets) > 0


def test_episodes_of_one_step_begin_with_as_many_states() -> None:
    """As many as there are episodes, without a size of the pool, where the time limit states the length."""
    env = envs.wrappers.time_limit(Mortal(), 1)
    carry = reset_all(env, jax.random.key(1), env.default_params, NUM_ENVS)
    roll_short = jax.jit(lambda wish: rollout(env, env.default_params, WISHING, 0, jax.random.key(2), carry, wish))
    after, steps, reused = roll_short(wishes())
    names = np.append(steps.obs["numbers"][..., 0], after.obs["numbers"][:, 0])
    assert (len(np.unique(names)), int(reused)) == (NUM_ENVS * (NUM_STEPS + 1), 0)


@pytest.mark.parametrize(
    ("life", "limit", "flags"), [(1, 9, (True, False)), (9, 1, (False, True)), (1, 1, (True, False))]
)
def test_termination_wins_over_the_time_limit(life: int, limit: int, flags: tuple[bool, bool]) -> None:
    zero = jnp.zeros((), jnp.int32)
    state = State(zero, jnp.zeros(()), jnp.int32(life), zero)
    _, _, _, terminated, truncated, _ = step_once(Mortal(), jax.random.key(0), state, zero, Params(limit))
    assert (bool(terminated), bool(truncated)) == flags


@pytest.mark.parametrize(("time_limits", "ends"), [("bootstrap", [1, 0, 1, 0]), ("terminal", [1, 1, 1, 0])])
def test_only_a_terminal_time_limit_ends_the_value(time_limits: str, ends: list[int]) -> None:
    """Four steps of one environment of two agents, of which one terminates alone in the third step."""
    terminated, truncated = np.array([[1], [0], [0], [0]], bool), np.array([[0], [1], [0], [0]], bool)
    both = np.ones((4, 1, 2), bool)
    ended = terminated[..., None] | np.array([[[0, 0]], [[0, 0]], [[1, 0]], [[0, 0]]], bool)
    arrays: Any = (None, None, np.zeros((4, 1, 2)), terminated, truncated, ended, both, None, None)
    steps = jax.tree.map(jnp.asarray, Transition(*arrays))
    got = np.asarray(value_ends(steps, time_limits))
    np.testing.assert_array_equal(got[:, 0, 0], ends)
    np.testing.assert_array_equal(got[:, 0, 1], [ends[0], ends[1], 0, 0])


# --- several agents ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd() -> Any:
    """Two crowds of three agents (2, 3 and 4 steps), the second one step ahead, all agents always at action 2."""
    env, params = agents.Crowd(3, masked=True), agents.CrowdParams(pay=0.5, max_steps_in_episode=100)

    def go(key: jax.Array) -> Any:
        carry = reset_all(env, key, params, 2)
        ahead = carry.state.replace(time=jnp.arange(2, dtype=jnp.int32))
        action = jnp.full((2, 3), 2, jnp.int32)
        actor = memoryless(lambda *_: {}, unused_noise, lambda *_: (action, None))
        return rollout(env, params, actor, None, key, Carry(ahead, carry.obs), jnp.zeros(6))

    return jax.tree.map(np.asarray, jax.jit(go)(jax.random.key(0)))


def test_agents_finish_at_their_own_times(crowd: Any) -> None:
    _, steps, _ = crowd
    assert steps.reward.shape == (6, 2, 3) and steps.terminated.shape == (6, 2)
    for n in range(2):
        time = n
        for t in range(6):
            for i in range(3):
                active = time < i + 2
                assert steps.active[t, n, i] == active
                assert steps.agent_terminated[t, n, i] == (time + 1 >= i + 2)
                assert steps.reward[t, n, i] == (0.5 * (i + 1) * 2 if active else 0)
                assert steps.mask[t, n, i].tolist() == [action != (time + i) % 3 for action in range(3)]
            time += 1
            assert steps.terminated[t, n] == (time == 4)
            time %= 4
    assert steps.raw_action is None


# --- memories ----------------------------------------------------------------------------


def counting() -> Actor:
    """An actor that remembers the steps of an agent's episode, which are the raw action, and always takes action 2."""

    def scores(policy: Any, memory: jax.Array, obs: Any, mask: Any) -> tuple[dict[str, jax.Array], jax.Array]:
        return {"steps": memory}, memory + 1

    def choose(noise: Any, scores: Any, memory: jax.Array, greedy: Any, mask: Any) -> Any:
        return jnp.full_like(scores["steps"], 2), scores["steps"], memory

    return Actor(lambda policy: jnp.zeros((), jnp.int32), scores, unused_noise, choose)


def test_a_memory_restarts_with_the_step_after_an_end() -> None:
    """One agent that counts the steps of its episode, of which each has two."""
    env, params, key = agents.Crowd(1), agents.CrowdParams(max_steps_in_episode=100), jax.random.key(0)
    carry = reset_all(env, key, params, 1, memory=memories(counting().initial_memory(None), (1,)))
    _, steps, _ = jax.jit(lambda carry: rollout(env, params, counting(), None, key, carry, jnp.zeros((7, 1))))(carry)
    np.testing.assert_array_equal(steps.raw_action[:, 0, 0], np.arange(7) % 2)


@pytest.mark.slow
def test_an_agents_memory_is_that_of_the_start_where_its_own_episode_ended() -> None:
    """Three agents of 2, 3 and 4 steps: finished agents restart at every step, and all agents with the episode."""
    env, params, key = agents.Crowd(3), agents.CrowdParams(max_steps_in_episode=100), jax.random.key(0)
    memory = memories(counting().initial_memory(None), (3,))

    @jax.jit
    def go(carry: Carry) -> Any:
        return rollout(env, params, counting(), None, key, carry, jnp.zeros((5, 2)))

    carry, first, _ = go(reset_all(env, key, params, 2, memory=memory))
    _, second, _ = go(carry)  # continues with the memory
    counts = np.concatenate([first.raw_action, second.raw_action])
    time = np.arange(10) % 4
    exact = np.where(time[:, None] < np.arange(2, 5), time[:, None], 0)
    np.testing.assert_array_equal(counts, np.broadcast_to(exact[:, None], (10, 2, 3)))


@pytest.mark.slow
def test_memories_are_reset_after_a_time_limit(start: Carry) -> None:
    carry = start._replace(memory=memories(counting().initial_memory(None), (NUM_ENVS,)))
    _, steps, _ = rollout(Mortal(), Params(), counting(), None, jax.random.key(2), carry, wishes(), NUM_STEPS)
    assert np.any(steps.truncated)
    np.testing.assert_array_equal(steps.raw_action, steps.obs["numbers"][..., 2])  # the time of the episode
