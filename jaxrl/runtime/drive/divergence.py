"""Runs that have diverged while their metrics are finite."""

import jax
import numpy as np

from jaxrl.pytrees import Policy

# From 2^24 on, adjacent float32 numbers are at least 2 apart: scores of actions, which are sums of such parameters,
# differ by whole numbers if at all, and a step of less than 1 changes no parameter.
PARAMETER_LIMIT = 2**24


def diverged_runs(policies: Policy) -> np.ndarray:
    """Mask of the runs with parameters of at least 2^24: bool `[num_settings, num_seeds]`, or `[]` without parameters.

    Args:
      policies: Policies of a result, leaves `[num_settings, num_seeds, ...]`. If they have `params`, only these
        count, since running statistics may be large.
    """
    diverged = np.asarray(False)
    for leaf in jax.tree.leaves(getattr(policies, "params", policies)):
        values = np.asarray(leaf)
        if np.issubdtype(values.dtype, np.floating) and values.ndim >= 2:
            large = np.isfinite(values) & (np.abs(values) >= PARAMETER_LIMIT)
            diverged = diverged | large.any(axis=tuple(range(2, values.ndim)))
    return diverged
