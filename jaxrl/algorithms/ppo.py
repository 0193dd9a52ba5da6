"""Proximal policy optimisation under any discount."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from envs.base import Environment
from envs.checking import check_abstractly
from envs.threefry import unrolled
from jaxrl.algorithms import on_policy as parts
from jaxrl.algorithms.contract import Algorithm, Metrics, Sharded
from jaxrl.checks import Range, check_choice, check_count, check_range, effective
from jaxrl.discounts.parsing import GAMMA_HINT, Exponential, as_discount
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.critics import mixture_critic, single_critic
from jaxrl.learning.losses import approximate_kl, clipped_surrogate, explained_variance, standardise, weighted_mean
from jaxrl.learning.networks import ACTIVATIONS, POOLINGS, MLPActorCritic, Module, RelationActorCritic, check_network
from jaxrl.learning.normalisation import RunningStatistics, init_statistics, normalise, update_statistics
from jaxrl.learning.rollout import Carry, Transition, reset_all, rollout
from jaxrl.learning.shards import EnvShards, averaged, own, own_key, summed

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
      own_hidden, neighbour_hidden: for observations with "neighbours", widths of what an agent's own part and each
        neighbour go through before they are joined; `hidden` follows. See `networks.RelationActorCritic`.
      pooling: of neighbours: over all slots, padding included ("mean"), over those that are there ("masked-mean",
        "max"), or by "attention".
      own_scale, neighbour_scale: by which an agent's own part and neighbours' rows are multiplied.
      normalise_advantage: over the whole "batch", over each "minibatch", or "off".
      normalise_observation: by running mean and variance.
      normalise_reward: divided by the running deviation of the rewards' exponentially discounted sum, at the rate
        Gamma(1) whatever the family of the discount.
      reset_pool: fresh states kept for each environment and iteration; None has room for a
        reset every 8 steps.
      critic: "single", one value, whose bootstrap restarts the clock of a discount that is not exponential, or
        "mixture", one value for each of a few exponentials that make up the discount, each bootstrapping from itself.
        The exponentials are those of one rollout; beyond it the discount they imply is another one, whose total
        weight under `hyperbolic:k=0.02` with 8 heads is 2 % too small after rollouts of 16 steps, 0.1 % after 128.
      critic_heads: exponentials of the mixture critic.
      time_limits: "bootstrap" from the value of the observation at which a time limit cuts an episode, or "terminal",
        which takes the limit for an end of value 0; then the observation should tell the time that is left, as
        `envs.wrappers.time_feature` makes it.
      kl_stop: where `target_kl` ends an iteration's learning: after the "epoch" whose mean divergence exceeds it; at
        the "minibatch" that finds it exceeded, without a step of its own; or there with a "rewind", which also undoes
        the step before.
      gamma: not a field; discounts are hyper-parameters.
    """

    num_envs: int = 4
    num_steps: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    own_hidden: tuple[int, ...] = (64,)
    neighbour_hidden: tuple[int, ...] = (64,)
    pooling: Literal["mean", "masked-mean", "max", "attention"] = "mean"
    own_scale: float = 1.0
    neighbour_scale: float = 1.0
    normalise_advantage: Literal["batch", "minibatch", "off"] = "minibatch"
    normalise_observation: bool = False
    normalise_reward: bool = False
    reset_pool: int | None = None
    critic: Literal["single", "mixture"] = "single"
    critic_heads: int = 8
    time_limits: Literal["bootstrap", "terminal"] = "bootstrap"
    kl_stop: Literal["epoch", "minibatch", "rewind"] = "epoch"
    gamma: dataclasses.InitVar[None] = None

    def __post_init__(self, gamma: None) -> None:
        if gamma is not None:
            raise TypeError(f"{GAMMA_HINT}, in PPOHParams")
        for name in ("num_envs", "num_steps", "num_epochs", "num_minibatches", "critic_heads"):
            check_count(name, getattr(self, name))
        for name in ("hidden", "own_hidden", "neighbour_hidden"):
            if not isinstance(getattr(self, name), Sequence) or isinstance(getattr(self, name), str):
                raise TypeError(f"{name} takes the widths of layers, such as (64, 64), got {getattr(self, name)!r}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
            for width in getattr(self, name):
                check_count(name, width)
        if self.reset_pool is not None:
            check_count("reset_pool", self.reset_pool)
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_choice("pooling", self.pooling, POOLINGS)
        for name in ("own_scale", "neighbour_scale"):
            check_range(name, getattr(self, name), Range(0, INFINITE, "()"))
        check_choice("normalise_advantage", self.normalise_advantage, ("batch", "minibatch", "off"))
        check_choice("critic", self.critic, ("single", "mixture"))
        if self.critic == "single" and self.critic_heads != PPOConfig.critic_heads:
            raise ValueError(f"critic_heads has no effect with critic='single', got {self.critic_heads}; leave it out")
        check_choice("time_limits", self.time_limits, ("bootstrap", "terminal"))
        check_choice("kl_stop", self.kl_stop, ("epoch", "minibatch", "rewind"))


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
      entropy_decay_env_steps: environment steps in which the entropy bonus falls to a tenth; infinite keeps it.
      max_grad_norm: global norm to which gradients are clipped; infinite turns it off.
      target_kl: an iteration stops learning once the KL divergence exceeds this, see `PPOConfig.kl_stop`;
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
    entropy_decay_env_steps: Any = INFINITE
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
            raise TypeError(GAMMA_HINT)
        if isinstance(self.discount, int | float | str):
            object.__setattr__(self, "discount", as_discount(self.discount))
        if isinstance(self.discount, list | tuple):
            raise TypeError(f"discount takes one discount, got {self.discount!r}; several make a sweep: use jaxrl.grid")
        for name, allowed in _RANGES.items():
            check_range(name, getattr(self, name), allowed)


_RANGES = {
    **dict.fromkeys(("lr", "lr_end", "clip_eps", "value_coef", "adam_eps"), Range(0, INFINITE, "[)")),
    **dict.fromkeys(
        ("value_clip", "max_grad_norm", "target_kl", "observation_clip", "reward_clip"), Range(0, INFINITE)
    ),
    **dict.fromkeys(("adam_b1", "adam_b2"), Range(0, 1, "[)")),
    **dict.fromkeys(("anneal_env_steps", "entropy_decay_env_steps"), Range(1, INFINITE)),
    "lam": Range(0, 1),
    "entropy_coef": Range(-INFINITE, INFINITE, "()"),
    "log_std_init": Range(-20, 20),
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
      rewards: running statistics of the exponentially discounted sum of rewards, and that sum
        `[num_envs, *A]`; None without normalisation.
      env_steps: float32 `[]`, taken so far.
    """

    policy: PPOPolicy
    optimiser: optax.OptState
    carry: Carry
    rewards: parts.RewardScale | None
    env_steps: jax.Array


class Samples(NamedTuple):
    """What learning needs of a transition; leaves `[rows, ...]`, agents and all in one axis.

    `value` and `target` are `[rows]`, or `[rows, K]` for a mixture critic.
    """

    obs: Any
    raw_action: jax.Array
    mask: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array
    weight: jax.Array


def ppo(env: Environment, config: PPOConfig | None = None, network: Module | None = None) -> Algorithm:
    """PPO on an environment with discrete, several discrete, or continuous actions.

    Advantages are UGAE's, so `hparams.discount` may be any discount; with `critic="mixture"` it
    is one that is a mixture of exponentials, prepared (`Algorithm.prepare`) before it is traced
    unless `critic_heads` suffice for all of them. A time limit bootstraps from the value of the
    final observation unless `time_limits` says otherwise, a termination does not. Agents of a
    crowd share the network, and only transitions in which an agent was active are learned from.

    Args:
      env: static; its spaces describe one agent.
      config: static, `PPOConfig()` if None.
      network: a flax module that maps one observation to (outputs `[num_outputs]`, value `[]`),
        outputs being logits or the mean of a normal; `MLPActorCritic` if None. For a mixture
        critic it gives values `[critic_heads]`, in the units that `critics.mixture_critic` states.

    Raises:
      TypeError: an action space or a network that PPO cannot serve, a config that is no PPOConfig,
        or no environment.
      ContractError (a ValueError): an environment that breaks the laws of hashing, types or shapes.
      ValueError: minibatches that do not divide an iteration.

    Source: Schulman et al. (2017); advantages: Kwiatkowski et al. (2023), arXiv 2302.05740.
    """
    if config is not None and not isinstance(config, PPOConfig):
        raise TypeError(f"config must be a PPOConfig, such as PPOConfig(num_envs=8), got {type(config).__name__}")
    agents = check_abstractly(env)
    try:
        hash(network)
    except TypeError:
        raise TypeError("network must be hashable, which takes tuples in place of lists as its fields") from None
    return _build(env, PPOConfig() if config is None else config, network, agents)


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    env: Environment,
    config: PPOConfig,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    params = env.default_params
    head = action_head(env.action_space(params))
    critic = mixture_critic(config.critic_heads) if config.critic == "mixture" else single_critic()
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    obs_shape = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(agents) :], leaf.dtype), obs)
    own_network = network
    if network is None:
        network = _default_network(config, obs_shape, head.num_outputs, critic.num_values)
    check_network(network, obs_shape, head.num_outputs, critic.num_values)
    num_envs = config.num_envs if shards is None else shards.part_of(config.num_envs)
    num_rows = num_envs * config.num_steps * math.prod(agents)
    if num_rows % config.num_minibatches:
        raise ValueError(
            f"num_minibatches must divide the {num_rows} samples of an iteration "
            f"(num_envs * num_steps * agents{'' if shards is None else ' / devices'}), got {config.num_minibatches}"
        )
    steps_per_iteration = config.num_envs * config.num_steps
    batch_axes = 1 + len(agents)
    active = {  # the hyper-parameters that not every environment and configuration has
        "log_std_init": head.continuous,
        "observation_clip": config.normalise_observation,
        "reward_clip": config.normalise_reward,
    }
    apply = functools.partial(parts.apply_over, network)

    def prepare_hparams(hparams: PPOHParams) -> PPOHParams:
        batch_size = jnp.shape(hparams.lr)[0] if jnp.ndim(hparams.lr) else None
        discount = critic.prepare(hparams.discount, config.num_steps, batch_size)
        others = {
            name: effective(name, getattr(hparams, name), PPOHParams.__dataclass_fields__[name].default, on)
            for name, on in active.items()
        }
        return dataclasses.replace(hparams, discount=discount, **others)

    def see(policy: PPOPolicy, obs: Any) -> Any:
        if policy.observations is None or policy.observation_clip is None:
            return obs
        return normalise(policy.observations, obs, policy.observation_clip)

    def init(key: jax.Array, hparams: PPOHParams, env_params: Any) -> PPOState:
        hparams = prepare_hparams(hparams)
        network_key, reset_key = jax.random.split(unrolled(key))
        example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), obs_shape)
        policy = PPOPolicy(
            params=network.init(network_key, example),
            log_std=jnp.full(head.num_outputs, hparams.log_std_init, jnp.float32) if head.continuous else None,
            observations=init_statistics(obs_shape) if config.normalise_observation else None,
            observation_clip=jax.tree.map(jnp.float32, hparams.observation_clip),
        )
        rewards = parts.init_reward_scale((num_envs, *agents)) if config.normalise_reward else None
        weights: Any = (policy.params, policy.log_std)
        optimiser = _optimiser(hparams, hparams.lr).init(weights)
        carry = reset_all(env, reset_key, env_params, config.num_envs, shards)
        return PPOState(policy, optimiser, carry, rewards, jnp.zeros(()))

    def collect(key: jax.Array, state: PPOState, env_params: Any) -> tuple[Carry, Transition, jax.Array]:
        noise_key, env_key = jax.random.split(key)
        noise = own(head.noise(noise_key, (config.num_steps, config.num_envs, *agents)), shards, axis=1)

        def choose(obs: Any, mask: Any, noise: jax.Array) -> tuple[Any, Any]:
            outputs, _ = apply(state.policy.params, see(state.policy, obs), batch_axes)
            raw = head.sample(outputs, state.policy.log_std, mask, noise)
            return head.to_env(raw), raw

        return rollout(env, env_params, choose, env_key, state.carry, noise, config.reset_pool, shards)

    def samples_of(policy: PPOPolicy, steps: Transition, reward: jax.Array, hparams: PPOHParams) -> Samples:
        # Values and log-probabilities of the whole rollout in one batch, not step by step.
        obs, next_obs = see(policy, steps.obs), see(policy, steps.next_obs)
        outputs, value = apply(policy.params, obs, 1 + batch_axes)
        _, next_value = apply(policy.params, next_obs, 1 + batch_axes)
        outputs = jax.lax.optimization_barrier(outputs)  # joined with a softmax the network is slow on a CPU
        log_prob = head.log_prob(outputs, policy.log_std, steps.mask, steps.extras)
        done = parts.episode_ends(steps)
        ended = done if config.time_limits == "terminal" else steps.agent_terminated
        advantage, target = critic.estimate(hparams.discount, hparams.lam, reward, value, next_value, ended, done)
        weight = steps.active.astype(jnp.float32)
        if config.normalise_advantage == "batch":
            advantage = standardise(advantage, weight, shards)
        samples = Samples(obs, steps.extras, steps.mask, log_prob, value, advantage, target, weight)
        return jax.tree.map(lambda leaf: leaf.reshape(num_rows, *leaf.shape[1 + batch_axes :]), samples)

    def loss(weights: Any, rows: Samples, hparams: PPOHParams) -> tuple[jax.Array, Metrics]:
        params, log_std = weights
        outputs, value = apply(params, rows.obs, 1)
        advantage = rows.advantage
        if config.normalise_advantage == "minibatch":
            advantage = standardise(advantage, rows.weight, shards)
        log_ratio = head.log_prob(outputs, log_std, rows.mask, rows.raw_action) - rows.log_prob
        policy_loss = clipped_surrogate(log_ratio, advantage, rows.weight, hparams.clip_eps)
        value_loss = critic.loss(hparams.discount, value, rows.value, rows.target, rows.weight, hparams.value_clip)
        entropy = head.entropy(outputs, log_std, rows.mask)
        entropy = weighted_mean(jnp.broadcast_to(entropy, rows.weight.shape), rows.weight)
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
            metrics, gradient = averaged((metrics, gradient), rows.weight, shards)
            metrics["grad_norm"] = jnp.linalg.norm(ravel_pytree(gradient)[0])
            updates, optimiser = transformation.update(gradient, optimiser, weights)
            return (optax.apply_updates(weights, updates), optimiser), metrics

        def one_guarded_minibatch(carry: Any, rows: Samples) -> tuple[Any, tuple[Metrics, jax.Array]]:
            learner, before, stopped = carry
            learned, metrics = one_minibatch(learner, rows)
            halted = stopped | (metrics["approx_kl"] > hparams.target_kl)
            stay = _select(stopped, learner, before) if config.kl_stop == "rewind" else learner
            return (_select(halted, stay, learned), learner, halted), (metrics, stopped)

        def one_epoch(carry: Any, key: jax.Array) -> tuple[Any, tuple[Metrics, jax.Array]]:
            order = jax.random.permutation(own_key(key, shards), num_rows)
            shape = (config.num_minibatches, num_rows // config.num_minibatches)
            shuffled = jax.tree.map(lambda leaf: leaf[order].reshape(*shape, *leaf.shape[1:]), samples)
            if config.kl_stop != "epoch":
                return jax.lax.scan(one_guarded_minibatch, carry, shuffled)
            learner, _, stopped = carry
            learned, metrics = jax.lax.scan(one_minibatch, learner, shuffled)
            metrics = jax.tree.map(jnp.mean, metrics)
            over = stopped | (metrics["approx_kl"] > hparams.target_kl)
            return (_select(stopped, learner, learned), None, over), (metrics, stopped)

        learner = (weights, optimiser)
        start = (learner, None if config.kl_stop == "epoch" else learner, jnp.zeros((), bool))
        keys = jax.random.split(key, config.num_epochs)
        ((weights, optimiser), _, _), (metrics, stopped) = jax.lax.scan(one_epoch, start, keys)
        metrics, stopped = jax.tree.map(jnp.ravel, (metrics, stopped))
        metrics = parts.kept_means(metrics, ~stopped)  # what comes after the stop is computed, and discarded
        metrics["stopped_early"] = jnp.mean(stopped.astype(jnp.float32))
        return weights, optimiser, metrics

    def step(key: jax.Array, state: PPOState, hparams: PPOHParams, env_params: Any) -> tuple[PPOState, Metrics]:
        hparams = prepare_hparams(hparams)
        clip = jax.tree.map(jnp.float32, hparams.observation_clip)
        state = state._replace(policy=state.policy._replace(observation_clip=clip))
        collect_key, learn_key = jax.random.split(unrolled(key))
        carry, steps, reused = collect(collect_key, state, env_params)
        reward, rewards = steps.reward, state.rewards
        if rewards is not None:
            reward, rewards = parts.scale_rewards(rewards, steps, hparams.discount, hparams.reward_clip, shards)
        samples = samples_of(state.policy, steps, reward, hparams)
        lr = hparams.lr * parts.learning_rate_share(state.env_steps, hparams.lr_end, hparams.anneal_env_steps)
        entropy_coef = hparams.entropy_coef * 0.1 ** (state.env_steps / hparams.entropy_decay_env_steps)
        hparams = dataclasses.replace(hparams, entropy_coef=entropy_coef)
        (params, log_std), optimiser, metrics = learn(
            learn_key, (state.policy.params, state.policy.log_std), state.optimiser, samples, hparams, lr
        )
        observations = state.policy.observations
        if observations is not None:
            observations = update_statistics(observations, steps.obs, steps.active.astype(jnp.float32), shards)
        policy = state.policy._replace(params=params, log_std=log_std, observations=observations)
        value, target = (critic.whole(hparams.discount, values) for values in (samples.value, samples.target))
        metrics["explained_variance"] = explained_variance(value, target, samples.weight, shards)
        metrics["learning_rate"] = lr
        metrics["reset_reuse"] = summed(reused, shards).astype(jnp.float32)
        return PPOState(policy, optimiser, carry, rewards, state.env_steps + steps_per_iteration), metrics

    def act(key: jax.Array, policy: PPOPolicy, obs: Any, greedy: jax.Array | bool, mask: Any = None) -> Any:
        outputs, _ = apply(policy.params, see(policy, obs), len(agents))
        noise = head.noise(unrolled(key), agents)
        raw = jnp.where(greedy, head.mode(outputs, mask), head.sample(outputs, policy.log_std, mask, noise))
        return head.to_env(raw)

    def greedy(policy: PPOPolicy, obs: Any, mask: Any = None) -> tuple[Any, dict[str, jax.Array]]:
        outputs, _ = apply(policy.params, see(policy, obs), len(agents))
        return head.to_env(head.mode(outputs, mask)), {"mean" if head.continuous else "logits": outputs}

    def sharded(shards: EnvShards) -> Sharded:
        of_each_env: Any = (False, False, True, (False, True) if config.normalise_reward else None, False)
        return Sharded(_build(env, config, own_network, agents, shards), PPOState(*of_each_env))

    return Algorithm(
        name="ppo",
        env=env,
        config=config,
        hparams=PPOHParams(**{name: None for name, on in active.items() if not on}),
        init=init,
        step=step,
        policy=lambda state: state.policy,
        act=act,
        env_steps_per_iteration=steps_per_iteration,
        prepare=prepare_hparams,
        network=own_network,
        greedy=greedy,
        sharded=sharded,
    )


def _select(condition: jax.Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda mine, yours: jnp.where(condition, mine, yours), one, other)


def _default_network(config: PPOConfig, obs: Any, num_outputs: int, num_values: int | None) -> Module:
    """The network that a configuration names: one for relations where an observation has neighbours."""
    if not (isinstance(obs, dict) and {"neighbours", "neighbours_present"} <= set(obs)):
        for name in ("own_hidden", "neighbour_hidden", "pooling", "own_scale", "neighbour_scale"):
            if getattr(config, name) != getattr(PPOConfig, name):
                raise ValueError(
                    f"{name} has no effect on observations without 'neighbours' and 'neighbours_present', "
                    f"got {getattr(config, name)!r}; leave it out"
                )
        return MLPActorCritic(num_outputs, config.hidden, config.activation, config.shared_trunk, num_values)
    if config.shared_trunk:
        raise ValueError("shared_trunk has no effect on observations with 'neighbours'; leave it out")
    if config.normalise_observation:
        raise ValueError(
            "normalise_observation would scale every slot of 'neighbours' by itself; "
            "use own_scale and neighbour_scale in its place"
        )
    return RelationActorCritic(
        num_outputs,
        config.own_hidden,
        config.neighbour_hidden,
        config.hidden,
        config.pooling,
        config.own_scale,
        config.neighbour_scale,
        config.activation,
        num_values,
    )


def _optimiser(hparams: PPOHParams, lr: Any) -> optax.GradientTransformation:
    # One long vector in place of many small arrays: a third of the operations of a minibatch on a CPU.
    return optax.flatten(
        optax.chain(
            optax.clip_by_global_norm(hparams.max_grad_norm),
            optax.scale_by_adam(hparams.adam_b1, hparams.adam_b2, hparams.adam_eps),
            optax.scale_by_learning_rate(lr),
        )
    )
