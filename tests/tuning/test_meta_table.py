"""The table of held-out tasks: the value of the objective, shards, files, and errors before the first generation."""

import dataclasses
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import echo_environment
import jax
import numpy as np
import pytest
from out_of_memory import exhausted_at
from paraboloid_algorithm import PER_ITERATION, paraboloid, place_theta

import envs
import jaxrl
from envs import base, discount_curves
from jaxrl.results.checksums import sealed_json
from jaxrl.results.statistics import iqm
from jaxrl.runtime.checkpoints.identity_file import read_identity
from jaxrl.tuning.outer import held_out, outer_runs


def meta(algo: Any, **changes: Any) -> jaxrl.MetaResult:
    options: dict[str, Any] = {
        "inner_steps": PER_ITERATION,
        "generations": 1,
        "population": 8,
        "seeds": 2,
        "test_seeds": 3,
    }
    options |= {"eval_episodes": 1, "block": 8, "progress": False} | changes
    return jaxrl.meta(algo, place_theta(), **options)


def rising(noise: float = 0.0) -> Any:
    """A paraboloid whose return rises by 100 in each iteration."""

    def step(key: Any, iteration: Any, state: jax.Array, hparams: Any, env_params: Any) -> Any:
        return state + 100.0, {"noise": state}

    return paraboloid(noise)._replace(step=step)


def test_the_table_has_the_value_of_the_objective() -> None:
    area = meta(rising(0.3), objective="area", evals=2, inner_steps=10 * PER_ITERATION)
    final = meta(rising(0.3), inner_steps=10 * PER_ITERATION)
    (of_area,), (of_final,) = area.held_out.values(), final.held_out.values()
    start = area.table().to_pandas().set_index("theta").loc["start"]
    curves = np.asarray(of_area.values("return"), np.float64)[0]
    assert start["mean"] == pytest.approx(curves.mean(), rel=1e-5)
    assert start["iqm"] == pytest.approx(float(iqm(curves.mean(axis=1))), rel=1e-5)
    at_end = final.table().to_pandas().set_index("theta").loc["start"]
    assert at_end["mean"] == pytest.approx(of_final.values("return")[0, :, -1].mean(), rel=1e-5)
    assert at_end["mean"] - start["mean"] == pytest.approx(450.0, rel=0.01)  # the mean of ten evaluations, 100 apart
    assert "mean over the evaluations of a training" in str(area.table())
    assert "mean over the evaluations" not in str(final.table())


