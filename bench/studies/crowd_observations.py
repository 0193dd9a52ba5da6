"""Perception, frame of observations and dynamics of a crowd: the study of 2022."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import jaxrl
from bench.studies import crowds
from bench.studies.crowds import KINDS, RATIO, Cell, Place
from bench.studies.study import FORCE_HINT, Study, StudyError, StudyRun
from envs.crowd import REWARDS
from envs.crowd.dynamics import DYNAMICS
from envs.crowd.observations import FRAMES, PERCEPTIONS
from envs.errors import UserValueError
from jaxrl.checks import check_choices, check_counts
from jaxrl.presets.crowd import tuned

if TYPE_CHECKING:
    import pandas
    import xarray

    from jaxrl.presets.preset import Preset

MEASURES = ("success", "return", "energy", RATIO, "contacts")
OF_PAPER = "2022"
LEARNING = ("searched", "library", "tuned")
SEARCHED_ON = "circle12"
SEARCHED = {"lr": (5e-4, 2e-3), "discount": (0.97, 0.99)}  # the library's settings for crowds have 0.002 and 0.97
FIRST_OF_SEARCH = 1000  # seed of the first run of a search; those of the comparison begin at 0


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: combinations to compare, and lengths of training."""

    frames: tuple[str, ...] = FRAMES
    """Frames of observations: absolute, relative, egocentric."""
    dynamics: tuple[str, ...] = DYNAMICS
    """Dynamics: cartesian or polar, velocity or acceleration."""
    perceptions: tuple[str, ...] = PERCEPTIONS
    """Kinds of perception: neighbours, rays, both."""
    scenarios: tuple[str, ...] = ("circle12", "corridor50", "crossway50")
    """Scenarios, each with its number of agents, such as circle12."""
    reward: str = OF_PAPER
    """Name of the reward: 2022 for the reward of the paper, or another one, such as straight."""
    learning: str = "searched"
    """PPO settings: searched (step size and discount), library (those of its crowds) or tuned (those of 2022)."""
    search_seeds: int = 2
    """Number of seeds of each of the four trials of a search on circle12; none of them is a seed of the comparison."""
    seeds: int = 4
    """Number of seeds of every combination."""
    agent_steps: int = 1_000_000
    """Number of agent-steps of a run, equal for scenarios with few and with many agents."""
    env_steps: int = 0
    """Number of environment steps of a run, in place of agent_steps; the paper has 400000, half for over 20 agents."""
    evals: int = 1
    """Number of evaluations, evenly spaced; only the last one, at the end, is reported."""
    eval_episodes: int = 10
    """Number of whole episodes of an evaluation with greedy actions, and again with sampled ones."""
    block: int = 1
    """Number of runs computed in one block: 1 is fastest on a CPU, 0 for the library's choice."""

    def __post_init__(self) -> None:
        check_choices("frames", self.frames, FRAMES)
        check_choices("dynamics", self.dynamics, DYNAMICS)
        check_choices("perceptions", self.perceptions, PERCEPTIONS)
        check_choices("scenarios", self.scenarios)
        check_choices("reward", (self.reward,), (OF_PAPER, *REWARDS))
        for name in self.scenarios:
            crowds.as_place(name)
        check_choices("learning", (self.learning,), LEARNING)
        check_counts(self, search_seeds=1, seeds=2, agent_steps=1, env_steps=0, evals=1, eval_episodes=1, block=0)


