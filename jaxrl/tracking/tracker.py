"""What follows a call from outside, and what it is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from jaxrl.results.description import Description
from jaxrl.results.result import Result

__all__ = ["FollowedCall", "OnChunk", "Tracker"]

OnChunk = Callable[[int, Mapping[str, np.ndarray]], None]


class FollowedCall(Protocol):
    """A call as trackers see it."""

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds themselves."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """`(num_settings, num_seeds)`."""
        ...

    @property
    def env_steps(self) -> int:
        """Environment steps of each run."""
        ...

    def description(self) -> Description:
        """What the call is."""
        ...


class Tracker(Protocol):
    """What follows a call: it hears of the start, of each evaluation, and of the end."""

    def start(self, call: FollowedCall, resumed: int | None) -> None:
        """The call, before anything is computed, and the environment steps that it resumes from; None begins anew."""
        ...

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """An evaluation, as `on_chunk` gets it."""
        ...

    def finish(self, result: Result | None) -> None:
        """The result, None where an error ended the call."""
        ...
