"""Common configuration and hyper-parameters of algorithms that learn action values."""

import dataclasses
from typing import Any, Literal

from flax import struct

from jaxrl.algorithms.transitions_config import INFINITE, TransitionsConfig, TransitionsHParams
from jaxrl.checks import Range, check_choice, check_count
from jaxrl.learning import value_losses

__all__ = ["QConfig", "QHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QConfig(TransitionsConfig):
    """Static configuration of action values.

    Attributes:
      hidden: Widths of the hidden layers.
      activation: Activation function: tanh, relu, leaky_relu, elu, gelu or silu.
      duelling: Whether action values are sums of a state value and an advantage, each with its own hidden layer.
      value_loss: Representation of values and their loss: "squared" or "huber" for a number; "quantile" (QR-DQN) or
        "categorical" (C51) for the distribution of returns; "hl-gauss" for a number as a histogram.
      num_atoms: Number of quantiles, atoms or bins. Bins are at least 6, because 2.25 of them lie beyond each end of
        the support.
      heads: Heads of the network: "single", one head for an exponential discount; "own" or "joint", one head for each
        exponential of a mixture, which bootstraps from the action that is best for its own rate or for the mixture.
      num_heads: Number of exponentials of the mixture.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    duelling: bool = False
    value_loss: value_losses.Kind = "huber"
    num_atoms: int = 51
    heads: Literal["single", "own", "joint"] = "single"
    num_heads: int = 8

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_choice("value_loss", self.value_loss, value_losses.KINDS)
        check_choice("heads", self.heads, ("single", "own", "joint"))
        bins = self.value_loss == "hl-gauss"
        fewest, why = (value_losses.FEWEST_BINS, " with value_loss='hl-gauss'") if bins else (2, "")
        check_count("num_atoms", self.num_atoms, fewest, why=why)
        check_count("num_heads", self.num_heads)
        atoms = self.value_loss not in ("squared", "huber")
        self._refuse_without_effect("num_atoms", f"value_loss={self.value_loss!r}", atoms)
        self._refuse_without_effect("num_heads", f"heads={self.heads!r}", self.heads != "single")

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return {
            "observation_clip": self.normalise_observation,
            "huber_delta": self.value_loss in value_losses.WITH_HUBER,
            **dict.fromkeys(("reward_low", "reward_high"), self.value_loss in value_losses.WITH_SUPPORT),
        }


@struct.dataclass
class QHParams(TransitionsHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      epsilon_start: Probability of a random action at the start of training.
      epsilon_end: Probability of a random action after its linear decay.
      epsilon_anneal_env_steps: Number of environment steps over which the probability decays.
      huber_delta: Absolute error above which the losses "huber" and "quantile" are linear.
      reward_low: Smallest reward of a step, below `reward_high`; times the sum of the discount, it is the lower end of
        the support of "categorical" and "hl-gauss", or 0 where it is positive. The sum is over an episode with
        `time_limits="terminal"`, and else over all time, but at most twice the time limit. The bonus of Munchausen
        Q-learning, down to -`munchausen_alpha` per step, counts as reward.
      reward_high: Largest reward of a step, which determines the upper end of the support in the same way. A narrower
        range is sufficient if large rewards are rare.

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    epsilon_start: Any = 1.0
    epsilon_end: Any = 0.05
    epsilon_anneal_env_steps: Any = 10_000.0
    huber_delta: Any = 1.0
    reward_low: Any = -1.0
    reward_high: Any = 1.0

    ranges = TransitionsHParams.ranges | {
        **dict.fromkeys(("epsilon_start", "epsilon_end"), Range(0, 1)),
        "epsilon_anneal_env_steps": Range(1, INFINITE),
        "huber_delta": Range(1e-6, INFINITE, "[)"),
        **dict.fromkeys(("reward_low", "reward_high"), Range(-INFINITE, INFINITE, "()")),
    }
