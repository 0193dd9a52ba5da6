"""Steps of trained policies as labelled arrays: whole episodes, or a number of steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from envs.base import Environment
from envs.errors import UserValueError
from envs.settings import in_own_settings, require_compilation
from jaxrl.checks import check_count, check_flag
from jaxrl.learning.recording import Recorded, Recorder, Recording
from jaxrl.policies.labelling import labelled
from jaxrl.policies.runs import Runs, runs_of
from jaxrl.pytrees import EnvParams, Policy, PyTree
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime.machine.memory import available, size

if TYPE_CHECKING:
    import xarray

CHUNK = 256  # steps of one call of the program

__all__ = ["collect"]


@in_own_settings
def collect(
    policy: TrainedPolicy | Result,
    env: Environment | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    num_envs: int | None = None,
    key: int | jax.Array = 0,
    greedy: bool = True,
    env_params: EnvParams = None,
) -> xarray.Dataset:
    """Steps of a policy, or of all policies of a result, as labelled arrays.

    With equal arguments all numbers are equal on one device kind. Greedy actions, the default as in `policy(obs)`, are
    deterministic; with `greedy=False` they are sampled as in training, with its exploration, which offline learning
    needs. First states, transitions of a stochastic environment and sampled actions are drawn from `key`. Episodes are
    those of `jaxrl.evaluate` with the same `key` and number of episodes.

    Args:
      policy: Policy of one run, such as `result.policy(seed=3)`, or a result, whose runs act at once in one program.
      env: Environment with the observations and actions of the training; None for that of the training.
      episodes: Number of whole episodes, which run at the same time.
      steps: Number of steps of every environment, in place of `episodes`: another episode begins where one has ended,
        and the last one may be incomplete.
      num_envs: Number of environments that run at the same time, with `steps` only; None for 1.
      key: Seed of the random numbers, from which each run derives its own by its seed, or a random key for all runs, as
        in `jaxrl.evaluate`.
      greedy: Whether to take the most likely actions instead of sampled ones.
      env_params: Parameters of the environment, or values by name, each of which is an axis such as
        `eval.gravity`, as in `jaxrl.evaluate`.

    Returns:
      Dataset with the dims of the sweep and `seed` (of a result), those of `env_params`, then `episode` (or `env`),
      `step`, and `agent` if there are several. It has `observation`, `action`, `reward`, `terminated`, `truncated`,
      and `next_observation`, which at the end of an episode is the last one before the reset; where they exist,
      `agent_terminated`, `active`, `action_mask`, `log_prob` and `probability` of actions when they are sampled (for
      continuous actions, the log-density before bounds), `q_value`, and `value` by the critic, see
      `TrainedPolicy.values`. Parts of dictionaries and tuples are variables such as `observation.position`. Whole
      episodes also have `length` and `final_observation`; steps after an end are nan, or 0 or False. Coordinate
      `failed`: whether the run has failed.

    Raises:
      ResultError: The algorithm of the result is unknown.
      TypeError: An argument is of another type.
      ValueError: Both or neither of `episodes` and `steps` are given, the environment does not fit the policy, a number
        is out of range, the steps take more memory than there is, an observation has a nan, or JAX does not compile.
    """
    require_compilation()
    check_flag("greedy", greedy)
    if (episodes is None) == (steps is None):
        got = "neither" if steps is None else f"episodes={episodes} and steps={steps}"
        raise UserValueError(f"collect takes one of episodes and steps, got {got}.")
    if episodes is not None and num_envs is not None:
        raise UserValueError(f"num_envs has no effect with episodes, which all run at the same time, got {num_envs}.")
    for name, value in (("episodes", episodes), ("steps", steps), ("num_envs", num_envs)):
        if value is not None:
            check_count(name, value)
    runs = runs_of(policy, env, env_params, key)
    count = episodes or num_envs or 1
    recorder = Recorder(runs.env, runs.algo.actor, runs.algo.value, count, episodes is None, bool(greedy))
    recorded = _recorded(recorder, runs, steps)
    return labelled(runs, recorded, "env" if episodes is None else "episode").assign_attrs(greedy=int(greedy))


@partial(jax.jit, static_argnums=0)
def _start(recorder: Recorder, policies: Policy, params: EnvParams, keys: jax.Array) -> Recording:
    def one(policy: Policy, params: EnvParams, words: jax.Array) -> Recording:
        return jax.vmap(lambda each: recorder.start(policy, each, jax.random.wrap_key_data(words)))(params)

    return jax.vmap(one)(policies, params, keys)


@partial(jax.jit, static_argnums=(0, 1))
def _record(
    recorder: Recorder,
    num_steps: int,
    policies: Policy,
    params: EnvParams,
    keys: jax.Array,
    recording: Recording,
    first: PyTree,
) -> tuple[Recording, Recorded]:
    def one(policy: Policy, params: EnvParams, words: jax.Array, recording: Recording) -> tuple[Recording, Recorded]:
        def under(params: EnvParams, recording: Recording) -> tuple[Recording, Recorded]:
            return recorder.record(policy, params, jax.random.wrap_key_data(words), recording, first, num_steps)

        return jax.vmap(under)(params, recording)

    return jax.vmap(one)(policies, params, keys, recording)


def _recorded(recorder: Recorder, runs: Runs, steps: int | None) -> Recorded:
    """Step `[R, E, N, T, ...]` on the host; without a number of them, up to the end of the longest episode."""
    longest = int(np.max(runs.env_params.max_steps_in_episode)) if steps is None else steps
    chunk = -(-longest // -(-longest // CHUNK))
    arguments = jax.device_put((runs.policies, runs.env_params, runs.keys))
    recording, parts, played = _start(recorder, *arguments), [], 0
    shapes = jax.eval_shape(partial(_record, recorder, chunk), *arguments, recording, np.int32(0))[1]
    each = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    while bool(np.any(recording.alive)) if steps is None else played < steps:
        _check_room(each, len(parts), 1 if steps is None else -(-(steps - played) // chunk))
        recording, part = _record(recorder, chunk, *arguments, recording, np.int32(played))
        parts.append(jax.device_get(part))
        played += chunk
    whole = jax.tree.map(lambda *leaves: np.swapaxes(np.concatenate(leaves, axis=2), 2, 3), *parts)
    kept = steps if steps is not None else int(whole.alive.sum(axis=3).max())
    return jax.tree.map(lambda leaf: leaf[:, :, :, :kept], whole)


def _check_room(each: int, count: int, more: int) -> None:
    """Raise an error if the memory is too small for more parts, and for all of them joined together.

    Args:
      each: Size of a part, in bytes.
      count: Number of parts that there are.
      more: Number of parts that follow at least.
    """
    needed, room = each * (count + 2 * more), available()
    if needed > room:
        raise UserValueError(
            f"collect needs {size(needed)} more for the steps that follow, and {size(room)} of memory are available: "
            "take fewer episodes, steps or runs."
        )
