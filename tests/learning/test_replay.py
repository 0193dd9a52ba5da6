"""The ring buffer against lists in plain Python, and its operations under vmap."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.threefry import unrolled
from jaxrl.learning import priorities as prioritised
from jaxrl.learning.replay import Ring, Rows, init_buffer, uniform_rows, window, write
from jaxrl.learning.rollout import Transition

CAPACITY, NUM_ENVS, NUM_STEPS, PREFILL, AGENTS = 12, 2, 3, 6, 2
RNG = np.random.default_rng(0)


def transitions(num_steps: int, first: int) -> Transition:
    """Steps distinguished by their observations, with ends at some of them."""
    shape = (num_steps, NUM_ENVS)
    number = (first + np.arange(num_steps * NUM_ENVS)).reshape(shape)
    terminated, truncated = RNG.random(shape) < 0.15, RNG.random(shape) < 0.15
    agents = (*shape, AGENTS)
    of_agents: Any = number[..., None].repeat(AGENTS, -1).astype(np.int32)
    arrays: dict[str, Any] = dict(
        obs={"number": of_agents, "pixel": np.zeros((*agents, 2), np.uint8)},
        next_obs={"number": of_agents + 1000},
        reward=RNG.normal(size=agents).astype(np.float32),
        terminated=terminated,
        truncated=truncated & ~terminated,
        agent_terminated=terminated[..., None] | (RNG.random(agents) < 0.15),
        active=RNG.random(agents) < 0.8,
        mask=RNG.random((*agents, 3)) < 0.5,
        raw_action=RNG.integers(0, 3, agents).astype(np.int8),
        next_mask=RNG.random((*agents, 3)) < 0.5,
    )
    return Transition(**arrays)


def rows_of(steps: Transition) -> list[Transition]:
    return [jax.tree.map(lambda leaf, t=t: leaf[t], steps) for t in range(len(steps.reward))]


def slow_window(history: list[Transition], age: int, env: int, agent: int, n: int) -> tuple[Any, ...]:
    """Rewards of one agent's window, the observation after it, and its end, from all steps since the first."""
    rewards, following = [], history[age : age + n]
    for step in following:
        rewards.append(step.reward[env, agent])
        terminated = step.agent_terminated[env, agent]
        if terminated or step.truncated[env] or step.terminated[env]:
            break
    last = following[len(rewards) - 1]
    ended = bool(last.agent_terminated[env, agent])
    return rewards, last, ended, bool(last.truncated[env]) and not ended


@pytest.fixture(scope="module")
def filled() -> list[tuple[Ring, Any, list[Transition]]]:
    """The ring, the buffer and the history after each of eleven iterations, which wrap around almost three times."""
    write_at = jax.jit(write)
    first = transitions(PREFILL, 0)
    buffer, history, stages = write_at(init_buffer(first, CAPACITY), first, jnp.int32(0)), rows_of(first), []
    for iteration in range(11):
        ring = Ring.at(jnp.int32(iteration), PREFILL, NUM_STEPS, CAPACITY)
        new = transitions(NUM_STEPS, len(history) * NUM_ENVS)
        buffer, history = write_at(buffer, new, ring.end), [*history, *rows_of(new)]
        stages.append((ring.after(NUM_STEPS, CAPACITY), buffer, history))
    return stages


@pytest.mark.slow
def test_the_ring_holds_the_newest_transitions_in_their_dtypes(filled: Any) -> None:
    for ring, buffer, history in filled:
        assert int(ring.filled) == min(len(history), CAPACITY)
        assert int(ring.end) == len(history) % CAPACITY
        for age in range(len(history) - int(ring.filled), len(history)):
            stored = jax.tree.map(lambda leaf, slot=age % CAPACITY: np.asarray(leaf[slot]), buffer)
            for leaf, expected in zip(jax.tree.leaves(stored), jax.tree.leaves(history[age]), strict=True):
                assert leaf.dtype == expected.dtype
                np.testing.assert_array_equal(leaf, expected)
    assert buffer.obs["pixel"].dtype == np.uint8


