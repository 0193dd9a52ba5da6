"""The base of adapters of suites whose environments have the functions of gymnax."""

from dataclasses import dataclass
from typing import Any

import jax

from envs.adapters.incoming.suite import SuiteEnvironment, Transition
from envs.base import spaces
from envs.pytrees import Action, Observation, Params, PyTree


@dataclass(frozen=True)
class GymnaxLikeEnvironment(SuiteEnvironment):
    """A task with `reset_env(key, params)`, and with `step_env(key, state, action, params)`, which does not reset.

    A subclass defines `inner`, and the two methods below where its suite differs from gymnax 1.0, whose `step_env`
    returns terminations without the time limit.
    """

    def own(self, params: Params) -> Any:
        """The parameters that the suite's functions take, for those of `default_params`; by default the same ones."""
        return params

    def transition(
        self, obs: Observation, inner: Any, reward: Any, done: Any, info: PyTree, params: Params
    ) -> Transition:
        """The words of the contract for what the suite's step returns."""
        del info, params
        return Transition(obs, inner, reward, done)

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The suite's reset."""
        return self.inner.reset_env(key, self.own(params))

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """The suite's step."""
        obs, inner, reward, done, info = self.inner.step_env(key, inner, action, self.own(params))
        return self.transition(obs, inner, reward, done, info, params)

    def action_space(self, params: Params = None) -> spaces.Space:
        """The suite's action space."""
        space = self.inner.action_space(self.own(self.default_params if params is None else params))
        if hasattr(space, "n"):
            return spaces.Discrete(int(space.n))
        return spaces.Box(space.low, space.high, tuple(space.shape), space.dtype)
