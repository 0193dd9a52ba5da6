"""Point and interval estimates over seeds, in NumPy, for arrays from any source."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.stats

from envs.arguments import check_flag
from envs.errors import UserValueError

Array = npt.NDArray[Any]
Axis = int | tuple[int, ...]
Statistic = Callable[[Array, Axis], Array]
NanPolicy = Literal["raise", "propagate"]
Method = Literal["student", "percentile"]

EPS = float(np.finfo(np.float64).eps)
MAX_RESAMPLED = 4_000_000  # numbers resampled at once, which bounds the working memory to 32 MB

__all__ = [
    "Interval",
    "bootstrap_interval",
    "iqm",
    "mean",
    "median",
    "normalise",
    "optimality_gap",
    "performance_profile",
    "probability_of_improvement",
]


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval, arrays of one shape."""

    value: Array
    low: Array
    high: Array

    def within(self, low: npt.ArrayLike, high: npt.ArrayLike) -> "Interval":
        """The interval with its ends moved into [low, high], outside which the estimated quantity cannot lie."""
        return Interval(self.value, np.clip(self.low, low, high), np.clip(self.high, low, high))

    def __repr__(self) -> str:
        if np.ndim(self.value):
            return f"Interval(value, low and high of shape {list(np.shape(self.value))})"
        return f"Interval({self.value:.5g} [{self.low:.5g}, {self.high:.5g}])"


def mean(scores: npt.ArrayLike, axis: Axis = -1, nan_policy: NanPolicy = "raise") -> Array:
    """The mean over the axis (or axes) of the runs.

    Args:
      scores: Scores `[..., seeds]`.
      axis: Axis of the seeds, or a tuple such as `(-2, -1)` for `[tasks, seeds]`.
      nan_policy: Treatment of nan: `"raise"` raises an error, `"propagate"` makes the estimate nan.

    Returns:
      An array of the scores' shape without the axis.

    Raises:
      ValueError: There is no score, or a score is nan under `"raise"`.
    """
    return np.mean(_checked("scores", scores, nan_policy), axis=axis)


def median(scores: npt.ArrayLike, axis: Axis = -1, nan_policy: NanPolicy = "raise") -> Array:
    """The median over the axis (or axes) of the runs; arguments as for `mean`.

    The "median over tasks of the mean over seeds" of older papers is
    `median(mean(scores))`.
    """
    return np.median(_checked("scores", scores, nan_policy), axis=axis)


def iqm(scores: npt.ArrayLike, axis: Axis = -1, nan_policy: NanPolicy = "raise") -> Array:
    """The interquartile mean: the mean of the scores without the lowest and the highest quarter.

    Args:
      scores, axis, nan_policy: Scores, axis and treatment of nan, as for `mean`. Runs on several axes are pooled first.

    Returns:
      An array of the scores' shape without the axis. Of n runs, floor(n / 4) are removed at each end.

    `scipy.stats.trim_mean(scores, 0.25)` is equal up to rounding, but is not used: it sums the middle half in an
    unspecified order, which changes the last digits of two in five intervals, and takes 2.3 times as long for the
    intervals of 1,000 settings of 100 seeds.

    Source: Agarwal et al. (2021), "Deep reinforcement learning at the edge of the
    statistical precipice", section 4.3.
    """
    pooled = _pooled(_checked("scores", scores, nan_policy), axis)
    cut = pooled.shape[-1] // 4
    value = np.sort(pooled, axis=-1)[..., cut : pooled.shape[-1] - cut].mean(axis=-1)
    return np.where(np.isnan(pooled).any(axis=-1), np.nan, value)


def optimality_gap(
    scores: npt.ArrayLike, axis: Axis = -1, *, target: float = 1.0, nan_policy: NanPolicy = "raise"
) -> Array:
    """The mean shortfall of the runs below a target; scores above it count as 0.

    Args:
      scores, axis, nan_policy: Scores, axis and treatment of nan, as for `mean`.
      target: Sufficient score; 1 for normalised scores.

    Returns:
      The mean of max(target - score, 0); smaller is better.

    Source: Agarwal et al. (2021), section 4.3.
    """
    return np.mean(np.maximum(target - _checked("scores", scores, nan_policy), 0.0), axis=axis)


