"""PQN: parallel Q-learning under any discount, Q(lambda) without a replay buffer or a target network."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from envs.base import Environment
from envs.checking import check_abstractly
from envs.errors import UserValueError
from envs.loops import scan
from envs.threefry import unrolled
from jaxrl.algorithms.action_values import EpsilonGreedy, QConfig, QHParams, action_values, common_space, remembers
from jaxrl.algorithms.contract import Algorithm, Metrics, assembled, checked_config, checked_network, with_hints
from jaxrl.algorithms.off_policy import OffPolicyPolicy, off_policy
from jaxrl.algorithms.rollout_config import check_num_rows, stopped
from jaxrl.algorithms.value_function import Nodes, Target
from jaxrl.checks import Range, check_count
from jaxrl.learning import value_losses
from jaxrl.learning.actor import memories
from jaxrl.learning.minibatches import over_epochs, row_minibatches, sequence_minibatches
from jaxrl.learning.networks import Module
from jaxrl.learning.normalisation import RunningStatistics
from jaxrl.learning.optimisers import transformation
from jaxrl.learning.q_targets import bootstrap_actions, lambda_targets
from jaxrl.learning.rollout import Carry, Transition, episode_ends, reset_all, value_ends
from jaxrl.learning.sequences import in_order
from jaxrl.pytrees import EnvParams, Observation, PyTree
from jaxrl.sweeps.distributions import SearchSpace, Uniform

__all__ = ["PQNConfig", "PQNHParams", "PQNState", "pqn", "search_space"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PQNConfig(QConfig):
    """Static configuration of PQN: changing a field recompiles.

    Attributes:
      num_envs: Number of environments of one run.
      num_steps: Number of steps of each environment in one iteration, over which lambda-returns extend.
      layer_norm: Whether each hidden layer is normalised, which keeps learning stable without a target network.
      value_loss: Representation of a value and its loss: "squared", "huber" or "hl-gauss"; not a distribution of
        returns.
      num_epochs: Number of passes over the samples of an iteration.
      num_minibatches: Number of minibatches of one pass; must divide num_envs * num_steps (* agents), or num_envs with
        a memory, whose minibatches are environments with all their steps.
    """

    num_envs: int = 16
    num_steps: int = 32
    layer_norm: bool = True
    value_loss: value_losses.Kind = "squared"
    num_epochs: int = 4
    num_minibatches: int = 4

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        for name in ("num_epochs", "num_minibatches"):
            check_count(name, getattr(self, name))
        if self.value_loss in value_losses.DISTRIBUTIONAL:
            raise UserValueError(
                "value_loss takes 'squared', 'huber' or 'hl-gauss', since a lambda-return is a number, got "
                f"{self.value_loss!r}"
            )


@struct.dataclass
class PQNHParams(QHParams):
    """Hyper-parameters of PQN, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lam: Lambda of the targets, in [0, 1]; 1 is Monte Carlo, 0 is one-step.
      epsilon_anneal_env_steps: Number of environment steps over which the probability of a random action decays.

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    lr: Any = 5e-4
    lam: Any = 0.65
    epsilon_anneal_env_steps: Any = 100_000.0

    ranges = QHParams.ranges | {"lam": Range(0, 1)}


class PQNState(NamedTuple):
    """State of one run between iterations.

    Attributes:
      acting: Parameters with which the policy acts.
      optimiser: State of the optimiser.
      observations: Running statistics of observations, None without normalisation.
      carry: States and observations of the environments.
    """

    acting: EpsilonGreedy
    optimiser: optax.OptState
    observations: RunningStatistics | None
    carry: Carry


class Samples(NamedTuple):
    """Samples of an iteration, leaves `[rows, ...]`: observations in the network's form, actions, targets `[K]`.

    With a memory, leaves are `[num_steps, envs, *A, ...]`, and observations are `Sequences`.
    """

    obs: Any
    raw_action: jax.Array
    target: jax.Array
    active: jax.Array


