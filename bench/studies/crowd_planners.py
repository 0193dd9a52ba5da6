"""Learned crowds compared with planned ones: social forces, reciprocal avoidance, straight lines."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import numpy as np

import jaxrl
from bench.studies import crowds
from bench.studies.crowds import RATIO, TIME, Cell, Place
from bench.studies.study import Study, StudyRun
from envs.crowd import Crowd, Orca, SocialForce, Straight, roll
from envs.crowd.dynamics import DYNAMICS
from jaxrl.checks import check_choices, check_counts

if TYPE_CHECKING:
    import xarray

    from jaxrl.presets.preset import Preset

PLANNERS = {"orca": Orca, "social-force": SocialForce, "straight": Straight}
MEASURES = ("success", RATIO, "contacts", TIME)
METRICS = ("success", "contacts", "time_to_goal", "energy_plus", "optimum")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: scenarios, planners and learned policies."""

    scenarios: tuple[str, ...] = ("circle30", "corridor50", "crossway50", "choke20")
    """Scenarios, each with its number of agents, such as circle12."""
    planners: tuple[str, ...] = tuple(PLANNERS)
    """Planners, which read the state, in addition to the learned policy."""
    dynamics: tuple[str, ...] = ("polar-acceleration", "cartesian-velocity")
    """Dynamics of the planners; learned policies use those of their preset."""
    seeds: int = 4
    """Number of seeds of the learned policies; 0 omits them."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the preset's."""
    episodes: int = 16
    """Number of whole episodes of each planner, and of the greedy evaluation of each run."""
    seed: int = 0
    """Random seed of the planners' episodes."""
    block: int = 1
    """Number of runs computed in one block: 1 is fastest on a CPU, 0 for the library's choice."""

    def __post_init__(self) -> None:
        check_choices("scenarios", self.scenarios)
        for name in self.scenarios:
            crowds.as_place(name)
        if self.planners:
            check_choices("planners", self.planners, tuple(PLANNERS))
        check_choices("dynamics", self.dynamics, DYNAMICS)
        check_counts(self, seeds=0, env_steps=0, episodes=2, block=0)


def run(settings: Settings, study: StudyRun) -> None:
    """Train the preset of each scenario, play the planners in the same scenario, then write a table and a figure."""
    cells: list[Cell] = []
    for name in settings.scenarios:
        place = crowds.as_place(name)
        if settings.seeds:
            preset = learning(place)
            result = study.train(
                f"{name}_learned",
                preset.algo,
                seeds=settings.seeds,
                env_steps=settings.env_steps or preset.env_steps,
                evals=1,
                eval_episodes=settings.episodes,
                block=settings.block or None,
            )
            dynamics = str(preset.static.get("dynamics", Crowd.dynamics))
            labels = {"scenario": name, "policy": "learned", "dynamics": dynamics}
            cells.append(Cell(labels, crowds.measured(result)[0]))
        for dynamics in settings.dynamics:
            for planner in settings.planners:
                episodes = study.compute(
                    f"{name}_{planner}_{dynamics}",
                    lambda place=place, planner=planner, dynamics=dynamics: played(place, planner, dynamics, settings),
                )
                cells.append(_cell(name, planner, dynamics, {metric: episodes[metric].values for metric in METRICS}))
    study.table("planners", crowds.frame_of(cells, MEASURES), _caption(settings))
    study.figure(
        "crowd_planners",
        crowds.dots(cells, MEASURES, lambda cell: cell.labels["policy"], lambda cell: cell.labels["dynamics"]),
    )


def learning(place: Place) -> Preset:
    """The preset of the scenario, or that of `crowd/circle` if it has none, with this number of agents."""
    own = jaxrl.presets.find("ppo", f"crowd/{place.scenario}")
    if own is None:
        return crowds.library_settings(place, 1, {"perception": "neighbours", "reward": "straight"})
    return own._replace(static={**own.static, "num_agents": place.num_agents})


def played(place: Place, planner: str, dynamics: str, settings: Settings) -> xarray.Dataset:
    """The metrics of a planner's episodes, each `[episode]`."""
    import xarray

    env = Crowd(place.scenario, num_agents=place.num_agents, dynamics=dynamics)  # pyright: ignore[reportArgumentType]
    policy = PLANNERS[planner](env)
    keys = jax.random.split(jax.random.key(settings.seed), settings.episodes)
    metrics = jax.jit(jax.vmap(lambda key: roll(env, policy, key).metrics))(keys)
    return xarray.Dataset({metric: ("episode", np.asarray(metrics[metric], np.float64)) for metric in METRICS})


def _cell(scenario: str, policy: str, dynamics: str, metrics: dict[str, np.ndarray]) -> Cell:
    runs = {
        "success": metrics["success"],
        RATIO: metrics["energy_plus"] / metrics["optimum"],
        "contacts": metrics["contacts"],
        TIME: metrics["time_to_goal"],
    }
    return Cell({"scenario": scenario, "policy": policy, "dynamics": dynamics}, runs)


def _caption(settings: Settings) -> str:
    learned = f"{settings.seeds} seeds of the learned policy, each over {settings.episodes} greedy episodes, and "
    return (
        f"Crowds by policy: interquartile means with 95 % intervals over {learned if settings.seeds else ''}"
        f"{settings.episodes} episodes of each planner. Contacts are counted per agent and episode, once for each "
        "substep that they last; the time to the goal is in s, and equals the time limit for agents that do not "
        "arrive. Planners cannot walk around walls; without randomness in the scenario, all episodes of a "
        "deterministic planner are equal."
    )


STUDY = Study("crowd-planners", "Learned crowds compared with ORCA, social forces and straight lines.", Settings, run)
