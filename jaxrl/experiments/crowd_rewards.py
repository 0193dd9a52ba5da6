"""What a crowd is rewarded for: the study of 2023."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

import jaxrl
from envs.crowd import REWARDS, Crowd, CrowdParams
from envs.errors import UserValueError
from jaxrl.checks import check_counts
from jaxrl.experiments import crowds
from jaxrl.experiments.crowds import KINDS, RATIO, Cell, Place
from jaxrl.experiments.study import Experiment, Study
from jaxrl.presets.crowd import NUM_ITERATIONS, settings_of_2023
from jaxrl.runtime.reevaluation import evaluate_result

if TYPE_CHECKING:
    import xarray

    from jaxrl.presets.preset import Preset
    from jaxrl.results.result import Result

MEASURES = ("success", "energy", RATIO, "mean speed", "contacts")
PRESET = "2023"
OWN_DISCOUNT = "own"
OF_PAPER = tuple(name for name in REWARDS if name not in ("straight", "yielding", "through"))
CAR_COLLISION = -0.02  # in place of -0.05, where a car crosses


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is compared, and how long it trains."""

    rewards: tuple[str, ...] = OF_PAPER
    """Rewards, by their names in envs.crowd.REWARDS."""
    scenarios: tuple[str, ...] = ("circle40",)
    """Scenarios, each with its number of agents; the paper has car20, too."""
    discounts: tuple[str, ...] = (OWN_DISCOUNT,)
    """Discounts: own, that of the settings of learning, or such as exp:gamma=1 and beta:mu=0.99,eta=1."""
    collision: float | None = None
    """Weight of a contact, in place of each reward's own."""
    tuned: bool = False
    """Learn with the paper's settings and large networks, not with the library's own settings for crowds."""
    test_agents: tuple[int, ...] = ()
    """Numbers of agents with which what was learned is tested, too."""
    seeds: int = 8
    """Seeds of every combination."""
    env_steps: int = 0
    """Environment steps of a run, of which stage one takes the paper's share; 0 takes the paper's 1000 iterations."""
    agent_steps: int = 0
    """Agent-steps of a run, in place of env_steps: the same number in scenarios of few and of many."""
    evals: int = 1
    """Evaluations, evenly spaced, the last at the end; only this one is reported."""
    eval_episodes: int = 10
    """Whole episodes of an evaluation, greedy and again sampled."""
    block: int = 1
    """Runs computed side by side: 1 is fastest on a CPU, 0 leaves it to the library."""

    def __post_init__(self):
        crowds.check_choices("rewards", self.rewards, tuple(REWARDS))
        crowds.check_choices("scenarios", self.scenarios)
        crowds.check_choices("discounts", self.discounts)
        for discount in self.discounts:
            if discount != OWN_DISCOUNT:
                jaxrl.as_discount(discount)
        for name in self.scenarios:
            place = crowds.as_place(name, preset=PRESET)
            for number in self.test_agents:
                crowds.as_place(f"{place.scenario}{number}", preset=PRESET)
        if self.test_agents:
            crowds.check_choices("test_agents", self.test_agents)
        if self.collision is not None and not math.isfinite(self.collision):
            raise UserValueError(f"collision must be finite, got {self.collision}")
        check_counts(self, seeds=2, evals=1, eval_episodes=1, block=0)
        crowds.check_length(self)