@with_hints
def pqn(env: Environment, config: PQNConfig | None = None, network: Module | None = None) -> Algorithm:
    """Parallel Q-learning on an environment with discrete actions, of one choice or of several as in `dqn`.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: Custom network, a hashable flax module `(obs) -> action values [num_actions]` of one observation, of
        several choices one after another; a value of `num_heads` heads or of `num_atoms` numbers has these axes, in
        this order, at the end. One with a memory is called as `(obs, memory) -> (action values, memory)`. None for the
        network of the configuration.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; raised before anything is compiled.

    Source: Gallici et al. (2024), "Simplifying deep temporal difference learning"; Fedus et al. (2019), arXiv
    1902.06865, for `heads`.
    """
    return _build(env, checked_config(config, PQNConfig), checked_network(network), check_abstractly(env))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of PQN."""
    return common_space(algo, {"lam": Uniform(0.0, 1.0)})


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: PQNConfig, own: Module | None, agents: tuple[int, ...]) -> Algorithm:
    rollouts = off_policy(env, config, agents, remembers=remembers(config, own))
    q = action_values("pqn", rollouts, own)
    actor, values, axes = q.actor(), q.values, 2 + len(agents)
    num_rows = config.steps_per_iteration * math.prod(agents)
    check_num_rows(num_rows)
    if values.remembers and config.num_envs % config.num_minibatches:
        raise UserValueError(
            f"num_minibatches must divide the {config.num_envs} environments (num_envs) of a policy that remembers, "
            f"which learns from whole sequences, got {config.num_minibatches}"
        )
    if num_rows % config.num_minibatches:
        raise UserValueError(
            f"num_minibatches must divide the {num_rows} samples of an iteration (num_envs * num_steps * agents), got "
            f"{config.num_minibatches}"
        )

    def policy_of(state: PQNState, hparams: PQNHParams) -> OffPolicyPolicy:
        return rollouts.policy_of(state.acting, state.observations, hparams)

    def init(key: jax.Array, hparams: PQNHParams, env_params: EnvParams) -> PQNState:
        hparams = q.prepare(hparams)
        network_key, reset_key = jax.random.split(unrolled(key))
        acting, observations = q.initial(network_key, hparams), rollouts.first_statistics()
        memory = memories(values.initial_memory, agents)
        carry = reset_all(rollouts.env, reset_key, env_params, config.num_envs, memory=memory)
        optimiser = transformation(config.optimiser, hparams, hparams.lr).init(acting.params)
        return PQNState(acting, optimiser, observations, carry)

    def targets(policy: OffPolicyPolicy, obs: Observation, steps: Transition, hparams: PQNHParams) -> jax.Array:
        """Lambda-returns `[T, num_envs, *A, K]`, from values of the observations before any reset."""
        acting = policy.acting
        nodes = Nodes.of(hparams.discount)
        next_obs = policy.normalised(steps.next_obs)
        if values.remembers:
            rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), next_obs)
            outputs = values.outputs(acting.params, values.after(acting.params, obs, rows), axes - 1)
            outputs = outputs.reshape(*steps.reward.shape[:2], *outputs.shape[1:])
        else:
            outputs = values.outputs(acting.params, next_obs, axes)
        after = values.loss.value(outputs, acting.scale)
        action = bootstrap_actions(after, acting.shares, steps.next_mask, config.heads, values.branches)
        next_values = values.following_values(after, action)
        done = episode_ends(steps)
        ended = value_ends(steps, config.time_limits)
        return lambda_targets(hparams.lam, steps.reward, next_values, ended, done, nodes.rates, nodes.sizes)

    def step(
        key: jax.Array, iteration: jax.Array, state: PQNState, hparams: PQNHParams, env_params: EnvParams
    ) -> tuple[PQNState, Metrics]:
        env_steps = jnp.float32(config.steps_per_iteration) * iteration
        hparams = q.prepare(hparams).at(env_steps)
        collect_key, learn_key = jax.random.split(unrolled(key))
        state = state._replace(acting=q.scheduled(state.acting, hparams, env_steps))
        policy = policy_of(state, hparams)
        carry, steps, reused = rollouts.rollout(collect_key, actor, policy, state.carry, env_params, config.num_steps)
        obs: Any = policy.normalised(steps.obs)
        if values.remembers:
            obs = in_order(obs, episode_ends(steps), state.carry.memory)
        target = targets(policy, obs, steps, hparams)
        samples = Samples(obs, steps.raw_action, target, steps.active)
        if not values.remembers:
            samples = jax.tree.map(lambda leaf: leaf.reshape(num_rows, *leaf.shape[axes:]), samples)

        def minibatches(key: jax.Array) -> Samples:
            if not values.remembers:
                return row_minibatches(key, samples, config.num_minibatches)
            start = row_minibatches(key, samples.obs.memory, config.num_minibatches)  # of the same environments
            others = samples._replace(obs=samples.obs.replace(memory=()))
            batches = sequence_minibatches(key, others, config.num_minibatches)
            return batches._replace(obs=batches.obs.replace(memory=start))

        def one_minibatch(carry: PyTree, batch: Samples) -> tuple[tuple[EpsilonGreedy, Any], Metrics]:
            if values.remembers:  # the rows of sequences are their steps
                others = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch._replace(obs=None))
                batch = others._replace(obs=batch.obs)
            atoms, weight = batch.target[..., None], batch.active.astype(jnp.float32)
            acting, optimiser = carry
            params, optimiser, _, metrics = values.descend(
                acting.params,
                optimiser,
                batch.obs,
                batch.raw_action,
                Target(atoms, jnp.ones_like(atoms)),
                batch.active,
                weight,
                acting.shares,
                acting.scale,
                hparams,
                hparams.lr,
            )
            return (acting._replace(params=params), optimiser), metrics

        (acting, optimiser), metrics = over_epochs(
            learn_key,
            config.num_epochs,
            minibatches,
            lambda carry, minibatches: scan(one_minibatch, carry, minibatches, steps_of_turn=1),
            (state.acting, state.optimiser),
        )
        observations = rollouts.statistics(state.observations, steps)
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics |= {"epsilon": acting.epsilon, "learning_rate": hparams.lr, "reset_reuse": reused.astype(jnp.float32)}
        return PQNState(acting, optimiser, observations, carry), metrics

    def warm_start(state: PQNState, policy: OffPolicyPolicy) -> PQNState:
        acting = state.acting._replace(params=policy.acting.params)
        return state._replace(acting=acting, observations=policy.observations)

    return assembled(
        f"{__name__}:pqn",
        rollouts.env,
        config,
        PQNHParams,
        q.effects,
        init=init,
        step=step,
        policy=policy_of,
        actor=actor,
        env_steps_per_iteration=config.steps_per_iteration,
        prepare=q.prepare,
        network=own,
        stopped=stopped,
        warm_start=warm_start,
    )
