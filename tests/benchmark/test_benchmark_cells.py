"""The cells of the benchmark, and the files that it keeps of them."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
from documents import ROOT
from matplotlib.figure import Figure

import envs
import jaxrl
from envs.errors import MissingPackageError, UserError
from jaxrl.algorithms.registry import ROWS
from jaxrl.benchmark import CELLS, PUBLISHED, Benchmark, Cell, Published, beside_published, cell, load, run, verify
from jaxrl.benchmark.data import returns_at, store, up_to
from jaxrl.benchmark.measured import Measured, store_measured
from jaxrl.benchmark.running import _trained as trained_cell
from jaxrl.benchmark.running import commit
from jaxrl.cli.benchmark import run_benchmark
from jaxrl.cli.main import main
from jaxrl.cli.parsing import CommandError
from jaxrl.policies.load_exported import load_weights
from jaxrl.presets import PRESETS
from jaxrl.report.entries import entries_of
from jaxrl.results.dataset import ResultError

SMALL = cell("a2c", "delayed-choice")._replace(env_steps=2_400, seeds=3)  # 30 iterations


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the data of one small cell."""
    directory = tmp_path_factory.mktemp("benchmark")
    assert run(SMALL, directory, runs=directory / "runs", progress=False) is not None
    return directory


def loaded(directory: Path) -> Benchmark:
    """The benchmark with the data of the small cell."""
    have = load(directory)
    assert have.cells == (cell("a2c", "delayed-choice"),)
    return have


def test_there_are_120_different_cells_of_known_algorithms_and_every_preset() -> None:
    pairs = [(each.algorithm, each.environment) for each in CELLS]
    assert len(CELLS) >= 120 and len(set(pairs)) == len({each.stem for each in CELLS}) == len(CELLS)
    assert {algorithm for algorithm, _ in pairs} == set(ROWS)
    assert {(row.algorithm, row.environment) for row in PRESETS} <= set(pairs)
    assert all(each.seeds >= 16 and each.env_steps > 0 for each in CELLS)


@pytest.mark.parametrize("each", [each for each in CELLS if each.settings == "defaults"], ids=lambda each: each.name)
def test_the_algorithm_of_a_cell_with_defaults_can_be_built(each: Cell) -> None:
    algo = each.algo()
    assert (algo.name, algo.env.name) == (each.algorithm, envs.make(each.environment).name)
    assert each.env_steps // algo.env_steps_per_iteration >= 20  # evaluations


def test_the_curves_of_a_cell_are_those_of_train(data: Path) -> None:
    kept = loaded(data).result("a2c", "delayed-choice")
    trained = jaxrl.train(SMALL.algo(), seeds=3, env_steps=2_400, evals=20, eval_episodes=16, eval_at_start=True)
    for name in ("return", "discounted_return"):
        np.testing.assert_array_equal(kept.values(name), trained.values(name))
    np.testing.assert_array_equal(kept.metrics["env_step"], trained.metrics["env_step"])
    assert kept.metrics.sizes["env_step"] == 21 and kept.seeds == [0, 1, 2]
    table = pandas.read_parquet(data / f"{SMALL.stem}.parquet")
    assert list(table.columns) == ["seed", "env_step", "return", "discounted_return"] and len(table) == 63


def test_a_cell_records_its_origin_and_one_policy(data: Path) -> None:
    kept = loaded(data).result("a2c", "delayed-choice")
    assert kept.loaded is not None
    origin = kept.loaded["benchmark"]
    assert origin["command"] == "jaxrl benchmark run a2c delayed-choice"
    assert origin["commit"] == commit() and origin["processor"]
    assert kept.metrics.attrs["run_seconds"] > 0 and kept.loaded["versions"]["jax"]
    exported = jaxrl.load_exported(data / f"{SMALL.stem}.safetensors")
    mask = np.array([[False, True]])
    assert int(exported(np.zeros((1, 3), np.float32), mask)[0]) == 1
    policy = loaded(data).policy("a2c", "delayed-choice")
    assert policy.seed == 0 and int(policy(np.zeros((1, 3), np.float32), mask=mask)[0]) == 1
    np.testing.assert_array_equal(jaxrl.evaluate(policy, episodes=4)["return"], kept.values("return")[0, 0, -1])


