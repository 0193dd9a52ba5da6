"""DQN: deep Q-learning under any discount, with the usual improvements as settings."""

import dataclasses
import functools
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

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
from jaxrl.algorithms.off_policy import OffPolicyPolicy, OffPolicyState, off_policy
from jaxrl.algorithms.off_policy_config import OffPolicyConfig, OffPolicyHParams
from jaxrl.algorithms.rollout_config import INFINITE, stopped
from jaxrl.algorithms.value_function import Nodes, Target, row_errors, window_atoms
from jaxrl.checks import Range, check_choice, check_count
from jaxrl.learning import value_losses
from jaxrl.learning.actor import Memory, Scores
from jaxrl.learning.networks import Module
from jaxrl.learning.optimisers import transformation
from jaxrl.learning.q_targets import bootstrap_actions, soft_values
from jaxrl.learning.replay import Window
from jaxrl.pytrees import EnvParams, Mask, Observation, Params, PyTree
from jaxrl.sweeps.distributions import LogUniform, SearchSpace

_MUNCHAUSEN_LOWEST = -1.0  # lower bound of the added term, the log-probability times the temperature


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(QConfig, OffPolicyConfig):
    """Static configuration of DQN: changing a field recompiles.

    Attributes:
      double: Whether the online network, instead of the target network, selects the action of the bootstrap; without
        effect with `munchausen`, which bootstraps from the mean over actions.
      target_update: Update of the target network: "hard", a copy after every `target_interval` gradient steps, or
        "soft", a moving average.
      target_interval: Number of gradient steps between two copies.
      munchausen: Whether the log-probability of the action is added to the reward (Munchausen DQN).
    """

    double: bool = True
    target_update: Literal["hard", "soft"] = "hard"
    target_interval: int = 200
    munchausen: bool = False

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_choice("target_update", self.target_update, ("hard", "soft"))
        check_count("target_interval", self.target_interval)
        self._refuse_without_effect(
            "target_interval", f"target_update={self.target_update!r}", self.target_update == "hard"
        )
        self._refuse_without_effect("double", "munchausen=True", not self.munchausen)
        if self.munchausen:
            for name, needed in (("n_step", 1), ("heads", "single")):
                if getattr(self, name) != needed:
                    raise UserValueError(f"munchausen takes {name}={needed!r}, got {getattr(self, name)!r}")
            if self.value_loss in value_losses.DISTRIBUTIONAL:
                raise UserValueError(
                    f"munchausen takes value_loss 'squared', 'huber' or 'hl-gauss', got {self.value_loss!r}"
                )

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | {
            "target_rate": self.target_update == "soft",
            **dict.fromkeys(("munchausen_alpha", "munchausen_temperature"), self.munchausen),
        }


