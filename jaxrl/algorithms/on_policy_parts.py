"""Parts of learning in on-policy algorithms: samples, minibatches, the network on them, and gradient steps."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from envs.errors import UserValueError
from jaxrl.algorithms.contract import Metrics
from jaxrl.learning.action_heads import ActionHead
from jaxrl.learning.actor import Memory
from jaxrl.learning.beliefs import Belief
from jaxrl.learning.centralised import CentralisedActorCritic, apply_centralised
from jaxrl.learning.critics import Critic
from jaxrl.learning.minibatches import row_minibatches, sequence_minibatches
from jaxrl.learning.networks import Module, apply_over
from jaxrl.learning.optimisers import adam
from jaxrl.learning.recurrent import is_recurrent, unroll_over
from jaxrl.learning.shards import EnvShards, averaged

__all__ = ["Learn", "Learner", "Parts", "Samples", "Start"]


class Learner(NamedTuple):
    """State that learning updates.

    Attributes:
      weights: Parameters of the network, and log standard deviations or None.
      optimiser: State of the optimiser.
      own: Additional state of the algorithm, such as an adaptive coefficient; None for most.
    """

    weights: Any
    optimiser: Any
    own: Any = None


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

    `value` and `target` have one more axis, `[..., K]`, for a mixture critic. `scores` are those of the policy that
    acted, None unless the algorithm keeps them. For a recurrent network minibatches are sequences, `[T, envs, *A,
    ...]`; `reset` is True where an episode began with the step, and `start` has leaves `[num_envs, ...]`. Without
    memory they are None and (). For a centralised critic `global_obs` has leaves `[T, num_envs, ...]`, and minibatches
    are steps with all agents, `[steps, *A, ...]`; otherwise it is None. `behaviour` is the subject of a belief, None
    without one.
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
    global_obs: Any = None
    behaviour: Any = None


class Parts(NamedTuple):
    """Components of an algorithm for one environment and configuration.

    Attributes:
      config: Configuration.
      head: Action head of the environment's action space.
      critic: Functions of the network's values.
      network: Network, which may be recurrent, see `jaxrl.learning.recurrent`.
      num_envs: Number of environments of one shard.
      num_rows: Number of samples of one iteration of one shard, over steps, environments and agents.
      shards: Shards of the environments, if any.
      agents: Axes of the agents, `*A`.
      belief: Belief of the network about a behaviour, if any.
    """

    config: Any
    head: ActionHead
    critic: Critic
    network: Module
    num_envs: int
    num_rows: int
    shards: EnvShards | None
    agents: tuple[int, ...] = ()
    belief: Belief | None = None

    @property
    def centralised(self) -> bool:
        """Whether the critic takes global observations, so that minibatches are steps with all agents."""
        return isinstance(self.network, CentralisedActorCritic)

    @property
    def remembers(self) -> bool:
        """Whether the network is recurrent, so that minibatches are sequences."""
        return is_recurrent(self.network)

    def forward(self, params: Any, batch: Samples) -> tuple[jax.Array, jax.Array]:
        """Outputs and values of the network for samples, with the leading axes of `batch.weight`."""
        if not self.remembers:
            return self.evaluate(params, batch.obs, batch.global_obs, batch.weight.ndim)
        memory = self.start_memory(params, batch.start)
        return unroll_over(self.network, params, batch.obs, memory, batch.reset)[:2]

    def evaluate(self, params: Any, obs: Any, global_obs: Any, num_axes: int) -> tuple[jax.Array, jax.Array]:
        """Outputs and values of a network without memory for observations with `num_axes` leading axes, `*A` last."""
        if self.centralised:
            return apply_centralised(self.network, params, obs, global_obs, num_axes, len(self.agents))
        return apply_over(self.network, params, obs, num_axes)

    def start_memory(self, params: Any, start: Start) -> Memory:
        """Memories at the start of a rollout, leaves `[envs, *A, ...]`, without gradient."""
        if start.obs is None:
            return start.memory
        obs, reset = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), (start.obs, start.reset))
        after = unroll_over(self.network, params, obs, start.memory, reset)[2]
        return jax.lax.stop_gradient(jax.tree.map(lambda leaf: leaf[-1], after))

    def check_minibatches(self, num_minibatches: int) -> None:
        """Rejects minibatches that do not divide the samples of an iteration, or its sequences."""
        if self.remembers and self.num_envs % num_minibatches:
            raise UserValueError(
                f"num_minibatches must divide the {self.num_envs} environments (num_envs"
                f"{'' if self.shards is None else ' / devices'}) of a policy that remembers, which learns from whole "
                f"sequences, got {num_minibatches}"
            )
        num_steps = self.num_rows // math.prod(self.agents)
        if self.centralised and num_steps % num_minibatches:
            raise UserValueError(
                f"num_minibatches must divide the {num_steps} steps of an iteration (num_envs * num_steps"
                f"{'' if self.shards is None else ' / devices'}) with critic_sees='global', whose minibatches have all "
                f"agents of a step, got {num_minibatches}"
            )
        if self.num_rows % num_minibatches:
            raise UserValueError(
                f"num_minibatches must divide the {self.num_rows} samples of an iteration "
                f"(num_envs * num_steps * agents{'' if self.shards is None else ' / devices'}), got {num_minibatches}"
            )

    def minibatches(self, key: jax.Array, samples: Samples, num_minibatches: int) -> Samples:
        """Every sample, or sequence, once, in random order; leaves `[num_minibatches, ...]`."""
        if self.remembers:
            start = row_minibatches(key, samples.start, num_minibatches)  # the same key selects the same environments
            sequences = sequence_minibatches(key, samples._replace(start=()), num_minibatches)
            return sequences._replace(start=start)
        return row_minibatches(key, self.rows(samples), num_minibatches)

    def rows(self, samples: Samples) -> Samples:
        """Samples along one axis, `[num_rows, ...]`, or steps `[num_rows / agents, *A, ...]`, without memories."""
        axes, count, alone = samples.weight.ndim, self.num_rows, samples._replace(start=())
        if self.centralised:
            axes, count = axes - len(self.agents), count // math.prod(self.agents)
        return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[axes:]), alone)

    def descent(
        self, loss: Callable[..., tuple[jax.Array, Metrics]], hparams: Any, lr: jax.Array
    ) -> Callable[[Learner, Any], tuple[Learner, Metrics]]:
        """Function that makes a step of Adam on a minibatch.

        Args:
          loss: Function `(weights, minibatch, hparams) -> (loss [], metrics)`; the minibatch has weights of samples
            `.weight`.
          hparams: Hyper-parameters, prepared.
          lr: Step size, `[]`.

        Returns:
          Function `(learner, minibatch) -> (learner, metrics)`; the metrics include `grad_norm`.
        """
        transformation = adam(hparams, lr)

        def one_minibatch(learner: Learner, minibatch: Any) -> tuple[Learner, Metrics]:
            weights = learner.weights
            (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(weights, minibatch, hparams)
            metrics, gradient = averaged((metrics, gradient), minibatch.weight, self.shards)
            metrics["grad_norm"] = jnp.linalg.norm(ravel_pytree(gradient)[0])
            updates, optimiser = transformation.update(gradient, learner.optimiser, weights)
            return learner._replace(weights=optax.apply_updates(weights, updates), optimiser=optimiser), metrics

        return one_minibatch


# `(key, learner, samples, hparams, lr) -> (learner, metrics)`.
Learn = Callable[[jax.Array, Learner, Samples, Any, jax.Array], tuple[Learner, Metrics]]
