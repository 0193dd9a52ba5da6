"""Agents beside partners whose characters they do not observe: the effect of a belief about many continuous traits."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from bench.studies.frames import MISSING, estimate
from bench.studies.partner_play import of_good_runs, play
from bench.studies.partners import METHODS as ALL_METHODS
from bench.studies.partners_report import IMPROVEMENT, improvement_table, with_failures
from bench.studies.study import Study, StudyRun
from envs.cooperation.characters import LEAST_RATIONALITY, Character, Characters, draw_characters, with_characters
from envs.cooperation.levers import LeverGame
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.checks import check_choices, check_counts
from jaxrl.learning.beliefs import belief_about

if TYPE_CHECKING:
    import pandas
    import xarray

    from jaxrl.learning.actor import Actor
    from jaxrl.results.result import Result

METHODS = {name: fields for name, fields in ALL_METHODS.items() if name != "staged"}
# Episodes of each network beside scripted teammates.
NUM_EPISODES = 4_096

__all__ = ["METHODS", "STUDY", "Settings", "explained", "groups"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: methods, characters and lengths of training."""

    methods: tuple[str, ...] = tuple(METHODS)
    """Methods, which differ in the observations, the memory and the belief of the agent."""
    num_levers: int = 4
    """Number of levers."""
    characters: int = 1024
    """Number of characters of partners; those with the largest weight for the last lever are held out of training."""
    networks: int = 2
    """Number of networks of the characters."""
    network_env_steps: int = 3_000_000
    """Number of environment steps in which a network learns to act by any character."""
    seeds: int = 16
    """Number of seeds of every method."""
    env_steps: int = 400_000
    """Number of environment steps of a run."""
    episodes: int = 4
    """Number of episodes of every seed with every partner, played greedily."""

    def __post_init__(self) -> None:
        check_choices("methods", self.methods, tuple(METHODS))
        check_counts(self, num_levers=2, networks=1, network_env_steps=1, seeds=2, env_steps=1, episodes=1)
        check_counts(self, characters=8 * self.num_levers)  # so that there are some in both groups


def run(settings: Settings, study: StudyRun) -> None:
    """Train networks that act by any character, train every method beside them, and write tables."""
    task = LeverGame(num_levers=settings.num_levers)
    drawn = draw_characters(jax.random.key(0), task, settings.characters)
    members, num_steps = groups(drawn), task.default_params.num_steps

    @functools.cache  # trained only for parts that are not finished
    def people() -> tuple[Result, jaxrl.Partners]:
        trained = _population(settings, study)
        return trained, jaxrl.load_partners(trained, characters=drawn)

    habits = study.compute("habits", lambda: _habits(people()[0]))
    study.table("traits", _habits_table(habits), HABITS)
    num_networks = habits.sizes["episode"] // NUM_EPISODES  # that did not fail
    played = {}
    for method in settings.methods:
        file = method.replace(" ", "_")

        def play_after_training(method: str = method, file: str = file) -> xarray.Dataset:
            _, partners = people()
            weights = np.float32(np.isin(np.arange(settings.characters), members["training"]))
            weighted = dataclasses.replace(partners.env_params, weights=weights)
            sizes: Any = {"seeds": settings.seeds, "env_steps": settings.env_steps, "evals": 20, "eval_episodes": 64}
            result = study.train(file, _algorithm(method, partners), env_params=weighted, **sizes)
            return _played(result, method, partners, settings)

        played[method] = study.compute(f"{file}_play", play_after_training)
    caption = (
        f"PPO in the repeated lever game of {settings.num_levers} levers and {num_steps} steps "
        f"beside {settings.characters} partners with characters, which share {num_networks} networks; "
        f"{settings.seeds} seeds of the learner, {settings.env_steps:,} environment steps: interquartile mean of the "
        "return, with its 95 % bootstrap interval over these seeds, and the share of the variance of the partners' "
        "weights that a belief explains before the last step."
    )
    weights = np.asarray(drawn.weights, np.float64)
    study.table("returns", _returns_table(played, members, weights), caption)
    against = [name for name in ("conditioned", "auxiliary", "oracle") if name in played and "GRU" in played]
    if against:
        study.table("improvement", improvement_table(played, members, against), IMPROVEMENT)
    study.table(
        "steps", _steps_table(played, members["training"]), "Mean reward of each method with partners of training."
    )


