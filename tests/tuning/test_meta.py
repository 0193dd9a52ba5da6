"""Meta-training: its gradient, its keys, resuming, failures, messages, and the table on held-out tasks."""

import dataclasses
import signal
from pathlib import Path
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from paraboloid_algorithm import CURVATURE, NAN_ABOVE, PEAK, PER_ITERATION, HParams, height, paraboloid, place_theta

import envs
import jaxrl
from jaxrl.algorithms.strategies import make_strategy
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.options import MetaOptions, checked
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer import held_out, learners, outer_runs
from jaxrl.tuning.outer.fitness import constant, fitness_of, objective_of
from jaxrl.tuning.outer.gradient_task import GradientTask
from jaxrl.tuning.outer.inner_task import InnerTask

QUICK: dict[str, Any] = {
    "inner_steps": PER_ITERATION,
    "generations": 3,
    "population": 8,
    "seeds": 2,
    "test_seeds": 3,
    "eval_episodes": 1,
    "block": 8,
    "progress": False,
}


def meta(algo: Any = None, theta: Any = None, **changes: Any) -> jaxrl.MetaResult:
    algo = paraboloid() if algo is None else algo
    return jaxrl.meta(algo, place_theta() if theta is None else theta, **(QUICK | changes))


def same_thetas(one: jaxrl.MetaResult, other: jaxrl.MetaResult) -> None:
    jax.tree.map(np.testing.assert_array_equal, one.result.policies, other.result.policies)


def same(one: jaxrl.MetaResult, other: jaxrl.MetaResult) -> None:
    same_thetas(one, other)
    for name in one.result.metrics.data_vars:
        np.testing.assert_array_equal(one.result.values(str(name)), other.result.values(str(name)))


def ranks_reference(scores: np.ndarray) -> np.ndarray:
    """Mean over columns of centred ranks, by counting the members below and the equal ones."""
    members, columns = scores.shape
    total = np.zeros(members)
    for column in range(columns):
        values = [-np.inf if np.isnan(x) else x for x in scores[:, column]]
        for i, value in enumerate(values):
            below = sum(other < value for other in values)
            equal = sum(other == value for other in values) - 1
            total[i] += (below + equal / 2) / (members - 1) - 0.5
    return total / columns


def test_fitness_equals_counting_and_failures_are_last():
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 5, (9, 7)).astype(float)  # with ties
    scores[generator.random(scores.shape) < 0.2] = np.nan
    np.testing.assert_allclose(fitness_of(scores, "ranks"), ranks_reference(scores), atol=1e-6)
    filled = np.where(np.isnan(scores), np.nanmin(scores, axis=0), scores)
    np.testing.assert_allclose(fitness_of(scores, "raw"), filled.mean(axis=1), rtol=1e-6)
    assert np.all(np.isfinite(fitness_of(np.full((4, 2), np.nan), "raw")))
    # Tasks of other scales count alike by ranks, and not by scores.
    scaled = np.concatenate([scores, 1000 * scores[::-1]], axis=1)
    np.testing.assert_allclose(fitness_of(scaled, "ranks"), ranks_reference(scaled), atol=1e-6)


def test_objectives_are_the_last_return_and_the_mean():
    returns = np.asarray([[1.0, 2.0, np.nan], [3.0, np.nan, 1.0], [8.0, 5.0, 2.0]])
    np.testing.assert_array_equal(objective_of(returns, "final"), [8.0, np.nan, np.nan])
    np.testing.assert_array_equal(objective_of(returns, "area"), [4.0, np.nan, np.nan])


def test_constant_scores_are_recognised():
    assert constant(np.asarray([[1.0, np.nan], [1.0, np.nan]]))
    assert not constant(np.asarray([[1.0, np.nan], [1.0, 2.0]]))
    assert not constant(np.asarray([[1.0, 3.0], [1.0, 2.0]]))