def test_results_are_compared_with_the_benchmark(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = jaxrl.train("ppo", "delayed-choice", seeds=3, env_steps=2_400, evals=2, eval_episodes=4, progress=False)
    by_hand = jaxrl.compare({"mine": mine, **loaded(data).results("delayed-choice")})
    assert by_hand.names == ["mine", "a2c"]
    monkeypatch.setattr("jaxrl.benchmark.data.data_directory", lambda _: data)
    comparison = jaxrl.compare({"mine": mine}, "benchmark")
    assert comparison.names == ["mine", "benchmark a2c"] and comparison.tasks == ["delayed-choice"]
    assert jaxrl.compare({"mine": mine}, to="benchmark").table().rows == comparison.table().rows
    assert jaxrl.compare({"mine": mine}, to=loaded(data)).table().rows == comparison.table().rows
    assert jaxrl.compare({"mine": mine}, loaded(data)).names == comparison.names
    rows, other = (each.table().to_pandas().set_index("name") for each in (comparison, by_hand))
    np.testing.assert_array_equal(rows.loc["benchmark a2c"], other.loc["a2c"])
    assert rows.loc["benchmark a2c", "seeds"] == 3 and 1.0 <= rows.loc["benchmark a2c", "iqm"] <= 1.75
    assert jaxrl.compare(mine, "benchmark").names == ["ppo", "benchmark a2c"]
    broken = dataclasses.replace(mine, metrics=mine.metrics.copy(deep=True))
    broken.metrics["return"][0, -1] = np.nan
    with_failure = jaxrl.compare({"mine": broken}, "benchmark").plot().axes[0]
    for ax in (comparison.plot().axes[0], with_failure, comparison.profiles(ax=Figure().subplots())):
        ours, theirs = (line.get_linewidth() for line in ax.get_lines()[:2])
        assert ours > 1.5 * theirs  # thick among those of the benchmark
        legend = ax.get_legend()
        assert legend is not None and [line.get_linewidth() for line in legend.get_lines()] == [ours, theirs]
    mine.save(tmp_path / "mine")
    assert main(["compare", str(tmp_path / "mine"), "--to", "benchmark"]) == 0
    assert "benchmark a2c" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"^to must be one of benchmark, got 'benchmrk'; did you mean 'benchmark'"):
        jaxrl.compare({"mine": mine}, to="benchmrk")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError, match=r"^to takes 'benchmark', or its data from jaxrl.benchmark.load, got 5"):
        jaxrl.compare({"mine": mine}, to=5)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError, match="and then 'benchmark', its data, or nothing, got 2 arguments"):
        jaxrl.compare({"mine": mine}, "something")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_cell_is_trained_again_with_further_seeds(data: Path) -> None:
    (row,) = verify([SMALL], data, progress=False).to_pandas().to_dict("records")
    trained = jaxrl.train(
        SMALL.algo(), seeds=[3, 4, 5], env_steps=2_400, evals=20, eval_episodes=16, eval_at_start=True, progress=False
    )
    assert row["again"] == pytest.approx(float(jaxrl.statistics.iqm(trained.values("return")[0, :, -1])))
    table = loaded(data).table().to_pandas().iloc[0]
    assert [row["iqm"], row["low"], row["high"]] == [table["iqm"], table["low"], table["high"]]
    with pytest.raises(ResultError, match="env_step is 2,401, and the curves end at 2,400"):
        returns_at(trained, 2_401)