def run(settings: Settings, study: Study) -> None:
    """Trains every reward in every scenario with all discounts and seeds in one call, then writes tables, a figure."""
    cells: dict[str, list[Cell]] = {kind: [] for kind in KINDS}
    tests: list[Cell] = []
    for name in settings.scenarios:
        for reward in settings.rewards:
            place = crowds.as_place(name, preset=PRESET)
            preset = learning(settings, place, reward)
            algo = preset.algo
            env_steps = crowds.run_length(settings, place, preset)
            own = str(algo.hparams.discount)
            discounts = [own if discount == OWN_DISCOUNT else discount for discount in settings.discounts]
            result = study.train(
                f"{name}_{reward}",
                algo,
                jaxrl.grid(algo.hparams, {"discount": discounts}),
                seeds=settings.seeds,
                env_steps=env_steps,
                evals=settings.evals,
                eval_episodes=settings.eval_episodes,
                env_params=curriculum(algo.env.default_params, place, reward, env_steps, settings.collision),
                block=settings.block or None,
            )
            labels = [{"scenario": name, "reward": reward, "discount": text} for text in discounts]
            for kind, found in cells.items():
                found += map(Cell, labels, crowds.measured(result, kind))
            if settings.test_agents:
                tested = study.compute(
                    f"{name}_{reward}_tests",
                    lambda result=result: among_others(result, settings.test_agents, settings.eval_episodes),
                )
                tests += [
                    Cell(
                        {**at, "agents": str(int(number))},
                        {measure: tested[measure].sel(agents=number).values[i] for measure in crowds.MEASURES},
                    )
                    for i, at in enumerate(labels)
                    for number in settings.test_agents
                ]
    for kind, words in KINDS.items():
        study.table(f"rewards{kind}", crowds.frame_of(cells[kind], MEASURES), _caption(settings, words))
    if tests:
        caption = f"The same policies among other numbers of agents. {_caption(settings, KINDS[''])}"
        study.table("tests", crowds.frame_of(tests, MEASURES), caption)
    several = len(settings.discounts) > 1
    study.figure(
        "crowd_rewards",
        crowds.dots(
            cells[""],
            MEASURES,
            lambda cell: cell.labels["reward"],
            lambda cell: cell.labels["discount"] if several else "",
        ),
    )


def learning(settings: Settings, place: Place, reward: str) -> Preset:
    """What a reward is trained with: polar acceleration, egocentric, two worlds for fewer than 50 agents.

    Neighbours are perceived, and rays that see walls where a car crosses. The time is observed, and
    a time limit counts as an end, for the terms that are due then tell of all that is to come.
    """
    perception = "both" if place.scenario == "car" else "neighbours"
    preset = settings_of_2023(*place, perception)
    if not settings.tuned:
        preset = crowds.library_settings(place, preset.config.num_envs, dict(preset.static))
        preset = preset._replace(config=dataclasses.replace(preset.config, time_limits="terminal"))
    return preset._replace(static={**preset.static, "reward": reward})


def curriculum(
    params: CrowdParams, place: Place, reward: str, env_steps: int, collision: float | None = None
) -> CrowdParams:
    """The environment's parameters for a run of a certain length.

    Args:
      params: with that reward's weights.
      place: where.
      reward: a name in `REWARDS`.
      env_steps: of the run. The second stage begins after the same share of it as in the paper: 199 of 1000
        iterations.
      collision: weight of a contact in place of the reward's own; None keeps it, but where a car crosses -0.05
        becomes -0.02.
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
    """What was learned, greedy, among other numbers of agents; each sees as many neighbours as in training.

    Returns:
      Measures with the dims (agents, setting, seed).
    """
    import xarray

    algo, params = result.algo, result.env_params
    if algo is None or params is None or not isinstance(algo.env, Crowd):
        raise UserValueError("result must hold its algorithm and its parameters of a crowd")
    env = dataclasses.replace(algo.env, num_agents=max(algo.env.num_agents, *numbers))
    larger = jaxrl.ppo(env, dataclasses.replace(algo.config, num_minibatches=1))
    found: dict[str, list[np.ndarray]] = {measure: [] for measure in crowds.MEASURES}
    for number in numbers:
        present = np.full_like(params.num_present, number)
        there = dataclasses.replace(result, algo=larger, env_params=dataclasses.replace(params, num_present=present))
        each = crowds.measured(evaluate_result(there, num_episodes))
        for measure, values in found.items():
            values.append(np.stack([runs[measure] for runs in each]))
    dims = ("agents", "setting", "seed")
    return xarray.Dataset({measure: (dims, values) for measure, values in found.items()}, {"agents": list(numbers)})


def _caption(settings: Settings, words: str) -> str:
    learned = "with the paper's settings" if settings.tuned else "with the library's settings for crowds"
    contact = "" if settings.collision is None else f" with {settings.collision:g} a contact"
    return (
        f"Crowds by their reward{contact}, after {crowds.said_length(settings)} of PPO {learned}, {words}: "
        f"interquartile mean over {settings.seeds} seeds with its 95 % bootstrap interval. "
        f"Rewards of two stages change after 199 of 1000 parts of a run. Success is the share that arrives, "
        f"energy is in J/kg, energy-plus adds the least energy for the rest of the way, the optimum is that for the "
        f"whole way; speed is in m/s; contacts are an agent's, summed over substeps."
    )


EXPERIMENT = Experiment(
    "crowd-rewards",
    "Crowds by what they are rewarded for.",
    Settings,
    run,
)
