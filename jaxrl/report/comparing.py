"""`jaxrl.compare`: results as they are, or algorithms that train until every pair of them is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from envs.arguments import check_choice, check_flag
from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import check_count
from jaxrl.report.benchmark_arguments import BENCHMARK, check_benchmark, check_normalise
from jaxrl.report.comparing_results import compared, warn_of_presets
from jaxrl.report.comparison import Comparison
from jaxrl.report.entries import Source, Sources
from jaxrl.runtime.options import Options, SearchOptions, checked

if TYPE_CHECKING:
    from envs.base import Environment
    from jaxrl.benchmark.data import Benchmark
    from jaxrl.report.sequential_comparison import SequentialComparison

__all__ = ["compare"]


@overload
def compare(
    results: Source | Sources,
    benchmark: Literal["benchmark"] | Benchmark = ...,
    /,
    *,
    to: Literal["benchmark"] | Benchmark | None = None,
    until: None = None,
    baseline: str | None = None,
    metric: str | None = None,
    env_steps: int | None = None,
    better: Literal["higher", "lower"] | None = None,
    normalise: Mapping[str, tuple[float, float]] | Literal["benchmark"] | Benchmark | None = None,
    confidence: float = 0.95,
    trust: bool = False,
) -> Comparison: ...


@overload
def compare(
    results: Any,
    *others: Any,
    until: Literal["decided"],
    tasks: Sequence[Environment | str] | None = None,
    max_seeds: int | None = None,
    eval_episodes: int | None = None,
    margin: float | Mapping[str, float] | None = None,
    baseline: str | None = None,
    metric: str | None = None,
    env_steps: int | None = None,
    better: Literal["higher", "lower"] | None = None,
    confidence: float = 0.95,
    **options: Unpack[SearchOptions],
) -> SequentialComparison: ...


def compare(
    results: Any,
    *others: Any,
    to: Literal["benchmark"] | Benchmark | None = None,
    until: Literal["decided"] | None = None,
    tasks: Sequence[Environment | str] | None = None,
    max_seeds: int | None = None,
    eval_episodes: int | None = None,
    margin: float | Mapping[str, float] | None = None,
    baseline: str | None = None,
    metric: str | None = None,
    env_steps: int | None = None,
    better: Literal["higher", "lower"] | None = None,
    normalise: Mapping[str, tuple[float, float]] | Literal["benchmark"] | Benchmark | None = None,
    confidence: float = 0.95,
    trust: bool = False,
    **options: Any,
) -> Comparison | SequentialComparison:
    """Compare algorithms, or any results, on one task or on several; with `until`, train them until it is decided.

    With `until="decided"`, `compare("ppo", "a2c", tasks=["cartpole"], until="decided")` trains algorithms in blocks of
    further seeds. After 8, 16, 24, 32, 48, 64, 96, ... seeds, every pair on every task is tested by permutations, and
    those that differ, or are equal within `margin`, get no further seeds; the others do, up to `max_seeds`. The
    probability that any pair with one distribution of returns is found to differ is at most 1 - `confidence`, over all
    looks, pairs and tasks, at any number of seeds: see `jaxrl.results.sequential`. The better algorithm of a decision
    is the one with the better mean over the runs so far; where few runs determine a mean, this choice is wrong more
    often.

    Args:
      results: Results or run directories by name, `{"dqn": result, "mine": "runs/mine"}`. A name may also have a list,
        of results on several tasks or of further seeds, or a dictionary with the names of the tasks. In a list without
        names, a directory is named after itself and a result after its algorithm; on several tasks, both are named
        after the algorithm. Every setting of a sweep is a line of its own. With `until`, the first algorithm, or a
        dictionary of algorithms by name.
      *others: "benchmark", or data of the benchmark from `jaxrl.benchmark.load`, for lines of all algorithms of
        `jaxrl.benchmark` that have data on the tasks of the results.
        With `until`, further algorithms: each is an algorithm, a preset, a pair `(algo, hparams)`, or one of
        these on several tasks, in a list or by the names of the tasks; with `tasks` also a name of an algorithm, which
        takes its preset on each task, or defaults.
      to: Word "benchmark", or its data, as a keyword in place of the second argument.
      until: "decided" trains algorithms until every pair is decided; None compares results as they are.
      tasks: Environments, or names of environments, on which to train every algorithm; None for those of the
        algorithms.
      max_seeds: Largest number of seeds of an algorithm on a task, at least 4, and more if that cannot decide any of
        several pairs; None takes 512. A pair that is not decided by then stays undecided.
      eval_episodes: Number of whole episodes of the evaluation at the end of a run; None takes 64.
      margin: Smallest difference of means that matters, in units of the metric, or one for each task,
        `{"cartpole": 25.0}`: a pair with at least 32 seeds whose interval lies between minus and plus this number is
        "equal", and gets no further seeds; None decides only which pairs differ.
      baseline: Name, or label of a setting, with which the others are compared; None for the first. With `until`, None
        decides all pairs, and a name only the pairs with this algorithm.
      metric: Name of the metric; None for the return, or the regret of a bandit.
      env_steps: Environment step at which values are compared; None for the last that all results on a task reach.
        Between two evaluations, a value is interpolated linearly within its run. With `until`, the number of
        environment steps of every run; None takes the smallest number of the presets on a task.
      better: Whether higher or lower values are better; known for returns, rewards, optimal pulls and regrets.
      normalise: Values that count as 0 and as 1 on each task, `{"cartpole": (9.5, 500.0)}`, such as those of a random
        and of a solving policy; "benchmark", or its data, for the return of random actions and, where it is known, the
        optimum, otherwise the best of the benchmark; None for the lowest and the highest run if there are several
        tasks, none otherwise.
      confidence: Confidence level of every interval, in (0, 1). With `until`, the probability of any wrong decision
        that a pair differs is at most 1 - `confidence`, and so is, separately, that of any wrong decision that a pair
        is equal, for the distributions that `jaxrl.results.sequential` names.
      trust: Whether to read files that do not match their checksums.
      **options: Options of execution with `until`, see `jaxrl.runtime.options.SearchOptions`. `out` gets a run
        directory for every block of seeds; the same call resumes an interrupted comparison, bit for bit.

    Returns:
      The comparison, with a table, a matrix of probabilities, figures, and the settings that differ; with `until`, the
      decisions, with a table, and the results.

    Raises:
      ResultError: A directory holds no result, or the results have different metrics; or `out` holds something else.
      ValueError: There are not two lines, a name is unknown, the results have no task in common, their returns have
        different meanings, or an argument is out of range.
    """
    check_flag("trust", trust)
    if not 0.0 < confidence < 1.0:
        raise UserValueError(f"confidence is {confidence!r}; it takes a number between 0 and 1, such as 0.95.")
    if better is not None:
        check_choice("better", better, ("higher", "lower"))
    if env_steps is not None:
        check_count("env_steps", env_steps)
    if until is None:
        if options:
            checked(compare, SearchOptions, options)
        of_training = {"tasks": tasks, "max_seeds": max_seeds, "eval_episodes": eval_episodes, "margin": margin}
        _refuse_without_until({**of_training, **options})
        if to is not None:
            check_benchmark("to", to)
            others = (*others, to)
        if len(others) > 1 or not all(_is_benchmark(each) for each in others):
            raise UserTypeError(
                f"compare takes results in one list or dictionary, and then 'benchmark', its data, or nothing, got "
                f"{1 + len(others)} arguments; algorithms to train take until='decided'"
            )
        if others:
            check_benchmark("to", others[0])
        check_normalise(normalise)
        return compared(
            results,
            baseline=baseline,
            metric=metric,
            env_steps=env_steps,
            better=better,
            normalise=normalise,
            confidence=confidence,
            trust=trust,
            benchmark=others[0] if others else None,
        )
    check_choice("until", until, ("decided",))
    for name, value in {"to": to, "normalise": normalise, "trust": trust}.items():
        if value:
            raise UserTypeError(f"{name} has no effect with until='decided', got {value!r}; leave it out")
    return _decided(
        [results, *others],
        tasks,
        env_steps,
        checked(compare, SearchOptions, options),
        baseline=baseline,
        metric="return" if metric is None else metric,
        better=better,
        max_seeds=max_seeds,
        eval_episodes=eval_episodes,
        confidence=confidence,
        margin=margin,
    )


def _decided(
    algos: Sequence[Any],
    tasks: Sequence[Environment | str] | None,
    env_steps: int | None,
    options: Options,
    *,
    max_seeds: int | None,
    eval_episodes: int | None,
    **rule: Any,
) -> SequentialComparison:
    """The decisions on algorithms; see `compare`."""
    from jaxrl.report.contestants import contestants_of
    from jaxrl.report.deciding import EVAL_EPISODES, MAX_SEEDS, decide

    contestants = contestants_of(algos, tasks, env_steps)
    for task in contestants[0].trainings:
        origins = {each.name: each.trainings[task].algo.settings_from for each in contestants}
        warn_of_presets(origins, task, f"jaxrl.compare(decided.sources({task!r})).differences")
    return decide(
        contestants,
        max_seeds=MAX_SEEDS if max_seeds is None else max_seeds,
        eval_episodes=EVAL_EPISODES if eval_episodes is None else eval_episodes,
        options=options,
        **rule,
    )


def _is_benchmark(value: Any) -> bool:
    """Whether a value is the word "benchmark", or data of the benchmark."""
    from jaxrl.benchmark.data import Benchmark

    return isinstance(value, Benchmark) or (isinstance(value, str) and value == BENCHMARK)


def _refuse_without_until(arguments: Mapping[str, Any]) -> None:
    """Reject arguments that belong to a comparison that trains."""
    for name, value in arguments.items():
        if value is not None:
            raise UserTypeError(f"{name} takes effect only with until='decided', got {value!r}")
