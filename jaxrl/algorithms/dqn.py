"""DQN: deep Q-learning under any discount, with the usual improvements as settings."""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from envs.base import Environment, spaces
from envs.checking import check_abstractly
from envs.errors import UserTypeError, UserValueError
from envs.threefry import unrolled
from jaxrl.algorithms.arguments import checked_config, with_hints
from jaxrl.algorithms.contract import Algorithm, Metrics, longest_episode
from jaxrl.algorithms.off_policy import Method, OffPolicyPolicy, OffPolicyState, off_policy_functions
from jaxrl.algorithms.off_policy_config import INFINITE, OffPolicyConfig, OffPolicyHParams
from jaxrl.algorithms.q_discount import prepare_discount
from jaxrl.checks import Range, check_choice, check_count, check_range, effective
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning import value_losses
from jaxrl.learning.actor import Scores, memoryless
from jaxrl.learning.critics import head_sizes
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.networks import apply_over
from jaxrl.learning.optimisers import adam
from jaxrl.learning.q_networks import QNetwork
from jaxrl.learning.q_targets import bootstrap_actions, masked_values, mixture_values, n_step_targets, soft_values
from jaxrl.learning.replay import Window
from jaxrl.learning.schedules import linear_share
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform

_MUNCHAUSEN_LOWEST = -1.0  # lower bound of the added log-probability times the temperature


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """Static configuration of DQN: changing a field recompiles.

    Attributes:
      hidden: Widths of the hidden layers.
      activation: Activation function: tanh, relu, leaky_relu, elu, gelu or silu.
      duelling: Whether action values are sums of a state value and an advantage, each with its own hidden layer.
      double: Whether the online network, instead of the target network, selects the action of the bootstrap.
      value_loss: Representation of values and their loss: "squared" or "huber" for a number; "quantile" (QR-DQN) or
        "categorical" (C51) for the distribution of returns; "hl-gauss" for a number as a histogram.
      num_atoms: Number of quantiles, atoms or bins.
      target_update: Update of the target network: "hard", a copy after every `target_interval` gradient steps, or
        "soft", a moving average.
      target_interval: Number of gradient steps between two copies.
      munchausen: Whether the log-probability of the action is added to the reward (Munchausen DQN).
      heads: Heads of the network: "single", one for an exponential discount; otherwise one for each exponential of a
        mixture, which bootstrap from the best action for their "own" rate, or for the mixture, "joint".
      num_heads: Number of exponentials of the mixture.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    duelling: bool = False
    double: bool = True
    value_loss: value_losses.Kind = "huber"
    num_atoms: int = 51
    target_update: Literal["hard", "soft"] = "hard"
    target_interval: int = 200
    munchausen: bool = False
    heads: Literal["single", "own", "joint"] = "single"
    num_heads: int = 8

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_choice("value_loss", self.value_loss, value_losses.KINDS)
        check_choice("target_update", self.target_update, ("hard", "soft"))
        check_choice("heads", self.heads, ("single", "own", "joint"))
        check_count("num_atoms", self.num_atoms, 2)
        for name in ("target_interval", "num_heads"):
            check_count(name, getattr(self, name))
        for name, where, on in (
            ("num_atoms", f"value_loss={self.value_loss!r}", self.value_loss not in ("squared", "huber")),
            ("target_interval", f"target_update={self.target_update!r}", self.target_update == "hard"),
            ("num_heads", f"heads={self.heads!r}", self.heads != "single"),
        ):
            if not on and getattr(self, name) != getattr(DQNConfig, name):
                raise UserValueError(f"{name} has no effect with {where}, got {getattr(self, name)}; leave it out")
        if self.munchausen:
            for name, needed in (("n_step", 1), ("heads", "single")):
                if getattr(self, name) != needed:
                    raise UserValueError(f"munchausen takes {name}={needed!r}, got {getattr(self, name)!r}")
            if self.value_loss in value_losses.DISTRIBUTIONAL:
                raise UserValueError(
                    f"munchausen takes value_loss 'squared', 'huber' or 'hl-gauss', got {self.value_loss!r}"
                )


@struct.dataclass
class DQNHParams(OffPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      epsilon_start: Probability of a random action at the start of training.
      epsilon_end: Probability of a random action after its linear decay.
      epsilon_anneal_env_steps: Number of environment steps over which the probability decays.
      target_rate: Step size of soft target updates, in [0, 1]; 1 copies the online network.
      huber_delta: Absolute error above which the losses "huber" and "quantile" are linear.
      reward_low: Smallest reward of a step; with the discount, it determines the lower end of the support of
        "categorical" and "hl-gauss".
      reward_high: Largest reward of a step, for the upper end likewise; a narrower range is sufficient where large
        rewards are rare.
      munchausen_alpha: Weight of the log-probability in the reward.
      munchausen_temperature: Temperature of the softmax policy.

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    epsilon_start: Any = 1.0
    epsilon_end: Any = 0.05
    epsilon_anneal_env_steps: Any = 10_000.0
    target_rate: Any = 0.005
    huber_delta: Any = 1.0
    reward_low: Any = -1.0
    reward_high: Any = 1.0
    munchausen_alpha: Any = 0.9
    munchausen_temperature: Any = 0.03

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        for name, allowed in _RANGES.items():
            check_range(name, getattr(self, name), allowed)


_RANGES = {
    **dict.fromkeys(("epsilon_start", "epsilon_end", "target_rate", "munchausen_alpha"), Range(0, 1)),
    "epsilon_anneal_env_steps": Range(1, INFINITE),
    **dict.fromkeys(("huber_delta", "munchausen_temperature"), Range(1e-6, INFINITE, "[)")),
    **dict.fromkeys(("reward_low", "reward_high"), Range(-INFINITE, INFINITE, "()")),
}


class Acting(NamedTuple):
    """Parameters of acting.

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


