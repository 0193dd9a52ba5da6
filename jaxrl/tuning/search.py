"""Search for hyper-parameters: populations of trials, each one call, in a study that many processes may share."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import default_space
from jaxrl.checks import check_choice, check_count
from jaxrl.results.checksums import checksum_of_file
from jaxrl.results.description import plain
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result
from jaxrl.results.storage import CHECKSUMS, CONFIG, finished
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.identity import IDENTITY, SOFT, identity_of, read_identity
from jaxrl.runtime.checkpoints.store import has_checkpoint
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.layout import Layout, default_devices
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.options import RunOptions, SearchOptions, checked
from jaxrl.runtime.programs import room_for
from jaxrl.runtime.progress import Progress, StopRequest, stop_on_signals
from jaxrl.runtime.training import training_call
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform
from jaxrl.sweeps.paths import leaves
from jaxrl.sweeps.sweep import grid
from jaxrl.tuning.halving import Halving
from jaxrl.tuning.result import INCUMBENT, TESTED, SearchResult, claim, write_json, write_search
from jaxrl.tuning.space import Builder, Space
from jaxrl.tuning.study import Told, TrialStudy, import_optuna, opened
from jaxrl.tuning.trials import AGGREGATES, Tuning, check_rungs, do_trials, wave_layout

SEARCHES = ("tpe", "random", "grid", "cmaes")
FIRST_TEST_SEED = 1_000_000  # tuning seeds are below, test seeds from here on
TEST_EVALS = 10
DEFAULT_TRIALS = 64

__all__ = ["FIRST_TEST_SEED", "SEARCHES", "search"]


def search(
    algo: Algorithm,
    space: Mapping[str, Uniform | LogUniform | Choice] | None = None,
    *,
    trials: int | None = None,
    env_steps: int,
    search: str = "tpe",
    seeds: int = 3,
    test_seeds: int = 16,
    population: int | None = None,
    halving: Halving | None = None,
    aggregate: str = "mean",
    eval_episodes: int = 64,
    env_params: Any = None,
    seed: int = 0,
    storage: str | None = None,
    study: str | None = None,
    builder: Builder | None = None,
    **options: Unpack[SearchOptions],
) -> SearchResult:
    """Searches a space for the setting with the best final return, and trains what it found anew on other seeds.

    A population of trials is one call: it is grouped by static configuration, each group one
    program, compiled once. What is told to the study stays there, whatever ends the search; the same
    call goes on with it, here or in other processes at the same time, until the study has its trials.

    Tuning seeds are 0, 1, ...; test seeds begin at 1,000,000. The best of many trials is too good on
    the seeds that it was chosen by, so the incumbent and `algo.hparams` are trained anew on the
    latter. Source: Eimer, Lindauer and Raileanu (2023), "Hyperparameters in reinforcement learning
    and how to tune them".

    Args:
      algo: what to tune; its hyper-parameters and configuration hold where the space says nothing.
      space: `{path: Uniform | LogUniform | Choice}`, of hyper-parameters ("lr", "discount.gamma"), the
        environment ("env.gravity") and, by Choice, of the configuration ("config.num_steps"); a
        default one for PPO if None.
      trials: of the study in all; None takes every point of a grid, and 64 otherwise.
      env_steps: of each run.
      search: "tpe", "random", "grid" or "cmaes".
      seeds: how many tuning seeds a trial has.
      test_seeds: how many the incumbent is trained anew on; 0 for none.
      population: trials that are asked for and trained together; None takes 64. "tpe" and "cmaes" learn
        between populations only, and take an eighth of the trials, more where devices would stand idle;
        "tpe" chooses its first 10 trials at random, and "cmaes" its first population.
      halving: stops the worse part of each population early; None trains every trial to its end, from which alone
        "cmaes" learns.
      aggregate: of the tuning seeds' greedy returns at the end: their "mean" or interquartile mean ("iqm").
      eval_episodes: whole episodes of each evaluation, greedy and again sampled.
      env_params: the environment's parameters, its defaults if None.
      seed: of what the search draws.
      storage: of the study, a URL such as `sqlite:///study.db`; None keeps it in `out`, or in memory.
      study: its name in the storage; None names it after the algorithm and the environment.
      builder: `(config) -> Algorithm`, to search the configuration of an algorithm that is not jaxrl's own.
      **options: Options that say where and how the call is carried out, see `jaxrl.runtime.options.SearchOptions`.
        There is one width of blocks for all trials, and trials that do not fit into memory at the same time
        train one after another. `out` gets the trials' table, the incumbent, and what it and the default
        setting did on the test seeds, each of which `load_result` reads.

    Raises:
      ValueError, TypeError: bad arguments, before anything is compiled.
      ImportError: the extra `search` is not installed.
      ResultError: the storage or `out` cannot be used, or hold another search.
    """
    import_optuna()
    from jaxrl.tuning.samplers import population_of, sampler_of

    check_choice("search", search, SEARCHES)
    check_choice("aggregate", aggregate, tuple(AGGREGATES))
    chosen = checked(_search, SearchOptions, options)
    counts = {"env_steps": env_steps, "seeds": seeds, "eval_episodes": eval_episodes}
    counts |= {name: value for name, value in {"trials": trials, "population": population}.items() if value is not None}
    for name, value in counts.items():
        check_count(name, value)
    if seeds > FIRST_TEST_SEED:
        raise UserValueError(f"seeds must be at most {FIRST_TEST_SEED}, where the test seeds begin, got {seeds}")
    if test_seeds != 0:
        check_count("test_seeds", test_seeds)
    check_count("seed", seed, 0)
    if halving is not None and not isinstance(halving, Halving):
        raise UserTypeError(f"halving takes a Halving, such as jaxrl.Halving(eta=3), got {halving!r}")
    if halving is not None and search == "cmaes":
        raise UserValueError(
            "halving does not go with cmaes, which learns from whole runs only: leave it out, or search by tpe"
        )
    searched = Space(algo, default_space(algo) if space is None else space, env_params, builder)
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
        storage = f"sqlite:///{directory / 'study.db'}"
    chosen_test_seeds = list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + test_seeds))

    with room_for(len(searched.groups) + 4), stop_on_signals(chosen.progress) as stop:
        with opened(storage, name, identity) as opened_study:
            shared = TrialStudy(opened_study, searched, sampler, num_trials)

            def keep(ended: Sequence[Told]) -> None:
                if directory is not None:
                    write_search(directory, name, identity, ended)

            found = _run_trials(shared, tuning, population, keep, chosen.progress, stop)
            told = sorted(shared.told(), key=lambda trial: trial.number)
            result = SearchResult(
                identity=identity,
                study=name,
                trials=told,
                num_trials=num_trials,
                num_running=shared.num_running(),
                seconds=found.seconds,
                static_groups=len(found.groups),
                compilations=found.compilations,
                test_seeds=chosen_test_seeds,
            )
        _save(result, searched, directory)
        over = not stop and not result.num_running and len(told) >= num_trials
        if over and test_seeds and result.incumbent is not None:
            started = time.perf_counter()
            _train_on_test_seeds(result, tuning, directory, stop)
            result.test_seconds = time.perf_counter() - started
            _save(result, searched, directory)
        result.stopped_by_signal = stop.signal or 0
    return result


_search = search  # under a name that none of its arguments has


class _Found:
    """What the populations of one call come to."""

    def __init__(self) -> None:
        self.groups: set[tuple[Any, ...]] = set()
        self.compilations = 0
        self.seconds = 0.0


def _run_trials(
    shared: TrialStudy,
    tuning: Tuning,
    population: int,
    keep: Callable[[Sequence[Told]], None],
    progress: bool,
    stop: StopRequest,
) -> _Found:
    """Does populations of trials until there are no more, or a signal has come, and keeps what has ended after each."""
    found, best = _Found(), -math.inf
    share = 1.0 if tuning.halving is None else tuning.halving.share(tuning.env_steps)
    total = round(shared.num_free() * len(tuning.seeds) * tuning.env_steps * share)
    started = time.perf_counter()
    with shared.alive(), Progress(total, progress and total > 0) as bar:
        bar.phase("searching")
        bar.start()
        while not stop and (asked := shared.ask(population)):
            left = {trial.number: trial for trial in asked}

            def tell(told: Told, left: dict[int, Any] = left) -> None:
                nonlocal best
                shared.tell(told)
                del left[told.number]
                if told.state == "complete" and told.score > best:
                    best = told.score
                    bar.report(f"best so far {best:.1f} (trial {told.number})")

            try:
                waves = do_trials(tuning, asked, tell, bar, stop)
                found.groups |= waves.groups
                found.compilations += waves.compilations
            finally:
                shared.release(list(left.values()))
                keep(sorted(shared.told(), key=lambda trial: trial.number))
    found.seconds = time.perf_counter() - started
    return found


def _train_on_test_seeds(result: SearchResult, tuning: Tuning, directory: Path | None, stop: StopRequest) -> None:
    """Trains the incumbent and the default setting on the test seeds; both are kept as run directories."""
    space, best = tuning.space, result.incumbent
    assert best is not None
    group = space.static_part(best.setting)
    algo = space.groups[group]
    values = {path: [space.value(path, best.setting[path])] for path in space.traced}
    hparams = grid(algo.hparams, values) if values else None
    # The programs of the search serve here, too.
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
        except FileExistsError:  # another process of this study is just training it
            return
        except KeyboardInterrupt as interrupt:  # before there was anything to keep
            stop.signal = stop.signal or (interrupt.args[0] if interrupt.args else signal.SIGINT)
            return
        if results[name].metrics.attrs["interrupted"] or stop:
            return
    result.test, result.default = results["incumbent"], results["default"]


def _trained(call: Call, layout: Layout, out: Path | None, tuning: Tuning, stop: StopRequest) -> Result:
    """The result of a call in a directory of its own, which goes on with what an earlier process did of the same."""
    options: RunOptions = {"memory": tuning.memory, "precision": tuning.precision, "progress": tuning.progress}
    begun = None
    if out is not None:
        begun = read_identity(out) if (out / IDENTITY).is_file() else {}
        layout = layout._replace(block=begun.get("block", layout.block))
        # Whatever else keeps it from going on, such as a damaged checkpoint, is told, and nothing is overwritten.
        same = _same(begun, identity_of(call, layout, tuning.precision))
        if same and finished(out) and not has_checkpoint(out):
            return load_result(out, call.algo)
        begun = begun if same else None
        options |= {"out": out, "resume": same, "force": not same}
    return carry_out(call, checked(search, RunOptions, options), begun=begun, layout=layout, stop=stop)


def _same(begun: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a run directory holds these runs, and not those of another incumbent."""
    names = (begun.keys() & wanted.keys()).difference(SOFT)
    return bool(names) and all(begun[name] == wanted[name] for name in names)


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
    found = {
        "trained_on_test_seeds": bool(tested),
        CHECKSUMS: {name: checksum_of_file(directory / name / CONFIG) for name in tested},
        "env_steps": result.env_steps,
        "seconds_of_last_call": result.seconds,
        "static_groups_of_last_call": result.static_groups,
        "compilations_of_last_call": result.compilations,
        "report": result.report().splitlines(),
    }
    write_search(directory, result.study, result.identity, result.trials, found)


def _identity(tuning: Tuning, algo: Algorithm, env_params: Any) -> dict[str, Any]:
    """What two processes must agree on to work on one study."""
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
    """Of a configuration, which an algorithm of one's own may do without."""
    return vars(config) if dataclasses.is_dataclass(config) else {}
