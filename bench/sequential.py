"""Sequential comparison: how often it errs, how often it finds a difference, and how many seeds it saves.

    python bench/sequential.py [--samples 1000] [--max-seeds 64] [--json FILE]

The returns of three algorithms are drawn from a distribution, in place of training: normal, exponential, lognormal, or
with two modes, as of runs of which 30 % learn nothing; all are scaled to a standard deviation of 1. Under the null
hypothesis all three are equal, and any decision is an error. In other rows the third is better by one or two standard
deviations, or the third is better and the other two, which differ in their distributions, have equal means. In a row of
its own, one has the larger mean by rare successes, and decisions for the smaller mean are counted. The test of
`jaxrl.compare(..., until="decided")` is compared with three others that look at the same numbers of seeds:

* t-tests at the same level at every look, corrected over pairs but not over looks;
* asymptotic confidence sequences (Waudby-Smith et al., 2021), which hold at any number of seeds that is large enough;
* one permutation test at the last look, with all seeds.

How often an interval contains the difference is counted too, and what a margin of one standard deviation changes: how
often algorithms that differ by at least as much are called equal, and how many seeds all three take; without a margin,
the two that are equal take all of theirs. In a table of its own, one algorithm never fails to learn, and two others
fail in 10 % of their runs. All but the errors are counted in a quarter of the samples. The exit status is 1 if the
errors under the null hypothesis, or those of algorithms that differ by the margin, may exceed 6.5 % (by the upper end
of a 95 % interval), if the power at one standard deviation is below .8, or if less than 40 % of the seeds are saved at
two: of the better algorithm, and, with a margin, of all three.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import scipy.stats

from bench.report import Report, benchmark_parser
from jaxrl.results.sequential import Design, Family, looks_up_to, most_equal_pairs

LEVEL = 0.05
PAIRS = ((0, 1), (0, 2), (1, 2))
MARGIN = 1.0  # standard deviations
MOST_ERRORS, LEAST_POWER, LEAST_SAVED = 6.5, 80.0, 40.0  # in %
Sampler = Callable[[np.random.Generator, int], np.ndarray]


def two_modes(generator: np.random.Generator, count: int) -> np.ndarray:
    """Samples with modes at 0 and 1, of which 30 % are at 0."""
    return (generator.random(count) > 0.3) + 0.05 * generator.normal(size=count)


DISTRIBUTIONS: dict[str, tuple[Sampler, float, float]] = {  # with mean and standard deviation
    "normal": (lambda generator, count: generator.normal(size=count), 0.0, 1.0),
    "exponential": (lambda generator, count: generator.exponential(size=count), 1.0, 1.0),
    "lognormal": (
        lambda generator, count: generator.lognormal(size=count),
        float(np.exp(0.5)),
        float(np.sqrt((np.e - 1) * np.e)),
    ),
    "two modes": (two_modes, 0.7, float(np.sqrt(0.7 * 0.3 + 0.05**2))),
}


class Outcome(NamedTuple):
    """Outcome of a comparison.

    Attributes:
      decided: Pairs that were decided, each with whether the first is the better one.
      seeds: Number of seeds of each algorithm.
    """

    decided: dict[tuple[int, int], bool]
    seeds: list[int]


def drawn(name: str, generator: np.random.Generator, count: int) -> np.ndarray:
    """Returns of mean 0 and standard deviation 1."""
    sample, mean, deviation = DISTRIBUTIONS[name]
    return (sample(generator, count) - mean) / deviation


def after_looks(
    values: np.ndarray, looks: Sequence[int], margin: float | None = None
) -> tuple[Family[tuple[int, int]], list[int]]:
    """The tests of `jaxrl.compare`, and the number of seeds of each algorithm."""
    design = Design.of(looks[-1], len(PAIRS))._replace(looks=tuple(looks))
    margins = None if margin is None else dict.fromkeys(PAIRS, margin)
    family = Family(PAIRS, design, lambda decided: most_equal_pairs(3, len(decided)), 1 - LEVEL, margins)
    seeds, before = [0, 0, 0], 0
    for look in looks:
        for pair in family.open:
            family.tests[pair].add(*(values[at, before:look] for at in pair))
            for at in pair:
                seeds[at] = look
        before = look
        family.decide()
    return family, seeds


def by_permutations(values: np.ndarray, looks: Sequence[int]) -> Outcome:
    """The test of `jaxrl.compare`; with one look, a permutation test of a fixed number of seeds."""
    family, seeds = after_looks(values, looks)
    return Outcome({pair: family.tests[pair].difference > 0 for pair in family.decisions}, seeds)


def _stopping(values: np.ndarray, looks: Sequence[int], differs: Callable[[np.ndarray, np.ndarray], bool]) -> Outcome:
    """Another test, by Bonferroni over the pairs."""
    decided: dict[tuple[int, int], bool] = {}
    seeds = [0, 0, 0]
    for look in looks:
        for pair in PAIRS:
            if pair in decided:
                continue
            first, second = (values[at, :look] for at in pair)
            seeds = [max(each, look) if at in pair else each for at, each in enumerate(seeds)]
            if differs(first, second):
                decided[pair] = bool(first.mean() > second.mean())
    return Outcome(decided, seeds)


def by_t_tests(values: np.ndarray, looks: Sequence[int]) -> Outcome:
    """Tests of Welch at the same level at every look."""

    def differs(first: np.ndarray, second: np.ndarray) -> bool:
        test: Any = scipy.stats.ttest_ind(first, second, equal_var=False)
        return bool(test.pvalue <= LEVEL / len(PAIRS))

    return _stopping(values, looks, differs)


def by_confidence_sequences(values: np.ndarray, looks: Sequence[int]) -> Outcome:
    """Asymptotic confidence sequences of the difference, tightest at 32 seeds (theorem 2.2 there)."""
    level = LEVEL / len(PAIRS)
    tightest = (-2 * np.log(level) + np.log(-2 * np.log(level) + 1)) / 32  # rho squared

    def differs(first: np.ndarray, second: np.ndarray) -> bool:
        count = len(first)
        spread = np.sqrt(first.var(ddof=1) + second.var(ddof=1))
        scaled = count * tightest + 1
        radius = spread * np.sqrt(2 * scaled / (count**2 * tightest) * np.log(np.sqrt(scaled) / level))
        return bool(abs(first.mean() - second.mean()) > radius)

    return _stopping(values, looks, differs)


TESTS: dict[str, Callable[[np.ndarray, Sequence[int]], Outcome]] = {
    "permutations": by_permutations,
    "t-tests": by_t_tests,
    "confidence sequences": by_confidence_sequences,
    "one look": lambda values, looks: by_permutations(values, looks[-1:]),
}


def samples_of(kinds: Sequence[str], shifts: Sequence[float], count: int, samples: int) -> Iterator[np.ndarray]:
    """Returns `[3, count]` of three algorithms, each of a distribution and a mean."""
    for sample in range(samples):
        generator = np.random.default_rng(sample)
        columns = zip(kinds, shifts, strict=True)
        yield np.stack([drawn(kind, generator, count) + shift for kind, shift in columns])


def upper_end(errors: int, samples: int) -> float:
    """Upper end of the 95 % interval of Clopper and Pearson for a share, in %."""
    return 100 * float(scipy.stats.beta.ppf(0.975, errors + 1, samples - errors)) if errors < samples else 100.0


def nulls(report: Report, looks: Sequence[int], samples: int) -> None:
    """The table of wrong decisions."""
    columns = {name: ".1f" for name in TESTS}
    table = report.table(
        f"wrong decisions on three algorithms, in % of {samples:,} samples; upper end of the interval of permutations",
        {"first, second": "", "third": "", **columns, "upper end": ".1f"},
    )
    rows = [((name,) * 3, 0.0) for name in DISTRIBUTIONS]
    rows += [((name,) * 3, 1.0) for name in ("normal", "lognormal")]
    rows += [(("normal", "lognormal", "normal"), 1.0)]  # of equal means and standard deviations only
    for kinds, shift in rows:
        equal = {pair for pair in PAIRS if not shift or pair == (0, 1)}
        errors = dict.fromkeys(TESTS, 0)
        for values in samples_of(kinds, (0.0, 0.0, shift), looks[-1], samples):
            for name, test in TESTS.items():
                decided = test(values, looks).decided
                wrong = [pair for pair, first in decided.items() if pair in equal or first]
                errors[name] += bool(wrong)
        shares = [100 * count / samples for count in errors.values()]
        end = upper_end(errors["permutations"], samples)
        table.add(" and ".join(dict.fromkeys(kinds[:2])), f"{kinds[2]} + {shift:g}", *shares, end)
        if not shift:
            report.require(end <= MOST_ERRORS, f"Wrong decisions on {kinds[0]} returns: up to {end:.1f} %.")


def rare_success(generator: np.random.Generator, count: int) -> np.ndarray:
    """Returns `[3, count]` of an algorithm that succeeds in 10 % of its runs, of mean 58, and of two of mean 30."""
    rare = np.where(generator.random(count) < 0.1, 500.0, 9.0 + generator.normal(size=count))
    return np.stack([rare, *(30.0 + generator.normal(size=(2, count)))])


def smaller_means(report: Report, looks: Sequence[int], samples: int) -> None:
    """The table of decisions for a smaller mean, between distributions that differ."""
    table = report.table(
        f"decisions for the smaller mean, in % of {samples:,} samples: 500 with a probability of 0.1, otherwise 9 +- 1 "
        "(mean 58), against two of 30 +- 1",
        {name: ".1f" for name in TESTS},
    )
    errors = dict.fromkeys(TESTS, 0)
    for sample in range(samples):
        values = rare_success(np.random.default_rng(sample), looks[-1])
        for name, test in TESTS.items():
            decided = test(values, looks).decided
            errors[name] += any(decided.get(pair) is False for pair in PAIRS[:2])
    table.add(*(100 * count / samples for count in errors.values()))


def alternatives(report: Report, looks: Sequence[int], samples: int) -> tuple[float, float, float]:
    """The table of power and seeds.

    Returns:
      The least power at one standard deviation, and the least savings at two, in %: of the seeds of the better
      algorithm, and of those of all three.
    """
    table = report.table(
        f"the third is better than both others: right decisions on these two pairs, in % of {samples:,} samples, and "
        f"mean number of seeds of the third, at most {looks[-1]}, and of all three",
        {
            "returns": "",
            "better by": "",
            **{f"{name}{what}": ".1f" for name in TESTS for what in ("", ": seeds", ": seeds of all")},
        },
    )
    power, saved, saved_of_all = 100.0, 100.0, 100.0
    for kind in DISTRIBUTIONS:
        for shift in (0.5, 1.0, 2.0):
            right, seeds, of_all = (dict.fromkeys(TESTS, 0) for _ in range(3))
            for values in samples_of((kind,) * 3, (0.0, 0.0, shift), looks[-1], samples):
                for name, test in TESTS.items():
                    outcome = test(values, looks)
                    right[name] += sum(outcome.decided.get(pair) is False for pair in PAIRS[1:])
                    seeds[name] += outcome.seeds[2]
                    of_all[name] += sum(outcome.seeds)
            cells = [
                cell
                for name in TESTS
                for cell in (100 * right[name] / (2 * samples), seeds[name] / samples, of_all[name] / samples)
            ]
            table.add(kind, f"{shift:g}", *cells)
            if shift == 1.0:
                power = min(power, cells[0])
            if shift == 2.0:
                saved = min(saved, 100 * (1 - cells[1] / looks[-1]))
                saved_of_all = min(saved_of_all, 100 * (1 - cells[2] / (3 * looks[-1])))
    return power, saved, saved_of_all


def margins(report: Report, looks: Sequence[int], samples: int) -> float:
    """The table of decisions with a margin.

    Returns:
      The least savings at two standard deviations, in % of the seeds of all three.
    """
    table = report.table(
        f"with a margin of {MARGIN:g} s.d., the third better than both others, in % of {samples:,} samples: equal "
        "without a difference, wrongly equal, right decisions on the two pairs that differ, and mean number of seeds",
        {
            "returns": "",
            "better by": "",
            "equal": ".1f",
            "wrongly equal": ".1f",
            "right": ".1f",
            "seeds": ".1f",
            "seeds of all": ".1f",
        },
    )
    saved = 100.0
    for kind in DISTRIBUTIONS:
        for shift in (0.0, 1.0, 2.0):
            equal, wrong, right, better, of_all = 0, 0, 0, 0, 0
            for values in samples_of((kind,) * 3, (0.0, 0.0, shift), looks[-1], samples):
                family, seeds = after_looks(values, looks, MARGIN)
                equal += (0, 1) in family.equal
                wrong += shift > 0 and any(pair in family.equal for pair in PAIRS[1:])
                right += sum(pair in family.decisions and family.tests[pair].difference < 0 for pair in PAIRS[1:])
                better += seeds[2]
                of_all += sum(seeds)
            shares = (100 * equal / samples, 100 * wrong / samples, 100 * right / (2 * samples))
            table.add(kind, f"{shift:g}", *shares, better / samples, of_all / samples)
            if shift == MARGIN:
                end = upper_end(wrong, samples)
                report.require(end <= MOST_ERRORS, f"Wrongly equal on {kind} returns: up to {end:.1f} %.")
            if shift == 2.0:
                saved = min(saved, 100 * (1 - of_all / samples / (3 * looks[-1])))
    return saved


def rare_failures(report: Report, looks: Sequence[int], samples: int) -> None:
    """The table of pairs that are called equal although one of the two algorithms sometimes fails to learn."""
    table = report.table(
        f"called equal, in % of {samples:,} samples: always 500, against 9 with a probability of 0.1 and 500 otherwise "
        "(mean 451)",
        {"margin": "", "wrongly equal": ".1f"},
    )
    for margin in (12.5, 25.0, 40.0):
        wrong = 0
        for sample in range(samples):
            failing = np.where(np.random.default_rng(sample).random(looks[-1]) < 0.1, 9.0, 500.0)
            family, _ = after_looks(np.stack([np.full(looks[-1], 500.0), failing, failing]), looks, margin)
            wrong += (0, 1) in family.equal
        table.add(f"{margin:g}", 100 * wrong / samples)


def coverage(report: Report, looks: Sequence[int], samples: int) -> None:
    """The table of intervals."""
    table = report.table(
        f"the interval of one of three pairs contains the difference, in % of {samples:,} samples; 95 % for all three",
        {"returns": "", "difference": "", "covered": ".1f"},
    )
    for kind in ("normal", "lognormal"):
        for shift in (0.0, 1.0):
            inside = []
            for values in samples_of((kind,) * 3, (0.0, 0.0, shift), looks[-1], samples):
                interval = after_looks(values, looks)[0].interval((0, 2))
                inside.append(not (interval.low > -shift or interval.high < -shift))
            table.add(kind, f"{shift:g}", 100 * float(np.mean(inside)))


def main() -> None:
    """Simulate, print and store the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--samples", type=int, default=1000, help="samples of every row")
    parser.add_argument("--max-seeds", type=int, default=64, help="largest number of seeds")
    options = parser.parse_args()
    report = Report(parser, options, "errors, power and seeds of sequential comparisons")
    looks = looks_up_to(options.max_seeds)
    nulls(report, looks, options.samples)
    smaller_means(report, looks, max(1, options.samples // 4))
    power, saved, saved_of_all = alternatives(report, looks, max(1, options.samples // 4))
    saved_with_margin = margins(report, looks, max(1, options.samples // 4))
    rare_failures(report, looks, max(1, options.samples // 4))
    coverage(report, looks, max(1, options.samples // 4))
    report.require(power >= LEAST_POWER, f"The power at one standard deviation is {power:.1f} %.")
    report.require(saved >= LEAST_SAVED, f"{saved:.1f} % of the better one's seeds are saved at two s.d.")
    report.require(
        saved_with_margin >= LEAST_SAVED,
        f"{saved_with_margin:.1f} % of all seeds are saved at two s.d., with a margin.",
    )
    report.finish(
        f"at least {power:.1f} % of differences of one standard deviation found; at least {saved:.1f} % of "
        f"{looks[-1]} seeds of the better algorithm saved at two, and {saved_of_all:.1f} % of those of all three, or "
        f"{saved_with_margin:.1f} % with a margin of {MARGIN:g} s.d."
    )


if __name__ == "__main__":
    main()