@struct.dataclass
class DQNHParams(QHParams, OffPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      target_rate: Step size of soft target updates, in [0, 1]; 1 copies the online network.
      munchausen_alpha: Weight of the log-probability in the reward.
      munchausen_temperature: Temperature of the softmax policy.

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    target_rate: Any = 0.005
    munchausen_alpha: Any = 0.9
    munchausen_temperature: Any = 0.03

    ranges = MappingProxyType(
        {
            **QHParams.ranges,
            **OffPolicyHParams.ranges,
            **dict.fromkeys(("target_rate", "munchausen_alpha"), Range(0, 1)),
            "munchausen_temperature": Range(1e-6, INFINITE, "[)"),
        }
    )


class Learner(NamedTuple):
    """State of learning.

    Attributes:
      acting: Parameters of the policy.
      target: Parameters of the target network.
      optimiser: State of the optimiser.
    """

    acting: EpsilonGreedy
    target: Params
    optimiser: optax.OptState


@with_hints
def dqn(env: Environment, config: DQNConfig | None = None, network: Module | None = None) -> Algorithm:
    """Deep Q-learning on an environment with discrete actions, of one choice or several.

    Each of several choices, of a `MultiDiscrete`, `Tuple` or `Dict` space, has values of its own and is explored by
    itself; the value of the action is the mean of the values of its choices (`ValueFunction.branches`).

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

    Source: Mnih et al. (2015); van Hasselt et al. (2016) for `double`; Hessel et al. (2018) for the other improvements;
    Fedus et al. (2019), arXiv 1902.06865, for `heads`; Tavakoli, Pardo and Kormushev (2018), arXiv 1711.08946, for
    several choices.
    """
    return _build(env, checked_config(config, DQNConfig), checked_network(network), check_abstractly(env))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of DQN."""
    return common_space(algo, {} if algo.hparams.target_rate is None else {"target_rate": LogUniform(1e-3, 0.1)})


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: DQNConfig, own: Module | None, agents: tuple[int, ...]) -> Algorithm:
    replay = off_policy(env, config, agents, remembers=remembers(config, own))
    q = action_values("dqn", replay, own)
    actor, values, axes = q.actor(), q.values, 1 + len(agents)
    if config.munchausen and values.branches is not None:
        raise UserValueError(
            f"munchausen takes actions of one part, got actions of {len(values.branches)} parts; leave munchausen out"
        )

    def random_scores(policy: OffPolicyPolicy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        exploring = policy._replace(acting=policy.acting._replace(epsilon=jnp.ones(())))
        return actor.scores(exploring, memory, obs, mask)

    def init(key: jax.Array, hparams: DQNHParams, env_params: EnvParams) -> OffPolicyState:
        hparams = q.prepare(hparams)
        network_key, reset_key, collect_key = jax.random.split(unrolled(key), 3)
        acting = q.initial(network_key, hparams)
        optimiser = transformation(config.optimiser, hparams, hparams.lr).init(acting.params)
        learner = Learner(acting, acting.params, optimiser)
        keys, random_actor = (reset_key, collect_key), actor._replace(scores=random_scores)
        return replay.init(keys, learner, acting, actor, random_actor, hparams, env_params)

    def targets(learner: Learner, batch: Window, hparams: DQNHParams) -> Target:
        """Targets of the first step of each window, `[B, *A, K, M]`."""
        scale, shares = learner.acting.scale, learner.acting.shares
        next_obs = values.after(learner.target, batch.obs, batch.next_obs)
        next_outputs = values.outputs(learner.target, next_obs, axes)
        reward = batch.reward
        if config.munchausen:
            alpha, temperature = hparams.munchausen_alpha, hparams.munchausen_temperature
            now = values.loss.value(values.outputs(learner.target, batch.obs, axes), scale)[..., 0]
            log_policy = soft_values(now, batch.mask, temperature)[1]
            log_prob = jnp.take_along_axis(log_policy, batch.raw_action[..., None], axis=-1)[..., 0]
            bonus = alpha * jnp.clip(temperature * log_prob, _MUNCHAUSEN_LOWEST, 0.0)
            reward = reward + bonus[:, None]
            after = soft_values(values.loss.value(next_outputs, scale)[..., 0], batch.next_mask, temperature)[0]
            atoms = after[..., None, None]
            probabilities = jnp.ones_like(atoms)
        else:
            deciding, online = next_outputs, learner.acting.params
            if config.double:
                deciding = values.outputs(online, values.after(online, batch.obs, batch.next_obs), axes)
            of_deciding = values.loss.value(deciding, scale)
            action = bootstrap_actions(of_deciding, shares, batch.next_mask, config.heads, values.branches)
            atoms, probabilities = values.following(next_outputs, action, scale)
        nodes = Nodes.of(hparams.discount)
        return Target(window_atoms(batch, reward, atoms, nodes, config.time_limits), probabilities)

    def learn(
        learner: Learner, batch: Window, weight: jax.Array, hparams: DQNHParams, count: jax.Array
    ) -> tuple[Learner, jax.Array, Metrics]:
        """One gradient step, after `count` previous ones, which are shared by the runs."""
        acting, target = learner.acting, targets(learner, batch, hparams)
        params, optimiser, error, metrics = values.descend(
            acting.params,
            learner.optimiser,
            batch.obs,
            batch.raw_action,
            target,
            batch.active,
            weight,
            acting.shares,
            acting.scale,
            hparams,
            hparams.lr,
        )
        if config.target_update == "soft":
            next_target = optax.incremental_update(params, learner.target, hparams.target_rate)
        else:  # `count` is not batched, so that this remains a branch under vmap
            due = (count + 1) % config.target_interval == 0
            next_target = jax.lax.cond(due, lambda new, old: new, lambda new, old: old, params, learner.target)
        learner = Learner(acting._replace(params=params), next_target, optimiser)
        return learner, row_errors(error, batch.active), metrics

    def step(
        key: jax.Array, iteration: jax.Array, state: OffPolicyState, hparams: DQNHParams, env_params: EnvParams
    ) -> tuple[OffPolicyState, Metrics]:
        env_steps = jnp.float32(config.steps_per_iteration) * iteration
        hparams = q.prepare(hparams).at(env_steps)
        learner = state.learner._replace(acting=q.scheduled(state.learner.acting, hparams, env_steps))
        collect_key, learn_key = jax.random.split(unrolled(key))
        policy = replay.policy_of(learner.acting, state.observations, hparams)
        experience = replay.collect(collect_key, iteration, actor, policy, state, env_params)

        def update(carry: PyTree, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, Metrics]:
            learner, priorities = carry
            key, count = inputs
            draw_key, _ = jax.random.split(key)  # as in the algorithms whose learning is random
            drawn = replay.draw(draw_key, experience, priorities, hparams)
            learner, error, metrics = learn(learner, drawn.batch, drawn.weight, hparams, count)
            return (learner, replay.update_priorities(priorities, drawn, error, hparams)), metrics

        updates = replay.updates(learn_key, iteration)
        (learner, priorities), metrics = scan(update, (learner, experience.priorities), updates, steps_of_turn=1)
        state, metrics = replay.finish(learner, priorities, experience, metrics)
        return state, metrics | {"epsilon": learner.acting.epsilon, "learning_rate": hparams.lr}

    def warm_start(state: OffPolicyState, policy: OffPolicyPolicy) -> OffPolicyState:
        weights = policy.acting.params
        learner = state.learner._replace(acting=state.learner.acting._replace(params=weights), target=weights)
        return replay.warm_started(state, learner, actor, policy)

    return assembled(
        f"{__name__}:dqn",
        replay.env,
        config,
        DQNHParams,
        q.effects,
        init=init,
        step=step,
        policy=lambda state, hparams: replay.policy_of(state.learner.acting, state.observations, hparams),
        actor=actor,
        env_steps_per_iteration=config.steps_per_iteration,
        prepare=q.prepare,
        network=own,
        stopped=stopped,
        warm_start=warm_start,
    )
