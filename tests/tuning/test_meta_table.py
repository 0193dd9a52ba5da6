"""The table of held-out tasks: the value of the objective, shards, files, and errors before the first generation."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from out_of_memory import exhausted_at
from paraboloid_algorithm import PER_ITERATION, paraboloid, place_theta

import jaxrl
from jaxrl.results.statistics import iqm
from jaxrl.runtime.checkpoints.identity_file import read_identity
from jaxrl.tuning.outer import outer_runs


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
    with pytest.raises(ValueError, match=r"^paths takes directories of meta-trainings, .*, got none$"):
        jaxrl.load_meta_table([])
    with pytest.raises(ValueError, match=r"^metric is 'returns'; did you mean 'return'"):
        jaxrl.load_meta_table(shards, "returns")


def test_results_of_tasks_that_are_left_out_later_are_deleted(tmp_path: Path) -> None:
    one, other = paraboloid(), paraboloid(steps=2)
    meta(one, held_out=[other, one], out=tmp_path)
    kept = tmp_path / "held-out" / "notes"
    kept.mkdir()
    meta(one, held_out=[one], out=tmp_path, resume=True)
    (folder,) = (each for each in (tmp_path / "held-out").iterdir() if each != kept)
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
    with pytest.raises(ValueError, match="block is 8 there and 4 here"):
        meta(paraboloid(), test_seeds=0, out=tmp_path, resume=True, generations=2, block=4)


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
