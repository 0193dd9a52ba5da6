"""Replay that stores each observation once: the same training as from both observations of every transition."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pictures import ACTIONS, Pictures
from program_equations import equations
from quick_jit import quick_jit
from recorded_env import RecordedEnv

import envs
import jaxrl
from envs import wrappers
from jaxrl.algorithms.off_policy import OffPolicy, off_policy
from jaxrl.algorithms.off_policy_config import OffPolicyHParams
from jaxrl.learning.actor import Actor, memoryless
from jaxrl.learning.frames import Frames

SIZES: dict[str, Any] = {"num_envs": 2, "num_steps": 4, "prefill": 16, "buffer_size": 48, "batch_size": 16}
NETWORK: dict[str, Any] = {"hidden": (4,), "network": "cnn", "channels": (2,), "strides": (2,)}
BUILDS: dict[str, Any] = {
    "dqn": (jaxrl.DQNConfig, jaxrl.dqn),
    "sac": (jaxrl.SACConfig, jaxrl.sac),
    "td3": (jaxrl.TD3Config, jaxrl.td3),
}
STACK = wrappers.frame_stack(Pictures(), 3)
CONTINUOUS = wrappers.frame_stack(Pictures(discrete=False), 3)
CROWD = wrappers.frame_stack(Pictures(num_agents=2), 3)
ITERATIONS = 20  # of which six fill the buffer


def build(name: str, env: Any, storage: str, **fields: Any) -> Any:
    config, algorithm = BUILDS[name]
    return algorithm(env, config(**{**SIZES, **NETWORK, **fields, "replay_storage": storage}))


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def trained(algo: Any) -> list[Any]:
    """States after the prefill and after each iteration."""
    hparams, params, key = algo.prepare(algo.hparams), algo.env.default_params, jax.random.key(3)
    states, step = [quick_jit(algo.init)(key, hparams, params)], quick_jit(algo.step)
    for i in range(ITERATIONS):
        states.append(step(jax.random.fold_in(key, i), jnp.int32(i), states[-1], hparams, params)[0])
    return states


@pytest.mark.seconds_to_compile(40)
@pytest.mark.fast_rows("dqn-prioritised, 3 steps")
@pytest.mark.parametrize(
    ("name", "env", "fields"),
    [
        pytest.param("dqn", STACK, {"replay": "prioritised", "n_step": 3}, id="dqn-prioritised, 3 steps"),
        pytest.param("dqn", STACK, {}, id="dqn"),
        pytest.param("dqn", STACK, {"n_step": 3, "time_limits": "terminal"}, id="dqn-3 steps, limits as ends"),
        pytest.param("dqn", STACK, {"replay": "prioritised", "normalise_observation": True}, id="dqn-normalised"),
        pytest.param("dqn", Pictures(), {"n_step": 3}, id="dqn-images without a stack"),
        pytest.param("dqn", CROWD, {"replay": "prioritised", "n_step": 3}, id="dqn-crowd"),
        pytest.param("sac", CONTINUOUS, {"replay": "prioritised"}, id="sac-prioritised"),
        pytest.param("sac", CONTINUOUS, {}, id="sac"),
        pytest.param("td3", CONTINUOUS, {"n_step": 3}, id="td3-3 steps"),
    ],
)
def test_learning_from_frames_is_learning_from_transitions(name: str, env: Any, fields: dict[str, Any]) -> None:
    frames, transitions = (trained(build(name, env, storage, **fields)) for storage in ("frames", "transitions"))
    assert isinstance(frames[-1].buffer.obs, Frames) and not isinstance(transitions[-1].buffer.obs, Frames)
    for one, other in zip(frames, transitions, strict=True):
        for part in ("learner", "priorities", "observations"):
            assert bits(getattr(one, part)) == bits(getattr(other, part)), part
    assert bits(frames[0].learner) != bits(frames[-1].learner)
    ends = transitions[-1].buffer
    assert ends.terminated.any() and ends.truncated.any()


# --- drawing, without a network ------------------------------------------------------------


def random_actor() -> Actor:
    """An actor that takes each discrete action with equal probability."""

    def choose(noise: jax.Array, scores: Any, greedy: Any, mask: Any) -> Any:
        del scores, greedy, mask
        return noise, noise

    def noise(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.randint(key, shape, 0, ACTIONS)

    return memoryless(lambda policy, obs, mask: {}, noise, choose)


def experiences(replay: OffPolicy, params: Any, iterations: int) -> Iterator[Any]:
    """Batches drawn after each iteration, whose priorities are errors of an arbitrary function of the batch."""
    actor, hparams = random_actor(), OffPolicyHParams(priority_alpha=jnp.float32(0.6), priority_beta=jnp.float32(0.5))
    policy = replay.policy_of((), None, hparams)

    def step(key: jax.Array, iteration: jax.Array, state: Any, params: Any) -> Any:
        experience = replay.collect(key, iteration, actor, policy, state, params)
        drawn = replay.draw(jax.random.fold_in(key, 1), experience, experience.priorities, hparams)
        error = jnp.max(drawn.batch.obs.astype(jnp.float32), axis=range(1, drawn.batch.obs.ndim))  # exact in any order
        priorities = replay.update_priorities(experience.priorities, drawn, error, hparams)
        return replay.finish((), priorities, experience, {}), drawn

    def init(key: jax.Array, params: Any) -> Any:
        return replay.init((key, jax.random.fold_in(key, 1)), (), (), actor, actor, hparams, params)

    compiled, key = jax.jit(step), jax.random.key(5)
    state = jax.jit(init)(key, params)
    for i in range(iterations):
        (state, metrics), drawn = compiled(jax.random.fold_in(key, i), jnp.int32(i), state, params)
        yield jax.tree.map(np.asarray, (metrics, drawn))


def toolbox(env: Any, storage: str, **fields: Any) -> OffPolicy:
    agents = getattr(env, "agents", ()) or getattr(getattr(env, "inner", None), "agents", ())
    return off_policy(env, jaxrl.DQNConfig(**{**SIZES, **fields, "replay_storage": storage}), agents)


@pytest.mark.fast_rows("stack-3-prioritised")
@pytest.mark.parametrize("replay", ["uniform", "prioritised"])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    "env",
    [
        pytest.param(STACK, id="stack"),
        pytest.param(wrappers.frame_stack(RecordedEnv(num_agents=2), 2), id="vectors of a crowd with limits anywhere"),
    ],
)
def test_batches_from_frames_are_batches_from_transitions(env: Any, n_step: int, replay: str) -> None:
    fields = {"n_step": n_step, "replay": replay, "num_updates": 1}
    both = [
        experiences(toolbox(env, storage, **fields), env.default_params, 30) for storage in ("frames", "transitions")
    ]
    truncated = 0
    for (metrics, one), (_, other) in zip(*both, strict=True):
        assert metrics["replay_lost"] == 0
        hidden = other.batch.terminated.reshape(len(other.batch.obs), -1).all(axis=1)  # the values after do not count
        truncated += int(other.batch.truncated.sum())
        nexts = one.batch.next_obs[~hidden], other.batch.next_obs[~hidden]
        np.testing.assert_array_equal(*nexts)
        same = (each._replace(batch=each.batch._replace(next_obs=None, next_critic_obs=None)) for each in (one, other))
        assert bits(next(same)) == bits(next(same))
    assert truncated > 20


def test_transitions_whose_observation_is_lost_have_no_weight() -> None:
    """Time limits of a call below those that the environment states."""
    replay = toolbox(STACK, "frames")
    assert replay.frames is not None and replay.frames.block > 2
    params = dataclasses.replace(STACK.default_params, max_steps_in_episode=2)
    batches = list(experiences(replay, params, 12))
    assert sum(metrics["replay_lost"] for metrics, _ in batches) > 0
    plain = experiences(toolbox(STACK, "transitions"), params, 12)
    for (_, one), (_, other) in zip(batches, plain, strict=True):
        has_weight = one.weight > 0
        np.testing.assert_array_equal(has_weight | other.batch.truncated, True)
        np.testing.assert_array_equal(one.batch.active, has_weight)  # in no mean over active agents, nor in priorities
        kept = has_weight & ~other.batch.terminated
        np.testing.assert_array_equal(one.batch.next_obs[kept], other.batch.next_obs[kept])
    assert not all((drawn.weight > 0).all() for _, drawn in batches)


# --- choice and sizes ---------------------------------------------------------------------


def buffer_of(algo: Any) -> Any:
    """Shapes of the buffer."""
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    return jax.eval_shape(algo.init, jax.random.key(0), hparams, params).buffer


def size_of(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


MLP = {"network": "auto", "channels": (16, 32), "strides": ()}


@pytest.mark.parametrize(
    ("env", "fields", "chosen"),
    [
        (STACK, {}, True),
        (Pictures(), {}, True),
        (wrappers.time_limit(wrappers.sticky_actions(STACK, 0.25), 4), {}, True),
        (wrappers.frame_stack(envs.make("cartpole"), 4), MLP, True),
        (envs.make("cartpole"), MLP, False),
        (envs.make("cartpole"), MLP | {"replay_storage": "frames"}, True),
        (STACK, {"replay_storage": "transitions"}, False),
        # A limit at any step may follow one observation with two others.
        (wrappers.time_limit(Pictures(), 1), {}, False),
        (wrappers.time_limit(Pictures(), 1), {"time_limits": "terminal"}, True),
        (wrappers.flatten_observation(STACK), MLP, False),
    ],
)
def test_frames_are_chosen_where_their_memory_is_less(env: Any, fields: dict[str, Any], chosen: bool) -> None:
    config = jaxrl.DQNConfig(**{**SIZES, "buffer_size": 1_000, **NETWORK, **fields})
    buffer = buffer_of(jaxrl.dqn(env, config))
    assert isinstance(buffer.obs, Frames) == chosen
    if chosen and fields.get("replay_storage") != "frames":
        assert size_of(buffer) < size_of(
            buffer_of(jaxrl.dqn(env, dataclasses.replace(config, replay_storage="transitions")))
        )


@dataclasses.dataclass(frozen=True)
class Screen(Pictures):
    """Grey images of 84 x 84 pixels, with the time limit of an Atari game."""

    @property
    def default_params(self) -> Any:
        return dataclasses.replace(super().default_params, max_steps_in_episode=27_000)

    def reset_env(self, key: jax.Array, params: Any) -> Any:
        obs, state = super().reset_env(key, params)
        return jnp.broadcast_to(obs[:1, :1], (84, 84, 1)), state

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step_env(key, state, action, params)
        return jnp.broadcast_to(obs[:1, :1], (84, 84, 1)), *rest

    def observation_space(self, params: Any = None) -> Any:
        return envs.spaces.Box(0, 255, (84, 84, 1), jnp.uint8)


def test_a_million_grey_frames_take_less_than_eight_gigabytes() -> None:
    algo = build("dqn", wrappers.frame_stack(Screen(), 4), "auto", num_envs=8, buffer_size=1_000_000, prefill=1_024)
    buffer = buffer_of(algo)
    assert algo.config.num_stored == 1_000_000 and buffer.reward.size == 1_000_000
    assert 1_000_000 * 84 * 84 < size_of(buffer) < 7.3e9
    plain = buffer_of(build("dqn", algo.env, "transitions", num_envs=8, buffer_size=1_000_000, prefill=1_024))
    assert size_of(plain) > 56e9


MINATAR = "10 x 10 x 4 numbers of 32 bits (MinAtar), stacks of 4"
DOCUMENTED = {
    "84 x 84 grey pixels of 8 bits, stacks of 4": lambda: wrappers.frame_stack(Screen(), 4),
    "84 x 84 grey pixels of 8 bits": Screen,
    MINATAR: lambda: wrappers.frame_stack(envs.make("gymnax/Breakout-MinAtar"), 4),
}


def test_the_documentation_states_the_bytes_of_buffers() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/images.md").read_text()
    rows = re.findall(r"^\| (\d.*?) \| ([\d,]+) \| ([\d.]+) GiB \| ([\d.]+) GiB \|$", page, flags=re.MULTILINE)
    assert {name for name, *_ in rows} == set(DOCUMENTED)
    for name, transitions, *shown in rows:
        sizes = {"num_envs": 8, "prefill": 1_024, "buffer_size": int(transitions.replace(",", ""))}
        for storage, number in zip(("auto", "transitions"), shown, strict=True):
            algo = build("dqn", DOCUMENTED[name](), storage, **sizes)
            assert f"{size_of(buffer_of(algo)) / 2**30:.2f}" == number, (name, storage)


def test_a_buffer_is_rounded_up_to_whole_iterations() -> None:
    config = jaxrl.DQNConfig(**{**SIZES, "buffer_size": 60})
    assert (config.buffer_size, config.num_stored, config.capacity) == (60, 64, 32)
    assert buffer_of(jaxrl.dqn(envs.make("cartpole"), config)).reward.shape == (32, 2)


def test_runs_of_a_block_write_frames_by_slices() -> None:
    runs, algo = 3, build("dqn", STACK, "frames", buffer_size=400, n_step=3)
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    keys = jax.random.split(jax.random.key(0), runs)
    states = jax.eval_shape(jax.vmap(algo.init, in_axes=(0, None, None)), keys, hparams, params)
    step = jax.vmap(algo.step, in_axes=(0, None, 0, None, None))
    program = jax.make_jaxpr(step)(keys, jnp.int32(0), states, hparams, params)
    rings = {leaf.shape for leaf in jax.tree.leaves(states.buffer.obs)}
    names = [
        equation.primitive.name
        for equation in equations(program.jaxpr)
        if {getattr(out.aval, "shape", ()) for out in equation.outvars} & rings
    ]
    # Into the array of frames one of new frames and one of last observations.
    assert names.count("dynamic_update_slice") == len(jax.tree.leaves(states.buffer.obs)) + 1
    assert not [name for name in names if name.startswith("scatter") or name == "select_n"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_the_laws_hold(name: str) -> None:
    jaxrl.check(build(name, STACK if name == "dqn" else CONTINUOUS, "frames"))
