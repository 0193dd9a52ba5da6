"""Proximal policy optimisation under any discount."""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from envs.base import Environment
from jaxrl.advantages import ugae
from jaxrl.algorithms.base import Algorithm, Metrics, check_choice, check_count, check_range
from jaxrl.discounting import Exponential, as_discount, prepare
from jaxrl.distributions import action_head
from jaxrl.losses import (
    approximate_kl,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    standardise,
    weighted_mean,
)
from jaxrl.networks import ACTIVATIONS, MLPActorCritic, check_network
from jaxrl.normalise import RunningStatistics, init_statistics, normalise, update_statistics
from jaxrl.rollout import Carry, Transition, reset_all, rollout

INFINITE = math.inf


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """What is static about PPO: changing a field compiles anew.

    Attributes:
      num_envs: environments of one run.
      num_steps: steps of each environment in one iteration.
      num_epochs: passes over an iteration's samples.
      num_minibatches: minibatches of one pass; must divide num_envs * num_steps (* agents).
      hidden: widths of the hidden layers.
      activation: tanh, relu, leaky_relu, elu, gelu or silu.
      shared_trunk: whether actor and critic share the hidden layers.
      normalise_advantage: over the whole "batch", over each "minibatch", or "off".
      normalise_observation: by running mean and variance.
      normalise_reward: divided by the running deviation of the discounted return.
      reset_pool: fresh states kept for each environment and iteration; None has room for a
        reset every 8 steps.
    """

    num_envs: int = 4
    num_steps: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    normalise_advantage: Literal["batch", "minibatch", "off"] = "minibatch"
    normalise_observation: bool = False
    normalise_reward: bool = False
    reset_pool: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "num_steps", "num_epochs", "num_minibatches"):
            check_count(name, getattr(self, name))
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for width in self.hidden:
            check_count("hidden", width)
        if self.reset_pool is not None:
            check_count("reset_pool", self.reset_pool)
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_choice("normalise_advantage", self.normalise_advantage, ("batch", "minibatch", "off"))


@struct.dataclass
class PPOHParams:
    """What may be swept without compiling anew: every leaf is traced.

    Attributes:
      lr: Adam's step size at the start.
      lr_end: share of `lr` left at the end, reached linearly; 1 keeps it constant.
      anneal_env_steps: environment steps over which it falls; infinite stands for the whole run.
      discount: a number (exponential), a string such as "beta:mu=0.98,eta=0.5", or a Discount.
      lam: lambda of the advantage estimator, in [0, 1]; 1 is Monte Carlo.
      clip_eps: half width of the trusted interval of the probability ratio.
      value_clip: how far a value may move in one iteration; infinite turns the clip off.
      value_coef, entropy_coef: weights of the value loss and of the entropy bonus.
      max_grad_norm: global norm to which gradients are clipped; infinite turns it off.
      target_kl: an iteration stops learning after the epoch whose mean KL divergence exceeds this;
        infinite turns it off.
      adam_b1, adam_b2, adam_eps: Adam's decay rates and stabiliser.
      log_std_init: initial log standard deviation of continuous actions.
      observation_clip, reward_clip: bounds of normalised observations and rewards.
      gamma: not a field; the answer to `gamma=` is `discount=`.

    The last three are None in `Algorithm.hparams` where they have no effect.
    """

    lr: Any = 2.5e-4
    lr_end: Any = 1.0
    anneal_env_steps: Any = INFINITE
    discount: Any = Exponential(0.99)
    lam: Any = 0.95
    clip_eps: Any = 0.2
    value_clip: Any = INFINITE
    value_coef: Any = 0.5
    entropy_coef: Any = 0.01
    max_grad_norm: Any = 0.5
    target_kl: Any = INFINITE
    adam_b1: Any = 0.9
    adam_b2: Any = 0.999
    adam_eps: Any = 1e-5
    log_std_init: Any = 0.0
    observation_clip: Any = 10.0
    reward_clip: Any = 10.0
    gamma: dataclasses.InitVar[None] = None

    def __post_init__(self, gamma: None) -> None:
        if gamma is not None:
            raise TypeError(f"gamma is not a field: use discount={gamma} or another discount, such as 'beta:0.98,0.5'")
        if isinstance(self.discount, int | float | str):
            object.__setattr__(self, "discount", as_discount(self.discount))
        for name, (low, high) in _RANGES.items():
            check_range(name, getattr(self, name), low, high)


