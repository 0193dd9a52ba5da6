"""Equality of results bit for bit."""

import jax
import numpy as np

from jaxrl.results.result import Result


def assert_same_bits(one: Result, other: Result) -> None:
    """Fails where two results differ in a run, a metric or a parameter of a policy."""
    assert one.seeds == other.seeds and one.settings == other.settings
    assert one.metrics.sizes == other.metrics.sizes
    for name in map(str, {*one.metrics.variables, *other.metrics.variables}):
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name], err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(one.policies), jax.tree.leaves(other.policies))
