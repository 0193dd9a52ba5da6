"""Bandits of other libraries, for bench/bandits.py: SMPyBandits, MABWiser and a vectorised NumPy loop.

    python bench/peers/bandits.py        answers requests, a line of JSON each, on standard input

Runs in a separate environment with SMPyBandits and MABWiser but without jaxrl. SMPyBandits 0.9.7 needs a function that
SciPy has since renamed; the script adds the old name.
"""

import contextlib
import importlib
import importlib.metadata
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

FEATURES = 5
# Our name: module and class of SMPyBandits.Policies, and arguments for which the policies agree.
POLICIES = {
    "ucb1": ("UCBalpha", "UCBalpha", {"alpha": 4}),
    "ucb-v": ("UCBV", "UCBV", {}),
    "kl-ucb": ("klUCB", "klUCB", {}),
    "moss": ("MOSSH", "MOSSH", {"horizon": None}),
    "thompson": ("Thompson", "Thompson", {}),
}


def smpybandits(name: str, num_arms: int, steps: int) -> Any:
    """A policy of SMPyBandits."""
    import scipy.special

    if not hasattr(scipy.special, "btdtri"):
        scipy.special.btdtri = scipy.special.betaincinv  # pyright: ignore[reportAttributeAccessIssue]
    module, kind, arguments = POLICIES[name]
    if "horizon" in arguments:
        arguments = {"horizon": steps}
    return vars(importlib.import_module(f"SMPyBandits.Policies.{module}"))[kind](num_arms, **arguments)


def play(name: str, means: np.ndarray, steps: int, first_of_equals: bool) -> float:
    """One run of SMPyBandits as in its evaluator; returns its regret.

    With `first_of_equals` ties go to the first arm with the highest index, as in jaxrl, and not to a random one.
    """
    policy = smpybandits(name, len(means), steps)
    policy.startGame()
    pulls = np.zeros(len(means))
    for _ in range(steps):
        if first_of_equals and name != "thompson":
            policy.computeAllIndex()
            arm = int(np.argmax(policy.index))
        else:
            arm = int(policy.choice())
        policy.getReward(arm, float(np.random.random() < means[arm]))  # noqa: NPY002 -- as the policies themselves
        pulls[arm] += 1
    return float(np.sum(pulls * (means.max() - means)))


