"""The studies on the mixture critic: exact values, the remaining bias, and errors."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from bench.studies import estimator_bias, mixture_critic
from bench.studies.estimator_bias import Ring, Settings, root_mean_square

SMALL = Settings(
    discounts=("exp:gamma=0.9", "hyperbolic:k=0.02", "fixed:horizon=20"),
    lam=(0.5, 0.9, 1.0),
    states=5,
    num_steps=64,
    trajectories=400,
)


def test_the_sum_over_steps_is_the_weighted_sum_of_linear_solves() -> None:
    ring = Ring(6)
    rates, weights = np.array([0.3, 0.9, 1.0]), np.array([0.2, 0.5, 0.3])
    curve = np.sum(weights * rates ** np.arange(2000)[:, None], axis=1)
    np.testing.assert_allclose(ring.values_at_rates(rates) @ weights, ring.values(curve), rtol=1e-10)


def test_walks_follow_the_transitions() -> None:
    ring, count = Ring(4), 20_000
    path, ended = ring.walk(jax.random.key(0), jnp.zeros(count, jnp.int32), 1)
    # Four standard deviations of a share of `count` walks.
    assert abs(float(jnp.mean(ended)) - ring.end) < 4 * np.sqrt(ring.end / count)
    shares = np.bincount(np.asarray(path[1]), minlength=4) / count * (1 - ring.end)
    assert np.abs(shares - ring.transitions[0]).max() < 4 * np.sqrt(0.25 / count)


@pytest.fixture(scope="module")
def dataset() -> Any:
    return estimator_bias.estimates(SMALL)


@pytest.mark.slow
def test_the_mixture_removes_the_bias_that_one_critic_has(dataset: Any) -> None:
    def bias(discount: str, critic: str, lam: float = 0.9) -> float:
        chosen = dataset["bias"].sel(discount=discount, critic=critic, values="exact", lam=lam)
        return root_mean_square(chosen.values)

    size = root_mean_square(dataset["exact"].sel(discount="hyperbolic:k=0.02").values)
    assert bias("hyperbolic:k=0.02", "single") > 0.02 * size
    assert bias("hyperbolic:k=0.02", "mixture") < 0.001 * bias("hyperbolic:k=0.02", "single")
    assert bias("fixed:horizon=20", "single") > 0.02
    assert np.isnan(bias("fixed:horizon=20", "mixture"))
    assert bias("fixed:horizon=20", "single", lam=1.0) < 1e-5  # Monte Carlo up to the horizon
    # With exact values under an exponential only rounding remains: 64 steps of sums of about 5, 2^-24 each.
    for critic in ("single", "mixture"):
        assert bias("exp:gamma=0.9", critic) < 64 * 5 * 2.0**-24


@pytest.mark.slow
def test_walks_have_the_bias_that_linearity_says(dataset: Any) -> None:
    # 48 means of 400 walks each: five standard errors.
    difference = np.abs(dataset["bias_sampled"] - dataset["bias"]).values
    allowed = 5 * dataset["deviation"].values / np.sqrt(SMALL.trajectories)
    known = np.isfinite(difference)
    assert known.sum() == 5 * 2 * 3 * 5 and np.all(difference[known] <= allowed[known])


@pytest.mark.slow
def test_approximate_values_leave_a_bias_to_both(dataset: Any) -> None:
    for critic in ("single", "mixture"):
        chosen = dataset["bias"].sel(discount="hyperbolic:k=0.02", critic=critic, values="approximate", lam=0.5)
        assert root_mean_square(chosen.values) > 0.01


@pytest.mark.slow
def test_it_writes_tables_and_a_figure(tmp_path: Path) -> None:
    from bench.studies import run_study

    few = Settings(discounts=("beta:mu=0.9,eta=0.5",), lam=(0.9, 1.0), states=3, num_steps=8, trajectories=4)
    study = run_study(estimator_bias.STUDY, few, tmp_path / "out", progress=False)
    names = {"bias_exact.md", "bias_exact.csv", "bias_approximate.md", "estimator_bias.png", "estimates.nc"}
    assert names <= {file.name for file in study.directory.iterdir()}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"states": 2}, r"^states must be a whole number of at least 3, got 2$"),
        ({"lam": (0.9, 0.9)}, r"^lam takes one or more different values, got 0\.9 0\.9$"),
        ({"lam": (1.5,)}, r"^lam takes numbers in \[0, 1\], got 1\.5$"),
        ({"error": 1.0}, r"^error must lie in \[0, 1\), got 1\.0$"),
        ({"discounts": ("hyperbole",)}, r"^The discount 'hyperbole' does not parse"),
    ],
)
def test_invalid_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tasks": ("cartpol",)}, r"^tasks has 'cartpol'"),
        ({"seeds": 1}, r"^seeds must be a whole number of at least 2, got 1$"),
        ({"lam": -0.1}, r"^lam must lie in \[0, 1\], got -0\.1$"),
        ({"discounts": ()}, r"^discounts takes one or more different values, got none$"),
    ],
)
def test_invalid_settings_of_training_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        mixture_critic.Settings(**changes)


def test_the_table_of_training_has_failures_lose() -> None:
    settings = mixture_critic.Settings(tasks=("cartpole",), discounts=("0.9",), seeds=4)
    single, mixture = np.full((1, 4, 2), 1.0), np.full((1, 4, 2), 2.0)
    frame = mixture_critic.table({"cartpole": {"single": single, "mixture": mixture}}, settings)
    assert frame["P(improvement)"].tolist() == ["1.00 [0.47, 1.00]"] * 2 and frame["failed"].tolist() == [0, 0]
    mixture[:] = np.nan
    frame = mixture_critic.table({"cartpole": {"single": single, "mixture": mixture}}, settings)
    assert frame["P(improvement)"].tolist() == ["0.00 [0.00, 0.53]"] * 2 and frame["failed"].tolist() == [4, 4]
    assert frame["mixture"].tolist() == ["failed"] * 2


@pytest.mark.slow
def test_both_critics_train_and_are_tabled(tmp_path: Path) -> None:
    from bench.studies import run_study

    settings = mixture_critic.Settings(
        tasks=("cartpole",),
        discounts=("hyperbolic:k=0.02",),
        heads=3,
        seeds=2,
        env_steps=1024,
        evals=2,
        eval_episodes=2,
    )
    study = run_study(mixture_critic.STUDY, settings, tmp_path / "out", progress=False)
    assert {"returns.md", "mixture_critic.png"} <= {file.name for file in study.directory.iterdir()}
    loaded = jaxrl.load_result(study.directory / "cartpole_mixture")
    assert loaded.algo is not None
    assert (loaded.algo.config.critic, loaded.algo.config.critic_heads) == ("mixture", 3)
