"""Common parts of algorithms that learn action values: configuration, values of a network and epsilon-greedy actor."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.base import spaces
from envs.choices import choice_sizes
from envs.errors import UserTypeError, UserValueError
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.off_policy import OffPolicy, OffPolicyPolicy
from jaxrl.algorithms.rollout_config import (
    INFINITE,
    RolloutConfig,
    TransitionsHParams,
    prepared,
)
from jaxrl.algorithms.value_function import Nodes, ValueFunction, outputs_of, prepare_discount
from jaxrl.checks import Range, check_choice, check_count, is_concrete
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning import value_losses
from jaxrl.learning.action_heads import ActionHead, action_head
from jaxrl.learning.actor import Actor, Memory, Scores, remembering
from jaxrl.learning.networks import Module, leading_axes
from jaxrl.learning.optimisers import linear_share
from jaxrl.learning.output_networks import QNetwork, check_outputs
from jaxrl.learning.q_targets import best_actions, masked_values, of_branches
from jaxrl.learning.recurrent import is_recurrent
from jaxrl.learning.rollout import longest_episode
from jaxrl.learning.sequences import Recalled
from jaxrl.pytrees import HParams, Mask, Number, Observation, Params, PyTree
from jaxrl.sweeps.distributions import Choice, LogUniform, SearchSpace

_LEAST = 1e-30  # in place of a divisor of 0
_LONGEST_SUPPORT = 2.0  # time limits over which a value that bootstraps is summed at most, for rates near 1

__all__ = ["ActionValues", "EpsilonGreedy", "QConfig", "QHParams", "action_values", "common_space", "remembers"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QConfig(RolloutConfig):
    """Static configuration of action values.

    Attributes:
      hidden: Widths of the hidden layers.
      activation: Activation function: tanh, relu, leaky_relu, elu, gelu or silu.
      dueling: Whether action values are sums of a state value and an advantage, each with its own hidden layer.
      value_loss: Representation of values and their loss: "squared" or "huber" for a number; "quantile" (QR-DQN) or
        "categorical" (C51) for the distribution of returns; "hl-gauss" for a number as a histogram.
      num_atoms: Number of quantiles, atoms or bins. Bins are at least 6, because 2.25 of them lie beyond each end of
        the support.
      heads: Heads of the network: "single", one head for an exponential discount; "own" or "joint", one head for each
        exponential of a mixture, which bootstraps from the action that is best for its own rate or for the mixture.
      num_heads: Number of exponentials of the mixture.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    dueling: bool = False
    value_loss: value_losses.Kind = "huber"
    num_atoms: int = 51
    heads: Literal["single", "own", "joint"] = "single"
    num_heads: int = 8

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        self._refuse_shared_trunk()
        check_choice("value_loss", self.value_loss, value_losses.KINDS)
        check_choice("heads", self.heads, ("single", "own", "joint"))
        bins = self.value_loss == "hl-gauss"
        fewest, why = (value_losses.FEWEST_BINS, " with value_loss='hl-gauss'") if bins else (2, "")
        check_count("num_atoms", self.num_atoms, fewest, why=why)
        check_count("num_heads", self.num_heads)
        atoms = self.value_loss not in ("squared", "huber")
        self._refuse_without_effect("num_atoms", f"value_loss={self.value_loss!r}", atoms)
        self._refuse_without_effect("num_heads", f"heads={self.heads!r}", self.heads != "single")

    @property
    def network_fields(self) -> tuple[str, ...]:
        """Names of the fields that only the networks of jaxrl use."""
        return (*super().network_fields, "dueling")

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | {
            "huber_delta": self.value_loss in value_losses.WITH_HUBER,
            **dict.fromkeys(("reward_low", "reward_high"), self.value_loss in value_losses.WITH_SUPPORT),
        }


