"""What a crowd observes, in which frame, and how it moves: the study of 2022."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from envs.crowd import REWARDS
from envs.crowd.dynamics import DYNAMICS
from envs.crowd.observations import FRAMES, PERCEPTIONS
from jaxrl.checks import check_counts
from jaxrl.experiments import crowds
from jaxrl.experiments.crowds import KINDS, RATIO, Cell, Place
from jaxrl.experiments.study import Experiment, Study
from jaxrl.presets.crowd import tuned
from jaxrl.results.statistics import probability_of_improvement

if TYPE_CHECKING:
    import pandas

    from jaxrl.presets.preset import Preset

MEASURES = ("success", "return", "energy", RATIO, "contacts")
OF_PAPER = "2022"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is compared, and how long it trains."""

    frames: tuple[str, ...] = FRAMES
    """Frames of observations: absolute, relative, egocentric."""
    dynamics: tuple[str, ...] = DYNAMICS
    """Dynamics: cartesian or polar, velocity or acceleration."""
    perceptions: tuple[str, ...] = PERCEPTIONS
    """What is perceived: neighbours, rays, or both."""
    scenarios: tuple[str, ...] = ("circle12", "circle30", "crossway50", "corridor50", "random20")
    """Scenarios, each with its number of agents."""
    reward: str = OF_PAPER
    """The paper's reward, 2022, or the name of another one, such as straight."""
    tuned: bool = False
    """Learn with what was tuned for each frame and dynamics, not with the library's own settings for crowds."""
    seeds: int = 8
    """Seeds of every combination."""
    env_steps: int = 0
    """Environment steps of a run; 0 takes the paper's 1000 iterations of 200 in each world."""
    agent_steps: int = 0
    """Agent-steps of a run, in place of env_steps: the same number in scenarios of few and of many."""
    evals: int = 1
    """Evaluations, evenly spaced, the last at the end; only this one is reported."""
    eval_episodes: int = 10
    """Whole episodes of an evaluation, greedy and again sampled."""
    block: int = 1
    """Runs computed side by side: 1 is fastest on a CPU, 0 leaves it to the library."""

    def __post_init__(self):
        crowds.check_choices("frames", self.frames, FRAMES)
        crowds.check_choices("dynamics", self.dynamics, DYNAMICS)
        crowds.check_choices("perceptions", self.perceptions, PERCEPTIONS)
        crowds.check_choices("scenarios", self.scenarios)
        crowds.check_choices("reward", (self.reward,), (OF_PAPER, *REWARDS))
        for name in self.scenarios:
            crowds.as_place(name)
        check_counts(self, seeds=2, evals=1, eval_episodes=1, block=0)
        crowds.check_length(self)


class Combination(NamedTuple):
    """What a crowd observes and how it moves."""

    frame: str
    dynamics: str
    perception: str


def run(settings: Settings, study: Study) -> None:
    """Trains every combination with all seeds in one call, then writes tables and a figure."""
    cells: dict[str, list[Cell]] = {kind: [] for kind in KINDS}
    for name in settings.scenarios:
        for combination in map(
            Combination._make, itertools.product(settings.frames, settings.dynamics, settings.perceptions)
        ):
            place = crowds.as_place(name)
            preset = learning(settings, place, combination)
            result = study.train(
                "_".join((name, *combination)),
                preset.algo,
                seeds=settings.seeds,
                env_steps=crowds.run_length(settings, place, preset),
                evals=settings.evals,
                eval_episodes=settings.eval_episodes,
                block=settings.block or None,
            )
            for kind, found in cells.items():
                found.append(Cell({"scenario": name, **combination._asdict()}, crowds.measured(result, kind)[0]))
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


def learning(settings: Settings, place: Place, combination: Combination) -> Preset:
    """What a combination is trained with: two worlds for up to 20 agents, one for more."""
    reward = {} if settings.reward == OF_PAPER else {"reward": settings.reward}
    if settings.tuned:
        preset = tuned(combination.frame, combination.dynamics, *place, combination.perception)
    else:
        preset = crowds.library_settings(place, 2 if place.num_agents <= 20 else 1, combination._asdict())
    return preset._replace(static={**preset.static, **reward})


def _neighbours(combination: Combination) -> Combination | None:
    return combination._replace(perception="rays") if combination.perception == "neighbours" else None


