"""Bad input to bandits gets one sentence, before anything is compiled."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import envs
from envs.bandits.adaptive import AdaptiveParams
from envs.bandits.adversarial import ConstrainedParams
from envs.bandits.bernoulli import BernoulliBandit, BernoulliParams
from envs.bandits.contextual import LinearParams
from envs.bandits.delayed import DelayedParams
from envs.bandits.gaussian import GaussianParams
from envs.bandits.heavy_tailed import ParetoParams, StudentParams
from envs.bandits.nonstationary import ChangingParams, RandomWalkParams, SinusoidalParams
from envs.bandits.piecewise import PiecewiseParams
from envs.bandits.positive import PositiveParams
from envs.bandits.sleeping import SleepingParams
from jaxrl import bandits
from jaxrl.bandits.runner import task_of

STILL = (("transitions", np.broadcast_to(np.eye(3), (2, 2, 3, 3)).tolist()), ("rewards", np.zeros((2, 2, 3)).tolist()))
CHANNELS = (("good_after_bad", (0.1, 0.2)), ("good_after_good", (0.8, 0.9)))
RING = ((0, 1, 1), (1, 0, 1), (1, 1, 0))


def sequence_with(table: Any, own: Any = ((0, 1), (1, 0))) -> None:
    """`run_bandit` on a sequence inside another bandit, with a replaced table."""
    env: Any = envs.make("bandit/delayed", inner=envs.make("bandit/sequence", table=own))
    inner = env.inner.default_params.replace(table=np.asarray(table, np.float32))
    env.check_params(dataclasses.replace(env.default_params, inner=inner))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: envs.make("bandit/gaussian", num_arms=1), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: envs.make("bandit/gaussian", means=(1.0,)), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: envs.make("bandit/gaussian", means=(1.0, np.inf)), "means must be a sequence of finite numbers"),
        (lambda: GaussianParams(sigma=-1.0), r"sigma must lie in \[0.0, inf\), got -1.0"),
        (
            lambda: dataclasses.replace(GaussianParams(), prior_sigma=np.array([1.0, -1.0])),
            r"prior_sigma must lie in \[0.0, inf\), got -1.0",
        ),
        (lambda: GaussianParams(prior_mean="1"), "prior_mean takes a number, got '1'"),  # type: ignore[arg-type]
        (lambda: GaussianParams(means=np.array([0.0, np.nan])), r"means must lie in \(-inf, inf\), got nan"),
        (lambda: BernoulliParams(alpha=0.0), r"alpha must lie in \(0.0, inf\), got 0.0"),
        (lambda: BernoulliParams(means=np.array([0.5, 1.5])), r"means must lie in \[0.0, 1.0\], got 1.5"),
        (lambda: envs.make("bandit/linear", num_features=0), "num_features must be a whole number of at least 1"),
        (lambda: LinearParams(sigma=-0.5), r"sigma must lie in \[0.0, inf\), got -0.5"),
        (lambda: ChangingParams(low=1.0, high=1.0), "low must be below high, got 1.0 and 1.0"),
        (lambda: RandomWalkParams(step=-1.0), r"step must lie in \[0.0, inf\), got -1.0"),
        (lambda: SinusoidalParams(period=0.0), r"period must lie in \(0.0, inf\), got 0.0"),
        (lambda: PiecewiseParams(change=1.5), r"change must lie in \[0.0, 1.0\], got 1.5"),
        (
            lambda: envs.make("bandit/piecewise", rewards="beta"),
            "rewards must be one of bernoulli, gaussian, got",
        ),
        (lambda: envs.make("bandit/piecewise", means=((0, 1),)), "means and starts must be given together"),
        (lambda: envs.make("bandit/piecewise", means=((0, 1),), starts=(1,)), "starts must be whole numbers that incr"),
        (lambda: envs.make("bandit/piecewise", means=((0, 1),), starts=(0, 1)), "starts must have one number for each"),
        (lambda: envs.make("bandit/piecewise", means=((0, 1), (1,)), starts=(0, 1)), "means must have a number for ea"),
        (lambda: envs.make("bandit/sequence", table=((0, 1), (1,))), "table must have rows of finite numbers, one for"),
        (lambda: envs.make("bandit/sequence", table=3), "table must have rows of finite numbers, one for .*, got 3"),
        (lambda: envs.make("bandit/sequence", table=(("a", "b"),)), "table must have rows of finite numbers, one for"),
        (lambda: envs.make("bandit/piecewise", means=0.5, starts=(0,)), "means must have a row for every piece, got 0"),
        (lambda: envs.make("bandit/piecewise", means=((0, 1),), starts=0), "starts must be whole numbers that incr"),
        (lambda: envs.make("bandit/sequence", table=((0,), (1,))), "num_arms must be a whole number of at least 2"),
        (lambda: sequence_with(((0, -3), (1, 0))), r"table must lie in \[0.0, 1.0\], the range of .*, got -3.0; make"),
        (lambda: sequence_with(((0, -3), (2, 1)), ((0, -1), (2, 1))), r"table must lie in \[-1.0, 2.0\], .*, got -3.0"),
        (lambda: ConstrainedParams(gap=0.0), r"gap must lie in \(0.0, 1.0\], got 0.0"),
        (lambda: AdaptiveParams(rate=-0.1), r"rate must lie in \[0.0, 1.0\], got -0.1"),
        (lambda: envs.make("bandit/poisson", means=(1, -1)), r"means must lie in \[0.0, inf\), got -1.0"),
        (lambda: PositiveParams(shape=0.0), r"shape must lie in \(0.0, inf\), got 0.0"),
        (lambda: StudentParams(degrees=1.0), r"degrees must lie in \(1.0, inf\), got 1.0"),
        (lambda: ParetoParams(tail=0.5), r"tail must lie in \(1.0, inf\), got 0.5"),
        (lambda: SleepingParams(awake=1.1), r"awake must lie in \[0.0, 1.0\], got 1.1"),
        (lambda: envs.make("bandit/sleeping", inner="bernoulli"), "inner must be a bandit whose actions are single ar"),
        (lambda: envs.make("bandit/delayed", inner=envs.make("cartpole")), "inner must be a bandit whose actions are "),
        (lambda: envs.make("bandit/delayed", inner=envs.make("bandit/delayed")), "inner must be a bandit without del"),
        (lambda: envs.make("bandit/delayed", delays=(0.5, 0.4)), r"delays must sum to 1, got 0.9"),
        (lambda: envs.make("bandit/delayed", delays=(1.5, -0.5)), r"delays must lie in \[0.0, 1.0\], got 1.5"),
        (lambda: DelayedParams(delays=np.ones(2, np.float32)), "delays must sum to 1, got 2"),
    ],
)
def test_bad_input_gets_one_sentence(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


@pytest.mark.parametrize(
    ("name", "asked", "instance", "sentence"),
    [
        ("bernoulli", {"num_arms": 10}, {"means": (0.1, 0.2)}, "num_arms is 10, but means has 2; leave out num_arms"),
        ("gaussian", {"num_arms": 3}, {"means": (0.1, 0.2)}, "num_arms is 3, but means has 2; leave out num_arms"),
        ("random-walk", {"num_arms": 3}, {"means": (0.1, 0.2)}, "num_arms is 3, but means has 2"),
        ("sinusoidal", {"num_arms": 3}, {"phases": (0.1, 0.2)}, "num_arms is 3, but phases has 2"),
        ("piecewise", {"num_arms": 3}, {"means": ((0, 1),), "starts": (0,)}, "num_arms is 3, but each piece of means"),
        ("sequence", {"num_arms": 3}, {"table": ((0, 1),)}, "num_arms is 3, but each row of table has 2"),
        ("dueling", {"num_arms": 3}, {"rewards": (0, 1)}, "num_arms is 3, but rewards has 2"),
        ("delayed", {"num_arms": 3}, {"inner": BernoulliBandit(2)}, "num_arms is 3, but inner has 2"),
        ("restless", {"num_arms": 3}, dict(STILL), "num_arms is 3, but transitions has 2"),
        ("restless", {"num_states": 2}, dict(STILL), "num_states is 2, but transitions has 3"),
        ("gilbert-elliott", {"num_arms": 3}, dict(CHANNELS), "num_arms is 3, but good_after_bad has 2"),
        (
            "coupled-interventions",
            {"num_arms": 3},
            {"reach": ((1, 1),) * 2},
            "num_arms is 3, but each row of reach",
        ),
        ("coupled-matching", {"num_arms": 3}, {"edges": ((1, 1),)}, "num_arms is 3, but each row of edges has 2"),
        ("coupled-matching", {"num_workers": 2}, {"edges": ((1, 1),)}, "num_workers is 2, but edges has 1"),
        ("coupled-capacity", {"num_arms": 3}, {"costs": (1, 1)}, "num_arms is 3, but costs has 2"),
        ("coupled-capacity", {"num_workers": 3}, {"capacities": (1, 1)}, "num_workers is 3, but capacities has 2"),
        ("coupled-path", {"num_arms": 5}, {"neighbours": RING}, "num_arms is 5, but neighbours has 3"),
    ],
)
def test_a_number_that_an_instance_contradicts_is_refused(
    name: str, asked: dict[str, int], instance: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        envs.make(f"bandit/{name}", **asked, **instance)
    env: Any = envs.make(f"bandit/{name}", **instance)
    (field,) = asked
    default: Any = envs.make(f"bandit/{name}")
    same: Any = envs.make(f"bandit/{name}", **{field: getattr(env, field)}, **instance)
    assert same == env and hash(same) == hash(env)
    # A number that was not requested may still change.
    assert dataclasses.replace(default, **instance) == env


def test_a_sequence_says_the_range_of_its_rewards() -> None:
    env: Any = envs.make("bandit/sequence", table=((0.2, 0.4), (0.3, 0.9)))
    assert env.reward_range == (0.0, 1.0)
    sequence_with(((0, 1), (0.5, 0.5)), env.table)
    wide: Any = envs.make("bandit/sequence", table=((-1, 0.4), (0.3, 2)))
    assert wide.reward_range == (-1.0, 2.0)
    for name in ("exp3", "exp3-ix", "exp3-s", "tsallis-inf", "thompson"):
        with pytest.raises(ValueError, match=rf"{name} takes rewards in \[0, 1\], those of .* lie in \[-1.0, 2.0\]"):
            bandits.policy(name).check(task_of(wide))


def test_an_instance_has_the_arms_of_its_bandit() -> None:
    env: Any = envs.make("bandit/gaussian", num_arms=3)
    params = env.default_params.replace(means=np.zeros(5, np.float32))
    with pytest.raises(ValueError, match=r"means must have the shape \(3,\), got \(5,\)"):
        jax.eval_shape(env.reset_env, jax.random.key(0), params)
