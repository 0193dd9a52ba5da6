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

from envs.arguments import check_count, check_flag
from envs.cooperation.characters import LEAST_RATIONALITY, Character, Characters, draw_characters
from envs.cooperation.learned import Learned, learned, learned_characters
from envs.cooperation.pairs import Pair
from envs.errors import UserTypeError, UserValueError
from envs.settings import in_own_settings
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.actor import Actor
from jaxrl.pytrees import EnvParams, Memory, Policy
from jaxrl.results.dataset import UNKNOWN
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result

# Number of characters drawn by default.
NUM_CHARACTERS = 64

__all__ = ["Partners", "load_partners"]


class Partners(NamedTuple):
    """Trained partners of one task.

    Attributes:
      task: Task with the partners inside, for one agent to learn; equal for partners of equal networks and number.
      env_params: Parameters of the task with these partners, all as frequent; `population` holds the arrays.
      names: Origin of each partner: its run directory, setting and seed, and the traits of its character.
    """

    task: Pair
    env_params: EnvParams
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


@in_own_settings
def load_partners(
    sources: str | Path | Result | Sequence[str | Path | Result],
    *,
    greedy: bool = False,
    characters: int | Character | None = None,
    algo: Algorithm | None = None,
    allow: Sequence[str] = (),
) -> Partners:
    """Every run of results in self-play as a partner inside the same task; failed runs are left out.

    Runs of a task whose agent has a character, such as `cooperation/levers-characters`, give a partner for each of many
    characters, which have the networks of the runs in turn. Other parameters of the task are the defaults.

    Args:
      sources: Run directory or result, or several, of one algorithm in one task, in self-play or with characters, such
        as `cooperation/levers-self-play`. Results of one run after several lengths of training are stages of its
        agents.
      greedy: Whether partners take the most likely action, except for a character's random ones; otherwise they
        sample.
      characters: Number of characters, drawn from the range of the training by a fixed key, 64 for None; or characters
        with leaves `[P, ...]`, see `envs.cooperation.characters.draw_characters`. None in a task without characters.
      algo: Algorithm of the runs, where it cannot be rebuilt from their files, see `load_result`.
      allow: Names of user modules that results may import, see `load_result`.

    Raises:
      ResultError: A file is missing or damaged.
      TypeError: A run is not of a cooperative task in self-play or with characters, or `characters` is of another type.
      ValueError: Runs are of different algorithms or tasks, or all of them failed; the number of characters is below 1,
        the task has no characters, traits are outside their ranges, or the runs were trained with different ranges.
    """
    check_flag("greedy", greedy)
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
        where = f"{source} "
        if isinstance(source, Result):  # several may be stages of the same runs
            where = f"{int(result.metrics['env_step'][-1]):,} env steps " if len(several) > 1 else ""
        for setting, seed in np.argwhere(good):
            values = "".join(f"{path}={value} " for path, value in result.settings[setting].items())
            names.append(f"{where}{values}seed={result.seeds[seed]}")
    if not names:
        raise UserValueError("sources must have at least one partner, got failed runs only")
    params = jax.tree.map(lambda *leaves: np.concatenate(leaves), *policies)
    functions, task = _functions(first.actor, greedy), first.env
    if isinstance(task, Characters):
        task = task.task
        chosen = _characters(task, characters, results)
        partner, population = learned_characters(*functions, params, chosen)
    elif characters is not None:
        raise UserValueError(
            f"characters have no effect in {task.name}, whose agents have no character; leave them out"
        )
    else:
        partner, population = learned(*functions, params)
    task = dataclasses.replace(task, partner=partner)
    weights = np.ones(partner.num_members, np.float32)
    env_params = task.default_params.replace(population=population, weights=weights)
    task.check_params(env_params)
    if isinstance(first.env, Characters):
        texts = zip(population["network"], _texts(population["characters"]), strict=True)
        names = [f"{names[network]} {text}" for network, text in texts]
    return Partners(task, env_params, tuple(names))


def _characters(task: Pair, characters: int | Character | None, results: Sequence[Result]) -> Character:
    """The characters of partners: these, or a number of random ones from the range of the training."""
    if isinstance(characters, Character):
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), characters)
    count = NUM_CHARACTERS if characters is None else characters
    if not isinstance(count, int):
        raise UserTypeError(f"characters takes a number, or an envs.cooperation.characters.Character, got {count!r}")
    check_count("characters", count)
    used = [LEAST_RATIONALITY if each.env_params is None else each.env_params.least_rationality for each in results]
    least = np.unique(np.concatenate([np.ravel(np.float32(each)) for each in used]))
    if len(least) > 1:
        raise UserValueError(
            f"sources must have one least_rationality for characters to be drawn, got {', '.join(map(str, least))}; "
            "otherwise characters takes the characters themselves"
        )
    return jax.tree.map(np.asarray, draw_characters(jax.random.key(0), task, count, least[0]))


def _texts(characters: Character) -> list[str]:
    """The traits of each character as text."""
    weights = [",".join(f"{value:.2f}" for value in row) for row in characters.weights]
    traits = zip(weights, characters.order, characters.patience, characters.rationality, strict=True)
    return [f"weights={w} order={o:.2f} patience={p:.2f} rationality={r:.2f}" for w, o, p, r in traits]


def _algorithm(result: Result) -> Any:
    if result.algo is None:
        raise UserValueError(f"the algorithm of a run is unknown: {result.metrics.attrs.get(UNKNOWN)}")
    env = result.algo.env
    if not isinstance(env, Characters) and (not isinstance(env, Pair) or env.inside is not None):
        raise UserTypeError(
            f"load_partners takes runs of a cooperative task in self-play or with characters, such as "
            f"cooperation/levers-self-play, got {env.name}"
        )
    return result.algo


@functools.lru_cache(maxsize=16)  # equal partners share compiled programs
def _functions(actor: Actor, greedy: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def begin(policy: Policy) -> Any:
        return jax.tree.map(jnp.asarray, actor.initial_memory(policy))

    def choose(key: jax.Array, policy: Policy, memory: Memory, obs: jax.Array) -> tuple[jax.Array, Any]:
        scores, memory = actor.scores(policy, memory, obs, None)
        noise = None if greedy else actor.noise(key, ())
        action, _, memory = actor.choose(noise, scores, memory, greedy, None)
        return jnp.asarray(action, jnp.int32), memory

    return begin, choose
