"""Common configuration and hyper-parameters of off-policy algorithms."""

import dataclasses
from typing import Any, Literal

from flax import struct

from envs.errors import UserValueError
from jaxrl.algorithms.transitions_config import INFINITE, TransitionsConfig, TransitionsHParams
from jaxrl.checks import Range, check_choice, check_count

__all__ = ["INFINITE", "OffPolicyConfig", "OffPolicyHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(TransitionsConfig):
    """Static configuration of collecting, storing and sampling transitions.

    Attributes:
      num_updates: Number of gradient steps at the end of one iteration.
      batch_size: Number of transitions of one gradient step.
      buffer_size: Number of transitions in the replay buffer, a multiple of `num_envs * num_steps`.
      warm_up: Number of transitions of random actions before the first iteration, a multiple of
        `num_envs * num_steps`; they do not count as environment steps.
      n_step: Largest number of rewards in a target, before its bootstrap.
      replay: Sampling of transitions: "uniform", or "prioritised" in proportion to the last error.
    """

    num_updates: int = 2
    batch_size: int = 128
    buffer_size: int = 16_384
    warm_up: int = 1_024
    n_step: int = 1
    replay: Literal["uniform", "prioritised"] = "uniform"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        for name in ("num_updates", "batch_size", "buffer_size", "warm_up", "n_step"):
            check_count(name, getattr(self, name))
        check_choice("replay", self.replay, ("uniform", "prioritised"))
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

    @property
    def _needed(self) -> dict[str, int]:
        """Smallest numbers of transitions that a buffer must hold, by the fields that require them."""
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
class OffPolicyHParams(TransitionsHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      priority_alpha: Exponent of priorities, in [0, 1]; 0 draws uniformly.
      priority_beta: Exponent of importance weights, in [0, 1]; 1 corrects the bias of priorities within a batch, whose
        weights are scaled so that the largest is 1.

    `priority_alpha` and `priority_beta` are None in `Algorithm.hparams` where they have no effect.
    """

    priority_alpha: Any = 0.6
    priority_beta: Any = 0.5

    ranges = TransitionsHParams.ranges | dict.fromkeys(("priority_alpha", "priority_beta"), Range(0, 1))
