"""Evolution strategies on any policy network, with returns under any discount as fitness."""

import dataclasses
import functools
import math
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from envs.checking import check_abstractly
from envs.errors import UserTypeError
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, assembled, checked_config, checked_network, with_hints
from jaxrl.algorithms.rollout_config import DiscountedHParams, check_normalised, prepared
from jaxrl.algorithms.strategies import Strategy, make_strategy
from jaxrl.checks import Range, check_count
from jaxrl.discounts.parsing import Exponential
from jaxrl.discounts.parsing import prepare as prepare_discount
from jaxrl.learning.action_heads import Scores, action_head
from jaxrl.learning.actor import Memory, head_actor, recurrent_actor
from jaxrl.learning.asymmetric import seen_by
from jaxrl.learning.episodes import Episodes, population_episodes
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.networks import Module, apply_over, check_network, leading_axes, observation_shapes, zeros
from jaxrl.learning.normalisation import RunningStatistics, init_statistics, normalise
from jaxrl.learning.optimisers import Optimiser, check_optimiser, check_transformation
from jaxrl.learning.output_networks import OutputNetwork, PolicyHead
from jaxrl.learning.recurrent import RecurrentActorCritic, check_recurrent, is_recurrent, step_over
from jaxrl.learning.rollout import longest_episode
from jaxrl.pytrees import EnvParams, HParams, Mask, Number, Observation, Params, Policy, PyTree
from jaxrl.sweeps.distributions import Choice, LogUniform, SearchSpace


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvolveConfig(NetworkConfig):
    """Static configuration of an evolution strategy: changing a field recompiles.

    Attributes:
      strategy: Name of a strategy of evosax, such as "open-es", "pgpe", "snes", "cma-es" or "simple-ga"; all names:
        `jaxrl.algorithms.strategies.strategy_names()`.
      population_size: Number of policies of a generation.
      num_episodes: Number of episodes of each policy in a generation.
      common_random_numbers: Whether all policies of a generation have the same first states and random numbers.
      normalise_observation: Whether observations are normalised by their running statistics over the population.
      optimiser: Optimiser of a strategy with one, in place of its own: a function of the step size that returns an
        optax.GradientTransformation, such as `optax.adamw`, or its path, such as "optax:adamw"; None for Adam, and for
        the steps of a natural gradient.

    The other fields are those of `NetworkConfig`. There is no critic, so `memory_hidden` contains only layers of the
    actor.
    """

    strategy: str = "open-es"
    population_size: int = 128
    num_episodes: int = 1
    common_random_numbers: bool = False
    normalise_observation: bool = False
    optimiser: Optimiser = None
    hidden: tuple[int, ...] = (32,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.strategy, str):
            raise UserTypeError(f"strategy takes the name of a strategy, such as 'open-es', got {self.strategy!r}")
        check_count("population_size", self.population_size, 2)
        check_count("num_episodes", self.num_episodes)
        check_optimiser(self.optimiser)