def test_the_table_of_shards_is_that_of_the_whole(tmp_path: Path) -> None:
    algo = paraboloid(noise=0.3)
    whole = meta(algo, seeds=3, out=tmp_path / "whole")
    shards = [tmp_path / str(i) for i in range(3)]
    for i, out in enumerate(shards):
        meta(algo, seeds=3, shard=(i, 3), out=out)
    expected = whole.table().to_pandas()
    columns = ["iqm", "mean", "runs", "failed"]
    for paths in (shards, [tmp_path / "whole"], tmp_path / "whole"):
        table = jaxrl.load_meta_table(paths).to_pandas()
        np.testing.assert_allclose(table[columns].to_numpy(), expected[columns].to_numpy(), rtol=1e-6)
        np.testing.assert_allclose(table[["low", "high"]].to_numpy(), expected[["low", "high"]].to_numpy(), rtol=1e-6)
    with pytest.raises(ValueError, match=r"^paths takes each outer seed once, but two directories have seed 0$"):
        jaxrl.load_meta_table([shards[0], shards[0]])
    with pytest.raises(ValueError, match=r"has no held-out results"):
        jaxrl.load_meta_table([shards[0], tmp_path])
    with pytest.raises(ValueError, match=r"^there is no such directory: .*missing$"):
        jaxrl.load_meta_table(tmp_path / "missing")
    (folder,) = (tmp_path / "whole" / "held-out").iterdir()
    (folder / "metrics.nc").unlink()
    with pytest.raises(ValueError, match=r"whole has an incomplete comparison on held-out tasks, resume it: "):
        jaxrl.load_meta_table(tmp_path / "whole")
    with pytest.raises(TypeError, match=r"^theta takes a Theta, such as .*, got '"):
        jaxrl.load_theta(place_theta(), str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^the result is not of the theta 'place'"):
        jaxrl.load_theta(tmp_path / "0" / "held-out" / folder.name, place_theta())
    with pytest.raises(ValueError, match=r"^paths takes directories of meta-trainings, .*, got none$"):
        jaxrl.load_meta_table([])
    with pytest.raises(ValueError, match=r"^metric is 'returns'; did you mean 'return'"):
        jaxrl.load_meta_table(shards, "returns")


def test_directories_of_other_calls_are_refused(tmp_path: Path) -> None:
    algo = paraboloid(noise=0.3)
    meta(algo, seeds=[0], out=tmp_path / "0")
    for name, changes, difference in (
        ("std", {"std": 0.2}, "std is 0.1 there and 0.2 here"),
        (
            "objective",
            {"objective": "area", "inner_steps": 4 * PER_ITERATION},
            'objective is "final" there and "area" here',
        ),
        ("tests", {"test_seeds": 4}, "test_seeds is"),
        ("tasks", {"held_out": [algo, algo]}, "held_out is"),
    ):
        meta(algo, seeds=[1], out=tmp_path / name, **changes)
        with pytest.raises(ValueError, match=rf"{name} is not a shard of the meta-training in .*0: {difference}"):
            jaxrl.load_meta_table([tmp_path / "0", tmp_path / name])


def test_results_of_other_thetas_or_of_some_tasks_are_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algo = paraboloid(noise=0.3)
    meta(algo, out=tmp_path / "extended")
    meta(algo, out=tmp_path / "extended", resume=True, generations=2, test_seeds=0)
    with pytest.raises(
        ValueError, match=r"extended has held-out results of other thetas than it has learned: resume it"
    ):
        jaxrl.load_meta_table(tmp_path / "extended")
    trained, begun = held_out._trained, []

    def interrupted(call: Any, out: Any, options: Any, stop: Any) -> Any:
        begun.append(out)
        result = trained(call, out, options, stop)
        stop.signal = signal.SIGINT
        return result

    monkeypatch.setattr(held_out, "_trained", interrupted)
    with pytest.warns(RuntimeWarning, match="meta-training stopped"):
        meta(algo, held_out=[algo, paraboloid(steps=2)], out=tmp_path / "stopped")
    assert len(begun) == 1
    with pytest.raises(ValueError, match=r"stopped has results of 1 of 2 held-out tasks"):
        jaxrl.load_meta_table(tmp_path / "stopped")


@dataclasses.dataclass(frozen=True)
class Weighed(echo_environment.Echo):
    """Has an optimum that differs from one discount to another: the sum of its first two weights."""

    def optimum(self, params: Any = None, discount: Any = None, kind: base.OptimumKind = "precommitted") -> float:
        return float(np.sum(discount_curves.of(discount, 2)))


def test_a_discount_of_the_objective_has_recorded_optima(tmp_path: Path) -> None:
    algo = paraboloid()._replace(env=envs.wrappers.time_limit(Weighed(), 2))
    meta(algo, discount="hyperbolic:k=0.5", std=1.0, out=tmp_path)
    (folder,) = (tmp_path / "held-out").iterdir()
    recorded = json.loads((folder / "config.json").read_text())["optima"]
    np.testing.assert_allclose(recorded["discounted_return"], 3 * [1 + 1 / 1.5], rtol=1e-6)
    np.testing.assert_allclose(recorded["return"], 3 * [2.0], rtol=1e-6)


def test_results_of_tasks_that_are_left_out_later_are_deleted(tmp_path: Path) -> None:
    one, other = paraboloid(), paraboloid(steps=2)
    meta(one, held_out=[other, one], out=tmp_path)
    for name in ("best-so-far", "2024a-b"):
        shutil.copytree(tmp_path / "held-out" / f"0-{other.env.name}", tmp_path / "held-out" / name)
    meta(one, held_out=[one], out=tmp_path, resume=True)
    (folder,) = (each for each in (tmp_path / "held-out").iterdir() if each.name not in ("best-so-far", "2024a-b"))
    assert folder.name == f"0-{one.env.name}"
    assert jaxrl.load_meta_table(tmp_path).to_pandas()["task"].unique().tolist() == [one.env.name]


def test_errors_of_held_out_tasks_come_before_the_first_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    def generation(self: outer_runs.OuterRuns) -> bool:
        raise AssertionError("a generation has begun")

    monkeypatch.setattr(outer_runs.OuterRuns, "_generation", generation)

    def prepare(hparams: Any, num_runs: int, env_steps: int) -> Any:
        if env_steps > PER_ITERATION:
            raise ValueError("env_steps is too large")
        return hparams

    with pytest.raises(ValueError, match="env_steps is too large"):
        meta(paraboloid(), held_out=[paraboloid()._replace(prepare=prepare)], test_steps=2 * PER_ITERATION)


def test_a_resumed_call_takes_the_width_of_the_first_and_refuses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta(paraboloid(), test_seeds=0, out=tmp_path)
    for _ in range(2):  # also as an earlier version recorded it, without the width that was asked for
        with pytest.raises(ValueError, match="block is 8 there and 4 here"):
            meta(paraboloid(), test_seeds=0, out=tmp_path, resume=True, generations=2, block=4)
        recorded = {**read_identity(tmp_path), "asked": {}}
        (tmp_path / "run.json").write_bytes(sealed_json({k: v for k, v in recorded.items() if k != "checksum"}))


def test_a_width_that_became_narrower_for_lack_of_memory_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = meta(paraboloid(), test_seeds=0, generations=3)
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(3))
    with pytest.warns(RuntimeWarning, match="blocks of 4"):
        begun = meta(paraboloid(), test_seeds=0, generations=2, out=tmp_path)
    monkeypatch.undo()
    assert read_identity(tmp_path)["block"] == begun.result.metrics.attrs["block"] == 4
    for block in (None, 8):
        widths: list[int] = []
        make = outer_runs.plan_layout

        def seen(count: int, block: Any, devices: Any, widths: list[int] = widths, make: Any = make) -> Any:
            widths.append(block)
            return make(count, block, devices)

        with monkeypatch.context() as patched:
            patched.setattr(outer_runs, "plan_layout", seen)
            resumed = meta(paraboloid(), test_seeds=0, generations=3, out=tmp_path, resume=True, block=block)
        assert widths == [4]
        np.testing.assert_allclose(resumed.result.values("theta"), whole.result.values("theta"), rtol=1e-5)