_RANGES = {
    "lr": (0, INFINITE),
    "lr_end": (0, INFINITE),
    "anneal_env_steps": (1, INFINITE),
    "lam": (0, 1),
    "clip_eps": (0, INFINITE),
    "value_clip": (0, INFINITE),
    "value_coef": (0, INFINITE),
    "entropy_coef": (-INFINITE, INFINITE),
    "max_grad_norm": (0, INFINITE),
    "target_kl": (0, INFINITE),
    "adam_b1": (0, 1),
    "adam_b2": (0, 1),
    "adam_eps": (0, INFINITE),
    "log_std_init": (-20, 20),
    "observation_clip": (0, INFINITE),
    "reward_clip": (0, INFINITE),
}


class PPOPolicy(NamedTuple):
    """What acting needs.

    Attributes:
      params: the network's parameters.
      log_std: float32 `[num_outputs]` for continuous actions, otherwise None.
      observations: running statistics, None without normalisation.
      observation_clip: the bound of normalised observations, None without.
    """

    params: Any
    log_std: jax.Array | None
    observations: RunningStatistics | None
    observation_clip: jax.Array | None


class PPOState(NamedTuple):
    """Everything that one run carries from iteration to iteration.

    Attributes:
      policy: parameters and normalisation.
      optimiser: optax's state.
      carry: the environments.
      rewards: running statistics of the discounted return, and that return `[num_envs, *A]`;
        None without normalisation.
      env_steps: float32 `[]`, taken so far.
    """

    policy: PPOPolicy
    optimiser: optax.OptState
    carry: Carry
    rewards: tuple[RunningStatistics, jax.Array] | None
    env_steps: jax.Array


class Samples(NamedTuple):
    """What learning needs of a transition; leaves `[rows, ...]`, agents and all in one axis."""

    obs: Any
    raw_action: jax.Array
    mask: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array
    weight: jax.Array


