"""Configuration and hyper-parameters of off-policy actor-critic algorithms."""

import dataclasses
import math
from typing import Any, Literal

from flax import struct

from envs.errors import UserValueError
from jaxrl.algorithms.off_policy_config import INFINITE, OffPolicyConfig, OffPolicyHParams
from jaxrl.checks import Range, check_choice, check_count

__all__ = ["ActorCriticConfig", "ActorCriticHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OffPolicyConfig):
    """Static configuration of a policy and its critics: changing a field recompiles.

    Attributes:
      hidden: Widths of the hidden layers of the policy and of each critic.
      num_critics: Number of critics; targets use the lowest of their values.
      value_loss: Representation of values and their loss: "squared" or "huber" for a number; "quantile" for the
        distribution of returns.
      num_atoms: Number of quantiles.
      dropped_atoms: Number of quantiles per critic that targets drop: the highest among the pooled quantiles of all
        critics (truncated quantile critics, TQC); the policy then maximises the mean of the critics. None for targets
        from the critic with the lowest value.
      heads: Heads of a critic: "single", one for an exponential discount; or "joint", one for each exponential of a
        mixture, all of which evaluate the policy.
      num_heads: Number of exponentials of the mixture.
      noise: Noise of actions: "gaussian", independent at every step, or "ornstein-uhlenbeck", correlated within an
        episode. Discrete actions are sampled with Gumbel noise at the quantiles of this noise, in the warm-up too.
    """

    num_updates: int = 16
    batch_size: int = 256
    buffer_size: int = 65_536
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    num_critics: int = 2
    value_loss: Literal["squared", "huber", "quantile"] = "squared"
    num_atoms: int = 25
    dropped_atoms: int | None = None
    heads: Literal["single", "joint"] = "single"
    num_heads: int = 8
    noise: Literal["gaussian", "ornstein-uhlenbeck"] = "gaussian"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_choice("value_loss", self.value_loss, ("squared", "huber", "quantile"))
        check_choice("heads", self.heads, ("single", "joint"))
        check_choice("noise", self.noise, ("gaussian", "ornstein-uhlenbeck"))
        check_count("num_atoms", self.num_atoms, 2)
        for name in ("num_critics", "num_heads"):
            check_count(name, getattr(self, name))
        self._refuse_without_effect("num_atoms", f"value_loss={self.value_loss!r}", self.value_loss == "quantile")
        self._refuse_without_effect("dropped_atoms", f"value_loss={self.value_loss!r}", self.value_loss == "quantile")
        self._refuse_without_effect("num_heads", f"heads={self.heads!r}", self.heads != "single")
        if self.dropped_atoms is not None:
            check_count("dropped_atoms", self.dropped_atoms, 0)
            if self.dropped_atoms >= self.num_atoms:
                raise UserValueError(
                    f"dropped_atoms takes less than num_atoms={self.num_atoms}, got {self.dropped_atoms}"
                )


@struct.dataclass
class ActorCriticHParams(OffPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Step size of Adam for the critics.
      policy_lr: Step size of Adam for the policy.
      max_grad_norm: Global norm to which the gradients of the critics, of the policy and of the temperature of SAC are
        each clipped; infinity disables clipping.
      target_rate: Step size of target updates, in [0, 1]; 1 copies the online networks.
      huber_delta: Absolute error above which the losses "huber" and "quantile" are linear.
      noise_correlation: Correlation of the noise of two consecutive steps, in [0, 1], with "ornstein-uhlenbeck".

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    policy_lr: Any = 1e-3
    max_grad_norm: Any = math.inf
    adam_eps: Any = 1e-8
    target_rate: Any = 0.005
    huber_delta: Any = 1.0
    noise_correlation: Any = 0.9

    ranges = OffPolicyHParams.ranges | {
        "policy_lr": Range(0, INFINITE, "[)"),
        **dict.fromkeys(("target_rate", "noise_correlation"), Range(0, 1)),
        "huber_delta": Range(1e-6, INFINITE, "[)"),
    }
