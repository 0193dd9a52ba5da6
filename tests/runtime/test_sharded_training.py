"""One run on several devices: its environments are distributed equally, and it learns the same as on one."""

import functools
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.sharding import Mesh, PartitionSpec
from same_bits import assert_same_bits

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.losses import explained_variance, standardise, weighted_mean
from jaxrl.learning.normalisation import init_statistics, update_statistics
from jaxrl.learning.shards import EnvShards, averaged, own, own_key
from jaxrl.runtime.env_sharding.sharded_runs import AXIS, ShardedRun
from jaxrl.runtime.training import training_call

SHARDS = EnvShards(AXIS, 2)
EPS = 2.0**-24
PER_ITERATION = 64
RUN: Any = {"seeds": [3], "env_steps": 6 * PER_ITERATION, "evals": 3, "eval_episodes": 4, "progress": False}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    config = jaxrl.PPOConfig(num_envs=4, num_steps=16, num_epochs=2, num_minibatches=2, hidden=(8,))
    return jaxrl.ppo(envs.make("cartpole"), config)


def on_shards(function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    mesh = Mesh(np.asarray(jax.devices()[:2]), (AXIS,))
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False))


EACH, ALL = PartitionSpec(AXIS), PartitionSpec()


# --- communication of parts ----------------------------------------------------------------


def samples() -> tuple[jax.Array, jax.Array, jax.Array]:
    """Two columns of numbers and weights, most of them in the second half."""
    generator = np.random.default_rng(0)
    weight = np.concatenate([np.zeros(5), np.ones(1), generator.uniform(0.5, 2, 6)])
    x, y = generator.normal(1.0, 2.0, (2, 12))
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.asarray(weight, jnp.float32)


@pytest.mark.parametrize("weighted", [True, False])
def test_moments_of_parts_are_those_of_the_whole(weighted: bool) -> None:
    x, y, weight = samples()
    weight = weight if weighted else jnp.zeros_like(weight)

    def moments(x: jax.Array, y: jax.Array, weight: jax.Array, shards: EnvShards | None = None) -> Any:
        statistics = update_statistics(init_statistics(jnp.zeros(())), x, weight, shards)
        again = update_statistics(statistics, y, weight, shards)
        return weighted_mean(x, weight, shards), explained_variance(x, y, weight, shards), statistics, again

    parts = on_shards(functools.partial(moments, shards=SHARDS), EACH, ALL)(x, y, weight)
    # Sums of 12 numbers below 8 or their squares, in another order: 12 roundings of 12 x 64 each at most.
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=32 * EPS, atol=12 * 12 * 64 * EPS),
        parts,
        moments(x, y, weight),
    )
    standard = on_shards(functools.partial(standardise, shards=SHARDS), EACH, EACH)(x, weight)
    np.testing.assert_allclose(standard, standardise(x, weight), rtol=32 * EPS, atol=64 * EPS)


@pytest.mark.parametrize("weighted", [True, False])
def test_gradients_of_parts_average_to_that_of_the_whole(weighted: bool) -> None:
    x, y, weight = samples()
    weight = weight if weighted else jnp.zeros_like(weight)

    def loss(slope: jax.Array, x: jax.Array, y: jax.Array, weight: jax.Array) -> jax.Array:
        return weighted_mean(jnp.square(slope * x - y), weight)

    def of_part(*rows: jax.Array) -> Any:
        return averaged(jax.value_and_grad(loss)(jnp.float32(0.5), *rows), rows[-1], SHARDS)

    parts = on_shards(of_part, EACH, ALL)(x, y, weight)
    whole = jax.value_and_grad(loss)(jnp.float32(0.5), x, y, weight)
    np.testing.assert_allclose(parts, whole, rtol=32 * EPS)  # positive sums, and one quotient
    assert weighted == bool(whole[0] > 0)


def test_shards_slice_common_draws_and_permute_by_their_own_keys() -> None:
    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        drawn = own(jax.random.normal(key, (3, 4)), SHARDS, axis=1)
        return drawn, jax.random.permutation(own_key(key, SHARDS), 16)

    key = jax.random.key(0)
    cut, orders = on_shards(draw, ALL, (PartitionSpec(None, AXIS), EACH))(key)
    np.testing.assert_array_equal(cut, jax.random.normal(key, (3, 4)))
    assert np.any(orders[:16] != orders[16:]) and np.array_equal(np.sort(orders[16:]), np.arange(16))


