"""Toolbox of off-policy actor-critic algorithms: configuration, networks of a policy and its critics, values."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from envs.base import Environment, spaces
from envs.choices import choice_sizes
from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm, Metrics, assembled, checked_network
from jaxrl.algorithms.off_policy import OffPolicy, OffPolicyPolicy, OffPolicyState, off_policy
from jaxrl.algorithms.off_policy_config import OffPolicyConfig, OffPolicyHParams
from jaxrl.algorithms.rollout_config import INFINITE, prepared, stopped
from jaxrl.algorithms.value_function import (
    Nodes,
    Target,
    ValueFunction,
    outputs_of,
    prepare_discount,
    row_errors,
    window_atoms,
)
from jaxrl.checks import Range, check_choice, check_count
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning import value_losses
from jaxrl.learning.action_heads import ActionHead, action_head
from jaxrl.learning.actor import Actor, Memory
from jaxrl.learning.asymmetric import CRITIC_WORDS, Sees, check_sees
from jaxrl.learning.exploration import CORRELATION
from jaxrl.learning.networks import Module, apply_over, leading_axes, with_action, zeros
from jaxrl.learning.output_networks import Networks, OutputNetwork, QNetwork, check_outputs
from jaxrl.learning.recurrent import first_memory, is_recurrent, step_over
from jaxrl.learning.replay import Window
from jaxrl.learning.rollout import longest_episode
from jaxrl.learning.sequence_replay import Recall
from jaxrl.learning.sequences import Recalled, Sequences, after_windows, recalled_outputs
from jaxrl.pytrees import Action, HParams, Observation, Params, Policy
from jaxrl.sweeps.distributions import Choice, LogUniform, SearchSpace

__all__ = [
    "Acting",
    "ActorCritic",
    "ActorCriticConfig",
    "ActorCriticHParams",
    "actor_critic",
    "checked_networks",
    "common_space",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OffPolicyConfig):
    """Static configuration of a policy and its critics: changing a field recompiles.

    Attributes:
      critic_sees: Input of the critics: "own", what the policy sees; "global", in addition the global observation of
        several agents; "privileged", in addition the environment's `privileged`; "all", whole observations; the name of
        an entry of observations, several names, or a function of an observation, or its path, for that part alone; or
        "auto", the first of these that there is: the privileged entries that `actor_sees` hides by "auto" or by names,
        alone; the part that `envs.wrappers.asymmetric_observation` keeps for critics, alone; "privileged", of an
        environment with a `privileged_space`; "own".
      hidden: Widths of the hidden layers of the policy and of each critic.
      num_critics: Number of critics; targets use the lowest of their values.
      value_loss: Representation of values and their loss: "squared" or "huber" for a number; "quantile" for the
        distribution of returns.
      num_atoms: Number of quantiles.
      dropped_atoms: Number of quantiles per critic that targets drop: the highest among the pooled quantiles of all
        critics (truncated quantile critics, TQC); the policy then maximises the mean of the critics. None for targets
        from the critic with the lowest value.
      heads: Heads of a critic: "single", one for an exponential discount; or "joint", one for each exponential of a
        mixture, all of which evaluate the policy.
      num_heads: Number of exponentials of the mixture.
      noise: Noise of actions: "gaussian", independent at every step, or "ornstein-uhlenbeck", correlated within an
        episode. Discrete actions are sampled with Gumbel noise at the quantiles of this noise, in the prefill too.
    """

    num_updates: int = 16
    batch_size: int = 256
    buffer_size: int = 65_536
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    num_critics: int = 2
    value_loss: Literal["squared", "huber", "quantile"] = "squared"
    num_atoms: int = 25
    dropped_atoms: int | None = None
    heads: Literal["single", "joint"] = "single"
    num_heads: int = 8
    noise: Literal["gaussian", "ornstein-uhlenbeck"] = "gaussian"
    critic_sees: Sees = "auto"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        object.__setattr__(self, "critic_sees", check_sees("critic_sees", self.critic_sees, CRITIC_WORDS))
        check_choice("value_loss", self.value_loss, ("squared", "huber", "quantile"))
        check_choice("heads", self.heads, ("single", "joint"))
        check_choice("noise", self.noise, ("gaussian", "ornstein-uhlenbeck"))
        check_count("num_atoms", self.num_atoms, 2)
        for name in ("num_critics", "num_heads"):
            check_count(name, getattr(self, name))
        self._refuse_without_effect("num_atoms", f"value_loss={self.value_loss!r}", self.value_loss == "quantile")
        self._refuse_without_effect("dropped_atoms", f"value_loss={self.value_loss!r}", self.value_loss == "quantile")
        self._refuse_without_effect("num_heads", f"heads={self.heads!r}", self.heads != "single")
        if self.dropped_atoms is not None:
            check_count("dropped_atoms", self.dropped_atoms, 0)
            if self.dropped_atoms >= self.num_atoms:
                raise UserValueError(
                    f"dropped_atoms takes less than num_atoms={self.num_atoms}, got {self.dropped_atoms}"
                )

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | {
            "huber_delta": self.value_loss in value_losses.WITH_HUBER,
            "noise_correlation": self.noise == "ornstein-uhlenbeck",
        }


@struct.dataclass
class ActorCriticHParams(OffPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Initial step size of Adam for the critics.
      policy_lr: Initial step size of Adam for the policy.
      max_grad_norm: Global norm to which the gradients of the critics, of the policy and of the temperature of SAC are
        each clipped; infinity disables clipping.
      target_rate: Step size of target updates, in [0, 1]; 1 copies the online networks.
      huber_delta: Absolute error above which the losses "huber" and "quantile" are linear.
      noise_correlation: Correlation of the noise of two consecutive steps, in [0, 1], with "ornstein-uhlenbeck".

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    policy_lr: Any = 1e-3
    max_grad_norm: Any = math.inf
    adam_eps: Any = 1e-8
    target_rate: Any = 0.005
    huber_delta: Any = 1.0
    noise_correlation: Any = 0.9

    schedules = OffPolicyHParams.schedules | {"lr_end": ("lr", "policy_lr")}
    ranges = OffPolicyHParams.ranges | {
        "policy_lr": Range(0, INFINITE, "[)"),
        **dict.fromkeys(("target_rate", "noise_correlation"), Range(0, 1)),
        "huber_delta": Range(1e-6, INFINITE, "[)"),
    }


class Acting(NamedTuple):
    """Parameters and numbers from which actions are computed.

    Attributes:
      params: Parameters of the policy.
      noise_std: Standard deviation of the noise, float32 `[]`; None for a policy with its own.
      correlation: Correlation of the noise of two steps, float32 `[]`; None for independent noise.
    """

    params: Params
    noise_std: jax.Array | None
    correlation: jax.Array | None


class ActorCritic(NamedTuple):
    """Tools of an algorithm with a policy and critics on one environment; every function is pure.

    Attributes:
      replay: Tools of collecting and of the replay buffer.
      head: Action head of the environment's action space.
      network: Network of the policy.
      critics: Values of an ensemble of critics, which take actions that are numbers, and return the values of all
        actions that are discrete.
      episode_length: Time limit of episodes, in steps.
      defaults: Defaults of hyper-parameters that depend on the environment, by name.
      own: Custom networks, None for those that the configuration selects.
    """

    replay: OffPolicy
    head: ActionHead
    network: Module
    critics: ValueFunction
    episode_length: int
    defaults: Mapping[str, float] = MappingProxyType({})
    own: Networks | None = None

    @property
    def config(self) -> Any:
        """Configuration, an `ActorCriticConfig`."""
        return self.replay.config

    @property
    def axes(self) -> int:
        """Number of leading axes of transitions in a batch, `[B, *A]`."""
        return 1 + len(self.replay.agents)

    @property
    def correlated_noise(self) -> bool:
        """Whether the noise is correlated within an episode."""
        return self.config.noise == "ornstein-uhlenbeck"

    def prepare(self, hparams: HParams, num_settings: int | None = None, run_length: int | None = None) -> HParams:
        """Hyper-parameters with a resolved discount and without ineffective ones, for `Algorithm.prepare`."""
        heads, num_heads = self.config.heads, self.critics.num_heads
        discount = prepare_discount(
            hparams.discount, heads, num_heads, self.episode_length, num_settings, "heads='joint'"
        )
        return prepared(hparams, self.replay.effects, discount, num_settings, run_length, self.defaults)

    def scheduled(self, iteration: jax.Array, hparams: HParams) -> HParams:
        """Prepared hyper-parameters of an iteration."""
        return self.prepare(hparams).at(jnp.float32(self.config.steps_per_iteration) * iteration)

    def init(self, key: jax.Array) -> tuple[Params, Params]:
        """Parameters of the policy, and of the critics."""
        policy_key, critic_key = jax.random.split(key)
        shapes = self.replay.obs_shape
        start = [first_memory(self.network)] if self.remembers else []
        policy = self.network.init(policy_key, zeros(shapes), *start)
        return policy, self.critics.init(critic_key, self._inputs(self.replay.seen_shape, _shape_of(self.head)))

    # Acting.

    def acting(self, params: Params, hparams: HParams) -> Acting:
        """Parameters of the policy with the numbers of its noise."""

        def number(name: str) -> jax.Array | None:
            value = getattr(hparams, name, None)
            return None if value is None else jnp.asarray(value, jnp.float32)

        return Acting(params, number("noise_std"), number("noise_correlation") if self.correlated_noise else None)

    def policy(self, state: OffPolicyState, hparams: HParams) -> OffPolicyPolicy:
        """Policy that acts, for `Algorithm.policy`."""
        return self.replay.policy_of(self.acting(state.learner.policy, hparams), state.observations, hparams)

    @property
    def remembers(self) -> bool:
        """Whether the network of the policy has a memory."""
        return is_recurrent(self.network)

    def initial_memory(self, policy: Policy = None) -> Memory:
        """Memory of the policy of one agent at the start of an episode, () without one."""
        del policy
        return first_memory(self.network)

    def recalled(self, params: Params, memory: Memory, obs: Observation) -> tuple[jax.Array, Memory]:
        """Outputs of the policy for observations and memories with any leading axes, and the memories after these."""
        num_axes = leading_axes(obs, self.replay.obs_shape)
        if self.remembers:
            return step_over(self.network, params, obs, memory, num_axes)
        return apply_over(self.network, params, obs, num_axes), memory

    def outputs(self, params: Params, obs: Observation) -> jax.Array:
        """Outputs of the policy in a batch, of `Window.obs` or of the result of `after`, `[B, *A, n]`."""
        if not self.remembers:
            return apply_over(self.network, params, _alone(obs), self.axes)
        return recalled_outputs(self.network, params, obs, self.axes)[0]

    def after(self, params: Params, batch: Window) -> Any:
        """Next observations of a batch for `outputs`, with the memories of the policy if it has one."""
        if not self.remembers:
            return batch.next_obs
        return Recalled(batch.next_obs, after_windows(self.network, params, batch.obs))

    def correlation(self, policy: OffPolicyPolicy, outputs: jax.Array) -> dict[str, jax.Array]:
        """Entry of an actor's scores if the noise is correlated, from outputs of the policy `[*B, n]`."""
        if not self.correlated_noise:
            return {}
        return {CORRELATION: jnp.broadcast_to(policy.acting.correlation, outputs.shape[:-1])}

    # Learning of values.

    def scale(self, hparams: HParams) -> value_losses.Scale:
        """Parameters of the value loss."""
        delta = hparams.huber_delta
        return value_losses.Scale(huber_delta=None if delta is None else jnp.asarray(delta, jnp.float32))

    def values(self, params: Params, obs: Observation, action: jax.Array | None = None) -> jax.Array:
        """Outputs of the critics in a batch: of actions, or of all discrete actions.

        Critics with a memory see the action at one step alone; their memories before it are of the actions taken.

        Args:
          params: Parameters of the critics.
          obs: Inputs of the critics, such as `Window.critic_obs` or the result of `after_critics`, leaves
            `[B, *A, ...]`.
          action: Actions that are numbers, `[B, *A, n]`; None for all discrete actions.

        Returns:
          Outputs `[num_critics, B, *A, K, num_outputs]`, or `[num_critics, B, *A, num_actions, K, num_outputs]`.
        """
        if isinstance(obs, Sequences) and action is not None:
            obs = Recalled(obs.rows(), self.critics.around(params, self.taken(obs))[0])
        return self.critics.outputs(params, self._inputs(obs, action), self.axes)

    def after_critics(self, params: Params, batch: Window) -> Any:
        """Next inputs of the critics for `values`, with the memories of the critics if they have one."""
        if not self.critics.remembers:
            return batch.next_critic_obs
        return self.critics.after(params, self.taken(batch.critic_obs), batch.next_critic_obs)

    def taken(self, obs: Observation, action: Action = None) -> Any:
        """Inputs of the critics with the actions taken: `action`, or those of `Sequences`."""
        if isinstance(obs, Sequences):
            return dataclasses.replace(obs, inputs=self._inputs(obs.inputs, obs.action))
        return self._inputs(obs, action)

    def recall(self, params: Params) -> Recall | None:
        """Function by which the critics see the steps of a rollout, None without memories."""
        if not self.critics.remembers:
            return None

        def memories_of(sequences: Sequences) -> tuple[Memory, Memory]:
            return self.critics.around(params, self.taken(sequences))

        return memories_of

    def _inputs(self, obs: Observation, action: Action) -> Any:
        """Inputs of the critics, which contain actions that are numbers."""
        if isinstance(obs, Recalled):
            return obs._replace(inputs=self._inputs(obs.inputs, action))
        if not self.head.continuous:
            return obs
        return (obs, action) if self.own is not None and self.own.critic is not None else with_action(obs, action)

    def lowest(self, outputs: jax.Array, nodes: Nodes, scale: value_losses.Scale) -> Target:
        """Distribution of the critic whose value is lowest, or of the lowest quantiles of all critics, `[*B, K, M]`.

        Args:
          outputs: Outputs of the critics, `[num_critics, *B, K, num_outputs]`.
          nodes: Exponentials of the discount.
          scale: Parameters of the value loss.

        Source: Kuznetsov et al. (2020), arXiv 2005.04269, for quantiles of all critics.
        """
        loss, dropped = self.critics.loss, self.config.dropped_atoms
        if dropped is not None:
            together = jnp.moveaxis(outputs, 0, -2).reshape(*outputs.shape[1:-1], -1)
            kept = self.config.num_critics * (loss.num_outputs - dropped)
            return Target(*loss.distribution(jnp.sort(together, axis=-1)[..., :kept], scale))
        which = jnp.argmin(self.critics.value(outputs, nodes.shares, scale), axis=0)
        chosen = jnp.take_along_axis(outputs, which[None, ..., None, None], axis=0)[0]
        return Target(*loss.distribution(chosen, scale))

    def objective(self, outputs: jax.Array, nodes: Nodes, scale: value_losses.Scale) -> jax.Array:
        """Values for a policy to maximise, `[*B]`: of the lowest critic, or the mean where targets drop quantiles.

        Args:
          outputs: Outputs of the critics, `[num_critics, *B, K, num_outputs]`.
          nodes: Exponentials of the discount.
          scale: Parameters of the value loss.
        """
        values = self.critics.value(outputs, nodes.shares, scale)
        return (jnp.min if self.config.dropped_atoms is None else jnp.mean)(values, axis=0)

    def descend(
        self,
        params: Params,
        optimiser: optax.OptState,
        batch: Window,
        next_values: Target,
        weight: jax.Array,
        nodes: Nodes,
        hparams: HParams,
    ) -> tuple[Params, optax.OptState, jax.Array, Metrics]:
        """One step of the optimiser of all critics towards the rewards and the values that follow.

        Args:
          params: Parameters.
          optimiser: State of the optimiser.
          batch: Transitions.
          next_values: Distribution of values after the last step of each window, `[B, *A, K, M]`.
          weight: Weights of the transitions in the loss, `[B, *A]`.
          nodes: Exponentials of the discount.
          hparams: Hyper-parameters, prepared.

        Returns:
          Parameters, state of the optimiser, mean absolute error of each row `[B]`, and metrics.
        """
        atoms = window_atoms(batch, batch.reward, next_values.atoms, nodes, self.config.time_limits)
        action = batch.raw_action
        params, optimiser, error, metrics = self.critics.descend(
            params,
            optimiser,
            self.taken(batch.critic_obs, action),
            None if self.head.continuous else action,
            next_values._replace(atoms=atoms),
            batch.active,
            weight,
            nodes.shares,
            self.scale(hparams),
            hparams,
            hparams.lr,
        )
        return params, optimiser, row_errors(error, batch.active), metrics

    # The result.

    def algorithm(
        self,
        builder: str,
        hparams: Callable[..., HParams],
        init: Any,
        step: Any,
        warm_start: Any,
        actor: Actor,
        policy: Policy = None,
    ) -> Algorithm:
        """Algorithm of functions whose learner has the parameters of its policy in the field `policy`.

        Args:
          builder: Path `"module:name"` of its builder.
          hparams: Class of the hyper-parameters, a subclass of `ActorCriticHParams`.
          init, step, warm_start: Functions, as in `Algorithm`.
          actor: Actor of the policy.
          policy: Function `Algorithm.policy`; None for that of this class.
        """

        def of_fields(**fields: Any) -> HParams:
            return hparams(**{**self.defaults, **fields})

        return assembled(
            builder,
            self.replay.env,
            self.config,
            of_fields,
            self.replay.effects,
            init=init,
            step=step,
            policy=policy or self.policy,
            actor=actor,
            env_steps_per_iteration=self.config.steps_per_iteration,
            prepare=self.prepare,
            network=self.own,
            stopped=stopped,
            warm_start=warm_start,
        )


