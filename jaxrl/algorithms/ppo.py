"""Proximal policy optimisation under any discount."""

import dataclasses
import functools
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from envs.errors import UserValueError
from envs.loops import scan
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, checked_config, with_hints
from jaxrl.algorithms.on_policy import agents_of, on_policy
from jaxrl.algorithms.on_policy_config import INFINITE, OnPolicyHParams
from jaxrl.algorithms.on_policy_state import Learner, OnPolicyState, Samples
from jaxrl.algorithms.policy_gradient import EpochsConfig, acting, advantages, common_space, total_loss
from jaxrl.checks import Range, check_choice, check_count
from jaxrl.learning.beliefs import BELIEF, belief_about, constant_belief
from jaxrl.learning.composites import Curve
from jaxrl.learning.drift import Drift, drift_correction
from jaxrl.learning.losses import approximate_kl, clipped_surrogate, kept_means, share_without_effect, weighted_mean
from jaxrl.learning.minibatches import over_epochs
from jaxrl.learning.networks import Module
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import EnvParams, Params, PyTree
from jaxrl.sweeps.distributions import SearchSpace, Uniform

BELIEFS = ("none", "conditioned", "staged", "auxiliary", "random")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(EpochsConfig):
    """Static configuration of PPO: changing a field recompiles.

    Attributes:
      kl_stop: Point at which `target_kl` stops the learning of an iteration: "epoch", after an epoch whose mean
        divergence exceeds it; "minibatch", before the gradient step of a minibatch whose divergence exceeds it; or
        "rewind", at the same point, undoing the previous step as well.
      belief: Use of a belief about the behaviour of the environment, such as a partner's, which a layer infers from
        `memory`: "none"; "conditioned", trained on the true behaviour, with its mean and uncertainty as inputs of actor
        and critic; "staged", the same, but memory and belief are trained first, with the initial actor, and are
        constant afterwards; "auxiliary", trained but not an input; or "random", an input but never trained.
      drift: Penalty of the objective (drift) that keeps the probability ratio near 1: "clip", that of PPO's clipping,
        or "learned", the output of a small network of ratio and advantage, whose weights are the hyper-parameter
        `drift`, see `jaxrl.learning.drift`.
      drift_width: Number of hidden units of a learned drift.
    """

    kl_stop: Literal["epoch", "minibatch", "rewind"] = "epoch"
    belief: Literal["none", "conditioned", "staged", "auxiliary", "random"] = "none"
    drift: Literal["clip", "learned"] = "clip"
    drift_width: int = 8

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_choice("kl_stop", self.kl_stop, ("epoch", "minibatch", "rewind"))
        check_choice("belief", self.belief, BELIEFS)
        if self.belief != "none" and self.memory == "none":
            raise UserValueError(
                f"belief={self.belief!r} takes a memory, which infers the behaviour, got memory='none'"
            )
        check_choice("drift", self.drift, ("clip", "learned"))
        check_count("drift_width", self.drift_width)
        self._refuse_without_effect("drift_width", "drift='clip'", self.drift == "learned")

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | {
            "belief_coef": self.belief in ("conditioned", "auxiliary"),
            "belief_env_steps": self.belief == "staged",
        }