def test_a_run_counts_until_the_evaluation_at_which_it_fails(data: Path) -> None:
    """As in a comparison, which takes the finiteness at the evaluations around a step."""
    whole = loaded(data).result("a2c", "delayed-choice")
    failing = dataclasses.replace(whole, metrics=whole.metrics.copy(deep=True))
    failing.metrics["discounted_return"][0, 16:] = np.nan
    steps, values = whole.metrics["env_step"].values.tolist(), whole.values("return")[0].astype(np.float64)
    (entry,) = entries_of({"a2c": failing})
    for step, expected in (
        (steps[15], values[:, 15]),
        ((steps[14] + steps[15]) // 2, (values[:, 14] + values[:, 15]) / 2),
        ((steps[15] + steps[16]) // 2, (values[1:, 15] + values[1:, 16]) / 2),
        (steps[0], values[:, 0]),
        (steps[20], values[1:, 20]),
    ):
        np.testing.assert_allclose(returns_at(failing, step), expected, rtol=1e-12)
        np.testing.assert_array_equal(entry.scores("delayed-choice", "return", step).values, returns_at(failing, step))
    np.testing.assert_array_equal(up_to(failing, steps[15]).values("return")[0], values[:, :16].astype(np.float32))
    cut = up_to(failing, (steps[15] + steps[16]) // 2).values("return")[0]
    assert np.isfinite(cut[:, :-1]).all() and np.isnan(cut[:, -1]).tolist() == [True, False, False]


def test_curves_are_cut_where_others_end(data: Path) -> None:
    whole = loaded(data).result("a2c", "delayed-choice")
    steps, values = whole.metrics["env_step"].values.tolist(), whole.values("return")[0]
    middle = (steps[2] + steps[3]) // 2
    part = up_to(whole, middle)
    assert part.metrics["env_step"].values.tolist() == [*steps[:3], middle]
    np.testing.assert_allclose(part.values("return")[0, :, -1], (values[:, 2] + values[:, 3]) / 2, rtol=1e-6)
    kept, every = (each.values("discounted_return")[0] for each in (part, whole))
    np.testing.assert_array_equal(kept[:, :3], every[:, :3])
    assert up_to(whole, 10**9) is whole


def test_the_table_has_a_row_for_each_cell_with_data(data: Path) -> None:
    store_measured(Measured("delayed-choice", 2, 1.4, 0.1, 1.75), data)
    assert loaded(data).result("a2c", "delayed-choice").table().to_pandas()["optimum"].tolist() == [1.75]
    (row,) = loaded(data).table("delayed-choice").to_pandas().to_dict("records")
    assert (row["task"], row["algorithm"], row["settings"]) == ("delayed-choice", "a2c", "defaults")
    kept = loaded(data).result("a2c", "delayed-choice")
    values = kept.values("return")[0, :, -1]
    assert row["env_steps"] == kept.metrics["env_step"][-1] == 2_400  # of the data, not those of the cell today
    assert row["mean"] == pytest.approx(values.mean()) and row["seeds"] == 3
    assert len(loaded(data).missing) == len(CELLS) - 1


def test_a_cell_that_is_trained_again_is_trained_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SMALL._replace(env_steps=800, seeds=1)
    commits = iter(["one", "two"])
    monkeypatch.setattr("jaxrl.benchmark.running.commit", lambda: next(commits))
    for name in ("one", "two"):
        assert run(small, tmp_path, runs=tmp_path / "runs", progress=False) is not None
        assert not list((tmp_path / "runs").iterdir())  # from which the next call would load the same curves
        kept = loaded(tmp_path).result("a2c", "delayed-choice").loaded
        assert kept is not None and kept["benchmark"]["commit"] == name


def test_a_resumed_cell_has_the_commits_of_both_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SMALL._replace(env_steps=800, seeds=1)
    (tmp_path / "runs" / small.stem).mkdir(parents=True)
    (tmp_path / "runs" / f"{small.stem}.commit").write_text("one")
    monkeypatch.setattr("jaxrl.benchmark.running.commit", lambda: "two")
    run(small, tmp_path, runs=tmp_path / "runs", progress=False)
    kept = loaded(tmp_path).result("a2c", "delayed-choice").loaded
    assert kept is not None and kept["benchmark"]["commit"] == "one, resumed at two"


def test_a_cell_of_which_all_runs_failed_is_trained_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SMALL._replace(env_steps=800, seeds=2)
    whole, resumed = trained_cell(small, range(2), progress=False), []

    def trained(*_: object, out: Path, resume: bool, **__: object) -> jaxrl.Result:
        out.mkdir(parents=True, exist_ok=True)
        resumed.append(resume)
        if len(resumed) > 1:
            return whole
        return dataclasses.replace(whole, metrics=whole.metrics * np.nan, loaded=None)

    monkeypatch.setattr("jaxrl.benchmark.running._trained", trained)
    with pytest.raises(ResultError, match="all 2 runs of a2c on delayed-choice failed"):
        run(small, tmp_path, runs=tmp_path / "runs")
    assert not list((tmp_path / "runs").iterdir())
    assert run(small, tmp_path, runs=tmp_path / "runs") is whole and resumed == [False, False]


def test_runs_that_failed_have_no_values_and_no_stored_policy(tmp_path: Path) -> None:
    """A run whose loss is not finite has failed, although its greedy return is a number."""
    result = jaxrl.train(SMALL.algo(), seeds=3, env_steps=800, evals=2, eval_episodes=1, eval_at_start=True)
    loss = next(str(name) for name in result.metrics.data_vars if "loss" in str(name))
    result.metrics[loss][0, 1:] = np.nan
    store(SMALL, result, tmp_path, "commit")
    kept = loaded(tmp_path).result("a2c", "delayed-choice")
    np.testing.assert_array_equal(np.isnan(kept.values("return")[0]), [[False, True, True], [False] * 3, [False] * 3])
    assert kept.failed_runs().tolist() == [[True, False, False]]
    (row,) = loaded(tmp_path).table().to_pandas().to_dict("records")
    assert row["failed"] == 1 and row["seeds"] == 2
    stored = jaxrl.load_exported(tmp_path / f"{SMALL.stem}.safetensors")
    assert stored.spec["seed"] == 1
    result.metrics[loss][:, 1:] = np.nan
    with pytest.raises(ResultError, match="all 3 runs of a2c on delayed-choice failed"):
        store(SMALL, result, tmp_path, "commit")


def test_missing_packages_are_named_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else find_spec(name))
    with pytest.raises(ImportError, match=r"a cell of the benchmark needs the extra `parquet`"):
        run(SMALL, tmp_path)


def test_a_missing_package_is_named_where_curves_are_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"^the curves of the benchmark need the extra `parquet`: pip install") as got:
        loaded(data).result("a2c", "delayed-choice")
    assert isinstance(got.value, UserError)


def test_a_cell_that_cannot_be_trained_does_not_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[str] = []

    def train(each: Cell, *_: object, **__: object) -> object:
        if each.algorithm in ("a2c", "dqn"):
            raise {"a2c": MissingPackageError("no package"), "dqn": ResultError("all runs failed")}[each.algorithm]
        trained.append(each.algorithm)
        return object()

    monkeypatch.setattr("jaxrl.cli.benchmark.run", train)
    assert run_benchmark(["run", "delayed-choice", "--missing", "--data", str(tmp_path)]) == 1
    every = [each.algorithm for each in CELLS if each.environment == "delayed-choice"]
    assert trained == [name for name in every if name not in ("a2c", "dqn")] and len(trained) == len(every) - 2
    out, error = capsys.readouterr()
    assert f"{len(trained)} of {len(CELLS)} cells trained" in out
    assert "a2c on delayed-choice is left out: no package\n" in error
    assert error.endswith("2 could not be computed: a2c on delayed-choice, dqn on delayed-choice\n")


def test_damaged_and_missing_data_are_named(data: Path, tmp_path: Path) -> None:
    for read in (Benchmark.result, Benchmark.policy):
        with pytest.raises(ResultError, match=r"no data of ppo on cartpole yet: jaxrl benchmark run ppo cartpole"):
            read(loaded(data), "ppo", "cartpole")
    for file in data.glob(f"{SMALL.stem}.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    curves = tmp_path / f"{SMALL.stem}.parquet"
    curves.write_bytes(curves.read_bytes()[:-1] + b"x")
    with pytest.raises(ResultError, match="of another cell: it does not match the checksum"):
        loaded(tmp_path).result("a2c", "delayed-choice")
    weights = tmp_path / f"{SMALL.stem}.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(ResultError, match=r"of another cell: it does not match the checksum"):
        loaded(tmp_path).policy("a2c", "delayed-choice")
    with pytest.raises(ResultError, match=r"safetensors is damaged"):
        load_weights(weights)
    weights.unlink()
    with pytest.raises(ResultError, match=r"the data of a2c on delayed-choice in .* are damaged"):
        loaded(tmp_path).policy("a2c", "delayed-choice")
    with pytest.raises(ResultError, match=r"safetensors does not exist"):
        load_weights(weights)
    with pytest.raises(ResultError, match=r"path takes a \.safetensors file, got"):
        load_weights("policy.onnx")
    with pytest.raises(ResultError, match="directory takes a directory of benchmark data"):
        load(tmp_path / "none")
    with pytest.raises(ValueError, match="the benchmark has no data on cartpole yet: jaxrl benchmark run cartpole"):
        loaded(data).results("delayed-choice", "cartpole")
    with pytest.raises(ValueError, match="the benchmark has no data on mine; it has delayed-choice"):
        loaded(data).results("mine")
    with pytest.raises(ValueError, match="task is 'delayed-choise'; did you mean 'delayed-choice'"):
        loaded(data).table("delayed-choise")
    for table in (Benchmark.table, beside_published):
        with pytest.raises(ValueError, match="there are data on delayed-choice"):
            table(loaded(data), "cartpole")


def test_unknown_cells_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"algorithm is 'pppo', of which the benchmark has no cell"):
        cell("pppo", "cartpole")
    with pytest.raises(ValueError, match=r"environment is 'cartpol', on which the benchmark has no cell of ppo"):
        cell("ppo", "cartpol")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["run"], "run takes an algorithm and an environment, or --missing"),
        (["run", "ppo", "cartpole", "acrobot"], "run takes an algorithm and an environment, got ppo cartpole acrobot"),
        (["run", "nothing"], "run takes an algorithm or a task of the benchmark, got nothing"),
        (["runs"], "benchmark takes run, table, page, references, verify, got runs"),
    ],
)
def test_bad_commands_are_one_sentence(args: list[str], sentence: str, data: Path) -> None:
    with pytest.raises(CommandError, match=sentence):
        run_benchmark([*args, *(["--data", str(data)] if args[0] == "run" else [])])


