"""Coverage of confidence intervals: four kinds of interval, over seeds from four distributions.

    python bench/coverage.py [--samples 2000] [--resamples 1000] [--json FILE]

Each sample has a number of seeds from a distribution whose mean and interquartile mean are known: a normal, an
exponential and a lognormal distribution, and one with two modes, like runs of which 30 % fail. A 95 % interval should
contain the true value in 95 % of samples. The kinds of interval are the percentiles of the bootstrap, those corrected
for bias and acceleration (BCa), the bootstrap of Student's statistic (with the standard error of the mean, or of the
trimmed mean), and percentiles stretched to Student's quantile, which `jaxrl.statistics` uses. The time of a table's
intervals is measured last. The exit status is 1 if a kind other than the default is nearer to 95 %, by the mean
distance over all rows.
"""

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
    report.finish(
        f"{mean_missed['student']:.1f} points from 95 % on average, {mean_missed['percentile']:.1f} by percentiles"
    )


if __name__ == "__main__":
    main()
