"""The settings of two papers, by year, and the rewards compared in the second one.

Source: "2022", Kwiatkowski et al. (2023), "Understanding reinforcement learned crowds"; "2023", Kwiatkowski et al.
(2023), "Reward function design for crowd simulation via reinforcement learning".
"""

import dataclasses
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from envs.arguments import CheckedFlags
from envs.crowd.energy import RESTING, WALKING
from envs.crowd.rewards import Weights
from envs.errors import UserValueError
from envs.spelling import near_or_all

__all__ = ["PRESETS", "REWARDS", "Curriculum", "Preset", "preset", "reward_variant"]


@dataclass(frozen=True)
class Preset(CheckedFlags):
    """The settings in which the two papers differ.

    Attributes:
      dt: Length of a substep in s.
      turn_rate: Rate in rad per substep at full turn.
      max_speed: Largest speed in m/s.
      max_acceleration: Largest acceleration in m/s^2.
      backwards: Whether polar acceleration may go backwards for a substep.
      energy_from: Velocity that energies and rewards are computed from: "commanded", before contacts, or "moved".
      size_mass, resting, walking: Ranges `(low, high)` of the body's scale and of the energy constants e_s and e_w;
        equal bounds where all agents are alike.
      num_neighbours: Largest number of neighbours, K.
      extended: Whether an agent observes its energy constants, its preferred speed and the time, and the masses
        of others.
      circle_radius, circle_noise: Radius and noise of the scenario "circle" in m.
      circle_obstacles: Whether the circle has pillars.
      ray_length: Length in m of rays that see agents and walls.
      wall_ray_length: Length in m of rays that see walls only.
      weights: Weights of the reward.
    """

    dt: float
    turn_rate: float
    max_speed: float
    max_acceleration: float
    backwards: bool
    energy_from: Literal["commanded", "moved"]
    size_mass: tuple[float, float]
    resting: tuple[float, float]
    walking: tuple[float, float]
    num_neighbours: int
    extended: bool
    circle_radius: float
    circle_noise: float
    circle_obstacles: bool
    ray_length: float
    wall_ray_length: float
    weights: Weights


class Curriculum(NamedTuple):
    """A reward in two stages.

    Attributes:
      weights: Weights of the first stage.
      later_weights: Weights of the second stage.
      switch_iteration: Number of iterations of the paper's training in the first stage; infinite without a second.
      ramp_iterations: Number of iterations after `switch_iteration` over which the weights change linearly; 0 for at
        once.
    """

    weights: Weights
    later_weights: Weights
    switch_iteration: float = math.inf
    ramp_iterations: float = 0.0

    @property
    def switch_env_steps(self) -> float:
        """The same number in environment steps: 200 decisions in each of two worlds make an iteration."""
        return float(self.switch_iteration * 400)  # an int would make the parameter a whole number

    @property
    def ramp_env_steps(self) -> float:
        """The length of the change in environment steps."""
        return float(self.ramp_iterations * 400)


_FIRST_STAGE = Weights(potential=1.0, speeding=10.0, goal=10.0, collision=-0.05)
_ONLY_ENERGY = Weights(bmr=1.0, drag=1.0, collision=-0.05)
_STRAIGHT = Weights(progress=1.0, speed=0.75, time=-0.1, collision=-0.005)
_THROUGH = Weights(progress=1.0, time=-0.05, goal=5.0)

PRESETS: MappingProxyType[str, Preset] = MappingProxyType(
    {
        "2022": Preset(
            dt=1 / 120,
            turn_rate=math.radians(1),
            max_speed=2.0,
            max_acceleration=5.0,
            backwards=False,
            energy_from="commanded",
            size_mass=(1.0, 1.0),
            resting=(RESTING, RESTING),
            walking=(WALKING, WALKING),
            num_neighbours=10,
            extended=False,
            circle_radius=6.0,
            circle_noise=0.5,
            circle_obstacles=False,
            ray_length=4.0,
            wall_ray_length=16.0,
            weights=Weights(progress=1.0, speed=0.75, time=-0.005, goal=10.0, collision=-0.05),
        ),
        "2023": Preset(
            dt=0.01,
            turn_rate=math.radians(3),
            max_speed=4.0,
            max_acceleration=5.0,
            backwards=True,
            energy_from="moved",
            size_mass=(0.5, 1.5),
            resting=(1.5, 3.0),
            walking=(1.0, 1.5),
            num_neighbours=20,
            extended=True,
            circle_radius=7.0,
            circle_noise=1.5,
            circle_obstacles=True,
            ray_length=10.0,
            wall_ray_length=40.0,
            weights=Weights(potential=1.0, goal=10.0, bmr=1.0, drag=1.0, collision=-0.05),
        ),
    }
)