def test_the_ring_of_a_late_iteration_does_not_overflow() -> None:
    ring = Ring.at(jnp.int32(2**31 - 1), PREFILL, NUM_STEPS, CAPACITY)
    assert (int(ring.end), int(ring.filled)) == (((2**31 - 1) * NUM_STEPS + PREFILL) % CAPACITY, CAPACITY)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_windows_end_with_episodes_and_with_the_newest_transition(filled: Any, n: int) -> None:
    windows = jax.jit(functools.partial(window, num_steps=n))
    for ring, buffer, history in filled:
        ages = np.repeat(np.arange(len(history) - int(ring.filled), len(history)), NUM_ENVS)
        envs = np.tile(np.arange(NUM_ENVS), int(ring.filled))
        # Of one size, so that one program serves all stages.
        picked = np.resize(np.arange(len(ages)), CAPACITY * NUM_ENVS)
        ages, envs = ages[picked], envs[picked]
        rows = Rows(jnp.asarray(ages % CAPACITY), jnp.asarray(envs), jnp.ones(len(ages)))
        got = jax.tree.map(np.asarray, windows(buffer, rows, (ring.end - 1) % CAPACITY))
        for b, (age, env) in enumerate(zip(ages, envs, strict=True)):
            assert np.all(got.obs["number"][b] == history[age].obs["number"][env])
            np.testing.assert_array_equal(got.mask[b], history[age].mask[env])
            for agent in range(AGENTS):
                rewards, last, ended, cut = slow_window(history, age, env, agent, n)
                counts = got.counts[b, :, agent]
                assert counts.tolist() == [True] * len(rewards) + [False] * (n - len(rewards))
                np.testing.assert_array_equal(got.reward[b, counts, agent], rewards)
                assert (got.terminated[b, agent], got.truncated[b, agent]) == (ended, cut)
                if not ended:  # otherwise the following steps are not read
                    assert got.next_obs["number"][b, agent] == last.next_obs["number"][env, agent]
                    np.testing.assert_array_equal(got.next_mask[b, agent], last.next_mask[env, agent])


