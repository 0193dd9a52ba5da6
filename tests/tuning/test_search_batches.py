"""Searches and populations within their memory, and their files when they end early."""

import csv
import os
import platform
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, wandering
from out_of_memory import exhausted_at

import jaxrl
from jaxrl import Uniform
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli import main as cli
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.store import CHECKPOINTS
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.plan import planner as fitting
from jaxrl.runtime.plan.planner import Planner, programs_of
from jaxrl.runtime.runs import Runs
from jaxrl.tuning import batches as search_waves
from jaxrl.tuning import search as searching
from jaxrl.tuning.halving import Halving
from jaxrl.tuning.result import write_json
from jaxrl.tuning.run_trials import Tuning
from jaxrl.tuning.shared_study import Asked, Outcome

SPACE = {"lr": Uniform(0.05, 0.5)}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


def search(algo: Algorithm, **changes: Any) -> jaxrl.SearchResult:
    options: dict[str, Any] = {
        "trials": 6,
        "env_steps": 9 * PER_ITERATION,
        "search": "random",
        "seeds": 2,
        "test_seeds": 0,
        "eval_episodes": 2,
        "block": 2,
        "devices": [jax.devices()[0]] * 3,
        "progress": False,
    }
    return jaxrl.search(algo, SPACE, **(options | changes))


