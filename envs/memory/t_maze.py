"""T-maze: read a sign, walk down a corridor, and turn at its end in the direction of the sign."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_count, check_limit, check_whole
from envs.base import spaces
from envs.pytrees import DiscountLike

FORWARD, BACK, UP, DOWN = range(4)


@struct.dataclass
class TMazeState(base.EnvState):
    """The position of the agent, and its goal.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      goal: Right action at the junction, `UP` or `DOWN`, int32 `[]`.
      position: Number of cells from the start, int32 `[]`.
    """

    time: jax.Array
    goal: jax.Array
    position: jax.Array


@struct.dataclass
class TMazeParams(base.EnvParams):
    """The corridor.

    Attributes:
      length: Number of steps from the start to the junction, int, at least 1; longer corridors require longer time
        limits.
      idle_cost: Cost of a step that neither leads forward nor turns at the junction, at least 0.
      max_steps_in_episode: Time limit.
    """

    length: int = 20
    idle_cost: float = 0.1
    max_steps_in_episode: int = 84


@dataclass(frozen=True)
class TMaze(base.Environment):
    """A sign at the start of a corridor shows which arm at its far end is rewarded.

    The sign is observed at the start only; all cells of the corridor look alike, and the junction is the same in every
    episode. There, `UP` and `DOWN` turn into an arm and end the episode, with reward 1 in the arm of the sign and 0 in
    the other. Every step that neither leads forward nor turns at the junction costs `idle_cost`.

    A policy without a memory has to guess at the junction: it earns half of the optimum.

    Attributes:
      length: Default of the parameter.

    Source: after Bakker (2002), "Reinforcement learning with long short-term memory".
    """

    length: int = 20

    def __post_init__(self) -> None:
        check_count("length", self.length)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/t-maze"

    @property
    def default_params(self) -> TMazeParams:
        """The length, and a time limit of four times the required steps."""
        return TMazeParams(length=self.length, max_steps_in_episode=4 * (self.length + 1))

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`success`: 1 in an episode that turned into the rewarded arm."""
        return {"success": "sum"}

    def check_params(self, params: TMazeParams) -> None:
        """Reject a length that is below 1 or not whole, a negative cost, and a time limit before the junction."""
        check_at_least(params, length=1, idle_cost=0)
        check_whole(params, "length")
        check_limit(params, "length", np.asarray(params.length) + 1)

    def reset_env(self, key: jax.Array, params: TMazeParams) -> tuple[jax.Array, TMazeState]:
        """The first observation `[4]`: the sign."""
        goal = jax.random.randint(key, (), UP, DOWN + 1)
        state = TMazeState(jnp.zeros((), jnp.int32), goal, jnp.zeros((), jnp.int32))
        return _observe(state, params), state

    def step_env(
        self, key: jax.Array, state: TMazeState, action: jax.Array, params: TMazeParams
    ) -> tuple[jax.Array, TMazeState, jax.Array, jax.Array, dict[Any, Any]]:
        """Walk, or turn at the junction."""
        del key
        at_junction = state.position >= params.length
        turns = at_junction & (action >= UP)
        success = turns & (action == state.goal)
        forward = (action == FORWARD) & ~at_junction
        back = (action == BACK) & (state.position > 0)
        position = state.position + forward.astype(jnp.int32) - back.astype(jnp.int32)
        reward = jnp.where(forward | turns, success.astype(jnp.float32), -params.idle_cost)
        state = TMazeState(state.time + 1, state.goal, position)
        return _observe(state, params), state, reward.astype(jnp.float32), turns, {"metrics": {"success": success}}

    def return_range(self, params: TMazeParams) -> tuple[Any, Any]:
        """From the cost of every idle step to the right arm without one."""
        limit, cost = (np.asarray(number, np.float64) for number in (params.max_steps_in_episode, params.idle_cost))
        return -limit * cost, 1.0

    def action_space(self, params: TMazeParams | None = None) -> spaces.Discrete:
        """Four actions: 0 forward, 1 back, 2 up, 3 down."""
        del params
        return spaces.Discrete(4)

    def observation_space(self, params: TMazeParams) -> spaces.Box:
        """One-hot: a sign that points up, one that points down, the corridor, the junction."""
        del params
        return spaces.Box(0.0, 1.0, (4,), jnp.float32)

    def optimum(
        self, params: TMazeParams | None = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """The best return, Gamma(length); None under a discount that rises, where it may pay to wait.

        The sophisticated one is the same, because every step prefers the earliest reward; the stationary one is
        `memoryless`. An array may end after Gamma(length), and later steps then count as no rise; the curve of an
        object must be known up to `max_steps_in_episode`. See `envs.Environment.optimum`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return self.memoryless(params, discount)
        params = self.checked_params(params)
        best = discount_curves.of(discount, int(params.length) + 1)[-1]
        return None if discount_curves.rises(discount, int(params.max_steps_in_episode)) else float(best)

    def memoryless(self, params: TMazeParams | None = None, discount: DiscountLike = None) -> float | None:
        """The best return of a policy without memory, half of the optimum; None where that is not known.

        At the junction it turns up with a fixed probability, independent of the sign, so it is right in at most half of
        all episodes, and it takes at least `length` steps to get there.

        Args:
          params, discount: See `optimum`.
        """
        best = self.optimum(params, discount)
        return None if best is None else best / 2


def _observe(state: TMazeState, params: TMazeParams) -> jax.Array:
    at_start, at_junction = state.position == 0, state.position >= params.length
    cells = [at_start & (state.goal == UP), at_start & (state.goal == DOWN), ~at_start & ~at_junction, at_junction]
    return jnp.stack(cells).astype(jnp.float32)
