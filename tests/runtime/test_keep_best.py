"""The policy of the best evaluation of each run: which one, how it survives, and what is evaluated again."""

import dataclasses
from pathlib import Path
from typing import Any

import agents
import jax
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, wandering

import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli.chosen_policy import named_run
from jaxrl.report.runs import facts, runs_of
from jaxrl.results.dataset import ResultError
from jaxrl.results.loading import load_best_returns
from jaxrl.results.statistics import iqm
from jaxrl.runtime.runs import Runs
from jaxrl.runtime.warm_start import starting_policies

ITERATIONS = 12
STEPS = ITERATIONS * PER_ITERATION


@dataclasses.dataclass(frozen=True)
class Noisy(agents.Crowd):
    """The crowd with noise in its rewards."""

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, reward + jax.random.normal(key, reward.shape) * info["active"], terminated, info


def train(algo: Algorithm | None = None, **options: Any) -> jaxrl.Result:
    """A result of three seeds under two settings, evaluated after every iteration by few episodes."""
    algo = wandering() if algo is None else algo
    settings = jaxrl.grid(algo.hparams, {"lr": [0.1, 0.3]})
    call: dict[str, Any] = {"seeds": 3, "env_steps": STEPS, "evals": ITERATIONS, "eval_episodes": 2, "block": 2}
    call |= {"keep": "best", "progress": False, **options}
    return jaxrl.train(algo, settings, **call)


@pytest.fixture(scope="module")
def result() -> jaxrl.Result:
    return train()


def returns(result: jaxrl.Result) -> np.ndarray:
    """Mean returns of the agents, `[num_settings, num_seeds, num_points]`."""
    values = result.values("return")
    return values.reshape(*values.shape[:3], -1).mean(axis=-1)


def best_of(result: jaxrl.Result) -> Any:
    assert result.best is not None
    return result.best


def test_the_best_policy_is_that_of_the_earliest_highest_return(result: jaxrl.Result) -> None:
    best, at = best_of(result), np.argmax(returns(result), axis=-1)
    np.testing.assert_array_equal(best.iteration, at + 1)
    np.testing.assert_array_equal(best.return_then, np.max(returns(result), axis=-1))
    assert len(np.unique(at)) > 1 and np.any(at < ITERATIONS - 1)
    ties = np.sum(returns(result) == best.return_then[..., None], axis=-1)
    assert np.any(ties > 1)  # or an order of ties would not be tested
    for setting, seed in np.ndindex(2, 3):
        # A run of the length of the best step ends with that policy.
        short = train(env_steps=(int(at[setting, seed]) + 1) * PER_ITERATION, evals=1, keep="last")
        np.testing.assert_array_equal(best.policy[setting, seed], short.policies[setting, seed])
        policy = result.policy(seed=seed, kept="best", lr=(0.1, 0.3)[setting])
        np.testing.assert_array_equal(policy.params, best.policy[setting, seed])
        assert policy.env_steps == (int(at[setting, seed]) + 1) * PER_ITERATION


def test_metrics_and_last_policies_do_not_depend_on_keeping_the_best(result: jaxrl.Result) -> None:
    last = train(keep="last")
    assert last.best is None and "keep" not in last.metrics.attrs
    np.testing.assert_array_equal(last.policies, result.policies)
    for name in last.metrics.data_vars:
        np.testing.assert_array_equal(last.values(str(name)), result.values(str(name)))


def test_both_are_evaluated_again_in_the_same_new_episodes(result: jaxrl.Result) -> None:
    best = best_of(result)
    latest = best.iteration == ITERATIONS
    np.testing.assert_array_equal(best.return_again[latest], best.return_of_last[latest])
    again = train(wandering()._replace(env=Noisy(2)), seeds=64, eval_episodes=1)
    then, now, last = (np.asarray(leaf).ravel() for leaf in best_of(again)[2:])
    assert np.mean(then > now) > 0.2  # new episodes, in which the maximum over evaluations is not reached
    # The bias of a maximum: of 128 runs, by more than three standard errors.
    assert np.mean(then - now) > 3 * np.std(then - now) / np.sqrt(len(now))
    assert np.mean(last != returns(again)[..., -1].ravel()) > 0.2
    table = again.table().to_pandas()
    for name, values in (("last_again", best_of(again).return_of_last), ("best_again", best_of(again).return_again)):
        np.testing.assert_allclose(table[name], [float(iqm(runs)) for runs in np.asarray(values)], rtol=1e-6)
    assert "too high by chance" in str(again.table()) and "best_again" not in str(again.table("length"))