def test_uniform_draws_are_uniform_over_the_filled_slots() -> None:
    count, filled = 40_000, 5
    rows = uniform_rows(jax.random.key(0), jnp.int32(filled), NUM_ENVS, count)
    drawn = np.bincount(np.asarray(rows.slot * NUM_ENVS + rows.env), minlength=filled * NUM_ENVS)
    share = 1 / (filled * NUM_ENVS)
    assert len(drawn) == filled * NUM_ENVS
    # Five standard deviations of a binomial count: one in 170,000 for the ten of them.
    assert np.abs(drawn - count * share).max() < 5 * np.sqrt(count * share * (1 - share))
    np.testing.assert_array_equal(rows.weight, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("updates", [32_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_priorities_are_exact_after_many_updates(updates: int) -> None:
    """Sums and draws, as if nothing had been updated before; the float64 sums of NumPy are the reference."""
    num_envs, size, batch = 2, 600, 64
    start = prioritised.write_priorities(prioritised.init_priorities(size), jnp.int32(0), size)
    filled = jnp.int32(size // num_envs)

    def one(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        _, row = prioritised.prioritised_rows(key, carry, filled, num_envs, batch, jnp.float32(0.4))
        wide = 10.0 ** jax.random.uniform(jax.random.fold_in(key, 1), (size,), minval=-6, maxval=3)
        return prioritised.update_priorities(carry, row, wide[row]), (row, wide[row])

    keys = jax.random.split(jax.random.key(0), updates // batch)
    last, (rows, new) = jax.jit(lambda start: jax.lax.scan(one, start, keys))(start)
    rows, new = np.asarray(rows), np.asarray(new)
    assert rows.size == updates
    slow = np.ones(size, np.float32)
    for some, values in zip(rows, new, strict=True):
        slow[some] = 0.0
        np.maximum.at(slow, some, values)
    leaves = np.asarray(last.leaves)
    np.testing.assert_array_equal(leaves.reshape(-1)[:size], slow)
    exact, rounding = slow.astype(np.float64), 2.0**-24
    # Of numbers above 0, each sum of n is within n - 1 roundings of the exact one.
    num_blocks, block = leaves.shape
    np.testing.assert_allclose(np.asarray(last.sums), leaves.astype(np.float64).sum(1), rtol=(block - 1) * rounding)
    assert float(last.largest) == new.max()
    # Each draw is the one whose share of the total holds the place drawn, up to the roundings of two running sums.
    key = jax.random.key(1)
    drawn, index = prioritised.prioritised_rows(key, last, filled, num_envs, batch, jnp.float32(0.4))
    place = (np.arange(batch) + np.asarray(jax.random.uniform(unrolled(key), (batch,)), np.float64)) / batch
    upto = np.cumsum(exact) / exact.sum()
    slack = 2 * (num_blocks + block + 3) * rounding
    assert np.all(upto[index] >= place - slack)
    assert np.all(upto[index] - exact[index] / exact.sum() <= place + slack)
    weight = (size * exact[index] / exact.sum()) ** -0.4
    # A quotient of a number and a sum to a power below 1, and of two such: fewer roundings than the sum alone has.
    np.testing.assert_allclose(drawn.weight, weight / weight.max(), rtol=2 * (num_blocks + block + 3) * rounding)


@pytest.mark.slow
def test_draws_are_in_proportion_to_priorities() -> None:
    size, filled, batch, rounds = 30, 26, 16, 2_000
    values = np.zeros(size, np.float32)
    values[:filled] = RNG.random(filled) ** 3 + 1e-3
    start = prioritised.write_priorities(prioritised.init_priorities(size), jnp.int32(0), filled)
    state = prioritised.update_priorities(start, jnp.arange(filled), jnp.asarray(values[:filled]))
    draw = jax.vmap(lambda key: prioritised.prioritised_rows(key, state, jnp.int32(13), 2, batch, jnp.float32(0.5)))
    rows, index = jax.jit(draw)(jax.random.split(jax.random.key(1), rounds))
    np.testing.assert_array_equal(index, rows.slot * 2 + rows.env)
    drawn, share = np.bincount(np.asarray(index).ravel(), minlength=size), values / values.sum(dtype=np.float64)
    # Strata only reduce the variance of a binomial count; five of its deviations, and a count for rounding.
    count = rounds * batch
    assert np.all(np.abs(drawn - count * share) <= 5 * np.sqrt(count * share * (1 - share)) + 1)
    assert drawn[filled:].sum() == 0
    expected = (filled * share[np.asarray(index)]) ** -0.5
    # Quotients of rounded numbers and sums, to the power of a half: under 64 roundings.
    np.testing.assert_allclose(rows.weight, expected / expected.max(1, keepdims=True), rtol=64 * 2.0**-24)


def test_a_draw_is_weighed_by_its_probability() -> None:
    """One draw from each stratum of the running sum of the priorities, with weights that undo its probability."""
    values, filled, num_envs, batch, beta = np.array([4.0, 1.0, 0.5, 2.5, 8.0, 4.0]), 3, 2, 8, 0.7
    state = prioritised.write_priorities(prioritised.init_priorities(8), jnp.int32(0), 6)
    state = prioritised.update_priorities(state, jnp.arange(6), jnp.asarray(values, jnp.float32))
    key = jax.random.key(3)
    draw = jax.jit(functools.partial(prioritised.prioritised_rows, num_envs=num_envs, batch_size=batch))
    rows, index = draw(key, state, jnp.int32(filled), beta=jnp.float32(beta))
    place = (np.arange(batch) + np.asarray(jax.random.uniform(unrolled(key), (batch,)), np.float64)) / batch
    np.testing.assert_array_equal(index, np.searchsorted(np.cumsum(values) / values.sum(), place, side="right"))
    np.testing.assert_array_equal(index, rows.slot * num_envs + rows.env)
    weight = (filled * num_envs * values[np.asarray(index)] / values.sum()) ** -beta
    assert len(np.unique(weight)) > 2
    # Quotients of sums of six numbers, to a power below 1.
    np.testing.assert_allclose(rows.weight, weight / weight.max(), rtol=32 * 2.0**-24)


def test_new_transitions_get_the_largest_priority() -> None:
    state = prioritised.write_priorities(prioritised.init_priorities(12), jnp.int32(0), 6)
    state = prioritised.update_priorities(state, jnp.asarray([2]), jnp.asarray([7.0]))
    state = prioritised.update_priorities(state, jnp.asarray([2]), jnp.asarray([0.5]))
    state = jax.jit(functools.partial(prioritised.write_priorities, count=6))(state, jnp.int32(6))
    expected = np.array([1, 1, 0.5, 1, 1, 1, *[7] * 6], np.float32)
    np.testing.assert_array_equal(np.asarray(state.leaves).reshape(-1), expected)
    np.testing.assert_array_equal(np.asarray(state.sums), expected.reshape(np.shape(state.leaves)).sum(1))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]])
def test_a_transition_that_is_drawn_twice_gets_the_largest_of_its_priorities(order: list[int]) -> None:
    """Whatever the order in which a device writes them, and even where its priority was larger before."""
    state = prioritised.write_priorities(prioritised.init_priorities(12), jnp.int32(0), 12)
    state = prioritised.update_priorities(state, jnp.asarray([4]), jnp.asarray([9.0]))
    row, priority = np.array([4, 7, 4, 4, 7, 2])[order], np.array([3.0, 0.5, 5.0, 4.0, 0.25, 6.0])[order]
    runs = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (state, jnp.asarray(row), jnp.asarray(priority)))
    for after in (
        prioritised.update_priorities(state, jnp.asarray(row), jnp.asarray(priority)),
        jax.tree.map(lambda leaf: leaf[1], jax.jit(jax.vmap(prioritised.update_priorities))(*runs)),
    ):
        expected = np.ones(12, np.float32)
        expected[[2, 4, 7]] = [6.0, 5.0, 0.5]
        np.testing.assert_array_equal(np.ravel(after.leaves), expected)
        np.testing.assert_array_equal(after.sums, expected.reshape(np.shape(after.leaves)).sum(1))
        assert float(after.largest) == 9


def test_an_index_of_each_run_is_refused() -> None:
    with pytest.raises(ValueError, match="start is shared by the runs of a block and must not be batched"):
        jax.vmap(write)(jnp.zeros((2, 4, 3)), jnp.zeros((2, 1, 3)), jnp.zeros(2, jnp.int32))
