"""Search for hyper-parameters: populations of trials, each a single call, in a study that processes can share."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.settings import own_settings
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import default_space
from jaxrl.checks import check_choice, check_count
from jaxrl.importing import name_of
from jaxrl.pytrees import EnvParams
from jaxrl.results.checksums import checksum_of_file
from jaxrl.results.description import plain
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result
from jaxrl.results.storage import CHECKSUMS, CONFIG, finished
from jaxrl.runtime.call import Call, seeds_that_fit
from jaxrl.runtime.checkpoints.identity import identity_of, same_runs
from jaxrl.runtime.checkpoints.identity_file import IDENTITY, read_identity
from jaxrl.runtime.checkpoints.store import has_checkpoint
from jaxrl.runtime.drive.progress import Progress, StopRequest, stop_on_signals
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.layout import Layout, default_devices
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.options import RunOptions, SearchOptions, checked
from jaxrl.runtime.programs import compilations, room_for
from jaxrl.runtime.training import training_call, with_env_steps
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform
from jaxrl.sweeps.paths import leaves
from jaxrl.sweeps.sweep import grid
from jaxrl.tuning.halving import Halving
from jaxrl.tuning.result import INCUMBENT, STUDY, TESTED, SearchResult, claim, write_json, write_search
from jaxrl.tuning.run_trials import AGGREGATES, Tuning, check_rungs, do_trials, wave_layout
from jaxrl.tuning.shared_study import Outcome, TrialStudy, opened
from jaxrl.tuning.space import Builder, Space
from jaxrl.tuning.storages import import_optuna

SEARCHES = ("tpe", "random", "grid", "cmaes")
FIRST_TEST_SEED = 1_000_000  # tuning seeds are below, test seeds from here on
TEST_EVALS = 10
DEFAULT_TRIALS = 64

__all__ = ["FIRST_TEST_SEED", "SEARCHES", "search"]


def search(
    algo: Algorithm | str,
    space: Mapping[str, Uniform | LogUniform | Choice] | str | None = None,
    *,
    trials: int | None = None,
    env_steps: int | None = None,
    search: str = "tpe",
    seeds: int = 3,
    test_seeds: int = 16,
    population: int | None = None,
    halving: Halving | None = None,
    aggregate: str = "mean",
    eval_episodes: int = 64,
    env_params: EnvParams = None,
    seed: int = 0,
    storage: str | None = None,
    study: str | None = None,
    builder: Builder | None = None,
    **options: Unpack[SearchOptions],
) -> SearchResult:
    """Search a space for the setting with the best final return, and retrain that setting on other seeds.

    A population of trials is one call: it is grouped by static configuration, each group one
    program, compiled once. Finished trials stay in the study even if the search is interrupted; the same
    call resumes it, here or in several processes at the same time, until the study has all its trials.

    Tuning seeds are 0, 1, ...; test seeds begin at 1,000,000. The return of the best of many trials is biased
    upwards on its tuning seeds, so the incumbent and `algo.hparams` are retrained on the test seeds.
    Source: Eimer, Lindauer and Raileanu (2023), "Hyperparameters in reinforcement learning
    and how to tune them".

    Args:
      algo: Algorithm to tune; its hyper-parameters and configuration apply to all paths that are not in the space. Two
        names in place of `algo` and `space`, `search("ppo", "cartpole")`, search the default space around the preset
        of that pair, or around the defaults where there is none.
      space: Distributions `{path: Uniform | LogUniform | Choice}` of hyper-parameters ("lr", "discount.gamma"), of
        the environment ("env.gravity") and, by Choice, of the configuration ("config.num_steps"); None
        for the default space of the algorithm.
      trials: Number of trials of the complete study; None takes every point of a grid, and 64 otherwise.
      env_steps: Number of environment steps of each run; for two names that of their preset if None, which is then
        shown.
      search: Sampler: "tpe", "random", "grid" or "cmaes".
      seeds: Number of tuning seeds of a trial.
      test_seeds: Number of test seeds on which the incumbent is retrained; 0 for none.
      population: Number of trials that are sampled and trained together; None takes 64. "tpe" and "cmaes" learn
        between populations only, and by default take an eighth of the trials, or more if devices would be idle;
        "tpe" chooses its first 10 trials at random, and "cmaes" its first population.
      halving: Successive halving, which stops the worse part of each population early; None trains every trial to
        its end, which "cmaes" requires.
      aggregate: Score of a trial from the final greedy returns of its tuning seeds: "mean", or "iqm" for the
        interquartile mean.
      eval_episodes: Number of whole episodes of each evaluation with greedy actions, and as many with sampled ones.
      env_params: Parameters of the environment; None for its defaults.
      seed: Random seed of the search.
      storage: URL of the study's storage, such as `sqlite:///study.db`, or `journal:/path` for a file on a shared file
        system, Optuna's journal; None stores it in `out`, or in memory.
      study: Name of the study in the storage; None names it after the algorithm and the environment.
      builder: Function `(config) -> Algorithm` for searching the configuration of a user-defined algorithm.
      **options: Options on where and how the call runs, see `jaxrl.runtime.options.SearchOptions`.
        All trials share one width of blocks, and trials that do not fit into memory together
        train one after another. `out` gets the table of trials, the incumbent, and the results of the incumbent
        and of the default setting on the test seeds, each of which `load_result` reads.

    Raises:
      ValueError, TypeError: An argument is invalid; raised before anything is compiled.
      ImportError: The extra `search` is not installed.
      ResultError: The storage or `out` cannot be used, or holds another search.
    """
    import_optuna()
    from jaxrl.tuning.samplers import population_of, sampler_of

    check_choice("search", search, SEARCHES)
    check_choice("aggregate", aggregate, tuple(AGGREGATES))
    chosen = checked(_search, SearchOptions, options)
    algo, distributions, env_steps = with_env_steps("search", algo, space, env_steps, show=chosen.progress)
    counts = {"env_steps": env_steps, "seeds": seeds, "eval_episodes": eval_episodes}
    counts |= {name: value for name, value in {"trials": trials, "population": population}.items() if value is not None}
    for name, value in counts.items():
        check_count(name, value)
    if seeds > FIRST_TEST_SEED:
        raise UserValueError(f"seeds must be at most {FIRST_TEST_SEED}, where the test seeds begin, got {seeds}")
    if test_seeds != 0:
        seeds_that_fit(test_seeds, name="test_seeds")
    check_count("seed", seed, 0)
    if halving is not None and not isinstance(halving, Halving):
        raise UserTypeError(f"halving takes a Halving, such as jaxrl.Halving(eta=3), got {halving!r}")
    if halving is not None and search == "cmaes":
        raise UserValueError(
            "halving does not work with cmaes, which learns from whole runs only: leave it out, or search by tpe"
        )
    searched = Space(algo, default_space(algo) if distributions is None else distributions, env_params, builder)
    num_trials = DEFAULT_TRIALS if trials is None else trials
    if search == "grid":
        every = len(searched.combinations())
        num_trials = every if trials is None else min(trials, every)
    busy = -(-len(default_devices() if chosen.devices is None else chosen.devices) // seeds)
    population = population_of(search, population, num_trials, len(searched.distributions), busy)
    sampler = sampler_of(search, searched, seed, population)
    tuning_seeds = list(range(seeds))
    together = min(population, num_trials)
    per_group = -(-together * seeds // len(searched.groups))
    tuning = Tuning(
        searched,
        env_steps,
        tuning_seeds,
        eval_episodes,
        aggregate,
        halving,
        together,
        wave_layout(per_group, chosen.block, chosen.devices),
        chosen.memory,
        chosen.precision,
        chosen.progress,
    )
    check_rungs(tuning.rungs, searched)
    if halving is not None and together == 1:
        raise UserValueError(
            "halving has no trial to stop in populations of one trial: raise trials or population, or leave it out"
        )
    identity = _identity(tuning, algo, env_params)
    name = f"{algo.name}-{algo.env.name}" if study is None else study
    directory = None if chosen.out is None else claim(chosen.out, identity, name)
    if storage is None and directory is not None:
        storage = f"sqlite:///{directory / STUDY}"
    chosen_test_seeds = list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + test_seeds))

    with own_settings(), room_for(len(searched.groups) + 4), stop_on_signals(chosen.progress) as stop:
        with opened(storage, name, identity) as opened_study:
            shared = TrialStudy(opened_study, searched, sampler, num_trials)

            def keep(ended: Sequence[Outcome]) -> None:
                if directory is not None:
                    write_search(directory, name, identity, ended)

            work = _run_trials(shared, tuning, population, keep, chosen.progress, stop)
            outcomes = sorted(shared.outcomes(), key=lambda trial: trial.number)
            result = SearchResult(
                identity=identity,
                study=name,
                trials=outcomes,
                num_trials=num_trials,
                num_running=shared.num_running(),
                seconds=work.seconds,
                static_groups=work.static_groups,
                compilations=work.compilations,
                test_seeds=chosen_test_seeds,
            )
        _save(result, searched, directory)
        over = not stop and not result.num_running and len(outcomes) >= num_trials
        if over and test_seeds and result.incumbent is not None:
            started = time.perf_counter()
            _train_on_test_seeds(result, tuning, directory, stop)
            result.test_seconds = time.perf_counter() - started
            _save(result, searched, directory)
        result.stopped_by_signal = stop.signal or 0
    return result


_search = search  # a name that no argument of the function shadows


class _Work(NamedTuple):
    """Static configurations, compiled programs and seconds of the trials of one call."""

    static_groups: int
    compilations: int
    seconds: float


def _run_trials(
    shared: TrialStudy,
    tuning: Tuning,
    population: int,
    keep: Callable[[Sequence[Outcome]], None],
    progress: bool,
    stop: StopRequest,
) -> _Work:
    """Run populations of trials until none is left or a signal has come, and save the outcomes after each."""
    groups, before, best = set(), compilations(), -math.inf
    share = 1.0 if tuning.halving is None else tuning.halving.share(tuning.env_steps)
    total = round(shared.num_free() * len(tuning.seeds) * tuning.env_steps * share)
    started = time.perf_counter()
    with shared.alive(), Progress(total, progress and total > 0) as bar:
        bar.phase("searching")
        bar.start()
        while not stop and (asked := shared.ask(population)):
            left = {trial.number: trial for trial in asked}

            def tell(outcome: Outcome, left: dict[int, Any] = left) -> None:
                nonlocal best
                shared.tell(outcome)
                del left[outcome.number]
                if outcome.state == "complete" and outcome.score > best:
                    best = outcome.score
                    bar.report(f"best so far {best:.1f} (trial {outcome.number})")

            try:
                groups.update(tuning.space.static_part(trial.setting) for trial in asked)
                do_trials(tuning, asked, tell, bar, stop)
            finally:
                shared.release(list(left.values()))
                keep(sorted(shared.outcomes(), key=lambda trial: trial.number))
    return _Work(len(groups), compilations() - before, time.perf_counter() - started)


def _train_on_test_seeds(result: SearchResult, tuning: Tuning, directory: Path | None, stop: StopRequest) -> None:
    """Train the incumbent and the default setting on the test seeds; both are saved as run directories."""
    space, best = tuning.space, result.incumbent
    assert best is not None
    group = space.static_part(best.setting)
    algo = space.groups[group]
    values = {path: [space.value(path, best.setting[path])] for path in space.traced}
    hparams = grid(algo.hparams, values) if values else None
    # The programs of the search are reused here.
    settings = ((space.algo, None, tuning.layout), (algo, hparams, tuning.layout_of(group)))
    results = {}
    for name, (each, hparams, wave) in reversed([*zip(TESTED, settings, strict=True)]):
        call = training_call(
            each,
            hparams,
            seeds=result.test_seeds,
            points=evaluation_points(tuning.env_steps, TEST_EVALS, each.env_steps_per_iteration),
            eval_episodes=tuning.eval_episodes,
            env_params=space.env_params,
        )
        layout = wave._replace(num_runs=call.num_runs, num_blocks=-(-call.num_runs // wave.num_runs))
        try:
            results[name] = _trained(call, layout, None if directory is None else directory / name, tuning, stop)
        except FileExistsError:  # another process of this study is training it
            return
        except KeyboardInterrupt as interrupt:  # before there was anything to save
            stop.signal = stop.signal or (interrupt.args[0] if interrupt.args else signal.SIGINT)
            return
        if results[name].metrics.attrs["interrupted"] or stop:
            return
    result.test, result.default = results["incumbent"], results["default"]


def _trained(call: Call, layout: Layout, out: Path | None, tuning: Tuning, stop: StopRequest) -> Result:
    """The result of a call in its own directory, resumed from the checkpoint of an earlier process if there is one."""
    options: RunOptions = {"memory": tuning.memory, "precision": tuning.precision, "progress": tuning.progress}
    begun = None
    if out is not None:
        begun = read_identity(out) if (out / IDENTITY).is_file() else {}
        layout = layout._replace(block=begun.get("block", layout.block))
        # Other obstacles to resuming, such as a damaged checkpoint, raise an error, and nothing is overwritten.
        same = same_runs(begun, identity_of(call, layout, tuning.precision))
        if same and finished(out) and not has_checkpoint(out):
            return load_result(out, call.algo)
        begun = begun if same else None
        options |= {"out": out, "resume": same, "force": not same}
    return carry_out(call, checked(search, RunOptions, options), begun=begun, layout=layout, stop=stop)


def _save(result: SearchResult, space: Space, directory: Path | None) -> None:
    if directory is None:
        return
    best = result.incumbent
    if best is None:
        write_search(directory, result.study, result.identity, result.trials)
        return
    algo = space.groups[space.static_part(best.setting)]
    write_json(
        directory / INCUMBENT,
        {
            "trial": best.number,
            "setting": best.setting,
            "score": best.score,
            "aggregate": result.identity["aggregate"],
            "returns": best.returns,
            "tuning_seeds": result.identity["seeds"],
            "test_seeds": result.test_seeds,
            "config": _fields(algo.config),
            "trained_on_test_seeds": result.test is not None,
        },
    )
    tested = () if result.test is None else TESTED
    summary = {
        "trained_on_test_seeds": bool(tested),
        CHECKSUMS: {name: checksum_of_file(directory / name / CONFIG) for name in tested},
        "env_steps": result.env_steps,
        "seconds_of_last_call": result.seconds,
        "static_groups_of_last_call": result.static_groups,
        "compilations_of_last_call": result.compilations,
        "report": result.report().splitlines(),
    }
    write_search(directory, result.study, result.identity, result.trials, summary)


def _identity(tuning: Tuning, algo: Algorithm, env_params: EnvParams) -> dict[str, Any]:
    """Settings on which two processes must agree to work on one study."""
    params = algo.env.default_params if env_params is None else env_params
    hparams = {name: value for name, value in vars(algo.hparams).items() if value is not None}
    halving = tuning.halving
    return {
        "algorithm": algo.name,
        "environment": algo.env.name,
        "space": tuning.space.described(),
        "env_steps": tuning.env_steps,
        "seeds": tuning.seeds,
        "eval_episodes": tuning.eval_episodes,
        "aggregate": tuning.aggregate,
        "halving": None if halving is None else {"eta": halving.eta, "rungs": tuning.rungs},
        "hparams": {name: plain(value) for name, value in hparams.items()},
        "config": {name: str(value) for name, value in _fields(algo.config).items()},
        "network": None if algo.network is None else str(algo.network),
        "env": str(algo.env),
        "env_params": {name: np.asarray(leaf).tolist() for name, leaf in leaves(params)},
    }


def _fields(config: Any) -> dict[str, Any]:
    """Fields of a configuration, functions by their names; empty for a user-defined algorithm without one."""
    fields = vars(config) if dataclasses.is_dataclass(config) else {}
    return {name: name_of(value) if callable(value) else value for name, value in fields.items()}
