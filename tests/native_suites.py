"""Tasks by their suites' own functions, and their comparison with the adapters over the same keys and actions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from envs.choices import in_space

STEPS = 500


class Native(NamedTuple):
    """A task by its suite's own functions, without any automatic reset.

    Attributes:
      reset: Function of a key, to an observation and a state of any kind.
      step: Function of a key, a state and an action, to an observation, a state, a reward, whether the episode
        terminated, and whether the suite's time limit ended it.
    """

    reset: Callable[[jax.Array], tuple[Any, Any]]
    step: Callable[[jax.Array, Any, Any], tuple[Any, Any, Any, Any, Any]]


class Record(NamedTuple):
    """Steps of a rollout, leaves `[T, ...]`: the observation after each step before any reset, and what it returned."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any


def adapted(env: envs.Environment) -> Native:
    """The adapter, as a `Native`."""
    params = env.default_params

    def step(key: jax.Array, state: Any, action: Any) -> Any:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return obs, state, reward, terminated, env.is_truncated(state, params)

    return Native(lambda key: env.reset_env(key, params), step)


def played(task: Native, key: jax.Array, actions: Any) -> tuple[Any, Record]:
    """The first observation, and the record of these actions, by a new episode after each end."""

    def reset(key: jax.Array) -> Any:
        obs, state = task.reset(key)
        return obs, jax.tree.map(jnp.asarray, state)  # suites begin with Python's own numbers

    def body(carry: Any, x: Any) -> Any:
        key, action = x
        step_key, reset_key = jax.random.split(key)
        obs, state, reward, terminated, truncated = task.step(step_key, carry, action)
        ended = jnp.asarray(terminated | truncated, bool)
        fresh = reset(reset_key)[1]
        state = jax.tree.map(lambda new, old: jnp.where(ended, new, old).astype(new.dtype), fresh, state)
        return state, Record(obs, jnp.float32(reward), jnp.bool_(terminated), jnp.bool_(truncated))

    first_key, steps_key = jax.random.split(key)
    obs, state = reset(first_key)
    return obs, jax.lax.scan(body, state, (jax.random.split(steps_key, len(jax.tree.leaves(actions)[0])), actions))[1]


def allowed_actions(env: envs.Environment, key: jax.Array, steps: int = STEPS) -> Any:
    """Random actions, leaves `[T, ...]`, that the masks of the adapter allow in the episodes which they make.

    They are those of `played` with the same key, as the keys of steps and resets are the same.
    """
    params = env.default_params
    space = env.action_space(params)

    def body(state: Any, key: jax.Array) -> Any:
        step_key, reset_key = jax.random.split(key)
        action_key = jax.random.fold_in(key, 2)
        mask = env.action_mask(state, params)
        action = space.sample(action_key)
        if mask is not None:
            masks = jax.tree.leaves(mask)
            keys = [action_key] if len(masks) == 1 else jax.random.split(action_key, len(masks))
            logits = [jnp.where(each, 0.0, -jnp.inf) for each in masks]
            parts = [jax.random.categorical(key, each) for key, each in zip(keys, logits, strict=True)]
            action = jnp.asarray(in_space(space, parts), action.dtype)
        _, state, _, terminated, _ = env.step_env(step_key, state, action, params)
        ended = terminated | env.is_truncated(state, params)
        fresh = env.reset_env(reset_key, params)[1]
        return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, state), action

    first_key, steps_key = jax.random.split(key)
    return jax.lax.scan(body, env.reset_env(first_key, params)[1], jax.random.split(steps_key, steps))[1]


def random_actions(env: envs.Environment, key: jax.Array, steps: int = STEPS) -> Any:
    """Random actions of the adapter's action space, leaves `[T, ...]`."""
    return jax.vmap(env.action_space(env.default_params).sample)(jax.random.split(key, steps))


def assert_parity(
    env: envs.Environment, native: Native, key: jax.Array, steps: int = STEPS, actions: Any = None, rtol: float = 0.0
) -> Record:
    """The record of the adapter, which equals that of the suite in every observation, reward and flag.

    The actions, leaves `[T, ...]`, are random by default. Numbers may differ by `rtol`, for suites whose arithmetic the
    compiler orders in another way in another program.

    When a step both terminates and reaches the time limit, only the termination is compared: suites differ in what
    they report of the limit, and the contract gives precedence to the termination.
    """
    actions = random_actions(env, key, steps) if actions is None else actions
    first, ours = jax.jit(lambda key: played(adapted(env), key, actions))(key)
    their_first, theirs = jax.jit(lambda key: played(native, key, actions))(key)
    for mine, other in ((first, their_first), (ours.obs, theirs.obs), (ours.reward, theirs.reward)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), mine, other)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    cut = ~np.asarray(ours.terminated)
    np.testing.assert_array_equal(np.asarray(ours.truncated)[cut], np.asarray(theirs.truncated)[cut])
    return ours
