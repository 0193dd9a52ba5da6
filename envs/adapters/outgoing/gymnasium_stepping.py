"""Many environments stepped together by compiled programs over packed buffers, which `VectorEnv` calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.adapters.outgoing.gymnasium_single import masks
from envs.adapters.outgoing.gymnasium_spaces import native_action, shown
from envs.adapters.outgoing.packing import Layout, pack
from envs.pytrees import Action, Params, PyTree
from envs.threefry import rolled, unrolled

__all__ = ["Known", "Programs", "Shown", "known", "programs"]


class Carry(NamedTuple):
    """The states of the environments.

    Attributes:
      state: States of the environments, leaves `[N, ...]`.
      steps: Number of steps since the seed, int32 `[N]`.
      done: Whether the episode has ended, bool `[N]`.
      used: Whether the entry in the pool has been used, bool `[N]`.
    """

    state: Any
    steps: jax.Array
    done: jax.Array
    used: jax.Array


class Pool(NamedTuple):
    """The next initial state of each environment, computed for all environments at once when one is needed.

    Attributes:
      reset_key, step_key: Keys of the seeds, `[N]`.
      resets: Index of the stored reset, counted from the seed, int32 `[N]`.
      obs, state: First observations and states, leaves `[N, ...]`.
    """

    reset_key: jax.Array
    step_key: jax.Array
    resets: jax.Array
    obs: Any
    state: Any


class Shown(NamedTuple):
    """The results of a step or a reset; leaves `[N, ...]`.

    Attributes:
      obs: Observations in Gymnasium's form.
      reward, terminated, truncated: Results of the step; None after a reset.
      info: Infos of environments whose last call was a step, zeros for others; None after a reset.
      mask: Result of `masks` for the next states.
      final_obs, final_info: Results from before the reset, for environments reset in the same step; None in other
        modes.
    """

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    mask: Any
    final_obs: Any
    final_info: Any


class Programs(NamedTuple):
    """The compiled programs; carry and pool are packed buffers, which calls donate.

    Attributes:
      begin: Program `(seeds) -> carry, pool`.
      reseed: Program `(carry, pool, seeds, rows) -> carry, pool`.
      reset: Program `(carry, pool, rows) -> carry, pool, shown`.
      step: Program `(carry, pool, action) -> carry, pool, shown`.
      shown_reset, shown_step: Layouts of the results, where they are packed.
      carry: Layout of a carry.
    """

    begin: Callable[..., Any]
    reseed: Callable[..., Any]
    reset: Callable[..., Any]
    step: Callable[..., Any]
    shown_reset: Layout
    shown_step: Layout
    carry: Layout


class Known(NamedTuple):
    """Parameters that a program is compiled for, by value: their structure, and each leaf's shape, type and bytes."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], str, bytes], ...]

    @property
    def params(self) -> Any:
        """The parameters, as NumPy arrays."""
        leaves = [np.frombuffer(data, dtype).reshape(shape) for shape, dtype, data in self.leaves]
        return jax.tree.unflatten(self.structure, leaves)


def known(params: Params) -> Known:
    """Parameters as a hashable value."""
    leaves, structure = jax.tree.flatten(params)
    return Known(structure, tuple((leaf.shape, leaf.dtype.str, leaf.tobytes()) for leaf in map(np.asarray, leaves)))