@struct.dataclass
class EvolveHParams(DiscountedHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Step size of the strategy's optimiser, Adam by default; for "snes", "xnes", "simple-es" and "discovered-es",
        the factor of the natural gradient, usually 1.
      std: Standard deviation of each parameter in a population; the initial one if the strategy adapts it.
      std_decay: Factor of `std` after each generation, for strategies that do not adapt it.
      discount: Discount of the returns: a number (exponential), a string such as "hyperbolic:k=0.02", or a Discount.
      observation_clip: Bound of normalised observations.
      gamma: Not a field; use `discount`.

    Fields without effect in a configuration are None in `Algorithm.hparams`.
    """

    lr: Any = 0.03
    std: Any = 0.1
    std_decay: Any = 1.0
    discount: Any = Exponential(1.0)
    observation_clip: Any = 10.0
    gamma: dataclasses.InitVar[None] = None

    ranges = MappingProxyType(
        {
            "lr": Range(0, math.inf, "[)"),
            "std": Range(0, math.inf, "()"),
            "std_decay": Range(0, 1),
            "observation_clip": Range(0, math.inf),
        }
    )


class EvolvedPolicy(NamedTuple):
    """Parameters of a policy that acts greedily.

    Attributes:
      params: Parameters of the network.
      observations: Running statistics of observations, None without normalisation.
      observation_clip: Bound of normalised observations, float32 `[]`, None without normalisation.
    """

    params: Any
    observations: RunningStatistics | None
    observation_clip: jax.Array | None

    def normalised(self, obs: Observation) -> Any:
        """Observations in the form that the network takes."""
        return normalise(self.observations, obs, self.observation_clip)


class EvolveState(NamedTuple):
    """State of one run between generations.

    Attributes:
      strategy: State of the strategy.
      observations: Running statistics of observations, None without normalisation.
    """

    strategy: Any
    observations: RunningStatistics | None


@with_hints
def evolve(env: Environment, config: EvolveConfig | None = None, network: Module | None = None) -> Algorithm:
    """Evolution of a policy's parameters, without policy gradients.

    A generation of policies acts greedily for whole episodes, and the strategy maximises their returns under any
    discount. Environment steps are counted up to the time limit, even if episodes end earlier.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the policy; its return is the mean over agents.
      config: Configuration.
      network: Custom flax module, as for `ppo`; the values that it returns are ignored.

    Raises:
      ContractError: The environment breaks a law.
      MissingPackageError: evosax is not installed.
      TypeError, ValueError: A field does not fit the environment or the strategy; raised before anything is compiled.

    Source: Salimans et al. (2017), "Evolution strategies as a scalable alternative to reinforcement learning", for
    "open-es"; the strategies are those of evosax, Lange (2022).
    """
    return _build(env, checked_config(config, EvolveConfig), checked_network(network), check_abstractly(env))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of `evolve`."""
    space: SearchSpace = {}
    if algo.hparams.lr is not None:
        space["lr"] = LogUniform(algo.hparams.lr / 10, algo.hparams.lr * 10)
    if algo.hparams.std is not None:
        space["std"] = LogUniform(0.01, 1.0)
    return space | {"config.hidden": Choice([(), (16,), (32,), (32, 32)])}


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: EvolveConfig, own_network: Module | None, agents: tuple[int, ...]) -> Algorithm:
    env, _ = seen_by(env, config.actor_sees)
    head = action_head(env.action_space(env.default_params))
    obs_shape = observation_shapes(env, agents)
    check_normalised(config.normalise_observation and own_network is None, obs_shape)
    network = _network(config, own_network, obs_shape, head.num_outputs)
    remembers = is_recurrent(network)
    example = zeros(obs_shape)

    def first_memory(policy: Policy = None) -> Memory:
        del policy
        return jax.tree.map(jnp.asarray, network.initial_memory()) if remembers else ()

    def first_params(key: jax.Array) -> Any:
        return network.init(key, example, *([first_memory()] if remembers else []))

    check_transformation(config.optimiser)
    shapes = jax.eval_shape(first_params, jax.random.key(0))
    strategy = make_strategy(config.strategy, config.population_size, shapes, config.optimiser)
    # The normal distribution of a continuous action head has no width: actions are the outputs.
    log_std = jnp.full(head.num_outputs, -jnp.inf) if head.continuous else None

    def scores(policy: EvolvedPolicy, obs: Observation, mask: Mask) -> Scores:
        del mask
        outputs, _ = apply_over(network, policy.params, policy.normalised(obs), leading_axes(obs, obs_shape))
        return head.scores(outputs, log_std)

    def scores_and_memory(policy: EvolvedPolicy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        del mask
        outputs, _, memory = step_over(
            network, policy.params, policy.normalised(obs), memory, leading_axes(obs, obs_shape)
        )
        return head.scores(outputs, log_std), memory

    actor = recurrent_actor(first_memory, scores_and_memory, head) if remembers else head_actor(scores, head)
    if head.continuous:
        actor = actor._replace(log_prob=None)  # without a width, there is no density
    effects, defaults = _effects(strategy, config), {"lr": 1.0} if strategy.natural else {}
    episode_length = longest_episode(env)

    def prepare(hparams: HParams, num_settings: int | None = None, run_length: int | None = None) -> HParams:
        discount = prepare_discount(hparams.discount, episode_length, num_settings, episode_length)
        return prepared(hparams, effects, discount, num_settings, run_length, defaults)

    def hparams_of(**fields: Any) -> EvolveHParams:
        return EvolveHParams(**{**defaults, **fields})

    def policy_from(params: Params, observations: RunningStatistics | None, hparams: HParams) -> EvolvedPolicy:
        clip = jnp.float32(hparams.observation_clip) if config.normalise_observation else None
        return EvolvedPolicy(params, observations, clip)

    def returns_of(
        key: jax.Array,
        population: PyTree,
        observations: RunningStatistics | None,
        hparams: EvolveHParams,
        env_params: EnvParams,
    ) -> Episodes:
        size = config.population_size
        keys = jax.random.split(key, (1 if config.common_random_numbers else size, config.num_episodes))
        keys = jnp.broadcast_to(keys, (size, config.num_episodes))
        policies = policy_from(population, observations, hparams)
        shared = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))), policies._replace(params=())
        )
        next_weight = hparams.discount.next_weight
        policies = shared._replace(params=population)
        return population_episodes(env, env_params, actor, policies, keys, next_weight, observations)

    def init(key: jax.Array, hparams: EvolveHParams, env_params: EnvParams) -> EvolveState:
        hparams = prepare(hparams)
        params_key, population_key, episodes_key, strategy_key = jax.random.split(key, 4)
        first = first_params(params_key)
        observations = init_statistics(obs_shape) if config.normalise_observation else None
        population, returns = None, None
        if strategy.evaluates_first:
            keys = jax.random.split(population_key, config.population_size)
            std = 0.1 if hparams.std is None else hparams.std
            population = jax.vmap(lambda key: _around(key, first, std))(keys)
            episodes = returns_of(episodes_key, population, observations, hparams, env_params)
            returns, observations = episodes.returns, episodes.observations
        return EvolveState(strategy.init(strategy_key, first, population, returns, hparams), observations)

    def step(
        key: jax.Array, iteration: jax.Array, state: EvolveState, hparams: EvolveHParams, env_params: EnvParams
    ) -> tuple[EvolveState, Metrics]:
        del iteration
        hparams = prepare(hparams)
        ask_key, episodes_key, tell_key = jax.random.split(key, 3)
        population, asked = strategy.ask(ask_key, state.strategy, hparams)
        episodes = returns_of(episodes_key, population, state.observations, hparams, env_params)
        updated = strategy.tell(tell_key, population, episodes.returns, asked, hparams)
        metrics = {
            "population_return": jnp.mean(episodes.returns),
            "population_return_max": jnp.max(episodes.returns),
            "population_return_std": jnp.std(episodes.returns),
            "population_length": episodes.length,
        }
        return EvolveState(updated, episodes.observations), metrics

    def policy(state: EvolveState, hparams: HParams) -> EvolvedPolicy:
        return policy_from(strategy.solution(state.strategy), state.observations, hparams)

    def warm_start(state: EvolveState, policy: EvolvedPolicy) -> EvolveState:
        return EvolveState(strategy.moved(state.strategy, policy.params), policy.observations)

    return assembled(
        f"{__name__}:evolve",
        env,
        config,
        hparams_of,
        effects,
        init=init,
        step=step,
        policy=policy,
        actor=actor,
        env_steps_per_iteration=config.population_size * config.num_episodes * episode_length,
        prepare=prepare,
        network=own_network,
        warm_start=warm_start,
    )


