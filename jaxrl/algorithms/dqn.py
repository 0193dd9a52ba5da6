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
from jaxrl.algorithms.arguments import checked_config, with_hints
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.off_policy import Method, OffPolicyPolicy, OffPolicyState, off_policy_functions
from jaxrl.algorithms.off_policy_config import OffPolicyConfig, OffPolicyHParams
from jaxrl.algorithms.q_config import QConfig, QHParams
from jaxrl.algorithms.q_values import EpsilonGreedy, Space, action_values, common_space
from jaxrl.algorithms.transitions_config import INFINITE
from jaxrl.algorithms.value_step import Nodes, Target, row_errors, window_atoms
from jaxrl.checks import Range, check_choice, check_count
from jaxrl.learning import value_losses
from jaxrl.learning.actor import Scores
from jaxrl.learning.optimisers import adam
from jaxrl.learning.q_targets import bootstrap_actions, soft_values
from jaxrl.learning.replay import Window
from jaxrl.sweeps.distributions import LogUniform

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
            **dict.fromkeys(("priority_alpha", "priority_beta"), self.replay == "prioritised"),
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
      optimiser: State of Adam.
    """

    acting: EpsilonGreedy
    target: Any
    optimiser: optax.OptState


@with_hints
def dqn(env: Environment, config: DQNConfig | None = None) -> Algorithm:
    """Deep Q-learning on an environment with discrete actions.

    Args:
      env: Environment of one agent, or a crowd whose agents share the network.
      config: Configuration; the defaults if None.

    Raises:
      ContractError: The environment violates a law.
      TypeError, ValueError: A field does not fit the environment; raised before compilation.

    Source: Mnih et al. (2015); van Hasselt et al. (2016) for `double`; Hessel et al. (2018) for the other improvements;
    Fedus et al. (2019), arXiv 1902.06865, for `heads`.
    """
    return _build(env, checked_config(config, DQNConfig), check_abstractly(env))


def search_space(algo: Algorithm) -> Space:
    """Default search space of DQN."""
    return common_space(algo, {} if algo.hparams.target_rate is None else {"target_rate": LogUniform(1e-3, 0.1)})


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: DQNConfig, agents: tuple[int, ...]) -> Algorithm:
    q = action_values("dqn", env, config, agents)
    actor, batch_axes = q.actor(), 1 + len(agents)

    def prepare(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
        del run_length
        return q.prepare(hparams, num_settings)

    def scores_in_warm_up(policy: OffPolicyPolicy, memory: Any, obs: Any, mask: Any) -> tuple[Scores, Any]:
        exploring = policy._replace(acting=policy.acting._replace(epsilon=jnp.ones(())))
        return actor.scores(exploring, memory, obs, mask)

    def init_learner(key: jax.Array, hparams: Any) -> Learner:
        acting = q.initial(key, hparams)
        return Learner(acting, acting.params, adam(hparams, hparams.lr).init(acting.params))

    def scheduled(learner: Learner, hparams: Any, env_steps: jax.Array) -> Learner:
        return learner._replace(acting=q.scheduled(learner.acting, hparams, env_steps))

    def targets(learner: Learner, batch: Window, hparams: Any) -> Target:
        """Targets of the first step of each window, `[B, *A, K, M]`."""
        scale, shares = learner.acting.scale, learner.acting.shares
        following = q.outputs(learner.target, batch.next_obs, batch_axes)
        reward = batch.reward
        if config.munchausen:
            alpha, temperature = hparams.munchausen_alpha, hparams.munchausen_temperature
            now = q.loss.value(q.outputs(learner.target, batch.obs, batch_axes), scale)[..., 0]
            log_policy = soft_values(now, batch.mask, temperature)[1]
            log_prob = jnp.take_along_axis(log_policy, batch.raw_action[..., None], axis=-1)[..., 0]
            bonus = alpha * jnp.clip(temperature * log_prob, _MUNCHAUSEN_LOWEST, 0.0)
            reward = reward + bonus[:, None]
            after = soft_values(q.loss.value(following, scale)[..., 0], batch.next_mask, temperature)[0]
            atoms = after[..., None, None]
            probabilities = jnp.ones_like(atoms)
        else:
            deciding = q.outputs(learner.acting.params, batch.next_obs, batch_axes) if config.double else following
            action = bootstrap_actions(q.loss.value(deciding, scale), shares, batch.next_mask, config.heads)
            chosen = jnp.take_along_axis(following, action[..., None, :, None], axis=-3)[..., 0, :, :]
            atoms, probabilities = q.loss.distribution(chosen, scale)
        nodes = Nodes.of(hparams.discount)
        return Target(window_atoms(batch, reward, atoms, nodes, config.time_limits), probabilities)

    def learn(
        key: jax.Array, learner: Learner, batch: Window, weight: jax.Array, hparams: Any, count: jax.Array
    ) -> tuple[Learner, jax.Array, Metrics]:
        del key
        target = targets(learner, batch, hparams)
        acting, optimiser, error, metrics = q.descend(
            learner.acting, learner.optimiser, batch, target, weight, hparams, hparams.lr
        )
        if config.target_update == "soft":
            next_target = optax.incremental_update(acting.params, learner.target, hparams.target_rate)
        else:
            # The number of gradient steps is shared by the runs, so this remains a branch under vmap.
            due = (count + 1) % config.target_interval == 0
            next_target = jax.lax.cond(due, lambda new, old: new, lambda new, old: old, acting.params, learner.target)
        return Learner(acting, next_target, optimiser), row_errors(error, batch.active), metrics

    method = Method(
        actor=actor,
        init=init_learner,
        scheduled=scheduled,
        acting=lambda learner, hparams: learner.acting,
        warming=actor._replace(scores=scores_in_warm_up),
        learn=learn,
    )
    init, advance, policy_of = off_policy_functions(env, config, agents, prepare, method)

    def step(
        key: jax.Array, iteration: jax.Array, state: OffPolicyState, hparams: Any, env_params: Any
    ) -> tuple[OffPolicyState, Metrics]:
        state, metrics = advance(key, iteration, state, hparams, env_params)
        return state, metrics | {"epsilon": state.learner.acting.epsilon}

    def warm(state: OffPolicyState, policy: OffPolicyPolicy) -> OffPolicyState:
        weights = policy.acting.params
        learner = state.learner._replace(acting=state.learner.acting._replace(params=weights), target=weights)
        return state._replace(learner=learner, observations=policy.observations)

    return Algorithm(
        name="dqn",
        env=env,
        config=config,
        hparams=DQNHParams(**{name: None for name, on in config.effects.items() if not on}),
        init=init,
        step=step,
        policy=policy_of,
        actor=actor,
        env_steps_per_iteration=config.steps_per_iteration,
        prepare=prepare,
        discount=lambda hparams: hparams.discount,
        builder=f"{__name__}:dqn",
        warm=warm,
    )