def actor_critic(
    name: str,
    env: Environment,
    config: ActorCriticConfig,
    agents: tuple[int, ...],
    outputs_per_component: int = 1,
    takes_discrete: bool = False,
    defaults: Mapping[str, float] = MappingProxyType({}),
    own: Networks | None = None,
) -> ActorCritic:
    """Toolbox of an algorithm with a policy and critics; discrete actions are those of a policy with logits.

    Args:
      name: Name of the algorithm, for error messages.
      env: Environment of one agent or a crowd.
      config: Configuration.
      agents: Axes of the agents.
      outputs_per_component: Number of outputs of the policy for each component of a continuous action.
      takes_discrete: Whether the algorithm takes discrete actions, by a policy with logits.
      defaults: Defaults of hyper-parameters that depend on the environment, by name.
      own: Custom networks, None for those that the configuration selects.

    Raises:
      TypeError: The algorithm does not take the action space.
      TypeError, ValueError: A bound of the actions is infinite, or a network does not fit the environment.
    """
    space, discrete = env.action_space(env.default_params), False
    if choice_sizes(space) and takes_discrete:
        head, discrete = action_head(space), True
    else:
        discrete_too = "of discrete actions (Discrete, MultiDiscrete, a Tuple or Dict of these) or "
        head = _bounded_head(name, space, f"{discrete_too if takes_discrete else ''}a Box of floats")
    policy, critic = (None, None) if own is None else (own.actor, own.critic)
    if own is not None:
        config.check_own_network()
        if (policy is None) != (critic is None) and (is_recurrent(policy) or is_recurrent(critic)):
            alone = "actor" if critic is None else "critic"
            raise UserValueError(
                f"network takes both networks, jaxrl.Networks(actor=..., critic=...), where one has a memory, got "
                f"{alone} alone"
            )
    remembers = config.memory != "none" or is_recurrent(policy) or is_recurrent(critic)
    replay = off_policy(env, config, agents, config.critic_sees, remembers)
    shapes, (loss, num_heads) = replay.obs_shape, outputs_of(config)
    seen, action = replay.seen_shape, None if discrete else _shape_of(head)
    num_outputs, num_values = outputs_per_component * head.num_outputs, num_heads * loss.num_outputs
    inputs = {"obs": seen} if discrete else {"obs": seen, "action": action}
    if replay.view == "own":
        encoder = config.encoder(shapes)
        of_critic = encoder if discrete else config.encoder(with_action(shapes, action), with_action=True)
    else:
        encoder, of_critic = config.two_encoders(shapes, seen, action, scaled=replay.view == "global")
    if policy is None:
        policy = config.remembering(encoder, lambda encoder: OutputNetwork(encoder, num_outputs, 0.01))
    else:
        check_outputs("network.actor", policy, {"obs": shapes}, "outputs", (num_outputs,))
    values_of = (loss, num_heads, head.num_outputs if discrete else None, config.num_critics)
    more: Any = {"optimiser": config.optimiser, "branches": head.branches}
    if critic is not None:
        critics = ValueFunction(critic, *values_of, takes_pairs=not (discrete or is_recurrent(critic)), **more)
        check_outputs("network.critic", critic, inputs, "action values" if discrete else "a value", critics.shape)
    elif discrete:
        q_network = config.remembering(of_critic, lambda encoder: QNetwork(encoder, head.num_outputs, num_values))
        critics = ValueFunction(q_network, *values_of, **more)
    else:
        of_pairs = config.remembering(of_critic, lambda encoder: OutputNetwork(encoder, num_values))
        critics = ValueFunction(of_pairs, *values_of, **more)
    if critics.remembers and replay.sequences is not None:
        replay = replay._replace(sequences=replay.sequences._replace(critic_memory=critics.initial_memory))
    if own is not None and own.actor is not None and own.critic is not None:
        config.report_unused()
    return ActorCritic(replay, head, policy, critics, longest_episode(env), defaults, own)


