"""Common configuration and hyper-parameters of algorithms that learn from single transitions."""

import dataclasses
import math
from types import MappingProxyType
from typing import Any, Literal

from flax import struct

from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.arguments import check_hparams
from jaxrl.checks import Range, Settings, check_choice, check_count
from jaxrl.discounts.parsing import GAMMA_HINT, Exponential
from jaxrl.learning.network_config import NetworkConfig

INFINITE = math.inf

__all__ = ["INFINITE", "TransitionsConfig", "TransitionsHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransitionsConfig(NetworkConfig):
    """Static configuration of rollouts.

    Attributes:
      num_envs: Number of environments of one run.
      num_steps: Number of steps of each environment in one iteration.
      normalise_observation: Whether observations are normalised by their running mean and variance.
      reset_pool: Number of fresh states for each environment and iteration, and in a warm-up for each environment and
        `num_steps` of its steps; None allows for a reset every 8 steps.
      time_limits: Treatment of time limits: "bootstrap" from the value of the last observation, or "terminal", which
        treats the limit as a termination; then the observation should include the remaining time, see
        `envs.wrappers.time_feature`.
      gamma: Not a field; discounts are hyper-parameters.
    """

    num_envs: int = 4
    num_steps: int = 4
    normalise_observation: bool = False
    reset_pool: int | None = None
    time_limits: Literal["bootstrap", "terminal"] = "bootstrap"
    gamma: dataclasses.InitVar[None] = None

    def __post_init__(self, gamma: None) -> None:
        if gamma is not None:
            raise UserTypeError(f"{GAMMA_HINT}, among the hyper-parameters")
        super().__post_init__()
        for name in ("num_envs", "num_steps"):
            check_count(name, getattr(self, name))
        if self.reset_pool is not None:
            check_count("reset_pool", self.reset_pool)
        check_choice("time_limits", self.time_limits, ("bootstrap", "terminal"))
        if self.shared_trunk:
            raise UserValueError("shared_trunk has no effect without both an actor and a critic; leave it out")
        if self.memory != "none":
            raise UserValueError(f"memory takes 'none' where transitions are drawn one by one, got {self.memory!r}")

    def _refuse_without_effect(self, name: str, where: str, effect: bool) -> None:
        """Rejects a changed field that has no effect with the value of another, `where`."""
        if not effect and getattr(self, name) != type(self).__dataclass_fields__[name].default:
            raise UserValueError(f"{name} has no effect with {where}, got {getattr(self, name)}; leave it out")

    @property
    def steps_per_iteration(self) -> int:
        """Number of environment steps of one iteration."""
        return self.num_envs * self.num_steps


@struct.dataclass
class TransitionsHParams(Settings):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Step size of Adam.
      discount: Discount of rewards: a number (exponential), a string such as "beta:mu=0.98,eta=0.5", or a Discount.
      max_grad_norm: Global norm to which gradients are clipped; infinity disables clipping.
      adam_b1: Decay rate of the first moment in Adam.
      adam_b2: Decay rate of the second moment in Adam.
      adam_eps: Constant in the denominator of Adam.
      observation_clip: Bound of normalised observations.
      gamma: Not a field; use `discount`.

    `observation_clip` is None in `Algorithm.hparams` where it has no effect.
    """

    lr: Any = 1e-3
    discount: Any = Exponential(0.99)
    max_grad_norm: Any = 10.0
    adam_b1: Any = 0.9
    adam_b2: Any = 0.999
    adam_eps: Any = 1e-5
    observation_clip: Any = 10.0
    gamma: dataclasses.InitVar[None] = None

    ranges = MappingProxyType(
        {
            "lr": Range(0, INFINITE, "[)"),
            "adam_eps": Range(1e-30, INFINITE, "[)"),
            "max_grad_norm": Range(1e-30, INFINITE),
            "observation_clip": Range(0, INFINITE),
            **dict.fromkeys(("adam_b1", "adam_b2"), Range(0, 1, "[)")),
        }
    )

    def __post_init__(self, gamma: None) -> None:
        check_hparams(self, gamma)
