"""Coverage of confidence intervals: four kinds of interval, over seeds from four distributions; and other intervals.

    python bench/coverage.py [--samples 2000] [--resamples 1000] [--json FILE]

Each sample has a number of seeds from a distribution whose mean and interquartile mean are known: a normal, an
exponential and a lognormal distribution, and one with two modes, like runs of which 30 % fail. A 95 % interval should
contain the true value in 95 % of samples. The kinds of interval are the percentiles of the bootstrap, those corrected
for bias and acceleration (BCa), the bootstrap of Student's statistic (with the standard error of the mean, or of the
trimmed mean), and percentiles stretched to Student's quantile, which `jaxrl.statistics` uses. Other tables have the
interval of the IQM over tasks, those of the probability of improvement (paired, unpaired, and by the percentiles of a
bootstrap), and that of a share of runs, as in a performance profile. The time of a table's intervals is measured last.
The exit status is 1 if a kind other than the default is nearer to 95 %, by the mean distance over all rows, or if an
interval of a probability or a share contains it in less than 93 % of samples, by more than three standard errors.
"""

import functools
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import scipy.optimize
import scipy.stats

from bench.report import Report, benchmark_parser
from jaxrl.results import statistics

COUNTS = (4, 8, 16, 64)
FAILED, WIDTH = 0.3, 0.1  # The distribution with two modes: share of runs at 0 instead of 1, and width of each mode.
CONFIDENCE = 0.95
Sampler = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def two_modes(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Samples from the distribution with modes at 0 and 1."""
    return (generator.random(shape) > FAILED) + WIDTH * generator.normal(size=shape)


def quantile_of_two_modes(share: float) -> float:
    """The inverse of the distribution of `two_modes`."""

    def excess(x: float) -> float:
        below = FAILED * scipy.stats.norm.cdf(x / WIDTH) + (1 - FAILED) * scipy.stats.norm.cdf((x - 1) / WIDTH)
        return float(below - share)

    root: Any = scipy.optimize.brentq(excess, -5, 6)
    return float(root)


DISTRIBUTIONS: dict[str, tuple[Sampler, Callable[[Any], Any], float]] = {
    "normal": (lambda generator, shape: generator.normal(size=shape), scipy.stats.norm.ppf, 0.0),
    "exponential": (lambda generator, shape: generator.exponential(size=shape), scipy.stats.expon.ppf, 1.0),
    "lognormal": (lambda generator, shape: generator.lognormal(size=shape), scipy.stats.lognorm(1).ppf, np.exp(0.5)),
    "bimodal": (two_modes, np.vectorize(quantile_of_two_modes), 1 - FAILED),
}


@functools.cache
def true_iqm(quantile: Callable[[Any], Any]) -> float:
    """The mean of the middle half of a distribution."""
    middle = 0.25 + 0.5 * (np.arange(20_000) + 0.5) / 20_000
    return float(np.mean(quantile(middle)))


def standard_error(values: np.ndarray, name: str) -> np.ndarray:
    """Standard error of the mean, or of the interquartile mean by its winsorised samples (Yuen, 1974)."""
    count = values.shape[-1]
    if name == "mean":
        return values.std(axis=-1, ddof=1) / np.sqrt(count)
    cut, ordered = count // 4, np.sort(values, axis=-1)
    winsorised = np.clip(ordered, ordered[..., [cut]], ordered[..., [count - cut - 1]])
    return winsorised.std(axis=-1, ddof=1) / ((1 - 2 * cut / count) * np.sqrt(count))


def bootstrap_t(values: np.ndarray, name: str, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Interval ends by the bootstrap of (estimate - value) / error; draws with an error of 0 count as infinite."""
    statistic = {"mean": statistics.mean, "iqm": statistics.iqm}[name]
    draws = np.random.default_rng(0).integers(values.shape[-1], size=(resamples, values.shape[-1]))
    value, error = statistic(values), standard_error(values, name)
    ends = []
    for row, middle, width in zip(values, value, error, strict=True):
        drawn = row[draws]
        far = statistic(drawn) - middle
        errors = standard_error(drawn, name)
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.where(errors > 0, far / errors, np.sign(far) * np.inf)
        low, high = np.quantile(scaled, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2], method="inverted_cdf")
        ends.append((middle - high * width, middle - low * width))
    low, high = np.asarray(ends).T
    return low, high


