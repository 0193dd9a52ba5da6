"""Choices of value-based agents and of PPO under a hyperbolic discount, compared with those of exact choosers.

The tasks are those of `envs.decision`, by default a tenth as long and under a discount that falls ten times as fast: a
hyperbolic curve depends on k t alone. Pathworld has no hazard; the discount represents it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from bench.studies.choice_tasks import Task, tasks
from bench.studies.choosers import (
    Chosen,
    Decision,
    naive,
    own_heads,
    precommitted,
    sophisticated,
    value_of,
    walk,
)
from bench.studies.frames import MISSING, interval
from bench.studies.study import Study, StudyRun
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import Range, check_counts, check_range
from jaxrl.discounts.mixtures import with_nodes
from jaxrl.discounts.parsing import Prepared, prepare
from jaxrl.results.statistics import mean

if TYPE_CHECKING:
    import pandas

    from jaxrl.results.result import Result

QUADRATURE, PUBLISHED = "quadrature", "published"
# Highest rate of the published agent, at its k.
PUBLISHED_RATE, PUBLISHED_K = 0.99, 0.01


class Method(NamedTuple):
    """An agent of the study.

    Attributes:
      algorithm: Name of the algorithm.
      fields: Fields of its configuration.
      hparams: Its hyper-parameters besides the discount.
      rule: Rule for the rates and weights of its heads; None for an agent without heads.
    """

    algorithm: str
    fields: dict[str, Any]
    hparams: dict[str, Any]
    rule: str | None = None


_DQN: dict[str, Any] = {
    "num_envs": 16,
    "num_steps": 2,
    "num_updates": 4,
    "batch_size": 32,
    "prefill": 2_048,
    "hidden": (32, 32),
    "value_loss": "squared",
    "target_interval": 50,
}
_EXPLORING = {"lr": 1e-3, "epsilon_end": 0.5, "epsilon_anneal_env_steps": 5_000.0}
_PQN: dict[str, Any] = {"num_envs": 8, "num_epochs": 4, "num_minibatches": 4, "hidden": (32, 32)}
_PPO: dict[str, Any] = {"num_envs": 32, "hidden": (32, 32), "normalise_advantage": "batch"}

METHODS: dict[str, Method] = {
    "DQN, own heads": Method("dqn", _DQN | {"heads": "own"}, _EXPLORING, QUADRATURE),
    "DQN, joint heads": Method("dqn", _DQN | {"heads": "joint"}, _EXPLORING, QUADRATURE),
    "DQN, own heads, published rule": Method("dqn", _DQN | {"heads": "own"}, _EXPLORING, PUBLISHED),
    "PQN, joint heads": Method("pqn", _PQN | {"heads": "joint"}, _EXPLORING | {"lr_end": 0.0, "lam": 0.0}, QUADRATURE),
    "PPO with UGAE": Method("ppo", _PPO, {"lr": 3e-3}),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: the discount, the tasks and lengths of training."""

    k: float = 0.1
    """Rate of the hyperbolic discount 1 / (1 + k t)."""
    num_heads: int = 10
    """Number of exponentials that represent the discount."""
    num_paths: int = 5
    """Number of paths of pathworld; path i pays i after i^2 steps."""
    steps: int = 20
    """Number of steps to the reward of delayed-choice, to the later reward of preference-reversal, whose sooner one is
    half as far, and number of delays of random-dilemmas."""
    tax: float = 0.05
    """Cost of switching in preference-reversal."""
    dilemmas: int = 256
    """Number of random dilemmas by which policies are compared with choosers."""
    seeds: int = 64
    """Number of seeds of every agent; equal seeds share their keys."""
    env_steps: int = 49_152
    """Number of environment steps of a run."""

    def __post_init__(self) -> None:
        check_range("k", self.k, Range(1e-3, 1.0))
        check_range("tax", self.tax, Range(0.0, 1.0))
        check_counts(self, num_heads=2, num_paths=3, steps=2, dilemmas=1, seeds=2, env_steps=1)


