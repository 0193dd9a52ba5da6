"""A critic that sees the global observation: its values and its samples; the actor never sees that observation."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from observed_learning import observed
from reference.advantages import ugae
from team_task import Team

import envs
import jaxrl
from jaxrl.algorithms.on_policy import OnPolicy
from jaxrl.algorithms.on_policy_state import Samples
from jaxrl.learning.asymmetric import critic_observation
from jaxrl.learning.networks import MLPActorCritic
from jaxrl.learning.rollout import episode_ends, rollout
from jaxrl.learning.shards import EnvShards

# 12 steps of episodes of 5: two or three ends in each environment.
TINY = jaxrl.PPOConfig(
    num_envs=4, num_steps=12, num_epochs=1, num_minibatches=2, hidden=(6,), reset_pool=4, critic_sees="global"
)
LAM, GAMMA = 0.9, 0.95


def samples_and_minibatches(
    agent: OnPolicy, key: jax.Array, weights: Any, samples: Samples, hparams: Any
) -> dict[str, Any]:
    """Samples, and their minibatches."""
    del weights, hparams
    return {"samples": samples, "minibatches": agent.minibatches(key, samples, 2)}


def second_iteration(algo: Any, key: jax.Array, change: Any = lambda carry: carry) -> tuple[Any, Any, Any, Any]:
    """The state before the second iteration, the policy, the steps, and the shown samples and minibatches.

    Args:
      algo: Algorithm that shows `samples_and_minibatches`.
      key: Random key.
      change: Function of the environments between the iterations.
    """
    # Actions without noise: the same for an agent in any place.
    hparams = algo.prepare(algo.hparams.replace(lam=LAM, discount=GAMMA, log_std_init=-20.0))
    params, config = algo.env.default_params, algo.config

    @jax.jit
    def run(key: jax.Array) -> Any:
        state = algo.init(key, hparams, params)
        state = state._replace(weights=jax.tree.map(lambda leaf: 2 * leaf, state.weights))
        state = algo.step(key, jnp.int32(0), state, hparams, params)[0]
        state = state._replace(carry=change(state.carry))
        second = jax.random.fold_in(key, 1)
        metrics = algo.step(second, jnp.int32(1), state, hparams, params)[1]
        policy = algo.policy(state, hparams)
        noise_key, env_key = jax.random.split(jax.random.split(second)[0])  # the steps of the iteration, computed again
        agents = metrics["samples"].weight.shape[2:]
        noise = algo.actor.noise(noise_key, (config.num_steps, config.num_envs, *agents))
        _, steps, _ = rollout(
            algo.env,
            params,
            algo.actor,
            policy,
            env_key,
            state.carry,
            noise,
            config.reset_pool,
            critic_sees=algo.env.global_observation,
        )
        return state, policy, steps, metrics

    return run(key)


def of_team(seen: Any = "vector", **fields: Any) -> Any:
    return observed(samples_and_minibatches, Team(seen), dataclasses.replace(TINY, **fields))


def normalised(statistics: Any, obs: Any, clip: float) -> np.ndarray:
    mean, variance = (np.asarray(part, np.float64) for part in (statistics.mean, statistics.variance))
    return np.clip((np.asarray(obs, np.float64) - mean) / np.sqrt(variance + 1e-8), -clip, clip)


def value_of(params: Any, obs: np.ndarray, critic_obs: np.ndarray) -> np.ndarray:
    """The critic's value in float64: one hidden layer on the global observation followed by the own one."""
    hidden, last = params["critic"]["trunk_0"], params["critic_out"]
    seen = np.concatenate([critic_obs, obs], axis=-1)
    features = np.tanh(seen @ np.asarray(hidden["kernel"], np.float64) + np.asarray(hidden["bias"]))
    return (features @ np.asarray(last["kernel"], np.float64) + np.asarray(last["bias"]))[..., 0]


