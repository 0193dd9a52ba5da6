"""Rewards of a crowd: those of the study of 2023, and later ones."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import jaxrl
from bench.studies import crowds
from bench.studies.crowds import KINDS, RATIO, TIME, Cell, Place
from bench.studies.study import Study, StudyRun
from envs.crowd import REWARDS, Crowd, CrowdParams
from envs.errors import UserValueError
from jaxrl.checks import check_choices, check_counts
from jaxrl.presets.crowd import NUM_ITERATIONS, settings_of_2023

if TYPE_CHECKING:
    import pandas
    import xarray

    from jaxrl.presets.preset import Preset
    from jaxrl.results.result import Result

MEASURES = ("success", "energy", RATIO, TIME, "mean speed", "contacts")
COMPARED = ("success", RATIO, TIME, "contacts")
PRESET = "2023"
OWN_DISCOUNT = "own"
CAR_COLLISION = -0.02  # in place of -0.05, in the scenario with a car


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: rewards to compare, and lengths of training."""

    rewards: tuple[str, ...] = tuple(name for name in REWARDS if not REWARDS[name].ramp_iterations)
    """Names of rewards in envs.crowd.REWARDS; those with a ramp, whose length is fixed, are refused."""
    scenarios: tuple[str, ...] = ("circle12", "corridor50", "choke20")
    """Scenarios, each with its number of agents; the paper has circle40 and car20."""
    discounts: tuple[str, ...] = ("exp:gamma=0.99", "beta:mu=0.99,eta=0.5", "beta:mu=0.99,eta=1")
    """Discounts; own is the one of the learning settings, and eta=1 makes Beta hyperbolic."""
    discounted: tuple[str, ...] = ("base", "energy-drag", "straight")
    """Those of the rewards that are trained with every discount; the others have the first one."""
    collision: float | None = None
    """Weight of a contact, in place of the weight of each reward."""
    tuned: bool = False
    """The paper's settings with large networks, in place of the library's for crowds; discounts are those above."""
    test_agents: tuple[int, ...] = ()
    """Further numbers of agents with which the learned policies are tested."""
    seeds: int = 4
    """Number of seeds of every combination."""
    agent_steps: int = 1_000_000
    """Number of agent-steps of a run, equal for scenarios with few and with many agents."""
    env_steps: int = 0
    """Number of environment steps of a run, in place of agent_steps; the paper has 400000, or 200000 for 50 agents."""
    evals: int = 1
    """Number of evaluations, evenly spaced; only the last one, at the end, is reported."""
    eval_episodes: int = 10
    """Number of whole episodes of an evaluation with greedy actions, and again with sampled ones."""
    block: int = 1
    """Number of runs computed in one block: 1 is fastest on a CPU, 0 for the library's choice."""

    def __post_init__(self) -> None:
        check_choices("rewards", self.rewards, tuple(REWARDS))
        if ramps := [name for name in self.rewards if REWARDS[name].ramp_iterations]:
            raise UserValueError(f"rewards takes rewards without a ramp, which has a fixed length, got {ramps[0]}")
        check_choices("scenarios", self.scenarios)
        check_choices("discounts", discounts_of(self))
        for name in self.scenarios:
            place = crowds.as_place(name, preset=PRESET)
            for number in self.test_agents:
                crowds.check_room("test_agents", number, Place(place.scenario, number), preset=PRESET)
        if self.test_agents:
            check_choices("test_agents", self.test_agents)
        if self.collision is not None and not math.isfinite(self.collision):
            raise UserValueError(f"collision must be finite, got {self.collision}")
        check_choices("discounted", self.discounted, tuple(REWARDS))
        check_counts(self, seeds=2, agent_steps=1, env_steps=0, evals=1, eval_episodes=1, block=0)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every reward in every scenario with all discounts and seeds in one call, then write tables and a figure."""
    cells: dict[str, list[Cell]] = {kind: [] for kind in KINDS}
    tests: list[Cell] = []
    for name in settings.scenarios:
        for reward in settings.rewards:
            trained = functools.cache(functools.partial(_trained, name, reward, settings, study))
            measures = study.compute(
                f"{name}_{reward}_measures",
                lambda run=trained, reward=reward: crowds.measures_of(run(), discounts_of(settings, reward)),
            )
            labels = [
                {"scenario": name, "reward": reward, "discount": str(text)} for text in measures["setting"].values
            ]
            for kind, cells_of in cells.items():
                cells_of += [crowds.cell(measures, at, kind, at["discount"]) for at in labels]
            if settings.test_agents:
                tested = study.compute(
                    f"{name}_{reward}_tests",
                    lambda run=trained: among_others(run(), settings.test_agents, settings.eval_episodes),
                )
                tests += [
                    Cell(
                        {**at, "agents": str(int(number))},
                        {measure: tested[measure].sel(agents=number).values[i] for measure in MEASURES},
                    )
                    for i, at in enumerate(labels)
                    for number in settings.test_agents
                ]
    for kind, words in KINDS.items():
        study.table(f"rewards{kind}", crowds.frame_of(cells[kind], MEASURES), _caption(settings, words))
        if len(settings.discounts) > 1:
            compared = [cell for cell in cells[kind] if cell.labels["reward"] in settings.discounted]
            if compared:
                study.table(f"discounts{kind}", of_discounts(compared), _discounts_caption(settings, words))
    if tests:
        caption = f"The same policies with other numbers of agents. {_caption(settings, KINDS[''])}"
        study.table("tests", crowds.frame_of(tests, MEASURES), caption)
    study.figure(
        "crowd_rewards",
        crowds.dots(
            cells[""],
            MEASURES,
            lambda cell: cell.labels["reward"],
            lambda cell: cell.labels["discount"] if len(settings.discounts) > 1 else "",
        ),
    )


def discounts_of(settings: Settings, reward: str | None = None) -> list[str]:
    """The discounts of the settings in full, or those with which a reward is trained."""
    learned = settings_of_2023() if settings.tuned else jaxrl.preset("ppo", "crowd/circle")
    chosen = settings.discounts if reward is None or reward in settings.discounted else settings.discounts[:1]
    named = [learned.hparams["discount"] if discount == OWN_DISCOUNT else discount for discount in chosen]
    return [str(jaxrl.as_discount(discount)) for discount in named]


def _trained(name: str, reward: str, settings: Settings, study: StudyRun) -> Result:
    """Train a reward in a scenario with its discounts and all seeds in one call.

    Called for parts that are not finished, which share the result.
    """
    place = crowds.as_place(name, preset=PRESET)
    algo = learning(settings, place, reward).algo
    env_steps = crowds.run_length(settings, place)
    return study.train(
        f"{name}_{reward}",
        algo,
        jaxrl.grid(algo.hparams, {"discount": discounts_of(settings, reward)}),
        seeds=settings.seeds,
        env_steps=env_steps,
        evals=settings.evals,
        eval_episodes=settings.eval_episodes,
        env_params=curriculum(algo.env.default_params, place, reward, env_steps, settings.collision),
        block=settings.block or None,
    )


def learning(settings: Settings, place: Place, reward: str) -> Preset:
    """The preset with which a reward is trained: polar acceleration, egocentric, two worlds for fewer than 50 agents.

    Agents perceive neighbours, and with a car or a door also rays that detect walls. The time is observed, and
    a time limit counts as termination, as in the paper: the terms `final` and `avg_final` pay for the rest of the way
    then, other rewards do not.
    """
    perception = "both" if place.scenario in ("car", "choke") else "neighbours"
    preset = settings_of_2023(*place, perception)
    if not settings.tuned:
        preset = crowds.library_settings(place, preset.config.num_envs, dict(preset.static))
        preset = preset._replace(config=dataclasses.replace(preset.config, time_limits="terminal"))
    return preset._replace(static={**preset.static, "reward": reward})


def of_discounts(cells: Sequence[Cell]) -> pandas.DataFrame:
    """Each discount compared with the first one under the same reward in the same scenario.

    Args:
      cells: Cells labelled with scenario, reward and discount.

    Returns:
      A row for each discount and reward, and for each discount one named "all" if there are several rewards: the
      number of scenarios times rewards, and for each measure the probability that a run is better than one with the
      first discount.
    """
    import pandas

    cell_at = {tuple(cell.labels[name] for name in ("scenario", "reward", "discount")): cell for cell in cells}
    places, rewards, (first, *others) = (tuple(dict.fromkeys(column)) for column in zip(*cell_at, strict=True))
    groups = {reward: (reward,) for reward in rewards} | ({"all": rewards} if len(rewards) > 1 else {})
    rows = []
    for other in others:
        for name, group in groups.items():
            pairs = [(cell_at[*where, other], cell_at[*where, first]) for where in itertools.product(places, group)]
            row = {"discount": other, "compared with": first, "reward": name, "combinations": len(pairs)}
            rows.append(row | {measure: crowds.chance(pairs, measure) for measure in COMPARED})
    return pandas.DataFrame(rows)


def curriculum(
    params: CrowdParams, place: Place, reward: str, env_steps: int, collision: float | None = None
) -> CrowdParams:
    """The environment's parameters for a run of a certain length.

    Args:
      params: Parameters with the weights of the reward.
      place: Scenario and number of agents.
      reward: Name in `REWARDS`.
      env_steps: Number of environment steps of the run. The second stage begins after the same share of the run as in
        the paper: 199 of 1000 iterations.
      collision: Weight of a contact in place of that of the reward; None keeps it, except that -0.05 becomes -0.02 in
        the scenario with a car.
    """
    stages = {"weights": params.weights, "later_weights": params.later_weights}
    for stage, weights in stages.items():
        if collision is not None:
            stages[stage] = dataclasses.replace(weights, collision=collision)
        elif place.scenario == "car" and weights.collision == -0.05:
            stages[stage] = dataclasses.replace(weights, collision=CAR_COLLISION)
    share = REWARDS[reward].switch_iteration / NUM_ITERATIONS
    return dataclasses.replace(params, switch_env_steps=share * env_steps, **stages)


def among_others(result: Result, numbers: tuple[int, ...], num_episodes: int) -> xarray.Dataset:
    """Greedy evaluation of the learned policies with other numbers of agents, each with the same number of neighbours.

    Returns:
      Measures with the dims (agents, setting, seed).
    """
    import xarray

    algo, params = result.algo, result.env_params
    if algo is None or params is None or not isinstance(algo.env, Crowd):
        raise UserValueError("result must hold its algorithm and the parameters of a crowd")
    env = dataclasses.replace(algo.env, num_agents=max(algo.env.num_agents, *numbers))
    larger = jaxrl.ppo(env, dataclasses.replace(algo.config, num_minibatches=1))
    measured: dict[str, list[np.ndarray]] = {measure: [] for measure in MEASURES}
    for number in numbers:
        present = np.full_like(params.num_present, number)
        there = dataclasses.replace(result, algo=larger, env_params=dataclasses.replace(params, num_present=present))
        each = crowds.measured(jaxrl.evaluate_result(there, num_episodes))
        for measure, values in measured.items():
            values.append(np.stack([runs[measure] for runs in each]))
    dims = ("agents", "setting", "seed")
    return xarray.Dataset({measure: (dims, values) for measure, values in measured.items()}, {"agents": list(numbers)})


def _caption(settings: Settings, words: str) -> str:
    learned = (
        f"with {'the paper' if settings.tuned else 'the library'}'s settings for crowds except for the discount, and a "
        "time limit that counts as termination"
    )
    contact = "" if settings.collision is None else f" with {settings.collision:g} per contact"
    return (
        f"Crowds by their reward{contact}, after {crowds.said_length(settings)} of PPO {learned}, {words}: "
        f"interquartile mean over {settings.seeds} seeds with its 95 % bootstrap interval. "
        f"Rewards of two stages change after 199 of 1000 parts of a run. Success is the share that arrives, "
        f"energy is in J/kg, energy-plus adds the least energy for the rest of the way, the optimum is that for the "
        f"whole way; the time to the goal, in s, is that of the episode for an agent that does not arrive; speed is in "
        f"m/s; contacts are per agent, summed over substeps."
    )


def _discounts_caption(settings: Settings, words: str) -> str:
    return (
        f"Which discount is better, {words}: the probability that a run has more success, less energy-plus over the "
        f"optimum, less time to the goal and fewer contacts than one under the discount it is compared with, ties "
        f"counting one half, averaged over scenarios, and in the row 'all' over rewards; 95 % bootstrap intervals over "
        f"{settings.seeds} seeds, not corrected for the number of comparisons. A discount is better or worse if its "
        f"interval excludes 0.5."
    )


STUDY = Study(
    "crowd-rewards",
    "Crowds compared by reward.",
    Settings,
    run,
)
