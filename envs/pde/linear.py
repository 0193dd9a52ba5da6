"""Linear equations on a circle: exact steps, and optima by Riccati equations under any discount."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs import base, discount_curves
from envs.arguments import each_setting
from envs.control import riccati
from envs.control.lq_plants import zero_order_hold
from envs.control.stationary_gains import best_law
from envs.errors import UserValueError
from envs.pde.field import Field, FieldState
from envs.pytrees import DiscountLike, Number, Params

__all__ = ["LinearField", "circulant"]

_LEAST_SHARE = 1e-6  # amplitude of a wave that matters to the optimum
_MOST_GROWTH = 40.0  # exponent of the growth within an episode, beyond which float32 overflows in the cost


def circulant(symbol: Number, num_modes: int) -> np.ndarray:
    """Matrix `[n, n]` in float64 of a linear map that multiplies modes by a symbol; the mode n / 2 is left out.

    Args:
      symbol: Factors `[n / 2 + 1]` of the modes.
      num_modes: Number n of modes and points.
    """
    symbol = np.where(np.arange(num_modes // 2 + 1) < num_modes // 2, symbol, 0.0)
    return np.fft.irfft(symbol[:, None] * np.fft.rfft(np.eye(num_modes), axis=0), n=num_modes, axis=0)


@dataclass(frozen=True)
class LinearField(Field):
    """Base of the tasks whose steps are linear and exact: actions are constant in a step, and nothing terminates."""

    def scales(self, params: Params) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Standard deviations of the first field and of the noise of a step, for each of its rows."""
        return (params.initial_scale,), (params.noise,)

    def generator(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """Float64 a `[N, N]` and b `[N, n]` of dx/dt = a x + b f, for the N numbers x of a state and the force f."""
        raise NotImplementedError

    def held(self, field: jax.Array, force: jax.Array, noise: jax.Array, params: Params) -> jax.Array:
        """The field after a step under a constant force `[n]`, plus noise, whose modes have variance 1."""
        raise NotImplementedError

    def growth(self, waves: np.ndarray, params: Params) -> np.ndarray:
        """Rates at which the modes with these wave numbers grow; by default 0."""
        del params
        return np.zeros_like(waves)

    def check_params(self, params: Params) -> None:
        """Reject, besides, growth that actuators cannot stop or that overflows within an episode."""
        super().check_params(params)
        axes = {name: 2 if name in ("sensors", "actuators") else 0 for name in vars(params)}
        for single in each_setting(params, axes):
            self._check_growth(single)

    def _check_growth(self, params: Params) -> None:
        numbers = np.arange(self.num_modes // 2)
        rates = self.growth(2 * np.pi * numbers / float(params.length), params)
        most = np.max(rates) * float(params.dt) * int(params.max_steps_in_episode)
        if most > _MOST_GROWTH:
            raise UserValueError(
                f"env.max_steps_in_episode must end an episode before fields grow by exp({_MOST_GROWTH:g}), got a "
                f"growth by exp({most:g})"
            )
        if most <= 0:
            return
        eigenvalue = riccati.unstabilised(*self._held_in(_waves(numbers[rates > 0], self.num_modes), params))
        if eigenvalue is not None:
            raise UserValueError(
                "env.actuators must reach all waves that grow, got none that changes one that a step multiplies by "
                f"{abs(eigenvalue):.4g}"
            )

    def _held_in(self, basis: np.ndarray, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """Matrices of a step for the coordinates of a field in a basis of waves."""
        a, b = self.generator(params)
        b = b @ np.asarray(params.actuators, np.float64)
        return zero_order_hold(basis.T @ a @ basis, basis.T @ b, float(params.dt))

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, FieldState]:
        """The first observation and a smooth normal field."""
        scales = self.scales(params)[0]
        measure, *keys = jax.random.split(key, 1 + len(scales))
        rows = [self.smooth_field(own, scale, params) for own, scale in zip(keys, scales, strict=True)]
        field = rows[0] if len(rows) == 1 else jnp.stack(rows)
        return self.observe(measure, field, params), FieldState(jnp.zeros((), jnp.int32), field)

    def step_env(
        self, key: jax.Array, state: FieldState, action: jax.Array, params: Params
    ) -> tuple[jax.Array, FieldState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step under the action, clipped to its bounds; the reward is minus the cost of it and the state before."""
        noise, measure = jax.random.split(key)
        action = jnp.clip(jnp.asarray(action, jnp.float32), -params.max_action, params.max_action)
        reward = -self.cost(state.field, action, params)
        field = self.held(state.field, self.force(action, params), self.smooth_modes(noise, params), params)
        observation = self.observe(measure, field, params)
        return observation, FieldState(state.time + 1, field), reward, jnp.zeros((), bool), {}

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """The best return by Riccati equations and a Kalman filter, see `law`; None where bounds of actions matter.

        The stationary optimum is that of the best linear function of the observation that a local search from four
        starts finds, which takes seconds for a wave.
        The limits on bounds are those of `envs.control.lq.LinearQuadratic.optimum`.
        """
        base.check_optimum_kind(kind)
        params = self.default_params if params is None else params
        law = self.law(params, discount, kind)
        return -law.cost if law.reach <= float(params.max_action) else None

    def law(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> riccati.Law:
        """The linear law of this kind of the field's estimate by a Kalman filter, or of the observation if stationary.

        Args:
          params, discount, kind: See `envs.Environment.optimum`.

        Returns:
          Gains K_t of u = -K_t x for the coordinates x of the field in `basis`; or for "stationary" one gain F of
          u = -F y.

        Raises:
          ValueError: There is no such kind, or the discount or a parameter is invalid.
        """
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        steps = int(params.max_steps_in_episode)
        curve = discount_curves.of(discount, steps)
        if kind == "sophisticated" and np.array_equal(curve, curve[min(1, steps - 1)] ** np.arange(steps)):
            kind = "precommitted"  # equal under an exponential discount, and fast
        return best_law(self.problem(params), curve, steps, kind, starts=0)

    def basis(self, params: Params = None) -> np.ndarray:
        """Orthonormal waves that matter, `[N, r]`: a field, flattened, has the coordinates basis' field.

        Waves of which the first field, the noise and each actuator have an amplitude below 1e-6 of their largest are
        left out, which changes a cost by a share of about 1e-12.

        Args:
          params: Parameters, concrete; None for the defaults.
        """
        params = self.default_params if params is None else params
        numbers = np.arange(self.num_modes // 2)
        drawn = np.exp(-np.square(2 * np.pi * numbers * float(params.smoothness)) / 2)
        forces = np.abs(np.fft.rfft(np.asarray(params.actuators, np.float64), axis=0))[: len(numbers)]
        shares = np.max(forces / np.maximum(np.max(forces, axis=0), 1e-300), axis=1)
        kept = numbers[np.maximum(drawn, shares) > _LEAST_SHARE]
        return np.kron(np.eye(len(self.costs(params))), _waves(kept, self.num_modes))

    def problem(self, params: Params = None) -> riccati.Problem:
        """The task as a linear-quadratic problem in float64, whose states are coordinates in `basis`.

        Args:
          params: Parameters, concrete; None for the defaults.
        """
        params = self.checked_params(params)
        n, basis = self.num_modes, self.basis(params)
        a, b = self._held_in(basis, params)
        waves = 2 * np.pi * np.arange(n // 2 + 1) * float(params.smoothness)
        smooth = circulant(np.exp(-(waves**2)), n)
        smooth = smooth / smooth[0, 0]  # the covariance of a random field of variance 1

        def projected(rows: tuple[Any, ...], matrix: np.ndarray) -> np.ndarray:
            return basis.T @ np.kron(np.diag(np.array(rows, np.float64)), matrix) @ basis

        first, noise = (projected(tuple(float(each) ** 2 for each in row), smooth) for row in self.scales(params))
        rows = np.eye(len(self.costs(params)))
        sensors = np.kron(rows, np.asarray(params.sensors, np.float64))
        return riccati.Problem(
            a=a,
            b=b,
            q=projected(self.costs(params), float(params.length) / n * np.eye(n)),
            r=float(params.control_cost) * np.eye(self.num_actuators),
            s=np.zeros(b.shape),
            noise=noise,
            mean=np.zeros(len(a)),
            spread=first,
            c=sensors @ basis,
            measurement=float(params.measurement_noise) ** 2 * np.eye(len(sensors)),
        )


def _waves(numbers: np.ndarray, num_modes: int) -> np.ndarray:
    """Cosines and sines with these numbers of periods, `[n, r]`, orthonormal."""
    angles = 2 * np.pi * np.outer(np.arange(num_modes) / num_modes, numbers)
    waves = np.concatenate([np.cos(angles), np.sin(angles[:, numbers > 0])], axis=1)
    return waves / np.linalg.norm(waves, axis=0)
