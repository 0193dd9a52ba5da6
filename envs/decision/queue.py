"""Queue: one server and several classes of jobs, whose waiting costs; choose the class that is served."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_count, check_number
from envs.base import spaces
from envs.decision.dynamic_programming import FiniteProblem
from envs.decision.finite_horizon import FiniteStates, horizon
from envs.decision.pictures import bars
from envs.errors import UserValueError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@struct.dataclass
class QueueState(base.EnvState):
    """The number of jobs of each class, int32 `[classes]`."""

    time: jax.Array
    jobs: jax.Array


@struct.dataclass
class QueueParams(base.EnvParams):
    """Parameters of a queue.

    Attributes:
      costs: Cost c of a job in a step after which it is not done, of each class, `[classes]`.
      rates: Probability mu that a step of service completes a job, of each class, `[classes]`.
      num_steps: Number of steps of an episode.
      max_steps_in_episode: Time limit, in steps.
    """

    costs: Any = struct.field(default_factory=lambda: np.array([1.0, 2.0, 3.0], np.float32))
    rates: Any = struct.field(default_factory=lambda: np.array([0.8, 0.55, 0.3], np.float32))
    num_steps: int = 40
    max_steps_in_episode: int = 40


@dataclass(frozen=True)
class Queue(FiniteStates):
    """Jobs that are there from the start are served one step at a time, each completed with its class's probability.

    No jobs arrive, so that the states are finite and the optimum exact. It is optimal to serve the class of the highest
    product c mu among those with jobs, in every step and under any discount that does not increase, where all kinds of
    optimum are equal. The episode ends with the last job. `action_mask` forbids to serve a class without jobs.

    Attributes:
      jobs: Number of jobs of each class at the start.

    Source: Buyukkoc, Varaiya and Walrand (1985), "The c mu rule revisited".
    """

    jobs: tuple[int, ...] = (3, 3, 3)

    def __post_init__(self) -> None:
        if not isinstance(self.jobs, tuple) or not self.jobs:
            raise UserValueError(f"jobs takes a tuple of numbers of jobs, got {self.jobs!r}")
        for number in self.jobs:
            check_count("each number of jobs", number)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "queue"

    @property
    def default_params(self) -> QueueParams:
        """Costs 1, 2, ... and rates from 0.8 to 0.3; of three classes the products c mu are 0.8, 1.1 and 0.9."""
        costs, rates = 1.0 + np.arange(len(self.jobs)), np.linspace(0.8, 0.3, len(self.jobs))
        return QueueParams(costs=costs.astype(np.float32), rates=rates.astype(np.float32))

    def check_params(self, params: QueueParams) -> None:
        """Reject negative costs, probabilities outside [0, 1], one of another shape, and fewer steps than one."""
        super().check_params(params)
        for name in ("costs", "rates"):
            shape = np.shape(getattr(params, name))
            if shape[-1:] != (len(self.jobs),):
                raise UserValueError(f"env.{name} must have a number for each of {len(self.jobs)} classes, got {shape}")
        check_at_least(params, costs=0)
        check_number("env.rates", np.asarray(params.rates), 0, 1, "[]")

    def reset_env(self, key: jax.Array, params: QueueParams) -> tuple[jax.Array, QueueState]:
        """The first observation and state, with all jobs."""
        del key
        state = QueueState(jnp.zeros((), jnp.int32), jnp.array(self.jobs, jnp.int32))
        return self._observe(self._shares(state), state, params), state

    def step_env(
        self, key: jax.Array, state: QueueState, action: jax.Array, params: QueueParams
    ) -> tuple[jax.Array, QueueState, jax.Array, jax.Array, dict[Any, Any]]:
        """Serve the class `action`; every job that is not done then costs."""
        done = (jnp.arange(len(self.jobs)) == action) & (jax.random.uniform(key) < jnp.asarray(params.rates)[action])
        jobs = jnp.maximum(state.jobs - done, 0).astype(jnp.int32)
        reward = -jnp.sum(jnp.asarray(params.costs) * jobs).astype(jnp.float32)
        state = QueueState(state.time + 1, jobs)
        terminated = (state.time >= params.num_steps) | ~jnp.any(jobs > 0)
        return self._observe(self._shares(state), state, params), state, reward, terminated, {}

    def action_mask(self, state: QueueState, params: QueueParams) -> jax.Array:
        """The classes with jobs; all of them after the last job."""
        del params
        return (state.jobs > 0) | ~jnp.any(state.jobs > 0)

    def problem(self, params: QueueParams | None = None) -> FiniteProblem:
        """States are numbers of jobs in the order of `np.ndindex`; see `FiniteStates.problem`."""
        params = self.checked_params(params)
        costs, rates = (np.asarray(each, np.float64) for each in (params.costs, params.rates))
        size = tuple(number + 1 for number in self.jobs)
        jobs = np.array(list(np.ndindex(size)))
        after = np.maximum(jobs[:, None] - np.eye(len(size), dtype=int), 0)
        successors = np.stack(
            [
                np.ravel_multi_index(np.moveaxis(after, -1, 0), size),
                *[np.broadcast_to(np.arange(len(jobs))[:, None], after.shape[:2])],
            ],
            -1,
        )
        rewards = -(rates * (after @ costs) + (1 - rates) * (jobs @ costs)[:, None])
        probabilities = np.broadcast_to(np.stack([rates, 1 - rates], -1), successors.shape)
        allowed = (jobs > 0) | ~jobs.any(axis=1, keepdims=True)
        return FiniteProblem(rewards, allowed, successors, probabilities, np.eye(len(jobs))[-1])

    def return_range(self, params: QueueParams) -> tuple[Any, Any]:
        """From all jobs in every step to none."""
        return -horizon(params) * (np.asarray(params.costs, np.float64) @ np.array(self.jobs)), 0.0

    def action_space(self, params: QueueParams | None = None) -> spaces.Discrete:
        """The index of the class that is served."""
        del params
        return spaces.Discrete(len(self.jobs))

    def observation_space(self, params: QueueParams) -> spaces.Box:
        """The jobs of each class as shares of those at the start, and the share of steps left."""
        del params
        return spaces.Box(0.0, 1.0, (len(self.jobs) + self.shows_time,), jnp.float32)

    def draw(self, ax: "Axes", state: QueueState, params: QueueParams) -> None:
        """The jobs of each class as bars."""
        labels = [f"cost {cost:.3g}" for cost in np.asarray(params.costs)]
        bars(ax, np.asarray(state.jobs).tolist(), labels, top=max(self.jobs), caption="jobs")

    def _shares(self, state: QueueState) -> jax.Array:
        return state.jobs / jnp.array(self.jobs)