def run(settings: Settings, study: StudyRun) -> None:
    """Tabulate curves and exact choosers, train every agent on every task, and compare their choices."""
    study.table("curves", curves(settings), _CURVES)
    every = tasks(settings.steps, settings.num_paths, settings.tax, settings.dilemmas)
    study.table("choosers", choosers(every, settings), _CHOOSERS)
    rows: list[dict[str, Any]] = []
    for task_name, task in every.items():
        for name, method in METHODS.items():
            algo = agent(method, task, settings)
            part = f"{task_name}_{name}".replace(", ", "_").replace(" ", "_")
            result = study.train(
                part,
                algo,
                seeds=settings.seeds,
                env_steps=settings.env_steps,
                evals=1,
                eval_episodes=1,
                env_params=task.params,
            )
            rows.append({"task": task_name, "agent": name} | behaviour(result, task, settings))
    study.table("choices", _frame(rows), _choices_caption(settings))


def published_nodes(k: float, num_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Rates and weights of the published rule: powers of rates g_i = 1 - b^i, weighted by a left Riemann sum.

    1 / (1 + k t) is the integral of (g^k)^t over g in [0, 1]; the last interval reaches up to 1. The highest rate is
    that of the published agent, 0.99 at k = 0.01, at the same k t.

    Returns:
      float64 `[num_heads]` each.

    Source: Fedus et al. (2019), arXiv 1902.06865, and its code.
    """
    top = PUBLISHED_RATE ** (1 / PUBLISHED_K)  # the power g of the highest rate, which k does not change
    grid = 1 - (1 - top) ** (np.arange(num_heads) / num_heads)
    return grid**k, np.diff(np.append(grid, 1.0))


def nodes(rule: str, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Rates and weights of the heads under a rule, float64 `[num_heads]` each."""
    if rule == PUBLISHED:
        return published_nodes(settings.k, settings.num_heads)
    prepared = _prepared(settings)
    return np.asarray(prepared.rates, np.float64), np.asarray(prepared.weights, np.float64)


def _prepared(settings: Settings) -> Prepared:
    """The hyperbolic discount as a mixture with one exponential for each head."""
    return with_nodes(prepare(jaxrl.Hyperbolic(settings.k), _longest(settings)), settings.num_heads, _longest(settings))


def curve(settings: Settings) -> np.ndarray:
    """The hyperbolic curve over the longest episode, float64."""
    return 1 / (1 + settings.k * np.arange(_longest(settings) + 1))


def _longest(settings: Settings) -> int:
    return max(settings.steps + 1, (settings.num_paths - 1) ** 2 + 1)


def agent(method: Method, task: Task, settings: Settings) -> Algorithm:
    """The algorithm of a method on a task, with its hyper-parameters."""
    fields = {"num_steps": _longest(settings)} | method.fields
    if method.rule is not None:
        fields["num_heads"] = settings.num_heads
    make = getattr(jaxrl, method.algorithm)
    algo = make(task.env, type(make(task.env).config)(**fields))
    discount: Any = jaxrl.Hyperbolic(settings.k)
    if method.rule is not None:
        rates, weights = map(np.float32, nodes(method.rule, settings))
        discount = cast(Any, _prepared(settings)).replace(rates=rates, weights=weights)
    return algo._replace(hparams=dataclasses.replace(algo.hparams, discount=discount, **method.hparams))


def curves(settings: Settings) -> pandas.DataFrame:
    """A row for each rule: how its curve differs from the hyperbolic one, and its highest rate and weight."""
    exact = curve(settings)
    rows = []
    for rule in (QUADRATURE, PUBLISHED):
        rates, weights = nodes(rule, settings)
        error = np.abs(rates ** np.arange(len(exact))[:, None] @ weights - exact)
        rows.append(
            {
                "rule": rule,
                "largest error": f"{error.max():.2g}",
                "at step": int(error.argmax()),
                "largest weight": float(weights.max()),
                "at rate": float(rates[weights.argmax()]),
            }
        )
    return _frame(rows)


def exact_choices(task: Task, settings: Settings) -> dict[str, list[Chosen]]:
    """The choices of each exact chooser from each of the first decisions of a task."""
    gamma = curve(settings)
    choices = {
        name: [chooser(first, gamma) for first in task.first]
        for name, chooser in (("precommitted", precommitted), ("naive", naive), ("sophisticated", sophisticated))
    }
    for rule in (QUADRATURE, PUBLISHED):
        choices[f"own heads, {rule}"] = [own_heads(first, gamma, *nodes(rule, settings)) for first in task.first]
    return choices


def choosers(every: dict[str, Task], settings: Settings) -> pandas.DataFrame:
    """A row for each task and exact chooser."""
    rows = []
    for task_name, task in every.items():
        exact = exact_choices(task, settings)
        for name, chosen in exact.items():
            rows.append(
                {
                    "task": task_name,
                    "chooser": name,
                    "choice": _names(task.first[0], chosen[0].path) if len(task.first) == 1 else MISSING,
                    "as precommitted": _agreement(chosen, exact["precommitted"]),
                    "value": float(np.mean([each.value for each in chosen])),
                    "believed": float(np.mean([each.believed for each in chosen])),
                }
            )
    return _frame(rows)


def behaviour(result: Result, task: Task, settings: Settings) -> dict[str, Any]:
    """Greedy choices of the policies of all seeds, compared with those of the exact choosers."""
    gamma, exact = curve(settings), exact_choices(task, settings)
    actions, believed = decisions(result, task)
    good = ~result.failed_runs()[0]
    paths = [
        [walk(first, lambda decision, row=row: int(row[decision.index])) for first in task.first] for row in actions
    ]
    row: dict[str, Any] = {}
    for name in ("precommitted", "naive", "sophisticated"):
        same = [np.mean([path == one.path for path, one in zip(each, exact[name], strict=True)]) for each in paths]
        row[f"as {name}"] = interval(mean, np.asarray(same)[good], 2)
    values = [
        np.mean([value_of(first, gamma, path) for first, path in zip(task.first, each, strict=True)]) for each in paths
    ]
    row["value"] = interval(mean, np.asarray(values)[good], 3)
    row["believed"] = MISSING if believed is None else interval(mean, believed[good], 3)
    return row | {"failed": int(np.sum(~good))}


def decisions(result: Result, task: Task) -> tuple[np.ndarray, np.ndarray | None]:
    """Greedy actions at every decision, int `[seeds, D]`, and the mean value that first ones are given, `[seeds]`."""
    algo = result.algo
    assert algo is not None  # of a call, or loaded with its algorithm
    firsts = np.asarray([first.index for first in task.first])

    @jax.vmap
    def of_seed(policy: Any) -> tuple[jax.Array, Any]:
        scores, _ = algo.actor.scores(policy, algo.actor.initial_memory(policy), task.obs, task.mask)
        action, *_ = algo.actor.choose(None, scores, (), True, task.mask)
        if not (isinstance(scores, dict) and "q" in scores):
            return action, None
        best = jnp.max(jnp.where(task.mask, scores["q"], -jnp.inf), axis=-1)
        return action, jnp.mean(best[firsts])

    actions, believed = of_seed(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), result.policies))
    return np.asarray(actions), None if believed is None else np.asarray(believed, np.float64)


