"""Common configuration and hyper-parameters of off-policy algorithms."""

import dataclasses
import math
from typing import Any, Literal

from flax import struct

from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.arguments import check_hparams
from jaxrl.checks import Range, Settings, check_choice, check_count
from jaxrl.discounts.parsing import GAMMA_HINT, Exponential
from jaxrl.learning.network_config import NetworkConfig

INFINITE = math.inf

__all__ = ["INFINITE", "OffPolicyConfig", "OffPolicyHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(NetworkConfig):
    """Static configuration of collecting, storing and sampling transitions.

    Attributes:
      num_envs: Number of environments of one run.
      num_steps: Number of steps of each environment in one iteration.
      num_updates: Number of gradient steps at the end of one iteration.
      batch_size: Number of transitions of one gradient step.
      buffer_size: Number of transitions in the replay buffer, a multiple of `num_envs * num_steps`.
      warm_up: Number of transitions of random actions before the first iteration, a multiple of
        `num_envs * num_steps`; they do not count as environment steps.
      n_step: Largest number of rewards in a target, before its bootstrap.
      replay: Sampling of transitions: "uniform", or "prioritised" in proportion to the last error.
      normalise_observation: Whether observations are normalised by running mean and variance.
      reset_pool: Number of fresh states for each environment and iteration; None allows for a reset
        every 8 steps.
      time_limits: Treatment of time limits: "bootstrap" from the value of the last observation, or "terminal", which
        treats the limit as an end of value 0; then the observation should include the remaining time, see
        `envs.wrappers.time_feature`.
      gamma: Not a field; discounts are hyper-parameters.
    """

    num_envs: int = 4
    num_steps: int = 4
    num_updates: int = 2
    batch_size: int = 128
    buffer_size: int = 16_384
    warm_up: int = 1_024
    n_step: int = 1
    replay: Literal["uniform", "prioritised"] = "uniform"
    normalise_observation: bool = False
    reset_pool: int | None = None
    time_limits: Literal["bootstrap", "terminal"] = "bootstrap"
    gamma: dataclasses.InitVar[None] = None

    def __post_init__(self, gamma: None) -> None:
        if gamma is not None:
            raise UserTypeError(f"{GAMMA_HINT}, among the hyper-parameters")
        super().__post_init__()
        for name in ("num_envs", "num_steps", "num_updates", "batch_size", "buffer_size", "warm_up", "n_step"):
            check_count(name, getattr(self, name))
        if self.reset_pool is not None:
            check_count("reset_pool", self.reset_pool)
        check_choice("replay", self.replay, ("uniform", "prioritised"))
        check_choice("time_limits", self.time_limits, ("bootstrap", "terminal"))
        for name in ("buffer_size", "warm_up"):
            if getattr(self, name) % self.steps_per_iteration:
                raise UserValueError(
                    f"{name} takes a multiple of the {self.steps_per_iteration} transitions of an iteration "
                    f"(num_envs * num_steps), got {getattr(self, name)}"
                )
        for name, least in self._needed.items():
            if self.buffer_size < least:
                raise UserValueError(
                    f"buffer_size takes at least the {least} transitions of {name}, got {self.buffer_size}"
                )
        if self.shared_trunk:
            raise UserValueError("shared_trunk has no effect without both an actor and a critic; leave it out")
        if self.memory != "none":
            raise UserValueError(
                f"memory takes 'none' where transitions are drawn one by one from a buffer, got {self.memory!r}"
            )

    @property
    def steps_per_iteration(self) -> int:
        """Number of environment steps of one iteration."""
        return self.num_envs * self.num_steps

    @property
    def _needed(self) -> dict[str, int]:
        """Numbers of transitions that a buffer holds at least, by the fields that require them."""
        return {
            "batch_size": self.batch_size,
            "warm_up": self.warm_up,
            "n_step * num_envs": self.n_step * self.num_envs,
        }

    @property
    def least_buffer(self) -> int:
        """Smallest `buffer_size` that the other fields allow, apart from multiples."""
        return max(self._needed.values())

    @property
    def capacity(self) -> int:
        """Number of slots of the buffer, each with one transition of every environment."""
        return self.buffer_size // self.num_envs


@struct.dataclass
class OffPolicyHParams(Settings):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Step size of Adam.
      discount: Discount of rewards: a number (exponential), a string such as "beta:mu=0.98,eta=0.5", or a Discount.
      max_grad_norm: Global norm to which gradients are clipped; infinite disables clipping.
      adam_b1: Decay rate of the first moment in Adam.
      adam_b2: Decay rate of the second moment in Adam.
      adam_eps: Constant in the denominator of Adam.
      observation_clip: Bound of normalised observations.
      priority_alpha: Exponent of priorities, in [0, 1]; 0 draws uniformly.
      priority_beta: Exponent of importance weights, in [0, 1]; 1 corrects the bias of priorities fully.
      gamma: Not a field; use `discount`.

    `observation_clip`, `priority_alpha` and `priority_beta` are None in `Algorithm.hparams` where they have no effect.
    """

    lr: Any = 1e-3
    discount: Any = Exponential(0.99)
    max_grad_norm: Any = 10.0
    adam_b1: Any = 0.9
    adam_b2: Any = 0.999
    adam_eps: Any = 1e-5
    observation_clip: Any = 10.0
    priority_alpha: Any = 0.6
    priority_beta: Any = 0.5
    gamma: dataclasses.InitVar[None] = None

    def __post_init__(self, gamma: None) -> None:
        check_hparams(self, gamma, _RANGES)


_RANGES = {
    **dict.fromkeys(("lr", "adam_eps"), Range(0, INFINITE, "[)")),
    **dict.fromkeys(("max_grad_norm", "observation_clip"), Range(0, INFINITE)),
    **dict.fromkeys(("adam_b1", "adam_b2"), Range(0, 1, "[)")),
    **dict.fromkeys(("priority_alpha", "priority_beta"), Range(0, 1)),
}