def normalise(scores: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Array:
    """Scores on the scale where `low` is 0 and `high` is 1.

    Args:
      scores: Scores `[seeds]` or `[tasks, seeds]`.
      low, high: Reference scores, scalars or `[tasks]`, such as the returns of a random and of a solving policy.

    Returns:
      An array of the shape of the scores.

    Raises:
      ValueError: `high` does not exceed `low`, or their shapes do not match the scores.
    """
    values = _checked("scores", scores, "propagate")
    bounds = []
    for name, bound in (("low", np.asarray(low, dtype=np.float64)), ("high", np.asarray(high, dtype=np.float64))):
        if bound.ndim and (values.ndim < 2 or bound.shape != values.shape[:-1]):
            raise UserValueError(
                f"{name} has shape {bound.shape}; it takes a number or one per task, {values.shape[:-1]}."
            )
        bounds.append(bound[..., None] if bound.ndim else bound)
    if not np.all(bounds[1] > bounds[0]):
        raise UserValueError(f"high must exceed low everywhere, got low={low!r} and high={high!r}.")
    return (values - bounds[0]) / (bounds[1] - bounds[0])


def bootstrap_interval(
    statistic: Statistic,
    scores: npt.ArrayLike,
    *,
    tasks: bool = False,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
    nan_policy: NanPolicy = "raise",
    method: Method = "student",
) -> Interval:
    """A bootstrap interval for a statistic of the runs.

    With few seeds, percentiles of the bootstrap are too narrow: resamples have the divisor n in their variance, and lie
    within the range of the scores. In 2,000 samples each of normal, exponential and lognormal scores, 95 % intervals
    contain the true IQM in 95 to 96 % (4 seeds), 96 to 97 % (8), 95 to 96 % (16) and 95 to 96 % (64) by `"student"`,
    and in 86 to 88 %, 92 to 93 %, 93 to 94 % and 94 to 95 % by `"percentile"`. For scores with two modes, 30 % of which
    fail, the coverage of `"student"` is 92 % at 4 seeds, 93 % at 8 and 96 % at 16. For the mean, it is 84, 84, 87 and
    92 % with lognormal scores, whose mean depends on few of them, and 94 to 95 % with normal scores.
    `bench/coverage.py` measures these.

    Args:
      statistic: Function called as `statistic(array, axis)`: `mean`, `median`, `iqm`,
        `optimality_gap` or one with the same signature.
      scores: Scores `[..., seeds]`, or `[..., tasks, seeds]` with `tasks=True`: seeds are then resampled
        within each task (stratified) and the statistic is taken over both axes. Leading axes
        share the same draws, so that seeds stay paired along them.
      tasks: Whether the last but one axis holds tasks.
      confidence: Confidence level, in (0, 1).
      num_resamples: Number of times that the runs are resampled, with replacement.
      seed: Random seed of the draws; equal seeds give equal intervals.
      nan_policy: Treatment of nan, as for `mean`.
      method: Method for the ends. `"percentile"` takes percentiles of the resampled statistic; `"student"` stretches
        their distances from the estimate by the ratio of Student's quantile with n - 1 degrees of freedom to the normal
        one, and by sqrt(n / (n - 1)) for the divisor of the resampled variance; with `tasks`, tasks * (n - 1) degrees.

    Returns:
      The statistic of the scores and the ends of its interval, of the leading shape.

    Raises:
      ValueError: An argument is out of range, there is no score, or a score is nan under `"raise"`.

    Source: Agarwal et al. (2021), section 4.1; Hesterberg (2015), "What teachers should know about the bootstrap",
    section 4.1, on the width at few samples.
    """
    check_flag("tasks", tasks)
    values = _checked("scores", scores, nan_policy)
    if method not in ("student", "percentile"):
        raise UserValueError(f"method is {method!r}; it takes 'student' or 'percentile'.")
    if tasks and values.ndim < 2:
        raise UserValueError(f"scores has shape {values.shape}; with tasks=True it takes [..., tasks, seeds].")
    _check_draws(confidence, num_resamples)
    value = np.asarray(statistic(values, (-2, -1) if tasks else -1))
    if values.shape[-1] == 1:  # scipy raises an error here; every resample equals the score
        return Interval(value, value, value)

    def of_draws(*drawn: Array, axis: int) -> Array:
        # Rounding of sums depends on the memory layout, which indexing leaves open; a fixed layout makes each row's
        # value independent of the other rows.
        return (
            statistic(np.stack(drawn, axis=-2), (-2, -1)) if tasks else statistic(np.ascontiguousarray(drawn[0]), axis)
        )

    resampled = scipy.stats.bootstrap(
        tuple(np.moveaxis(values, -2, 0)) if tasks else (values,),
        of_draws,
        n_resamples=num_resamples,
        batch=max(1, MAX_RESAMPLED // values.size),
        vectorized=True,
        axis=-1,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).bootstrap_distribution
    low, high = _quantiles(resampled, confidence, axis=-1)
    if method == "percentile":
        return Interval(value, low, high)
    count, strata = values.shape[-1], values.shape[-2] if tasks else 1
    tail = 0.5 + confidence / 2
    stretch = scipy.stats.t.ppf(tail, strata * (count - 1)) / scipy.stats.norm.ppf(tail) * np.sqrt(count / (count - 1))
    below, above = (stretch * np.maximum(part, 0.0) for part in (value - low, high - value))
    return Interval(value, value - below, value + above)


def performance_profile(scores: npt.ArrayLike, thresholds: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The share of runs that score above each threshold, with pointwise intervals.

    Args:
      scores: Scores `[seeds]` or `[tasks, seeds]`, every task of equal weight.
      thresholds: Thresholds `[num_thresholds]`.
      confidence: Confidence level, in (0, 1).

    Returns:
      Arrays `[num_thresholds]`, values in [0, 1]. The intervals are those of Clopper and Pearson for all runs of all
      tasks together, which hold for any scores; percentiles of a bootstrap have no length where all runs agree.

    Raises:
      ValueError: A score is nan, the number of axes is wrong, or an argument is out of range.

    Source: Agarwal et al. (2021), section 4.2; Hoeffding (1956), "On the distribution of the number of successes in
    independent trials", for tasks whose shares differ.
    """
    values = _per_task("scores", scores)
    _check_confidence(confidence)
    levels = np.asarray(thresholds, dtype=np.float64)
    if levels.ndim != 1:
        raise UserValueError(f"thresholds has shape {levels.shape}; it takes one axis.")
    above = (values[..., None] > levels).reshape(values.size, levels.size)
    return _share_interval(above.sum(axis=0), values.size, confidence)


def probability_of_improvement(
    x: npt.ArrayLike | Sequence[npt.ArrayLike],
    y: npt.ArrayLike | Sequence[npt.ArrayLike],
    *,
    paired: bool = False,
    confidence: float = 0.95,
) -> Interval:
    """The probability that a run of x scores higher than a run of y, ties counting one half.

    A bootstrap of the wins has no length where all runs agree, and contains the true value too rarely. At a confidence
    of 95 %, with 4 to 64 seeds and probabilities of .5 to .99, these intervals contain it in at least 95 % (paired) and
    92 % (unpaired) of samples, and in less than 94 % only if the deviations of x and y differ by a factor of ten, or if
    8 of their runs nearly all fail or succeed. `bench/coverage.py` measures this.

    Args:
      x, y: Scores `[seeds]` or `[tasks, seeds]`, averaged over tasks; or a list of arrays `[seeds]`, one for each task,
        whose numbers of seeds differ.
      paired: Whether run i of x is compared with run i of y only, because equal seeds gave equal random keys to one
        program. Pairs pay off where the scores of equal seeds are close; otherwise their interval is the wider one.
      confidence: Confidence level, in (0, 1).

    Returns:
      Scalars in [0, 1]. Paired, the interval is that of Clopper and Pearson for the number of wins, in which a tie is
      half a win; of all tasks together if they have equally many pairs, as for `performance_profile`. Unpaired, it is
      Newcombe's fifth, which solves |P - p| = t s(p) for p, where s(p) is the standard error under a model of the
      scores: at least as wide as the scores themselves say, by Student's t with the degrees of freedom of Brunner and
      Munzel. Over several tasks, unless they are paired with equally many pairs each, the distances of the ends add
      up in squares.

    Raises:
      ValueError: A score is nan, the numbers of tasks differ, or the numbers of seeds differ with `paired`.

    Source: Agarwal et al. (2021), section 4.3; unpaired it is the Mann-Whitney statistic U / (n m). Newcombe (2006),
    "Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part 2", method 5; Zou and
    Donner (2008), "Construction of confidence limits about effect measures", for the mean over tasks.
    """
    check_flag("paired", paired)
    first, second = _of_tasks("x", x), _of_tasks("y", y)
    _check_confidence(confidence)
    if len(first) != len(second):
        raise UserValueError(f"x has {len(first)} tasks and y has {len(second)}; they must be the same tasks.")
    tasks = list(zip(first, second, strict=True))
    if paired and any(ours.size != theirs.size for ours, theirs in tasks):
        sizes = [[each.size for each in side] for side in (first, second)]
        raise UserValueError(f"paired=True needs as many seeds in y as in x, got {sizes[0]} in x and {sizes[1]} in y.")
    if not paired:
        return _mean_over_tasks([_unpaired(ours, theirs, confidence) for ours, theirs in tasks])
    wins = [_win(ours, theirs) for ours, theirs in tasks]
    if len({each.size for each in wins}) == 1:  # so that the share of all is the mean of the shares
        every = np.concatenate(wins)
        return _share_interval(every.sum(), every.size, confidence)
    return _mean_over_tasks([_share_interval(each.sum(), each.size, confidence) for each in wins])


def _checked(name: str, scores: npt.ArrayLike, nan_policy: NanPolicy) -> Array:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 0 or values.size == 0:
        raise UserValueError(f"{name} has shape {values.shape}; it takes at least one score along an axis of seeds.")
    if nan_policy not in ("raise", "propagate"):
        raise UserValueError(f"nan_policy is {nan_policy!r}; it takes 'raise' or 'propagate'.")
    if nan_policy == "raise" and np.isnan(values).any():
        count = int(np.isnan(values).sum())
        raise UserValueError(
            f"{name} holds {count} nan among {values.size}; drop those runs or pass nan_policy='propagate'."
        )
    return values


def _per_task(name: str, scores: npt.ArrayLike) -> Array:
    values = _checked(name, scores, "raise")
    if values.ndim > 2:
        raise UserValueError(f"{name} has shape {values.shape}; it takes [seeds] or [tasks, seeds].")
    return np.atleast_2d(values)


def _of_tasks(name: str, scores: Any) -> list[Array]:
    """The scores of each task, whose numbers may differ in a list."""
    if isinstance(scores, list | tuple) and len({np.size(each) for each in scores}) > 1:
        return [_per_task(f"{name}[{task}]", each).reshape(-1) for task, each in enumerate(scores)]
    return list(_per_task(name, scores))


def _pooled(values: Array, axis: Axis) -> Array:
    axes = axis if isinstance(axis, tuple) else (axis,)
    moved = np.moveaxis(values, axes, tuple(range(-len(axes), 0)))
    return moved.reshape(*moved.shape[: moved.ndim - len(axes)], -1)


def _check_draws(confidence: float, num_resamples: int) -> None:
    _check_confidence(confidence)
    if num_resamples < 1:
        raise UserValueError(f"num_resamples is {num_resamples!r}; it takes a positive number.")


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise UserValueError(f"confidence is {confidence!r}; it takes a number between 0 and 1, such as 0.95.")


def _mean_over_tasks(parts: Sequence[tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]) -> Interval:
    """The mean of one estimate for each task, and its ends, whose distances from it add up in squares."""
    value, low, high = (np.array(ends, np.float64) for ends in zip(*parts, strict=True))
    middle = value.mean()
    below, above = (np.sqrt(np.sum(np.square(distance))) / len(parts) for distance in (value - low, high - value))
    return Interval(np.asarray(middle), np.asarray(middle - below), np.asarray(middle + above))


def _share_interval(wins: npt.ArrayLike, count: int, confidence: float) -> Interval:
    """The share of wins, of which a tie is half of one, and its interval by Clopper and Pearson."""
    won = np.asarray(wins, np.float64)
    tail = (1 - confidence) / 2
    with np.errstate(invalid="ignore"):  # a share of 0 has no lower end, and a share of 1 no upper one
        low = scipy.stats.beta.ppf(tail, won, count - won + 1)
        high = scipy.stats.beta.ppf(1 - tail, won + 1, count - won)
    return Interval(won / count, np.where(won > 0, low, 0.0), np.where(won < count, high, 1.0))


def _unpaired(first: Array, second: Array, confidence: float) -> tuple[float, float, float]:
    """The probability that a score of the first sample is the higher one, and the ends of its interval."""
    m, n = first.size, second.size
    wins = _win(first[:, None], second[None, :])
    value = float(wins.mean())
    degrees, spread = float(m + n - 2), 0.0
    if m > 1 and n > 1:
        parts = float(wins.mean(axis=1).var(ddof=1) / m), float(wins.mean(axis=0).var(ddof=1) / n)
        spread = sum(parts)
        if spread > 0:  # of Brunner and Munzel (2000)
            degrees = spread**2 / (parts[0] ** 2 / (m - 1) + parts[1] ** 2 / (n - 1))
    modelled = _modelled_variance(value, m, n)
    widths = float(scipy.stats.t.ppf(0.5 + confidence / 2, max(degrees, 1))) ** 2
    widths *= max(1.0, spread / modelled) if modelled > 0 else 1.0

    def excess(p: float) -> float:
        return (value - p) ** 2 - widths * _modelled_variance(p, m, n)

    def root(end: float) -> float:
        """The end of the interval on this side, where the excess, which is positive at 0 and 1, changes its sign."""
        if value == end:
            return end
        inside = min(max(value, EPS), 1 - EPS)  # at 0 and 1 the excess is 0, and negative next to them
        return float(np.asarray(scipy.optimize.brentq(excess, min(inside, end), max(inside, end))))

    return value, root(0.0), root(1.0)


def _modelled_variance(p: float, m: int, n: int) -> float:
    """The variance of U / (m n) for exponential scores (Hanley and McNeil, 1982), with the mean of m and n in it."""
    others = (m + n) / 2 - 1
    return p * (1 - p) * (1 + others * ((1 - p) / (2 - p) + p / (1 + p))) / (m * n)


def _win(first: Array, second: Array) -> Array:
    return (first > second) + 0.5 * (first == second)


def _quantiles(resampled: Array, confidence: float, axis: int = 0) -> tuple[Array, Array]:
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(resampled, [tail, 1.0 - tail], axis=axis)
    return np.asarray(low), np.asarray(high)
