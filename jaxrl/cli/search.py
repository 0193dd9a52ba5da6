"""`jaxrl search`: search of hyper-parameters and configurations for the best final return."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

import jaxrl
from envs.terminal import printable
from jaxrl.algorithms.registry import default_space, modules_to_allow
from jaxrl.cli.dataclass_options import WholeNumber, config_option, option, values_class, xla_flags_option
from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import CommandError, without_options
from jaxrl.cli.preset_choice import Start, parse_started
from jaxrl.runtime.options import SearchOptions
from jaxrl.tuning.result import command_recorded
from jaxrl.tuning.space import parse_space, spelled

DEFAULT_ENV_STEPS = 100_000
OF_THE_MACHINE = (
    "out",
    "devices",
    "memory",
    "no_progress",
    "xla_flags",
)  # options that a resumed search does not keep
HEADING = "Search for hyper-parameters of {} on {}; the best setting and the default are retrained on separate seeds."

_SPACE = (
    "Search space, one word for each path: lr=log:1e-4:1e-2 (log-uniform range), lam=0.8:1 (uniform range), "
    "discount=0.98,0.99 (values; discounts of any kind, such as beta:mu=0.98,eta=0.5). A path is a hyper-parameter, a "
    "parameter of the discount (discount.gamma=0.9:0.999) or of the environment (env.gravity=9:11), or a static field "
    "(config.num_steps=32,128), which compiles a program for each value. If empty, the search space of the algorithm."
)


def run_search(args: Sequence[str]) -> int:
    """Run a search, print its report and the paths of the files written.

    Args:
      args: Arguments after `jaxrl search`: algorithm, environment, options.

    Returns:
      Exit status: 0, or 128 plus the number of the signal that stopped the search.
    """
    options, start = parse_started(args, "search", HEADING, options_class)
    algo, several = start.configured(options, args)
    if several:
        path = next(iter(several))
        raise CommandError(f"--hparams.{path} takes one value here; use --space to search several")
    if options.first_env_steps is not None and options.halving is None:
        raise CommandError("--first-env-steps takes --halving as well, such as --halving 3")
    halving = None if options.halving is None else jaxrl.Halving(options.halving, options.first_env_steps)

    print(start.sentences(algo, args, options.env_steps))
    space = parse_space(options.space) if options.space else default_space(algo)
    words = " ".join(f"{path}={spelled(distribution)}" for path, distribution in space.items())
    print(f"Searching {words}", flush=True)
    of_study = ("search", "trials", "population", "aggregate", "seed", "storage", "study")
    of_runs = ("seeds", "test_seeds", "env_steps", "eval_episodes")
    with command_recorded(() if options.storage else without_options(args, OF_THE_MACHINE)):
        result = jaxrl.search(algo, space, halving=halving, **run_options(SearchOptions, options, *of_study, *of_runs))
    print(printable(result.report(), lines=True))
    if options.out is not None:
        print(f"Wrote {options.out}" + (f" (next: jaxrl plot {options.out}/incumbent)" if result.test else ""))
    if result.stopped_by_signal:
        modules = " ".join(modules_to_allow(algo))
        again = f"jaxrl resume {options.out}{f' --allow {modules}' if modules else ''}" if options.out else ""
        if options.storage:
            again = "the same command"
        print(f"Stopped; to resume: {again}" if again else "Stopped.")
        return 128 + result.stopped_by_signal
    if len(result.trials) < result.num_trials:
        print("Other processes are running the remaining trials; the last one trains the incumbent on the test seeds.")
    elif options.test_seeds and result.incumbent is not None and result.test is None:
        print("Another process is training the incumbent on the test seeds.")
    return 0


def options_class(start: Start, args: Sequence[str]) -> type:
    """Dataclass whose fields are the options of `jaxrl search ALGORITHM ENVIRONMENT`."""
    del args
    hparams = values_class(start.algo.hparams, start.hparams, "One value each; use --space to search several.")
    words = Annotated[tuple[str, ...], tyro.conf.arg(help=_SPACE, metavar="PATH=VALUES [PATH=VALUES ...]")]
    # fmt: off
    fields = [
        ("space", words, dataclasses.field(default=())),
        option("search", Literal["tpe", "random", "grid", "cmaes"], "tpe", "Search method."),
        option("trials", WholeNumber | None, None,
               "Total number of trials of the study, over all processes; if None, all points of the grid, or 64."),
        option("env_steps", WholeNumber, start.env_steps(DEFAULT_ENV_STEPS),
               "Number of environment steps of each run."),
        option("seeds", WholeNumber, 3, "Number of tuning seeds of each trial: 0, 1, ..."),
        option("test_seeds", WholeNumber, 16,
               "Number of test seeds (1000000, ...) on which the incumbent, the best trial, is retrained; 0 for none."),
        option("population", WholeNumber | None, None,
               "Number of trials chosen and trained together; if None, 64, but with tpe and cmaes an "
               "eighth of the trials."),
        option("halving", float | None, None,
               "Factor of successive halving, such as 3: the best 1/HALVING of a population continue after each rung, "
               "an intermediate number of environment steps."),
        option("first_env_steps", WholeNumber | None, None,
               "Number of environment steps of the first rung; ENV_STEPS / HALVING^2 if None."),
        option("aggregate", Literal["mean", "iqm"], "mean",
               "Statistic, over tuning seeds, of the final greedy returns of a trial."),
        option("eval_episodes", WholeNumber, 64,
               "Number of whole episodes per evaluation, for greedy and for sampled actions each."),
        option("seed", WholeNumber, 0, "Random seed of the search."),
        option("storage", str | None, None,
               "Storage of the study: sqlite:///FILE, journal:FILE on a shared file system, or the URL of a "
               "shared database; OUT/study.db if None, or no storage without --out."),
        option("study", str | None, None, "Name of the study in the storage; an existing study is resumed."),
        *run_flags(
            SearchOptions,
            texts={"out": "Directory for the trials, the incumbent, and its runs on the test seeds."},
            after={"memory": [xla_flags_option()]},
        ),
        *start.options(),
        *config_option(start.algo.config, "Static configuration, for fields outside the search space."),
        ("hparams", hparams, dataclasses.field(default_factory=hparams)),
    ]
    # fmt: on
    return dataclasses.make_dataclass("Search", fields, frozen=True)
