"""On-policy algorithms whose step learns nothing and returns the samples from which it would learn."""

from collections.abc import Callable
from typing import Any

import jax

import jaxrl
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.on_policy import OnPolicy, agents_of, on_policy
from jaxrl.algorithms.on_policy_state import Learner, Samples

# `(agent, key, weights, samples, hparams) -> metrics`, pytrees of any shapes.
Show = Callable[[OnPolicy, jax.Array, Any, Samples, Any], dict[str, Any]]


def observed(show: Show, env: Any, config: Any, network: Any = None, shards: Any = None) -> Algorithm:
    """Algorithm with the rollouts, the evaluation and the statistics of PPO, whose weights stay as they are.

    Args:
      show: Function of the samples of an iteration; its values join the metrics.
      env: Environment.
      config: Configuration, an `OnPolicyConfig`.
      network: Custom network, None for one that the configuration names.
      shards: Shards of the environments, if any.
    """
    agent = on_policy(env, config, network, agents_of(env, network), shards)

    def step(key: jax.Array, iteration: jax.Array, state: Any, hparams: Any, env_params: Any) -> tuple[Any, Any]:
        hparams = agent.prepare(hparams)
        policy = agent.policy(state, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        rolled_out = agent.collect(collect_key, policy, state, hparams, env_params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        hparams = agent.scheduled(iteration, hparams)
        metrics = show(agent, learn_key, state.weights, evaluation.samples, hparams)
        learner = Learner(state.weights, state.optimiser)
        return agent.finish(state, learner, rolled_out, evaluation, metrics, hparams)

    def part(shards: Any) -> Algorithm:
        return observed(show, env, config, network, shards)

    return agent.algorithm("tests:ppo", jaxrl.PPOHParams, agent.init, step, part, network)
