"""`jaxrl train`, whose options are the fields of an algorithm and of an environment."""

import dataclasses
import functools
import warnings
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import tyro

import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import modules_to_allow
from jaxrl.cli.dataclass_options import (
    Seeds,
    WholeNumber,
    config_option,
    numbers_of,
    option,
    split,
    values_class,
    xla_flags_option,
)
from jaxrl.cli.distributed import distributed_options, is_asked_for
from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import CommandError, option_words
from jaxrl.cli.preset_choice import Start, parse_started
from jaxrl.cli.shards import shard_and_directory
from jaxrl.cli.trackers import trackers_of, tracking_options
from jaxrl.runtime.options import RunOptions
from jaxrl.runtime.training import STOPPED
from jaxrl.sweeps.sweep import Sweep

DEFAULT_ENV_STEPS = 500_000
HEADING = "Train {} on {}: every seed under every setting, in one call."

__all__ = ["Asked", "arguments_of", "asked", "run_train"]
Flag = tyro.conf.FlagCreatePairsOff[bool]


def run_train(args: Sequence[str]) -> int:
    """Train, print a table and the path of the result.

    Args:
      args: Arguments after `jaxrl train`: algorithm, environment, options.

    Returns:
      Exit status: 0, or 128 plus the number of the signal that stopped training.
    """
    algo, sweep, options = asked(args, "train")
    shard, out = shard_and_directory(options.shard, options.out)
    warnings.filterwarnings("ignore", STOPPED)  # reported below, with the command that resumes the run
    result = jaxrl.train(algo, sweep, **arguments_of(options, shard, out))
    attrs = result.metrics.attrs
    status = 128 + attrs["stopped_by_signal"] if attrs["interrupted"] else 0
    if jax.process_index() > 0:  # only the first process prints
        return status
    print(result.table())
    if attrs["interrupted"]:
        stopped = f"Stopped at {result.metrics['env_step'].values[-1]:,} of {options.env_steps:,} environment steps"
        modules = " ".join(modules_to_allow(algo))
        allow = f" --allow {modules}" if modules else ""
        print(f"{stopped}." if out is None else f"{stopped}; to resume: jaxrl resume {out}{allow}")
    if result.unsaved:
        return 2
    if out is not None and shard is None:
        print(f"Wrote {out} (next: jaxrl plot {out})")
    elif out is not None:
        print(f"Wrote {out} (when all shards are finished: jaxrl merge {options.out}-* --out {options.out})")
    return status


def arguments_of(options: Any, shard: str | None, out: str | None) -> dict[str, Any]:
    """Arguments of `jaxrl.train` by name, after the algorithm and the hyper-parameters.

    Args:
      options: Parsed options of the command.
      shard: Shard to train, None for the whole call.
      out: Directory of its result.

    Raises:
      CommandError, ImportError: See `trackers_of`.
    """
    shared = {"shard": shard, "out": out, "trackers": trackers_of(options, out)}
    shared |= {"shard_environments": is_asked_for(options)}
    further = ("seeds", "env_steps", "evals", "eval_episodes", "eval_at_start", "warm_start")
    return run_options(RunOptions, options, *further) | shared


class Asked(NamedTuple):
    """Parsed arguments of `jaxrl train`."""

    algo: Algorithm
    sweep: Sweep | None
    options: Any


def asked(
    args: Sequence[str],
    command: str,
    heading: str = HEADING,
    unlisted: Collection[str] = (),
    further: Sequence[tuple[str, Any, Any]] = (),
) -> Asked:
    """Parse the arguments of `jaxrl train` or `jaxrl plan`.

    Args:
      args: Arguments: algorithm, environment, options.
      command: Name of the command.
      heading: Heading of the help, with placeholders for the algorithm and the environment.
      unlisted: Options that the help does not list.
      further: Fields of options that only this command has.
    """
    if option_words(args, "seed") is not None:
        raise CommandError("there is no --seed: --seeds 7:8 trains seed 7 alone, and --seeds 7 seeds 0 to 6")
    if command == "train" and option_words(args, "for") is not None:
        raise CommandError("--for is an option of jaxrl plan, which plans for a device that need not be here")
    fields = functools.partial(options_class, unlisted=unlisted, further=further)
    options, start = parse_started(args, command, heading, fields)
    algo, swept = start.configured(options, args)
    # One value of an environment's parameter is a sweep of length one, so that the run directory records it.
    fixed_params, swept_params = split("env", options.env, numbers_of(algo.env.default_params))
    paths = swept | {f"env.{path}": values for path, values in swept_params.items()}
    paths |= {f"env.{path}": [value] for path, value in fixed_params.items()}

    if jax.process_index() == 0:
        print(start.sentences(algo, args, options.env_steps), flush=True)
    return Asked(algo, jaxrl.grid(algo.hparams, paths) if paths else None, options)


def options_class(
    start: Start, args: Sequence[str], unlisted: Collection[str] = (), further: Sequence[tuple[str, Any, Any]] = ()
) -> type:
    """Dataclass whose fields are the options of `jaxrl train ALGORITHM ENVIRONMENT`, in the help without some."""
    without = unlisted if {"-h", "--help"} & set(args) else ()
    algo = start.algo
    hparams = values_class(algo.hparams, start.hparams)
    env = values_class(algo.env.default_params, numbers_of(algo.env.default_params))
    deterministic = option(
        "deterministic",
        Flag,
        False,
        "Flag for a fixed order of sums on a GPU, which may be slower; a CPU always has a fixed order.",
    )
    # fmt: off
    fields = [
        option("seeds", Seeds, 1,
               "Number of seeds (0, 1, ...), or the seeds themselves: 3 5 8, or 7:10 for 7 8 9, or 7:8 for 7 alone."),
        option("env_steps", WholeNumber, start.env_steps(DEFAULT_ENV_STEPS),
               "Number of environment steps of each run."),
        option("evals", WholeNumber, 10, "Number of evaluations, evenly spaced, the last at the end."),
        option("eval_episodes", WholeNumber, 64,
               "Number of whole episodes per evaluation, for greedy and for sampled actions each."),
        option("eval_at_start", Flag, False, "Flag to evaluate before training as well, at environment step 0."),
        option(
            "warm_start", str | None, None, "Run directory with policies to start from, matched by seed and setting."
        ),
        *further,
        *run_flags(
            RunOptions,
            after={
                "memory": [xla_flags_option(), deterministic],
                "shard_environments": distributed_options(),
                "trackers": tracking_options(films=True),
            },
        ),
        *start.options(),
        *config_option(algo.config, "Static configuration: one value per field."),
        ("hparams", hparams, dataclasses.field(default_factory=hparams)),
        ("env", env, dataclasses.field(default_factory=env)),
    ]
    # fmt: on
    return dataclasses.make_dataclass("Train", [field for field in fields if field[0] not in without], frozen=True)