@struct.dataclass
class QHParams(TransitionsHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      epsilon_start: Probability of a random action at the start of training; of each choice where there are several.
      epsilon_end: Probability of a random action after its linear decay.
      epsilon_anneal_env_steps: Number of environment steps over which the probability decays.
      huber_delta: Absolute error above which the losses "huber" and "quantile" are linear.
      reward_low: Smallest reward of a step, below `reward_high`; times the sum of the discount, it is the lower end of
        the support of "categorical" and "hl-gauss", or 0 where it is positive. The sum is over an episode with
        `time_limits="terminal"`, and else over all time, but at most twice the time limit. The bonus of Munchausen
        Q-learning, down to -`munchausen_alpha` per step, counts as reward.
      reward_high: Largest reward of a step, which determines the upper end of the support in the same way. A narrower
        range is sufficient if large rewards are rare.

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    epsilon_start: Any = 1.0
    epsilon_end: Any = 0.05
    epsilon_anneal_env_steps: Any = 10_000.0
    huber_delta: Any = 1.0
    reward_low: Any = -1.0
    reward_high: Any = 1.0

    ranges = TransitionsHParams.ranges | {
        **dict.fromkeys(("epsilon_start", "epsilon_end"), Range(0, 1)),
        "epsilon_anneal_env_steps": Range(1, INFINITE),
        "huber_delta": Range(1e-6, INFINITE, "[)"),
        **dict.fromkeys(("reward_low", "reward_high"), Range(-INFINITE, INFINITE, "()")),
    }


class EpsilonGreedy(NamedTuple):
    """Parameters from which an epsilon-greedy policy computes actions.

    Attributes:
      params: Parameters of the network.
      epsilon: Probability of a random action, float32 `[]`.
      shares: Shares of the heads in a value, float32 `[K]`.
      scale: Parameters of the value loss.
    """

    params: Params
    epsilon: jax.Array
    shares: jax.Array
    scale: value_losses.Scale


class ActionValues(NamedTuple):
    """Action values of an algorithm on one environment.

    Attributes:
      config: Configuration.
      values: Values by one network.
      head: Action head of the environment's action space.
      obs_shape: Shapes of one observation of one agent.
      episode_length: Time limit of episodes, in steps.
      effects: Whether a hyper-parameter has an effect, by name, for those that do not always have one.
    """

    config: QConfig
    values: ValueFunction
    head: ActionHead
    obs_shape: Any
    episode_length: int
    effects: Mapping[str, bool]

    def prepare(self, hparams: HParams, num_settings: int | None = None, run_length: int | None = None) -> HParams:
        """Hyper-parameters with a resolved discount and without ineffective ones, for `Algorithm.prepare`."""
        heads, num_heads = self.config.heads, self.values.num_heads
        discount = prepare_discount(hparams.discount, heads, num_heads, self.episode_length, num_settings)
        hparams = prepared(hparams, self.effects, discount, num_settings, run_length)
        low, high = hparams.reward_low, hparams.reward_high
        if low is not None and is_concrete((low, high)) and np.any(np.asarray(low) >= np.asarray(high)):
            raise UserValueError(f"reward_low must be below reward_high, got {_shown(low)} and {_shown(high)}")
        return hparams

    def scale(self, hparams: HParams) -> value_losses.Scale:
        """Parameters of the value loss, whose support has an entry for each head, `[K]`.

        An output is a value divided by the size of its head. Values are the rewards times at most the sum of the head's
        exponential: over an episode where time limits end it, and else over all time, because values bootstrap.
        """
        delta = None if hparams.huber_delta is None else jnp.float32(hparams.huber_delta)
        if self.config.value_loss not in value_losses.WITH_SUPPORT:
            return value_losses.Scale(huber_delta=delta)
        nodes, length = Nodes.of(hparams.discount), self.episode_length
        if self.config.time_limits == "terminal":
            over_all = -jnp.expm1(length * jnp.log(nodes.rates))
            steps = jnp.where(nodes.rates < 1, over_all / jnp.maximum(1 - nodes.rates, _LEAST), length)
        else:
            steps = 1 / jnp.maximum(1 - nodes.rates, 1 / (_LONGEST_SUPPORT * length))
        steps = steps / nodes.sizes
        # The value after an end is 0, so that 0 belongs to the support.
        return value_losses.Scale(
            jnp.minimum(hparams.reward_low, 0.0) * steps, jnp.maximum(hparams.reward_high, 0.0) * steps, delta
        )

    def initial(self, key: jax.Array, hparams: HParams) -> EpsilonGreedy:
        """Initial values, with random parameters."""
        return self._acting(self.values.init(key, self.obs_shape), hparams.epsilon_start, hparams)

    def scheduled(self, acting: EpsilonGreedy, hparams: HParams, env_steps: jax.Array) -> EpsilonGreedy:
        """Values with the probability of a random action after `env_steps` environment steps, `[]`."""
        fallen = 1 - linear_share(env_steps, 0.0, hparams.epsilon_anneal_env_steps)
        epsilon = hparams.epsilon_start + (hparams.epsilon_end - hparams.epsilon_start) * fallen
        return self._acting(acting.params, epsilon, hparams)

    def _acting(self, params: Params, epsilon: Number, hparams: HParams) -> EpsilonGreedy:
        shares = Nodes.of(hparams.discount).shares
        return EpsilonGreedy(params, jnp.float32(epsilon), shares, self.scale(hparams))

    def actor(self) -> Actor:
        """Epsilon-greedy actor, whose policies are `OffPolicyPolicy` with `EpsilonGreedy`."""

        def scores(policy: OffPolicyPolicy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
            del mask
            acting, inputs = policy.acting, policy.normalised(obs)
            num_axes = leading_axes(obs, self.obs_shape)
            if self.values.remembers:
                inputs = Recalled(inputs, memory)
            outputs, memory = self.values.recalled(acting.params, inputs, num_axes)
            q = self.values.value(outputs, acting.shares, acting.scale)
            return {"q": q, "epsilon": jnp.broadcast_to(acting.epsilon, q.shape[:-1])}, memory

        if self.values.branches is not None:
            return self._branching_actor(scores, self.values.branches)

        def choose(noise: PyTree, scores: Scores, greedy: jax.Array | bool, mask: Mask) -> tuple[jax.Array, jax.Array]:
            best = best_actions(scores["q"], mask, None)
            if isinstance(greedy, bool) and greedy:
                return best, best
            # The largest of independent uniform numbers selects each allowed action with equal probability.
            anything = best_actions(noise[..., 1:], mask, None)
            explores = (noise[..., 0] < scores["epsilon"]) & jnp.logical_not(greedy)
            action = jnp.where(explores, anything, best)
            return action, action

        def log_prob(scores: Scores, mask: Mask, raw: jax.Array) -> jax.Array:
            return _log_prob(scores["q"], scores["epsilon"], mask, raw)

        def noise(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.uniform(unrolled(key), (*shape, self.head.num_outputs + 1))

        return self._remembering(scores, noise, choose, log_prob)

    def _remembering(self, scores: Any, noise: PyTree, choose: Any, log_prob: Any) -> Actor:
        """Actor with the memory of the network, () without one."""
        return remembering(lambda policy: self.values.initial_memory, scores, noise, choose, log_prob)

    def _branching_actor(self, scores: Callable[..., tuple[Scores, Memory]], branches: tuple[int, ...]) -> Actor:
        """Actor that explores in each of several choices independently."""

        def choose(noise: PyTree, scores: Scores, greedy: jax.Array | bool, mask: Mask) -> tuple[Any, jax.Array]:
            raw = best_actions(scores["q"], mask, branches)
            if not (isinstance(greedy, bool) and greedy):
                anything = best_actions(noise[..., len(branches) :], mask, branches)
                explores = (noise[..., : len(branches)] < scores["epsilon"][..., None]) & jnp.logical_not(greedy)
                raw = jnp.where(explores, anything, raw)
            return self.head.to_env(raw), raw

        def log_prob(scores: Scores, mask: Mask, raw: jax.Array) -> jax.Array:
            parts = zip(of_branches(scores["q"], branches), of_branches(mask, branches), strict=True)
            return sum(
                (_log_prob(q, scores["epsilon"], allowed, raw[..., i]) for i, (q, allowed) in enumerate(parts)),
                start=jnp.zeros(raw.shape[:-1]),
            )

        def noise(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.uniform(unrolled(key), (*shape, len(branches) + sum(branches)))

        return self._remembering(scores, noise, choose, log_prob)


def remembers(config: QConfig, own: Module | None) -> bool:
    """Whether the network of a configuration, or a custom one, has a memory."""
    return config.memory != "none" if own is None else is_recurrent(own)


def action_values(name: str, toolbox: OffPolicy, own: Module | None = None) -> ActionValues:
    """Action values of an algorithm.

    Args:
      name: Name of the algorithm, for error messages.
      toolbox: Its toolbox, with its environment and a `QConfig`.
      own: Custom network, None for the one that the configuration selects.

    Raises:
      TypeError: The actions are not discrete.
      TypeError, ValueError: The network, or a field of the configuration, does not fit the environment.
    """
    env, config, obs_shape = toolbox.env, toolbox.config, toolbox.obs_shape
    space = env.action_space(env.default_params)
    if not choice_sizes(space):
        numbers = isinstance(space, spaces.Box) and jnp.issubdtype(space.dtype, jnp.floating)
        hint = (
            "; sac, td3 and ppo take bounded numbers, and envs.wrappers.discretise_actions makes them discrete"
            if numbers
            else ""
        )
        raise UserTypeError(
            f"{name} takes an environment of discrete actions (Discrete, MultiDiscrete, or a Tuple or Dict of these), "
            f"got {space!r}{hint}"
        )
    head = action_head(space)
    loss, num_heads = outputs_of(config)
    more: Any = {"optimiser": config.optimiser, "branches": head.branches}
    if own is None:
        num_values = num_heads * loss.num_outputs
        layers = (config.dueling, config.activation, config.layer_norm, head.branches)
        network = config.remembering(
            config.encoder(obs_shape), lambda encoder: QNetwork(encoder, head.num_outputs, num_values, *layers)
        )
        values = ValueFunction(network, loss, num_heads, head.num_outputs, **more)
    else:
        config.check_own_network()
        values = ValueFunction(own, loss, num_heads, head.num_outputs, **more)
        check_outputs("network", own, {"obs": obs_shape}, "action values", values.shape)
        config.report_unused()
    return ActionValues(config, values, head, obs_shape, longest_episode(env), toolbox.effects)


def _log_prob(q: jax.Array, epsilon: jax.Array, mask: Mask, raw: jax.Array) -> jax.Array:
    """Log-probability `[*B]` of a choice by values `[*B, n]` and a probability of a random one, `[*B]`."""
    best = jnp.argmax(masked_values(q, mask), axis=-1)
    allowed = jnp.ones_like(q) if mask is None else mask.astype(jnp.float32)
    uniform = jnp.take_along_axis(allowed, raw[..., None], -1)[..., 0] / jnp.sum(allowed, axis=-1)
    return jnp.log((1 - epsilon) * (raw == best) + epsilon * uniform)


def _shown(value: Number) -> str:
    return " ".join(f"{number:g}" for number in np.ravel(value))


def common_space(algo: Algorithm, own: SearchSpace) -> SearchSpace:
    """Default search space: the common entries, and those of an algorithm, `own`."""
    space: SearchSpace = {
        "lr": LogUniform(1e-4, 1e-2),
        "epsilon_end": LogUniform(0.01, 0.2),
        "epsilon_anneal_env_steps": LogUniform(1e3, 1e5),
        **own,
    }
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995])
    return space
