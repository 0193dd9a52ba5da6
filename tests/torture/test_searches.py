"""Killed searches, especially between requesting a trial and signing it, run each trial once when resumed."""

import signal
from pathlib import Path
from typing import Any

import pytest
from torturing import LEARNERS, begun, drawn, learner, quiet, share

import jaxrl

TRIALS = 8
KILLS = 8  # of all learners
NUMBERS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)  # one of them
SEARCH = """
import os, signal, sys, warnings
from pathlib import Path
from test_searches import search
name, out, at, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
import optuna
steps = 0
def step():
    global steps
    steps += 1
    if steps == at:
        os.kill(os.getpid(), number)
def stepping(method):
    def call(*args, **kwargs):
        step()
        result = method(*args, **kwargs)
        step()
        return result
    return call
for kind, method in (
    (optuna.study.Study, "ask"), (optuna.study.Study, "tell"), (optuna.study.Study, "enqueue_trial"),
    (optuna.study.Study, "set_user_attr"), (optuna.trial.Trial, "set_user_attr"), (optuna.trial.Trial, "suggest_float"),
):
    setattr(kind, method, stepping(getattr(kind, method)))
warnings.simplefilter("ignore")
result = search(name, out)
print("steps", steps, flush=True)
"""


def search(name: str, out: Path | None) -> jaxrl.SearchResult:
    algo = learner(name)
    return jaxrl.search(
        algo,
        trials=TRIALS,
        env_steps=4 * algo.env_steps_per_iteration,
        search="random",
        seeds=2,
        test_seeds=2,
        population=3,
        eval_episodes=2,
        block=2,
        progress=False,
        out=out,
    )


def trials_of(result: jaxrl.SearchResult) -> list[Any]:
    """The finished trials, independent of their numbers."""
    return sorted(
        (repr(sorted(trial.setting.items())), trial.state, trial.score, trial.returns) for trial in result.trials
    )


@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_search_that_is_killed_at_any_step_does_every_trial(name: str, tmp_path: Path) -> None:
    with quiet():
        expected = trials_of(search(name, None))
    assert len(expected) == TRIALS
    child = begun(SEARCH, name, tmp_path / "whole", 0, 9)
    counted, error = child.communicate(timeout=300)
    assert counted.startswith("steps "), error
    steps, generator = int(counted.split()[1]), drawn("searches", name)
    for number in generator.choice(NUMBERS, share(KILLS)).tolist():
        at = int(generator.integers(1, steps + 1))
        out = tmp_path / f"{number}-{at}"
        child = begun(SEARCH, name, out, at, number)
        _, error = child.communicate(timeout=300)
        assert number == signal.SIGKILL or "Traceback" not in error, error
        with quiet():
            result = search(name, out)
        assert trials_of(result) == expected, f"{number} at {at}"
        assert result.num_running == 0