@functools.lru_cache(maxsize=64)
def programs(env: Any, values: Known, num_envs: int, mode: str, packed: bool) -> Programs:
    """The programs for this number of environments; equal arguments share them.

    Args:
      env: Environment.
      values: Parameters, which are constants of the programs; reading them at every call would increase its cost by
        half.
      num_envs: Number of environments, N.
      mode: Reset mode: "NextStep", "SameStep" or "Disabled".
      packed: Whether results are one buffer, for the host, rather than arrays.
    """
    params = values.params
    outward = jax.vmap(lambda obs: shown(env.observation_space(params), obs))
    masked = jax.vmap(lambda state: masks(env, state, params))

    def refilled(pool: Pool, used: jax.Array) -> Pool:
        """The pool with a new start for the environments whose entry was used."""
        resets = pool.resets + used

        def start(key: jax.Array, count: jax.Array) -> Any:
            return env.reset_env(rolled(jax.random.fold_in(unrolled(key), count)), params)

        obs, state = jax.vmap(start)(pool.reset_key, resets)
        return pool._replace(resets=resets, obs=obs, state=state)

    def begun(seeds: jax.Array) -> tuple[Carry, Pool]:
        keys = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(seeds)
        none, zero = jnp.zeros(num_envs, bool), jnp.zeros(num_envs, jnp.int32)
        obs, state = jax.eval_shape(jax.vmap(lambda key: env.reset_env(key, params)), keys[:, 0])
        pool = refilled(Pool(keys[:, 0], keys[:, 1], zero, obs, state), none)
        return Carry(pool.state, zero, none, none), pool

    def reseeded(carry: Carry, pool: Pool, seeds: jax.Array, chosen: jax.Array) -> tuple[Carry, Pool]:
        new_carry, new_pool = begun(seeds)
        return picked(chosen, (new_carry, new_pool), (carry, pool))

    def reset(carry: Carry, pool: Pool, chosen: jax.Array) -> tuple[Carry, Pool, Shown]:
        pool = refilled(pool, carry.used)
        state = picked(chosen, pool.state, carry.state)
        carry = Carry(state, carry.steps, carry.done & ~chosen, chosen)
        mask = zeroed(chosen, masked(carry.state))
        return carry, pool, Shown(outward(pool.obs), None, None, None, None, mask, None, None)

    def step(carry: Carry, pool: jax.Array, action: Action) -> tuple[Carry, jax.Array, Shown]:
        action = jax.vmap(lambda one: native_action(env.action_space(params), one))(action)
        read = layouts["pool"].unpack(pool)
        keys = rolled(jax.vmap(jax.random.fold_in)(unrolled(read.step_key), carry.steps))
        stepped = jax.vmap(lambda *one: env.step_env(*one, params))(keys, carry.state, action)
        obs, state, reward, terminated, info = jax.lax.optimization_barrier(stepped)
        truncated = jax.vmap(lambda one: env.is_truncated(one, params))(state)
        if mode == "Disabled":
            done = terminated | truncated
            carry = Carry(state, carry.steps + 1, done, carry.used)
            return carry, pool, Shown(outward(obs), reward, terminated, truncated, info, masked(state), None, None)
        again = carry.done if mode == "NextStep" else terminated | truncated
        missed = jnp.any(again & carry.used)
        pool, used = jax.lax.cond(missed, refill, lambda *same: same, pool, carry.used)
        read = layouts["pool"].unpack(pool)
        final = (outward(obs), zeroed(again, {**info, **masked(state)}))
        obs, state = picked(again, (read.obs, read.state), (obs, state))
        if mode == "SameStep":
            carry, info = Carry(state, carry.steps + 1, jnp.zeros_like(again), used | again), zeroed(~again, info)
            return carry, pool, Shown(outward(obs), reward, terminated, truncated, info, masked(state), *final)
        reward, terminated, truncated, info = zeroed(~again, (reward, terminated, truncated, info))
        carry = Carry(state, carry.steps + ~again, terminated | truncated, used | again)
        return carry, pool, Shown(outward(obs), reward, terminated, truncated, info, masked(state), None, None)

    def refill(pool: jax.Array, used: jax.Array) -> tuple[jax.Array, jax.Array]:
        return pack(refilled(layouts["pool"].unpack(pool), used)), jnp.zeros_like(used)

    shapes = jax.eval_shape(begun, jax.ShapeDtypeStruct((num_envs,), jnp.uint32))
    layouts = {"carry": Layout.of(shapes[0]), "pool": Layout.of(shapes[1])}
    as_output = pack if packed else lambda shown: shown

    def begin_packed(seeds: jax.Array) -> Any:
        return jax.tree.map(pack, begun(seeds), is_leaf=lambda part: isinstance(part, Carry | Pool))

    def reseed_packed(carry: jax.Array, pool: jax.Array, seeds: jax.Array, chosen: jax.Array) -> Any:
        new = reseeded(layouts["carry"].unpack(carry), layouts["pool"].unpack(pool), seeds, chosen)
        return pack(new[0]), pack(new[1])

    def reset_packed(carry: jax.Array, pool: jax.Array, chosen: jax.Array) -> Any:
        new = reset(layouts["carry"].unpack(carry), layouts["pool"].unpack(pool), chosen)
        return pack(new[0]), pack(new[1]), as_output(new[2])

    def step_packed(carry: jax.Array, pool: jax.Array, action: Action) -> Any:
        # Without the barrier the environment's step would be computed again for every packed number.
        new = step(jax.lax.optimization_barrier(layouts["carry"].unpack(carry)), pool, action)
        new_carry, new_shown = jax.lax.optimization_barrier((new[0], new[2]))
        return pack(new_carry), new[1], as_output(new_shown)

    action = jax.eval_shape(lambda key: outward_action(env, params, key, num_envs), jax.random.key(0))
    shown_reset = jax.eval_shape(reset, *shapes, jax.ShapeDtypeStruct((num_envs,), bool))[2]
    shown_step = jax.eval_shape(step, shapes[0], jax.eval_shape(pack, shapes[1]), action)[2]
    return Programs(
        jax.jit(begin_packed),
        jax.jit(reseed_packed, donate_argnums=(0, 1)),
        jax.jit(reset_packed, donate_argnums=(0, 1)),
        jax.jit(step_packed, donate_argnums=(0, 1)),
        Layout.of(shown_reset),
        Layout.of(shown_step),
        layouts["carry"],
    )


def outward_action(env: Any, params: Params, key: jax.Array, num_envs: int) -> Any:
    """Actions `[N, ...]` in Gymnasium's form, of which only the shapes are used."""
    space = env.action_space(params)
    return jax.vmap(lambda key: shown(space, space.sample(key)))(jax.random.split(key, num_envs))


def picked(chosen: jax.Array, new: PyTree, old: PyTree) -> Any:
    """The new leaves `[N, ...]` where chosen, bool `[N]`, and the old ones elsewhere."""

    def pick(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(chosen.reshape(chosen.shape + (1,) * (b.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)


def zeroed(chosen: jax.Array, tree: PyTree) -> Any:
    """The leaves where chosen, zeros elsewhere."""
    return picked(chosen, tree, jax.tree.map(jnp.zeros_like, tree))