@struct.dataclass
class PPOHParams(OnPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      clip_eps: Half width of the interval around 1 to which the probability ratio is clipped.
      clip_eps_end: Final half width as a fraction of `clip_eps`, reached linearly over `anneal_env_steps`; 1 keeps it
        constant.
      value_clip: Largest change of a value in one iteration; infinity disables clipping.
      target_kl: KL divergence beyond which an iteration stops learning, see `PPOConfig.kl_stop`;
        infinity disables it.
      belief_coef: Weight of the negative log-likelihood of the behaviour; None if untrained or staged.
      belief_env_steps: Number of environment steps in which a staged belief is trained; None for other beliefs.
      drift: Weights of a learned drift, a `jaxrl.learning.drift.Drift`; None for the weights with which it equals PPO's
        clipping, and for drifts that are not learned.

    `clip_eps` also takes a `jaxrl.Curve`.
    """

    clip_eps: Any = 0.2
    clip_eps_end: Any = 1.0
    value_clip: Any = INFINITE
    target_kl: Any = INFINITE
    belief_coef: Any = 0.03
    belief_env_steps: Any = 100_000.0
    drift: Any = None

    schedules = OnPolicyHParams.schedules | {"clip_eps_end": ("clip_eps",)}
    ranges = OnPolicyHParams.ranges | {
        **dict.fromkeys(("clip_eps", "clip_eps_end"), Range(0, INFINITE, "[)")),
        "belief_coef": Range(0, INFINITE, "[)"),
        "belief_env_steps": Range(0, INFINITE, "[)"),
        **dict.fromkeys(("value_clip", "target_kl"), Range(0, INFINITE)),
    }

    composites = OnPolicyHParams.composites | {"clip_eps": Curve, "drift": Drift}

    def at(self, env_steps: jax.Array) -> Self:
        """Values after `env_steps` environment steps; `belief_env_steps` is the rest, negative in the second stage."""
        values = super().at(env_steps)
        if self.belief_env_steps is None:
            return values
        return dataclasses.replace(values, belief_env_steps=self.belief_env_steps - env_steps)


@with_hints
def ppo(env: Environment, config: PPOConfig | None = None, network: Module | None = None) -> Algorithm:
    """Proximal policy optimisation (PPO) on an environment.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`; None for the one that the configuration names.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; raised before anything is compiled.

    Source: Schulman et al. (2017); advantages: Kwiatkowski et al. (2023), arXiv 2302.05740.
    """
    config = checked_config(config, PPOConfig)
    return _build(env, config, network, agents_of(env, network))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of PPO."""
    return common_space(algo, {"clip_eps": Uniform(0.1, 0.4)})


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    env: Environment,
    config: PPOConfig,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    belief, staged = None if config.belief == "none" else belief_about(env, agents), config.belief == "staged"
    agent = on_policy(env, config, network, agents, shards, belief)
    agent.check_minibatches(config.num_minibatches)
    width = config.drift_width if config.drift == "learned" else None

    def prepare(hparams: PPOHParams, num_settings: int | None = None, run_length: int | None = None) -> PPOHParams:
        drift = Drift.effective(hparams.drift, width, "PPOConfig(drift='clip')", num_settings)
        return agent.prepare(dataclasses.replace(hparams, drift=drift), num_settings, run_length)

    def loss(weights: Params, rows: Samples, hparams: PPOHParams) -> tuple[jax.Array, Metrics]:
        if staged:
            weights = constant_belief(weights, hparams.belief_env_steps <= 0)
        now = acting(agent, weights, rows)
        advantage = advantages(agent, rows, "minibatch")
        log_ratio = now.log_prob - rows.log_prob
        policy_loss = clipped_surrogate(log_ratio, advantage, rows.weight, hparams.clip_eps)
        if width is not None:
            policy_loss += drift_correction(hparams.drift, log_ratio, advantage, rows.weight, hparams.clip_eps)
        total, metrics = total_loss(agent, now, rows, policy_loss, hparams, hparams.value_clip)
        outside = jnp.abs(jnp.expm1(log_ratio)) > hparams.clip_eps
        if belief is not None and config.belief != "random":
            error = -belief.log_prob(now.scores[BELIEF], rows.behaviour)
            metrics["belief_loss"] = weighted_mean(error, rows.weight)
            if staged:
                total = jnp.where(hparams.belief_env_steps > 0, metrics["belief_loss"], total)
            else:
                total += hparams.belief_coef * metrics["belief_loss"]
        return total, metrics | {
            "approx_kl": approximate_kl(log_ratio, rows.weight),
            "clip_fraction": weighted_mean(outside.astype(jnp.float32), rows.weight),
        }

    def learn(key: jax.Array, learner: Learner, samples: Samples, hparams: PPOHParams) -> tuple[Learner, Metrics]:
        samples = samples._replace(advantage=advantages(agent, samples, "batch"))
        if staged:  # a new optimiser for the second stage: the old one would still move the belief
            begins = (hparams.belief_env_steps <= 0) & (hparams.belief_env_steps > -config.num_envs * config.num_steps)
            if config.optimiser is None:  # Adam begins with zeros
                new = jax.tree.map(jnp.zeros_like, learner.optimiser)
            else:
                new = agent.transformation(hparams).init(learner.weights)
            learner = learner._replace(optimiser=_select(begins, new, learner.optimiser))
        one_minibatch = agent.descent(loss, hparams)

        def one_guarded_minibatch(carry: PyTree, rows: Samples) -> tuple[Any, tuple[Metrics, jax.Array, jax.Array]]:
            learner, before, stopped = carry
            learned, metrics = one_minibatch(learner, rows)
            halted = stopped | (metrics["approx_kl"] > hparams.target_kl)
            stay = _select(stopped, learner, before) if config.kl_stop == "rewind" else learner
            return (_select(halted, stay, learned), learner, halted), (metrics, stopped, halted)

        def one_epoch(carry: PyTree, minibatches: Samples) -> tuple[Any, tuple[Metrics, jax.Array, jax.Array]]:
            if config.kl_stop != "epoch":
                return scan(one_guarded_minibatch, carry, minibatches, steps_of_turn=1)
            learner, _, stopped = carry
            learned, metrics = scan(one_minibatch, learner, minibatches, steps_of_turn=1)
            metrics = jax.tree.map(jnp.mean, metrics)
            over = stopped | (metrics["approx_kl"] > hparams.target_kl)
            return (_select(stopped, learner, learned), None, over), (metrics, stopped, stopped)

        start = (learner, None if config.kl_stop == "epoch" else learner, jnp.zeros((), bool))
        (learner, _, _), results = over_epochs(
            key,
            config.num_epochs,
            lambda key: agent.minibatches(key, samples, config.num_minibatches),
            one_epoch,
            start,
            agent.shards,
        )
        metrics, stopped, prevented = jax.tree.map(jnp.ravel, results)
        metrics = kept_means(metrics, ~stopped)  # updates after the stop are computed and discarded
        metrics["stopped_early"] = share_without_effect(prevented, config.kl_stop == "rewind")
        return learner, metrics

    def step(
        key: jax.Array, iteration: jax.Array, state: OnPolicyState, hparams: PPOHParams, env_params: EnvParams
    ) -> tuple[OnPolicyState, Metrics]:
        hparams = agent.current(iteration, prepare(hparams))
        policy = agent.policy(state, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        rolled_out = agent.collect(collect_key, policy, state, hparams, env_params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        hparams = agent.scheduled(iteration, hparams)
        learner = Learner(state.weights, state.optimiser)
        learner, metrics = learn(learn_key, learner, evaluation.samples, hparams)
        return agent.finish(state, learner, rolled_out, evaluation, metrics, hparams)

    def part(shards: EnvShards) -> Algorithm:
        return _build(env, config, network, agents, shards)

    defaults = PPOHParams if width is None else functools.partial(PPOHParams, drift=Drift.initial(width))
    algo = agent.algorithm(f"{__name__}:ppo", defaults, agent.init, step, part, network)
    return algo._replace(prepare=prepare)


def _select(condition: jax.Array, one: PyTree, other: PyTree) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), one, other)
