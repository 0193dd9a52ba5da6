"""Named linear plants of `lq/...`, with their costs, noise and bounds of actions."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sla

from envs.arguments import check_count
from envs.errors import UserValueError

__all__ = ["PLANTS", "Plant", "zero_order_hold"]

DT = 0.1  # time of a step of a plant in continuous time, in s

_SHAPES = {
    "A": "nn",
    "B": "nm",
    "Q": "nn",
    "R": "mm",
    "S": "nm",
    "noise": "nn",
    "initial_mean": "n",
    "initial_spread": "nn",
    "C": "pn",
    "measurement_noise": "pp",
}


def zero_order_hold(a: npt.ArrayLike, b: npt.ArrayLike, dt: float = DT) -> tuple[np.ndarray, np.ndarray]:
    """A and B of a plant in discrete time, whose inputs are constant within a step.

    Args:
      a, b: Dynamics dx/dt = a x + b u, `[n, n]` and `[n, m]`.
      dt: Time of a step.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    n, m = b.shape
    both = sla.expm(dt * np.block([[a, b], [np.zeros((m, n + m))]]))
    return both[:n, :n], both[:n, n:]


@dataclass(frozen=True)
class Plant:
    """A linear plant x' = A x + B u + w with quadratic costs; arrays of any kind become nested tuples.

    Attributes:
      name: Name, the part after `lq/`.
      A, B: Dynamics `[n, n]` and `[n, m]` of a step.
      Q, R, S: Costs `[n, n]`, `[m, m]` and `[n, m]`; S is 0 by default.
      noise: Factor F `[n, n]` of the covariance F F' of w.
      initial_mean, initial_spread: Mean `[n]`, and factor `[n, n]` of the covariance, of the first state; by default 0
        and the identity.
      C, measurement_noise: Observation y = C x + v, `[p, n]`, and factor `[p, p]` of the covariance of v; None if the
        state is observed.
      max_action: Largest absolute value of each number of an action.
      num_steps: Time limit, in steps.

    Raises:
      ValueError: The shapes do not match, or an action has no bound above 0, or an episode no steps.
    """

    name: str
    A: Any
    B: Any
    Q: Any
    R: Any
    S: Any = None
    noise: Any = None
    initial_mean: Any = None
    initial_spread: Any = None
    C: Any = None
    measurement_noise: Any = None
    max_action: float = 10.0
    num_steps: int = 100

    def __post_init__(self) -> None:
        rows, columns = (*np.shape(self.B), 0, 0)[:2]
        check_count("num_steps", self.num_steps)
        if not 0 < self.max_action < math.inf:
            raise UserValueError(f"max_action must be above 0 and finite, got {self.max_action}")
        defaults = {
            "S": np.zeros((rows, columns)),
            "noise": np.zeros((rows, rows)),
            "initial_mean": np.zeros(rows),
            "initial_spread": np.eye(rows),
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.C is not None and self.measurement_noise is None:
            object.__setattr__(self, "measurement_noise", np.zeros((len(self.C), len(self.C))))
        check_shapes(self)
        for name in _SHAPES:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _nested(np.asarray(value, np.float64).tolist()))


def check_shapes(matrices: Any, leading: bool = False) -> None:
    """Reject matrices of a plant whose shapes do not match those of B, or of C.

    Args:
      matrices: A `Plant`, or parameters with the same names.
      leading: Whether each may have a leading axis of settings.
    """
    for name in _SHAPES:
        if getattr(matrices, name) is None and name not in ("C", "measurement_noise"):
            raise UserValueError(f"{name} takes a matrix of the plant, got None; the sizes of all follow from B.")
    shapes = {name: np.shape(getattr(matrices, name)) for name in _SHAPES if getattr(matrices, name) is not None}
    sizes = dict(zip("nm", shapes["B"][-2:], strict=False))
    if "C" in shapes:
        sizes["p"] = (0, *shapes["C"])[-2]
    if (matrices.C is None) != (matrices.measurement_noise is None):
        raise UserValueError("measurement_noise takes a matrix where C is one, and None where C is None.")
    for name, shape in shapes.items():
        takes = tuple(sizes.get(axis, 0) for axis in _SHAPES[name])
        own = shape[1:] if leading and len(shape) == len(takes) + 1 else shape
        if own != takes or 0 in own:
            raise UserValueError(f"{name} has the shape {shape}; it takes {takes}, to match B and C.")