def _agreement(one: list[Chosen], other: list[Chosen]) -> float:
    return float(np.mean([a.path == b.path for a, b in zip(one, other, strict=True)]))


def _names(first: Decision, path: tuple[int, ...]) -> str:
    names, decision = [], first
    for action in path:
        branch = decision.branches[action]
        names.append(branch.name)
        decision = branch.then if branch.then is not None else decision
    return ", ".join(names)


def _frame(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(rows)


_CURVES = (
    "Sums of exponentials that stand for the hyperbolic discount: quadrature, and the published rule of rates spaced "
    "by powers with a left Riemann sum. Largest error over the longest episode, and the largest weight with its rate."
)
_CHOOSERS = (
    "Exact choices by enumeration. 'precommitted' keeps to its first plan, 'naive' plans afresh at every choice, "
    "'sophisticated' foresees its own later choices; 'own heads' add up the values of rates that each assume the plan "
    "best for itself. Value: of the realised choices, under the hyperbolic discount from the start; believed: what the "
    "chooser expects at the start. The share that is as precommitted, and means, are over all dilemmas of a task."
)


def _choices_caption(settings: Settings) -> str:
    return (
        f"Greedy choices after {settings.env_steps:,} environment steps, {settings.seeds} seeds, under "
        f"hyperbolic:k={settings.k:g}: shares of episodes with the choices of each exact chooser, the value of the "
        "choices under the discount, and the value that the agent's own action values state for them, with 95 % "
        "bootstrap intervals over seeds."
    )


STUDY = Study(
    "value-discounts",
    "Choices of DQN and PQN with heads of several rates, and of PPO, compared with those of exact choosers.",
    Settings,
    run,
)