def _after_first_stage(weights: Weights) -> Curriculum:
    return Curriculum(_FIRST_STAGE, weights, 199)


def _always(weights: Weights) -> Curriculum:
    return Curriculum(weights, weights)


# The rewards compared in 2023: its variants 0 to 9, and those without the potential; and five of this package.
# "straight" is the reward of 2022 with three changes. It has no bonus at the goal, which makes walkers hurry. Time
# costs twenty times as much, which makes detours expensive and leaves v* the best speed, because it stays below c_v v*.
# Contacts cost a tenth, because their full cost makes thirty people take detours. Where people must wait for each
# other, an expensive loss of speed makes them walk in circles: it costs little in "yielding", for crossing streams, and
# nothing in "through", for doors, which a cost of contacts would keep them away from. In "careful", for a corridor, and
# "careful-through", people first learn to walk; then the cost of contacts grows, slowly, because a sudden cost makes
# them wait.
REWARDS: MappingProxyType[str, Curriculum] = MappingProxyType(
    {
        "base": _after_first_stage(
            Weights(potential=1.0, goal=10.0, bmr=1.0, dynamics=1.0, avg_final=1.0, collision=-0.05)
        ),
        "base-optimal": _after_first_stage(
            Weights(potential=1.0, goal=10.0, bmr=1.0, dynamics=1.0, final=1.0, collision=-0.05)
        ),
        "base-no-final": _after_first_stage(Weights(potential=1.0, goal=10.0, bmr=1.0, dynamics=1.0, collision=-0.05)),
        "base-drag": _after_first_stage(
            Weights(potential=1.0, goal=10.0, bmr=1.0, drag=1.0, avg_final=1.0, collision=-0.05)
        ),
        "energy-dynamics": _always(Weights(potential=1.0, goal=10.0, bmr=1.0, dynamics=1.0, collision=-0.05)),
        "energy-drag": _always(Weights(potential=1.0, goal=10.0, bmr=1.0, drag=1.0, collision=-0.05)),
        "energy-no-potential": _always(Weights(goal=10.0, bmr=1.0, drag=1.0, collision=-0.05)),
        "velocity-matching": _always(Weights(goal=10.0, exp_v_matching=10.0, collision=-0.2)),
        "speed-matching": _always(Weights(potential=1.0, s_matching=10.0, goal=10.0, collision=-0.2)),
        "speeding": _always(Weights(potential=1.0, speeding=10.0, goal=10.0, collision=-0.2, matching_exponent=1.0)),
        # The paper does not specify the energy of these: with drag, as its other variant without potential.
        "no-potential": _after_first_stage(Weights(goal=10.0, bmr=1.0, drag=1.0, avg_final=1.0, collision=-0.05)),
        "no-potential-no-final": _after_first_stage(Weights(goal=10.0, bmr=1.0, drag=1.0, collision=-0.05)),
        "no-potential-no-goal": _after_first_stage(Weights(bmr=1.0, drag=1.0, avg_final=1.0, collision=-0.05)),
        "no-potential-no-goal-optimal": _after_first_stage(Weights(bmr=1.0, drag=1.0, final=1.0, collision=-0.05)),
        "pure-energy": _after_first_stage(_ONLY_ENERGY),
        "straight": _always(_STRAIGHT),
        "careful": Curriculum(_STRAIGHT, dataclasses.replace(_STRAIGHT, collision=-1.0), 40, 60),
        "yielding": _always(Weights(progress=1.0, speed=0.1, time=-0.05, goal=5.0, collision=-0.005)),
        "through": _always(_THROUGH),
        "careful-through": Curriculum(_THROUGH, dataclasses.replace(_THROUGH, collision=-0.05), 75, 375),
    }
)


def preset(name: str) -> Preset:
    """The settings of a paper.

    Args:
      name: Name of the preset, "2022" or "2023".

    Raises:
      ValueError: There is no such preset.
    """
    if name not in PRESETS:
        raise UserValueError(f"preset is {name!r}{near_or_all(str(name), PRESETS)}")
    return PRESETS[name]


def reward_variant(name: str) -> Curriculum:
    """A reward by its name, for `CrowdParams`.

    Args:
      name: Name in `REWARDS`.

    Raises:
      ValueError: There is no such reward.
    """
    if name not in REWARDS:
        raise UserValueError(f"reward is {name!r}{near_or_all(str(name), REWARDS)}")
    return REWARDS[name]