def test_the_antithetic_gradient_is_that_of_the_quadratic():
    """One step of gradient ascent without Adam: over many outer seeds the mean step is the gradient.

    Pairs of opposite noise estimate it without bias on a quadratic, whose even terms cancel.
    """
    members, std, seeds = 16, 0.3, 2000
    start = np.asarray([0.2, 0.4])
    strategy = outer_runs_of(place_theta(*start), members, std, seeds)
    before = strategy.kept()
    strategy.advance(1)
    after = strategy.kept()
    steps = np.stack([after[name] - before[name] for name in ("['x']", "['y']")], axis=-1).astype(np.float64)
    exact = -2 * CURVATURE * (start - PEAK)
    error = steps.std(axis=0, ddof=1) / np.sqrt(seeds)
    assert np.all(np.abs(steps.mean(axis=0) - exact) < 4 * error)
    assert np.all(error < 0.05 * np.abs(exact))  # the test can see an error of a fifth


def outer_runs_of(theta: Theta, members: int, std: float, seeds: int) -> outer_runs.OuterRuns:

    task = InnerTask(paraboloid(noise=0.5), theta, PER_ITERATION, 1, 1, "final", "return")
    strategy = make_strategy("open-es", members, theta.initial, lambda lr: optax.sgd(1.0), raw=True)
    learner = learners.Evolution(strategy, learners.OuterHParams(1.0, std, 1.0), members, "raw")
    options = checked(jaxrl.meta, MetaOptions, {"progress": False})
    return outer_runs.OuterRuns([task], learner, theta.initial, 1, range(seeds), options, 4096, StopRequest())


def test_members_share_seeds_and_come_in_pairs():
    runs = outer_runs_of(place_theta(0.2, 0.4), 8, 0.3, 3)
    population = runs.thetas()
    for name, start in (("x", 0.2), ("y", 0.4)):
        noise = population[name] - start
        np.testing.assert_allclose(noise[:, :4], -noise[:, 4:], atol=1e-6)
        assert len(np.unique(np.abs(noise[0]).round(5))) == 4
    seeds = [runs.inner_seeds(generation) for generation in range(3)]
    assert len(np.unique(np.concatenate(seeds))) == 9  # other ones for each generation and outer seed


def test_strategies_climb_to_the_peak():
    learned = meta(generations=60, population=16, lr=0.1, std=0.1, std_decay=0.97, seeds=4)
    thetas = np.stack([learned.result.policies["['x']"][0], learned.result.policies["['y']"][0]], axis=-1)
    np.testing.assert_allclose(thetas, np.broadcast_to(PEAK, thetas.shape), atol=0.1)
    start, end = learned.table().rows
    assert (start[1], end[1]) == ("start", "learned")
    np.testing.assert_allclose(start[2], height(np.zeros(2)), rtol=1e-5)
    assert end[2] > -0.02
    assert learned.result.values("distance")[0, :, -1] == pytest.approx(np.linalg.norm(thetas, axis=1))
    np.testing.assert_allclose(learned.result.values("theta")[0, :, -1], thetas)
    hparams = learned.hparams(seed=3)
    assert float(hparams.x) == learned.learned(3)["x"]


def test_inner_trainings_are_those_of_train():
    """PPO, and an area over evaluations: each score is the mean return of a training with the same seed."""
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, hidden=(8,))
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    theta = Theta("lr", np.float32(0), lambda theta, hparams: hparams.replace(lr=3e-4 * jnp.exp(theta)))
    scores: list[np.ndarray] = []
    original = learners.fitness_of

    def seen(columns: np.ndarray, shaping: str) -> np.ndarray:
        scores.append(columns)
        return original(columns, shaping)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learners, "fitness_of", seen)
        options = {"inner_steps": 96, "population": 4, "inner_seeds": 2, "seeds": [7], "generations": 1, "std": 1.0}
        jaxrl.meta(
            algo, theta, objective="area", evals=3, eval_episodes=4, test_seeds=0, block=8, progress=False, **options
        )
    runs = _runs(algo, theta)
    population = runs.thetas()[0]
    lrs = np.asarray(jax.jit(jax.vmap(lambda t: theta.apply(t, algo.hparams).lr))(population))
    seeds = [int(seed) for seed in runs.inner_seeds(0)[0]]
    sweep = jaxrl.grid(algo.hparams, {"lr": lrs.tolist()})
    result = jaxrl.train(algo, sweep, seeds=seeds, env_steps=96, evals=3, eval_episodes=4, block=8, progress=False)
    np.testing.assert_array_equal(scores[0], result.values("return").mean(axis=2))