def test_the_command_trains_the_missing_cells_of_its_share(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[str] = []
    monkeypatch.setattr("jaxrl.cli.benchmark.run", lambda each, *_, **__: trained.append(each.name) or object())
    shares = []
    for share in ("0/2", "1/2"):
        assert run_benchmark(["run", "delayed-choice", "--missing", "--shard", share, "--data", str(data)]) == 0
        shares.append(set(trained))
        trained.clear()
    (tmp_path := data / "later").mkdir()
    for file in data.glob(f"{SMALL.stem}.*"):
        (tmp_path / file.name.replace("a2c", "ppo")).write_bytes(file.read_bytes())
    for share, before in zip(("0/2", "1/2"), shares, strict=True):  # of all cells, so that another's end changes none
        assert run_benchmark(["run", "delayed-choice", "--missing", "--shard", share, "--data", str(tmp_path)]) == 0
        assert set(trained) - {"a2c on delayed-choice"} == before - {"ppo on delayed-choice"}
        trained.clear()
    every = {each.name for each in CELLS if each.environment == "delayed-choice"}
    assert shares[0] | shares[1] == every - {"a2c on delayed-choice"} and not shares[0] & shares[1]
    assert run_benchmark(["table", "--data", str(data)]) == 0
    assert f"1 of {len(CELLS)} cells have data" in capsys.readouterr().out


def test_published_returns_are_of_cells_and_beside_ours_after_as_many_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(PUBLISHED) == len(set(PUBLISHED)) and all(row.runs >= 1 for row in PUBLISHED)
    assert all(cell(row.algorithm, row.task) for row in PUBLISHED)  # raises where there is no such cell
    run(SMALL, tmp_path, runs=None, progress=False)
    theirs = [Published("Ours", "a2c", "delayed-choice", steps, 1.5, 2) for steps in (1_260, 10**9)]
    monkeypatch.setattr("jaxrl.benchmark.published.PUBLISHED", (*theirs, *PUBLISHED))
    between, behind = beside_published(load(tmp_path)).to_pandas().to_dict("records")
    assert behind["worse"] == "shorter"
    last, high = (load(tmp_path).table().to_pandas()[name].item() for name in ("iqm", "high"))
    assert last < high
    for value, steps, worse in (
        (last, 2_400, "no"),
        (high, 2_400, "unclear"),
        (high + 0.01, 2_400, "yes"),
        (high + 0.01, 2_474, "yes"),  # 3 % more
        (high + 0.01, 2_475, "shorter"),
    ):
        row = Published("Theirs", "a2c", "delayed-choice", steps, value, 1)
        monkeypatch.setattr("jaxrl.benchmark.published.PUBLISHED", (row,))
        assert beside_published(load(tmp_path)).to_pandas()["worse"].tolist() == [worse]
    kept = load(tmp_path).result("a2c", "delayed-choice")
    steps, values = kept.metrics["env_step"].values, kept.values("return")[0]
    after = int(np.searchsorted(steps, 1_260))
    share = (1_260 - steps[after - 1]) / (steps[after] - steps[after - 1])
    expected = (1 - share) * values[:, after - 1] + share * values[:, after]
    assert between["our_steps"] == 1_260 and between["iqm"] == pytest.approx(float(jaxrl.statistics.iqm(expected)))
    assert behind["our_steps"] == steps[-1] and behind["published"] == 1.5
    assert behind["iqm"] == pytest.approx(float(jaxrl.statistics.iqm(values[:, -1])))


def test_a_stopped_cell_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = jaxrl.train(SMALL.algo(), seeds=1, env_steps=400, evals=1, eval_episodes=1, progress=False)
    result.metrics.attrs["interrupted"] = True
    monkeypatch.setattr("jaxrl.benchmark.running.train", lambda *_, **__: result)
    assert run(SMALL, tmp_path, runs=None) is None
    assert not list(tmp_path.iterdir())


def test_results_stored_in_the_clone_can_be_read_and_are_small() -> None:
    have = load()
    files = [file for file in have.directory.iterdir() if file.suffix in (".json", ".parquet", ".safetensors")]
    assert sum(file.stat().st_size for file in files) <= 50_000_000
    assert {file.stem for file in files} <= {each.stem for each in CELLS}
    for each in have.cells:
        result = have.result(each.algorithm, each.environment)
        assert len(result.seeds) == each.seeds and result.metrics.sizes["env_step"] == 21, each.name
        assert (have.directory / f"{each.stem}.safetensors").is_file(), each.name
        assert int(result.metrics["env_step"][-1]) >= each.env_steps, each.name  # else it is to be trained anew
        settings = "defaults" if result.metrics.attrs["settings_from"] == "defaults" else "preset"
        assert settings == each.settings, each.name


@pytest.mark.slow
def test_a_command_that_was_stopped_is_resumed(tmp_path: Path) -> None:
    """The process is stopped after its first checkpoint; the second command ends with the curves of one call."""
    data, runs = tmp_path / "data", tmp_path / "runs"
    data.mkdir()
    command = [sys.executable, "-m", "jaxrl.cli.main", "benchmark", "run", "a2c", "delayed-choice", "--data", str(data)]
    code = f"""
import os, signal, threading, time
from pathlib import Path
from jaxrl.cli.main import main
def stop():
    while not list(Path({str(runs)!r}).rglob("run.json")):
        time.sleep(0.1)
    time.sleep(5)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=stop, daemon=True).start()
raise SystemExit(main({[*command[3:], "--runs", str(runs)]!r}))
"""
    first = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert first.returncode == 130 and "Stopped; to resume: the same command" in first.stdout, first.stderr
    assert not list(data.iterdir())
    second = subprocess.run([*command, "--runs", str(runs)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    resumed = load(data).result("a2c", "delayed-choice").values("return")
    whole = run(cell("a2c", "delayed-choice"), data, runs=None, progress=False)
    assert whole is not None
    np.testing.assert_array_equal(resumed, whole.values("return"))
