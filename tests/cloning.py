"""A second algorithm, which collects once, before learning, has no discount, and acts like PPO."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

import jaxrl
from envs.base import Environment
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.on_policy_state import OnPolicyPolicy
from jaxrl.checks import check_count
from jaxrl.learning.rollout import step_once

PER_ITERATION = 10
LATE = 3  # the first step of the late rate, counted from 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CloningConfig:
    """Static configuration of cloning.

    Attributes:
      prefill: Number of environment steps that are collected before the first iteration.
      batch: Number of samples of one iteration.
      hidden: Sizes of the hidden layers of PPO's network.
    """

    prefill: int = 64
    batch: int = 16
    hidden: tuple[int, ...] = (8,)

    def __post_init__(self) -> None:
        for name in ("prefill", "batch"):
            check_count(name, getattr(self, name))


@struct.dataclass
class CloningHParams:
    """Hyper-parameters, which may be swept without recompiling.

    Attributes:
      lr: Step size of the first 3 iterations.
      late_lr: Step size from the fourth one on.
    """

    lr: Any = 0.1
    late_lr: Any = 0.05


class CloningState(NamedTuple):
    """State of one run.

    Attributes:
      weights: Parameters of the network, and log standard deviations or None.
      obs: Observations of the prefill, `[prefill, ...]`.
      action: Action of the expert there, int32 `[prefill]`.
    """

    weights: tuple[Any, Any]
    obs: jax.Array
    action: jax.Array


def expert(obs: jax.Array) -> jax.Array:
    """The action of the expert for a pole on a cart: follow the side to which it falls."""
    return (obs[..., 2] + obs[..., 3] > 0).astype(jnp.int32)


def _policy(weights: tuple[Any, Any]) -> OnPolicyPolicy:
    """The policy of PPO's actor, without normalisation."""
    params, log_std = weights
    return OnPolicyPolicy(params, log_std, None, None)


def cloning(env: Environment, config: CloningConfig | None = None) -> Algorithm:
    """Imitation of an expert from steps that are collected at the start.

    Args:
      env: Environment with two discrete actions.
      config: Configuration; the defaults if None.
    """
    config = CloningConfig() if config is None else config
    base = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=1, num_steps=4, num_minibatches=1, hidden=config.hidden))

    def init(key: jax.Array, hparams: CloningHParams, env_params: Any) -> CloningState:
        network_key, reset_key, prefill_key = jax.random.split(key, 3)

        def one_step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            obs, state = carry
            action_key, step_key, begin_key = jax.random.split(key, 3)
            action = jax.random.randint(action_key, (), 0, 2)
            after, state, _, terminated, truncated, _ = step_once(env, step_key, state, action, env_params)
            fresh = env.reset_env(begin_key, env_params)
            over = terminated | truncated
            return jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, (after, state)), obs

        first, keys = env.reset_env(reset_key, env_params), jax.random.split(prefill_key, config.prefill)
        _, seen = jax.lax.scan(one_step, first, keys)
        weights = base.init(network_key, base.hparams, env_params).weights
        return CloningState(weights, seen, expert(seen))

    def step(
        key: jax.Array, iteration: jax.Array, state: CloningState, hparams: CloningHParams, env_params: Any
    ) -> Any:
        del env_params
        rows = jax.random.randint(key, (config.batch,), 0, config.prefill)
        obs, action = state.obs[rows], state.action[rows]

        def loss(weights: Any) -> jax.Array:
            scores, _ = base.actor.scores(_policy(weights), (), obs, None)
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores["logits"], action))

        value, gradient = jax.value_and_grad(loss)(state.weights)
        lr = jnp.where(iteration < LATE, hparams.lr, hparams.late_lr)
        weights = jax.tree.map(lambda weight, slope: weight - lr * slope, state.weights, gradient)
        count = iteration.astype(jnp.float32)
        metrics = {"loss": value, "newest": count, "total": count, "average": count}
        return state._replace(weights=weights), metrics

    return Algorithm(
        name="cloning",
        env=env,
        config=config,
        hparams=CloningHParams(),
        init=init,
        step=step,
        policy=lambda state, hparams: _policy(state.weights),
        actor=base.actor,
        env_steps_per_iteration=PER_ITERATION,
        metric_rules={"newest": "last", "total": "sum"},
        builder=f"{__name__}:cloning",
    )
