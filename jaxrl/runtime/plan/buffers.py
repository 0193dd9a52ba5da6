"""Memory of the replay buffer, before anything is compiled: a check that it fits, and its description."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from envs.errors import UserValueError
from jaxrl.algorithms.off_policy import OffPolicyState
from jaxrl.algorithms.off_policy_config import OffPolicyConfig
from jaxrl.learning.frames import Frames
from jaxrl.pytrees import PyTree
from jaxrl.runtime.call import Call
from jaxrl.runtime.machine.memory import size

# Suggested share of the largest buffer, because the size of a process varies by a few MiB between calls.
SUGGESTED = 0.98

__all__ = ["check_buffer", "description"]


def check_buffer(call: Call, limit: int | None, holds: Callable[[int], bool]) -> None:
    """Reject a call whose replay buffer memory cannot hold even for a single run.

    Args:
      call: Call, of any algorithm.
      limit: Memory limit in bytes; None for no limit.
      holds: Function `(bytes of the state of one run) -> bool`, whether such a run fits.

    Raises:
      ValueError: The buffer does not fit, and a smaller one would; the message has its size.
    """
    config = getattr(call.algo, "config", None)
    if limit is None or not isinstance(config, OffPolicyConfig):
        return
    state = _state_of_run(call)
    total = _bytes(state)
    if holds(total) or not isinstance(state, OffPolicyState):
        return
    each = _bytes_of_transition(state, config)
    step = config.steps_per_iteration  # of which a buffer is a multiple
    fitting, too_many = 0, config.num_stored // step  # in iterations
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if holds(int(total - each * (config.num_stored - middle * step))):
            fitting = middle
        else:
            too_many = middle
    fitting = int(SUGGESTED * fitting)
    if fitting * step < config.least_buffer:
        return  # too little memory for any buffer; this raises an error where programs are compiled
    raise UserValueError(
        f"buffer_size must be at most {fitting * step:,} here, because one run with more transitions does not fit into "
        f"{size(limit)} of memory, got {config.buffer_size:,}"
    )


def description(call: Call) -> str | None:
    """Replay buffer of one run, as text: its transitions, its memory and its observations; None without one.

    Args:
      call: Call, of any algorithm.
    """
    config = getattr(call.algo, "config", None)
    state = _state_of_run(call) if isinstance(config, OffPolicyConfig) else None
    if not isinstance(config, OffPolicyConfig) or not isinstance(state, OffPolicyState):
        return None
    once = isinstance(state.buffer.obs, Frames)
    stored = "each observation once" if once else "both observations of each"
    if once and state.buffer.obs.earlier is not None:
        stored = "each frame once"
    rounded = "" if config.num_stored == config.buffer_size else f" (buffer_size={config.buffer_size:,} rounded up)"
    memory = size(_bytes((state.buffer, state.priorities)))
    of_networks = f", and memories of networks in {size(_bytes(state.memories))}" if state.memories is not None else ""
    return f"{config.num_stored:,} transitions of each run{rounded} in {memory}, {stored}{of_networks}"


def _bytes_of_transition(state: OffPolicyState, config: OffPolicyConfig) -> float:
    """Bytes of the buffer for each transition; one more in a larger buffer needs at most as many."""
    frames = state.buffer.obs
    if not isinstance(frames, Frames):
        return _bytes((state.buffer, state.priorities, state.memories)) / config.num_stored
    flags = _bytes((state.buffer._replace(obs=None), state.priorities, state.memories)) / config.num_stored
    slots, num_envs = jax.tree.leaves(frames.newest)[0].shape[:2]
    last = 0 if frames.place is None else len(frames.place)  # those behind the slots
    return flags + _bytes(frames) / ((slots - last) * num_envs)


def _state_of_run(call: Call) -> Any:
    """Shapes of the state of one run."""
    hparams, env_params = jax.tree.map(lambda leaf: np.asarray(leaf)[0], (call.prepared, call.env_params))
    return jax.eval_shape(call.algo.init, jax.random.key(0), hparams, env_params)


def _bytes(tree: PyTree) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
