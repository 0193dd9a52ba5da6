"""Configuration and hyper-parameters of algorithms that draw transitions from a replay buffer."""

import dataclasses
from typing import Any, Literal

from flax import struct

from envs.errors import UserValueError
from jaxrl.algorithms.rollout_config import RolloutConfig, TransitionsHParams
from jaxrl.checks import Range, check_choice, check_count

__all__ = ["OffPolicyConfig", "OffPolicyHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(RolloutConfig):
    """Static configuration of collecting, storing and sampling transitions.

    Attributes:
      num_updates: Number of gradient steps at the end of one iteration.
      batch_size: Number of transitions of one gradient step; with a memory, the steps of the burn-in are included.
      buffer_size: Number of transitions in the replay buffer, rounded up to a multiple of `num_envs * num_steps`.
      prefill: Number of transitions of random actions before the first iteration, rounded up as `buffer_size` is; they
        do not count as environment steps.
      n_step: Largest number of rewards in a target, before its bootstrap.
      sequence_length: Number of consecutive steps of one environment from which a policy with a memory learns at once,
        also across ends of episodes, where the memory is reset. A batch has `batch_size / sequence_length` sequences.
        They begin at stored memories, of which there is one every few steps: at most half of the steps that are learned
        from, and a divisor of `num_steps`.
      burn_in: Number of first steps of a sequence from which the memory is computed anew, without learning from them.
      replay: Sampling of transitions: "uniform", or "prioritised" in proportion to the last error.
      replay_storage: Storage of observations: "transitions", both of every transition; "frames", each one once, and of
        `envs.wrappers.frame_stack` only the newest frame, from which the same transitions are drawn, apart from
        observations after an end whose value does not count; or "auto", frames for images and stacks where they take
        less memory.
    """

    num_updates: int = 2
    batch_size: int = 128
    buffer_size: int = 16_384
    prefill: int = 1_024
    n_step: int = 1
    sequence_length: int = 16
    burn_in: int = 0
    replay: Literal["uniform", "prioritised"] = "uniform"
    replay_storage: Literal["auto", "frames", "transitions"] = "auto"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        self._refuse_shared_trunk()
        for name in ("num_updates", "batch_size", "buffer_size", "prefill", "n_step", "sequence_length"):
            check_count(name, getattr(self, name))
        check_count("burn_in", self.burn_in, 0)
        check_choice("replay", self.replay, ("uniform", "prioritised"))
        check_choice("replay_storage", self.replay_storage, ("auto", "frames", "transitions"))
        for name, least in self._needed.items():
            if self.num_stored < least:
                raise UserValueError(
                    f"buffer_size takes at least the {least} transitions of {name}, got {self.buffer_size}"
                )
        if self.memory != "none":
            self.check_sequences()

    def check_sequences(self) -> None:
        """Reject fields that do not fit learning from sequences, with a memory.

        Raises:
          ValueError: A sequence is longer than the buffer or the prefill, does not divide a batch, or has no steps
            after its burn-in.
        """
        length, most = self.sequence_length, self.capacity
        if length > most:
            raise UserValueError(
                f"sequence_length takes at most the {most} steps of each environment in the buffer (buffer_size / "
                f"num_envs), got {length}"
            )
        if self.burn_in >= length:
            raise UserValueError(f"burn_in takes less than sequence_length={length}, got {self.burn_in}")
        if self.n_step > length - self.burn_in:
            raise UserValueError(
                f"n_step takes at most the {length - self.burn_in} steps of a sequence after its burn-in "
                f"(sequence_length - burn_in), got {self.n_step}"
            )
        if self.batch_size % length:
            raise UserValueError(
                f"batch_size takes a multiple of sequence_length={length} with a memory, got {self.batch_size}"
            )
        if self.num_prefilled < length * self.num_envs:
            raise UserValueError(
                f"prefill takes at least the {length * self.num_envs} transitions of sequence_length * num_envs with a "
                f"memory, got {self.prefill}"
            )

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | dict.fromkeys(("priority_alpha", "priority_beta"), self.replay == "prioritised")

    @property
    def _needed(self) -> dict[str, int]:
        """Smallest numbers of transitions that a buffer must hold, by the fields that require them."""
        return {
            "batch_size": self.batch_size,
            "prefill": self.num_prefilled,
            "n_step * num_envs": self.n_step * self.num_envs,
        }

    @property
    def least_buffer(self) -> int:
        """Smallest `buffer_size` that the other fields allow, apart from multiples."""
        return max(self._needed.values())

    @property
    def capacity(self) -> int:
        """Number of slots of the buffer, each with one transition of every environment."""
        return self.num_stored // self.num_envs

    @property
    def num_stored(self) -> int:
        """Number of transitions in the buffer: `buffer_size`, rounded up to whole iterations."""
        return self._whole_iterations(self.buffer_size)

    @property
    def num_prefilled(self) -> int:
        """Number of transitions of random actions: `prefill`, rounded up to whole iterations."""
        return self._whole_iterations(self.prefill)

    def _whole_iterations(self, size: int) -> int:
        return -(-size // self.steps_per_iteration) * self.steps_per_iteration


@struct.dataclass
class OffPolicyHParams(TransitionsHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      priority_alpha: Exponent of priorities, in [0, 1]; 0 draws uniformly.
      priority_beta: Exponent of importance weights, in [0, 1]; 1 corrects the bias of priorities within a batch, whose
        weights are scaled so that the largest is 1.
      priority_eta: Share of the largest error of a sequence in its priority, in [0, 1]; the rest is the mean error.
        Without effect on a policy without a memory.

    They are None in `Algorithm.hparams` where they have no effect.
    """

    priority_alpha: Any = 0.6
    priority_beta: Any = 0.5
    priority_eta: Any = 0.9

    ranges = TransitionsHParams.ranges | dict.fromkeys(("priority_alpha", "priority_beta", "priority_eta"), Range(0, 1))
