"""Equality of results bit for bit."""

import jax
import numpy as np

from jaxrl.results.result import Result


def assert_same_bits(one: Result, other: Result) -> None:
    """Fail where two results differ in a run, a metric or a parameter of a policy."""
    assert one.seeds == other.seeds and one.settings == other.settings
    names = one.metrics.variables.keys() | other.metrics.variables.keys()
    differing = [name for name in names if _bits(one.metrics[name]) != _bits(other.metrics[name])]
    assert differing == []
    assert jax.tree.map(_bits, one.policies) == jax.tree.map(_bits, other.policies)


def _bits(array: object) -> tuple[str, tuple[int, ...], bytes]:
    array = np.asarray(array)
    return str(array.dtype), array.shape, array.tobytes()