@pytest.mark.slow
def test_values_and_advantages_are_those_of_the_formulas(key: jax.Array) -> None:
    algo = of_team(normalise_observation=True)
    _, policy, steps, shown = second_iteration(algo, key)
    params, samples = policy.params["params"], shown["samples"]
    # The level that an agent observes is that of its environment, before a reset too.
    mean = jnp.mean(steps.obs, axis=2), jnp.mean(steps.next_obs, axis=2)
    for seen, expected in zip((steps.critic_obs, steps.next_critic_obs), mean, strict=True):
        np.testing.assert_allclose(seen[..., 0], expected[..., 0], rtol=1e-6, atol=1e-6)
    times = np.asarray(steps.next_critic_obs[..., 1])
    np.testing.assert_array_equal(times == 1, steps.truncated)

    def values(obs: Any, critic_obs: Any) -> np.ndarray:
        own = normalised(policy.observations, obs, 10.0)
        whole = normalised(policy.critic_observations, critic_obs, 10.0)
        return value_of(params, own, np.repeat(whole[:, :, None], 3, axis=2))

    assert float(policy.critic_observations.count) == 48  # the steps of the first iteration
    value, next_value = values(steps.obs, steps.critic_obs), values(steps.next_obs, steps.next_critic_obs)
    # Sums of at most six products of numbers below 10 and weights below 3, in float32.
    np.testing.assert_allclose(samples.value, value, rtol=0, atol=2e-5)
    done, ended = np.asarray(episode_ends(steps)), np.asarray(steps.agent_terminated)
    assert ended.any() and (done & ~ended).any()
    for env in range(4):
        for agent in range(3):
            at = np.s_[:, env, agent]
            expected, _ = ugae(
                GAMMA ** np.arange(13), LAM, steps.reward[at], value[at], next_value[at], ended[at], done[at]
            )
            np.testing.assert_allclose(samples.advantage[at], expected, rtol=0, atol=2e-4)  # ten such errors


def test_a_critic_sees_scaled_observations_and_rows_in_place_of_neighbours() -> None:
    obs = {"own": np.ones(2), "neighbours": np.ones((2, 3)), "neighbours_present": np.array([1.0, 0.0])}
    rows = {"agents": np.arange(8.0).reshape(4, 2), "agents_present": np.array([1.0, 1.0, 0.0, 1.0])}
    seen = critic_observation(obs, rows | {"boxes": np.ones((1, 4))}, 3.0, 0.5)
    expected = {
        "own": {
            "own": np.full(2, 3.0),
            "neighbours": np.full((2, 3), 0.5),
            "neighbours_present": obs["neighbours_present"],
        },
        "global": {"boxes": np.full((1, 4), 3.0)},
        "neighbours": 3 * rows["agents"],
        "neighbours_present": rows["agents_present"],
    }
    jax.tree.map(np.testing.assert_array_equal, seen, expected)  # of the same structure, too
    alone = critic_observation(np.arange(2), np.ones(3), 2.0)
    np.testing.assert_array_equal(alone["own"], [0, 2])
    np.testing.assert_array_equal(alone["global"], [2, 2, 2])


def reordered(order: Any) -> Any:
    """Function that puts the agents of all environments into another order."""

    def change(carry: Any) -> Any:
        def leaf(x: jax.Array) -> jax.Array:
            return x[:, order] if x.ndim > 1 and x.shape[1] == len(order) else x

        return jax.tree.map(leaf, carry)

    return change


@functools.cache
def iterations(seen: str) -> tuple[Any, Any, Any]:
    """Two steps without an end of an episode, with the agents in their order and in another one."""
    env: Any = envs.make("crowd/circle", num_agents=5) if seen == "crowd" else Team(seen)  # pyright: ignore
    algo = observed(samples_and_minibatches, env, dataclasses.replace(TINY, num_steps=2))
    order = np.roll(np.arange(env.num_agents), 1)
    key = jax.random.key(0)
    _, _, steps, shown = second_iteration(algo, key)
    assert not np.any(steps.truncated)
    return order, shown, second_iteration(algo, key, reordered(order))[3]


SEEN = ("rows", pytest.param("vector", marks=pytest.mark.slow), pytest.param("crowd", marks=pytest.mark.slow))


@pytest.mark.slow
@pytest.mark.parametrize("seen", SEEN)
def test_permuting_the_agents_permutes_the_advantages(seen: str) -> None:
    order, *both = iterations(seen)
    as_it_was, advantage = (np.asarray(each["samples"].advantage) for each in both)
    assert np.max(np.abs(as_it_was[:, :, order] - as_it_was)) > 0.05
    # Sums in another order: a few roundings of numbers of the size of 1, or 10 metres in a crowd.
    np.testing.assert_allclose(advantage, as_it_was[:, :, order], rtol=0, atol=1e-4 if seen == "crowd" else 1e-5)


@pytest.mark.slow
def test_a_minibatch_has_all_agents_of_a_step() -> None:
    _, shown, _ = iterations("rows")
    samples, minibatches = shown["samples"], shown["minibatches"]
    assert minibatches.obs.shape == (2, 4, 3, 1)
    np.testing.assert_array_equal(minibatches.obs, minibatches.critic_obs["agents"])
    for whole, parts in ((samples.obs, minibatches.obs), (samples.advantage, minibatches.advantage)):
        np.testing.assert_array_equal(np.sort(np.ravel(whole)), np.sort(np.ravel(parts)))


