"""Crowds: pedestrians with hard bodies, their senses, their rewards and the scenes in which they walk.

`envs.make("crowd/circle")` builds one. Its components are here, too: mechanics (`dynamics`, `contacts`,
`simulation`), scenes (`scenarios`), senses (`neighbours`, `rays`, `observations`), `rewards`, `energy`, `measures`,
`displacements` from recorded paths, and `pedestrians`, measures of real people.
`Orca`, `SocialForce` and `Straight` are policies that read the state; `roll` runs them like learned policies.
"""

from envs.crowd.crowd import Crowd
from envs.crowd.orca import Orca
from envs.crowd.params import CrowdParams, Range
from envs.crowd.presets import PRESETS, REWARDS, Curriculum, reward_variant
from envs.crowd.recordings import Recording
from envs.crowd.rewards import TERMS, Weights
from envs.crowd.scenarios import SCENARIOS, Areas, Recorded, Scenario
from envs.crowd.social_force import Forces, SocialForce
from envs.crowd.steering import Straight
from envs.crowd.trajectories import Trajectory, roll

__all__ = [
    "PRESETS",
    "REWARDS",
    "SCENARIOS",
    "TERMS",
    "Areas",
    "Crowd",
    "CrowdParams",
    "Curriculum",
    "Forces",
    "Orca",
    "Range",
    "Recorded",
    "Recording",
    "Scenario",
    "SocialForce",
    "Straight",
    "Trajectory",
    "Weights",
    "reward_variant",
    "roll",
]
