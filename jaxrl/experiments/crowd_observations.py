"""Perception, frame of observations and dynamics of a crowd: the study of 2022."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from envs.crowd import REWARDS
from envs.crowd.dynamics import DYNAMICS
from envs.crowd.observations import FRAMES, PERCEPTIONS
from jaxrl.checks import check_choices, check_counts
from jaxrl.experiments import crowds
from jaxrl.experiments.crowds import KINDS, RATIO, Cell, Place
from jaxrl.experiments.study import Experiment, Study
from jaxrl.presets.crowd import tuned

if TYPE_CHECKING:
    import pandas

    from jaxrl.presets.preset import Preset

MEASURES = ("success", "return", "energy", RATIO, "contacts")
OF_PAPER = "2022"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: combinations to compare, and lengths of training."""

    frames: tuple[str, ...] = FRAMES
    """Frames of observations: absolute, relative, egocentric."""
    dynamics: tuple[str, ...] = DYNAMICS
    """Dynamics: cartesian or polar, velocity or acceleration."""
    perceptions: tuple[str, ...] = PERCEPTIONS
    """Kinds of perception: neighbours, rays, both."""
    scenarios: tuple[str, ...] = ("circle12", "circle30", "crossway50", "corridor50", "random20")
    """Scenarios, each with its number of agents, such as circle12."""
    reward: str = OF_PAPER
    """Name of the reward: 2022 for the reward of the paper, or another one, such as straight."""
    tuned: bool = False
    """Settings tuned for each frame and dynamics in place of the library's settings for crowds."""
    seeds: int = 8
    """Number of seeds of every combination."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the paper's 1000 iterations of 200 steps in each world."""
    agent_steps: int = 0
    """Number of agent-steps of a run, in place of env_steps; equal for scenarios with few and with many agents."""
    evals: int = 1
    """Number of evaluations, evenly spaced; only the last one, at the end, is reported."""
    eval_episodes: int = 10
    """Number of whole episodes of an evaluation with greedy actions, and again with sampled ones."""
    block: int = 1
    """Number of runs computed in one block: 1 is fastest on a CPU, 0 for the library's choice."""

    def __post_init__(self):
        check_choices("frames", self.frames, FRAMES)
        check_choices("dynamics", self.dynamics, DYNAMICS)
        check_choices("perceptions", self.perceptions, PERCEPTIONS)
        check_choices("scenarios", self.scenarios)
        check_choices("reward", (self.reward,), (OF_PAPER, *REWARDS))
        for name in self.scenarios:
            crowds.as_place(name)
        check_counts(self, seeds=2, evals=1, eval_episodes=1, block=0)
        crowds.check_length(self)


class Combination(NamedTuple):
    """Frame, dynamics and perception of a crowd."""

    frame: str
    dynamics: str
    perception: str


def run(settings: Settings, study: Study) -> None:
    """Train every combination with all seeds in one call, then write tables and a figure."""
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
            for kind, cells_of in cells.items():
                cells_of.append(Cell({"scenario": name, **combination._asdict()}, crowds.measured(result, kind)[0]))
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
    """The preset with which a combination is trained: two worlds for up to 20 agents, one for more."""
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
COMPARED = ("return", "energy", RATIO)


def comparison(cells: Sequence[Cell]) -> pandas.DataFrame:
    """The paper's two claims, and the two parts of the second.

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
    for claim, counterpart in CLAIMS.items():
        pairs: dict[str, list[tuple[Cell, Cell]]] = {place: [] for place in places}
        for (place, combination), ours in cell_at.items():
            other = counterpart(combination)
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


def _combination(cell: Cell) -> Combination:
    return Combination(*(cell.labels[name] for name in Combination._fields))


def _length(settings: Settings) -> str:
    learned = "with the settings tuned for each" if settings.tuned else "with the library's settings for crowds"
    return f"after {crowds.said_length(settings)} of PPO {learned} under the reward {settings.reward}"


def _caption(settings: Settings, words: str) -> str:
    return (
        f"Crowds by frame, dynamics and perception, {_length(settings)}, {words}: interquartile mean over "
        f"{settings.seeds} seeds with its 95 % bootstrap interval. Success is the share that arrives, energy is in "
        f"J/kg, energy-plus adds the least energy for the rest of the way, the optimum is that for the whole way; "
        f"contacts are per agent, summed over substeps."
    )


def _claims_caption(settings: Settings, words: str) -> str:
    return (
        f"Which is better, {_length(settings)}, {words}: the probability that a run has the higher return, the lower "
        f"energy, and the lower energy-plus over the optimum than a run of its counterpart, ties counting one half, "
        f"averaged over the combinations; 95 % bootstrap intervals over {settings.seeds} seeds. A run is better or "
        f"worse if the interval excludes 0.5. Agents that stand still spend little energy: compare with energy-plus."
    )


EXPERIMENT = Experiment(
    "crowd-observations",
    "Crowds compared by perception, frame of observations, and dynamics.",
    Settings,
    run,
)
