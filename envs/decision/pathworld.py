"""Pathworld: choose a path and survive an unknown hazard along it; longer paths pay more."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import DiscountLike

__all__ = ["HAZARDS", "Pathworld", "PathworldState"]

HAZARDS = ("uniform", "exponential", "constant")


@struct.dataclass
class PathworldState(base.EnvState):
    """The chosen path (0 before the choice), and the episode's hazard, which is not observed."""

    time: jax.Array
    path: jax.Array
    hazard: jax.Array


@struct.dataclass
class PathworldParams(base.EnvParams):
    """Parameters of a Pathworld.

    Attributes:
      mean_hazard: Mean hazard k, at least 0.
      max_steps_in_episode: Time limit, in steps; the default leaves time to walk the longest of 15 paths.
    """

    mean_hazard: float = 0.05
    max_steps_in_episode: int = 197


@dataclass(frozen=True)
class Pathworld(base.Environment):
    """Path i pays i after i^2 steps, each survived with probability exp(-hazard).

    The hazard is drawn independently for each episode: uniformly from (0, 2k), exponentially with mean
    k, or always k. Under a constant hazard survival falls exponentially with time, under an
    exponentially distributed one exactly hyperbolically, as 1 / (1 + k t): a discount that is
    not exponential expresses uncertainty about the hazard.

    Attributes:
      hazard: Distribution of the hazard: "uniform", "exponential" or "constant".
      num_paths: Number of paths, 0, 1, ..., num_paths - 1.

    Source: Fedus et al. (2019), "Hyperbolic discounting and learning over multiple horizons";
    Sozou (1998), "On hyperbolic discounting and uncertain hazard rates".
    """

    hazard: Literal["uniform", "exponential", "constant"] = "uniform"
    num_paths: int = 15

    def __post_init__(self) -> None:
        if self.hazard not in HAZARDS:
            raise UserValueError(f"hazard is {self.hazard!r}; it takes {', '.join(HAZARDS)}.")
        if self.num_paths < 2:
            raise UserValueError(f"num_paths is {self.num_paths}; it takes a whole number of at least 2.")

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "pathworld"

    @property
    def default_params(self) -> PathworldParams:
        """A mean hazard of 0.05, and a limit that leaves time to walk the longest path."""
        return PathworldParams(max_steps_in_episode=int(self._lengths[-1]) + 1)

    def check_params(self, params: PathworldParams) -> None:
        """Reject a negative mean hazard."""
        check_at_least(params, mean_hazard=0)

    def reset_env(self, key: jax.Array, params: PathworldParams) -> tuple[jax.Array, PathworldState]:
        """The first observation `[3]` and state: a hazard, and no choice yet."""
        draw = {
            "uniform": lambda: 2 * jax.random.uniform(key),
            "exponential": lambda: jax.random.exponential(key),
            "constant": lambda: jnp.ones(()),
        }[self.hazard]()
        zero = jnp.zeros((), jnp.int32)
        state = PathworldState(zero, zero, jnp.asarray(params.mean_hazard * draw, jnp.float32))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: PathworldState, action: jax.Array, params: PathworldParams
    ) -> tuple[jax.Array, PathworldState, jax.Array, jax.Array, dict[Any, Any]]:
        """The first step chooses and starts to walk, later ones continue; the step with index i^2 pays and ends."""
        del params
        path = jnp.where(state.time == 0, action, state.path).astype(jnp.int32)
        arrives = state.time >= path * path
        dies = jax.random.uniform(key) >= jnp.exp(-state.hazard)
        reward = jnp.where(arrives, path, 0).astype(jnp.float32)
        state = PathworldState(state.time + 1, path, state.hazard)
        return self._observe(state), state, reward, arrives | dies, {}

    def action_mask(self, state: PathworldState, params: PathworldParams) -> jax.Array:
        """Every path at the start, then only the chosen one."""
        del params
        return (state.time == 0) | (jnp.arange(self.num_paths) == state.path)

    def action_space(self, params: PathworldParams | None = None) -> spaces.Discrete:
        """The index of a path."""
        del params
        return spaces.Discrete(self.num_paths)

    def observation_space(self, params: PathworldParams) -> spaces.Box:
        """Whether the choice is ahead, the path, and the steps left on it, as shares of the longest path's."""
        del params
        return spaces.Box(0.0, 1.0, (3,), jnp.float32)

    def survival(self, steps: npt.ArrayLike, mean_hazard: float = 0.05) -> np.ndarray:
        """The probability of surviving a number of steps, E[exp(-hazard * steps)].

        Args:
          steps: Whole numbers of any shape.
          mean_hazard: Mean hazard k, at least 0.

        Returns:
          float64 of the steps' shape: (1 - exp(-2 k t)) / (2 k t), 1 / (1 + k t) or exp(-k t).
        """
        risk = mean_hazard * np.asarray(steps, np.float64)
        if self.hazard == "exponential":
            return 1 / (1 + risk)
        if self.hazard == "constant":
            return np.exp(-risk)
        return np.where(risk > 0, -np.expm1(-2 * risk) / np.where(risk > 0, 2 * risk, 1), 1.0)

    def values(self, mean_hazard: float = 0.05) -> np.ndarray:
        """The true mean reward of each path, not discounted: float64 `[num_paths]`."""
        return self.survival(self._lengths, mean_hazard) * np.arange(self.num_paths)

    def optimum(
        self,
        params: PathworldParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """Highest expected return, max_i Gamma(i^2) i P(survive path i); see `envs.Environment.optimum`.

        All kinds are equal, because the first step decides alone.
        """
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        values = self.estimates(discount_curves.of(discount, int(self._lengths[-1]) + 1))
        in_time = self._lengths < int(params.max_steps_in_episode)
        return float(np.max(np.where(in_time, values * self.survival(self._lengths, float(params.mean_hazard)), 0.0)))

    def estimates(self, curve: npt.ArrayLike) -> np.ndarray:
        """The value of each path to an agent that discounts and does not know about the hazard.

        Args:
          curve: Discount curve `[>= (num_paths - 1)^2 + 1]`, Gamma(0) = 1, Gamma(1), ...

        Returns:
          float64 `[num_paths]`, Gamma(i^2) i.
        """
        return discount_curves.at(curve, self._lengths) * np.arange(self.num_paths)

    def mean_squared_error(self, curve: npt.ArrayLike, mean_hazard: float = 0.05) -> float:
        """Mean over the paths of (`estimates(curve)` - `values(mean_hazard)`) squared."""
        return float(np.mean(np.square(self.estimates(curve) - self.values(mean_hazard))))

    @property
    def _lengths(self) -> np.ndarray:
        return np.arange(self.num_paths) ** 2

    def _observe(self, state: PathworldState) -> jax.Array:
        longest = self.num_paths - 1
        left = jnp.maximum(state.path * state.path - state.time, 0)
        shares = [state.time == 0, state.path / longest, left / longest**2]
        return jnp.stack([jnp.asarray(share, jnp.float32) for share in shares])
