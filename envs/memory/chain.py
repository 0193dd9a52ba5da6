"""Memory chain: bits are shown at the start, and one is queried much later; gymnax's task with a variable length."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from envs import base, discount_curves, gymnax_environment
from envs.arguments import check_at_least, check_count, check_limit, check_whole
from envs.base import spaces
from envs.pytrees import Action, DiscountLike, Params, State


@dataclass(frozen=True)
class MemoryChain(base.Environment):
    """bsuite's memory chain as implemented in gymnax, `gymnax/MemoryChain-bsuite`, with static fields.

    The first two observations show the bits, `length` - 2 observations show nothing, and the last one shows the number
    of the queried bit; the next action is rewarded with 1 if it equals that bit and with -1 otherwise. An episode has
    `length` + 1 steps. As in gymnax, an observation shows the state before the step that returns it.

    A policy without a memory earns 0.

    Attributes:
      length: Default of gymnax's parameter `memory_length`; a longer one requires a longer time limit.
      num_bits: Number of bits.

    Source: Osband et al. (2020), "Behaviour suite for reinforcement learning".
    """

    length: int = 20
    num_bits: int = 1

    def __post_init__(self) -> None:
        check_count("length", self.length)
        check_count("num_bits", self.num_bits)

    @property
    def inner(self) -> gymnax_environment.GymnaxEnvironment:
        """gymnax's environment."""
        return gymnax_environment.make("MemoryChain-bsuite", num_bits=self.num_bits)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/chain"

    @property
    def default_params(self) -> Any:
        """gymnax's parameters, with the length and a sufficient time limit."""
        params = self.inner.default_params
        limit = max(params.max_steps_in_episode, self.length + 1)
        return params.replace(memory_length=self.length, max_steps_in_episode=limit)

    def check_params(self, params: Params) -> None:
        """Reject a length that is below 1 or not whole, and a time limit before the rewarded step."""
        check_at_least(params, memory_length=1)
        check_whole(params, "memory_length")
        check_limit(params, "memory_length", np.asarray(params.memory_length) + 1)

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, Any]:
        """gymnax's reset."""
        return self.inner.reset_env(key, params)

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[jax.Array, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """gymnax's step."""
        return self.inner.step_env(key, state, action, params)

    def return_range(self, params: Params) -> tuple[Any, Any]:
        """From a wrong to a right answer."""
        del params
        return -1.0, 1.0

    def action_space(self, params: Params = None) -> spaces.Space:
        """A bit."""
        return self.inner.action_space(params)

    def observation_space(self, params: Params) -> spaces.Space:
        """The share of remaining steps, the queried number, and the bits, each -1 or 1; 0 where not shown."""
        return self.inner.observation_space(params)

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float:
        """The best return, Gamma(length). See `envs.Environment.optimum`.

        The sophisticated one is the same, because one step decides alone; the stationary one is `memoryless`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return self.memoryless(params, discount)
        length = int(self.checked_params(params).memory_length)
        return float(discount_curves.of(discount, length + 1)[-1])

    def memoryless(self, params: Params = None, discount: DiscountLike = None) -> float:
        """The best return of a policy without memory: 0, or the optimum where the length is 1.

        At the rewarded action the queried number is observed, but the bits only where the length is 1.

        Args:
          params, discount: See `optimum`.
        """
        params = self.checked_params(params)
        return self.optimum(params, discount) if int(params.memory_length) == 1 else 0.0