def corrected(values: np.ndarray, name: str, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Interval ends by scipy's BCa."""
    statistic = {"mean": statistics.mean, "iqm": statistics.iqm}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns about samples that are all equal
        interval = scipy.stats.bootstrap(
            (values,), statistic, n_resamples=resamples, batch=50, axis=-1, method="BCa", rng=np.random.default_rng(0)
        ).confidence_interval
    return interval.low, interval.high


def ends_of(kind: str, values: np.ndarray, name: str, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of one kind of interval for each row."""
    if kind == "BCa":
        return corrected(values, name, resamples)
    if kind == "bootstrap-t":
        return bootstrap_t(values, name, resamples)
    statistic = {"mean": statistics.mean, "iqm": statistics.iqm}[name]
    method: Any = kind
    interval = statistics.bootstrap_interval(statistic, values, num_resamples=resamples, method=method)
    return interval.low, interval.high


def shifted(probability: float, ratio: float) -> tuple[Sampler, Sampler]:
    """Samplers of normal scores, of which one of the first exceeds one of the second with this probability.

    Args:
      probability: Probability of improvement.
      ratio: Standard deviation of the second scores; that of the first is 1.
    """
    shift = scipy.stats.norm.ppf(probability) * np.hypot(1.0, ratio)
    return (lambda g, shape: g.normal(shift, 1.0, shape)), (lambda g, shape: g.normal(0.0, ratio, shape))


def exponential(probability: float) -> tuple[Sampler, Sampler]:
    """Samplers of exponential scores, as `shifted`."""
    scale = probability / (1 - probability)
    return (lambda g, shape: g.exponential(scale, shape)), (lambda g, shape: g.exponential(1.0, shape))


def lognormal(probability: float) -> tuple[Sampler, Sampler]:
    """Samplers of lognormal scores, as `shifted`."""
    shift = scipy.stats.norm.ppf(probability) * np.sqrt(2)
    return (lambda g, shape: g.lognormal(shift, 1.0, shape)), (lambda g, shape: g.lognormal(0.0, 1.0, shape))


def failing(probability: float) -> tuple[Sampler, Sampler]:
    """Samplers of scores with modes at 0 and 1, as `shifted`: the share of failed runs differs."""

    def failing_in(share: float) -> Sampler:
        return lambda g, shape: (g.random(shape) > share) + 0.01 * g.normal(size=shape)

    return failing_in(1 - probability), failing_in(probability)


def solved(probability: float) -> tuple[Sampler, Sampler]:
    """Samplers of scores 0 and 1, as `shifted`, with ties: the share of solved tasks differs."""
    return (
        lambda g, shape: (g.random(shape) < probability).astype(float),
        lambda g, shape: (g.random(shape) < 1 - probability).astype(float),
    )


PAIRS: dict[str, Callable[[float], tuple[Sampler, Sampler]]] = {
    "normal": lambda probability: shifted(probability, 1.0),
    "normal 1:3": lambda probability: shifted(probability, 3.0),
    "normal 1:0.1": lambda probability: shifted(probability, 0.1),
    "exponential": exponential,
    "lognormal": lognormal,
    "bimodal": failing,
    "0 or 1": solved,
}
PROBABILITIES = (0.5, 0.8, 0.9, 0.95, 0.99)
LEAST = 93.0  # smallest coverage of a 95 % interval of a probability or a share, in %


def percentiles_of_wins(x: np.ndarray, y: np.ndarray, paired: bool, resamples: int) -> tuple[float, float]:
    """The percentiles of a bootstrap of the probability of improvement, which `jaxrl.statistics` does not use."""
    generator, count = np.random.default_rng(0), x.size
    ours = generator.integers(count, size=(resamples, count))
    theirs = ours if paired else generator.integers(count, size=(resamples, count))
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    means = wins[ours, theirs].mean(axis=1) if paired else wins[ours[:, :, None], theirs[:, None, :]].mean(axis=(1, 2))
    low, high = np.quantile(means, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return float(low), float(high)


def covered(ends: list[tuple[float, float]], truth: float) -> float:
    """Share of intervals that contain the true value, in %; rounding of an end does not count."""
    low, high = np.transpose(ends)
    return 100 * float(np.mean((low <= truth + 1e-9) & (truth - 1e-9 <= high)))


def probabilities_of_improvement(report: Report, samples: int, resamples: int) -> dict[str, float]:
    """The table of the probability of improvement; returns the smallest coverage of each kind of interval."""
    few = max(1, samples // 10)  # samples of the bootstraps, which are slow
    columns = ("unpaired", "paired", "unpaired by percentiles", "paired by percentiles")
    table = report.table(
        "probability of improvement: share of 95 % intervals that contain it, in %, and median width; by percentiles "
        f"of a bootstrap from {few:,} samples",
        {
            "seeds": "",
            "scores": "",
            "P": "",
            **{name: ".1f" for name in columns},
            "width": ".2f",
            "paired width": ".2f",
        },
    )
    least: dict[str, float] = dict.fromkeys(columns, 100.0)
    for count in COUNTS:
        for scores, pair in PAIRS.items():
            for probability in PROBABILITIES:
                generator = np.random.default_rng(count)
                x, y = (draw(generator, (samples, count)) for draw in pair(probability))
                rows, widths = [], []
                for paired in (False, True):
                    each = [
                        statistics.probability_of_improvement(*both, paired=paired) for both in zip(x, y, strict=True)
                    ]
                    ends = [(float(one.low), float(one.high)) for one in each]
                    rows.append(covered(ends, probability))
                    widths.append(float(np.median([high - low for low, high in ends])))
                if count < COUNTS[-1]:
                    for paired in (False, True):
                        ends = [
                            percentiles_of_wins(*both, paired, resamples) for both in zip(x[:few], y[:few], strict=True)
                        ]
                        rows.append(covered(ends, probability))
                for name, share in zip(columns, rows, strict=False):
                    least[name] = min(least[name], share)
                lacking = [None] * (len(columns) - len(rows))
                table.add(str(count), scores, f"{probability:g}", *rows, *lacking, *widths)
    return least


def shares_of_runs(report: Report, samples: int) -> float:
    """The table of shares of runs, of one task and of four whose shares differ; returns the smallest coverage."""
    table = report.table(
        "share of runs above a threshold: share of 95 % intervals that contain it, in %",
        {"seeds": "", "share": "", "one task": ".1f", "four tasks": ".1f"},
    )
    least = 100.0
    for count in COUNTS:
        for share in PROBABILITIES:
            generator = np.random.default_rng(count)
            each = [
                np.full(1, share),
                np.clip(share + np.array([-1.0, -1.0, 1.0, 1.0]) * min(0.3, 1 - share), 0, 1),  # of the same mean
            ]
            rows = []
            for tasks in each:
                runs = generator.random((samples, tasks.size, count)) < tasks[:, None]
                profiles = [statistics.performance_profile(one, [0.5]) for one in runs.astype(float)]
                rows.append(covered([(float(one.low[0]), float(one.high[0])) for one in profiles], share))
            least = min(least, *rows)
            table.add(str(count), f"{share:g}", *rows)
    return least


def over_tasks(report: Report, samples: int, resamples: int) -> None:
    """The table of the IQM over four tasks, whose scores have the same distribution."""
    table = report.table(
        "iqm over four tasks: share of 95 % intervals that contain it, in %",
        {"seeds": "", "distribution": "", "student": ".1f"},
    )
    for count in COUNTS:
        for distribution, (draw, quantile, _) in DISTRIBUTIONS.items():
            values = draw(np.random.default_rng(count), (samples, 4 * count)).reshape(samples, 4, count)
            interval = statistics.bootstrap_interval(statistics.iqm, values, tasks=True, num_resamples=resamples)
            ends = list(zip(interval.low, interval.high, strict=True))
            table.add(str(count), distribution, covered(ends, true_iqm(quantile)))


def main() -> None:
    """Measure, print and store the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--samples", type=int, default=2000, help="samples per distribution and number of seeds")
    parser.add_argument("--resamples", type=int, default=1000, help="resamples per interval")
    parser.add_argument("--settings", type=int, default=2000, help="rows of the timed table")
    options = parser.parse_args()
    report = Report(parser, options, "how often 95 % intervals over 4 to 64 seeds contain the true value")
    kinds = ("percentile", "BCa", "bootstrap-t", "student")
    missed: dict[str, list[float]] = {kind: [] for kind in kinds}
    for name in ("iqm", "mean"):
        columns = {"seeds": "", "distribution": "", **{kind: ".1f" for kind in kinds}, "width": ".2f"}
        table = report.table(
            f"{name}: share of 95 % intervals that contain it, in %; width relative to the percentile's", columns
        )
        for count in COUNTS:
            for distribution, (draw, quantile, mean) in DISTRIBUTIONS.items():
                values = draw(np.random.default_rng(count), (options.samples, count))
                target = mean if name == "mean" else true_iqm(quantile)
                shares, widths = [], {}
                for kind in kinds:
                    low, high = ends_of(kind, values, name, options.resamples)
                    shares.append(100 * float(np.mean((low <= target) & (target <= high))))
                    widths[kind] = float(np.median(high - low))
                    missed[kind].append(abs(shares[-1] - 100 * CONFIDENCE))
                table.add(str(count), distribution, *shares, widths["student"] / widths["percentile"])
    mean_missed = {kind: float(np.mean(each)) for kind, each in missed.items()}
    report.note(
        "; ".join(f"{kind} is {miss:.1f} points from 95 on average" for kind, miss in mean_missed.items()) + "."
    )
    over_tasks(report, options.samples, options.resamples)
    least = probabilities_of_improvement(report, options.samples, options.resamples)
    least_share = shares_of_runs(report, options.samples)
    values = np.random.default_rng(0).normal(size=(options.settings, 16))
    started = time.perf_counter()
    for row in values:
        statistics.bootstrap_interval(statistics.iqm, row)
    seconds = time.perf_counter() - started
    report.note(f"A table of {options.settings:,} settings of 16 seeds takes {seconds:.1f} s for its intervals.")
    report.require(
        mean_missed["student"] == min(mean_missed.values()),
        f"A kind other than the default is nearer to 95 %: {mean_missed}.",
    )
    allowed = LEAST - 3 * np.sqrt(LEAST * (100 - LEAST) / options.samples)
    for name, share in {"unpaired": least["unpaired"], "paired": least["paired"], "of a share": least_share}.items():
        report.require(share >= allowed, f"An interval {name} contains the true value in {share:.1f} % of samples.")
    report.finish(
        f"IQM and mean {mean_missed['student']:.1f} points from 95 % on average, {mean_missed['percentile']:.1f} by "
        f"percentiles; P(improvement) at least {least['unpaired']:.1f} % unpaired and {least['paired']:.1f} % paired, "
        f"{least['unpaired by percentiles']:.1f} and {least['paired by percentiles']:.1f} % by percentiles"
    )


if __name__ == "__main__":
    main()