def test_it_is_saved_resumed_divided_and_merged_bit_for_bit(result: jaxrl.Result, tmp_path: Path) -> None:
    algo = wandering()
    half = train(out=tmp_path / "x", env_steps=STEPS // 2, evals=ITERATIONS // 2)
    assert half.best is not None
    whole = jaxrl.resume(tmp_path / "x", env_steps=STEPS, algo=algo, progress=False)
    same(whole.best, result.best)
    same(jaxrl.load_result(tmp_path / "x", algo=algo).best, result.best)
    same(jaxrl.load_result(tmp_path / "x", algo=algo).policies, result.policies)
    shards = [tmp_path / f"y-{i}" for i in range(2)]
    for i in range(2):
        train(out=shards[i], shard=f"{i}/2")
    settings = [jaxrl.load_result(path, algo=algo) for path in shards]
    assert [len(shard.seeds) for shard in settings] == [2, 1]
    for shard, seeds in zip(settings, ([0, 1], [2]), strict=True):
        same(shard.best, jax.tree.map(lambda leaf, seeds=seeds: leaf[:, seeds], result.best))
    merged = jaxrl.merge(shards).save(tmp_path / "z")
    same(jaxrl.load_result(merged, algo=algo).best, result.best)


def same(one: Any, other: Any) -> None:
    assert one is not None
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_result_with_the_best_policies_alone(result: jaxrl.Result, tmp_path: Path) -> None:
    chosen = result.with_policies("best")
    np.testing.assert_array_equal(chosen.policies, best_of(result).policy)
    assert chosen.best is None and result.with_policies("last").best is None
    again = jaxrl.evaluate(chosen, episodes=2)
    assert again.sizes["seed"] == 3
    origin = starting_policies(wandering(), chosen, jaxrl.grid(wandering().hparams, {"lr": [0.1, 0.3]}), [0, 1]).origin
    assert origin.startswith("a result of wander on Crowd, the policies of its best evaluations (sha256 ")
    for kept in ("best", "last"):
        saved = jaxrl.load_result(result.with_policies(kept).save(tmp_path / kept), algo=wandering())
        np.testing.assert_array_equal(saved.policies, result.with_policies(kept).policies)
        assert saved.best is None and (saved.policy(seed=0, lr=0.1).env_steps is None) == (kept == "best")
    then = int(best_of(result).iteration[0, 0]) * PER_ITERATION
    assert chosen.policy(seed=0, lr=0.1).env_steps == then < STEPS
    assert chosen.with_policies("best") is chosen and "after" in str(chosen.table())
    assert "return_again" in repr(best_of(result)) and len(repr(best_of(result))) < 400
    measured = jaxrl.evaluate_result(chosen, 2)
    assert "of the policies of the best evaluations" in str(measured.table())
    assert jaxrl.load_result(measured.save(tmp_path / "measured"), algo=wandering()).best is None
    raw = jaxrl.load_result(result.save(tmp_path / "x"))  # of an unknown algorithm
    assert raw.algo is None and any(name.startswith("best:") for name in raw.policies)
    same(jaxrl.load_result(raw.save(tmp_path / "y"), algo=wandering()).best, result.best)


@pytest.mark.parametrize("where", ["memory", "directory"])
def test_the_best_policies_alone_are_not_the_last_ones(result: jaxrl.Result, tmp_path: Path, where: str) -> None:
    alone = result.with_policies("best")
    if where == "directory":
        alone = jaxrl.load_result(alone.save(tmp_path / "x"), algo=wandering())
    policy = alone.policy(seed=1, kept="best", lr=0.1)
    np.testing.assert_array_equal(policy.params, best_of(result).policy[0, 1])
    assert named_run(policy, "best").startswith("lr 0.1, seed 1, best")
    sentence = r"^kept takes 'best' \(--kept best\) where a result has the policies of its best evaluations alone, got"
    with pytest.raises(ResultError, match=sentence):
        alone.policy(seed=1, kept="last", lr=0.1)
    with pytest.raises(ResultError, match=sentence):
        alone.with_policies("last")


def test_the_report_shows_both(result: jaxrl.Result, tmp_path: Path) -> None:
    """Also from a directory, of which only these numbers are read."""
    result.save(tmp_path / "run")
    best = best_of(result)
    (run,) = runs_of([tmp_path / "run"])
    loaded: Any = load_best_returns(run.result)
    assert loaded.policy == {} and run.result.best is None
    for name in ("iteration", "return_then", "return_again", "return_of_last"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(best, name))
    again, last = ([iqm(values[at]) for at in range(2)] for values in (best.return_again, best.return_of_last))
    text = (
        f"return in further episodes, interquartile mean: lr 0.1: best {again[0]:.4g}, last {last[0]:.4g}; "
        f"lr 0.3: best {again[1]:.4g}, last {last[1]:.4g}"
    )
    assert facts(run)["Best policies"] == facts(runs_of([result])[0])["Best policies"] == text
    lost = best._replace(return_again=np.where([[True], [False]], np.nan, best.return_again))
    one_failed = runs_of([dataclasses.replace(result, best=lost)])[0]
    assert "lr 0.1: best failed, last failed; lr 0.3: best " in facts(one_failed)["Best policies"]
    train(keep="last").save(tmp_path / "last")
    assert "Best policies" not in facts(runs_of([tmp_path / "last"])[0])
    policies = tmp_path / "run/policies.npz"
    policies.write_bytes(policies.read_bytes()[:-1])
    assert facts(runs_of([tmp_path / "run"])[0])["Best policies"].startswith(f"not shown: {policies} is damaged")
    assert jaxrl.write_report([tmp_path / "run"], tmp_path / "page.html").is_file()
    policies.unlink()  # such as of a copy of the metrics alone
    assert "Best policies" not in facts(runs_of([tmp_path / "run"])[0])


def test_evaluations_that_fail_are_never_the_best() -> None:
    algo = wandering()

    def step(key: Any, iteration: Any, state: Any, hparams: Any, env_params: Any) -> Any:
        state, metrics = algo.step(key, iteration, state, hparams, env_params)
        return state, {"norm": metrics["norm"] + jax.numpy.where(iteration >= 3, jax.numpy.nan, 0.0)}

    with pytest.warns(RuntimeWarning, match="metrics that are not finite"):
        failed = train(algo._replace(step=step), seeds=1)
    assert np.all(best_of(failed).iteration <= 3) and np.all(np.isfinite(best_of(failed).return_then))


def test_policies_that_are_not_finite_have_no_return() -> None:
    """From the fourth iteration on with the one step size, and from the first on with the other one."""
    algo = wandering()

    def step(key: Any, iteration: Any, state: Any, hparams: Any, env_params: Any) -> Any:
        state, metrics = algo.step(key, iteration, state, hparams, env_params)
        return jax.numpy.where((hparams.lr > 0.2) | (iteration >= 3), jax.numpy.nan, state), metrics

    with pytest.warns(RuntimeWarning, match="metrics that are not finite"):
        failed = train(algo._replace(step=step), seeds=1)
    best = best_of(failed)
    assert np.all(np.isnan(best.return_of_last))
    assert np.isfinite(best.return_again[0, 0]) and np.isnan(best.return_again[1, 0])
    assert failed.policy(kept="best", lr=0.1).env_steps is not None
    with pytest.raises(ResultError, match=r"^kept takes 'last' where no evaluation of a run was finite, as of seed 0"):
        failed.policy(kept="best", lr=0.3)
    of_best = failed.with_policies("best").policies
    assert np.all(np.isfinite(of_best[0])) and np.all(np.isnan(of_best[1]))


def test_runs_that_were_not_evaluated_again_are_left_out_of_the_comparison(result: jaxrl.Result) -> None:
    best = best_of(result)
    part = best.return_again.copy()
    part[0, 0] = np.nan
    table = dataclasses.replace(result, best=best._replace(return_again=part)).table().to_pandas()
    for name, values in (("last_again", best.return_of_last), ("best_again", best.return_again)):
        np.testing.assert_allclose(table[name][0], float(iqm(np.asarray(values[0, 1:]))), rtol=1e-6)
    none = dataclasses.replace(result, best=best._replace(return_again=np.full_like(part, np.nan)))
    assert "best_again" not in none.table().columns


def test_an_error_of_the_further_evaluation_leaves_a_checkpoint(
    result: jaxrl.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Runs, "again", fails)
        with pytest.raises(MemoryError):
            train(out=tmp_path / "x")
    loaded = jaxrl.load_result(tmp_path / "x", algo=wandering())
    assert np.all(np.isnan(best_of(loaded).return_again))
    np.testing.assert_array_equal(best_of(loaded).iteration, best_of(result).iteration)
    longer = jaxrl.resume(tmp_path / "x", algo=wandering(), env_steps=2 * STEPS, progress=False)
    assert np.all(np.isfinite(best_of(longer).return_again))


@pytest.mark.slow
def test_programs_hold_no_nan_of_their_own(result: jaxrl.Result) -> None:
    with jax.debug_nans(True):
        same(train(eval_episodes=2).best, result.best)


def test_missing_best_policies_and_bad_options_are_refused(result: jaxrl.Result) -> None:
    last = dataclasses.replace(result, best=None)
    with pytest.raises(ResultError, match=r"this result has no best policies, .*; keep='best' of jaxrl\.train"):
        last.policy(seed=0, kept="best", lr=0.1)
    with pytest.raises(ValueError, match="kept must be one of last, best, got 'first'"):
        result.policy(seed=0, kept="first", lr=0.1)
    with pytest.raises(ValueError, match="keep must be one of last, best, got 'all'"):
        train(keep="all")
    with pytest.raises(ValueError, match="keep='best' cannot be combined with shard_environments"):
        train(shard_environments=True, block=None)