@pytest.mark.parametrize("seen", ["rows", pytest.param("vector", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_actor_depends_on_its_own_observation_alone(key: jax.Array, seen: Any) -> None:
    """Gradients of actions reach all weights of the actor, gradients of values all of the critic, and no others."""
    config = dataclasses.replace(TINY, own_hidden=(4,), neighbour_hidden=(4,)) if seen == "rows" else TINY
    env = Team(seen)
    obs, state = env.reset_env(key, env.default_params)
    world = env.global_observation(state, env.default_params)
    alone_shape, world_shape = jax.eval_shape(lambda: (obs[0], world))
    network: Any = config.centralised(alone_shape, world_shape, 2, None)
    params = network.init(key, obs[0], world)
    outputs, value = network.apply(params, obs[0], world)
    alone, nothing = network.apply(params, obs[0])
    np.testing.assert_array_equal(outputs, alone)
    assert nothing is None and value.shape == ()
    slopes = (
        jax.grad(lambda params: jnp.sum(network.apply(params, obs[0], world)[0]))(params),
        jax.grad(lambda params: network.apply(params, obs[0], world)[1])(params),
    )
    for slope, own in zip(slopes, (("actor", "actor_out"), ("critic", "critic_out")), strict=True):
        for name, part in slope["params"].items():
            assert all(np.any(leaf != 0) == (name in own) for leaf in jax.tree.leaves(part)), name


@pytest.mark.slow
@pytest.mark.parametrize(("sees", "learned"), [pytest.param("own", False, marks=pytest.mark.slow), ("global", True)])
def test_values_are_learned_from_the_global_observation_and_not_from_own_ones(
    key: jax.Array, sees: Any, learned: bool
) -> None:
    config = dataclasses.replace(TINY, num_epochs=4, critic_sees=sees, hidden=(16,), num_envs=16)
    algo: Any = jaxrl.ppo(Team(shows=False), config)
    hparams = algo.prepare(algo.hparams.replace(lr=1e-2))

    @jax.jit
    def run(key: jax.Array) -> jax.Array:
        def step(state: Any, at: Any) -> Any:
            state, metrics = algo.step(*at, state, hparams, algo.env.default_params)
            return state, metrics["explained_variance"]

        start = algo.init(key, hparams, algo.env.default_params)
        return jax.lax.scan(step, start, (jax.random.split(key, 40), jnp.arange(40)))[1]

    last = float(jnp.mean(run(key)[-5:]))
    # The remaining part depends on which agent ends its episode, which the mean over all agents does not show.
    assert last > 0.7 if learned else last < 0.1, last


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"memory": "gru"},
            r"^critic_sees='global' takes memory='none', got 'gru': a centralised critic has no",
        ),
        ({"network": "cnn"}, r"^critic_sees='global' takes network='auto', 'mlp' or 'relation', got 'cnn'$"),
        ({"network": "simba"}, r"^critic_sees='global' takes network='auto', 'mlp' or 'relation', got 'simba'$"),
        ({"shared_trunk": True}, r"^shared_trunk has no effect with critic_sees='global', .*; leave it out$"),
    ],
)
def test_an_invalid_configuration_is_refused(fields: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(TINY, **fields)


def _of(shapes: Any) -> Any:
    """A team with another global observation."""

    class Other(Team):
        def global_observation(self, state: Any, params: Any) -> Any:
            return jax.tree.map(lambda leaf: jnp.zeros(*leaf), shapes, is_leaf=lambda x: isinstance(x, tuple))

    return Other()


@pytest.mark.parametrize(
    ("env", "fields", "sentence"),
    [
        (
            Team("nothing"),
            {},
            r"^critic_sees='global' takes an environment with a global_observation, which team does not have$",
        ),
        (
            envs.make("cartpole"),
            {},
            r"^critic_sees='global' takes an environment of several agents, got \S*cartpole\S* with one$",
        ),
        (
            _of({"x": ((2,), jnp.complex64)}),
            {},
            r"^global_observation\['x'\] of team must have real numbers, got complex64$",
        ),
        (
            _of({"agents": ((3, 2),), "agents_present": ((2,),)}),
            {},
            r"^global_observation of team must have 'agents' \[N, F\] and 'agents_present' \[N\], got shapes "
            r"\(3, 2\) and \(2,\)$",
        ),
        (
            Team("rows"),
            {"normalise_observation": True},
            r"^normalise_observation would scale every slot of the global observation's 'agents' differently; use "
            r"own_scale instead, or network='mlp'$",
        ),
        (
            Team(),
            {"num_minibatches": 9},
            r"^num_minibatches must divide the 48 steps of an iteration \(num_envs \* num_steps\) with "
            r"critic_sees='global', whose minibatches have all agents of a step, got 9$",
        ),
        (Team(), {"pooling": "max"}, r"^pooling has no effect on observations without 'neighbours' .*; leave it out$"),
        (Team(), {"network": "relation"}, r"^network 'relation' takes observations with 'neighbours'"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused(env: Any, fields: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        jaxrl.ppo(env, dataclasses.replace(TINY, **fields))


def test_options_for_rows_are_accepted_and_a_custom_network_is_refused() -> None:
    jaxrl.ppo(Team("rows"), dataclasses.replace(TINY, pooling="max"))
    jaxrl.ppo(Team("rows"), dataclasses.replace(TINY, network="mlp", normalise_observation=True))
    with pytest.raises(ValueError, match=r"^critic_sees='global' applies to jaxrl's own networks, got network= as"):
        jaxrl.ppo(Team(), TINY, MLPActorCritic(2))
    with pytest.raises(ValueError, match=r"so that critic_sees must be 'own', got 'global'$"):
        jaxrl.ReinforceConfig(baseline="off", time_limits="terminal", critic_sees="global")


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit_and_its_policy_is_exported(tmp_path: Path) -> None:
    algo = jaxrl.ppo(envs.make("game/climbing"), dataclasses.replace(TINY, normalise_observation=True))
    call: Any = {"seeds": 2, "evals": 2, "eval_episodes": 2, "progress": False, "out": tmp_path / "run"}
    jaxrl.train(algo, env_steps=2 * 48, **call)
    longer = jaxrl.train(algo, env_steps=4 * 48, **call | {"evals": 4}, resume=True)
    whole = jaxrl.train(algo, env_steps=4 * 48, **call | {"evals": 4, "out": None})
    for one, other in zip(jax.tree.leaves(longer.policies), jax.tree.leaves(whole.policies), strict=True):
        np.testing.assert_array_equal(one, other)
    policy = jaxrl.load_result(tmp_path / "run").policy(seed=1)
    exported = jaxrl.load_exported(jaxrl.export_policy(policy, tmp_path / "policy.stablehlo"))
    assert [port["name"] for port in exported.spec["inputs"]] == ["obs"]
    obs, _ = algo.env.reset_env(jax.random.key(0), algo.env.default_params)
    np.testing.assert_array_equal(exported(obs), policy(obs))
    warm = jaxrl.train(algo, seeds=1, env_steps=48, evals=1, eval_episodes=2, progress=False, warm_start=policy)
    assert np.asarray(warm.policies.critic_observations.count).item() == 5 * 48  # of one run


@pytest.mark.slow
def test_two_shards_learn_the_same_as_one_device(key: jax.Array) -> None:
    """One minibatch of all environments, whose order does not matter then."""
    algo = jaxrl.ppo(Team(), dataclasses.replace(TINY, num_minibatches=1, num_epochs=2, normalise_observation=True))
    assert algo.sharded is not None
    sharded, of_each_env = algo.sharded(EnvShards("devices", 2))
    each, whole = PartitionSpec("devices"), PartitionSpec()
    specs = jax.tree.map(lambda own: each if own else whole, of_each_env)
    # With a large stabiliser a step of Adam is at most as large as the gradient.
    hparams = algo.prepare(algo.hparams.replace(lr=1e-2, adam_eps=1e-2))
    hparams, params = jax.tree.map(jnp.float32, hparams), algo.env.default_params

    def run(algo: Any, key: jax.Array) -> Any:
        state = algo.init(key, hparams, params)
        for i in range(2):
            state, _ = algo.step(jax.random.fold_in(key, i), jnp.int32(i), state, hparams, params)
        return state

    mesh = Mesh(np.asarray(jax.devices()[:2]), ("devices",))
    on_shards = jax.shard_map(
        lambda key: run(sharded, key), mesh=mesh, in_specs=whole, out_specs=specs, check_vma=False
    )
    for got, expected in zip(
        jax.tree.leaves(jax.jit(on_shards)(key)), jax.tree.leaves(jax.jit(lambda key: run(algo, key))(key)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