class Learner(NamedTuple):
    """State of learning.

    Attributes:
      acting: Parameters of the policy.
      target: Parameters of the target network.
      optimiser: State of Adam.
    """

    acting: Acting
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


def search_space(algo: Algorithm) -> dict[str, Uniform | LogUniform | Choice]:
    """Default search space of DQN."""
    space: dict[str, Uniform | LogUniform | Choice] = {
        "lr": LogUniform(1e-4, 1e-2),
        "epsilon_end": LogUniform(0.01, 0.2),
        "epsilon_anneal_env_steps": LogUniform(1e3, 1e5),
    }
    if algo.hparams.target_rate is not None:
        space["target_rate"] = LogUniform(1e-3, 0.1)
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995])
    return space


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: DQNConfig, agents: tuple[int, ...]) -> Algorithm:
    params = env.default_params
    space = env.action_space(params)
    if not isinstance(space, spaces.Discrete):
        raise UserTypeError(
            f"dqn takes an environment with a Discrete action space, got {space!r}; envs.wrappers.discretise_actions "
            "makes bounded numbers discrete"
        )
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    obs_shape = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(agents) :], leaf.dtype), obs)
    num_heads = 1 if config.heads == "single" else config.num_heads
    values = value_losses.value_loss(config.value_loss, config.num_atoms)
    network = QNetwork(
        config.encoder(obs_shape), space.n, num_heads * values.num_outputs, config.duelling, config.activation
    )
    batch_axes = 1 + len(agents)
    episode_length = longest_episode(env)
    effects = {
        "observation_clip": config.normalise_observation,
        **dict.fromkeys(("priority_alpha", "priority_beta"), config.replay == "prioritised"),
        "target_rate": config.target_update == "soft",
        "huber_delta": config.value_loss in value_losses.WITH_HUBER,
        **dict.fromkeys(("reward_low", "reward_high"), config.value_loss in value_losses.WITH_SUPPORT),
        **dict.fromkeys(("munchausen_alpha", "munchausen_temperature"), config.munchausen),
    }

    def prepare(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
        del run_length
        changes = {
            name: effective(name, getattr(hparams, name), DQNHParams.__dataclass_fields__[name].default, on)
            for name, on in effects.items()
        }
        discount = prepare_discount(hparams.discount, config.heads, num_heads, episode_length, num_settings)
        return dataclasses.replace(hparams, discount=discount, **changes)

    def outputs_of(params: Any, obs: Any, num_axes: int) -> jax.Array:
        """Outputs of the network, `[*B, num_actions, K, num_outputs]`."""
        outputs = apply_over(network, params, obs, num_axes)
        return outputs.reshape(*outputs.shape[:-1], num_heads, values.num_outputs)

    def scale_of(hparams: Any) -> value_losses.Scale:
        delta = None if hparams.huber_delta is None else jnp.float32(hparams.huber_delta)
        if config.value_loss not in value_losses.WITH_SUPPORT:
            return value_losses.Scale(huber_delta=delta)
        # The largest possible return for rewards of 1; outputs of all heads have the scale of the whole value.
        weights, rates = jnp.asarray(hparams.discount.weights), jnp.asarray(hparams.discount.rates)
        total = jnp.sum(weights * jnp.sum(rates[:, None] ** jnp.arange(hparams.discount.horizon), axis=1))
        return value_losses.Scale(hparams.reward_low * total, hparams.reward_high * total, delta)

    def scores(policy: OffPolicyPolicy, obs: Any, mask: Any) -> Scores:
        del mask
        acting = policy.acting
        num_axes = jax.tree.leaves(obs)[0].ndim - len(jax.tree.leaves(obs_shape)[0].shape)
        by_head = values.value(outputs_of(acting.params, policy.see(obs), num_axes), acting.scale)
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

    actor = memoryless(scores, lambda key, shape: jax.random.uniform(unrolled(key), (*shape, space.n + 1)), choose)

    def scores_in_warm_up(policy: OffPolicyPolicy, memory: Any, obs: Any, mask: Any) -> tuple[Scores, Any]:
        exploring = policy._replace(acting=policy.acting._replace(epsilon=jnp.ones(())))
        return actor.scores(exploring, memory, obs, mask)

    def init_learner(key: jax.Array, hparams: Any) -> Learner:
        example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), obs_shape)
        weights = network.init(key, example)
        acting = Acting(weights, jnp.float32(hparams.epsilon_start), shares_of(hparams), scale_of(hparams))
        return Learner(acting, weights, adam(hparams, hparams.lr).init(weights))

    def shares_of(hparams: Any) -> jax.Array:
        return jnp.asarray(hparams.discount.weights, jnp.float32) * head_sizes(hparams.discount)

    def scheduled(learner: Learner, hparams: Any, env_steps: jax.Array) -> Learner:
        fallen = 1 - linear_share(env_steps, 0.0, hparams.epsilon_anneal_env_steps)
        epsilon = hparams.epsilon_start + (hparams.epsilon_end - hparams.epsilon_start) * fallen
        acting = Acting(learner.acting.params, jnp.float32(epsilon), shares_of(hparams), scale_of(hparams))
        return learner._replace(acting=acting)

    def targets(learner: Learner, batch: Window, hparams: Any) -> tuple[jax.Array, jax.Array]:
        """Atoms and probabilities of the targets, `[B, *A, K, M]`."""
        scale, shares = learner.acting.scale, learner.acting.shares
        rates, sizes = jnp.asarray(hparams.discount.rates, jnp.float32), head_sizes(hparams.discount)
        ended = batch.terminated | batch.truncated if config.time_limits == "terminal" else batch.terminated
        following = outputs_of(learner.target, batch.next_obs, batch_axes)
        reward = batch.reward
        if config.munchausen:
            alpha, temperature = hparams.munchausen_alpha, hparams.munchausen_temperature
            now = values.value(outputs_of(learner.target, batch.obs, batch_axes), scale)[..., 0]
            log_policy = soft_values(now, batch.mask, temperature)[1]
            log_prob = jnp.take_along_axis(log_policy, batch.raw_action[..., None], axis=-1)[..., 0]
            bonus = alpha * jnp.clip(temperature * log_prob, _MUNCHAUSEN_LOWEST, 0.0)
            reward = reward + bonus[:, None]
            after = soft_values(values.value(following, scale)[..., 0], batch.next_mask, temperature)[0]
            atoms = after[..., None, None]
            probabilities = jnp.ones_like(atoms)
        else:
            deciding = outputs_of(learner.acting.params, batch.next_obs, batch_axes) if config.double else following
            action = bootstrap_actions(values.value(deciding, scale), shares, batch.next_mask, config.heads)
            chosen = jnp.take_along_axis(following, action[..., None, :, None], axis=-3)[..., 0, :, :]
            atoms, probabilities = values.distribution(chosen, scale)
        return n_step_targets(reward, batch.counts, ended, atoms, rates, sizes), probabilities

    def learn(
        key: jax.Array, learner: Learner, batch: Window, weight: jax.Array, hparams: Any, count: jax.Array
    ) -> tuple[Learner, jax.Array, Metrics]:
        del key
        scale, shares = learner.acting.scale, learner.acting.shares
        atoms, probabilities = jax.lax.stop_gradient(targets(learner, batch, hparams))

        def loss(weights: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            outputs = outputs_of(weights, batch.obs, batch_axes)
            taken = batch.raw_action[..., None, None, None]
            chosen = jnp.take_along_axis(outputs, taken, axis=-3)[..., 0, :, :]
            by_head = values.loss(chosen, atoms, probabilities, scale)
            total = jnp.sum(mixture_values(by_head, shares) * weight) / jnp.maximum(jnp.sum(batch.active), 1)
            value = mixture_values(values.value(chosen, scale), shares)
            error = mixture_values(value_losses.expected(atoms, probabilities), shares) - value
            return total, (value, error)

        (total, (value, error)), gradient = jax.value_and_grad(loss, has_aux=True)(learner.acting.params)
        updates, optimiser = adam(hparams, hparams.lr).update(gradient, learner.optimiser, learner.acting.params)
        weights: Any = optax.apply_updates(learner.acting.params, updates)
        if config.target_update == "soft":
            target = optax.incremental_update(weights, learner.target, hparams.target_rate)
        else:
            # The number of gradient steps is shared by the runs, so this remains a branch under vmap.
            due = (count + 1) % config.target_interval == 0
            target = jax.lax.cond(due, lambda new, old: new, lambda new, old: old, weights, learner.target)
        active = batch.active.astype(jnp.float32)
        rows = tuple(range(1, batch_axes))
        of_row = jnp.sum(jnp.abs(error) * active, axis=rows) / jnp.maximum(jnp.sum(active, axis=rows), 1)
        metrics = {
            "value_loss": total,
            "q": weighted_mean(value, active),
            "q_error": weighted_mean(jnp.abs(error), active),
            "grad_norm": optax.tree.norm(gradient),
        }
        return Learner(learner.acting._replace(params=weights), target, optimiser), of_row, metrics

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
        hparams=DQNHParams(**{name: None for name, on in effects.items() if not on}),
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
