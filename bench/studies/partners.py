"""Agents with partners held out of training: the effect of a belief about the partner."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import jaxrl
from bench.studies.partner_play import cross_play_figure, curves_figure, of_good_runs, play, reliability
from bench.studies.partners_report import (
    ADAPTATION,
    IMPROVEMENT,
    adaptation_table,
    improvement_table,
    returns_table,
    steps_table,
)
from bench.studies.study import Study, StudyRun
from envs.cooperation.bayes import best_rewards
from envs.cooperation.levers import LeverGame, LeverParams
from envs.cooperation.partners import RULES
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.checks import check_choices, check_count, check_counts
from jaxrl.learning.beliefs import belief_about

if TYPE_CHECKING:
    import xarray

    from jaxrl.results.result import Result

METHODS: dict[str, dict[str, Any]] = {
    "oracle": {"memory": "gru"},
    "feed-forward": {"memory": "none"},
    "GRU": {"memory": "gru"},
    "auxiliary": {"memory": "gru", "belief": "auxiliary"},
    "conditioned": {"memory": "gru", "belief": "conditioned"},
    "staged": {"memory": "gru", "belief": "staged"},
    "random belief": {"memory": "gru", "belief": "random"},
}
# The first two parts of a behaviour, which are discrete.
PARTS = ("rule", "preference")
HELD_OUT_RULES_OF_PREFERENCE = ("alternate", "copy")
# Share of the run that trains a staged belief.
FIRST_STAGE = 0.25

__all__ = ["METHODS", "STUDY", "Settings", "groups"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: methods, held-out partners and lengths of training."""

    methods: tuple[str, ...] = tuple(METHODS)
    """Methods, which differ in the observations, the memory and the belief of the agent."""
    held_out_rule: str = "win-stay"
    """Rule of partners that are held out of training."""
    held_out_preferences: tuple[int, ...] = (3, 7)
    """Preferences of alternating and copying partners that are held out of training."""
    num_levers: int = 10
    """Number of levers; every rule with every preferred lever is a partner."""
    rate: float = 0.0
    """Probability of a random lever of every partner; above 0, exact values require fewer steps than the default."""
    num_steps: int = 8
    """Number of steps of an episode."""
    seeds: int = 16
    """Number of seeds of every method."""
    env_steps: int = 400_000
    """Number of environment steps of a run."""
    episodes: int = 16
    """Number of episodes of every seed with every partner, played greedily."""

    def __post_init__(self) -> None:
        check_choices("methods", self.methods, tuple(METHODS))
        check_choices("held_out_rule", (self.held_out_rule,), RULES)
        for preference in self.held_out_preferences:
            check_count("held_out_preferences", preference, 0, self.num_levers - 1, ", the last lever")
        check_counts(self, num_levers=2, num_steps=2, seeds=2, env_steps=1, episodes=1)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every method, play beside every partner, and write tables and figures."""
    task = LeverGame(num_levers=settings.num_levers)
    params = _params(task, settings)
    members = groups(params, settings)
    payoffs, curve = np.asarray(task._payoffs(params), np.float64), np.ones(settings.num_steps)
    # Before any training: too many partners, steps or rates are refused here.
    bayes = {name: _bayes(params, chosen, payoffs, curve) for name, chosen in members.items()}
    known = np.array([best_rewards(_row(params, i), np.ones(1), payoffs, curve) for i in range(len(params.weights))])

    @functools.cache  # trained only for parts that are not finished
    def strangers() -> tuple[Result, jaxrl.Partners]:
        alike = _self_play(settings, study)
        return alike, jaxrl.load_partners(alike, greedy=True)

    played = {}
    for method in settings.methods:
        file = method.replace(" ", "_")

        def play_after_training(method: str = method, file: str = file) -> xarray.Dataset:
            weighted = _weighted(params, members["training"])
            sizes: Any = {"seeds": settings.seeds, "env_steps": settings.env_steps, "evals": 20, "eval_episodes": 64}
            result = study.train(file, _algorithm(method, settings), env_params=weighted, **sizes)
            return _played(result, method, params, strangers()[1], settings)

        played[method] = study.compute(f"{file}_play", play_after_training)
    caption = (
        f"PPO in the repeated lever game of {settings.num_levers} levers and {settings.num_steps} steps beside "
        f"{len(params.weights)} scripted partners, {settings.seeds} seeds, {settings.env_steps:,} environment steps: "
        f"interquartile mean of the return beside partners of training, of a held-out region of behaviours, of a "
        f"held-out rule, and trained in self-play, with its 95 % bootstrap interval. Best responses earn "
        + ", ".join(f"{known[chosen].sum(axis=1).mean():.3f} ({name})" for name, chosen in members.items())
        + ", and an agent that knows only the distribution of these partners "
        + ", ".join(f"{rewards.sum():.3f}" for rewards in bayes.values())
        + "."
    )
    study.table("returns", returns_table(played, members, known, bayes["training"].sum()), caption)
    against = [name for name in ("conditioned", "staged", "auxiliary") if name in played and "GRU" in played]
    if against:
        study.table("improvement", improvement_table(played, members, against), IMPROVEMENT)
    if "oracle" in settings.methods:
        study.table("adaptation", adaptation_table(played, members["training"]), ADAPTATION)
    regrets = {
        method: np.nanmean((known[None] - data["reward"].values)[:, members["training"]], axis=(0, 1))
        for method, data in played.items()
    }
    regrets["Bayes"] = known[members["training"]].mean(axis=0) - bayes["training"]
    believing = {name: data for name, data in played.items() if "accuracy" in data}
    accuracies = {
        f"{name}, {part}": np.nanmean(data["accuracy"].values[:, members["training"], :, k], axis=(0, 1))
        for name, data in believing.items()
        for k, part in enumerate(PARTS)
    }
    bins = {name: (data["bin_confidence"].values, data["bin_share"].values) for name, data in believing.items()}
    study.table(
        "steps", steps_table(regrets, accuracies), "Regret to the best response and accuracy of beliefs, by step."
    )
    study.figure("adaptation", curves_figure(regrets, accuracies, bins))
    cross = study.compute("cross_play", lambda: _cross_play(*strangers(), settings))
    study.figure("cross_play", cross_play_figure(cross["return"].values, float(settings.num_steps)))


def groups(params: LeverParams, settings: Settings) -> dict[str, np.ndarray]:
    """Indices of the partners of training, of the held-out region and of the held-out rule."""
    rule = np.array([RULES[each] for each in np.asarray(params.population.rule)])
    unmet = np.isin(np.asarray(params.population.preference), settings.held_out_preferences)
    region = unmet & np.isin(rule, HELD_OUT_RULES_OF_PREFERENCE) & (rule != settings.held_out_rule)
    new_rule = rule == settings.held_out_rule
    chosen = {"training": ~region & ~new_rule, "held-out region": region, "held-out rule": new_rule}
    return {name: np.flatnonzero(which) for name, which in chosen.items() if which.any()}


def _params(task: LeverGame, settings: Settings) -> LeverParams:
    params = task.default_params
    rates = np.full(len(params.weights), settings.rate, np.float32)
    population = params.population.replace(rate=rates)
    return _of_length(dataclasses.replace(params, population=population), settings)


def _of_length(params: LeverParams, settings: Settings) -> LeverParams:
    return dataclasses.replace(params, num_steps=settings.num_steps, max_steps_in_episode=settings.num_steps)


def _weighted(params: LeverParams, chosen: np.ndarray) -> LeverParams:
    return dataclasses.replace(params, weights=np.float32(np.isin(np.arange(len(params.weights)), chosen)))


def _row(params: LeverParams, index: Any) -> Any:
    return jax.tree.map(lambda leaf: np.atleast_1d(leaf[index]), params.population)


def _bayes(params: LeverParams, chosen: np.ndarray, payoffs: np.ndarray, curve: np.ndarray) -> np.ndarray:
    return best_rewards(_row(params, chosen), np.ones(len(chosen)), payoffs, curve)


def _algorithm(method: str, settings: Settings) -> jaxrl.Algorithm:
    memory = {"memory_size": 32} if METHODS[method]["memory"] != "none" else {}
    sizes: Any = {"num_envs": 64, "num_steps": 2 * settings.num_steps, "num_minibatches": 4, "hidden": (32,)}
    config = PPOConfig(**sizes, **memory, **METHODS[method])
    algo = jaxrl.ppo(LeverGame(num_levers=settings.num_levers, reveals=method == "oracle"), config)
    hparams = algo.hparams.replace(lr=2e-3, lr_end=0.0, discount=1.0, lam=0.95)
    if hparams.belief_env_steps is not None:
        hparams = hparams.replace(belief_env_steps=FIRST_STAGE * settings.env_steps)
    return algo._replace(hparams=hparams)


def _played(
    result: Result, method: str, params: LeverParams, strangers: jaxrl.Partners, settings: Settings
) -> xarray.Dataset:
    """Rewards by seed, partner and step, returns over training, and the accuracy and calibration of a belief.

    Values of failed runs are nan.
    """
    import xarray

    algo: Any = result.algo
    belief = None if METHODS[method].get("belief") in (None, "random") else belief_about(algo.env, ())
    policies = jax.tree.map(lambda leaf: leaf[0], result.policies)
    got = play(algo.env, algo.actor, policies, params, settings.episodes, settings.num_steps, belief)
    dims = ("run", "partner", "step")
    data: dict[str, Any] = {"reward": (dims, np.float32(of_good_runs(result, got.reward)))}
    data["trained_return"] = (("run", "env_step"), np.float32(of_good_runs(result, result.values("return")[0])))
    if not algo.env.reveals:  # a partner of self-play has no rule to reveal
        beside = play(
            strangers.task, algo.actor, policies, _of_length(strangers.env_params, settings), 1, settings.num_steps
        )
        data["stranger_reward"] = (("run", "stranger", "step"), np.float32(of_good_runs(result, beside.reward)))
    if got.right is not None and got.confidence is not None:
        data["accuracy"] = ((*dims, "part"), np.float32(of_good_runs(result, got.right.mean(axis=2))))
        judged = np.ix_(~result.failed_runs()[0], groups(params, settings)["training"])
        mean, share, error = reliability(got.right[judged], got.confidence[judged])
        data |= {"bin_confidence": ("bin", mean), "bin_share": ("bin", share), "calibration_error": ((), error)}
    return xarray.Dataset(data, {"env_step": result.metrics["env_step"].values})


def _self_play(settings: Settings, study: StudyRun) -> Result:
    """Training of agents in self-play."""
    task, base = LeverGame(num_levers=settings.num_levers, partner=None), _algorithm("GRU", settings)
    return study.train(
        "self_play",
        jaxrl.ppo(task, base.config)._replace(hparams=base.hparams),
        seeds=settings.seeds,
        env_steps=settings.env_steps // 4,
        evals=2,
        eval_episodes=64,
        env_params=_of_length(task.default_params, settings),
    )


def _cross_play(alike: Result, strangers: jaxrl.Partners, settings: Settings) -> xarray.Dataset:
    """Returns of agents trained in self-play, each paired with every other; nan for failed runs."""
    import xarray

    algo: Any = alike.algo
    good = ~alike.failed_runs()[0]  # those that are partners
    policies = jax.tree.map(lambda leaf: leaf[0, good], alike.policies)
    params = _of_length(strangers.env_params, settings)
    got = play(strangers.task, algo.actor, policies, params, 1, settings.num_steps)
    returns = np.full((len(good), len(good)), np.nan)
    returns[np.ix_(good, good)] = got.reward.sum(axis=-1)
    return xarray.Dataset({"return": (("agent", "partner"), returns)})


STUDY = Study(
    "partners",
    "Agents beside partners they have never met, with and without a belief about them.",
    Settings,
    run,
)
