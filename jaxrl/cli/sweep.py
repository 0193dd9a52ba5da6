"""`jaxrl sweep`: search a space of hyper-parameters and configurations for the best final return."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

import envs
import jaxrl
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import default_space
from jaxrl.cli.fields import (
    WholeNumber,
    config_of,
    config_option,
    hparam_leaves,
    option,
    refuse_gamma,
    split,
    static_fields,
    values_class,
    xla_flags_option,
)
from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import CommandError, parse
from jaxrl.presets import control as presets
from jaxrl.runtime.options import SearchOptions
from jaxrl.tuning.space import parse_space, spelled

DEFAULT_ENV_STEPS = 100_000
Flag = tyro.conf.FlagCreatePairsOff[bool]

_SPACE = (
    "What to search, a word for each path: lr=log:1e-4:1e-2 (a range, its logarithm spread evenly), lam=0.8:1, "
    "discount=0.98,0.99 (values; discounts of any kind, such as beta:mu=0.98,eta=0.5). A path is a hyper-parameter, a "
    "parameter of the discount (discount.gamma=0.9:0.999) or of the environment (env.gravity=9:11), or static "
    "(config.num_steps=32,128), which compiles a program for each value. A default one where there is none."
)


def run_sweep(args: Sequence[str]) -> int:
    """Search as the arguments say, print the report, and name what was written.

    Args:
      args: what follows `jaxrl sweep`: algorithm, environment, options.

    Returns:
      The exit status: 0, or 128 and the number of the signal that ended the search early.
    """
    named = list(itertools.takewhile(lambda arg: not arg.startswith("-"), args[:2]))
    if len(named) < 2:
        if {"-h", "--help"} & set(args):
            print("The algorithm and the environment come first; with ppo and pendulum the options are these.\n")
            _parse_options("ppo", "pendulum", ["--help"], "jaxrl sweep ALGORITHM ENVIRONMENT")
        raise CommandError("sweep takes an algorithm and an environment first, such as: jaxrl sweep ppo pendulum")
    name, environment = named
    options, base, is_preset = _parse_options(name, environment, args[2:], f"jaxrl sweep {name} {environment}")

    algo = algorithms.make(name, base.env, config_of(options, base.config))
    fixed, several = split("hparams", options.hparams, hparam_leaves(base.hparams))
    if several:
        path = next(iter(several))
        raise CommandError(f"--hparams.{path} takes one value here, the one that --space does not search")
    kept = {path: value for path, value in vars(base.hparams).items() if value is not None} | fixed
    without_effect = [path for path in fixed if getattr(algo.hparams, path) is None]
    if without_effect:
        raise CommandError(f"--hparams.{without_effect[0]} has no effect under this configuration of {name}")
    kept = {path: value for path, value in kept.items() if getattr(algo.hparams, path) is not None}
    algo = algo._replace(hparams=dataclasses.replace(algo.hparams, **kept))
    if options.first_env_steps is not None and options.halving is None:
        raise CommandError("--first-env-steps takes --halving as well, such as --halving 3")
    halving = None if options.halving is None else jaxrl.Halving(options.halving, options.first_env_steps)

    if is_preset:
        print(f"Starting from the preset for {name} on {environment} (--no-preset starts from the defaults).")
    space = parse_space(options.space, algo) if options.space else default_space(algo)
    told = " ".join(f"{path}={spelled(distribution)}" for path, distribution in space.items())
    print(f"Searching {told}", flush=True)
    result = jaxrl.search(
        algo,
        space,
        trials=options.trials,
        env_steps=options.env_steps,
        search=options.search,
        seeds=options.seeds,
        test_seeds=options.test_seeds,
        population=options.population,
        halving=halving,
        aggregate=options.aggregate,
        eval_episodes=options.eval_episodes,
        seed=options.seed,
        storage=options.storage,
        study=options.study,
        **run_options(SearchOptions, options),
    )
    print(result.report())
    if options.out is not None:
        print(f"Wrote {options.out}" + (f" (next: jaxrl plot {options.out}/incumbent)" if result.test else ""))
    if result.stopped_by_signal:
        print("Stopped: the same command goes on." if options.out or options.storage else "Stopped.")
        return 128 + result.stopped_by_signal
    if len(result.trials) < result.num_trials:
        print("Other processes are at the rest; the last of them trains the incumbent on the test seeds.")
    elif options.test_seeds and result.incumbent is not None and result.test is None:
        print("Another process is training the incumbent on the test seeds.")
    return 0


def _parse_options(name: str, environment: str, args: Sequence[str], prog: str) -> tuple[Any, Algorithm, bool]:
    """The options, the algorithm that they start from, and whether that is a preset's."""
    preset = None if {"--no-preset", "--no_preset"} & set(args) else presets.find(name, environment)
    static = static_fields(args)
    algo = algorithms.make(name, envs.make(environment, **static)) if preset is None else preset.on(**static)
    refuse_gamma(args, hparam_leaves(algo.hparams))
    env_steps = DEFAULT_ENV_STEPS if preset is None else preset.env_steps
    description = f"Search for hyper-parameters of {name} on {environment}; the best are trained anew on other seeds."
    return parse(_options_class(algo, env_steps, static), args, prog, description), algo, preset is not None