def _egocentric_polar(combination: Combination) -> Combination | None:
    egocentric = _egocentric(combination)
    return None if egocentric is None else _polar(egocentric)


def _egocentric(combination: Combination) -> Combination | None:
    return combination._replace(frame="absolute") if combination.frame == "egocentric" else None


def _polar(combination: Combination) -> Combination | None:
    dynamics = combination.dynamics
    return combination._replace(dynamics=dynamics.replace("polar", "cartesian")) if "polar" in dynamics else None


CLAIMS: dict[str, Callable[[Combination], Combination | None]] = {
    "neighbours against rays": _neighbours,
    "egocentric polar against absolute cartesian": _egocentric_polar,
    "egocentric against absolute": _egocentric,
    "polar against cartesian": _polar,
}
SIGNS = {"return": 1.0, "energy": -1.0, RATIO: -1.0}


def comparison(cells: Sequence[Cell]) -> pandas.DataFrame:
    """The paper's two claims, and the second one's halves.

    Args:
      cells: labelled with scenario, frame, dynamics and perception.

    Returns:
      A row per claim and scenario, and one for "all" where there are several: the number of
      combinations that were compared with their counterparts, equal in everything else, and for
      return, energy and energy-plus the probability that a run is better than one of the
      counterpart, averaged over them, with its 95 % interval. A failed run is worse than all others.
    """
    import pandas

    runs = {(cell.labels["scenario"], _combination(cell)): cell.runs for cell in cells}
    places = list(dict.fromkeys(cell.labels["scenario"] for cell in cells))
    rows = []
    for claim, counterpart in CLAIMS.items():
        pairs = {place: [] for place in places}
        for (place, combination), ours in runs.items():
            other = counterpart(combination)
            theirs = runs.get((place, other)) if other is not None else None
            if theirs is not None:
                pairs[place].append((ours, theirs))
        groups = {place: found for place, found in pairs.items() if found}
        if len(groups) > 1:
            groups["all"] = [pair for found in pairs.values() for pair in found]
        for place, found in groups.items():
            row = {"claim": claim, "scenario": place, "combinations": len(found)}
            rows.append(row | {measure: _chance(found, measure) for measure in SIGNS})
    return pandas.DataFrame(rows)


def _combination(cell: Cell) -> Combination:
    return Combination(*(cell.labels[name] for name in Combination._fields))


def _chance(pairs: Sequence[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]], measure: str) -> str:
    """The probability that the first of a pair is better, its interval, and what it says."""

    def scores(side: int) -> np.ndarray:
        values = SIGNS[measure] * np.stack([pair[side][measure] for pair in pairs])
        return np.where(np.isnan(values), -np.inf, values)

    chance = probability_of_improvement(scores(0), scores(1))
    verdict = "better" if chance.low > 0.5 else "worse" if chance.high < 0.5 else "unclear"
    return f"{chance.value:.2f} [{chance.low:.2f}, {chance.high:.2f}] {verdict}"


def _length(settings: Settings) -> str:
    learned = "with what was tuned for each" if settings.tuned else "with the library's settings for crowds"
    return f"after {crowds.said_length(settings)} of PPO {learned} under the reward {settings.reward}"


def _caption(settings: Settings, words: str) -> str:
    return (
        f"Crowds by frame, dynamics and perception, {_length(settings)}, {words}: interquartile mean over "
        f"{settings.seeds} seeds with its 95 % bootstrap interval. Success is the share that arrives, energy is in "
        f"J/kg, energy-plus adds the least energy for the rest of the way, the optimum is that for the whole way; "
        f"contacts are an agent's, summed over substeps."
    )


def _claims_caption(settings: Settings, words: str) -> str:
    return (
        f"Which is better, {_length(settings)}, {words}: the probability that a run has the higher return, the lower "
        f"energy, and the lower energy-plus over the optimum than a run of its counterpart, ties counting one half, "
        f"averaged over the combinations; 95 % bootstrap intervals over {settings.seeds} seeds. It is better or worse "
        f"where the interval leaves 0.5 out. Who stands still spends little energy: read it beside energy-plus."
    )


EXPERIMENT = Experiment(
    "crowd-observations",
    "Crowds by what they observe, in which frame, and how they move.",
    Settings,
    run,
)
