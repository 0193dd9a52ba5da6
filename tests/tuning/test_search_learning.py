"""Proposals of a search after recorded outcomes, without training."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import envs
import jaxrl
from jaxrl import Choice, Halving, LogUniform, Uniform
from jaxrl.algorithms.contract import Algorithm
from jaxrl.tuning import search as searching
from jaxrl.tuning.run_trials import Tuning
from jaxrl.tuning.shared_study import Asked, Outcome

SPACE = {"lr": LogUniform(1e-4, 1e-2), "lam": Uniform(0.8, 1.0), "clip_eps": Uniform(0.1, 0.4)}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return jaxrl.ppo(envs.make("pendulum"), jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, hidden=(8,)))


class Training:
    """A stand-in for the training of populations: a trial's score is the distance of its lam from 0.9, with a sign.

    Attributes:
      sign: Sign of the score, -1.0 if a small distance is good, 1.0 if a large one is.
      populations: Sizes of the requested populations.
    """

    def __init__(self) -> None:
        self.sign = -1.0
        self.populations: list[int] = []

    def __call__(
        self, tuning: Tuning, asked: Sequence[Asked], tell: Callable[[Outcome], None], bar: Any, stop: Any
    ) -> None:
        del bar, stop
        self.populations.append(len(asked))
        for trial in asked:
            score = self.sign * abs(trial.setting["lam"] - 0.9)
            tell(Outcome(trial.number, "complete", trial.setting, score, [score] * len(tuning.seeds), tuning.env_steps))


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Training:
    instead = Training()
    monkeypatch.setattr(searching, "do_trials", instead)
    return instead


def searched(algo: Algorithm, search: str, **changes: Any) -> list[dict[str, Any]]:
    """The settings of a search."""
    options: dict[str, Any] = {"space": SPACE, "env_steps": 1000, "test_seeds": 0, "progress": False, "search": search}
    return [trial.setting for trial in jaxrl.search(algo, **(options | changes)).trials]


@pytest.mark.parametrize("search", ["tpe", "cmaes"])
def test_later_trials_depend_on_earlier_outcomes(algo: Algorithm, training: Training, search: str):
    near = searched(algo, search)
    training.sign = 1.0
    far = searched(algo, search)
    assert training.populations == [8] * 16
    assert near[:16] == far[:16]  # tpe's first 10, cmaes's first population and its first generation
    assert all(one != other for one, other in zip(near[16:], far[16:], strict=True))
    # Towards 0.9 if that is the best, away from it if that is the worst; a uniform draw is 0.05 away.
    distances = [sum(abs(setting["lam"] - 0.9) for setting in actual[-16:]) / 16 for actual in (near, far)]
    assert distances[0] < 0.04 and distances[1] > 0.06


@pytest.mark.parametrize(("search", "num_trials"), [("random", 64), ("grid", 6)])
def test_samplers_that_do_not_learn_draw_all_trials_at_once(
    algo: Algorithm, training: Training, search: str, num_trials: int
):
    space = {"lr": Choice([1e-4, 1e-3, 1e-2]), "lam": Choice([0.8, 0.9])}
    assert len(searched(algo, search, space=space)) == num_trials
    assert training.populations == [num_trials]


def test_populations_occupy_the_devices_as_far_as_the_search_still_learns(algo: Algorithm, training: Training):
    # Twelve threads take twelve runs: four trials of three seeds, or twelve of one: at most a quarter of all.
    for seeds, populations in ((3, [4] * 6), (1, [6] * 4)):
        training.populations.clear()
        searched(algo, "tpe", trials=24, seeds=seeds, devices=["cpu:0"] * 12)
        assert training.populations == populations


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"search": "tpe", "trials": 64, "population": 64}, "tpe learns nothing from 64 trials in populations of 64"),
        ({"search": "tpe", "trials": 10, "population": 1}, "the first 10 of which it chooses without results"),
        ({"search": "cmaes", "trials": 64, "population": 32}, "cmaes learns nothing from 64 trials in populations"),
        ({"search": "cmaes", "halving": Halving()}, "halving does not work with cmaes, which learns from whole runs"),
        ({"search": "tpe", "population": 0}, "population must be"),
    ],
)
def test_a_search_that_cannot_learn_is_refused(algo: Algorithm, training: Training, changes: Any, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        searched(algo, **changes)
    assert not training.populations


def test_too_few_trials_for_learning_raise_a_warning(algo: Algorithm, training: Training):
    with pytest.warns(RuntimeWarning, match="tpe learns nothing from 8 trials in populations of 1"):
        searched(algo, "tpe", trials=8)
    assert training.populations == [1] * 8


def test_no_two_rungs_of_halving_are_one_iteration(algo: Algorithm, training: Training):
    options: dict[str, Any] = {"search": "random", "halving": Halving()}
    sentence = (
        r"^halving compares trials after 8, 22 and 64 env steps, which are 1, 1 and 2 iterations of 32 each, and needs"
    )
    with pytest.raises(ValueError, match=sentence):
        searched(algo, env_steps=64, **options)
    assert searched(algo, env_steps=9 * 32, **options)
    # Two environments' steps of 64 each: in this group all three rungs are one, two and five iterations, or fewer.
    static = SPACE | {"config.num_steps": Choice([16, 64])}
    with pytest.raises(ValueError, match=r"1, 1 and 3 iterations of 128 each with config.num_steps=64, and"):
        searched(algo, env_steps=9 * 32, space=static, **options)
    assert len(training.populations) == 1