class Combination(NamedTuple):
    """Frame, dynamics and perception of a crowd."""

    frame: str
    dynamics: str
    perception: str

    def __str__(self) -> str:
        return "_".join(self)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every combination with all seeds in one call, then write tables and a figure."""
    cells: dict[str, list[Cell]] = {kind: [] for kind in KINDS}
    combinations = [
        Combination(*names) for names in itertools.product(settings.frames, settings.dynamics, settings.perceptions)
    ]
    trials = {
        combination: study.compute(f"search_{combination}", functools.partial(_searched, combination, settings, study))
        for combination in combinations
        if settings.learning == "searched"
    }
    if trials:
        study.table("search", searches(trials), _search_caption(settings))
    for name in settings.scenarios:
        for combination in combinations:
            hparams = best_trial(trials[combination], combination) if trials else {}
            part, chosen = f"{name}_{combination}_measures", as_text(hparams) or settings.learning
            measures = study.compute(
                part, functools.partial(_measured, name, combination, hparams, chosen, settings, study)
            )
            if (trained := str(measures["setting"].values[0])) != chosen:
                raise StudyError(f"{part} was made with {trained}, but the search chose {chosen}: {FORCE_HINT}.")
            for kind, cells_of in cells.items():
                cells_of.append(crowds.cell(measures, {"scenario": name, **combination._asdict()}, kind, chosen))
    for kind, words in KINDS.items():
        study.table(f"cells{kind}", crowds.frame_of(cells[kind], MEASURES), _caption(settings, words))
        claims = comparison(cells[kind])
        if len(claims):
            study.table(f"claims{kind}", claims, _claims_caption(settings, words))
    study.figure(
        "crowd_observations",
        crowds.dots(
            cells[""],
            ("success", "return", RATIO, "contacts"),
            lambda cell: f"{cell.labels['frame']} {cell.labels['dynamics']}",
            lambda cell: cell.labels["perception"],
        ),
    )


def _searched(combination: Combination, settings: Settings, study: StudyRun) -> xarray.Dataset:
    """Train the trials of a combination: the returns of their runs, nan for a failed one, `[lr, discount, seed]`."""
    import xarray

    place = crowds.as_place(SEARCHED_ON)
    algo = learning(settings, place, combination).algo
    result = study.train(
        f"search_{combination}_runs",
        algo,
        jaxrl.grid(algo.hparams, SEARCHED),
        seeds=range(FIRST_OF_SEARCH, FIRST_OF_SEARCH + settings.search_seeds),
        env_steps=crowds.run_length(settings, place),
        evals=1,
        eval_episodes=settings.eval_episodes,
        block=settings.block or None,
    )
    returns = np.stack([runs["return"] for runs in crowds.measured(result)])
    coords = {path: list(values) for path, values in SEARCHED.items()}
    sizes = map(len, coords.values())
    return xarray.Dataset({"return": ((*SEARCHED, "seed"), returns.reshape(*sizes, -1))}, coords)


def best_trial(trials: xarray.Dataset, combination: Combination) -> dict[str, float]:
    """The values of the trial with the highest mean return over its seeds; one with a failed run is worse than others.

    Raises:
      ValueError: Every trial has a failed run.
    """
    returns = trials["return"].mean("seed", skipna=False)
    if not np.isfinite(returns).any():
        raise UserValueError(
            f"every trial of search_{combination} has a failed run, so that none can be chosen: set learning to library"
        )
    best = returns.where(np.isfinite(returns), -np.inf).argmax(...)
    return {path: float(trials[path][best[path]]) for path in SEARCHED}


def searches(of_each: dict[Combination, xarray.Dataset]) -> pandas.DataFrame:
    """A row per combination with the mean return of each trial and the values that were chosen."""
    import pandas

    rows = []
    for combination, of_combination in of_each.items():
        returns = of_combination["return"].mean("seed", skipna=False)
        trials = [dict(zip(SEARCHED, values, strict=True)) for values in itertools.product(*SEARCHED.values())]
        columns = {as_text(trial): f"{float(returns.sel(trial)):.2f}" for trial in trials}
        rows.append(combination._asdict() | columns | best_trial(of_combination, combination))
    return pandas.DataFrame(rows)


def as_text(hparams: dict[str, float]) -> str:
    """Hyper-parameters as text."""
    return ", ".join(f"{name} {value:g}" for name, value in hparams.items())


def _measured(
    name: str, combination: Combination, hparams: dict[str, float], chosen: str, settings: Settings, study: StudyRun
) -> xarray.Dataset:
    """Train a combination in a scenario with all seeds in one call: the measures of its runs."""
    place = crowds.as_place(name)
    preset = learning(settings, place, combination)
    result = study.train(
        f"{name}_{combination}",
        preset._replace(hparams={**preset.hparams, **hparams}).algo,
        seeds=settings.seeds,
        env_steps=crowds.run_length(settings, place),
        evals=settings.evals,
        eval_episodes=settings.eval_episodes,
        block=settings.block or None,
    )
    return crowds.measures_of(result, [chosen])


def learning(settings: Settings, place: Place, combination: Combination) -> Preset:
    """The preset with which a combination is trained: two worlds for up to 20 agents, one for more."""
    reward = {} if settings.reward == OF_PAPER else {"reward": settings.reward}
    if settings.learning == "tuned":
        preset = tuned(combination.frame, combination.dynamics, *place, combination.perception)
    else:
        preset = crowds.library_settings(place, 2 if place.num_agents <= 20 else 1, combination._asdict())
    return preset._replace(static={**preset.static, **reward})


CLAIMS = {
    "neighbours against rays": {"perception": ("neighbours", "rays")},
    "both against neighbours": {"perception": ("both", "neighbours")},
    "egocentric polar against absolute cartesian": {
        "frame": ("egocentric", "absolute"),
        "dynamics": ("polar", "cartesian"),
    },
    "egocentric polar against absolute cartesian, velocities": {
        "frame": ("egocentric", "absolute"),
        "dynamics": ("polar-velocity", "cartesian-velocity"),
    },
    "egocentric polar against absolute cartesian, accelerations": {
        "frame": ("egocentric", "absolute"),
        "dynamics": ("polar-acceleration", "cartesian-acceleration"),
    },
    "egocentric against absolute": {"frame": ("egocentric", "absolute")},
    "egocentric against absolute, both polar": {"frame": ("egocentric", "absolute"), "dynamics": ("polar", "polar")},
    "egocentric against absolute, both cartesian": {
        "frame": ("egocentric", "absolute"),
        "dynamics": ("cartesian", "cartesian"),
    },
    "relative against absolute": {"frame": ("relative", "absolute")},
    "polar against cartesian": {"dynamics": ("polar", "cartesian")},
    "polar against cartesian, velocities": {"dynamics": ("polar-velocity", "cartesian-velocity")},
    "polar against cartesian, accelerations": {"dynamics": ("polar-acceleration", "cartesian-acceleration")},
    "velocity against acceleration": {"dynamics": ("velocity", "acceleration")},
}
"""Words of a combination, each with the word that its counterpart has in the same place, `{claim: {field: words}}`."""
COMPARED = ("return", "energy", RATIO)


def comparison(cells: Sequence[Cell]) -> pandas.DataFrame:
    """The paper's two claims, each factor on its own, and some of them for each kind of dynamics.

    Args:
      cells: Cells labelled with scenario, frame, dynamics and perception.

    Returns:
      A row per claim and scenario, and one for "all" if there are several scenarios: the number of
      combinations that were compared with their counterparts, equal in everything else, and for
      return, energy and energy-plus the probability that a run is better than one of the
      counterpart, averaged over the combinations, with its 95 % interval. A failed run is worse than all others.
    """
    import pandas

    cell_at = {(cell.labels["scenario"], _combination(cell)): cell for cell in cells}
    places = list(dict.fromkeys(cell.labels["scenario"] for cell in cells))
    rows = []
    for claim, words in CLAIMS.items():
        pairs: dict[str, list[tuple[Cell, Cell]]] = {place: [] for place in places}
        for (place, combination), ours in cell_at.items():
            other = counterpart(combination, words)
            theirs = cell_at.get((place, other)) if other is not None else None
            if theirs is not None:
                pairs[place].append((ours, theirs))
        groups = {place: pairs_of for place, pairs_of in pairs.items() if pairs_of}
        if len(groups) > 1:
            groups["all"] = [pair for pairs_of in pairs.values() for pair in pairs_of]
        for place, pairs_of in groups.items():
            row = {"claim": claim, "scenario": place, "combinations": len(pairs_of)}
            rows.append(row | {measure: crowds.chance(pairs_of, measure) for measure in COMPARED})
    return pandas.DataFrame(rows)


def counterpart(combination: Combination, words: dict[str, tuple[str, str]]) -> Combination | None:
    """The combination with the second word of each pair in place of the first; None if it lacks one of the first."""
    names = combination._asdict()
    if not all(ours in names[field] for field, (ours, _) in words.items()):
        return None
    return combination._replace(**{field: names[field].replace(*pair) for field, pair in words.items()})


def _combination(cell: Cell) -> Combination:
    return Combination(*(cell.labels[name] for name in Combination._fields))


def _training(settings: Settings) -> str:
    learned = {
        "searched": (
            f"with the step size and the discount that a search on {SEARCHED_ON} chose for each combination, otherwise "
            "with the library's settings for crowds,"
        ),
        "library": "with the library's settings for crowds",
        "tuned": "with the settings of 2022 for each combination",
    }[settings.learning]
    return f"after {crowds.said_length(settings)} of PPO {learned} under the reward {settings.reward}"


def _search_caption(settings: Settings) -> str:
    return (
        f"The search for the settings of each combination: the mean return of {settings.search_seeds} seeds of "
        f"{SEARCHED_ON} after {crowds.said_length(settings)}, greedy actions, and the values of the best trial. "
        "The comparison has other seeds."
    )


def _caption(settings: Settings, words: str) -> str:
    return (
        f"Crowds by frame, dynamics and perception, {_training(settings)}, {words}: interquartile mean over "
        f"{settings.seeds} seeds with its 95 % bootstrap interval. Success is the share that arrives, energy is in "
        f"J/kg, energy-plus adds the least energy for the rest of the way, the optimum is that for the whole way; "
        f"contacts are per agent, summed over substeps."
    )


def _claims_caption(settings: Settings, words: str) -> str:
    return (
        f"Which is better, {_training(settings)}, {words}: the probability that a run has the higher return, the lower "
        f"energy, and the lower energy-plus over the optimum than a run of its counterpart, ties counting one half, "
        f"averaged over the combinations; 95 % bootstrap intervals over {settings.seeds} seeds. A run is better or "
        f"worse if the interval excludes 0.5. Agents that stand still spend little energy: compare with energy-plus."
    )


STUDY = Study(
    "crowd-observations",
    "Crowds compared by perception, frame of observations, and dynamics.",
    Settings,
    run,
)
