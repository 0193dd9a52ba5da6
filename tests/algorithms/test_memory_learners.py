"""DQN, PQN, SAC and TD3 with a memory: what they learn from equals what acted, also across the ends of episodes."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_task import LinearTask
from quick_jit import quick_jit
from remembering import Repeat

import envs
import jaxrl
from jaxrl.algorithms.action_values import action_values
from jaxrl.algorithms.actor_critic import actor_critic
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.off_policy import off_policy
from jaxrl.learning.actor import memories
from jaxrl.learning.cells import CELLS
from jaxrl.learning.recurrent import RecurrentNetwork, first_memory, unroll_over
from jaxrl.learning.rollout import episode_ends
from jaxrl.learning.sequences import Recalled, Sequences, in_order, unroll_rows

EPS = float(np.finfo(np.float32).eps)
# Networks of 8 units with values of about 1: a sum of 8 products and a function, for each of up to 12 steps.
ROUNDING = 12 * 16 * EPS
SIZES: dict[str, Any] = {
    "num_envs": 3,
    "num_steps": 4,
    "reset_pool": 4,
    "num_updates": 2,
    "batch_size": 24,
    "buffer_size": 96,
    "prefill": 36,
    "sequence_length": 6,
    "hidden": (8,),
}
GRU: dict[str, Any] = {"memory": "gru", "memory_size": 8}


def dqn(**fields: Any) -> Algorithm:
    return jaxrl.dqn(Repeat("truncated"), jaxrl.DQNConfig(**{**SIZES, **GRU, **fields}))


def after_iterations(algo: Algorithm, count: int, **hparams: Any) -> Any:
    """State after some iterations."""
    prepared = algo.prepare(dataclasses.replace(algo.hparams, **hparams))
    params = algo.env.default_params
    state = quick_jit(algo.init)(jax.random.key(0), prepared, params)
    step = quick_jit(algo.step)
    for iteration in range(count):
        state, _ = step(jax.random.key(iteration + 1), jnp.int32(iteration), state, prepared, params)
    return state


@pytest.mark.parametrize("burn_in", [0, 3])
def test_memories_of_a_buffer_are_those_of_its_observations(burn_in: int) -> None:
    """Stepping and replaying give the same memories, and so the same action values."""
    algo = dqn(burn_in=burn_in, replay_storage="transitions")
    state = after_iterations(algo, 4, lr=0.0)  # 28 of 32 slots
    values = action_values("dqn", off_policy(algo.env, algo.config, (), remembers=True)).values
    params, buffer = state.learner.acting.params, jax.tree.map(lambda leaf: leaf[:28], state.buffer)
    first = jax.tree.map(lambda leaf: leaf[0], state.memories.policy)
    sequences = in_order(buffer.obs, episode_ends(buffer), first)
    _, before, after = unroll_rows(values.network, params, sequences)
    stride = 32 // len(state.memories.policy["hidden"])
    assert stride == (1 if burn_in else 2)
    recorded = state.memories.policy["hidden"][: 28 // stride]
    assert np.ptp(recorded) > 0.1  # memories differ
    np.testing.assert_allclose(before["hidden"].reshape(28, 3, 8)[::stride], recorded, atol=ROUNDING)
    ended = episode_ends(buffer)[-1][:, None]
    now = np.where(ended, 0.0, after["hidden"].reshape(28, 3, 8)[-1])
    np.testing.assert_allclose(state.carry.memory["hidden"], now, atol=ROUNDING)
    assert np.any(episode_ends(buffer))


@pytest.mark.slow_rows("sac")
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_memories_of_critics_are_those_of_observations_and_actions(name: str) -> None:
    kind = {"sac": jaxrl.SACConfig, "td3": jaxrl.TD3Config}[name]
    config = kind(**SIZES, **GRU, replay_storage="transitions")
    algo = getattr(jaxrl, name)(LinearTask(), config)
    state = after_iterations(algo, 4, lr=0.0, policy_lr=0.0)
    agent = actor_critic(name, algo.env, config, (), 2 if name == "sac" else 1)
    buffer = jax.tree.map(lambda leaf: leaf[:28], state.buffer)
    assert agent.replay.sequences is not None
    first = agent.replay.sequences.of_critics(jax.tree.map(lambda leaf: leaf[0], state.memories.critics))
    sequences = in_order(buffer.obs, episode_ends(buffer), first, buffer.raw_action)
    before = agent.critics.around(state.learner.critics, agent.taken(sequences))[0]["hidden"]
    before = jnp.moveaxis(before.reshape(2, 28, 3, 8), 0, 2)  # [T, N, C, size]
    recorded = state.memories.critics["hidden"][:14]
    np.testing.assert_allclose(before[::2], recorded, atol=ROUNDING)
    assert np.max(np.abs(recorded[:, :, 0] - recorded[:, :, 1])) > 1e-2  # each critic has its own
    moved = dataclasses.replace(sequences, action=sequences.action + 0.5)
    other = agent.critics.around(state.learner.critics, agent.taken(moved))[0]["hidden"]
    other = jnp.moveaxis(other.reshape(2, 28, 3, 8), 0, 2)
    begins = np.concatenate([np.ones((1, 3), bool), episode_ends(buffer)[:-1]])
    differs = np.any(other != before, axis=(2, 3))
    np.testing.assert_array_equal(differs, ~begins)  # they see the actions of earlier steps, of this episode alone


class Plain(nn.Module):
    """Outputs of one observation, and of an action if there is one."""

    shape: tuple[int, ...]

    @nn.compact
    def __call__(self, *inputs: Any) -> Any:
        return self._outputs(*inputs)

    def _outputs(self, *inputs: Any) -> jax.Array:
        features = jnp.concatenate([jnp.ravel(each) for each in inputs])
        hidden = jnp.tanh(nn.Dense(8, name="hidden")(features))
        size = int(np.prod(self.shape))
        return nn.Dense(size, name="out")(hidden).reshape(self.shape)


class Forgetting(Plain):
    """The same with a memory that is the initial one after every step."""

    def initial_memory(self) -> Any:
        return jnp.zeros(2)

    @nn.compact
    def __call__(self, inputs: Any, memory: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        return self._outputs(*inputs), jax.tree.map(jnp.zeros_like, memory)


ONE = {**SIZES, "sequence_length": 1}
PAIRS: dict[str, Any] = {
    "dqn": lambda kind, sizes: jaxrl.dqn(Repeat(), jaxrl.DQNConfig(**sizes), network=kind((4,))),
    "dqn, prioritised": lambda kind, sizes: jaxrl.dqn(
        Repeat("truncated"), jaxrl.DQNConfig(**sizes, replay="prioritised", n_step=1), network=kind((4,))
    ),
    "sac": lambda kind, sizes: jaxrl.sac(
        LinearTask(), jaxrl.SACConfig(**sizes), network=jaxrl.Networks(actor=kind((4,)), critic=kind(()))
    ),
    "sac, discrete": lambda kind, sizes: jaxrl.sac(
        Repeat(), jaxrl.SACConfig(**sizes), network=jaxrl.Networks(actor=kind((4,)), critic=kind((4,)))
    ),
    "td3, correlated noise": lambda kind, sizes: jaxrl.td3(
        LinearTask(),
        jaxrl.TD3Config(**sizes, noise="ornstein-uhlenbeck"),
        network=jaxrl.Networks(actor=kind((2,)), critic=kind(())),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore:.*with network=")
def test_single_steps_without_a_past_are_the_memoryless_learner(name: str) -> None:
    sizes = {field: value for field, value in ONE.items() if field != "hidden"}
    plain = {field: value for field, value in sizes.items() if field != "sequence_length"}
    with_memory, without = PAIRS[name](Forgetting, sizes), PAIRS[name](Plain, plain)
    states = [after_iterations(algo, 3, lr=0.01) for algo in (with_memory, without)]  # while the buffer fills up
    learners = [jax.tree.leaves(state.learner) for state in states]
    begun = jax.tree.leaves(after_iterations(without, 0).learner)
    assert any(not np.array_equal(*pair) for pair in zip(learners[1], begun, strict=True))
    for got, expected in zip(*learners, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*with network=")
def test_pqn_with_a_memory_that_forgets_is_the_memoryless_learner() -> None:
    fields: dict[str, Any] = {"num_envs": 3, "num_steps": 4, "num_minibatches": 1, "reset_pool": 4}
    config = jaxrl.PQNConfig(**fields)
    states = [
        after_iterations(jaxrl.pqn(Repeat("truncated"), config, network=kind((4,))), 3, lr=0.01)
        for kind in (Forgetting, Plain)
    ]
    # Minibatches have the rows in another order, so that sums are rounded differently.
    for got, expected in zip(*(jax.tree.leaves(state.acting.params) for state in states), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def sequences_of(network: Any, length: int, count: int, burn_in: int) -> tuple[Any, Sequences]:
    """Parameters, and random sequences with resets."""
    keys = jax.random.split(jax.random.key(3), 4)
    obs = jax.random.normal(keys[0], (length, count, 2, 5))  # two agents
    reset = jax.random.bernoulli(keys[1], 0.25, (length, count, 2)).at[0].set(False)
    params = network.init(keys[3], obs[0, 0, 0], first_memory(network))
    earlier, begins = jax.random.normal(keys[2], (3, count, 2, 5)), jnp.zeros((3, count, 2), bool)
    start = memories(first_memory(network), (count, 2))
    memory = jax.tree.map(lambda leaf: leaf[-1], unroll_over(network, params, earlier, start, begins)[-1])
    return params, Sequences(obs, reset, memory, None, burn_in)


def network_of(memory: str) -> Any:
    encoder = jaxrl.DQNConfig(hidden=(6,)).encoder(jax.ShapeDtypeStruct((5,), jnp.float32))
    return RecurrentNetwork(encoder, CELLS[memory](4), nn.Dense(3))


@pytest.mark.parametrize("memory", CELLS)
def test_rows_of_sequences_are_those_of_single_steps(memory: str) -> None:
    network = network_of(memory)
    params, sequences = sequences_of(network, 7, 3, 2)
    outputs, before, after = jax.jit(functools.partial(unroll_rows, network))(params, sequences)
    step = jax.jit(network.apply)
    for row in range(3):
        for agent in range(2):
            held = jax.tree.map(lambda leaf, at=(row, agent): leaf[at], sequences.memory)
            for time in range(7):
                held = first_memory(network) if sequences.reset[time, row, agent] else held
                place = (time - 2) * 3 + row
                if time >= 2:
                    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(held), strict=True)
                    for got, expected in pairs:
                        np.testing.assert_allclose(got[place, agent], expected, atol=ROUNDING)
                now, held = step(params, sequences.inputs[time, row, agent], held)
                if time >= 2:
                    np.testing.assert_allclose(outputs[place, agent], now, atol=ROUNDING)
                    pairs = zip(jax.tree.leaves(after), jax.tree.leaves(held), strict=True)
                    for got, expected in pairs:
                        np.testing.assert_allclose(got[place, agent], expected, atol=ROUNDING)


@pytest.mark.parametrize("memory", CELLS)
def test_a_burn_in_has_no_gradient_and_nothing_leaks(memory: str) -> None:
    network = network_of(memory)
    params, sequences = sequences_of(network, 6, 2, 2)
    sequences = dataclasses.replace(sequences, reset=sequences.reset.at[1:, 0, 0].set(False).at[4, 0, 0].set(True))

    def of_row(inputs: jax.Array, held: Any, time: jax.Array) -> jax.Array:
        changed = dataclasses.replace(sequences, inputs=inputs, memory=held)
        outputs = unroll_rows(network, params, changed)[0].reshape(4, 2, 2, 3)
        return jnp.sum(jnp.square(outputs[time, 0, 0]))

    slopes = jax.jit(jax.grad(of_row, (0, 1), allow_int=True))

    def reached(time: int) -> np.ndarray:
        """Whether the inputs at each time, row and agent have an influence on one row."""
        slope, of_memory = slopes(sequences.inputs, sequences.memory, jnp.asarray(time))
        leaves = [leaf for leaf in jax.tree.leaves(of_memory) if leaf.dtype != jax.dtypes.float0]
        assert leaves and not any(np.any(leaf) for leaf in leaves)
        return np.any(slope != 0, axis=-1)

    expected = np.zeros((6, 2, 2), bool)
    expected[2:4, 0, 0] = True  # the steps that are learned from, up to this one, of this row and agent alone
    np.testing.assert_array_equal(reached(1), expected)
    expected[:] = False
    expected[4:6, 0, 0] = True  # and only from the reset on
    np.testing.assert_array_equal(reached(3), expected)


def test_a_time_limit_bootstraps_from_the_memory_before_the_reset() -> None:
    config = jaxrl.DQNConfig(**SIZES, **GRU)
    values = action_values("dqn", off_policy(Repeat("truncated"), config, (), remembers=True)).values
    obs = jax.random.normal(jax.random.key(0), (3, 1, 4))
    params = values.init(jax.random.key(1), jax.ShapeDtypeStruct((4,), jnp.float32))
    done = jnp.array([[False], [True], [False]])
    sequences = in_order(obs, done, {"hidden": jnp.zeros((1, 8))})
    next_obs = jax.random.normal(jax.random.key(2), (3, 4))
    got = values.outputs(params, values.after(params, sequences, next_obs), 1)[1, :, 0, 0]
    whole = jnp.concatenate([obs[:2, 0], next_obs[1:2]])  # the episode without a reset
    held = first_memory(values.network)
    expected = jnp.zeros(())
    for each in whole:
        expected, held = values.network.apply(params, each, held)
    np.testing.assert_allclose(got, np.ravel(expected), atol=ROUNDING)
    reset = values.outputs(params, Recalled(next_obs[1], first_memory(values.network)), 0)[:, 0, 0]
    assert np.max(np.abs(reset - got)) > 1e-4  # a reset would give other values


@pytest.mark.parametrize("burn_in", [0, 1])
def test_a_window_bootstraps_from_the_memory_after_its_last_step(burn_in: int) -> None:
    config = jaxrl.DQNConfig(**SIZES, **GRU)
    values = action_values("dqn", off_policy(Repeat(), config, (), remembers=True)).values
    keys = jax.random.split(jax.random.key(4), 3)
    obs, next_obs = (jax.random.normal(key, (5, 2, 4)) for key in keys[:2])
    params = values.init(keys[2], jax.ShapeDtypeStruct((4,), jnp.float32))
    steps = np.arange(burn_in, 5)
    ends = np.minimum(steps + 2, 4)  # of windows of 3 steps, and less at the end
    last = ((ends - burn_in)[:, None] * 2 + np.arange(2)).reshape(-1)
    start = {"hidden": jnp.full((2, 8), 0.3)}
    sequences = in_order(obs, jnp.zeros((5, 2), bool), start, None, burn_in, jnp.asarray(last, jnp.int32))
    inputs = next_obs[ends].reshape(-1, 4)
    got = values.outputs(params, values.after(params, sequences, inputs), 1)[..., 0, 0]
    for row, (end, env) in enumerate((end, env) for end in ends for env in range(2)):
        held = {"hidden": start["hidden"][env]}
        for each in obs[: end + 1, env]:
            held = values.network.apply(params, each, held)[1]
        expected = values.network.apply(params, next_obs[end, env], held)[0]
        np.testing.assert_allclose(got[row], np.ravel(expected), atol=ROUNDING)


def test_priorities_of_sequences_mix_the_largest_and_the_mean_error() -> None:
    config = jaxrl.DQNConfig(**SIZES, **GRU, replay="prioritised")
    algo = jaxrl.dqn(Repeat(), config)
    assert float(algo.hparams.priority_eta) == 0.9
    state = after_iterations(algo, 1)
    replay = off_policy(Repeat(), config, (), remembers=True)
    hparams = algo.prepare(dataclasses.replace(algo.hparams, priority_eta=0.75, priority_alpha=0.5))
    assert replay.sequences is not None and state.priorities is not None
    index = jnp.array([3, 5, 7, 0], jnp.int32)
    error = np.arange(24.0).reshape(6, 4)  # [T, sequences]
    active = np.ones((6, 4), bool)
    active[2:, 1], error[2:, 1] = False, 0.0
    batch: Any = type("Batch", (), {"active": jnp.asarray(active.reshape(-1))})
    draw: Any = type("Draw", (), {"batch": batch, "index": index})
    after = replay.update_priorities(state.priorities, draw, jnp.asarray(error.reshape(-1), jnp.float32), hparams)
    assert after is not None
    mean = np.array([each[chosen].mean() for each, chosen in zip(error.T, active.T, strict=True)])
    expected = (0.75 * error.max(axis=0) + 0.25 * mean + 1e-6) ** 0.5
    np.testing.assert_allclose(np.ravel(after.leaves)[np.asarray(index)], expected, rtol=1e-6)


@pytest.mark.slow_rows("1")
@pytest.mark.parametrize("n_step", [1, 3])
def test_frames_and_transitions_give_the_same_learner(n_step: int) -> None:
    learners = []
    for storage in ("frames", "transitions"):
        env = envs.wrappers.frame_stack(envs.make("memory/cartpole"), 2)
        config = jaxrl.SACConfig(**SIZES, **GRU, replay_storage=storage) if n_step == 1 else None
        if config is None:
            algo = jaxrl.dqn(env, jaxrl.DQNConfig(**SIZES, **GRU, replay_storage=storage, n_step=n_step))
        else:
            algo = jaxrl.sac(env, config)
        learners.append(jax.tree.leaves(after_iterations(algo, 9).learner))  # after the first lap
    for frames, transitions in zip(*learners, strict=True):
        np.testing.assert_allclose(frames, transitions, atol=1e-6)


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_memories_start_again_with_another_policy(name: str) -> None:
    algo = dqn() if name == "dqn" else jaxrl.td3(LinearTask(), jaxrl.TD3Config(**SIZES, **GRU))
    state = after_iterations(algo, 0)
    held = jax.tree.leaves((state.memories, state.carry.memory))
    assert len(held) == {"dqn": 2, "td3": 4}[name] and all(np.any(leaf) for leaf in held)
    policy = algo.policy(after_iterations(algo, 1), algo.prepare(algo.hparams))
    assert algo.warm_start is not None
    begun = algo.warm_start(state, policy)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((begun.memories, begun.carry.memory)))
    shapes = [jax.tree.map(jnp.shape, each) for each in (begun, state)]
    assert shapes[0] == shapes[1]
    acting = begun.learner.acting.params if name == "dqn" else begun.learner.policy
    jax.tree.map(np.testing.assert_array_equal, acting, policy.acting.params)


REFUSED: list[tuple[Any, str]] = [
    (
        lambda: jaxrl.sac(LinearTask(), network=jaxrl.Networks(actor=Forgetting((4,)))),
        r"network takes both networks, jaxrl.Networks\(.*\), where one has a memory, got actor alone$",
    ),
    (
        lambda: jaxrl.dqn(Repeat(), jaxrl.DQNConfig(memory="gru", n_step=20, sequence_length=8, burn_in=7)),
        r"n_step takes at most the 1 steps of a sequence after its burn-in \(sequence_length - burn_in\), got 20$",
    ),
    (
        lambda: jaxrl.dqn(Repeat(), jaxrl.DQNConfig(burn_in=1)),
        "burn_in has no effect on networks without a memory, got 1; leave it out",
    ),
    (
        lambda: jaxrl.sac(LinearTask(), jaxrl.SACConfig(sequence_length=3)),
        "sequence_length has no effect on networks without a memory, got 3; leave it out",
    ),
    (
        lambda: jaxrl.pqn(Repeat(), jaxrl.PQNConfig(memory="gru", num_envs=3, num_minibatches=2)),
        r"num_minibatches must divide the 3 environments \(num_envs\) of a policy that remembers, which learns from",
    ),
    (
        lambda: jaxrl.dqn(Repeat(), network=Forgetting((3,))),
        r"network must return \(action values \[4\], memory\) for one observation and one memory, got shape \(3,\)",
    ),
    (
        lambda: jaxrl.dqn(Repeat(), jaxrl.DQNConfig(memory="gru"), network=Forgetting((4,))),
        "memory applies to jaxrl's own networks, got 'gru' with network=; leave it out",
    ),
    (
        lambda: jaxrl.dqn(Repeat(), jaxrl.DQNConfig(sequence_length=7), network=Forgetting((4,))),
        "batch_size takes a multiple of sequence_length=7 with a memory, got 128",
    ),
]


@pytest.mark.parametrize(("build", "sentence"), REFUSED, ids=[sentence[:40] for _, sentence in REFUSED])
def test_unsupported_uses_of_memory_are_refused_in_one_sentence(build: Any, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{sentence}") as caught:
        build()
    assert len(str(caught.value).splitlines()) == 1


ROLLOUTS: dict[str, Any] = {"num_envs": 3, "num_steps": 4, "num_minibatches": 1, "reset_pool": 4, "hidden": (8,)}
GTRXL: dict[str, Any] = {"memory": "gtrxl", "memory_size": 8, "memory_window": 3}
RESUMED: dict[str, Any] = {
    "dqn": lambda: dqn(replay="prioritised"),
    "dqn, gtrxl": lambda: jaxrl.dqn(Repeat("truncated"), jaxrl.DQNConfig(**SIZES, **GTRXL)),
    "pqn": lambda: jaxrl.pqn(Repeat("truncated"), jaxrl.PQNConfig(**ROLLOUTS, **GRU)),
    "sac": lambda: jaxrl.sac(LinearTask(), jaxrl.SACConfig(**SIZES, **GRU)),
    "td3": lambda: jaxrl.td3(LinearTask(), jaxrl.TD3Config(**SIZES, **GRU, noise="ornstein-uhlenbeck")),
}


@pytest.mark.slow_rows("dqn, gtrxl", "pqn", "sac", "td3")
@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(name: str, tmp_path: Path) -> None:
    def train(env_steps: int, evals: int, out: Path) -> Any:
        algo = RESUMED[name]()
        return jaxrl.train(algo, seeds=2, env_steps=env_steps, evals=evals, eval_episodes=2, out=out, progress=False)

    whole = train(192, 4, tmp_path / "whole")  # 16 iterations: the buffer is written twice
    train(96, 2, tmp_path / "parts")
    resumed = jaxrl.resume(tmp_path / "parts", env_steps=192, allow=["remembering", "linear_task"], progress=False)
    for entry in ("return", "q", "value_loss"):
        np.testing.assert_array_equal(whole.metrics[entry][..., -1], resumed.metrics[entry][..., -1])
    jax.tree.map(np.testing.assert_array_equal, whole.policies, resumed.policies)
