"""Agents with partners held out of training: the effect of a belief about the partner."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import jaxrl
from envs.cooperation.bayes import best_rewards
from envs.cooperation.levers import LeverGame, LeverParams
from envs.cooperation.partners import RULES
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.checks import check_choices, check_counts
from jaxrl.experiments.crowds import estimate
from jaxrl.experiments.partner_play import cross_play_figure, curves_figure, play, reliability
from jaxrl.experiments.study import Experiment, Study
from jaxrl.learning.beliefs import belief_about

if TYPE_CHECKING:
    import pandas
    import xarray

    from jaxrl.results.result import Result

METHODS: dict[str, dict[str, Any]] = {
    "oracle": {"memory": "gru"},
    "feed-forward": {"memory": "none"},
    "GRU": {"memory": "gru"},
    "auxiliary": {"memory": "gru", "belief": "auxiliary"},
    "conditioned": {"memory": "gru", "belief": "conditioned"},
    "random belief": {"memory": "gru", "belief": "random"},
}
# The first two parts of a behaviour, which are discrete.
PARTS = ("rule", "preference")
HELD_OUT_RULES_OF_PREFERENCE = ("alternate", "copy")

__all__ = ["EXPERIMENT", "METHODS", "Settings", "groups"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: methods, held-out partners and lengths of training."""

    methods: tuple[str, ...] = tuple(METHODS)
    """Methods, which differ in the observations, the memory and the belief of the agent."""
    held_out_rule: str = "win-stay"
    """Rule of partners that are held out of training."""
    held_out_preference: int = 3
    """Preference of alternating and copying partners that are held out of training."""
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

    def __post_init__(self):
        check_choices("methods", self.methods, tuple(METHODS))
        check_choices("held_out_rule", (self.held_out_rule,), RULES)
        check_counts(self, held_out_preference=0, num_steps=2, seeds=2, env_steps=1, episodes=1)


def run(settings: Settings, study: Study) -> None:
    """Train every method, play beside every partner, and write tables and figures."""
    task = LeverGame()
    params = _params(task, settings)
    members = groups(params, settings)
    played = {}
    for method in settings.methods:
        file = method.replace(" ", "_")
        result = study.train(
            file,
            _algorithm(method, settings),
            seeds=settings.seeds,
            env_steps=settings.env_steps,
            evals=10,
            eval_episodes=64,
            env_params=_weighted(params, members["training"]),
        )
        played[method] = study.compute(
            f"{file}_play", lambda result=result, method=method: _played(result, method, params, settings)
        )
    payoffs, curve = np.asarray(task._payoffs(params), np.float64), np.ones(settings.num_steps)
    known = np.array([best_rewards(_row(params, i), np.ones(1), payoffs, curve) for i in range(len(params.weights))])
    bayes = {name: _bayes(params, chosen, payoffs, curve) for name, chosen in members.items()}
    caption = (
        f"PPO in the repeated lever game of {settings.num_steps} steps beside scripted partners, {settings.seeds} "
        f"seeds, {settings.env_steps:,} environment steps: interquartile mean of the return beside partners of "
        f"training, of a held-out region of behaviours and of a held-out rule, with its 95 % bootstrap interval. Best "
        f"responses earn "
        + ", ".join(f"{known[chosen].sum(axis=1).mean():.3f} ({name})" for name, chosen in members.items())
        + ", and an agent that knows only the distribution of these partners "
        + ", ".join(f"{rewards.sum():.3f}" for rewards in bayes.values())
        + "."
    )
    study.table("returns", _table(played, members, bayes["training"].sum()), caption)
    regrets = {
        method: (known[None] - data["reward"].values)[:, members["training"]].mean(axis=(0, 1))
        for method, data in played.items()
    }
    regrets["Bayes"] = known[members["training"]].mean(axis=0) - bayes["training"]
    believing = {name: data for name, data in played.items() if "accuracy" in data}
    accuracies = {
        f"{name}, {part}": data["accuracy"].values[:, members["training"], :, k].mean(axis=(0, 1))
        for name, data in believing.items()
        for k, part in enumerate(PARTS)
    }
    bins = {name: (data["bin_confidence"].values, data["bin_share"].values) for name, data in believing.items()}
    study.table("steps", _steps(regrets, accuracies), "Regret to the best response and accuracy of beliefs, by step.")
    study.figure("adaptation", curves_figure(regrets, accuracies, bins))
    alike = _self_play(settings, study)
    cross = study.compute("cross_play", lambda: _cross_play(alike, settings))
    study.figure("cross_play", cross_play_figure(cross["return"].values, float(settings.num_steps)))


