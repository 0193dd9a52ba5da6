"""Studies that several processes share: nothing is lost or done twice if any process dies."""

import collections
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest

import envs
import jaxrl
from envs.errors import ExistsError, UserError
from jaxrl import Choice, LogUniform, Uniform
from jaxrl.results.dataset import ResultError
from jaxrl.results.storage import write_csv
from jaxrl.runtime.checkpoints.checkpoint_files import CheckpointFiles
from jaxrl.tuning.result import claim, write_json, write_search
from jaxrl.tuning.samplers import sampler_of
from jaxrl.tuning.shared_study import OUTCOME, Asked, Outcome, TrialStudy, opened
from jaxrl.tuning.space import Space

ROOT = Path(__file__).parents[2]
SPACE = {"lr": LogUniform(1e-4, 1e-2), "lam": Uniform(0.8, 1.0), "config.num_epochs": Choice([1, 2])}

WORKER = """
import sys, time
import envs, jaxrl
from jaxrl import Choice, LogUniform, Uniform
from jaxrl.tuning.samplers import sampler_of
from jaxrl.tuning.space import Space
from jaxrl.tuning.shared_study import Outcome, TrialStudy, opened
url, search, num_trials, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
algo = jaxrl.ppo(envs.make("pendulum"), jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, hidden=(8,)))
space = Space(algo, {"lr": LogUniform(1e-4, 1e-2), "lam": Uniform(0.8, 1.0), "config.num_epochs": Choice([1, 2])})
print("ready", flush=True)
sys.stdin.readline()
with opened(url, "shared", {"space": space.described()}) as study:
    shared = TrialStudy(study, space, sampler_of(search, space, 0, 5), num_trials)
    with shared.alive():
        while asked := shared.ask(5):
            for trial in asked:
                time.sleep(seconds)
                print(trial.number, flush=True)
                shared.tell(Outcome(trial.number, "complete", trial.setting, trial.setting["lam"], [0.0], 64))
"""


@pytest.fixture(scope="module")
def space() -> Space:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, hidden=(8,))
    return Space(jaxrl.ppo(envs.make("pendulum"), config), SPACE)


