"""Statistics against rliable, which requires pandas below 3 and therefore a separate virtual environment.

JAXRL_RLIABLE names the Python of that environment: `make test-rliable` and `make test-all` create the environment and
set the variable.
"""

import json
import os
import subprocess
from typing import Any

import numpy as np
import pytest

from jaxrl.results import statistics

EPS = np.finfo(np.float64).eps
PYTHON = os.environ.get("JAXRL_RLIABLE")
THRESHOLDS = np.linspace(-2, 2, 9)
# rliable holds scores as [runs, tasks].
SCRIPT = """
import json, sys
import numpy as np
from rliable import library, metrics
asked = {name: np.asarray(values) for name, values in json.load(sys.stdin).items()}
runs, other = asked["scores"].T, asked["other"].T
print(json.dumps({
    "iqm": metrics.aggregate_iqm(runs),
    "mean": metrics.aggregate_mean(runs),
    "median": metrics.aggregate_median(runs),
    "optimality_gap": metrics.aggregate_optimality_gap(runs),
    "improvement": metrics.probability_of_improvement(runs, other),
    "profile": [float(library.run_score_deviation(runs, level)) for level in asked["thresholds"]],
}))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="takes rliable: make test-rliable, or make test-all"),
]


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    return np.round(np.random.default_rng(3).normal(size=(4, 23)), 1)  # some of them equal


@pytest.fixture(scope="module")
def other() -> np.ndarray:
    return np.round(np.random.default_rng(4).normal(0.3, 1, size=(4, 11)), 1)


@pytest.fixture(scope="module")
def theirs(scores: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    asked = {"scores": scores.tolist(), "other": other.tolist(), "thresholds": THRESHOLDS.tolist()}
    done = subprocess.run([str(PYTHON), "-c", SCRIPT], input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_aggregates_agree_with_rliable(scores: np.ndarray, theirs: dict[str, Any]) -> None:
    ours = {
        "iqm": statistics.iqm(scores, axis=(-2, -1)),
        "mean": statistics.mean(scores, axis=(-2, -1)),
        "median": statistics.median(statistics.mean(scores)),
        "optimality_gap": statistics.optimality_gap(scores, axis=(-2, -1)),
    }
    for name, value in ours.items():
        assert float(value) == pytest.approx(theirs[name], abs=scores.size * EPS), name


def test_probability_of_improvement_agrees_with_rliable(
    scores: np.ndarray, other: np.ndarray, theirs: dict[str, Any]
) -> None:
    ours = statistics.probability_of_improvement(scores, other)
    assert float(ours.value) == pytest.approx(theirs["improvement"], abs=scores.size * EPS)


def test_performance_profiles_agree_with_rliable(scores: np.ndarray, theirs: dict[str, Any]) -> None:
    ours = statistics.performance_profile(scores, THRESHOLDS)
    np.testing.assert_allclose(ours.value, theirs["profile"], atol=scores.size * EPS)