def population(algo: Algorithm, **changes: Any) -> jaxrl.PopulationResult:
    options: dict[str, Any] = {
        "members": 5,
        "env_steps": 3 * PER_ITERATION,
        "rounds": 3,
        "eval_episodes": 2,
        "block": 2,
        "devices": jax.devices()[:1],
        "progress": False,
    }
    return jaxrl.population_based_training(algo, SPACE, **(options | changes))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of waves, where `memory=n` stands for that of one block and of n states held, and "1B" for none."""
    actual: list[int] = []
    monkeypatch.setattr(fitting, "ROOM_PER_THREAD", 0)
    monkeypatch.setattr(fitting, "resident", lambda: 0)

    def of(_: Any, call: Call, layout: Layout, memory: Any) -> Planner:
        free = Planner(call, layout, None, False)
        if memory is None:
            return free
        _, sizes = programs_of(call, layout)
        blocks = -(-layout.num_runs // layout.block)
        one, two = (free.at(sizes, layout.block, count, 0).memory for count in (blocks, blocks - 1))
        limit = 1 if memory == "1B" else (one + two) // 2 + search_waves.HELD_COPIES * memory * sizes.state
        return Planner(call, layout, limit, False)

    monkeypatch.setattr(search_waves.Planner, "of", classmethod(of))
    advance = search_waves.Waves.advance

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        for wave in advance(self, *arguments, **named):
            actual.append(len(wave.metrics["return"]))
            yield wave

    monkeypatch.setattr(search_waves.Waves, "advance", counted)
    return actual


@pytest.mark.slow
def test_trials_that_do_not_fit_at_the_same_time_train_one_after_another_to_the_same_bits(
    algo: Algorithm, sizes: list[int]
):
    whole = search(algo)
    assert sizes == [6, 6]
    sizes.clear()
    small = search(algo, memory=1)
    assert sizes == [2] * 6
    assert small.trials == whole.trials
    sizes.clear()
    # The states of all trials are on the host between two rungs.
    halved, half = search(algo, halving=Halving()), search(algo, halving=Halving(), memory=12)
    assert sizes == [6, 6, 4, 2] + [2] * 9
    assert half.trials == halved.trials
    with pytest.raises(
        ValueError, match=r"^memory must be above .* for a population of 12 runs, .* for its states and .*, got "
    ):
        search(algo, halving=Halving(), memory="1B")


@pytest.mark.slow
def test_members_that_do_not_fit_at_the_same_time_train_one_after_another_to_the_same_bits(
    algo: Algorithm, sizes: list[int]
):
    whole = population(algo)
    assert sizes == [5] * 3
    sizes.clear()
    small = population(algo, memory=5)
    assert sizes == [2, 2, 1] * 3
    np.testing.assert_array_equal(small.returns, whole.returns)
    np.testing.assert_array_equal(small.parents, whole.parents)
    np.testing.assert_array_equal(small.result.policies, whole.result.policies)
    assert small.settings == whole.settings


@pytest.mark.slow
def test_a_device_without_memory_left_gets_narrower_blocks(algo: Algorithm, monkeypatch: pytest.MonkeyPatch):
    narrow, members = search(algo, block=1), population(algo, block=1)
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(2))
    with pytest.warns(RuntimeWarning, match=r"had no memory left for blocks of 2 runs .* from the start of this wave"):
        assert search(algo).trials == narrow.trials
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(2))
    with pytest.warns(RuntimeWarning, match=r"had no memory left for blocks of 2 runs"):
        actual = population(algo)
    np.testing.assert_array_equal(actual.result.policies, members.result.policies)
    assert actual.result.metrics.attrs["block"] == 1
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(1))
    with pytest.raises(ValueError, match=r"^there is no memory left for blocks of one run: RESOURCE_EXHAUSTED"):
        population(algo, block=1)


@pytest.mark.parametrize("call", [search, population])
def test_a_size_without_a_number_raises_one_sentence(algo: Algorithm, call: Callable[..., Any]):
    with pytest.raises(ValueError, match=r"^memory must be a size such as 8GiB"):
        call(algo, memory="much")


def test_the_lineage_is_kept_round_by_round_with_the_seed_of_every_member(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    evaluate, calls = Runs.evaluate, []

    def killed(self: Any) -> Any:
        calls.append(self.arguments[0].tolist())
        if len(calls) == 3:
            raise MemoryError
        return evaluate(self)

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(Runs, "evaluate", killed)
        population(algo, out=tmp_path / "out")
    with (tmp_path / "out" / "lineage.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(int(row["round"]), int(row["member"])) for row in rows] == [(i, j) for i in range(2) for j in range(5)]
    actual = population(algo, out=tmp_path / "out")
    assert calls[0] == actual.seeds.tolist() and len(set(calls[0])) == 5
    with (tmp_path / "out" / "lineage.csv").open() as stream:
        again = list(csv.DictReader(stream))
    assert again[:10] == rows and len(again) == 15
    assert [int(row["member_seed"]) for row in again] == calls[0] * 3
    for result in (actual.result, jaxrl.load_result(tmp_path / "out", algo)):
        assert [setting["member_seed"] for setting in result.settings] == calls[0]
        assert result.metrics["member_seed"].dims == ("setting",)


def test_a_member_trains_with_its_seed(algo: Algorithm):
    actual = population(algo, replaced=0)
    lr, seed = actual.settings[0][3]["lr"], int(actual.seeds[3])
    alone = jaxrl.train(
        algo,
        jaxrl.grid(algo.hparams, {"lr": [lr]}),
        seeds=[seed],
        env_steps=3 * PER_ITERATION,
        evals=3,
        eval_episodes=2,
        block=2,
        devices=jax.devices()[:1],
        progress=False,
    )
    np.testing.assert_array_equal(alone.policies[0, 0], actual.result.policy(member_seed=seed).params)
    np.testing.assert_array_equal(alone.values("return")[0, 0], actual.returns[:, 3])


def test_one_of_a_few_members_is_replaced(algo: Algorithm):
    for members in (2, 3, 4):
        actual = population(algo, members=members)
        for parents, returns in zip(actual.parents[1:], actual.returns, strict=False):
            order = np.argsort(-returns, kind="stable")
            expected = np.arange(members)
            expected[order[-1]] = order[0]
            np.testing.assert_array_equal(parents, expected)
    with pytest.raises(ValueError, match=r"^members must be at least 2, or replaced must be 0"):
        population(algo, members=1)
    assert population(algo, members=1, replaced=0).returns.shape == (3, 1)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials whose score grows with their number, so that more of them change the incumbent."""

    def do_trials(tuning: Tuning, asked: Sequence[Asked], tell: Callable[[Outcome], None], *_: Any) -> None:
        for number, setting in asked:
            score = float(number)
            tell(Outcome(number, "complete", setting, score, [score] * len(tuning.seeds), tuning.env_steps))

    monkeypatch.setattr(searching, "do_trials", do_trials)


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
def test_runs_of_the_incumbent_resume_or_restart_and_nothing_damaged_is_overwritten(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options: dict[str, Any] = {"out": tmp_path / "out", "test_seeds": 2}
    first = search(algo, **options)
    assert first.incumbent is not None and first.incumbent.number == 5 and first.test is not None
    advance, lrs = Runs.advance, []

    def seen(self: Any, count: int) -> None:
        lrs.extend(np.unique(self.arguments[1].lr))
        advance(self, count)

    monkeypatch.setattr(Runs, "advance", seen)
    for block in (2, 1):  # the earlier width is kept
        again = search(algo, **options, block=block)
        assert again.test is not None and again.test.metrics.attrs["block"] == 2 and not lrs
        np.testing.assert_array_equal(again.test.policies, first.test.policies)
    longer = search(algo, **options, trials=7)
    assert longer.incumbent is not None and longer.test is not None
    assert set(lrs) == {np.float32(longer.incumbent.setting["lr"])}  # not the default setting's, which is there
    assert longer.test.settings[0]["lr"] == longer.incumbent.setting["lr"]

    checkpoints = tmp_path / "out" / "incumbent" / CHECKPOINTS
    files = [file for file in checkpoints.rglob("*") if file.is_file()]
    for file in files:
        file.write_bytes(b"")
    lrs.clear()
    for without in (False, True):  # a finished result needs no checkpoint
        if without:
            shutil.rmtree(checkpoints)
        finished = search(algo, **options, trials=7)
        assert finished.test is not None and not lrs
        np.testing.assert_array_equal(finished.test.policies, longer.test.policies)
        assert without or all(file.read_bytes() == b"" for file in files)


@pytest.mark.usefixtures("untrained")
def test_the_command_names_the_process_that_trains_the_incumbent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def elsewhere(*_: Any) -> None:
        raise FileExistsError

    monkeypatch.setattr(searching, "_trained", elsewhere)
    command = f"search ppo pendulum --search random --trials 4 --no-progress --out {tmp_path / 'out'}"
    assert cli.main(command.split()) == 0
    assert "Another process is training the incumbent on the test seeds." in capsys.readouterr().out


def test_processes_with_one_number_on_two_machines_write_separate_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    names, replace = set(), os.replace

    def noted(source: Path, target: Path) -> None:
        names.add(source.name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    for host in ("one", "other"):
        monkeypatch.setattr(platform, "node", lambda host=host: host)
        write_json(tmp_path / "search.json", {})
    assert len(names) == 2 and [file.name for file in tmp_path.iterdir()] == ["search.json"]
