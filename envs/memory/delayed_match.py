"""Delayed match to sample: decide whether two symbols shown at a long interval are the same."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_count, check_limit, check_whole
from envs.base import spaces
from envs.pytrees import DiscountLike

DIFFERENT, SAME = 0, 1


@struct.dataclass
class DelayedMatchState(base.EnvState):
    """The state of a trial.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      sample: First symbol of the trial, int32 `[]`.
      test: Last symbol of the trial, int32 `[]`.
    """

    time: jax.Array
    sample: jax.Array
    test: jax.Array


@struct.dataclass
class DelayedMatchParams(base.EnvParams):
    """The lengths of the task.

    Attributes:
      delay: Number of steps without a symbol between the sample and the test, int, at least 0; longer delays and more
        trials require a longer time limit.
      num_trials: Number of trials in an episode, int, at least 1.
      max_steps_in_episode: Time limit.
    """

    delay: int = 10
    num_trials: int = 4
    max_steps_in_episode: int = 48


@dataclass(frozen=True)
class DelayedMatch(base.Environment):
    """A sample is shown, then `delay` observations without a symbol, then a test to be compared with the sample.

    In half of the trials both are the same symbol; in the others the test is one of the other symbols, which are
    equally likely. The action at the test is the answer, 1 for the same and 0 for different. Its reward is 1 /
    num_trials if it is right and -1 / num_trials if it is wrong; other actions have no effect. An episode has several
    trials, so a memory must also forget.

    The test alone carries no information on the answer: a policy without a memory earns 0.

    Attributes:
      num_symbols: Number of symbols.
      delay: Default of the parameter.
      num_trials: Default of the parameter.

    Source: after the task of Blough (1959), "Delayed matching in the pigeon".
    """

    num_symbols: int = 4
    delay: int = 10
    num_trials: int = 4

    def __post_init__(self) -> None:
        check_count("num_symbols", self.num_symbols, 2)
        check_count("delay", self.delay, 0)
        check_count("num_trials", self.num_trials)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/delayed-match"

    @property
    def default_params(self) -> DelayedMatchParams:
        """The delay, the number of trials, and a sufficient time limit."""
        limit = self.num_trials * (self.delay + 2)
        return DelayedMatchParams(delay=self.delay, num_trials=self.num_trials, max_steps_in_episode=limit)

    def check_params(self, params: DelayedMatchParams) -> None:
        """Reject a negative or fractional delay or number of trials, no trial, and a limit before the first test."""
        check_at_least(params, delay=0, num_trials=1)
        check_whole(params, "delay", "num_trials")
        check_limit(params, "delay", np.asarray(params.delay) + 2)

    def reset_env(self, key: jax.Array, params: DelayedMatchParams) -> tuple[jax.Array, DelayedMatchState]:
        """The first sample `[num_symbols + 2]`."""
        state = DelayedMatchState(jnp.zeros((), jnp.int32), *self._draw(key))
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: DelayedMatchState, action: jax.Array, params: DelayedMatchParams
    ) -> tuple[jax.Array, DelayedMatchState, jax.Array, jax.Array, dict[Any, Any]]:
        """Reward the answer at a test, after which a new trial begins."""
        steps = params.delay + 2
        answers = state.time % steps == steps - 1
        right = (action == SAME) == (state.sample == state.test)
        reward = jnp.where(answers, jnp.where(right, 1.0, -1.0), 0.0) / params.num_trials
        sample, test = self._draw(key)
        time = state.time + 1
        state = DelayedMatchState(time, jnp.where(answers, sample, state.sample), jnp.where(answers, test, state.test))
        return self._observe(state, params), state, reward.astype(jnp.float32), time >= params.num_trials * steps, {}

    def return_range(self, params: DelayedMatchParams) -> tuple[Any, Any]:
        """From a wrong to a right answer in every trial."""
        del params
        return -1.0, 1.0

    def action_space(self, params: DelayedMatchParams | None = None) -> spaces.Discrete:
        """0 for different, 1 for the same."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: DelayedMatchParams) -> spaces.Box:
        """The symbol shown, one-hot, and whether it is a sample or a test; all 0 in between."""
        del params
        return spaces.Box(0.0, 1.0, (self.num_symbols + 2,), jnp.float32)

    def optimum(
        self,
        params: DelayedMatchParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The best return, the sum of Gamma at the tests within the time limit as a share of all tests.

        The sophisticated one is the same, because no answer changes a later reward; the stationary one is `memoryless`.
        See `envs.Environment.optimum`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return self.memoryless(params, discount)
        params = self.checked_params(params)
        steps, trials = int(params.delay) + 2, int(params.num_trials)
        tests = steps * np.arange(1, trials + 1) - 1
        tests = tests[tests < int(params.max_steps_in_episode)]
        return float(np.sum(discount_curves.of(discount, steps * trials)[tests]) / trials)

    def memoryless(self, params: DelayedMatchParams | None = None, discount: DiscountLike = None) -> float:
        """The best return of a policy without memory, 0: at a test both answers are equally likely.

        Args:
          params, discount: See `optimum`.
        """
        del discount
        self.checked_params(params)
        return 0.0

    def _draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The sample and the test of a trial."""
        sample_key, same_key, other_key = jax.random.split(key, 3)
        sample = jax.random.randint(sample_key, (), 0, self.num_symbols)
        other = jax.random.randint(other_key, (), 1, self.num_symbols)
        shift = jnp.where(jax.random.bernoulli(same_key), 0, other)
        return sample, (sample + shift) % self.num_symbols

    def _observe(self, state: DelayedMatchState, params: DelayedMatchParams) -> jax.Array:
        phase = state.time % (params.delay + 2)
        is_sample, is_test = phase == 0, phase == params.delay + 1
        symbol = jnp.where(is_sample, state.sample, jnp.where(is_test, state.test, -1))
        flags = jnp.stack([is_sample, is_test])
        return jnp.concatenate([jnp.arange(self.num_symbols) == symbol, flags]).astype(jnp.float32)
