"""Stopping: accept one of a number of random offers, which cannot be recalled."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_positive
from envs.base import spaces
from envs.decision.finite_horizon import FiniteHorizon, horizon
from envs.decision.pictures import bars
from envs.pytrees import DiscountLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GO_ON, ACCEPT = 0, 1


@struct.dataclass
class StoppingState(base.EnvState):
    """The present offer, as a share of the highest."""

    time: jax.Array
    offer: jax.Array


@struct.dataclass
class StoppingParams(base.EnvParams):
    """Parameters of a stopping problem.

    Attributes:
      max_offer: Upper end of the offers, which are uniform in [0, max_offer).
      num_steps: Number of offers.
      max_steps_in_episode: Time limit, in steps.
    """

    max_offer: float = 1.0
    num_steps: int = 20
    max_steps_in_episode: int = 20


@dataclass(frozen=True)
class Stopping(FiniteHorizon):
    """Independent uniform offers, one a step: accept it, which pays it and ends the episode, or go on to the next.

    The optimal policies accept an offer above a threshold, which falls as fewer offers are left. Undiscounted, the
    share v of the highest offer that n offers are worth is v_1 = 1/2, v_n = (1 + v_{n-1}^2) / 2, and the threshold is
    that of the offers left. After the last offer the episode ends without a reward.

    Source: Moser (1956), "On a problem of Cayley".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "stopping"

    @property
    def default_params(self) -> StoppingParams:
        """20 offers up to 1."""
        return StoppingParams()

    def check_params(self, params: StoppingParams) -> None:
        """Reject offers up to 0 or less, and fewer than one."""
        super().check_params(params)
        check_positive(params, "max_offer")

    def reset_env(self, key: jax.Array, params: StoppingParams) -> tuple[jax.Array, StoppingState]:
        """The first observation and state: an offer."""
        state = StoppingState(jnp.zeros((), jnp.int32), jax.random.uniform(key))
        return self._observe(state.offer, state, params), state

    def step_env(
        self, key: jax.Array, state: StoppingState, action: jax.Array, params: StoppingParams
    ) -> tuple[jax.Array, StoppingState, jax.Array, jax.Array, dict[Any, Any]]:
        """Accept the offer, or go on to another."""
        accepts = action == ACCEPT
        reward = jnp.where(accepts, params.max_offer * state.offer, 0.0).astype(jnp.float32)
        state = StoppingState(state.time + 1, jax.random.uniform(key))
        obs = self._observe(state.offer, state, params)
        return obs, state, reward, accepts | (state.time >= params.num_steps), {}

    def thresholds(
        self,
        params: StoppingParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> np.ndarray:
        """The shares of the highest offer from which each step accepts, float64 `[T]`.

        A step accepts the offers that are worth more than going on: of weight Gamma(t) and the value of the steps after
        it, or, if sophisticated, of weight 1 and the rewards of the later steps at their lags. A stationary threshold c
        is worth (1 - c^2) / 2 times the sum of Gamma(t) c^t, and is searched to 4e-9.

        Args:
          params, discount, kind: See `envs.Environment.optimum`.
        """
        kind, curve = self._simplest(kind, params, discount), self.weights(params, discount)
        if kind == "stationary":
            low, high, grid, best = 0.0, 1.0, np.zeros(0), 0
            for _ in range(3):
                grid = np.linspace(low, high, 1001)
                best = np.argmax((1 - grid**2) * (grid[:, None] ** np.arange(len(curve)) @ curve))
                low, high = grid[max(best - 1, 0)], grid[min(best + 1, 1000)]
            return np.full(len(curve), grid[best])
        thresholds = np.zeros(len(curve))
        for step in reversed(range(len(curve) - 1)):
            rest = thresholds[step + 1 :]
            view = 0 if kind == "sophisticated" else step  # the delay of this step for the one that decides
            going_on = _value(curve[view + 1 : view + 1 + len(rest)], rest)
            thresholds[step] = min(going_on / curve[view], 1) if curve[view] > 0 else float(going_on > 0)
        return thresholds

    def optimum(
        self,
        params: StoppingParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The value of the `thresholds`; see `envs.Environment.optimum`.

        The stationary one is the best of all functions of the offer, of which the best ones have a threshold.
        """
        params = self.checked_params(params)
        return float(params.max_offer) * _value(self.weights(params, discount), self.thresholds(params, discount, kind))

    def return_range(self, params: StoppingParams) -> tuple[Any, Any]:
        """From no offer to the highest."""
        return 0.0, np.asarray(params.max_offer, np.float64) + 0 * horizon(params)

    def action_space(self, params: StoppingParams | None = None) -> spaces.Discrete:
        """0 to go on, 1 to accept."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: StoppingParams) -> spaces.Box:
        """The offer as a share of the highest, and the share of steps left."""
        del params
        return spaces.Box(0.0, 1.0, (1 + self.shows_time,), jnp.float32)

    def draw(self, ax: "Axes", state: StoppingState, params: StoppingParams) -> None:
        """The offer as a bar, with the threshold of the undiscounted optimum."""
        thresholds = self.thresholds(params)
        at = thresholds[min(int(state.time), len(thresholds) - 1)]
        offer = float(params.max_offer) * float(state.offer)
        bars(ax, [float(state.offer)], [f"{offer:.3g}"], top=1, line=float(at), caption="offer")


def _value(curve: np.ndarray, thresholds: np.ndarray) -> float:
    """The mean weighted offer accepted: a step is reached if no earlier one accepts, and accepts from c on."""
    reached = np.concatenate([[1.0], np.cumprod(thresholds[:-1])])
    return float(curve @ (reached * (1 - thresholds**2) / 2))