def _nested(value: object) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _scalar() -> Plant:
    """One state, which decays slowly, with a cross term."""
    return Plant("scalar", [[0.98]], [[0.5]], [[1.0]], [[0.5]], [[0.2]], [[0.2]], [2.0], [[1.0]], max_action=8.0)


def _double_integrator() -> Plant:
    """A unit mass under a force: position and velocity."""
    a, b = zero_order_hold([[0, 1], [0, 0]], [[0], [1]])
    return Plant(*("double-integrator", a, b, np.diag([1, 0.1]), [[1.0]]), noise=np.diag([0, 0.1]), max_action=10.0)


def _lqg_double_integrator() -> Plant:
    """The double integrator, of which only the position is observed, with noise."""
    inside = _double_integrator()
    return Plant(
        *("lqg-double-integrator", inside.A, inside.B, inside.Q, inside.R),
        noise=inside.noise,
        C=[[1, 0]],
        measurement_noise=[[0.1]],
        max_action=10.0,
    )


def _chain_of_masses() -> Plant:
    """Four unit masses between walls, joined by springs (1 N/m) with damping (0.05 N s/m), and forces on the ends."""
    springs = -2 * np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1)
    a = np.block([[np.zeros((4, 4)), np.eye(4)], [springs, 0.05 * springs]])
    a, b = zero_order_hold(a, np.concatenate([np.zeros((4, 2)), np.eye(4)[:, [0, 3]]]))
    noise = np.diag([0] * 4 + [0.05] * 4)
    return Plant("chain-of-masses", a, b, np.eye(8), np.eye(2), noise=noise, max_action=10.0, num_steps=200)


def _unstable() -> Plant:
    """Three states, each of which grows by 1 % a step and spreads to its neighbours.

    Source: the marginally unstable Laplacian system of Dean et al. (2017), "On the sample complexity of the linear
    quadratic regulator", where the horizon is infinite and an episode starts at 0.
    """
    a = 1.01 * np.eye(3) + 0.01 * (np.eye(3, k=1) + np.eye(3, k=-1))
    return Plant("unstable", a, np.eye(3), 1e-3 * np.eye(3), np.eye(3), noise=np.eye(3), max_action=1.0)


def _of_compleib(name: str, a: npt.ArrayLike, b: npt.ArrayLike, c1: Any, max_action: float) -> Plant:
    """A plant of the collection, with Q = C1'C1, R the largest eigenvalue of D12'D12, which is 0.5, and S = 0.

    With the collection's S = C1'D12 the output C1 x + D12 u could be made 0 at every step of HE1, at no cost.
    """
    c1 = np.asarray(c1)
    a, b = zero_order_hold(a, b)
    n, m = b.shape
    return Plant(name, a, b, c1.T @ c1, 0.5 * np.eye(m), noise=0.1 * np.eye(n), max_action=max_action)


def _he1() -> Plant:
    """Vertical motion of a helicopter, HE1: velocities forwards and upwards, pitch rate and pitch.

    Source: COMPleib, Leibfritz (2004); the numbers are those of the files of controlgym 1.0.0.
    """
    a = [
        [-0.0366, 0.0271, 0.0188, -0.4555],
        [0.0482, -1.01, 0.0024, -4.0208],
        [0.1002, 0.3681, -0.707, 1.42],
        [0, 0, 1, 0],
    ]
    b = [[0.4422, 0.1761], [3.5446, -7.5922], [-5.52, 4.49], [0, 0]]
    half = math.sqrt(0.5)
    return _of_compleib("he1", a, b, [[2 * half, 0, 0, 0], [0, half, 0, 0]], 10.0)


def _ac1() -> Plant:
    """Vertical motion of an aircraft, AC1, with five states and three inputs; source as of HE1."""
    a = [
        [0, 0, 1.132, 0, -1],
        [0, -0.0538, -0.1712, 0, 0.0705],
        [0, 0, 0, 1, 0],
        [0, 0.0485, 0, -0.8556, -1.013],
        [0, -0.2909, 0, 1.0532, -0.6859],
    ]
    b = [[0, 0, 0], [-0.12, 1, 0], [0, 0, 0], [4.419, 0, -1.665], [1.575, 0, -0.0732]]
    half = math.sqrt(0.5)
    return _of_compleib("ac1", a, b, [[0, half, 0, 0, 0], [0, 0, half, 0, 0]], 5.0)


_MADE = (_scalar, _double_integrator, _lqg_double_integrator, _chain_of_masses, _unstable, _he1, _ac1)
PLANTS = {make.__name__[1:].replace("_", "-"): functools.cache(make) for make in _MADE}
