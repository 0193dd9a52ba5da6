"""Ends of annealing: the length of a run, and the point after which nothing more is learned."""

import functools
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrl.checks import is_concrete

__all__ = ["annealed_over", "stopped"]


def stopped(hparams: Any, env_steps: int) -> str | None:
    """Reason why some setting learns nothing after `env_steps`: a step size has fallen to 0, or its least value."""
    anneal = np.asarray(hparams.anneal_env_steps)
    for name, end in hparams.annealed_ends.items():
        ended = (np.asarray(end) == 0) & (anneal <= env_steps)
        if ended.any():
            return f"its step size fell to its least value within {int(anneal[ended].max()):,} env steps ({name}=0)"
    return None


def annealed_over(hparams: Any, run_length: int) -> Any:
    """Value of `anneal_env_steps`; the length of the run if it is infinite and something is annealed."""
    anneal, ends = hparams.anneal_env_steps, hparams.annealed_ends
    xp = np if is_concrete((anneal, ends)) else jnp
    falls = functools.reduce(operator.or_, (end != 1.0 for end in ends.values()))
    return xp.where(xp.isinf(anneal) & falls, np.float32(run_length), anneal)