def groups(params: LeverParams, settings: Settings) -> dict[str, np.ndarray]:
    """Indices of the partners of training, of the held-out region and of the held-out rule."""
    rule = np.array([RULES[each] for each in np.asarray(params.population.rule)])
    unmet = np.asarray(params.population.preference) == settings.held_out_preference
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
    algo = jaxrl.ppo(LeverGame(reveals=method == "oracle"), config)
    return algo._replace(hparams=algo.hparams.replace(lr=2e-3, lr_end=0.0, discount=1.0, lam=0.95))


def _played(result: Result, method: str, params: LeverParams, settings: Settings) -> xarray.Dataset:
    """Rewards by seed, partner and step, and the accuracy and calibration of a belief."""
    import xarray

    algo: Any = result.algo
    supervised = METHODS[method].get("belief") in ("auxiliary", "conditioned")
    belief = belief_about(algo.env, ()) if supervised else None
    policies = jax.tree.map(lambda leaf: leaf[0], result.policies)
    got = play(algo.env, algo.actor, policies, params, settings.episodes, settings.num_steps, belief)
    dims = ("run", "partner", "step")
    data: dict[str, Any] = {"reward": (dims, got.reward)}
    if got.right is not None and got.confidence is not None:
        data["accuracy"] = ((*dims, "part"), got.right.mean(axis=2))
        met = groups(params, settings)["training"]
        mean, share, error = reliability(got.right[:, met], got.confidence[:, met])
        data |= {"bin_confidence": ("bin", mean), "bin_share": ("bin", share), "calibration_error": ((), error)}
    return xarray.Dataset(data)


def _self_play(settings: Settings, study: Study) -> Result:
    """Training of agents in self-play."""
    task, base = LeverGame(partner=None), _algorithm("GRU", settings)
    return study.train(
        "self_play",
        jaxrl.ppo(task, base.config)._replace(hparams=base.hparams),
        seeds=settings.seeds,
        env_steps=settings.env_steps // 4,
        evals=2,
        eval_episodes=64,
        env_params=_of_length(task.default_params, settings),
    )


def _cross_play(result: Result, settings: Settings) -> xarray.Dataset:
    """Returns of agents trained in self-play, each paired with every other."""
    import xarray

    algo: Any = result.algo
    partners = jaxrl.load_partners(result, greedy=True)
    policies = jax.tree.map(lambda leaf: leaf[0], result.policies)
    params = _of_length(partners.env_params, settings)
    got = play(partners.task, algo.actor, policies, params, 1, settings.num_steps)
    return xarray.Dataset({"return": (("agent", "partner"), got.reward.sum(axis=-1))})


def _table(played: dict[str, Any], members: dict[str, np.ndarray], bayes: float) -> pandas.DataFrame:
    """A row per method: returns with each group of partners, and the share of the Bayes-optimal return."""
    import pandas

    rows = []
    for method, data in played.items():
        returns = data["reward"].values.sum(axis=-1)
        row: dict[str, Any] = {"method": method}
        row |= {name: estimate(returns[:, chosen].mean(axis=1)) for name, chosen in members.items()}
        row["share of Bayes"] = estimate(returns[:, members["training"]].mean(axis=1) / bayes)
        row["calibration error"] = float(data["calibration_error"]) if "calibration_error" in data else float("nan")
        rows.append(row)
    return pandas.DataFrame(rows)


def _steps(regrets: dict[str, np.ndarray], accuracies: dict[str, np.ndarray]) -> pandas.DataFrame:
    import pandas

    steps = np.arange(1, len(next(iter(regrets.values()))) + 1)
    accuracy = {f"accuracy: {name}": values for name, values in accuracies.items()}
    return pandas.DataFrame({"step": steps, **{f"regret: {name}": each for name, each in regrets.items()}, **accuracy})


EXPERIMENT = Experiment(
    "partners",
    "Agents beside partners they have never met, with and without a belief about them.",
    Settings,
    run,
)
