"""PPO with a memory: samples for learning equal those of acting, also across the ends of episodes."""

import dataclasses
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from observed_learning import observed
from quick_jit import quick_jit
from remembering import Repeat

import envs
import jaxrl
from jaxrl.algorithms.on_policy import OnPolicy
from jaxrl.algorithms.on_policy_state import Samples, Start
from jaxrl.learning.cells import CELLS
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.rollout import Transition, episode_ends, rollout
from jaxrl.learning.shards import EnvShards

KINDS = tuple(CELLS)
# 12 steps of episodes of 5: two or three ends in each environment, and episodes that continue in the next rollout.
TINY = jaxrl.PPOConfig(
    num_envs=4, num_steps=12, num_epochs=1, num_minibatches=2, hidden=(6,), memory_size=5, memory="gru", reset_pool=4
)
OWN: dict[str, Any] = {"gtrxl": {"memory_window": 4, "memory_heads": 5}}  # fields of one memory
EPS = float(np.finfo(np.float32).eps)
# Tolerance for a step of these networks: sums of 4, 6 and 5 products of about 1, and a function. A memory keeps the
# errors of the up to 5 steps of its episode.
STEP_ROUNDING = 16 * EPS
ROUNDING = 5 * STEP_ROUNDING
LAM = 0.0  # so that a target is r + Gamma(1) V(next)


def shown(agent: OnPolicy, key: jax.Array, weights: Any, samples: Samples, hparams: Any) -> dict[str, Any]:
    """Samples, their first minibatch, and the probability ratios and values of the current weights on it."""
    params, log_std = weights
    batch = jax.tree.map(lambda leaf: leaf[0], agent.minibatches(key, samples, 2))
    outputs, value = agent.forward(params, batch)
    log_prob = agent.head.log_prob(agent.head.scores(outputs, log_std), batch.mask, batch.raw_action)
    ratio = jnp.exp(log_prob - batch.log_prob)
    return {"samples": samples, "batch": batch, "ratio": ratio, "value": value, "lam": hparams.lam}