def _runs(algo: Any, theta: Theta) -> outer_runs.OuterRuns:
    task = InnerTask(algo, theta, 96, 3, 4, "area", "return")
    options = checked(jaxrl.meta, MetaOptions, {"progress": False})
    hparams = learners.OuterHParams(0.03, 1.0, 1.0)
    learner = learners.Evolution(make_strategy("open-es", 4, theta.initial), hparams, 4, "ranks")
    return outer_runs.OuterRuns([task], learner, theta.initial, 2, [7], options, 8, StopRequest())


def test_failed_trainings_are_counted_and_left_out_of_means():
    learned = meta(theta=place_theta(NAN_ABOVE - 0.1), std=0.5, generations=1, seeds=1, inner_seeds=2)
    failed = learned.result.values("failed")[0, 0, 0]
    assert 0 < failed < 16 and failed % 2 == 0  # both seeds of a member
    assert np.isfinite(learned.result.values("return")).all()
    assert learned.learned()["x"] < NAN_ABOVE - 0.1  # away from failures, although the peak is not the reason alone


def test_a_resumed_call_equals_one_in_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    algo = paraboloid(noise=0.3)
    whole = meta(algo)
    generation, done = outer_runs.OuterRuns._generation, []

    def interrupted(self: outer_runs.OuterRuns) -> bool:
        if len(done) == 2:
            self._stop.signal = signal.SIGTERM
        done.append(1)
        return generation(self)

    monkeypatch.setattr(outer_runs.OuterRuns, "_generation", interrupted)
    with pytest.warns(RuntimeWarning, match=r"^meta-training stopped by SIGTERM; the same call with resume=True"):
        stopped = meta(algo, out=tmp_path / "out")
    assert stopped.stopped_by_signal == signal.SIGTERM
    assert stopped.result.metrics.sizes["env_step"] == 2 and not stopped.held_out
    monkeypatch.setattr(outer_runs.OuterRuns, "_generation", generation)
    resumed = meta(algo, out=tmp_path / "out", resume=True)
    same(whole, resumed)
    for name, result in whole.held_out.items():
        np.testing.assert_array_equal(result.values("return"), resumed.held_out[name].values("return"))
    loaded = jaxrl.load_result(tmp_path / "out")
    np.testing.assert_array_equal(loaded.values("theta"), whole.result.values("theta"))
    assert jaxrl.load_theta(tmp_path / "out", place_theta(), 1) == whole.learned(1)
    with pytest.raises(ValueError, match=r"^the result is not of the theta 'other'"):
        jaxrl.load_theta(tmp_path / "out", Theta("other", np.float32(0), lambda theta, hparams: hparams))
    (compared,) = (tmp_path / "out" / "held-out").iterdir()
    assert jaxrl.load_result(compared, algo).settings[0] == {"theta": "start"}
    again = meta(algo, out=tmp_path / "out", resume=True)  # finished: nothing is trained again
    same(whole, again)
    with pytest.raises(ValueError, match="std"):
        meta(algo, out=tmp_path / "out", resume=True, std=0.2)


def test_a_signal_in_the_comparison_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, other = paraboloid(), paraboloid(steps=2)
    trained, begun = held_out._trained, []

    def interrupted(call: Any, out: Any, options: Any, stop: Any) -> Any:
        begun.append(out)
        if len(begun) == 2:
            stop.signal = signal.SIGINT
        return trained(call, out, options, stop)

    monkeypatch.setattr(held_out, "_trained", interrupted)
    with pytest.warns(RuntimeWarning):
        stopped = meta(one, tasks=[one, other], out=tmp_path, generations=1)
    assert len(begun) == 2 and not stopped.held_out and stopped.stopped_by_signal == signal.SIGINT
    monkeypatch.setattr(held_out, "_trained", trained)
    resumed = meta(one, tasks=[one, other], out=tmp_path, generations=1, resume=True)
    assert len(resumed.held_out) == 2 and not resumed.stopped_by_signal


def test_another_map_of_equal_start_is_another_call(tmp_path: Path):
    def swapped(theta: Any, hparams: HParams) -> HParams:
        return dataclasses.replace(hparams, x=theta["y"], y=theta["x"])

    meta(out=tmp_path, generations=1, test_seeds=0)
    with pytest.raises(ValueError, match="tasks"):
        meta(out=tmp_path, generations=2, test_seeds=0, resume=True, theta=place_theta()._replace(apply=swapped))