def _alone(obs: Observation) -> Any:
    """Observations of a batch, without memories."""
    return obs.rows() if isinstance(obs, Sequences) else obs


def checked_networks(name: str, network: Networks | None) -> Networks | None:
    """Custom networks of the builder `name`, which keeps what it builds by its arguments.

    Raises:
      TypeError: They are not `Networks`, or one is not hashable.
      ValueError: There is none.
    """
    takes = f"network takes the networks of {name} as jaxrl.Networks(actor=..., critic=...)"
    if not isinstance(network, Networks | None):
        raise UserTypeError(f"{takes}, got {getattr(network, '__name__', type(network).__name__)}")
    if network == Networks():
        raise UserValueError(f"{takes}, of which one suffices, got none")
    return checked_network(network)


def _shape_of(head: ActionHead) -> jax.ShapeDtypeStruct:
    """Shape of a continuous action, as critics take it."""
    return jax.ShapeDtypeStruct((head.num_outputs,), jnp.float32)


def _bounded_head(name: str, space: spaces.Space, kinds: str) -> ActionHead:
    if not isinstance(space, spaces.Box) or not jnp.issubdtype(space.dtype, jnp.floating):
        hint = "; dqn, pqn, sac and ppo take discrete actions" if choice_sizes(space) else ""
        raise UserTypeError(f"{name} takes an environment whose action space is {kinds}, got {space!r}{hint}")
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    if not np.all((high - low) < np.finfo(np.float32).max):
        raise UserValueError(
            f"{name} takes an environment whose actions have finite bounds, got {space!r} with bounds from "
            f"{np.min(low):g} to {np.max(high):g}; envs.wrappers.bound_actions gives them bounds"
        )
    return action_head(space)


def common_space(algo: Algorithm) -> SearchSpace:
    """Default search space of an algorithm with a policy and critics."""
    space: SearchSpace = {
        "lr": LogUniform(1e-4, 1e-2),
        "policy_lr": LogUniform(1e-4, 1e-2),
        "target_rate": LogUniform(1e-3, 0.1),
    }
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995])
    return space
