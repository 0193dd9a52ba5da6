"""Policies on fixed tables of rewards, one run, without an environment."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.bandits.base import Task, View


def replay(policy, table, hparams=None, contexts=None, masks=None, seed=0):
    """The actions of a policy that receives `table[t, action]` at pull t.

    Args:
      policy: `BanditAlgorithm`.
      hparams: Hyper-parameters, the defaults if None.
      table: Rewards, `[T, K]`.
      contexts: Features of the arms, `[T, K, d]`, or None.
      masks: Allowed arms, bool `[T, K]`, or None.
      seed: Seed of the policy; pull t has the key `fold_in(key(seed), t)`.

    Returns:
      Actions `[T]`; the states before each pull and after the last, leaves `[T + 1, ...]`; the
      recommendation at the end.
    """
    steps, num_arms = table.shape
    hparams = jax.tree.map(jnp.float32, policy.hparams if hparams is None else hparams)
    table = jnp.asarray(table, jnp.float32)
    task = Task(num_arms, 0 if contexts is None else contexts.shape[-1], None)
    key = jax.random.key(seed)

    @jax.jit
    def run(table, contexts, masks, hparams):
        def pull(state, time):
            mask = None if masks is None else masks[time]
            context = None if contexts is None else contexts[time]
            view = View(time, jnp.int32(steps), mask, context, None)
            action = policy.choose(jax.random.fold_in(key, time), state, view, hparams)
            return policy.update(state, view, action, table[time, action], hparams), (state, action)

        state = policy.init(jax.random.fold_in(key, steps), task, None, hparams)
        last, (states, actions) = jax.lax.scan(pull, state, jnp.arange(steps))
        states = jax.tree.map(lambda leaf, end: jnp.concatenate([leaf, end[None]]), states, last)
        return actions, states, policy.recommend(last, hparams)

    actions, states, arm = run(table, contexts, masks, hparams)
    return np.asarray(actions), jax.tree.map(np.asarray, states), int(arm)


def uniforms(steps, seed=0):
    """The uniform number that a policy draws from the key of each pull, `[T]`."""
    keys = jax.vmap(lambda time: jax.random.fold_in(jax.random.key(seed), time))(jnp.arange(steps))
    return np.asarray(jax.vmap(jax.random.uniform)(keys), np.float64)