def groups(characters: Character) -> dict[str, np.ndarray]:
    """Indices of the partners of training, and of those with the largest weight for the last lever, held out of it."""
    favourite = np.argmax(np.asarray(characters.weights), axis=1)
    held_out = favourite == np.shape(characters.weights)[1] - 1
    return {"training": np.flatnonzero(~held_out), "held-out favourite": np.flatnonzero(held_out)}


def _population(settings: Settings, study: StudyRun) -> Result:
    """Training of networks that act by any character, beside scripted teammates."""
    task = with_characters(LeverGame(num_levers=settings.num_levers))
    algo = jaxrl.ppo(task, PPOConfig(num_envs=128, num_steps=16, hidden=(64, 64)))
    hparams = algo.hparams.replace(lr=1e-3, lr_end=0.0, entropy_coef=0.03)
    return study.train(
        "people",
        algo._replace(hparams=hparams),
        seeds=settings.networks,
        env_steps=settings.network_env_steps,
        evals=5,
        eval_episodes=256,
    )


def _algorithm(method: str, partners: jaxrl.Partners) -> jaxrl.Algorithm:
    memory = {"memory_size": 32} if METHODS[method]["memory"] != "none" else {}
    sizes: Any = {"num_envs": 64, "num_steps": 16, "num_minibatches": 4, "hidden": (32,)}
    task = dataclasses.replace(partners.task, reveals=method == "oracle")
    algo = jaxrl.ppo(task, PPOConfig(**sizes, **memory, **METHODS[method]))
    return algo._replace(hparams=algo.hparams.replace(lr=2e-3, lr_end=0.0, discount=1.0, lam=0.95))


def _played(result: Result, method: str, partners: jaxrl.Partners, settings: Settings) -> xarray.Dataset:
    """Rewards by seed, partner and step, and squared errors of a belief about the weights; nan for failed runs."""
    import xarray

    algo: Any = result.algo
    belief = None if METHODS[method].get("belief") in (None, "random") else belief_about(algo.env, ())
    policies = jax.tree.map(lambda leaf: leaf[0], result.policies)
    steps = int(partners.env_params.num_steps)
    got = play(algo.env, algo.actor, policies, partners.env_params, settings.episodes, steps, belief)
    dims = ("run", "partner", "step")
    data: dict[str, Any] = {"reward": (dims, np.float32(of_good_runs(result, got.reward)))}
    if got.error is not None:
        of_weights = got.error[..., : settings.num_levers].mean(axis=(2, -1))
        data["error"] = (dims, np.float32(of_good_runs(result, of_weights)))
    return xarray.Dataset(data)