def _options_class(algo: Algorithm, env_steps: int, static: dict[str, Any]) -> type:
    hparams = values_class(algo.hparams, hparam_leaves(algo.hparams))
    words = Annotated[tuple[str, ...], tyro.conf.arg(help=_SPACE, metavar="PATH=VALUES [PATH=VALUES ...]")]
    fields = [
        ("space", words, dataclasses.field(default=())),
        option("search", Literal["tpe", "random", "grid", "cmaes"], "tpe", "How trials are chosen."),
        option(
            "trials",
            WholeNumber | None,
            None,
            "Of the study in all, by however many processes; all points of a grid, or else 64, where there is none.",
        ),
        option("env_steps", WholeNumber, env_steps, "Environment steps of each run."),
        option("seeds", WholeNumber, 3, "Tuning seeds of each trial: 0, 1, ..."),
        option("test_seeds", WholeNumber, 16, "On which the incumbent is trained anew: 1000000, ...; 0 for none."),
        option(
            "population",
            WholeNumber | None,
            None,
            "Trials that are chosen and trained together; 64, or an eighth of all where the search learns from them.",
        ),
        option(
            "halving",
            float | None,
            None,
            "Successive halving: of each population the best 1/HALVING go on after each rung, such as 3.",
        ),
        option("first_env_steps", WholeNumber | None, None, "Of the first rung; a run's / HALVING**2 without."),
        option("aggregate", Literal["mean", "iqm"], "mean", "Of the tuning seeds' greedy returns at the end."),
        option("eval_episodes", WholeNumber, 64, "Whole episodes of each evaluation, greedy and again sampled."),
        option("seed", WholeNumber, 0, "Of what the search draws."),
        option(
            "storage",
            str | None,
            None,
            "Of the study: sqlite:///FILE, or the URL of a database that many machines share; OUT/study.db, or "
            "none, where there is none.",
        ),
        option("study", str | None, None, "Its name in the storage; a study that is there goes on."),
        *run_flags(
            SearchOptions,
            texts={"out": "Directory for the trials, the incumbent and its runs on the test seeds."},
            after={"memory": [xla_flags_option()]},
        ),
        option("no_preset", Flag, False, "Start from defaults, not from the preset."),
        option(
            "static",
            tuple[str, ...],
            tuple(f"{name}={value}" for name, value in static.items()),
            "Static fields of the environment, such as num_agents=30.",
        ),
        *config_option(algo.config, "What is static, where the space says nothing."),
        ("hparams", hparams, dataclasses.field(default_factory=hparams)),
    ]
    return dataclasses.make_dataclass("Sweep", fields, frozen=True)
