"""Films while runs train: a tracker that plays the policies of evaluations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.files import writing
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_count
from jaxrl.policies.crowds import at_end
from jaxrl.policies.rendering import render
from jaxrl.pytrees import Policy
from jaxrl.results.policy import TrainedPolicy
from jaxrl.tracking.runs import labels
from jaxrl.tracking.tracker import FollowedCall

__all__ = ["Films", "films"]


def films(directory: str | Path, *, every: int = 1, fps: int = 30) -> Films:
    """Films of the first run of each setting while a call trains, for its `trackers`.

    A film shows one greedy episode of the policy of an evaluation, with the same random key each time, and so from the
    same first state, unless parameters of the environment follow a schedule, such as draws that widen. Training waits
    for it, and is otherwise not affected. Trackers that show films, such as those of `jaxrl.tracking` other than CSV
    files, show these as well.

    Args:
      directory: Directory of the films, `env-step-N.gif`, with a subdirectory for each of several settings.
      every: Number of evaluations from one film to the next; the last evaluation has one in any case.
      fps: Frames per second.

    Raises:
      ValueError: `directory` is the name of a film, or `every` or `fps` is not a whole number of at least 1.
    """
    return Films(directory, every, fps)


class Films:
    """The tracker of `films`."""

    def __init__(self, directory: str | Path, every: int = 1, fps: int = 30) -> None:
        check_count("every", every)
        check_count("fps", fps)
        if Path(directory).suffix.lower() in (".gif", ".mp4"):
            raise UserValueError(
                f"directory takes a directory, for one film or more, got {str(directory)!r}; jaxrl.render writes one"
            )
        self._directory, self._every, self._fps = Path(directory), every, fps

    def check(self, call: FollowedCall) -> None:
        """Check that the environment can be drawn, before anything is compiled."""
        from envs.rendering import Scene

        described = call.description()
        if not isinstance(described.algo, Algorithm):
            raise UserTypeError("films takes a call of jaxrl.train; bandits have no policies to play")
        self._described, self._algo, self._steps = described, described.algo, list(call.eval_steps)
        Scene(described.algo.env, self._params(0))
        names = labels(described.settings)
        self._places = [re.sub(r'[<>:"/\\|?*\x00-\x1f]', "_", name) if len(names) > 1 else "" for name in names]

    def start(self, call: FollowedCall, resumed: int | None) -> None:
        """Do nothing at the start."""

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Do nothing with the metrics."""

    def finish(self, result: Any) -> None:
        """Do nothing at the end."""

    def policies(
        self, env_step: int, runs: tuple[np.ndarray, np.ndarray], policies: Callable[[], Policy]
    ) -> Iterator[tuple[int, Path]]:
        """Write the films of an evaluation.

        Args:
          env_step: Environment steps at the evaluation.
          runs: Positions of the settings and of the seeds that were evaluated.
          policies: Function that returns their policies, leaves `[settings, seeds, ...]`.

        Yields:
          The position of each setting, and its film.
        """
        settings, seeds = runs
        first = np.flatnonzero(np.asarray(seeds) == 0)
        number = self._steps.index(env_step) + 1 if env_step in self._steps else 0  # 0 after a signal between two
        if not first.size or (number % self._every and env_step != self._steps[-1]) or not number:
            return
        every = policies()
        for position, setting in enumerate(np.asarray(settings).tolist()):
            params = jax.tree.map(lambda leaf, at=position: leaf[at, first[0]], every)
            policy = TrainedPolicy(
                self._algo, params, self._described.settings[setting], self._described.seeds[0], None, env_step
            )
            folder = self._directory / self._places[setting]
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"env-step-{env_step}.gif"
            env = self._algo.env
            render(env, policy, file, env_params=at_end(env, self._params(setting), env_step), fps=self._fps)
            yield setting, file

    def _params(self, setting: int) -> Any:
        """Parameters of the environment of a setting."""
        params = self._described.env_params
        return self._algo.env.default_params if params is None else jax.tree.map(lambda leaf: leaf[setting], params)