def test_longer_trainings_of_the_comparison_are_repeated(tmp_path: Path):
    meta(out=tmp_path, generations=1)
    longer = meta(out=tmp_path, generations=1, resume=True, test_steps=3 * PER_ITERATION)
    (result,) = longer.held_out.values()
    assert int(result.metrics["env_step"][-1]) == 3 * PER_ITERATION
    assert result.metrics.attrs["run_length"] == 3 * PER_ITERATION


def test_an_edited_algorithm_is_not_built_without_its_edits():
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=16, hidden=(4,)))
    edited = algo._replace(step=lambda *arguments: algo.step(*arguments))
    theta = Theta("lr", np.float32(0), lambda theta, hparams: hparams.replace(lr=3e-4 * jnp.exp(theta)))
    with pytest.raises(ValueError, match=r"^tasks takes algorithms, since ppo was changed after it was built"):
        meta(edited, theta, tasks=["acrobot"], inner_steps=32)


def test_derivatives_are_those_of_each_setting():
    """Programs are shared between tasks of equal functions, but not between hyper-parameters."""
    algo, start = climbing(), place_theta(0.02, 0.1)
    only_x = Theta("x", start.initial["x"], lambda theta, hparams: dataclasses.replace(hparams, x=theta))
    slow, fast = (algo._replace(hparams=dataclasses.replace(algo.hparams, y=y)) for y in (0.0, 0.8))
    options: dict[str, Any] = {"strategy": "gradient", "population": None, "inner_steps": 4 * PER_ITERATION}
    both = meta(algo, only_x, tasks=[slow, fast], generations=1, test_seeds=0, **options)
    for i, each in enumerate((slow, fast)):
        alone = meta(each, only_x, generations=1, test_seeds=0, **options)
        of_task = both.result.values("task_return")[0, :, 0, i]
        np.testing.assert_array_equal(of_task, alone.result.values("return")[0, :, 0])
    returns = both.result.values("task_return")[0, :, 0]
    assert np.all(returns[:, 0] != returns[:, 1])


@flax.struct.dataclass
class Point:
    """A theta that is a dataclass."""

    values: Any


@pytest.mark.parametrize("kind", ["array", "nested", "dataclass"])
def test_thetas_of_any_structure_are_saved(kind: str, tmp_path: Path):
    zeros = np.zeros(2, np.float32)
    initial: Any = {"array": zeros, "nested": {"x": zeros[0], "rest": [zeros[1]]}, "dataclass": Point(zeros)}[kind]

    def apply(theta: Any, hparams: Any) -> Any:
        x, y = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(theta)])
        return dataclasses.replace(hparams, x=x, y=y)

    theta = Theta("place", initial, apply)
    learned = meta(theta=theta, out=tmp_path, test_seeds=0, generations=1)
    jax.tree.map(np.testing.assert_array_equal, learned.learned(1), jaxrl.load_theta(tmp_path, theta, 1))
    assert jax.tree.structure(learned.learned()) == jax.tree.structure(initial)
    loaded = jaxrl.load_result(tmp_path)
    loaded.save(tmp_path / "again")
    jax.tree.map(np.testing.assert_array_equal, learned.learned(), jaxrl.load_theta(tmp_path / "again", theta))


def test_shards_have_the_outer_seeds_of_the_whole(tmp_path: Path):
    algo = paraboloid(noise=0.3)
    whole = meta(algo, test_seeds=0)
    for i in range(2):
        meta(algo, test_seeds=0, shard=(i, 2), out=tmp_path / str(i))
    merged = jaxrl.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "merged")
    np.testing.assert_array_equal(merged.values("theta"), whole.result.values("theta"))


