"""`jaxrl meta`: numbers inside an algorithm, learned by the returns of whole trainings."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

import jaxrl
from envs.terminal import printable
from jaxrl.cli.dataclass_options import Seeds, WholeNumber, config_option, option, values_class, xla_flags_option
from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import CommandError
from jaxrl.cli.preset_choice import Start, parse_started
from jaxrl.cli.shards import shard_and_directory
from jaxrl.cli.trackers import trackers_of, tracking_options
from jaxrl.runtime.options import MetaOptions
from jaxrl.tuning.learned.registry import EXAMPLES, theta_named
from jaxrl.tuning.meta import STOPPED

HEADING = "Learn numbers (theta) inside {} on {} from complete training runs; compare them with the initial ones."
DEFAULT_INNER_STEPS = 50_000
OF_CALL = (
    "inner_steps", "generations", "population", "inner_seeds", "strategy", "lr", "std", "std_decay", "shaping",
    "objective", "discount", "evals", "eval_episodes", "seeds", "test_seeds", "test_steps",
)  # fmt: skip


def run_meta(args: Sequence[str]) -> int:
    """Run a meta-training, print its table and the path of the directory written.

    Args:
      args: Arguments after `jaxrl meta`: algorithm, environment, options.

    Returns:
      Exit status: 0, or 128 plus the number of the signal that stopped the command.
    """
    options, start = parse_started(args, "meta", HEADING, options_class)
    algo, several = start.configured(options, args)
    if several:
        path = next(iter(several))
        raise CommandError(f"--hparams.{path} takes one value here, at which its theta starts, or which stays")
    theta = theta_named(algo, options.theta)
    print(start.sentences(algo, args, options.inner_steps, "inner_steps"))
    tasks, held_out = (list(words) or None for words in (options.tasks, options.held_out))
    names = ", ".join(tasks or [start.environment])
    print(f"Learning {theta.name} of {algo.name} on {names}", flush=True)
    shard, out = shard_and_directory(options.shard, options.out)
    warnings.filterwarnings("ignore", STOPPED)  # reported below, in terms of the options
    own: dict[str, Any] = run_options(MetaOptions, options, *OF_CALL)
    own |= {"shard": shard, "out": out, "trackers": trackers_of(options, out)}
    learned = jaxrl.meta(algo, theta, tasks, held_out=held_out, **own)
    if learned.held_out:
        print(printable(str(learned.table()), lines=True))
    if any(result.unsaved for result in (learned.result, *learned.held_out.values())):
        return 2
    if out is not None and shard is None:
        print(f"Wrote {out} (next: jaxrl plot {out})")
    elif out is not None:
        print(f"Wrote {out} (when all shards are finished: jaxrl merge {options.out}-* --out {options.out})")
    if learned.stopped_by_signal:
        print("Stopped; to resume: the same command with --resume" if out else "Stopped.")
        return 128 + learned.stopped_by_signal
    return 0


def options_class(start: Start, args: Sequence[str]) -> type:
    """Dataclass whose fields are the options of `jaxrl meta ALGORITHM ENVIRONMENT`."""
    del args
    hparams = values_class(start.algo.hparams, start.hparams, "One value each, at which theta starts, or which stays.")
    theta = Annotated[
        tuple[str, ...],
        tyro.conf.arg(help=f"Numbers to learn: {EXAMPLES}.", metavar="THETA|PATH=RANGE [PATH=RANGE ...]"),
    ]
    tasks = "the environment of the command if empty."
    # fmt: off
    fields = [
        ("theta", theta),
        option("tasks", tuple[str, ...], (), f"Environments of the inner training runs; {tasks}"),
        option("held_out", tuple[str, ...], (), "Environments of the final comparison; those of --tasks if empty."),
        option("inner_steps", WholeNumber, DEFAULT_INNER_STEPS,
               "Number of environment steps of an inner training run."),
        option("generations", WholeNumber, 50, "Number of generations of each outer run."),
        option("population", WholeNumber | None, None, "Number of members (thetas) in a generation; 32 if None."),
        option("inner_seeds", WholeNumber, 1, "Number of training runs of each theta on each task."),
        option("strategy", str, "open-es",
               "Evolution strategy of evosax, such as open-es, or gradient, which differentiates training runs."),
        option("lr", float | None, None,
               "Step size of the strategy; if None, 0.03, or 1 for a natural gradient, as in snes."),
        option("std", float | None, None, "Standard deviation of theta in a population; 0.1 if None."),
        option("std_decay", float | None, None, "Factor of the standard deviation per generation; 1 if None."),
        option("shaping", Literal["ranks", "raw"] | None, None,
               "Scores of thetas: ranks of returns among runs with equal task and seed, or raw returns; ranks if "
               "None."),
        option("objective", Literal["final", "area"], "final",
               "Objective of a training run: the final return, or the mean over its evaluations (area)."),
        option("discount", str | None, None,
               "Discount under which the objective values rewards, such as 0.99; none if None."),
        option("evals", WholeNumber | None, None,
               "Number of evaluations of an inner training run; if None, 1, or 4 for area."),
        option("eval_episodes", WholeNumber, 16, "Number of whole episodes of each evaluation."),
        option("seeds", Seeds, 5, "Number of outer seeds, or the seeds."),
        option("test_seeds", WholeNumber, 16,
               "Number of test seeds of each theta on each held-out environment; 0 for no comparison."),
        option("test_steps", WholeNumber | None, None,
               "Number of environment steps of a held-out training run; INNER_STEPS if None."),
        *run_flags(
            MetaOptions,
            texts={"out": "Directory for the outer curves, the learned thetas and the held-out results."},
            after={"memory": [xla_flags_option()], "trackers": tracking_options()},
        ),
        *start.options(),
        *config_option(start.algo.config, "Static configuration."),
        ("hparams", hparams, dataclasses.field(default_factory=hparams)),
    ]
    # fmt: on
    return dataclasses.make_dataclass("Meta", fields, frozen=True)