def mabwiser(num_arms: int, steps: int) -> None:
    """One run of MABWiser's LinUCB, which learns coefficients for each arm from features of the round."""
    from mabwiser.mab import MAB, LearningPolicy  # pyright: ignore[reportMissingImports]

    rng = np.random.default_rng(0)
    theta = rng.normal(size=(num_arms, FEATURES))
    bandit = MAB(list(range(num_arms)), LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
    bandit.fit([0], [0.0], rng.normal(size=(1, FEATURES)))
    for _ in range(steps):
        features = rng.normal(size=(1, FEATURES))
        arm = bandit.predict(features)
        bandit.partial_fit([arm], [float(theta[arm] @ features[0] + rng.normal())], features)


def loop_ucb1(num_runs: int, num_arms: int, steps: int) -> np.ndarray:
    """UCB1 on Bernoulli arms, vectorised over runs, after one pull of each arm; regrets `[R]`."""
    rng = np.random.default_rng(0)
    means, rows = rng.random((num_runs, num_arms)), np.arange(num_runs)
    best = means.max(axis=1)
    pulls, sums = np.ones_like(means), (rng.random(means.shape) < means).astype(np.float64)
    regret = np.sum(best[:, None] - means, axis=1)
    for step in range(num_arms, num_arms + steps):
        arm = np.argmax(sums / pulls + np.sqrt(2 * np.log(step) / pulls), axis=1)
        pulls[rows, arm] += 1
        sums[rows, arm] += rng.random(num_runs) < means[rows, arm]
        regret += best - means[rows, arm]
    return regret


def loop_thompson(num_runs: int, num_arms: int, steps: int) -> np.ndarray:
    """Thompson sampling on Bernoulli arms, vectorised over runs; regrets `[R]`."""
    rng = np.random.default_rng(0)
    means, rows = rng.random((num_runs, num_arms)), np.arange(num_runs)
    won, lost, regret = np.ones_like(means), np.ones_like(means), np.zeros(num_runs)
    best = means.max(axis=1)
    for _ in range(steps):
        arm = np.argmax(rng.beta(won, lost), axis=1)
        reward = rng.random(num_runs) < means[rows, arm]
        won[rows, arm] += reward
        lost[rows, arm] += ~reward
        regret += best - means[rows, arm]
    return regret


def loop_lin_ucb(num_runs: int, num_arms: int, steps: int) -> np.ndarray:
    """LinUCB with shared coefficients and features resampled for every pull, vectorised over runs; regrets `[R]`."""
    rng = np.random.default_rng(0)
    rows = np.arange(num_runs)
    theta = rng.normal(size=(num_runs, FEATURES))
    inverse = np.tile(np.eye(FEATURES), (num_runs, 1, 1))
    target, regret = np.zeros_like(theta), np.zeros(num_runs)
    for _ in range(steps):
        features = rng.normal(size=(num_runs, num_arms, FEATURES))
        features /= np.linalg.norm(features, axis=-1, keepdims=True)
        estimate = np.einsum("rde,re->rd", inverse, target)
        spread = features @ inverse
        width = np.sqrt(np.einsum("rkd,rkd->rk", spread, features))
        arm = np.argmax(np.einsum("rkd,rd->rk", features, estimate) + width, axis=1)
        values = np.einsum("rkd,rd->rk", features, theta)
        chosen, shift = features[rows, arm], spread[rows, arm]
        inverse -= shift[:, :, None] * shift[:, None, :] / (1 + np.sum(shift * chosen, axis=-1))[:, None, None]
        target += (values[rows, arm] + rng.normal(size=num_runs))[:, None] * chosen
        regret += values.max(axis=1) - values[rows, arm]
    return regret


LOOPS: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "ucb1": loop_ucb1,
    "thompson": loop_thompson,
    "lin-ucb": loop_lin_ucb,
}


def rate(library: str, policy: str, num_arms: int, num_runs: int, steps: int) -> dict[str, float]:
    """Pulls per second."""
    started = time.perf_counter()
    if library == "numpy":
        LOOPS[policy](num_runs, num_arms, steps)
    elif library == "mabwiser":
        mabwiser(num_arms, steps)
    else:
        play(policy, np.linspace(0.05, 0.95, num_arms), steps, first_of_equals=False)
    pulls = steps * (num_runs if library == "numpy" else 1)
    return {"pulls_per_second": pulls / (time.perf_counter() - started)}


def regrets(policy: str, means: list[float], num_runs: int, steps: int) -> dict[str, list[float]]:
    """The regret of every run of SMPyBandits."""
    np.random.seed(0)  # noqa: NPY002 -- its policies draw from this generator
    return {"regret": [play(policy, np.asarray(means), steps, first_of_equals=True) for _ in range(num_runs)]}


def beta(shape: list[int], alpha: float, beta: float, times: int) -> dict[str, float]:
    """Beta variates per second of NumPy."""
    rng = np.random.default_rng(0)
    parameters = np.full(shape, alpha), np.full(shape, beta)
    started = time.perf_counter()
    for _ in range(times):
        rng.beta(*parameters)
    return {"variates_per_second": times * parameters[0].size / (time.perf_counter() - started)}


def versions() -> dict[str, str]:
    """Versions of the packages in this environment."""
    return {name: importlib.metadata.version(name) for name in ("SMPyBandits", "mabwiser", "numpy")}


ANSWERS: dict[str, Callable[..., dict]] = {"rate": rate, "regrets": regrets, "beta": beta, "versions": versions}


def main() -> None:
    """Answer the requests on the standard input."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        request = json.loads(line)
        with contextlib.redirect_stdout(sys.stderr):  # SMPyBandits prints the imports that failed
            answer = ANSWERS[request.pop("do")](**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
