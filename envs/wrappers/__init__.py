"""Environments made from other environments, by plain functions.

`frame_stack(env, 4)`, `sticky_actions(env, 0.25)` and others take an environment and return one,
which is hashable by value: equal ones share a compilation. They nest in any order.
Numbers of a wrapper are parameters: `env.probability`, `env.scale`, `env.max_steps_in_episode`; inside a wrapper with
parameters, those of the wrapped environment are at `env.inner.gravity` and so on. `Wrapper` is the base of custom
wrappers.
"""

from envs.wrappers.actions import DelayActions, StickyActions, StickyActionsParams, delay_actions, sticky_actions
from envs.wrappers.asymmetric import AsymmetricObservation, asymmetric_observation
from envs.wrappers.bounding import BoundActions, bound_actions
from envs.wrappers.discretising import DiscretiseActions, discretise_actions
from envs.wrappers.frames import DelayObservations, FrameStack, delay_observations, frame_stack
from envs.wrappers.hiding import Hide, hide
from envs.wrappers.observations import (
    FlattenObservation,
    ObservationNoise,
    ObservationNoiseParams,
    TransformObservation,
    flatten_observation,
    observation_noise,
    transform_observation,
)
from envs.wrappers.randomising import Randomise, RandomiseParams, Sampler, randomise
from envs.wrappers.repeating import ActionRepeat, ActionRepeatParams, action_repeat
from envs.wrappers.rewards import DelayRewards, TransformReward, delay_rewards, transform_reward
from envs.wrappers.time import REMAINING, REST, TimeFeature, TimeLimit, time_feature, time_limit
from envs.wrappers.wrapper import ParamsWrapper, Wrapper, WrapperParams, WrapperState

__all__ = [
    "REMAINING",
    "REST",
    "ActionRepeat",
    "ActionRepeatParams",
    "AsymmetricObservation",
    "BoundActions",
    "DelayActions",
    "DelayObservations",
    "DelayRewards",
    "DiscretiseActions",
    "FlattenObservation",
    "FrameStack",
    "Hide",
    "ObservationNoise",
    "ObservationNoiseParams",
    "ParamsWrapper",
    "Randomise",
    "RandomiseParams",
    "Sampler",
    "StickyActions",
    "StickyActionsParams",
    "TimeFeature",
    "TimeLimit",
    "TransformObservation",
    "TransformReward",
    "Wrapper",
    "WrapperParams",
    "WrapperState",
    "action_repeat",
    "asymmetric_observation",
    "bound_actions",
    "delay_actions",
    "delay_observations",
    "delay_rewards",
    "discretise_actions",
    "flatten_observation",
    "frame_stack",
    "hide",
    "observation_noise",
    "randomise",
    "sticky_actions",
    "time_feature",
    "time_limit",
    "transform_observation",
    "transform_reward",
]
