"""Configuration and hyper-parameters of soft actor-critic."""

import dataclasses
from typing import Any

from flax import struct

from envs.errors import UserValueError
from jaxrl.algorithms.actor_critic_config import ActorCriticConfig, ActorCriticHParams
from jaxrl.algorithms.off_policy_config import INFINITE
from jaxrl.checks import Range

__all__ = ["SACConfig", "SACHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """Static configuration of SAC: changing a field recompiles.

    Attributes:
      automatic_temperature: Whether the temperature adapts to keep the entropy of the policy at its target; otherwise
        it is constant.
    """

    automatic_temperature: bool = True

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        if self.n_step != 1:
            raise UserValueError(
                f"n_step takes 1 where values contain the entropy of every step, got {self.n_step}; td3 takes more"
            )


@struct.dataclass
class SACHParams(ActorCriticHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      temperature: Reward for one nat of entropy; the initial value of an automatic temperature.
      temperature_lr: Step size of Adam for the logarithm of the temperature.
      target_entropy_fraction: Target entropy as a fraction of a reference: for continuous actions scaled to [-1, 1], -1
        nat per component; for discrete actions, the logarithm of the number of allowed actions. None stands for 1 with
        continuous actions and 0.5 with discrete ones, the number in `Algorithm.hparams`.
    """

    temperature: Any = 1.0
    temperature_lr: Any = 1e-3
    target_entropy_fraction: Any = None

    ranges = ActorCriticHParams.ranges | {
        "temperature": Range(1e-30, INFINITE, "[)"),
        "temperature_lr": Range(0, INFINITE, "[)"),
        "target_entropy_fraction": Range(-INFINITE, INFINITE, "()"),
    }
