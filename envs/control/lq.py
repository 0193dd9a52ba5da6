"""Linear-quadratic control: hold a noisy linear plant at 0, with optima known exactly under any discount."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_positive, each_setting
from envs.base import spaces
from envs.control import riccati, stationary_gains
from envs.control.lq_plants import PLANTS, Plant, check_shapes
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import DiscountLike, Number
from envs.spelling import near_or_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LinearQuadratic", "LinearQuadraticParams", "LinearQuadraticState"]

_ROUNDING = 2.0**-23  # twice that of a number in float32, relative to its size


@struct.dataclass
class LinearQuadraticState(base.EnvState):
    """State x of the plant, `[n]`."""

    time: jax.Array
    x: jax.Array


@struct.dataclass
class LinearQuadraticParams(base.EnvParams):
    """Matrices of a linear-quadratic problem.

    Attributes:
      A, B: Dynamics x' = A x + B u + w, `[n, n]` and `[n, m]`.
      Q, R, S: Costs x'Qx + u'Ru + 2 x'Su of a step, `[n, n]`, `[m, m]` and `[n, m]`.
      noise: Factor F `[n, n]` of the covariance F F' of w.
      initial_mean, initial_spread: Mean `[n]`, and factor `[n, n]` of the covariance, of the first state.
      C, measurement_noise: Observation C x + v, `[p, n]`, and factor `[p, p]` of the covariance of v; None if the state
        is observed.
      max_action: Largest absolute value of each number of an action.
      max_steps_in_episode: Time limit and horizon, in steps.
    """

    A: Any = None
    B: Any = None
    Q: Any = None
    R: Any = None
    S: Any = None
    noise: Any = None
    initial_mean: Any = None
    initial_spread: Any = None
    C: Any = None
    measurement_noise: Any = None
    max_action: float = 10.0
    max_steps_in_episode: int = 100


@dataclass(frozen=True)
class LinearQuadratic(base.Environment):
    """Keep the state of a linear plant near 0 by small actions; normal noise moves it, and nothing terminates.

    Attributes:
      plant: Plant, whose matrices are the default parameters, or the name of one of `lq_plants.PLANTS`.
    """

    plant: Any = "double-integrator"

    def __post_init__(self) -> None:
        if isinstance(self.plant, str) and self.plant not in PLANTS:
            raise UserValueError(f"plant is {self.plant!r}{near_or_all(self.plant, PLANTS)}")
        if not isinstance(self.plant, str | Plant):
            raise UserTypeError(f"plant takes a name or an envs.control.lq_plants.Plant, got {self.plant!r}")

    @property
    def name(self) -> str:
        """The name that `envs.make` takes, of a named plant."""
        return f"lq/{self._plant.name}"

    @property
    def default_params(self) -> LinearQuadraticParams:
        """The matrices of the plant."""
        plant = self._plant
        matrices = {
            name: None if value is None else np.asarray(value, np.float32)
            for name, value in vars(plant).items()
            if name not in ("name", "max_action", "num_steps")
        }
        return LinearQuadraticParams(**matrices, max_action=plant.max_action, max_steps_in_episode=plant.num_steps)

    def check_params(self, params: LinearQuadraticParams) -> None:
        """Reject shapes that do not match, costs that are not definite, and plants that no gain stabilises."""
        check_shapes(params, leading=True)
        check_positive(params, "max_action")
        for name, value in vars(params).items():
            if value is not None and not np.all(np.isfinite(np.asarray(value))):
                raise UserValueError(f"env.{name} must be finite, got {np.asarray(value).tolist()}")
        axes = dict.fromkeys(vars(params), 2) | {"initial_mean": 1, "max_action": 0, "max_steps_in_episode": 0}
        for single in each_setting(params, axes):
            _check_problem(_stated_problem(single))

    def reset_env(self, key: jax.Array, params: LinearQuadraticParams) -> tuple[jax.Array, LinearQuadraticState]:
        """The first observation and state, which is normal."""
        state_key, measure_key = jax.random.split(key)
        drawn = jax.random.normal(state_key, params.initial_mean.shape, jnp.float32)
        x = jnp.asarray(params.initial_mean, jnp.float32) + _times(params.initial_spread, drawn)
        return _observe(measure_key, x, params), LinearQuadraticState(jnp.zeros((), jnp.int32), x)

    def step_env(
        self, key: jax.Array, state: LinearQuadraticState, action: jax.Array, params: LinearQuadraticParams
    ) -> tuple[jax.Array, LinearQuadraticState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step under the action, clipped to its bounds; the reward is minus the cost of it and the state before."""
        noise_key, measure_key = jax.random.split(key)
        x, u = state.x, jnp.clip(jnp.asarray(action, jnp.float32), -params.max_action, params.max_action)
        cost = _form(x, params.Q, x) + _form(u, params.R, u) + 2 * _form(x, params.S, u)
        drawn = jax.random.normal(noise_key, x.shape, jnp.float32)
        x = _times(params.A, x) + _times(params.B, u) + _times(params.noise, drawn)
        state = LinearQuadraticState(state.time + 1, x)
        return _observe(measure_key, x, params), state, -cost, jnp.zeros((), bool), {}

    def action_space(self, params: LinearQuadraticParams | None = None) -> spaces.Box:
        """The input u, `[m]`, within bounds that hardly matter to the optimum."""
        params = self.default_params if params is None else params
        return spaces.Box(-params.max_action, params.max_action, (params.B.shape[-1],), jnp.float32)

    def observation_space(self, params: LinearQuadraticParams) -> spaces.Box:
        """The state, or C x + v; without bounds."""
        rows = params.A if params.C is None else params.C
        return spaces.Box(-jnp.inf, jnp.inf, (rows.shape[-2],), jnp.float32)

    def optimum(
        self,
        params: LinearQuadraticParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float | None:
        """The best return by Riccati equations, see `law`; None where the bounds of actions matter.

        The stationary optimum is that of the best linear function of the observation that a local search from seven
        starts finds, see `stationary_gains.best_stationary`. A law ignores the bounds of actions: at most 6e-7 of them
        exceed bounds five standard deviations from their mean, and clipping these costs 5e-8 of the cost of actions.
        Where bounds are closer, the optimum is not known. See `envs.Environment.optimum`.
        """
        base.check_optimum_kind(kind)
        params = self.default_params if params is None else params
        law = self.law(params, discount, kind)
        return -law.cost if law.reach <= float(params.max_action) else None

    def law(
        self,
        params: LinearQuadraticParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> riccati.Law:
        """The linear law of this kind, its expected cost and its largest actions.

        Args:
          params, discount, kind: See `envs.Environment.optimum`.

        Returns:
          Gains K_t of u = -K_t x, where a Kalman filter estimates x if C is not None; or for "stationary" one gain F of
          u = -F y.

        Raises:
          ValueError: There is no such kind, or the discount or a parameter is invalid.
        """
        params = self.checked_params(params)
        return stationary_gains.best_law(_problem(params), discount, int(params.max_steps_in_episode), kind)

    def problem(self, params: LinearQuadraticParams | None = None) -> riccati.Problem:
        """The task as a linear-quadratic problem in float64, for the functions of `riccati` and `stationary_gains`.

        Args:
          params: Parameters, concrete; None for the defaults.

        Raises:
          ValueError: A parameter is invalid.
        """
        return _problem(self.checked_params(params))

    def draw(self, ax: "Axes", state: LinearQuadraticState, params: LinearQuadraticParams) -> None:
        """A bar for each number of the state, relative to its standard deviation at the start."""
        spread = np.asarray(params.initial_spread, np.float64)
        scale = np.maximum(np.sqrt(np.sum(spread**2, axis=1)), 1e-6)
        x = np.clip(np.asarray(state.x, np.float64) / scale, -4.0, 4.0)
        ax.set(xlim=(-4.2, 4.2), ylim=(len(x) - 0.3, -0.9), aspect="auto")
        ax.barh(np.arange(len(x)), x, height=0.6, color="#0072B2")
        ax.plot([0, 0], [-0.5, len(x) - 0.5], color="#009E73", linewidth=2)
        for row in range(len(x)):
            ax.text(-4.1, row - 0.36, f"x{row}", color="#222222", fontsize=9)

    @property
    def _plant(self) -> Plant:
        return PLANTS[self.plant]() if isinstance(self.plant, str) else self.plant


def _times(matrix: Number, vector: jax.Array) -> jax.Array:
    return jnp.dot(jnp.asarray(matrix, jnp.float32), vector, precision="highest")


def _form(left: jax.Array, matrix: Number, right: jax.Array) -> jax.Array:
    return jnp.dot(left, _times(matrix, right), precision="highest")


def _observe(key: jax.Array, x: jax.Array, params: LinearQuadraticParams) -> jax.Array:
    if params.C is None:
        return x
    drawn = jax.random.normal(key, (params.C.shape[0],), jnp.float32)
    return _times(params.C, x) + _times(params.measurement_noise, drawn)


def _problem(params: LinearQuadraticParams) -> riccati.Problem:
    """The problem, without costs of states that rounding to float32 may leave below or above 0."""
    problem = _stated_problem(params)
    costs, terms = _costs_of_states(problem)
    lifted = riccati.not_negative(costs)
    scale = np.sqrt(np.maximum(np.diag(terms), np.finfo(np.float64).eps * np.max(terms)))
    products = np.outer(scale, scale) if np.any(scale) else np.ones_like(terms)
    sizes, vectors = np.linalg.eigh(lifted / products)
    kept = np.where(sizes > _ROUNDING * np.linalg.norm(terms / products, 2), sizes, 0.0)
    if lifted is costs and np.array_equal(kept, sizes):
        return problem
    return problem._replace(q=problem.q - costs + products * ((vectors * kept) @ vectors.T))


def _costs_of_states(problem: riccati.Problem) -> tuple[np.ndarray, np.ndarray]:
    """Q - S R^-1 S', the least cost of a step, and bounds on its terms, in proportion to which entries are rounded."""
    gain = np.linalg.solve(problem.r, problem.s.T)
    costs, size = problem.q - problem.s @ gain, np.abs(gain)
    terms = np.abs(problem.q) + 2 * np.abs(problem.s) @ size + size.T @ np.abs(problem.r) @ size
    return (costs + costs.T) / 2, (terms + terms.T) / 2


def _stated_problem(params: LinearQuadraticParams) -> riccati.Problem:
    numbers = {name: np.asarray(value, np.float64) for name, value in vars(params).items() if value is not None}
    noise, spread = (numbers[name] @ numbers[name].T for name in ("noise", "initial_spread"))
    partial = {}
    if params.C is not None:
        measurement = numbers["measurement_noise"]
        partial = {"c": numbers["C"], "measurement": measurement @ measurement.T}
    costs = (numbers["A"], numbers["B"], numbers["Q"], numbers["R"], numbers["S"])
    return riccati.Problem(*costs, noise, numbers["initial_mean"], spread, **partial)


def _check_problem(problem: riccati.Problem) -> None:
    q, r = problem.q, problem.r
    for name, matrix in (("Q", q), ("R", r)):
        if not np.allclose(matrix, matrix.T, rtol=1e-5, atol=1e-6 * np.max(np.abs(matrix))):
            raise UserValueError(f"env.{name} must be symmetric, got {matrix.tolist()}")
    least = np.min(np.linalg.eigvalsh(r))
    if not least > 0:
        raise UserValueError(f"env.R must be positive definite, got a matrix with the eigenvalue {least:.3g}")
    costs, terms = _costs_of_states(problem)
    least = np.min(np.linalg.eigvalsh(costs))
    if least < -_ROUNDING * np.linalg.norm(terms, 2):
        raise UserValueError(
            f"env.Q must be such that no cost is negative: Q - S R^-1 S' has the eigenvalue {least:.3g}"
        )
    eigenvalue = riccati.unstabilised(problem.a, problem.b)
    if eigenvalue is not None:
        raise UserValueError(
            f"env.A must be stabilised by a gain, got a matrix with the eigenvalue {eigenvalue:.4g} "
            "that B does not change"
        )
