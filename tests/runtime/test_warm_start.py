"""Warm starts: runs that begin with other policies, bit for bit, and errors."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import previous_format
import pytest
from chaotic_algorithm import PER_ITERATION, wandering
from same_bits import assert_same_bits

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import ROWS
from jaxrl.cli import main as cli
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.merging import merge
from jaxrl.runtime.runs import Runs
from jaxrl.runtime.training import points_of, training_call
from jaxrl.runtime.warm_start import starting_policies

RUN: Any = {"seeds": [3, 5, 7], "env_steps": 8 * PER_ITERATION, "evals": 4, "eval_episodes": 2, "progress": False}
SWEEP = {"lr": [0.1, 0.2]}
SMALL = jaxrl.PPOConfig(
    num_envs=2, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(4,), normalise_observation=True
)


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


@pytest.fixture(scope="module")
def source(algo: Algorithm) -> Result:
    """A result of two settings and three seeds, trained from other keys than the runs that begin with it."""
    return jaxrl.train(algo, jaxrl.grid(algo.hparams, SWEEP), **RUN | {"env_steps": 3 * PER_ITERATION, "block": 2})


def beginnings(algo: Algorithm, result: Result, **run: Any) -> Result:
    """The result before the first iteration."""
    points = points_of(algo, run["env_steps"], run["evals"], run["eval_episodes"])
    call = training_call(algo, None, seeds=run["seeds"], points=points, eval_episodes=run["eval_episodes"])
    runs = Runs(call, call.arguments(), plan_layout(call.num_runs, run["block"], None))
    policies = jax.tree.map(lambda leaf: leaf.reshape(*call.shape, *leaf.shape[1:]), runs.kept())
    return dataclasses.replace(result, policies=policies)


NORMALISED: Any = {"normalise_observation": True}
OTHERS: dict[str, Any] = {
    "dqn": (jaxrl.dqn, "cartpole", jaxrl.DQNConfig(**ROWS["dqn"].small | NORMALISED)),
    "sac": (jaxrl.sac, "pendulum", jaxrl.SACConfig(**ROWS["sac"].small | NORMALISED)),
    "td3": (jaxrl.td3, "pendulum", jaxrl.TD3Config(**ROWS["td3"].small)),
    "open-es": (jaxrl.evolve, "cartpole", jaxrl.EvolveConfig(**ROWS["evolve"].small | NORMALISED)),
    "simple-ga": (jaxrl.evolve, "cartpole", jaxrl.EvolveConfig(**ROWS["evolve"].small, strategy="simple-ga")),
}


@pytest.mark.slow_rows("ppo")
@pytest.mark.parametrize("of", ["wandering", "ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_to_start_where_a_run_starts_changes_no_bit(algo: Algorithm, of: str) -> None:
    if of == "ppo":
        algo = jaxrl.ppo(envs.make("cartpole"), SMALL)
    elif of in OTHERS:
        build, env, config = OTHERS[of]
        algo = build(envs.make(env), config)
    run = RUN | {"block": 2, "env_steps": 8 * algo.env_steps_per_iteration}
    whole = jaxrl.train(algo, **run)
    assert_same_bits(jaxrl.train(algo, warm_start=beginnings(algo, whole, **run), **run), whole)
    again = jaxrl.train(algo, warm_start=whole, **run)
    leaves = zip(jax.tree.leaves(again.policies), jax.tree.leaves(whole.policies), strict=True)
    assert any(np.any(a != b) for a, b in leaves)


@pytest.mark.slow
def test_ppo_with_a_learning_rate_of_0_keeps_the_weights_of_a_warm_start() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), SMALL)
    source = jaxrl.train(algo, **RUN)
    still = algo._replace(hparams=algo.hparams.replace(lr=0.0))
    result = jaxrl.train(still, warm_start=source, **RUN | {"seeds": [7, 3]})
    for s, seed in enumerate([7, 3]):
        learned, kept = source.policies, result.policies
        of = source.seeds.index(seed)
        jax.tree.map(
            lambda a, b, of=of, s=s: np.testing.assert_array_equal(a[0, of], b[0, s]), learned.params, kept.params
        )
        before, after = learned.observations.count[0, of], kept.observations.count[0, s]
        assert after - before == RUN["env_steps"]  # the statistics continue


def test_one_policy_is_that_of_every_run(algo: Algorithm, source: Result) -> None:
    sweep = jaxrl.grid(algo.hparams, SWEEP)
    policy = source.policy(seed=5, lr=0.2)
    start = starting_policies(algo, policy, sweep, [1, 2, 3])
    assert start.policies.shape == (2, 3, 8, 8)
    np.testing.assert_array_equal(start.policies, np.broadcast_to(policy.params, (2, 3, 8, 8)))
    steps = int(source.metrics["env_step"].values[-1])
    assert start.origin.startswith(f"a policy of wander, seed 5, after {steps:,} environment steps (sha256 ")


def test_runs_begin_with_those_of_their_own_labels(algo: Algorithm, source: Result, tmp_path: Path) -> None:
    sweep = jaxrl.grid(algo.hparams, {"lr": [0.2, 0.1]})
    for start in (source, source.save(tmp_path / "x"), str(tmp_path / "x")):
        actual = starting_policies(algo, start, sweep, [7, 3]).policies
        np.testing.assert_array_equal(actual, np.asarray(source.policies)[::-1][:, [2, 0]])
    with pytest.raises(ValueError, match=r"the result of wander|a result of wander on Crowd has 3, 5, 7, not 4"):
        starting_policies(algo, source, sweep, [3, 4])
    with pytest.raises(ValueError, match=r"lr is '0.5'; warm_start, a result of wander on Crowd, has 0.1, 0.2"):
        starting_policies(algo, source, jaxrl.grid(algo.hparams, {"lr": [0.5]}), [3])
    with pytest.raises(ValueError, match="lr"):
        starting_policies(algo, source, None, [3])


@pytest.mark.slow
def test_blocks_shards_and_a_stop_change_no_bit(algo: Algorithm, source: Result, tmp_path: Path) -> None:
    sweep = jaxrl.grid(algo.hparams, SWEEP)
    whole = jaxrl.train(algo, sweep, warm_start=source, **RUN, block=2)
    shards = [tmp_path / f"x-{i}" for i in range(4)]
    for i, out in enumerate(shards):
        jaxrl.train(algo, sweep, warm_start=source, shard=f"{i}/4", out=out, **RUN, block=2)
    merged = merge(shards)  # with policies as a dictionary of leaves, where the algorithm is a custom one
    policies = jax.tree.unflatten(jax.tree.structure(whole.policies), jax.tree.leaves(merged.policies))
    assert_same_bits(dataclasses.replace(merged, policies=policies), whole)
    seen: list[int] = []

    def stop(env_step: int, metrics: Any) -> None:
        seen.append(env_step)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.warns(RuntimeWarning, match="interrupted: progress is kept"):
        jaxrl.train(
            algo, sweep, warm_start=source, out=tmp_path / "y", checkpoint_minutes=1e-9, on_chunk=stop, **RUN, block=2
        )
    assert_same_bits(jaxrl.resume(tmp_path / "y", algo=algo, progress=False), whole)
    config = json.loads((tmp_path / "y" / "config.json").read_text())
    assert config["attributes"]["start"] == whole.metrics.attrs["start"]
    assert re.fullmatch(r"a result of wander on Crowd \(sha256 [0-9a-f]{16}\)", whole.metrics.attrs["start"])


def test_a_run_without_a_checkpoint_asks_for_its_start(algo: Algorithm, source: Result, tmp_path: Path) -> None:
    def fail(env_step: int, metrics: Any) -> None:
        raise KeyboardInterrupt

    policy = source.policy(seed=5, lr=0.2)
    out = tmp_path / "x"
    with pytest.raises(KeyboardInterrupt):
        jaxrl.train(algo, warm_start=policy, out=out, on_chunk=fail, **RUN)
    with pytest.raises(ResultError, match="repeat its call with warm_start= and resume=True"):
        jaxrl.resume(out, algo=algo, progress=False)
    with pytest.raises(ResultError, match="another configuration: start is"):
        jaxrl.train(algo, warm_start=source.policy(seed=3, lr=0.2), out=out, resume=True, **RUN)
    with pytest.warns(RuntimeWarning, match="starts from the beginning"):
        again = jaxrl.train(algo, warm_start=policy, out=out, resume=True, **RUN)
    assert_same_bits(again, jaxrl.train(algo, warm_start=policy, **RUN))


def test_a_policy_of_another_algorithm_is_named(algo: Algorithm, source: Result, tmp_path: Path) -> None:
    dqn = jaxrl.dqn(envs.make("cartpole"), jaxrl.DQNConfig(**ROWS["dqn"].small))
    policy = source.policy(seed=3, lr=0.2)
    sentence = r"^warm_start takes a policy of dqn on cartpole, got {}, which lacks \.acting\.params.*\]$"
    with pytest.raises(ValueError, match=sentence.format("a policy of wander on Crowd")):
        starting_policies(dqn, policy, None, [3])
    with pytest.raises(ValueError, match=sentence.format("a result of wander on Crowd")):
        starting_policies(dqn, source, None, [3, 5, 7])
    source.save(tmp_path / "x")
    with pytest.raises(ResultError, match=r"npz is of wander on Crowd, and does not fit .* dqn on cartpole"):
        starting_policies(dqn, tmp_path / "x", None, [3, 5, 7])


@pytest.mark.slow
def test_policies_that_do_not_fit_are_refused_by_name(algo: Algorithm, source: Result, tmp_path: Path) -> None:
    ppo = jaxrl.ppo(envs.make("cartpole"), SMALL)
    with pytest.raises(
        ValueError, match=r"takes a policy of ppo on cartpole, got a result of wander on Crowd, which lacks \."
    ):
        jaxrl.train(ppo, warm_start=source, **RUN)
    wider = jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(SMALL, hidden=(5,)))
    kept = jaxrl.train(wider, **RUN | {"env_steps": 16, "evals": 1}, out=tmp_path / "wider")
    with pytest.raises(
        ValueError,
        match=r"got a result of ppo on cartpole, whose \.params\[.*\] is float32\[.*5.*\] in place of float32\[.*4.*\]",
    ):
        jaxrl.train(ppo, warm_start=kept, **RUN)
    with pytest.raises(
        ResultError, match=r"npz is of ppo on cartpole, and does not fit the algorithm ppo on cartpole: \.params"
    ):
        jaxrl.train(ppo, warm_start=tmp_path / "wider", **RUN)
    with pytest.raises(ValueError, match="takes an algorithm that has `warm_start`, which wander does not have"):
        jaxrl.train(algo._replace(warm_start=None), warm_start=source, **RUN)
    with pytest.raises(TypeError, match="warm_start takes a policy, a result or the directory of one, got int"):
        jaxrl.train(algo, warm_start=3, **RUN)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="warm_start cannot be combined with shard_environments"):
        jaxrl.train(ppo, warm_start=kept, **RUN | {"seeds": 1}, shard_environments=True)
    broken = dataclasses.replace(source, policies=np.full_like(source.policies, np.nan))
    with pytest.raises(ValueError, match="warm_start takes finite policies"):
        jaxrl.train(algo, jaxrl.grid(algo.hparams, SWEEP), warm_start=broken, **RUN)


@pytest.mark.slow
def test_the_shell_starts_from_a_directory_of_another_environment(tmp_path: Path, capsys: Any) -> None:
    """Nothing of the directory is imported, and the environments need only have the same spaces."""
    small = ["--env-steps", "32", "--evals", "1", "--eval-episodes", "1", "--no-progress", "--no-preset"]
    small += ["--config.num-envs", "2", "--config.num-steps", "8", "--config.num-minibatches", "1"]
    small += ["--config.hidden", "4", "--seeds", "2"]
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    assert cli.main(["train", "ppo", "cartpole", *small, "--out", first]) == 0
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    config["environment"]["name"] = "not_here:Thing"
    previous_format.write_json(tmp_path / "a" / "config.json", config)
    assert cli.main(["train", "ppo", "cartpole", *small, "--warm-start", first, "--out", second]) == 0
    assert jaxrl.load_result(second).metrics.attrs["start"].startswith(f"{first} (sha256 ")
    assert cli.main(["plan", "ppo", "cartpole", *small, "--warm-start", first]) == 2
    assert "plan does not take --warm-start" in capsys.readouterr().err
