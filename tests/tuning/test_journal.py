"""Studies in Optuna's journal: several processes append to one file, which any of them may leave torn or locked."""

import threading
from pathlib import Path

import pytest

import envs
import jaxrl
from jaxrl import Uniform
from jaxrl.cli import main as cli
from jaxrl.results.dataset import ResultError
from jaxrl.tuning.samplers import sampler_of
from jaxrl.tuning.shared_study import Outcome, TrialStudy, opened
from jaxrl.tuning.space import Space

CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, hidden=(8,))


@pytest.fixture(scope="module")
def space() -> Space:
    return Space(jaxrl.ppo(envs.make("pendulum"), CONFIG), {"lam": Uniform(0.8, 1.0)})


def work(url: str, space: Space, num_trials: int, done: list[int]) -> None:
    """Do trials of a study until none is left, with a view of its own on the file, as of a process."""
    with opened(url, "shared", {}) as study:
        trials = TrialStudy(study, space, sampler_of("random", space, 0, 2), num_trials)
        while asked := trials.ask(2):
            for trial in asked:
                trials.tell(Outcome(trial.number, "complete", trial.setting, 1.0, [1.0], 10))
                done.append(trial.number)


def test_four_workers_on_one_file_lose_no_trial(space: Space, tmp_path: Path) -> None:
    url = f"journal:{tmp_path / 'study.log'}"
    done: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=work, args=(url, space, 16, each)) for each in done]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [number for numbers in done for number in numbers]
    assert len(every) == len(set(every)) == 16
    with opened(url, "shared", {}) as study:
        outcomes = TrialStudy(study, space, sampler_of("random", space, 0, 2), 16).outcomes()
    # The random design of one process alone, trial by trial.
    drawn = sorted(space.drawn(0, place)["lam"] for place in range(16))
    assert sorted(trial.setting["lam"] for trial in outcomes) == pytest.approx(drawn)
    assert [path.name for path in tmp_path.iterdir()] == ["study.log"]  # no lock is left


@pytest.mark.parametrize("relative", [False, True])
def test_an_incomplete_line_is_removed(
    relative: bool, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "folder" / "study.log"
    file.parent.mkdir()
    url = "journal:folder/study.log" if relative else f"journal:{file}"
    done: list[int] = []
    work(url, space, 2, done)
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"op_code":8,"trial')
    work(url, space, 4, done)
    assert done == [0, 1, 2, 3]
    assert file.read_bytes().startswith(whole + b'{"op_code"') and file.read_bytes().endswith(b"}\n")
    file.write_bytes(b'{"op_co')  # torn in the first write
    work(url, space, 2, done)
    assert done == [0, 1, 2, 3, 0, 1]


def test_a_damaged_journal_and_other_files_are_refused(space: Space, tmp_path: Path) -> None:
    file = tmp_path / "study.log"
    for text in ("notes of mine\n", "notes", "3\n", '{"a": 1}\n', "\x00" * 5000):
        file.write_text(text)
        with pytest.raises(ResultError, match=f"^the storage journal:{file} cannot be used: the file is not a journal"):
            work(f"journal:{file}", space, 2, [])
        assert file.read_text() == text
    file.unlink()
    work(f"journal:{file}", space, 2, [])
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], b"torn by hand\n", *lines[1:]]))
    with pytest.raises(ResultError, match=r"cannot be used: line \d+ of the file, or a later one, is damaged$"):
        work(f"journal:{file}", space, 2, [])
    for path, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "nowhere" / "study.log", "No such file or directory"),
    ):
        with pytest.raises(ResultError, match=f"^the storage journal:{path} cannot be used: {reason}$"):
            work(f"journal:{path}", space, 2, [])
    with pytest.raises(ValueError, match=r"^storage takes journal:PATH with the path of a file, got 'journal:'$"):
        work("journal:", space, 2, [])


def test_the_command_takes_a_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = (
        f"search ppo pendulum --no-preset --no-progress --search random --space lam=0.8:1 --trials 2 --population 2 "
        f"--seeds 1 --test-seeds 0 --env-steps 64 --eval-episodes 2 --config.num-envs 2 --config.num-steps 16 "
        f"--config.num-minibatches 2 --config.num-epochs 1 --config.hidden 8 --storage journal:{tmp_path}/study.log"
    )
    for _ in range(2):  # the second finds the study complete
        assert cli.main(command.split()) == 0
        assert "2 of 2 trials" in capsys.readouterr().out
    assert cli.main([*command.split()[:-1], "journal:"]) == 2
    assert capsys.readouterr().err == "jaxrl: storage takes journal:PATH with the path of a file, got 'journal:'\n"