def worker(url: str, search: str, num_trials: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, url, search, str(num_trials), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return process


def begin(*processes: subprocess.Popen[str]) -> None:
    """Start all processes at the same moment, once each has finished its imports."""
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def complete(trial: Asked, score: float = 1.0) -> Outcome:
    return Outcome(trial.number, "complete", trial.setting, score, [score], 10)


def shared(study: Any, space: Space, num_trials: int, search: str = "random") -> TrialStudy:
    return TrialStudy(study, space, sampler_of(search, space, 0, 4), num_trials)


@pytest.mark.slow
@pytest.mark.parametrize(("storage", "count"), [("sqlite:///", 2), ("journal:", 4)])
def test_processes_share_a_study_and_neither_lose_nor_repeat_a_trial(
    storage: str, count: int, space: Space, tmp_path: Path
):
    url = f"{storage}{tmp_path / 'study'}"
    processes = [worker(url, "random", 24, 0.01 if count == 2 else 0.2) for _ in range(count)]
    begin(*processes)
    done = [[int(line) for line in process.communicate(timeout=120)[0].split()] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert sum(map(bool, done)) > 1, "one process did everything: they did not run at the same time"
    every = [number for numbers in done for number in numbers]
    assert len(every) == len(set(every)) == 24
    with opened(url, "shared", {"space": space.described()}) as study:
        reported = shared(study, space, 24).outcomes()
        assert sorted(trial.number for trial in reported) == sorted(every)
        actual = sorted(trial.setting["lr"] for trial in reported)
    # The random design of one process alone, trial by trial.
    assert actual == pytest.approx(sorted(space.drawn(0, place)["lr"] for place in range(24)))


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite:///", "journal:"])
def test_trials_of_a_killed_process_are_repeated(storage: str, space: Space, tmp_path: Path):
    url = f"{storage}{tmp_path / 'study'}"
    process = worker(url, "random", 12, 0.2)
    begin(process)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with opened(url, "shared", {"space": space.described()}) as study:
        trial_study = shared(study, space, 12)
        before = {trial.number for trial in trial_study.outcomes()}
        assert 1 <= len(before) < 5
        while asked := trial_study.ask(5):
            for trial in asked:
                trial_study.tell(complete(trial))
        reported = trial_study.outcomes()
        assert before < {trial.number for trial in reported}
        # Each place of the design once, those that the killed process was at included.
        assert sorted(trial.setting["lr"] for trial in reported) == pytest.approx(
            sorted(space.drawn(0, place)["lr"] for place in range(12))
        )


@pytest.mark.parametrize("storage", [None, "sqlite:///", "journal:"])
def test_a_returned_trial_is_drawn_again_with_the_same_values(space: Space, storage: Any, tmp_path: Path):
    url = None if storage is None else f"{storage}{tmp_path / 'study'}"
    with opened(url, "some", {"a": 1}) as study:
        trial_study = shared(study, space, 6)
        first = trial_study.ask(4)
        trial_study.tell(complete(first[0]))
        trial_study.tell(Outcome(first[1].number, "failed", first[1].setting, float("nan"), [float("nan")], 10))
        trial_study.tell(Outcome(first[2].number, "pruned", first[2].setting, 0.5, [0.5], 5))
        trial_study.release(first[3:])
        assert trial_study.num_free() == 3
        rest = trial_study.ask(10)
        assert len(rest) == 3 and rest[0].setting == first[3].setting
        assert trial_study.ask(10) == []
        for trial in rest:
            trial_study.tell(complete(trial, 2.0))
        assert trial_study.ask(10) == []
        assert collections.Counter(trial.state for trial in trial_study.outcomes()) == {
            "complete": 4,
            "pruned": 1,
            "failed": 1,
        }
        states = collections.Counter(trial.state.name for trial in study.trials)
        assert states == {"COMPLETE": 4, "PRUNED": 1, "FAIL": 2}  # the released trial is among the failures
        assert trial_study.outcomes()[2].score == 0.5
        # A longer study continues with new places.
        longer = shared(study, space, 8)
        assert len(longer.ask(10)) == 2


def test_a_process_presumed_dead_does_not_count_twice(space: Space):
    with opened(None, "some", {"a": 1}) as study:
        slow, other_study = shared(study, space, 1), shared(study, space, 1)
        (trial,) = slow.ask(1)
        other_study._beat()
        assert other_study.ask(1) == []
        study.set_user_attr(f"alive {slow._worker}", time.time() - 1000)
        # A process with the same number runs, so only its silence shows that it died.
        (again,) = other_study.ask(1)
        assert again.setting == trial.setting
        slow.tell(complete(trial, 7.0))
        other_study.tell(complete(again, 3.0))
        assert [reported.score for reported in other_study.outcomes()] == [3.0]


def test_a_grid_is_computed_once(space: Space):
    points = Space(space.algo, {"lr": Choice([1e-3, 1e-2]), "config.num_epochs": Choice([1, 2, 4])})
    sampler = sampler_of("grid", points, 5, 4)
    with opened(None, "grid", {}) as study:
        trial_study = TrialStudy(study, points, sampler, 6)
        asked = trial_study.ask(2)
        trial_study.release(asked)
        actual = []
        while asked := trial_study.ask(4):
            actual += [tuple(trial.setting.values()) for trial in asked]
            for trial in asked:
                trial_study.tell(complete(trial))
    assert sorted(actual) == [(lr, epochs) for lr in (1e-3, 1e-2) for epochs in (1, 2, 4)]


@pytest.mark.parametrize("search", ["tpe", "cmaes"])
def test_samplers_learn_from_outcomes(space: Space, search: str):
    ranges = Space(space.algo, {"lam": Uniform(0.0, 1.0), "clip_eps": Uniform(0.0, 1.0)})
    with opened(None, "quadratic", {}) as study:
        trial_study = TrialStudy(study, ranges, sampler_of(search, ranges, 0, 10), 80)
        actual = []
        while asked := trial_study.ask(10):
            for trial in asked:
                score = -((trial.setting["lam"] - 0.3) ** 2) - (trial.setting["clip_eps"] - 0.7) ** 2
                trial_study.tell(complete(trial, score))
                actual.append(score)
        assert len(actual) == 80
        # The mean of uniform draws is -(1/12 + 0.04 + 1/12 + 0.04) = -0.247.
        assert sum(actual[-20:]) / 20 > -0.06
        settings = {tuple(trial.params.values()) for trial in study.trials}
        assert len(settings) == 80


def test_another_study_is_refused(space: Space, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with opened(url, "some", {"space": {"lr": "log:0.0001:0.01"}, "env_steps": 10}):
        pass
    with (
        pytest.raises(ResultError, match=r"'some' is of another search: space.lr is .* there and"),
        opened(url, "some", {"space": {"lr": "log:0.001:0.01"}, "env_steps": 10}),
    ):
        pass
    optuna.create_study(storage=url, study_name="foreign").ask()
    with pytest.raises(ResultError, match="'foreign' was not created by jaxrl"), opened(url, "foreign", {}):
        pass


def test_unusable_storage_raises_one_sentence(space: Space, tmp_path: Path):
    no_database = tmp_path / "text.db"
    no_database.write_text("this is not a database, however long it may be " * 100)
    for url, sentence in [
        (f"sqlite:///{tmp_path}/nowhere/study.db", "unable to open database file"),
        (f"sqlite:///{no_database}", "file is not a database"),
        ("postgresql+psycopg2://me:secret@127.0.0.1:1/x", "package that is not installed|refused"),
    ]:
        with pytest.raises((ResultError, ImportError), match=sentence) as caught, opened(url, "some", {}):
            pass
        assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_storage_that_disappears_raises_one_sentence(space: Space, tmp_path: Path):
    file = tmp_path / "study.db"
    with pytest.raises(ResultError, match=f"storage sqlite:///{file} cannot be used"):  # noqa: SIM117
        with opened(f"sqlite:///{file}", "some", {}) as study:
            trial_study = shared(study, space, 4)
            trial_study.ask(1)
            with sqlite3.connect(file) as connection:
                connection.execute("DROP TABLE trials")
            trial_study.ask(1)


@pytest.mark.parametrize(
    "outcome",
    [
        {},
        None,
        [],
        {"number": 0, "state": "over", "setting": {}, "score": 1.0, "returns": [1.0], "env_steps": 64},
        {"number": 0, "state": "complete", "setting": {}, "score": "much", "returns": [1.0], "env_steps": 64},
        {"number": 7, "state": "complete", "setting": {}, "score": 1.0, "returns": [1.0], "env_steps": 64},
    ],
)
def test_a_damaged_outcome_raises_one_sentence(space: Space, outcome: Any):
    with opened(None, "some", {}) as study:
        shared = TrialStudy(study, space, sampler_of("random", space, 0, 5), 3)
        (asked,) = shared.ask(1)
        shared._own[asked.number].set_user_attr(OUTCOME, outcome)
        study.tell(asked.number, 1.0)
        with pytest.raises(ResultError, match="trial 0 of the study is damaged: it has the outcome"):
            shared.outcomes()


@pytest.mark.parametrize(
    "write",
    [
        lambda out: claim(out, {}, "some"),
        lambda out: write_search(out, "some", {}, [Outcome(0, "complete", {"lr": 0.1}, 1.0, [1.0], 64)]),
        lambda out: write_json(out / "search.json", {}),
        lambda out: write_csv(out / "lineage.csv", ["round"], [[0]]),
        lambda out: CheckpointFiles(out),
    ],
)
def test_files_that_cannot_be_written_raise_one_sentence(tmp_path: Path, write: Any) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ResultError, match=r"^.*file/run.* cannot be written: Not a directory\.$"):
        write(tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("name", ["trials.csv", "trials.parquet", "incumbent.json", "study.db", "default", "incumbent"])
def test_a_search_keeps_files_of_others(name: str, tmp_path: Path):
    (tmp_path / name).write_text("precious")
    with pytest.raises(ExistsError, match=f"holds {name}, which would be replaced and which no search of jaxrl wrote"):
        claim(tmp_path, {}, "some")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["precious"]
    (tmp_path / name).rename(tmp_path / "precious")
    (tmp_path / name).symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=f"{name} is a link, through which nothing is written"):
        claim(tmp_path, {}, "some")


def test_a_search_without_its_description_resumes(tmp_path: Path):
    assert claim(tmp_path, {"env_steps": 64}, "some") == tmp_path
    with opened(f"sqlite:///{tmp_path / 'study.db'}", "some", {"env_steps": 64}):
        pass
    (tmp_path / "trials.csv").write_text("trial")
    (tmp_path / "search.json").unlink()
    claim(tmp_path, {"env_steps": 64}, "some")
    assert (tmp_path / "search.json").is_file()


def test_a_missing_extra_is_named(space: Space, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"a search needs the extra `search`: pip install '\.\[search\]' in a clone"):
        jaxrl.search(space.algo, env_steps=10)


def test_a_trial_of_a_process_that_died_unsigned_is_repeated(space: Space, tmp_path: Path):
    """Killed between the two, it leaves a trial without an owner, which another live process may be about to sign."""
    with opened(f"sqlite:///{tmp_path / 'study.db'}", "shared", {"space": space.described()}) as study:
        study.ask()
        trial_study = shared(study, space, 4)
        trial_study._beat()
        asked = trial_study.ask(5)
        assert len(asked) == 4 and not trial_study.num_free()
        for trial in asked:
            trial_study.tell(complete(trial))
        assert len(trial_study.outcomes()) == 4 and not trial_study.num_running()


def test_trials_reserved_by_another_process_are_not_asked_for(space: Space, tmp_path: Path):
    with opened(f"sqlite:///{tmp_path / 'study.db'}", "shared", {"space": space.described()}) as study:
        trial_study, other_study = shared(study, space, 4), shared(study, space, 4)
        other_study._beat()
        study.ask()
        assert len(trial_study.ask(5)) == 3