def test_several_tasks_count_alike():
    one, other = paraboloid(), paraboloid(steps=50)  # 50 times the return
    learned = meta(one, tasks=[one, other], generations=1, held_out=[other])
    returns = learned.result.values("task_return")[0, :, 0]
    np.testing.assert_allclose(returns[:, 1], 50 * returns[:, 0], rtol=1e-4)
    np.testing.assert_allclose(learned.result.values("return")[0, :, 0], returns.mean(axis=1), rtol=1e-5)
    assert list(learned.held_out) == [other.env.name]
    twice = meta(one, generations=1, held_out=[one, other])
    assert list(twice.held_out) == [f"{one.env.name} 1", f"{one.env.name} 2"]
    alone = meta(one, generations=1, test_seeds=0)
    same_thetas(alone, learned)  # equal ranks on both


def test_the_discount_of_the_objective_is_not_that_of_the_algorithm():
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, hidden=(8,))
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    theta = Theta("lr", np.float32(0), lambda theta, hparams: hparams.replace(lr=3e-4 * jnp.exp(theta)))
    options = QUICK | {"inner_steps": 256, "seeds": 1, "generations": 1, "test_seeds": 2, "std": 4.0}
    learned = jaxrl.meta(algo, theta, discount=0.9, **options)
    lowest = 1 + 0.9 + 0.9**2 + 0.9**3 + 0.9**4  # a pole stands for five steps or more
    assert lowest < learned.result.values("return")[0, 0, 0] < 10.0
    assert all(lowest < value < 10.0 for value in learned.table().to_pandas()["iqm"])
    compared = next(iter(learned.held_out.values()))
    assert np.all(compared.values("return") > compared.values("discounted_return"))


def climbing() -> Any:
    """An algorithm that ascends a paraboloid by steps of size `x` with momentum `y`, from a random place."""
    original = paraboloid()

    def init(key: jax.Array, hparams: HParams, env_params: Any) -> Any:
        place = jax.random.normal(key, (2,))
        return place, jnp.zeros(2)

    def step(key: Any, iteration: Any, state: Any, hparams: HParams, env_params: Any) -> Any:
        place, velocity = state
        velocity = hparams.y * velocity - hparams.x * 2 * CURVATURE * (place - PEAK)
        return (place + velocity, velocity), {"norm": jnp.sum(velocity**2)}

    def policy(state: Any, hparams: HParams) -> jax.Array:
        return -jnp.sum(CURVATURE * (state[0] - PEAK) ** 2)

    return original._replace(name="climbing", init=init, step=step, policy=policy)


def climbed(place: np.ndarray, x: float, y: float, steps: int) -> float:
    """Float64 reference of `climbing`."""
    velocity = np.zeros(2)
    for _ in range(steps):
        velocity = y * velocity - x * 2 * CURVATURE * (place - PEAK)
        place = place + velocity
    return float(height(place))


def test_truncated_gradients_equal_finite_differences_in_float64():
    """Through three steps of learning, and the mean over two evaluations of it."""
    algo, start, steps = climbing(), place_theta(0.05, 0.6), 4
    task = GradientTask(InnerTask(algo, start, steps * PER_ITERATION, 2, 1, "area", "return"))
    options = checked(jaxrl.meta, MetaOptions, {"progress": False})
    runs = outer_runs.OuterRuns([task], learners.Ascent(0.1), start.initial, 4, [3], options, 4, StopRequest())
    seeds = runs.inner_seeds(0)[0]
    thetas = jax.tree.map(lambda leaf: np.repeat(leaf[None], 4), start.initial)
    outcome = task.train(runs._waves[0], thetas, seeds, StopRequest())
    assert outcome is not None

    def reference(seed: int, x: float, y: float) -> float:
        key = jax.random.split(jax.random.key(np.uint32(seed)), 3)[0]  # the key of `init`, see `runtime.loop`
        place = np.asarray(jax.random.normal(key, (2,)), np.float64)
        return (climbed(place, x, y, 2) + climbed(place, x, y, 4)) / 2

    step = 1e-6
    for i, seed in enumerate(seeds.tolist()):
        np.testing.assert_allclose(outcome.value[i], reference(seed, 0.05, 0.6), rtol=1e-5)
        by_x = (reference(seed, 0.05 + step, 0.6) - reference(seed, 0.05 - step, 0.6)) / (2 * step)
        by_y = (reference(seed, 0.05, 0.6 + step) - reference(seed, 0.05, 0.6 - step)) / (2 * step)
        np.testing.assert_allclose(outcome.gradient[i], [by_x, by_y], rtol=2e-4, atol=1e-4)
    runs.advance(1)  # the first step of Adam has the size of lr, along the sign of the mean derivative
    signs = np.sign(outcome.gradient.mean(axis=0))
    learned = np.asarray([each[0] for each in runs.kept().values()])
    np.testing.assert_allclose(learned, [0.05, 0.6] + 0.1 * signs, rtol=1e-4)


