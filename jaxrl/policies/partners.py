"""Trained policies as partners inside a cooperative task."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.cooperation.learned import Learned, learned
from envs.cooperation.pairs import Pair
from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.actor import Actor
from jaxrl.results.dataset import UNKNOWN
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result

__all__ = ["Partners", "load_partners"]


class Partners(NamedTuple):
    """Trained partners of one task.

    Attributes:
      task: Task with the partners inside, for one agent to learn; equal for partners of equal networks and number.
      env_params: Parameters of the task with these partners, all as frequent; `population` holds the arrays.
      names: Origin of each partner: its run directory, setting and seed.
    """

    task: Pair
    env_params: Any
    names: tuple[str, ...]

    @property
    def partner(self) -> Learned:
        """The static part of the partners."""
        partner = self.task.inside
        assert isinstance(partner, Learned)
        return partner

    def __repr__(self) -> str:
        more = ", ..." if len(self.names) > 3 else ""
        return f"Partners({len(self.names)} in {self.task.name}: {', '.join(self.names[:3])}{more})"


def load_partners(
    sources: str | Path | Result | Sequence[str | Path | Result],
    *,
    greedy: bool = False,
    algo: Algorithm | None = None,
    allow: Sequence[str] = (),
) -> Partners:
    """Every run of results in self-play as a partner inside the same task; failed runs are left out.

    Args:
      sources: Run directory or result, or several, of one algorithm in one task in self-play, such as
        `cooperation/levers-self-play`.
      greedy: Whether partners take the most likely action; otherwise they sample.
      algo: Algorithm of the runs, where it cannot be rebuilt from their files, see `load_result`.
      allow: Names of user modules that results may import, see `load_result`.

    Raises:
      ResultError: A file is missing or damaged.
      TypeError: A run is not of a cooperative task in self-play.
      ValueError: Runs are of different algorithms or tasks, or there is none that did not fail.
    """
    several = [sources] if isinstance(sources, str | Path | Result) else list(sources)
    results = [each if isinstance(each, Result) else load_result(each, algo, allow=tuple(allow)) for each in several]
    if not results:
        raise UserValueError("sources takes at least one run directory or result, got none")
    first = _algorithm(results[0])
    policies, names = [], []
    for source, result in zip(several, results, strict=True):
        own = _algorithm(result)
        if (own.env, own.actor) != (first.env, first.actor):
            raise UserValueError(f"sources must be runs of one algorithm in one task, got {first!r} and {own!r}")
        good = ~result.failed_runs()
        policies.append(jax.tree.map(lambda leaf, good=good: np.asarray(leaf)[good], result.policies))
        where = "" if isinstance(source, Result) else f"{source} "
        for setting, seed in np.argwhere(good):
            values = "".join(f"{path}={value} " for path, value in result.settings[setting].items())
            names.append(f"{where}{values}seed={result.seeds[seed]}")
    if not names:
        raise UserValueError("sources must have at least one partner, got failed runs only")
    params = jax.tree.map(lambda *leaves: np.concatenate(leaves), *policies)
    partner, population = learned(*_functions(first.actor, greedy), params)
    task = dataclasses.replace(first.env, partner=partner)
    env_params = task.default_params.replace(population=population, weights=np.ones(len(names), np.float32))
    return Partners(task, env_params, tuple(names))


def _algorithm(result: Result) -> Any:
    if result.algo is None:
        raise UserValueError(f"the algorithm of a run is unknown: {result.metrics.attrs.get(UNKNOWN)}")
    env = result.algo.env
    if not isinstance(env, Pair) or env.inside is not None:
        raise UserTypeError(
            f"load_partners takes runs of a cooperative task in self-play, such as cooperation/levers-self-play, got "
            f"{env.name}"
        )
    return result.algo


@functools.lru_cache(maxsize=16)  # equal partners share compiled programs
def _functions(actor: Actor, greedy: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def begin(policy: Any) -> Any:
        return jax.tree.map(jnp.asarray, actor.start(policy))

    def choose(key: jax.Array, policy: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any]:
        scores, memory = actor.scores(policy, memory, obs, None)
        noise = None if greedy else actor.noise(key, ())
        action, _, memory = actor.choose(noise, scores, memory, greedy, None)
        return jnp.asarray(action, jnp.int32), memory

    return begin, choose
