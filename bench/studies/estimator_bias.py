"""Bias and variance of advantage estimates over lambda, for one critic and for a mixture of critics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from bench.studies.figures import plain_axes
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.checks import check_counts
from jaxrl.discounts.mixtures import with_nodes
from jaxrl.discounts.parsing import Discount, Prepared, prepare
from jaxrl.learning.advantages import mixture_ugae, ugae

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

CRITICS = ("single", "mixture")
VALUES = ("exact", "approximate")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: discounts, critics and sampled trajectories."""

    discounts: tuple[str, ...] = (
        "exp:gamma=0.98",
        "quasi:beta=0.9,gamma=0.98",
        "beta:mu=0.98,eta=0.5",
        "hyperbolic:k=0.02",
        "fixed:horizon=50",
        "truncated:inner=(exp:gamma=0.98),horizon=50",
    )
    """Discounts; those that are not mixtures of exponentials have only the single critic."""
    lam: tuple[float, ...] = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0)
    """Lambdas of the estimates."""
    heads: int = 8
    """Number of exponentials of the mixture critic."""
    states: int = 10
    """Number of states of the ring."""
    num_steps: int = 128
    """Number of steps of a trajectory, which bootstraps at its end."""
    trajectories: int = 1000
    """Number of trajectories from each state."""
    error: float = 0.2
    """Standard deviation of the relative errors of the approximate values, one per state and equal for all heads."""
    seed: int = 0
    """Random seed of trajectories and errors."""

    def __post_init__(self) -> None:
        check_counts(self, heads=1, states=3, num_steps=1, trajectories=2)
        for name in ("discounts", "lam"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise UserValueError(
                    f"{name} takes one or more different values, got {' '.join(map(str, values)) or 'none'}"
                )
        for discount in self.discounts:
            jaxrl.as_discount(discount)  # raises an error for an invalid discount
        if not all(0.0 <= lam <= 1.0 for lam in self.lam):
            raise UserValueError(f"lam takes numbers in [0, 1], got {' '.join(map(str, self.lam))}")
        if not 0.0 <= self.error < 1.0:
            raise UserValueError(f"error must lie in [0, 1), got {self.error}")


@dataclasses.dataclass(frozen=True)
class Ring:
    """A Markov reward process: a walk around a ring of states that pays 1 for a step out of the first state.

    Attributes:
      states: Number of states.
      forward: Probability of a step forward; otherwise the step is backward.
      end: Probability that a step ends the walk, in either direction.
    """

    states: int = 10
    forward: float = 0.8
    end: float = 0.02

    @property
    def rewards(self) -> np.ndarray:
        """The rewards of a step out of each state, `[states]`."""
        return np.eye(self.states)[0]

    @property
    def transitions(self) -> np.ndarray:
        """The probabilities of continuing to each state, float64 `[states, states]`; rows add up to 1 - end."""
        stay = np.eye(self.states)
        ahead = self.forward * np.roll(stay, 1, axis=1) + (1 - self.forward) * np.roll(stay, -1, axis=1)
        return (1 - self.end) * ahead

    def values(self, curve: np.ndarray) -> np.ndarray:
        """The values sum_t curve[t] E[r_t], float64 `[states]`, for a curve whose remainder is negligible."""
        total, expected = np.zeros(self.states), self.rewards
        for weight in np.asarray(curve, np.float64):
            total, expected = total + weight * expected, self.transitions @ expected
        return total

    def values_at_rates(self, rates: np.ndarray) -> np.ndarray:
        """The values under each exponential, float64 `[states, K]`, by a linear solve."""
        solved = [np.linalg.solve(np.eye(self.states) - rate * self.transitions, self.rewards) for rate in rates]
        return np.stack(solved, axis=1)

    def walk(self, key: jax.Array, start: jax.Array, num_steps: int) -> tuple[jax.Array, jax.Array]:
        """States `[num_steps + 1, *start.shape]`, and whether each step ended the walk `[num_steps, ...]`.

        A walk continues after its end, like a rollout after a reset.
        """
        step_key, end_key = jax.random.split(key)
        shape = (num_steps, *start.shape)
        step = jnp.where(jax.random.bernoulli(step_key, self.forward, shape), 1, -1)
        path = jnp.concatenate([start[None], start + jnp.cumsum(step, axis=0)]) % self.states
        return path, jax.random.bernoulli(end_key, self.end, shape)


def run(settings: Settings, study: StudyRun) -> None:
    """Compute all estimates, then write two tables and a figure."""
    dataset = study.compute("estimates", lambda: estimates(settings))
    ring = f"a ring of {settings.states} states whose first state pays 1"
    for values in VALUES:
        known = "exact" if values == "exact" else f"{100 * settings.error:.0f} % wrong"
        study.table(
            f"bias_{values}",
            table(dataset, values),
            f"Estimates of the discounted return on {ring}, from {known} values: bias (root mean square over states, "
            f"without sampling noise), that of the single critic as a share of the values, and standard deviation over "
            f"{settings.trajectories * settings.states:,} walks of {settings.num_steps} steps; the mixture critic has "
            f"{settings.heads} heads.",
        )
    study.figure("estimator_bias", _figure(dataset))


def estimates(settings: Settings) -> xarray.Dataset:
    """Bias and deviation of the lambda-return from each state.

    The estimators are linear in rewards and values, so that the estimate from expected rewards and values is the
    expected estimate: `bias` has no sampling noise. `bias_sampled` is the bias of the mean over the walks.

    Returns:
      `bias`, `bias_sampled` and `deviation` `[discount, critic, values, lam, state]`, nan for a discount that is not a
      mixture, and the exact values, `exact` `[discount, state]`.
    """
    import xarray

    ring = Ring(settings.states)
    start_key, error_seed = jax.random.key(settings.seed), np.random.default_rng(settings.seed)
    start = jnp.repeat(jnp.arange(settings.states), settings.trajectories)
    path, ended = jax.jit(ring.walk, static_argnums=2)(start_key, start, settings.num_steps)
    powers = [np.eye(settings.states)]
    for _ in range(settings.num_steps):
        powers.append(powers[-1] @ ring.transitions)
    wrong = {
        "exact": np.ones(settings.states),
        "approximate": 1 + settings.error * error_seed.normal(size=settings.states),
    }
    dims = ("discount", "critic", "values", "lam", "state")
    shape = (len(settings.discounts), len(CRITICS), len(VALUES), len(settings.lam), settings.states)
    arrays = {name: np.full(shape, np.nan) for name in ("bias", "bias_sampled", "deviation")}
    exact = np.zeros((len(settings.discounts), settings.states))
    for d, text in enumerate(settings.discounts):
        discount = jaxrl.as_discount(text)
        exact[d] = ring.values(np.asarray(discount.curve(_horizon(ring)), np.float64))
        for c, critic in enumerate(CRITICS):
            prepared = _prepared(discount, critic, settings)
            if prepared is None:
                continue
            rates = np.asarray(prepared.rates, np.float64)
            right = exact[d][:, None] if critic == "single" else ring.values_at_rates(rates)
            estimate = _estimator(prepared, critic)
            for v, values in enumerate(VALUES):
                value = jnp.asarray(right * wrong[values][:, None], jnp.float32)
                expected = jnp.asarray(np.stack(powers) @ np.column_stack([ring.rewards, value]), jnp.float32)
                no_end = jnp.zeros(expected.shape[:2], bool)[:-1]
                rewards = jnp.asarray(ring.rewards, jnp.float32)[path[:-1]]
                for i, lam in enumerate(settings.lam):
                    mean = estimate(lam, expected[:-1, :, 0], expected[1:, :, 1:], no_end)
                    samples = estimate(lam, rewards, value[path[1:]], ended)
                    samples = np.reshape(np.asarray(samples, np.float64), (settings.states, settings.trajectories))
                    arrays["bias"][d, c, v, i] = np.asarray(mean, np.float64) - exact[d]
                    arrays["bias_sampled"][d, c, v, i] = samples.mean(axis=1) - exact[d]
                    arrays["deviation"][d, c, v, i] = samples.std(axis=1, ddof=1)
    coords = {
        "discount": list(settings.discounts),
        "critic": list(CRITICS),
        "values": list(VALUES),
        "lam": list(settings.lam),
    }
    variables = {name: (dims, array) for name, array in arrays.items()}
    return xarray.Dataset(variables | {"exact": (("discount", "state"), exact)}, coords)


def table(dataset: xarray.Dataset, values: str) -> pandas.DataFrame:
    """A row per discount and lambda: bias of each critic, also as a share of the values, and deviation."""
    import pandas

    rows = []
    chosen = dataset.sel(values=values)
    for discount in dataset["discount"].values.tolist():
        for lam in dataset["lam"].values.tolist():
            one = chosen.sel(discount=discount, lam=lam)
            row = {"discount": discount, "lam": lam}
            for critic in CRITICS:
                row[f"bias, {critic}"] = root_mean_square(one["bias"].sel(critic=critic).values)
            row["single / value"] = row["bias, single"] / root_mean_square(one["exact"].values)
            for critic in CRITICS:
                row[f"deviation, {critic}"] = root_mean_square(one["deviation"].sel(critic=critic).values)
            rows.append(row)
    return pandas.DataFrame(rows)


def root_mean_square(array: np.ndarray) -> float:
    """The root mean square over all entries."""
    return float(np.sqrt(np.mean(np.square(array))))


def _horizon(ring: Ring) -> int:
    """Number of steps after which fewer than 1e-12 of the walks continue."""
    return int(np.ceil(np.log(1e-12) / np.log(1 - ring.end)))


def _prepared(discount: Discount, critic: str, settings: Settings) -> Prepared | None:
    """The prepared discount; None if the critic is a mixture and the discount is not."""
    prepared = prepare(discount, settings.num_steps)
    if critic == "single":
        return prepared
    if prepared.rates is None or prepared.lags is not None:
        return None
    return with_nodes(prepared, settings.heads, settings.num_steps)


def _estimator(discount: Prepared, critic: str) -> Callable[..., jax.Array]:
    """`(lam, reward [T, B], next value [T, B, K], terminated [T, B]) -> [B]`: the lambda-return from the first step."""

    def single(lam: Any, reward: jax.Array, next_value: jax.Array, terminated: jax.Array) -> jax.Array:
        next_value = next_value[..., 0]
        return ugae(discount, lam, reward, jnp.zeros_like(next_value), next_value, terminated, terminated)[1][0]

    def mixture(lam: Any, reward: jax.Array, next_value: jax.Array, terminated: jax.Array) -> jax.Array:
        zero = jnp.zeros_like(next_value)
        rates, weights = discount.rates, discount.weights
        return mixture_ugae(rates, weights, lam, reward, zero, next_value, terminated, terminated)[0][0]

    return jax.jit(single if critic == "single" else mixture)


def _figure(dataset: xarray.Dataset) -> matplotlib.figure.Figure:
    """Bias (top) and deviation (bottom) over lambda; a column per discount."""
    from matplotlib.figure import Figure

    from jaxrl import plotting

    discounts = dataset["discount"].values.tolist()
    lam = dataset["lam"].values.tolist()
    figure = Figure(figsize=(2.2 * len(discounts) + 1.2, 6.0), layout="constrained")
    axes = figure.subplots(2, len(discounts), squeeze=False, sharex=True, sharey="row")
    for column, discount in enumerate(discounts):
        for row, name in enumerate(("bias", "deviation")):
            ax = axes[row, column]
            for colour, critic in zip(plotting.COLOURS, CRITICS, strict=False):
                for values, style in zip(VALUES, ("-", "--"), strict=True):
                    lines = dataset[name].sel(discount=discount, critic=critic, values=values)
                    if not np.isnan(lines.values).any():
                        size = np.sqrt(np.mean(np.square(lines.values), axis=-1))
                        label = f"{critic} critic, {values} values"
                        ax.plot(range(len(lam)), size, style, color=colour, marker="o", markersize=3, label=label)
            plain_axes(ax)
        axes[0, column].set_title(discount.replace(",", ",\n", 1), fontsize=8)
        axes[1, column].set_xlabel("lambda")
        axes[1, column].set_xticks(range(len(lam)), [f"{number:g}" for number in lam], fontsize=8)
    axes[0, 0].set_ylabel("bias")
    axes[1, 0].set_ylabel("standard deviation")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2)
    return figure


STUDY = Study(
    "estimator-bias",
    "Bias and variance of advantage estimates by lambda, for one critic and for a mixture of critics.",
    Settings,
    run,
)