def ppo(env: Environment, config: PPOConfig | None = None, network: nn.Module | None = None) -> Algorithm:
    """PPO on an environment with discrete, several discrete, or continuous actions.

    Advantages are UGAE's, so `hparams.discount` may be any discount; a time limit bootstraps
    from the value of the final observation, a termination does not. Agents of a crowd share
    the network, and only transitions in which an agent was active are learned from.

    Args:
      env: static; its spaces describe one agent.
      config: static, `PPOConfig()` if None.
      network: a flax module that maps one observation to (outputs `[num_outputs]`, value `[]`),
        outputs being logits or the mean of a normal; `MLPActorCritic` if None.

    Raises:
      TypeError: an action space or a network that PPO cannot serve.
      ValueError: minibatches that do not divide an iteration.

    Source: Schulman et al. (2017); advantages: Kwiatkowski et al. (2023), arXiv 2302.05740.
    """
    config = PPOConfig() if config is None else config
    params = env.default_params
    head = action_head(env.action_space(params))
    obs_shape, agents = _shapes(env, params)
    own_network = network
    if network is None:
        network = MLPActorCritic(head.num_outputs, config.hidden, config.activation, config.shared_trunk)
    check_network(network, obs_shape, head.num_outputs)
    num_rows = config.num_envs * config.num_steps * math.prod(agents)
    if num_rows % config.num_minibatches:
        raise ValueError(
            f"num_minibatches must divide the {num_rows} samples of an iteration "
            f"(num_envs * num_steps * agents), got {config.num_minibatches}"
        )
    steps_per_iteration = config.num_envs * config.num_steps
    batch_axes = 1 + len(agents)

    def apply(params: Any, obs: Any, axes: int) -> tuple[jax.Array, jax.Array]:
        function: Any = network.apply
        for _ in range(axes):
            function = jax.vmap(function, in_axes=(None, 0))
        return function(params, obs)

    def prepare_hparams(hparams: PPOHParams) -> PPOHParams:
        return dataclasses.replace(
            hparams,
            discount=prepare(hparams.discount, config.num_steps),
            log_std_init=_effective("log_std_init", hparams.log_std_init, head.continuous),
            observation_clip=_effective("observation_clip", hparams.observation_clip, config.normalise_observation),
            reward_clip=_effective("reward_clip", hparams.reward_clip, config.normalise_reward),
        )

    def see(policy: PPOPolicy, obs: Any) -> Any:
        if policy.observations is None or policy.observation_clip is None:
            return obs
        return normalise(policy.observations, obs, policy.observation_clip)

    def init(key: jax.Array, hparams: PPOHParams, env_params: Any) -> PPOState:
        hparams = prepare_hparams(hparams)
        network_key, reset_key = jax.random.split(key)
        example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), obs_shape)
        policy = PPOPolicy(
            params=network.init(network_key, example),
            log_std=jnp.full(head.num_outputs, hparams.log_std_init, jnp.float32) if head.continuous else None,
            observations=init_statistics(obs_shape) if config.normalise_observation else None,
            observation_clip=_float(hparams.observation_clip) if config.normalise_observation else None,
        )
        rewards = None
        if config.normalise_reward:
            rewards = (init_statistics(jax.ShapeDtypeStruct((), jnp.float32)), jnp.zeros((config.num_envs, *agents)))
        weights: Any = (policy.params, policy.log_std)
        optimiser = _optimiser(hparams, hparams.lr).init(weights)
        carry = reset_all(env, reset_key, env_params, config.num_envs)
        return PPOState(policy, optimiser, carry, rewards, jnp.zeros(()))

    def collect(key: jax.Array, state: PPOState, env_params: Any) -> tuple[Carry, Transition, jax.Array]:
        noise_key, env_key = jax.random.split(key)
        noise = head.noise(noise_key, (config.num_steps, config.num_envs, *agents))

        def choose(obs: Any, mask: Any, noise: jax.Array) -> tuple[Any, Any]:
            outputs, _ = apply(state.policy.params, see(state.policy, obs), batch_axes)
            raw = head.sample(outputs, state.policy.log_std, mask, noise)
            return head.to_env(raw), raw

        return rollout(env, env_params, choose, env_key, state.carry, noise, config.reset_pool)

    def scale_rewards(
        state: PPOState, steps: Transition, discount: Any, clip: Any
    ) -> tuple[jax.Array, tuple[RunningStatistics, jax.Array] | None]:
        if state.rewards is None:
            return steps.reward, None
        statistics, accumulated = state.rewards
        done = _over_agents(steps.terminated | steps.truncated, steps.reward) | steps.agent_terminated

        def accumulate(total: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            reward, done = step
            total = reward + discount.next_weight(jnp.zeros((), jnp.int32), jnp.ones(())) * total
            return jnp.where(done, 0.0, total), total

        accumulated, totals = jax.lax.scan(accumulate, accumulated, (steps.reward, done))
        statistics = update_statistics(statistics, totals, steps.active.astype(jnp.float32))
        reward = jnp.clip(steps.reward * jax.lax.rsqrt(statistics.variance + 1e-8), -clip, clip)
        return reward, (statistics, accumulated)

    def samples_of(policy: PPOPolicy, steps: Transition, reward: jax.Array, hparams: PPOHParams) -> Samples:
        # Values and log-probabilities of the whole rollout in one batch, not step by step.
        obs, next_obs = see(policy, steps.obs), see(policy, steps.next_obs)
        outputs, value = apply(policy.params, obs, 1 + batch_axes)
        _, next_value = apply(policy.params, next_obs, 1 + batch_axes)
        log_prob = head.log_prob(outputs, policy.log_std, steps.mask, steps.extras)
        done = _over_agents(steps.terminated | steps.truncated, reward) | steps.agent_terminated
        advantage, target = ugae(hparams.discount, hparams.lam, reward, value, next_value, steps.agent_terminated, done)
        weight = steps.active.astype(jnp.float32)
        if config.normalise_advantage == "batch":
            advantage = standardise(advantage, weight)
        samples = Samples(obs, steps.extras, steps.mask, log_prob, value, advantage, target, weight)
        return jax.tree.map(lambda leaf: leaf.reshape(num_rows, *leaf.shape[1 + batch_axes :]), samples)

    def loss(weights: Any, rows: Samples, hparams: PPOHParams) -> tuple[jax.Array, Metrics]:
        params, log_std = weights
        outputs, value = apply(params, rows.obs, 1)
        advantage = rows.advantage
        if config.normalise_advantage == "minibatch":
            advantage = standardise(advantage, rows.weight)
        log_ratio = head.log_prob(outputs, log_std, rows.mask, rows.raw_action) - rows.log_prob
        policy_loss = clipped_surrogate(log_ratio, advantage, rows.weight, hparams.clip_eps)
        value_loss = clipped_value_loss(value, rows.value, rows.target, rows.weight, hparams.value_clip)
        entropy = weighted_mean(jnp.broadcast_to(head.entropy(outputs, log_std, rows.mask), value.shape), rows.weight)
        total = policy_loss + hparams.value_coef * value_loss - hparams.entropy_coef * entropy
        outside = jnp.abs(jnp.expm1(log_ratio)) > hparams.clip_eps
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": approximate_kl(log_ratio, rows.weight),
            "clip_fraction": weighted_mean(outside.astype(jnp.float32), rows.weight),
        }

    def learn(
        key: jax.Array, weights: Any, optimiser: optax.OptState, samples: Samples, hparams: PPOHParams, lr: jax.Array
    ) -> tuple[Any, optax.OptState, Metrics]:
        transformation = _optimiser(hparams, lr)

        def one_minibatch(learner: Any, rows: Samples) -> tuple[Any, Metrics]:
            weights, optimiser = learner
            (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(weights, rows, hparams)
            metrics["grad_norm"] = jnp.linalg.norm(ravel_pytree(gradient)[0])
            updates, optimiser = transformation.update(gradient, optimiser, weights)
            return (optax.apply_updates(weights, updates), optimiser), metrics

        def one_epoch(carry: Any, key: jax.Array) -> tuple[Any, Metrics]:
            learner, stopped = carry
            order = jax.random.permutation(key, num_rows)
            shape = (config.num_minibatches, num_rows // config.num_minibatches)
            shuffled = jax.tree.map(lambda leaf: leaf[order].reshape(*shape, *leaf.shape[1:]), samples)
            learned, metrics = jax.lax.scan(one_minibatch, learner, shuffled)
            metrics = jax.tree.map(jnp.mean, metrics) | {"stopped_early": stopped.astype(jnp.float32)}
            learner = jax.tree.map(lambda new, old: jnp.where(stopped, old, new), learned, learner)
            return (learner, stopped | (metrics["approx_kl"] > hparams.target_kl)), metrics

        start = ((weights, optimiser), jnp.zeros((), bool))
        keys = jax.random.split(key, config.num_epochs)
        ((weights, optimiser), _), metrics = jax.lax.scan(one_epoch, start, keys)
        return weights, optimiser, jax.tree.map(jnp.mean, metrics)

    def step(key: jax.Array, state: PPOState, hparams: PPOHParams, env_params: Any) -> tuple[PPOState, Metrics]:
        hparams = prepare_hparams(hparams)
        collect_key, learn_key = jax.random.split(key)
        carry, steps, reused = collect(collect_key, state, env_params)
        reward, rewards = scale_rewards(state, steps, hparams.discount, hparams.reward_clip)
        samples = samples_of(state.policy, steps, reward, hparams)
        lr = hparams.lr * learning_rate_share(state.env_steps, hparams)
        (params, log_std), optimiser, metrics = learn(
            learn_key, (state.policy.params, state.policy.log_std), state.optimiser, samples, hparams, lr
        )
        observations = state.policy.observations
        if observations is not None:
            observations = update_statistics(observations, steps.obs, steps.active.astype(jnp.float32))
        policy = PPOPolicy(params, log_std, observations, state.policy.observation_clip)
        metrics["explained_variance"] = explained_variance(samples.value, samples.target, samples.weight)
        metrics["learning_rate"] = lr
        metrics["reset_reuse"] = reused.astype(jnp.float32)
        return PPOState(policy, optimiser, carry, rewards, state.env_steps + steps_per_iteration), metrics

    def act(key: jax.Array, policy: PPOPolicy, obs: Any, greedy: jax.Array | bool, mask: Any = None) -> Any:
        outputs, _ = apply(policy.params, see(policy, obs), len(agents))
        noise = head.noise(key, agents)
        raw = jnp.where(greedy, head.mode(outputs, mask), head.sample(outputs, policy.log_std, mask, noise))
        return head.to_env(raw)

    defaults = PPOHParams()
    if not head.continuous:
        defaults = dataclasses.replace(defaults, log_std_init=None)
    if not config.normalise_observation:
        defaults = dataclasses.replace(defaults, observation_clip=None)
    if not config.normalise_reward:
        defaults = dataclasses.replace(defaults, reward_clip=None)
    return Algorithm(
        name="ppo",
        env=env,
        config=config,
        hparams=defaults,
        init=init,
        step=step,
        policy=lambda state: state.policy,
        act=act,
        env_steps_per_iteration=steps_per_iteration,
        prepare=prepare_hparams,
        network=own_network,
    )


def learning_rate_share(env_steps: jax.Array, hparams: PPOHParams) -> jax.Array:
    """The share of `lr` in force after `env_steps`, falling linearly from 1 to `lr_end`."""
    progress = jnp.minimum(env_steps / hparams.anneal_env_steps, 1.0)
    return 1 + (hparams.lr_end - 1) * progress


def _optimiser(hparams: PPOHParams, lr: Any) -> optax.GradientTransformation:
    # One long vector in place of many small arrays: a third of the operations of a minibatch on a CPU.
    return optax.flatten(
        optax.chain(
            optax.clip_by_global_norm(hparams.max_grad_norm),
            optax.scale_by_adam(hparams.adam_b1, hparams.adam_b2, hparams.adam_eps),
            optax.scale_by_learning_rate(lr),
        )
    )


def _shapes(env: Environment, params: Any) -> tuple[Any, tuple[int, ...]]:
    """Shapes of one agent's observation, and of the agents: what an observation has in front."""
    obs, _ = jax.eval_shape(env.reset_env, jax.random.key(0), params)
    space = env.observation_space(params)
    leaves = jax.tree.leaves(obs)
    one = jax.tree.leaves(jax.eval_shape(space.sample, jax.random.key(0)))
    # Numbers of axes are added up, as a Dict's sample has its leaves in an order of its own.
    axes = sum(len(leaf.shape) for leaf in leaves) - sum(len(leaf.shape) for leaf in one)
    agents = leaves[0].shape[: axes // len(leaves)]
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(agents) :], leaf.dtype), obs), agents


def _over_agents(flag: jax.Array, reward: jax.Array) -> jax.Array:
    """A flag `[T, N]` with the agents' axes of a reward `[T, N, *A]`."""
    return jnp.broadcast_to(flag.reshape(flag.shape + (1,) * (reward.ndim - flag.ndim)), reward.shape)


def _effective(name: str, value: Any, active: bool) -> Any:
    """The value of a leaf that has an effect, None for one without; a changed one is refused."""
    default = PPOHParams.__dataclass_fields__[name].default
    if active:
        return default if value is None else value
    concrete = isinstance(value, int | float | np.ndarray | np.number)
    if concrete and np.any(np.asarray(value, np.float32) != np.float32(default)):
        raise ValueError(f"{name} has no effect on this environment and configuration, got {value}; leave it out")
    return None


def _float(value: Any) -> jax.Array:
    return jnp.asarray(value, jnp.float32)
