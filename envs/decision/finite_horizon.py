"""Tasks of a number of steps whose optimum is known exactly under any discount."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs import base, discount_curves
from envs.arguments import check_at_least, check_whole
from envs.decision import dynamic_programming
from envs.decision.dynamic_programming import FiniteProblem, Plan
from envs.pytrees import DiscountLike, Number, Params, State

__all__ = ["FiniteHorizon", "FiniteStates"]


@dataclass(frozen=True)
class FiniteHorizon(base.Environment):
    """A task that terminates after `num_steps` steps, a field of its parameters.

    Attributes:
      shows_time: Whether the last number of the observation is the share of steps left; without it the best policies
        of most tasks need a memory, or a wrapper such as `envs.wrappers.time_feature`.
    """

    shows_time: bool = True

    def check_params(self, params: Params) -> None:
        """Reject a number of steps that is below 1 or not whole."""
        check_at_least(params, num_steps=1)
        check_whole(params, "num_steps")

    def weights(self, params: Params = None, discount: DiscountLike = None) -> np.ndarray:
        """The weights Gamma(t) of the rewards of an episode, float64 `[T]`, of `num_steps` or the time limit if less.

        Args:
          params, discount: See `envs.Environment.optimum`.
        """
        return discount_curves.of(discount, horizon(self.checked_params(params)))

    def _simplest(self, kind: base.OptimumKind, params: Params, discount: DiscountLike) -> base.OptimumKind:
        """The kind, or "precommitted" for the sophisticated one under an exponential discount, which is equal."""
        exponential = discount_curves.is_exponential(self.weights(params, discount))
        return "precommitted" if base.check_optimum_kind(kind) == "sophisticated" and exponential else kind

    def _observe(self, numbers: Number, state: State, params: Params) -> jax.Array:
        left = [jnp.maximum(1 - state.time / params.num_steps, 0)] if self.shows_time else []
        return jnp.concatenate([jnp.ravel(jnp.asarray(part, jnp.float32)) for part in (numbers, *left)])


@dataclass(frozen=True)
class FiniteStates(FiniteHorizon):
    """A task of a number of steps with finitely many states."""

    def problem(self, params: Params = None) -> FiniteProblem:
        """The task as a finite decision problem, without its number of steps, in float64.

        Args:
          params: Parameters, concrete; None for the defaults.
        """
        raise NotImplementedError

    def plan(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> Plan | None:
        """The policy that attains the `optimum`, over the states of `problem`; None where that is not known.

        Stationary policies map states to actions, without randomness and whatever the time, also where the observation
        shows it.

        Args:
          params, discount, kind: See `envs.Environment.optimum`.
        """
        kind, curve = self._simplest(kind, params, discount), self.weights(params, discount)
        return getattr(dynamic_programming, kind)(self.problem(params), curve)

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """The value of `plan`, by dynamic programming; see `envs.Environment.optimum`.

        The stationary one is the best of functions from states to actions, see `plan`.
        """
        plan = self.plan(params, discount, kind)
        return None if plan is None else plan.value


def horizon(params: Params) -> Any:
    """Number of steps of an episode that is not ended early: whole, or an array over settings."""
    steps = np.minimum(np.asarray(params.num_steps), np.asarray(params.max_steps_in_episode))
    return int(steps) if steps.ndim == 0 else steps
