"""State, policy and samples of on-policy algorithms, and the memories at the start of a rollout."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.learning.action_heads import Scores
from jaxrl.learning.actor import Memory
from jaxrl.learning.levels import Drawn, Levels
from jaxrl.learning.normalisation import RewardScale, RunningStatistics, normalise
from jaxrl.learning.rollout import Carry, Transition
from jaxrl.pytrees import Observation

__all__ = [
    "Evaluation",
    "Learner",
    "OnPolicyPolicy",
    "OnPolicyState",
    "Rollout",
    "Samples",
    "Start",
    "last_steps",
    "nothing_before",
]


class OnPolicyPolicy(NamedTuple):
    """Policy of an on-policy algorithm.

    Attributes:
      params: Parameters of the network.
      log_std: Log standard deviations of continuous actions, float32 `[num_outputs]`, otherwise None.
      observations: Running statistics of observations, None without normalisation.
      observation_clip: Bound of normalised observations, float32 `[]`, None without normalisation.
      critic_observations: Running statistics of what only the critic sees; None if it sees nothing more, or without
        normalisation.
    """

    params: Any
    log_std: jax.Array | None
    observations: RunningStatistics | None
    observation_clip: jax.Array | None
    critic_observations: RunningStatistics | None = None

    def normalised(self, obs: Observation) -> Any:
        """Observations in the form that the network takes."""
        return normalise(self.observations, obs, self.observation_clip)

    def normalised_critic(self, critic_obs: Observation) -> Any:
        """What only the critic sees, in the form that it takes."""
        return normalise(self.critic_observations, critic_obs, self.observation_clip)


class OnPolicyState(NamedTuple):
    """State of one run between iterations.

    Attributes:
      weights: Parameters of the network, and log standard deviations or None.
      observations: Running statistics of observations, None without normalisation.
      optimiser: State of the optimiser.
      carry: Environments.
      rewards: Running statistics of the exponentially discounted sum of rewards, and that sum
        `[num_envs, *A]`; None without normalisation.
      own: Additional state of one algorithm, such as an adaptive coefficient; None for most.
      start: Steps from which the memories at the start of the next rollout are recomputed, () without `burn_in`.
      critic_observations: Running statistics of what only the critic sees; None if it sees nothing more, or without
        normalisation.
      levels: Buffer of levels, None without one.
    """

    weights: tuple[Any, jax.Array | None]
    observations: RunningStatistics | None
    optimiser: optax.OptState
    carry: Carry
    rewards: RewardScale | None
    own: Any = None
    start: Any = ()
    critic_observations: RunningStatistics | None = None
    levels: Levels | None = None


class Learner(NamedTuple):
    """Parameters and optimiser state that learning updates.

    Attributes:
      weights: Parameters of the network, and log standard deviations or None.
      optimiser: State of the optimiser.
    """

    weights: Any
    optimiser: Any


class Rollout(NamedTuple):
    """Steps of one iteration.

    Attributes:
      carry: Environments after the steps.
      steps: Steps, leaves `[T, num_envs, *A, ...]`.
      reward: Rewards, normalised if configured, `[T, num_envs, *A]`.
      rewards: Statistics of rewards after the steps, None without normalisation.
      reused: Number of reused states of the reset pool, int32 `[]`.
      levels: Levels for the resets, None without a buffer.
    """

    carry: Carry
    steps: Transition
    reward: jax.Array
    rewards: Any
    reused: jax.Array
    levels: Drawn | None = None


class Start(NamedTuple):
    """Memories at the start of a rollout, or the previous steps from which they are recomputed.

    Attributes:
      memory: Memories, leaves `[num_envs, *A, ...]`, before the B previous steps if there are any.
      obs: Observations of the steps, leaves `[num_envs, B, *A, ...]`, None for none.
      reset: Whether an episode began with the step, bool `[num_envs, B, *A]`, None for none.
    """

    memory: Memory
    obs: Any = None
    reset: Any = None


class Samples(NamedTuple):
    """Samples for learning; leaves `[T, num_envs, *A, ...]`, or `[rows, ...]` in a minibatch.

    `value` and `target` have one more axis, `[..., K]`, for a mixture critic. `scores` are None unless the algorithm
    sets them. For a recurrent network minibatches are sequences, `[T, envs, *A, ...]`; `reset` is True where an episode
    began with the step, and `start` has leaves `[num_envs, ...]`. Without memory they are None and (). For a
    centralised critic `critic_obs` has global observations, leaves `[T, num_envs, ...]`, and minibatches are steps with
    all agents, `[steps, *A, ...]`; otherwise it is None. For a critic of privileged facts, `obs` is `Seen`. `behaviour`
    is the subject of a belief, None without one.
    """

    obs: Any
    raw_action: jax.Array
    mask: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array
    weight: jax.Array
    scores: Any = None
    reset: Any = None
    start: Any = ()
    critic_obs: Any = None
    behaviour: Any = None


class Evaluation(NamedTuple):
    """Rollout as evaluated by the policy and the critic that acted.

    Attributes:
      samples: Samples for learning, without scores.
      scores: Parameters of the action distributions, leaves `[T, num_envs, *A, ...]`.
      next_start: Steps from which the memories at the start of the next rollout are recomputed, () without `burn_in`.
    """

    samples: Samples
    scores: Scores
    next_start: Any


def nothing_before(carry: Carry, burn_in: int, agents: tuple[int, ...]) -> Start:
    """Start of the first rollout, before there are any steps: memories at the start of an episode."""
    num_envs = jax.tree.leaves(carry.obs)[0].shape[0]
    obs = jax.tree.map(lambda leaf: jnp.zeros((num_envs, burn_in, *leaf.shape[1:]), leaf.dtype), carry.obs)
    return Start(carry.memory, obs, jnp.ones((num_envs, burn_in + 1, *agents), bool))


def last_steps(
    burn_in: int, memory: Memory, after: Memory, obs: Observation, reset: jax.Array, done: jax.Array
) -> Start:
    """Last steps of a rollout, the memories before them, and whether an episode begins with the next rollout.

    Args:
      burn_in: Number of steps.
      memory: Memories at the start of the rollout, leaves `[N, *A, ...]`.
      after: Memories after each step, leaves `[T, N, *A, ...]`.
      obs: Observations, leaves `[T, N, *A, ...]`.
      reset, done: Whether an episode begins, or ends, with each step, bool `[T, N, *A]`.
    """
    if burn_in < done.shape[0]:
        memory = jax.tree.map(lambda leaf: leaf[-burn_in - 1], after)
    flags = jnp.concatenate([reset[-burn_in:], done[-1:]])
    obs, flags = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), (jax.tree.map(lambda x: x[-burn_in:], obs), flags))
    return Start(memory, obs, flags)