# --- the first iteration -------------------------------------------------------------------


def as_drawn_by_shards(num_envs: int, num_minibatches: int) -> Callable[[jax.Array, int], jax.Array]:
    """A permutation of the rows `[T, N]` of a whole run whose minibatches are those of two shards together."""
    permutation, part = jax.random.permutation, num_envs // 2

    def order(key: jax.Array, num_rows: int) -> jax.Array:
        def rows_of(shard: int) -> jax.Array:
            step, env = jnp.divmod(permutation(jax.random.fold_in(key, shard), num_rows // 2), part)
            return (step * num_envs + shard * part + env).reshape(num_minibatches, -1)

        return jnp.concatenate([rows_of(0), rows_of(1)], axis=1).ravel()

    return order


@pytest.mark.slow
@pytest.mark.parametrize("normalise_advantage", ["minibatch", pytest.param("batch", marks=pytest.mark.slow)])
def test_two_shards_do_the_iteration_that_one_device_does(
    normalise_advantage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = jaxrl.PPOConfig(
        num_envs=4,
        num_steps=8,
        num_epochs=2,
        num_minibatches=2,
        hidden=(8,),
        normalise_advantage=normalise_advantage,
        normalise_observation=True,
        normalise_reward=True,
    )
    algo = jaxrl.ppo(envs.make("pendulum"), config)
    assert algo.sharded is not None
    sharded, of_each_env = algo.sharded(SHARDS)
    specs = jax.tree.map(lambda each: EACH if each else ALL, of_each_env)
    hparams = algo.prepare(algo.hparams.replace(lr=1e-2, adam_eps=1e-2))
    hparams, params = jax.tree.map(jnp.float32, hparams), algo.env.default_params
    keys = jax.random.split(jax.random.key(0))

    def iterate(algo: Algorithm, key: jax.Array, state: Any) -> Any:
        return algo.step(key, jnp.int32(0), state, hparams, params)

    start = jax.jit(algo.init)(keys[0], hparams, params)
    begun = on_shards(lambda key: sharded.init(key, hparams, params), ALL, specs)(keys[0])
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=4 * EPS, atol=4 * EPS), begun, start)
    parts, part_metrics = on_shards(functools.partial(iterate, sharded), (ALL, specs), (specs, ALL))(keys[1], start)
    monkeypatch.setattr(jax.random, "permutation", as_drawn_by_shards(4, 2))
    whole, metrics = jax.jit(functools.partial(iterate, algo))(keys[1], start)
    # Adam moves a weight by at most lr / adam_eps = 1 times the gradient, a sum over 16 rows of terms below 4,
    # of which some 16 roundings differ; there are 4 updates. Weights themselves move by some 1e-2.
    tolerance = 4 * 16 * 4 * EPS
    for one, other in zip(jax.tree.leaves(parts[:2]), jax.tree.leaves(whole[:2]), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    moved = jax.tree.map(lambda before, after: np.max(np.abs(before - after)), start.weights[0], whole.weights[0])
    assert max(jax.tree.leaves(moved)) > 100 * tolerance
    # The environments have taken the same steps, and the statistics of their rewards are the same.
    for one, other in zip(
        jax.tree.leaves((parts.carry, parts.rewards)), jax.tree.leaves((whole.carry, whole.rewards)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=256 * EPS, atol=256 * EPS)
    assert part_metrics.keys() == metrics.keys()
    for name, value in metrics.items():
        np.testing.assert_allclose(part_metrics[name], value, rtol=1e-4, atol=tolerance, err_msg=name)


# --- whole runs ----------------------------------------------------------------------------


def stop_at(evaluation: int) -> Callable[[int, Any], None]:
    seen = itertools.count(1)

    def on_chunk(env_step: int, metrics: Any) -> None:
        del env_step, metrics
        if next(seen) == evaluation:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_chunk


@pytest.mark.slow
def test_a_shared_run_is_stopped_and_continues_bit_for_bit(algo: Algorithm, tmp_path: Path) -> None:
    whole = jaxrl.train(algo, **RUN, shard_environments=True)
    assert whole.metrics.attrs["num_devices"] == 2 and whole.seeds == [3]
    cut = jaxrl.train(algo, **RUN, shard_environments=True, out=tmp_path / "x", on_chunk=stop_at(1))
    assert cut.metrics.attrs["interrupted"] == 1 and cut.metrics.sizes["env_step"] == 1
    assert_same_bits(jaxrl.resume(tmp_path / "x", progress=False), whole)
    loaded = jaxrl.load_result(tmp_path / "x")
    assert_same_bits(loaded, whole)
    assert np.shape(loaded.policy()(jnp.zeros(4))) == ()


@pytest.mark.slow
def test_every_device_keeps_the_same_parameters(algo: Algorithm) -> None:
    call = training_call(algo, None, seeds=[0], points=np.array([4]), eval_episodes=RUN["eval_episodes"])
    run = ShardedRun(call, jax.devices()[:2])
    run.advance(4)
    for leaf in jax.tree.leaves(run._run.state.weights):
        first, second = [np.asarray(part.data) for part in leaf.addressable_shards]
        np.testing.assert_array_equal(first, second)
    assert run.states().state.carry.obs.shape == (1, 4, 4)


@pytest.mark.slow
def test_a_run_that_two_devices_began_is_finished_by_one(algo: Algorithm, tmp_path: Path) -> None:
    jaxrl.train(algo, **RUN, shard_environments=True, out=tmp_path / "x", on_chunk=stop_at(2))
    options = RUN | {"devices": ["cpu:0"], "resume": True}
    finished = jaxrl.train(algo, **options, shard_environments=True, out=tmp_path / "x")
    assert finished.metrics.attrs["num_devices"] == 1 and finished.metrics.attrs["interrupted"] == 0
    assert finished.metrics["env_step"].values.tolist() == [128, 256, 384]


@pytest.mark.slow
def test_shared_runs_learn_as_well_as_others() -> None:
    config = jaxrl.PPOConfig(num_envs=8, num_steps=64, num_epochs=4, num_minibatches=4, hidden=(32,))
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    hparams = algo.hparams.replace(lr=2e-3)
    options: Any = {"env_steps": 25_600, "evals": 1, "eval_episodes": 32, "progress": False}
    alone = jaxrl.train(algo, hparams, seeds=range(24), **options).values("return_sampled")[0, :, -1]
    shared = [
        jaxrl.train(algo, hparams, seeds=[seed], shard_environments=True, **options).values("return_sampled")[0, 0, -1]
        for seed in range(100, 124)
    ]
    # For equal means one difference in a hundred lies outside this interval; a random policy has a return of 22.
    low, high = scipy.stats.ttest_ind(shared, alone, equal_var=False).confidence_interval(0.99)
    print(f"shared {np.mean(shared):.1f}, alone {np.mean(alone):.1f}, difference in [{low:.1f}, {high:.1f}]")
    assert low <= 0 <= high
    assert min(np.mean(shared), np.mean(alone)) > 60


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seeds": 2}, r"shard_environments takes one setting and one seed at a time, got 2 runs"),
        ({"block": 4}, r"block has no effect with shard_environments, got 4; leave it out"),
        ({"shard": "0/2"}, r"shard has no effect with shard_environments, got '0/2'; leave it out"),
        ({"devices": ["cpu:7"]}, r"devices must be among cpu:0, cpu:1, got 'cpu:7'"),
    ],
)
def test_calls_that_cannot_be_shared_are_refused(algo: Algorithm, changes: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        jaxrl.train(algo, **RUN | changes, shard_environments=True)


def test_a_sweep_is_refused(algo: Algorithm) -> None:
    with pytest.raises(ValueError, match=r"^shard_environments takes one setting and one seed at a time, got 2 runs$"):
        jaxrl.train(algo, jaxrl.grid(algo.hparams, {"lr": [1e-3, 1e-4]}), **RUN, shard_environments=True)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"num_envs": 3}, r"num_envs must be a multiple of the 2 devices that share the environments, got 3"),
        (
            {"num_envs": 2, "num_minibatches": 32, "normalise_advantage": "batch"},
            r"num_minibatches must divide the 16 samples of an iteration "
            r"\(num_envs \* num_steps \* agents / devices\), got 32",
        ),
    ],
)
def test_sizes_that_do_not_divide_are_refused(config: Any, sentence: str) -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**{"num_steps": 16, "num_minibatches": 2} | config))
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        jaxrl.train(algo, **RUN, shard_environments=True)


def test_an_algorithm_that_cannot_be_shared_is_refused(algo: Algorithm) -> None:
    sentence = r"^shard_environments takes an algorithm that has `sharded`, which ppo does not have$"
    with pytest.raises(ValueError, match=sentence):
        jaxrl.train(algo._replace(sharded=None), **RUN, shard_environments=True)