def shaken(state: Any, key: jax.Array) -> Any:
    """The state with weights so large that the memory affects actions and values."""
    leaves, structure = jax.tree.flatten(state.weights[0])
    keys = jax.random.split(key, len(leaves))
    moved = [leaf + 0.4 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return state._replace(weights=(structure.unflatten(moved), state.weights[1]))


def second_iteration(env: Any, config: Any, key: jax.Array, network: Any = None) -> tuple[Any, ...]:
    """An algorithm, its state before its second iteration, the steps of that iteration, and the samples from them."""
    algo = observed(shown, env, config, network)
    hparams = algo.prepare(algo.hparams.replace(lam=LAM, discount=0.9))
    params = env.default_params

    @quick_jit
    def run(key: jax.Array) -> Any:
        state = shaken(algo.init(key, hparams, params), key)
        state = algo.step(key, jnp.int32(0), state, hparams, params)[0]
        second = jax.random.fold_in(key, 1)
        metrics = algo.step(second, jnp.int32(1), state, hparams, params)[1]
        policy = algo.policy(state, hparams)
        # The steps of the iteration, computed again.
        noise_key, env_key = jax.random.split(jax.random.split(second)[0])
        samples: Any = metrics["samples"]
        agents = samples.weight.shape[2:]
        noise = algo.actor.noise(noise_key, (config.num_steps, config.num_envs, *agents))
        _, steps, _ = rollout(env, params, algo.actor, policy, env_key, state.carry, noise, config.reset_pool)
        return state, policy, steps, metrics

    return algo, *run(key)


def replayed(algo: Any, policy: Any, memory: Any, steps: Transition, network: Any) -> tuple[np.ndarray, ...]:
    """Each agent alone, step by step: log-probabilities, and values of next observations before a reset."""
    head_scores, apply = quick_jit(algo.actor.scores), quick_jit(network.apply)
    done, start = np.asarray(episode_ends(steps)), algo.actor.initial_memory(policy)
    shape = done.shape
    log_prob, next_value, forgotten = (np.zeros(shape) for _ in range(3))
    for agent in np.ndindex(shape[1:]):
        own = jax.tree.map(lambda leaf: leaf[agent], memory)  # noqa: B023
        for t in range(shape[0]):
            at = (t, *agent)
            obs, next_obs = (jax.tree.map(lambda leaf: leaf[at], part) for part in (steps.obs, steps.next_obs))  # noqa: B023
            scores, own = head_scores(policy, own, obs, None)
            logits = np.asarray(scores["logits"], np.float64)
            log_prob[at] = logits[int(steps.raw_action[at])] - np.log(np.sum(np.exp(logits)))
            next_value[at] = apply(policy.params, next_obs, own)[1]
            forgotten[at] = apply(policy.params, next_obs, start)[1]
            own = start if done[at] else own
    return log_prob, next_value, forgotten


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.fast_rows("gru")
def test_samples_match_a_replay_and_limits_bootstrap_from_the_memory_before_a_reset(key: jax.Array, kind: Any) -> None:
    env, config = Repeat("truncated"), dataclasses.replace(TINY, memory=kind, **OWN.get(kind, {}))
    algo, state, policy, steps, metrics = second_iteration(env, config, key)
    network = config.actor_critic(jax.ShapeDtypeStruct((4,), jnp.float32), 4, None)
    samples = metrics["samples"]
    assert np.any(steps.truncated) and not np.any(steps.terminated)
    assert np.any(np.asarray(jax.tree.leaves(state.carry.memory)[0]) != 0)  # the rollout continues an episode
    log_prob, next_value, forgotten = replayed(algo, policy, state.carry.memory, steps, network)
    np.testing.assert_array_equal(samples.raw_action, steps.raw_action)
    np.testing.assert_allclose(samples.log_prob, log_prob, rtol=0, atol=ROUNDING)
    # The target of every step, at a limit too, is r + 0.9 V(next observation, memory that has seen the episode).
    np.testing.assert_allclose(samples.target, np.asarray(steps.reward) + 0.9 * next_value, rtol=0, atol=ROUNDING)
    at_limits = np.abs(next_value - forgotten)[np.asarray(steps.truncated)]
    assert at_limits.min() > 100 * ROUNDING  # with the memory after the reset it would differ
    # The ratio of the first minibatch, whole sequences of half of the environments, is 1.
    assert metrics["ratio"].shape == (12, 2)
    np.testing.assert_allclose(metrics["ratio"], 1.0, rtol=0, atol=ROUNDING)
    order = [int(np.argmin(np.abs(np.asarray(samples.value) - value[:, None]).sum(0))) for value in metrics["value"].T]
    np.testing.assert_allclose(metrics["value"], samples.value[:, np.array(order)], rtol=0, atol=ROUNDING)
    np.testing.assert_array_equal(metrics["batch"].reset, samples.reset[:, np.array(order)])
    assert len(set(order)) == 2


@pytest.mark.slow
def test_memories_are_recomputed_from_the_steps_before(key: jax.Array) -> None:
    """With the same parameters, memories equal those of the previous rollout for any number of replayed steps."""
    results = []
    for burn_in in (0, 3, 12):
        config = dataclasses.replace(TINY, burn_in=burn_in)
        _, state, _, _, metrics = second_iteration(Repeat("truncated"), config, key)
        results.append(metrics["samples"].log_prob)
        np.testing.assert_allclose(metrics["ratio"], 1.0, rtol=0, atol=ROUNDING)
        if burn_in:
            start = metrics["samples"].start
            assert start.reset.shape == (4, burn_in) and start.obs.shape == (4, burn_in, 4)
            earlier, now = (jax.tree.leaves(memory)[0] for memory in (start.memory, state.carry.memory))
            assert np.abs(earlier - now).max() > 100 * ROUNDING
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


class Forgetful(nn.Module):
    """A network whose memory has no effect except at the start of an episode."""

    network: Any

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        return self.network(obs, self.network.initial_memory())[:2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_ppo_is_feed_forward_with_episodes_of_one_step(key: jax.Array, kind: Any) -> None:
    env = envs.make("probe/action-and-observation-dependent", continuous=True)
    config = dataclasses.replace(
        TINY, memory=kind, **OWN.get(kind, {}), num_minibatches=1, num_epochs=2, reset_pool=None
    )
    obs = jax.ShapeDtypeStruct((1,), jnp.float32)
    network = config.actor_critic(obs, 1, None)
    names = ("hidden", "memory_size", "memory_window", "memory_heads")
    defaults = {name: getattr(NetworkConfig, name) for name in names}
    plain = dataclasses.replace(config, memory="none", **defaults)
    with_memory, without = jaxrl.ppo(env, config), jaxrl.ppo(env, plain, Forgetful(network))
    # With a stabiliser of 1 a step of Adam moves weights by the learning rate times the gradient at most.
    hparams = with_memory.prepare(with_memory.hparams.replace(lr=1e-2, adam_eps=1.0))
    params = env.default_params
    state = jax.jit(with_memory.init)(key, hparams, params)
    weights, log_std = state.weights
    other = jax.jit(without.init)(key, hparams, params)
    other = other._replace(weights=({"params": {"network": weights["params"]}}, log_std))
    (one, ours), (two, theirs) = (
        jax.jit(algo.step)(key, jnp.int32(0), start, hparams, params)
        for algo, start in ((with_memory, state), (without, other))
    )
    for got, expected in zip(jax.tree.leaves(one.weights), jax.tree.leaves(two.weights), strict=True):
        # Two steps by gradients that are means of 48 terms, at most 16 in size, in another order.
        np.testing.assert_allclose(got, expected, rtol=0, atol=2 * 1e-2 * 48 * 16 * EPS)
    assert ours["policy_loss"] != 0
    for name, value in theirs.items():
        # Means of 48 numbers, each after a step of the network.
        tolerance = 48 * EPS + STEP_ROUNDING
        np.testing.assert_allclose(ours[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_learns(key: jax.Array, kind: Any) -> None:
    env, config = Repeat(), dataclasses.replace(TINY, memory=kind, **OWN.get(kind, {}), memory_hidden=(4,))
    algo = jaxrl.ppo(env, config)
    hparams = algo.prepare(algo.hparams)

    @jax.jit
    def run(key: jax.Array) -> Any:
        state = shaken(algo.init(key, hparams, env.default_params), key)
        return state, algo.step(key, jnp.int32(0), state, hparams, env.default_params)[0]

    before, after = run(key)
    for (path, old), new in zip(jax.tree.leaves_with_path(before.weights), jax.tree.leaves(after.weights), strict=True):
        # A unit of a layer of "gtrxl" that is 0 in all steps, behind a relu, does not learn.
        assert np.mean(np.asarray(old) != new) >= (0.5 if kind == "gtrxl" else 1.0), jax.tree_util.keystr(path)


def test_the_learning_of_a_memory_across_minibatches_is_checked() -> None:
    with pytest.raises(ValueError, match=r"num_minibatches must divide the 4 environments \(num_envs\) of a policy"):
        jaxrl.ppo(Repeat(), dataclasses.replace(TINY, num_minibatches=3))
    sharded: Any = jaxrl.ppo(Repeat(), TINY).sharded
    with pytest.raises(ValueError, match=r"the 1 environments \(num_envs / devices\) .* sequences, got 2"):
        sharded(EnvShards("devices", 4))
    with pytest.raises(ValueError, match=r"burn_in has no effect on a policy that does not remember, got 4"):
        jaxrl.ppo(Repeat(), jaxrl.PPOConfig(burn_in=4))
    with pytest.raises(ValueError, match=r"burn_in takes at most the num_steps=12 of a rollout, got 13"):
        dataclasses.replace(TINY, burn_in=13)
    network = TINY.actor_critic(jax.ShapeDtypeStruct((4,), jnp.float32), 4, None)
    with pytest.raises(ValueError, match=r"memory applies to jaxrl's own networks, got 'gru' with network="):
        jaxrl.ppo(Repeat(), TINY, network)
    own = dataclasses.replace(TINY, hidden=jaxrl.PPOConfig().hidden, memory="none", memory_size=64, burn_in=4)
    jaxrl.ppo(Repeat(), own, network)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_shards_learn_the_same_as_one_device(key: jax.Array, kind: Any) -> None:
    """One minibatch of all environments, whose order does not matter then."""
    config = dataclasses.replace(TINY, memory=kind, **OWN.get(kind, {}), num_minibatches=1, num_epochs=2, burn_in=3)
    algo = jaxrl.ppo(Repeat("truncated"), config)
    assert algo.sharded is not None
    sharded, of_each_env = algo.sharded(EnvShards("devices", 2))
    each, whole = PartitionSpec("devices"), PartitionSpec()
    specs = jax.tree.map(lambda own: each if own else whole, of_each_env)
    # With a large stabiliser a step of Adam is at most a tenth of the gradient.
    hparams = algo.prepare(algo.hparams.replace(lr=1e-3, adam_eps=1e-2))
    hparams, params = jax.tree.map(jnp.float32, hparams), algo.env.default_params

    def run(algo: Any, key: jax.Array) -> Any:
        state = algo.init(key, hparams, params)
        metrics = {}
        for i in range(2):
            state, metrics = algo.step(jax.random.fold_in(key, i), jnp.int32(i), state, hparams, params)
        return state, metrics

    mesh = Mesh(np.asarray(jax.devices()[:2]), ("devices",))
    on_shards = jax.shard_map(
        lambda key: run(sharded, key), mesh=mesh, in_specs=whole, out_specs=(specs, whole), check_vma=False
    )
    for got, expected in zip(
        jax.tree.leaves(jax.jit(on_shards)(key)), jax.tree.leaves(jax.jit(lambda key: run(algo, key))(key)), strict=True
    ):
        # Four steps by a tenth of a mean of 48 numbers after 16 roundings, and what an episode under them rounds.
        tolerance = 4 * 0.1 * (48 * EPS + STEP_ROUNDING) + ROUNDING
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_a_run_that_remembers_resumes_bit_for_bit(tmp_path: Path) -> None:
    algo = jaxrl.ppo(Repeat(), dataclasses.replace(TINY, burn_in=3))
    call: Any = {"seeds": 2, "evals": 2, "eval_episodes": 2, "progress": False, "out": tmp_path / "run"}
    jaxrl.train(algo, env_steps=2 * 48, **call)
    longer = jaxrl.train(algo, env_steps=4 * 48, **call | {"evals": 4}, resume=True)
    whole = jaxrl.train(algo, env_steps=4 * 48, **call | {"evals": 4, "out": None})
    for one, other in zip(jax.tree.leaves(longer.policies), jax.tree.leaves(whole.policies), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_memories_are_recomputed_under_other_parameters_and_no_gradient_runs_through(key: jax.Array) -> None:
    """Against single steps under the same parameters."""
    config = dataclasses.replace(TINY, burn_in=3)
    network: Any = config.actor_critic(jax.ShapeDtypeStruct((4,), jnp.float32), 2, None)
    keys = jax.random.split(key, 4)
    obs = jax.random.normal(keys[0], (2, 3, 4))
    reset = jnp.array([[False, True, False], [False, False, False]])
    first = jax.tree.map(lambda leaf: jax.random.normal(keys[1], (2, *leaf.shape)), network.initial_memory())
    params = network.init(keys[2], obs[0, 0], network.initial_memory())
    unused: Any = dict.fromkeys(OnPolicy._fields)
    agent = OnPolicy(**{**unused, "config": config, "network": network, "agents": (), "num_envs": 2, "num_rows": 24})

    def recomputed(params: Any) -> Any:
        return agent.start_memory(params, Start(first, obs, reset))

    for shift in (0.0, 0.3):
        moved = jax.tree.map(lambda leaf: leaf + shift, params)  # noqa: B023
        got = recomputed(moved)
        for env in range(2):
            memory = jax.tree.map(lambda leaf: leaf[env], first)  # noqa: B023
            for t in range(3):
                memory = network.initial_memory() if reset[env, t] else memory
                memory = network.apply(moved, obs[env, t], memory)[2]
            for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(memory), strict=True):
                np.testing.assert_allclose(one[env], other, rtol=0, atol=3 * STEP_ROUNDING)
    slopes = jax.grad(lambda params: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(recomputed(params))))(params)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(slopes))
