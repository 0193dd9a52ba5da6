"""Protocols of trackers and of the calls that they follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from jaxrl.results.description import Description
from jaxrl.results.result import Result

OnChunk = Callable[[int, Mapping[str, np.ndarray]], None]


class FollowedCall(Protocol):
    """A call as trackers see it."""

    @property
    def seeds(self) -> Sequence[int]:
        """Seeds of the call."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """`(num_settings, num_seeds)`."""
        ...

    @property
    def env_steps(self) -> int:
        """Number of environment steps of each run."""
        ...

    @property
    def eval_steps(self) -> Sequence[int]:
        """Environment steps at the evaluations."""
        ...

    def description(self) -> Description:
        """Description of the call."""
        ...


class Tracker(Protocol):
    """A tracker of a call, called at the start, at each evaluation, and at the end.

    A tracker may have three more methods: `check(call)`, which raises an error before anything is compiled;
    `policies(env_step, runs, policies)`, which gets the policies of an evaluation and returns the position of each
    setting with its film (`jaxrl.policies.films.Films`); and `film(env_step, setting, path)`, which gets the films of
    other trackers.
    """

    def start(self, call: FollowedCall, resumed: int | None) -> None:
        """Called before anything is computed; `resumed` is the environment step to resume from, None for a new call."""
        ...

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Called at each evaluation, with the arguments of `on_chunk`."""
        ...

    def finish(self, result: Result | None) -> None:
        """Called at the end with the result, or None if an error ended the call."""
        ...