def explained(error: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Share of the variance of partners' weights that beliefs explain; 0 for the mean weights of these partners.

    Args:
      error: Squared errors, mean over the weights of a partner, `[S, P]`: policies, partners.
      weights: Weights of the partners, `[P, n]`.

    Returns:
      Shares of the policies, `[S]`.
    """
    return 1 - error.mean(axis=1) / np.var(weights, axis=0).mean()


def _returns_table(played: dict[str, Any], members: dict[str, np.ndarray], weights: np.ndarray) -> pandas.DataFrame:
    """A row per method: returns with each group of partners, and the shares that its belief explains."""
    import pandas

    rows = []
    for method, data in played.items():
        returns = data["reward"].values.sum(axis=-1)
        row: dict[str, Any] = {"method": method}
        row |= {name: estimate(returns[:, chosen].mean(axis=1)) for name, chosen in members.items()}
        if "error" in data:
            last = data["error"].values[..., -1]
            shares = {name: explained(last[:, chosen], weights[chosen]) for name, chosen in members.items()}
            row |= {f"explained, {name}": estimate(share) for name, share in shares.items()}
        rows.append(row)
    return with_failures(pandas.DataFrame(rows).fillna(""), played)


def _steps_table(played: dict[str, Any], met: np.ndarray) -> pandas.DataFrame:
    import pandas

    rewards = {method: np.nanmean(data["reward"].values[:, met], axis=(0, 1)) for method, data in played.items()}
    return pandas.DataFrame({"step": np.arange(1, len(next(iter(rewards.values()))) + 1), **rewards})


HABITS = (
    "Behaviour of the networks beside scripted teammates, by the traits of their characters: means and standard errors "
    f"over those of {NUM_EPISODES:,} episodes of each network in which a trait is in the lowest or highest quarter of "
    "its range. The share of paid pulls in order is that of episodes with at least two paid pulls."
)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _episodes(env: Characters, actor: Actor, policy: Any, keys: jax.Array) -> Any:
    """Characters, levers, whether they were paid, and the last paid lever before, each `[E, ...]`."""
    params = env.default_params

    def one(key: jax.Array) -> Any:
        reset_key, key = jax.random.split(key)
        obs, state = env.reset_env(reset_key, params)

        def step(carry: Any, key: jax.Array) -> Any:
            obs, state, memory = carry
            action_key, step_key = jax.random.split(key)
            scores, memory = actor.scores(policy, memory, obs, None)
            action, _, memory = actor.choose(actor.noise(action_key, ()), scores, memory, False, None)
            obs, after, *_ = env.step_env(step_key, state, action, params)
            view = env.task.view(after.inner.game, 1, params.inner)
            return (obs, after, memory), (view.other[0], view.success, state.paid)

        start = obs, state, jax.tree.map(jnp.asarray, actor.initial_memory(policy))
        return state.character, *jax.lax.scan(step, start, jax.random.split(key, params.inner.num_steps))[1]

    return jax.vmap(one)(keys)


def _habits(result: Result) -> xarray.Dataset:
    """Traits and the behaviour of episodes of every network that did not fail."""
    import xarray

    algo: Any = result.algo
    num_levers, parts = algo.env.task.num_levers, []
    for seed in np.flatnonzero(~result.failed_runs()[0]).tolist():
        policy = jax.tree.map(lambda leaf, seed=seed: leaf[0, seed], result.policies)
        keys = jax.random.split(jax.random.key(seed), NUM_EPISODES)
        parts.append(jax.tree.map(np.asarray, _episodes(algo.env, algo.actor, policy, keys)))
    character, levers, paid, before = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    pulls, num_paid = levers < num_levers, paid.sum(axis=1)
    again = paid & (before >= 0)
    follows = (again & (levers == (before + 1) % num_levers)).sum(axis=1)
    with np.errstate(invalid="ignore"):
        values = {
            "weight": character.weights[:, 0],
            "order": character.order,
            "patience": character.patience,
            "rationality": character.rationality,
            "pulls of lever 0": (levers == 0).sum(axis=1),
            "share of paid pulls in order": follows / again.sum(axis=1),
            "pulls that are not paid": (pulls & ~paid).sum(axis=1),
            "paid pulls": num_paid,
        }
    return xarray.Dataset({name: ("episode", np.float32(value)) for name, value in values.items()})


def _mean(values: np.ndarray) -> str:
    """Mean and standard error of the values that are not nan."""
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return MISSING
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


def _habits_table(habits: xarray.Dataset) -> pandas.DataFrame:
    import pandas

    measures = {
        "weight": "pulls of lever 0",
        "order": "share of paid pulls in order",
        "patience": "pulls that are not paid",
        "rationality": "paid pulls",
    }
    ranges = {
        "weight": (-1.0, 1.0),
        "order": (0.0, 1.0),
        "patience": (0.0, 1.0),
        "rationality": (LEAST_RATIONALITY, 1.0),
    }
    rows = []
    for trait, measure in measures.items():
        low, high = ranges[trait]
        quarter = (habits[trait].values - low) / (high - low) * 4
        values = habits[measure].values
        row = {"trait": "weight of lever 0" if trait == "weight" else trait, "behaviour": measure}
        row |= {"lowest quarter": _mean(values[quarter < 1]), "highest quarter": _mean(values[quarter >= 3])}
        rows.append(row)
    return pandas.DataFrame(rows)


STUDY = Study(
    "characters",
    "Agents beside partners with many characters, with and without a belief about them.",
    Settings,
    run,
)
