"""Returns that count as 0 and as 1: random actions against a loop over Gymnasium, and normalised comparisons."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs.errors import MissingPackageError
from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.data import Benchmark, load
from jaxrl.benchmark.fetching import of_clone, remedy
from jaxrl.benchmark.measured import TASKS, Measured, measured, store_measured
from jaxrl.benchmark.references import Reference, _random_actor, measure, reference
from jaxrl.cli.benchmark import run_benchmark
from jaxrl.cli.compare import Compare
from jaxrl.cli.parsing import CommandError
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.result import Result


def result_of(task: str, *returns: float) -> Result:
    """Returns of one evaluation, a seed for each."""
    attrs = {"algorithm": "mine", "environment": task}
    values = np.asarray(returns, np.float32)[None, :, None]
    return Result(metrics_dataset({"return": values}, seeds=range(len(returns)), env_steps=[20_000], attrs=attrs), {})


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """The curves of the clone, and random returns of two tasks."""
    whole = load()
    for file in whole.directory.iterdir():
        if "-on-cartpole" in file.name or "a2c-on-inventory" in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    for task, low, high in (("inventory", 60.0, 77.0), ("cartpole", 22.0, None), ("acrobot", -499.0, None)):
        store_measured(Measured(task, 10, low, 0.1, high), tmp_path)
    monkeypatch.setattr("jaxrl.benchmark.data.data_directory", lambda _: tmp_path)
    return load(tmp_path)


def cell_env(task: str) -> envs.Environment:
    """The environment of the cells on a task."""
    return next(each.algo().env for each in CELLS if each.environment == task)


def test_random_actions_are_those_of_a_loop_over_gymnasium() -> None:
    env, lengths = gymnasium.make("CartPole-v1"), []
    env.action_space.seed(0)
    for episode in range(400):
        env.reset(seed=episode)
        lengths.append(0)
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            lengths[-1] += 1
            over = terminated or truncated
    ours = measure("cartpole", 400)
    assert ours.task == "cartpole" and ours.episodes == 400
    error = np.hypot(ours.error, np.std(lengths) / np.sqrt(len(lengths)))
    assert abs(ours.random - np.mean(lengths)) <= 4.5 * error <= 6.0


def test_a_number_of_episodes_is_checked() -> None:
    for episodes, sentence in ((1, "episodes must be a whole number of at least 2"), (3, "an even number, got 3")):
        with pytest.raises(ValueError, match=sentence):
            measure("cartpole", episodes)


def test_random_actions_are_allowed_and_equally_likely() -> None:
    actor = _random_actor(envs.make("delayed-choice"))
    noise = jax.vmap(lambda key: actor.noise(key, ()))(jax.random.split(jax.random.key(0), 2_000))
    for mask, shares in (([True, True], 0.5), ([False, True], 1.0), ([True, False], 0.0)):
        action = jax.vmap(lambda noise, mask=mask: actor.choose(noise, {}, (), False, jnp.asarray(mask))[0])(noise)
        assert abs(float(np.mean(np.asarray(action))) - shares) <= 4.5 * np.sqrt(shares * (1 - shares) / 2_000)


def test_the_agents_of_a_crowd_draw_actions_of_their_own() -> None:
    env = envs.make("crowd/circle", num_agents=5)
    actor = _random_actor(env)
    action = np.asarray(actor.choose(actor.noise(jax.random.key(0), (5,)), {}, (), False, None)[0])
    assert action.shape == (5, 2) and len(np.unique(action)) == 10


def test_random_returns_are_stored_in_the_order_of_the_cells(benchmark: Benchmark) -> None:
    have = measured(benchmark.directory)
    assert list(have) == ["cartpole", "acrobot", "inventory"] and have["cartpole"] == ("cartpole", 10, 22.0, 0.1, None)
    store_measured(Measured("cartpole", 20, 23.0, 0.2, None), benchmark.directory)
    assert measured(benchmark.directory)["cartpole"].random == 23.0
    assert set(TASKS) == {each.environment for each in CELLS}


def test_the_references_are_a_known_optimum_or_the_best_cell(benchmark: Benchmark) -> None:
    table = benchmark.table("cartpole").to_pandas()
    low, high, origin = reference(benchmark, "cartpole")
    assert low == 22.0 and high == table["iqm"].max() and origin in table["algorithm"].values
    assert reference(benchmark, "inventory") == Reference(60.0, 77.0, "optimum")
    with pytest.raises(ValueError, match=r"^task takes one with a return of random actions; .*cartpole, acrobot"):
        reference(benchmark, "pendulum")
    with pytest.raises(ValueError, match=r"^task takes one with a return of random actions; did you mean 'cartpole'"):
        reference(benchmark, "carpole")
    with pytest.raises(ValueError, match=r"^task is 'acrobot', on which no optimum and no cell is above random"):
        reference(benchmark, "acrobot")
    store_measured(Measured("inventory", 10, 80.0, 0.1, 77.0), benchmark.directory)
    with pytest.raises(ValueError, match=r"^task is 'inventory', on which no optimum and no cell is above random"):
        reference(benchmark, "inventory")
    (benchmark.directory / "references.csv").write_text("task\ncartpole,1\n")
    command = f"jaxrl benchmark references --data {re.escape(str(benchmark.directory))}"
    words = f"it has no checksum, which trust=True ignores; delete it, and `{command}` measures"
    with pytest.raises(ResultError, match=rf"references\.csv is damaged: {words}"):
        reference(benchmark, "cartpole")


def test_comparisons_are_normalised_by_the_benchmark(benchmark: Benchmark) -> None:
    sources = {
        "one": [result_of("cartpole", 100.0, 120.0), result_of("inventory", 65.0, 70.0)],
        "other": [result_of("cartpole", 200.0, 220.0), result_of("inventory", 75.0, 76.0)],
    }
    comparison = jaxrl.compare(sources, normalise="benchmark")
    by_hand = {task: reference(benchmark, task)[:2] for task in ("cartpole", "inventory")}
    assert comparison.references == by_hand
    assert comparison.table().rows == jaxrl.compare(sources, normalise=by_hand).table().rows
    assert comparison.table().rows == jaxrl.compare(sources, normalise=benchmark).table().rows
    (note,) = [note for note in comparison.notes if note.startswith("Normalised")]
    assert "0 at random actions, and 1 at " in note and "the optimum of inventory: 22 and " in note
    with pytest.raises(ValueError, match=r"normalise has 'cartpol'; did you mean 'cartpole'\?"):
        jaxrl.compare(sources, normalise={**by_hand, "cartpol": (0.0, 1.0)})
    with pytest.raises(TypeError, match=r"normalise is 'random'; it takes two numbers .*, 'benchmark', or its data"):
        jaxrl.compare(sources, normalise="random")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_other_environments_than_those_of_the_benchmark_are_refused(benchmark: Benchmark) -> None:
    labelled = {name: {"cartpole": result_of("pendulum", -200.0, -100.0 + at)} for at, name in enumerate("ab")}
    with pytest.raises(ValueError, match=r"^normalise .* benchmark, whose cartpole is not the environment of a"):
        jaxrl.compare(labelled, normalise="benchmark")
    short = {name: result_of("cartpole", 40.0, 41.0 + at) for at, name in enumerate("ab")}
    for result in short.values():
        result.metrics.attrs.update(return_low=1.0, return_high=50.0)
    with pytest.raises(ValueError, match=r"^normalise .* benchmark, whose cartpole .*50\.0\], there \[1\.0, 500"):
        jaxrl.compare(short, normalise="benchmark")
    sentence = "^normalise takes values of the benchmark: task takes one with a return of random actions"
    with pytest.raises(ValueError, match=sentence):
        jaxrl.compare({name: result_of("mine", 1.0, 2.0) for name in "ab"}, normalise="benchmark")
    named = {"benchmark ppo": result_of("cartpole", 1.0, 2.0)}
    with pytest.raises(ValueError, match=r"^results has the name 'benchmark ppo', which is that of a line of"):
        jaxrl.compare(named, "benchmark")
    assert benchmark.tasks


def test_the_name_of_a_task_without_a_stored_cell_is_sufficient(benchmark: Benchmark) -> None:
    store_measured(Measured("memory/t-maze", 10, -0.5, 0.1, 1.0), benchmark.directory)
    results = {name: result_of("memory/t-maze", 0.0, 0.5 + at / 4) for at, name in enumerate("ab")}
    assert jaxrl.compare(results, normalise="benchmark").references == {"memory/t-maze": (-0.5, 1.0)}
    others = {name: {"memory/t-maze": result_of("stopping", 0.0, 0.5)} for name in "ab"}
    with pytest.raises(ValueError, match=r"whose memory/t-maze is not the environment of a \(stopping\)"):
        jaxrl.compare(others, normalise="benchmark")


def test_other_parameters_than_those_of_the_benchmark_are_refused(benchmark: Benchmark) -> None:
    stored = {name: benchmark.result(name, "cartpole") for name in ("ppo", "a2c")}
    assert jaxrl.compare(stored, normalise="benchmark").references == {"cartpole": reference(benchmark, "cartpole")[:2]}

    def changed(part: str, value: object, name: str) -> Result:
        """The stored curves with one changed part of the description."""
        loaded = dict(stored[name].loaded or {})
        return dataclasses.replace(stored[name], loaded={**loaded, part: value})

    params = (stored["ppo"].loaded or {})["env_params"]
    heavy = {name: changed("env_params", {**params, "gravity": [20.0]}, name) for name in stored}
    with pytest.raises(
        ValueError, match=r"not the environment of ppo \(env_params\.gravity 20, there 9\.8\), or two numbers"
    ):
        jaxrl.compare(heavy, normalise="benchmark")
    swept = {name: changed("env_params", {**params, "gravity": [9.8] * 2}, name) for name in stored}  # of two settings
    assert jaxrl.compare(swept, normalise="benchmark").references
    other = {name: changed("env_params", "different in non-numeric fields", name) for name in stored}
    with pytest.raises(ValueError, match=r"of ppo \(its parameters are different in non-numeric fields\)"):
        jaxrl.compare(other, normalise="benchmark")
    inventory = benchmark.result("a2c", "inventory")
    loaded = dict(inventory.loaded or {})
    static = {**loaded["environment"]["static"], "capacity": 20}
    larger = dataclasses.replace(
        inventory, loaded={**loaded, "environment": {**loaded["environment"], "static": static}}
    )
    with pytest.raises(ValueError, match=r"\(environment\.static\.capacity 20, there 10\)"):
        jaxrl.compare({"one": larger, "two": dataclasses.replace(larger)}, normalise="benchmark")


def test_trust_reads_damaged_references_and_cells(benchmark: Benchmark) -> None:
    mine = {name: result_of("cartpole", 100.0, 200.0 + at) for at, name in enumerate("ab")}
    whole = jaxrl.compare(mine, normalise="benchmark").references
    for damaged, words in (
        ("references.csv", "delete it, and `jaxrl benchmark references --data {}` measures them again"),
        ("ppo-on-cartpole.json", "`jaxrl benchmark run ppo cartpole --data {}` trains the cell again"),
    ):
        words = words.format(re.escape(str(benchmark.directory))) + "; trust=True, or --trust of compare and report"
        file = benchmark.directory / damaged
        content = file.read_bytes()
        at = content.index(b"crc32-of-this-file:") + len(b"crc32-of-this-file:")
        file.write_bytes(content[:at] + b"00000000" + content[at + 8 :])
        sentence = rf"{damaged} is damaged, or was changed by hand: .* records; {words}, ignores this\.$"
        for read in (lambda: jaxrl.compare(mine, normalise="benchmark"), benchmark.table):
            with pytest.raises(ResultError, match=sentence):  # without a flag, which the table has not
                read()
        assert jaxrl.compare(mine, normalise="benchmark", trust=True).references == whole
        file.write_bytes(content)


def test_damage_has_a_remedy_that_works_at_its_place(benchmark: Benchmark, tmp_path: Path) -> None:
    anew = f"--data {re.escape(str(tmp_path))}` trains the cell again"
    (tmp_path / "ppo-on-cartpole.parquet").write_bytes(b"nothing")
    with pytest.raises(ResultError, match=rf"or of another cell: .*ppo cartpole {anew}; trust=True, or --trust of"):
        benchmark.result("ppo", "cartpole")
    with pytest.raises(ResultError, match=rf"or not of the benchmark: .*ppo cartpole {anew}$"):
        benchmark.result("ppo", "cartpole", trust=True)
    (tmp_path / "ppo-on-cartpole.json").write_bytes(b"nothing")
    with pytest.raises(ResultError, match=rf"are damaged: .*ppo cartpole {anew}$"):
        benchmark.result("ppo", "cartpole")
    assert remedy(of_clone() / "x.csv", "jaxrl y", "`COMMAND` writes it") == "`jaxrl y` writes it"
    assert remedy(Path("a b", "x"), "jaxrl y", "`COMMAND`").endswith("a b'`")


def test_arguments_are_checked_before_the_benchmark_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing() -> Benchmark:
        raise AssertionError("loaded")

    monkeypatch.setattr("jaxrl.benchmark.data.load", failing)
    mine = {name: result_of("cartpole", 100.0, 200.0 + at) for at, name in enumerate("ab")}
    for each in mine.values():
        each.metrics["loss"] = each.metrics["return"]
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: jaxrl.write_report(mine, tmp_path / "x.txt", to="benchmark"), "a report's name ends in"),
        (lambda: jaxrl.write_report({"a": tmp_path / "none"}, tmp_path / "x.html", to="benchmark"), "none"),
        (lambda: jaxrl.compare({"a": tmp_path / "none"}, to="benchmark"), "none"),
        (lambda: jaxrl.compare(mine, "benchmark", normalise=cast(Any, 5)), "normalise is 5; it takes two numbers"),
        (lambda: jaxrl.compare(mine, to="benchmark", metric="los"), "metric is 'los'.*did you mean 'loss'"),
    ]
    only = "normalise takes values of the benchmark for the return alone, not for loss$"
    for to in (None, "benchmark"):
        calls.append((lambda to=to: jaxrl.compare(mine, to=to, normalise="benchmark", metric="loss"), only))
    for call, sentence in calls:
        with pytest.raises((ValueError, TypeError, ResultError), match=sentence):
            call()
    with pytest.raises(AssertionError, match="loaded"):
        jaxrl.compare(mine, normalise="benchmark")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"22,", b"23,"), (b"# ", b"#"), (b"cartpole", b"cart\xffole"), (b"cartpole", b"cart\0ole"), (b"", b"")],
    ids=["digit", "seal", "bytes", "zero", "empty"],
)
def test_any_change_of_the_references_is_detected(benchmark: Benchmark, old: bytes, new: bytes) -> None:
    file = benchmark.directory / "references.csv"
    content = file.read_bytes()
    assert content.count(old) > 0
    file.write_bytes(content.replace(old, new, 1) if old else b"")
    with pytest.raises(ResultError, match=r"references\.csv is damaged"):
        measured(benchmark.directory)


def test_the_shell_normalises_by_the_benchmark(
    benchmark: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("one", 100.0), ("other", 200.0)):
        result_of("cartpole", value, value + 20.0).save(tmp_path / "runs" / name)
    runs = tuple(str(tmp_path / "runs" / name) for name in ("one", "other"))
    assert Compare(runs, normalise=("benchmark",)).run_command() == 0
    assert "0 at random actions, and 1 at " in capsys.readouterr().out
    with pytest.raises(CommandError, match=r"--normalise takes TASK=LOW:HIGH, such as cartpole=9.5:500, or benchmark"):
        Compare(runs, normalise=("cartpole",)).run_command()
    assert benchmark.directory == tmp_path


def missing(task: str) -> Measured:
    """A measurement for which the package of one task is missing."""
    if task == "cartpole":
        raise MissingPackageError("no package of cartpole")
    return Measured(task, 4, 2.5, 0.25, 3.0)


def test_the_command_measures_missing_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jaxrl.cli.benchmark.TASKS", ("cartpole", "stopping"))
    monkeypatch.setattr("jaxrl.cli.benchmark.measure", lambda task: Measured(task, 4, 1.5, 0.25, 2.0))
    store_measured(Measured("cartpole", 10, 22.0, 0.1, None), tmp_path)
    assert run_benchmark(["references", "--data", str(tmp_path)]) == 0
    assert "stopping: random 1.5, standard error 0.25, 4 episodes; the optimum is 2" in capsys.readouterr().out
    assert [each.random for each in measured(tmp_path).values()] == [22.0, 1.5]
    assert run_benchmark(["references", "cartpole", "--data", str(tmp_path)]) == 0
    assert measured(tmp_path)["cartpole"].random == 1.5
    monkeypatch.setattr("jaxrl.cli.benchmark.measure", missing)
    assert run_benchmark(["references", "cartpole", "stopping", "--data", str(tmp_path)]) == 1
    assert measured(tmp_path)["stopping"].random == 2.5
    assert "cartpole is left out: no package of cartpole\n1 could not" in capsys.readouterr().err
    with pytest.raises(
        CommandError, match=r"references takes tasks of the benchmark, got stoping; did you mean 'stopping'"
    ):
        run_benchmark(["references", "stoping", "--data", str(tmp_path)])


def test_the_random_returns_of_the_clone_are_below_every_optimum() -> None:
    benchmark = load()
    have = measured(benchmark.directory)
    assert set(benchmark.tasks) <= set(have) <= set(TASKS)
    for task in benchmark.tasks:
        if task == "motor/dc-finite":  # whose random actions end an episode soon, at a cost below that of a whole one
            with pytest.raises(ValueError, match="on which no optimum and no cell is above random actions"):
                reference(benchmark, task)
            continue
        low, high, origin = reference(benchmark, task)
        assert low < high, task
        assert have[task].episodes >= 1024, task
        if origin == "optimum":
            assert high == pytest.approx(cell_env(task).optimum(), rel=1e-7), task
