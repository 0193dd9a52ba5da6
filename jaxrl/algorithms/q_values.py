"""Common parts of algorithms that learn action values: network, heads, epsilon-greedy actor and gradient step."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from envs.base import Environment, spaces
from envs.errors import UserTypeError, UserValueError
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, longest_episode
from jaxrl.algorithms.observations import check_normalised, leading_axes, observation_shapes, zeros
from jaxrl.algorithms.off_policy import OffPolicyPolicy
from jaxrl.algorithms.q_config import QConfig
from jaxrl.algorithms.q_discount import prepare_discount
from jaxrl.algorithms.value_step import Nodes, Target, descend
from jaxrl.checks import effective, is_concrete
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning import value_losses
from jaxrl.learning.actor import Actor, Scores, memoryless
from jaxrl.learning.networks import apply_over
from jaxrl.learning.optimisers import adam, linear_share
from jaxrl.learning.output_networks import QNetwork
from jaxrl.learning.q_targets import masked_values, mixture_values
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform

Space = dict[str, Uniform | LogUniform | Choice]

_LEAST = 1e-30  # in place of a divisor of 0
_LONGEST_SUPPORT = 2.0  # time limits over which a value that bootstraps is summed at most, for rates near 1

__all__ = ["ActionValues", "EpsilonGreedy", "Space", "action_values", "common_space"]


class EpsilonGreedy(NamedTuple):
    """Parameters from which an epsilon-greedy policy computes actions.

    Attributes:
      params: Parameters of the network.
      epsilon: Probability of a random action, float32 `[]`.
      shares: Shares of the heads in a value, float32 `[K]`.
      scale: Parameters of the value loss.
    """

    params: Any
    epsilon: jax.Array
    shares: jax.Array
    scale: value_losses.Scale


class ActionValues(NamedTuple):
    """Action values of an algorithm on one environment.

    Attributes:
      config: Configuration.
      network: Network of the numbers that represent values.
      loss: Representation and loss of values.
      num_heads: Number of heads K.
      obs_shape: Shapes of one observation of one agent.
      episode_length: Time limit of episodes, in steps.
    """

    config: QConfig
    network: QNetwork
    loss: value_losses.ValueLoss
    num_heads: int
    obs_shape: Any
    episode_length: int

    def prepare(self, hparams: Any, num_settings: int | None = None) -> Any:
        """Hyper-parameters with a resolved discount and without ineffective ones, for `Algorithm.prepare`."""
        defaults = type(hparams).__dataclass_fields__
        changes = {
            name: effective(name, getattr(hparams, name), defaults[name].default, on)
            for name, on in self.config.effects.items()
        }
        discount = prepare_discount(
            hparams.discount, self.config.heads, self.num_heads, self.episode_length, num_settings
        )
        low, high = (changes.get(name, getattr(hparams, name)) for name in ("reward_low", "reward_high"))
        if low is not None and is_concrete((low, high)) and np.any(np.asarray(low) >= np.asarray(high)):
            raise UserValueError(f"reward_low must be below reward_high, got {_shown(low)} and {_shown(high)}")
        return dataclasses.replace(hparams, discount=discount, **changes)

    def outputs(self, params: Any, obs: Any, num_axes: int) -> jax.Array:
        """Outputs of the network for observations with `num_axes` leading axes, `[*B, num_actions, K, num_outputs]`."""
        outputs = apply_over(self.network, params, obs, num_axes)
        return outputs.reshape(*outputs.shape[:-1], self.num_heads, self.loss.num_outputs)

    def scale(self, hparams: Any) -> value_losses.Scale:
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

    def initial(self, key: jax.Array, hparams: Any) -> EpsilonGreedy:
        """Initial values, with random parameters."""
        return self._acting(self.network.init(key, zeros(self.obs_shape)), hparams.epsilon_start, hparams)

    def scheduled(self, acting: EpsilonGreedy, hparams: Any, env_steps: jax.Array) -> EpsilonGreedy:
        """Values with the probability of a random action after `env_steps` environment steps, `[]`."""
        fallen = 1 - linear_share(env_steps, 0.0, hparams.epsilon_anneal_env_steps)
        epsilon = hparams.epsilon_start + (hparams.epsilon_end - hparams.epsilon_start) * fallen
        return self._acting(acting.params, epsilon, hparams)

    def _acting(self, params: Any, epsilon: Any, hparams: Any) -> EpsilonGreedy:
        shares = Nodes.of(hparams.discount).shares
        return EpsilonGreedy(params, jnp.float32(epsilon), shares, self.scale(hparams))

    def actor(self) -> Actor:
        """Epsilon-greedy actor, whose policies are `OffPolicyPolicy` with `EpsilonGreedy`."""
        num_actions = self.network.num_actions

        def scores(policy: OffPolicyPolicy, obs: Any, mask: Any) -> Scores:
            del mask
            acting = policy.acting
            num_axes = leading_axes(obs, self.obs_shape)
            by_head = self.loss.value(self.outputs(acting.params, policy.see(obs), num_axes), acting.scale)
            q = mixture_values(by_head, acting.shares)
            return {"q": q, "epsilon": jnp.broadcast_to(acting.epsilon, q.shape[:-1])}

        def choose(noise: Any, scores: Scores, greedy: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
            best = jnp.argmax(masked_values(scores["q"], mask), axis=-1).astype(jnp.int32)
            if isinstance(greedy, bool) and greedy:
                return best, best
            # The largest of independent uniform numbers selects each allowed action with equal probability.
            anything = jnp.argmax(masked_values(noise[..., 1:], mask), axis=-1).astype(jnp.int32)
            explores = (noise[..., 0] < scores["epsilon"]) & jnp.logical_not(greedy)
            action = jnp.where(explores, anything, best)
            return action, action

        return memoryless(
            scores, lambda key, shape: jax.random.uniform(unrolled(key), (*shape, num_actions + 1)), choose
        )

    def descend(
        self,
        acting: EpsilonGreedy,
        optimiser: optax.OptState,
        batch: Any,
        target: Target,
        weight: jax.Array,
        hparams: Any,
        lr: Any,
    ) -> tuple[EpsilonGreedy, optax.OptState, jax.Array, Metrics]:
        """One step of Adam towards targets.

        Args:
          acting: Current values.
          optimiser: State of Adam.
          batch: Samples with `obs` as the network gets them, `raw_action` and `active`, leaves `[*B, ...]`.
          target: Targets, `[*B, K, M]`.
          weight: Weights of the samples' losses, `[*B]`, 0 where not active.
          hparams: Hyper-parameters, prepared.
          lr: Step size, `[]`.

        Returns:
          Updated values, state of Adam, absolute errors of the values before the step, `[*B]`, and metrics.
        """

        def chosen(params: Any) -> jax.Array:
            outputs = self.outputs(params, batch.obs, batch.active.ndim)
            return jnp.take_along_axis(outputs, batch.raw_action[..., None, None, None], axis=-3)[..., 0, :, :]

        shares, scale, descent = acting.shares, acting.scale, adam(hparams, lr)
        params, optimiser, error, metrics = descend(
            self.loss, acting.params, optimiser, chosen, target, batch.active, weight, shares, scale, descent
        )
        return acting._replace(params=params), optimiser, error, metrics


def action_values(name: str, env: Environment, config: QConfig, agents: tuple[int, ...]) -> ActionValues:
    """Action values of the algorithm `name` on an environment with agents of the shape `agents`.

    Raises:
      TypeError: The actions are not discrete.
      ValueError: A field of the configuration does not fit the observations.
    """
    space = env.action_space(env.default_params)
    if not isinstance(space, spaces.Discrete):
        numbers = isinstance(space, spaces.Box) and jnp.issubdtype(space.dtype, jnp.floating)
        hint = (
            "; sac, td3 and ppo take bounded numbers, and envs.wrappers.discretise_actions makes them discrete"
            if numbers
            else ""
        )
        raise UserTypeError(f"{name} takes an environment with a Discrete action space, got {space!r}{hint}")
    obs_shape = observation_shapes(env, agents)
    check_normalised(config.normalise_observation, obs_shape)
    num_heads = 1 if config.heads == "single" else config.num_heads
    loss = value_losses.value_loss(config.value_loss, config.num_atoms)
    outputs = num_heads * loss.num_outputs
    network = QNetwork(
        config.encoder(obs_shape), space.n, outputs, config.duelling, config.activation, config.layer_norm
    )
    return ActionValues(config, network, loss, num_heads, obs_shape, longest_episode(env))


def _shown(value: Any) -> str:
    return " ".join(f"{number:g}" for number in np.ravel(value))


def common_space(algo: Algorithm, own: Space) -> Space:
    """Default search space: the common entries, and those of an algorithm, `own`."""
    space: Space = {
        "lr": LogUniform(1e-4, 1e-2),
        "epsilon_end": LogUniform(0.01, 0.2),
        "epsilon_anneal_env_steps": LogUniform(1e3, 1e5),
        **own,
    }
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995])
    return space
