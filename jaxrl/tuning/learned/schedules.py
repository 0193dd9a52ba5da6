"""A learned schedule of a hyper-parameter for an outer loop."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_count
from jaxrl.learning.composites import Curve
from jaxrl.pytrees import HParams
from jaxrl.tuning.learned.theta import Theta

BOUND = 30.0  # of logarithms, whose exponentials stay finite in float32 with room for the value that they multiply
LEAST = np.float32(1e-3)  # distance from 0 and 1 of a share whose logit begins there


def learned_schedule(algo: Algorithm, name: str, points: int = 5) -> Theta:
    """Curve of a hyper-parameter over the run, which begins as its constant value in `algo.hparams`.

    Theta has one number for each point, 0 at first: the logarithm of a factor for a positive hyper-parameter, and a
    change of the logit for one within [0, 1], such as `lam`. With zeros the curve has the value at every point.

    Args:
      algo: Algorithm.
      name: Name of a hyper-parameter that may be a `jaxrl.Curve`: "lr", "lam", "entropy_coef", "clip_eps".
      points: Number of evenly spaced points of the run, at least 2.

    Raises:
      ValueError: The hyper-parameter cannot be a curve, has another schedule, or is not a positive number.
    """
    check_count("points", points, 2)
    composites = getattr(type(algo.hparams), "composites", {})
    known = [field for field, kind in composites.items() if kind is Curve and getattr(algo.hparams, field) is not None]
    if name not in known:
        listing = ", ".join(known) or "none here"
        raise UserValueError(f"name takes a field of {algo.name} that may be a curve ({listing}), got {name!r}")
    value, share = getattr(algo.hparams, name), type(algo.hparams).ranges[name].high == 1
    if isinstance(value, Curve) or not (0 < float(value) < np.inf):
        raise UserValueError(f"{name} takes a positive number in algo.hparams, as the start of its curve, got {value}")
    try:
        dataclasses.replace(algo.hparams, **{name: Curve([value] * points)})
    except UserValueError as error:
        raise UserValueError(f"name takes a field without another schedule, got {name!r}: {error}") from error
    start = np.float32(value)

    def apply(theta: Any, hparams: HParams) -> HParams:
        change = jnp.clip(theta, -BOUND, BOUND)
        if share:
            inside = np.clip(start, LEAST, 1 - LEAST)
            logit = np.log(inside / (1 - inside))
            # Both shares are traced: one that a compiler computes beforehand may be rounded otherwise, and differ at 0.
            shares = jax.nn.sigmoid(logit + jnp.stack([change, 0.0 * change]))
            moved = jnp.clip(start + (shares[0] - shares[1]), 0.0, 1.0)
        else:
            moved = start * jnp.exp(change)
        return dataclasses.replace(hparams, **{name: Curve(moved)})

    return Theta(f"schedule of {name}", np.zeros(points, np.float32), apply)