def _effects(strategy: Strategy, config: EvolveConfig) -> dict[str, bool]:
    """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
    return {
        "lr": strategy.has_lr,
        "std": strategy.has_std or strategy.evaluates_first,
        "std_decay": strategy.has_decay,
        "observation_clip": config.normalise_observation,
    }


def _network(config: EvolveConfig, own: Module | None, obs: Observation, num_outputs: int) -> Any:
    """Network of a configuration without a critic, or the custom one.

    Raises:
      TypeError, ValueError: The network does not fit the observations or the action space.
    """
    if own is not None:
        config.check_own_network()
        (check_recurrent if is_recurrent(own) else check_network)(own, obs, num_outputs)
        config.report_unused()
        return own
    encoder = config.encoder(obs)
    if config.memory == "none":
        return OutputNetwork(encoder, num_outputs, 0.01, with_value=True)
    head = PolicyHead(num_outputs, config.memory_hidden, config.activation)
    return RecurrentActorCritic(encoder, config.memory_cell(), head)


def _around(key: jax.Array, params: Params, std: Number) -> Any:
    """Parameters with normal noise."""
    leaves, treedef = jax.tree.flatten(params)
    keys = jax.random.split(unrolled(key), len(leaves))
    noisy = [leaf + std * jax.random.normal(one, leaf.shape) for one, leaf in zip(keys, leaves, strict=True)]
    return treedef.unflatten(noisy)