@pytest.mark.slow
def test_gradients_of_a2c_equal_differences():
    """On a pendulum, whose returns have derivatives by the step size through actions and dynamics."""
    config = jaxrl.A2CConfig(num_envs=2, num_steps=8, hidden=(8,))
    algo = jaxrl.a2c(envs.make("pendulum"), config)
    theta = Theta("lr", np.float32(0), lambda theta, hparams: hparams.replace(lr=3e-3 * jnp.exp(theta)))
    task = GradientTask(InnerTask(algo, theta, 64, 1, 2, "final", "return"))
    options = checked(jaxrl.meta, MetaOptions, {"progress": False})
    runs = outer_runs.OuterRuns([task], learners.Ascent(0.1), theta.initial, 4, [0], options, 4, StopRequest())
    seeds = runs.inner_seeds(0)[0]
    at = task.train(runs._waves[0], np.zeros(4, np.float32), seeds, StopRequest())
    # Returns near 1000 are rounded to 1e-4, so differences have errors of 0.3; larger steps meet kinks of the clips.
    step = np.float32(5e-4)
    above, below = (task.train(runs._waves[0], np.full(4, sign * step), seeds, StopRequest()) for sign in (1, -1))
    assert at is not None and above is not None and below is not None
    difference = (above.value - below.value) / (2 * step)
    np.testing.assert_allclose(at.gradient[:, 0], difference, rtol=0.03, atol=0.5)


def test_gradient_ascent_resumes_and_is_compared(tmp_path: Path):
    options: dict[str, Any] = {"strategy": "gradient", "lr": 0.02, "inner_steps": 4 * PER_ITERATION, "inner_seeds": 4}
    algo, start = climbing(), place_theta(0.02, 0.1)
    whole = meta(algo, start, generations=20, population=None, **options)
    meta(algo, start, generations=8, population=None, out=tmp_path / "out", **options)
    longer = meta(algo, start, generations=20, population=None, out=tmp_path / "out", resume=True, **options)
    same_thetas(whole, longer)
    start_row, end_row = whole.table().rows
    assert end_row[2] > start_row[2] and whole.learned()["x"] > 0.02


def test_gradients_take_continuous_actions_and_derivatives():
    algo = jaxrl.ppo(envs.make("cartpole"))
    theta = Theta("lr", np.float32(0), lambda theta, hparams: hparams.replace(lr=3e-4 * jnp.exp(theta)))
    changes: dict[str, Any] = {"strategy": "gradient", "population": None, "inner_steps": 512}
    with pytest.raises(ValueError, match=r"^strategy='gradient' takes tasks of continuous actions, .*, got Discrete"):
        meta(algo, theta, **changes)
    unused = Theta("unused", np.float32(0), lambda theta, hparams: dataclasses.replace(hparams, unused=theta))
    with pytest.raises(ValueError, match=r"^the objective must have derivatives by theta"):
        meta(theta=unused, **changes)
    with pytest.raises(ValueError, match=r"^std has no effect with strategy='gradient'; leave it out$"):
        meta(std=0.1, **changes)


MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"theta": "drift"}, "^theta takes a Theta, such as .*, got 'drift'$"),
    ({"theta": Theta({}, jnp.sin, "place")}, r"^theta takes Theta\(name, initial, apply\), of a string, numbers"),  # type: ignore[arg-type]
    ({"held_out": [paraboloid()], "test_seeds": 0}, "^held_out has no effect with test_seeds=0"),
    ({"inner_steps": 0}, "^inner_steps must be"),
    ({"population": 1}, "^population must be"),
    ({"population": 7}, "^population=7 does not fit"),
    ({"objective": "best"}, "^objective must be"),
    ({"objective": "area", "evals": 1}, "^evals must be 1 for objective='final' and at least 2 for 'area', got 1"),
    ({"std": 0.0}, "^std must be a finite number above 0, got 0.0$"),
    ({"tasks": "cartpole"}, r"^tasks takes a list, such as \['cartpole', 'acrobot'\], got 'cartpole'$"),
    ({"tasks": []}, "^tasks takes at least one task"),
    ({"tasks": ["cartpole"]}, "^tasks takes algorithms, since paraboloid has no builder"),
    ({"tasks": [3]}, "^tasks takes environments, their names, or algorithms on them, .*, got 3$"),
    ({"strategy": "simple-ga"}, "^strategy must be 'gradient' or one with a mean, .*, got 'simple-ga', without one"),
    ({"strategy": "open-se"}, "There is no evolution strategy 'open-se'"),
    ({"strategy": "sep-cma-es", "lr": 0.5}, "^lr has no effect with strategy='sep-cma-es'; leave it out$"),
    ({"strategy": "snes", "shaping": "raw"}, "^shaping='raw' has no effect with strategy='snes'"),
    ({"seed": 3}, "^meta takes .*, and the options .*, got seed"),
]


@pytest.mark.parametrize(("changes", "message"), MESSAGES, ids=[next(iter(each[0])) for each in MESSAGES])
def test_bad_arguments_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        meta(**changes)


def test_a_theta_without_effect_is_refused():
    def ignored(theta: Any, hparams: HParams) -> HParams:
        return dataclasses.replace(hparams, x=theta["x"])

    with pytest.raises(
        ValueError, match=r"^theta 'place' must change .* of paraboloid on .*, but \['y'\] changes none"
    ):
        meta(theta=place_theta()._replace(apply=ignored))
    with pytest.raises(ValueError, match=r"^theta 'none' has no numbers to learn"):
        meta(theta=Theta("none", {}, lambda theta, hparams: hparams))
    with pytest.raises(TypeError, match=r"^theta 'place' must return hyper-parameters of paraboloid, HParams"):
        meta(theta=place_theta()._replace(apply=lambda theta, hparams: {}))
    with pytest.raises(ValueError, match=r"^theta 'place' must start at finite numbers"):
        meta(theta=place_theta(np.nan))


def test_numbers_that_cancel_or_end_a_range_have_an_effect():
    def softmax(theta: Any, hparams: HParams) -> HParams:
        weights = jax.nn.softmax(theta["logits"])
        return dataclasses.replace(hparams, x=weights[0], y=jnp.minimum(theta["end"], 0.0))

    initial = {"logits": np.zeros(2, np.float32), "end": np.float32(0)}
    assert meta(theta=Theta("softmax", initial, softmax), generations=1, test_seeds=0).learned()["end"].shape == ()


def test_a_constant_objective_is_refused():
    def unused(theta: Any, hparams: HParams) -> HParams:
        return dataclasses.replace(hparams, unused=theta)

    with pytest.raises(
        ValueError,
        match=r"^the objective must tell thetas apart, got equal values for all 8 members",
    ):
        meta(theta=Theta("unused", np.float32(0), unused))
    # Other shards may have a seed whose members differ, with which the whole call is accepted.
    with pytest.warns(
        RuntimeWarning, match=r"^if the other shards are like this one, nothing is learned: the objective"
    ):
        meta(theta=Theta("unused", np.float32(0), unused), shard=(0, 2), generations=1, test_seeds=0)


def test_tasks_on_which_the_algorithm_cannot_be_built_are_named():
    algo = jaxrl.dqn(envs.make("cartpole"))
    theta = Theta("lr", np.float32(0), lambda theta, hparams: hparams.replace(lr=3e-4 * jnp.exp(theta)))
    with pytest.raises(ValueError, match=r"^tasks has pendulum, on which dqn cannot be built: "):
        jaxrl.meta(algo, theta, ["cartpole", "pendulum"], **QUICK)


def test_results_without_held_out_tasks_say_so():
    learned = meta(test_seeds=0, generations=1)
    with pytest.raises(ValueError, match="has no held-out results"):
        learned.table()
    with pytest.raises(ValueError, match=r"^seed takes one of the outer seeds 0, 1, got 5$"):
        learned.learned(5)
    assert "place of paraboloid" in repr(learned)
    assert dataclasses.is_dataclass(learned)
