"""`jaxrl bandit`, whose options are the fields of the policies and of the bandit."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

import envs
import jaxrl
from envs.bandits.base import Bandit
from envs.registry import ROWS
from jaxrl import bandits
from jaxrl.bandits.base import BanditAlgorithm
from jaxrl.bandits.comparing import bounds_of, headline, regret_table
from jaxrl.bandits.runner import bandit_call
from jaxrl.checks import check_choice
from jaxrl.cli.dataclass_options import (
    Seeds,
    WholeNumber,
    numbers_of,
    option,
    split,
    static_fields,
    values_class,
    xla_flags_option,
)
from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import CommandError, option_words, parse
from jaxrl.cli.trackers import trackers_of, tracking_options
from jaxrl.results.plotting.regret import regret_curves
from jaxrl.results.plotting.style import require_few
from jaxrl.results.result import Result
from jaxrl.results.storage import claim_directory
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.options import PRECISIONS, BanditOptions
from jaxrl.sweeps.paths import numbers

PREFIX = "bandit/"
PICTURES = ("regret.png", "reward.png")  # a picture for each metric that the results may be compared by
DEFAULTS = {"env": "bernoulli", "policies": "ucb1,thompson,kl-ucb"}


def run_bandit_command(args: Sequence[str]) -> int:
    """Run policies on a bandit, print a table and the paths of the files written.

    Args:
      args: Arguments after `jaxrl bandit`.

    Returns:
      Exit status: 0, or 128 plus the number of the signal that stopped the command.
    """
    options, env, policies = parse_bandit_options(args)
    sweeps = [_sweep(policy, env, options) for policy in policies]
    require_few(sum(1 if sweep is None else len(sweep) for sweep in sweeps), "compare fewer policies or settings")
    for policy, sweep in zip(policies, sweeps, strict=True):
        _check(policy, env, sweep, options)
    trackers = {policy.name: trackers_of(options, options.out and options.out / policy.name) for policy in policies}
    directories = _directories(policies, options)
    results: dict[str, Result] = {}
    for policy, sweep in zip(policies, sweeps, strict=True):
        print(f"{policy.name} on {env.name}", flush=True)
        own = {"out": directories.get(policy.name), "trackers": trackers[policy.name]}
        of_call = run_options(BanditOptions, options, "steps", "runs", "points") | own
        results[policy.name] = jaxrl.run_bandit(policy, env, sweep, **of_call)
        if results[policy.name].metrics.attrs["interrupted"]:
            break
    attrs = next(reversed(results.values())).metrics.attrs
    print(f"\n{regret_table(results)}")
    if any(result.unsaved for result in results.values()):
        return 2
    if options.out is not None:
        metric = headline(results)
        picture = options.out / f"{metric}.png"
        regret_curves(results, metric, bounds=_bounds(env, options) if metric == "regret" else {}, path=picture)
        print(f"Wrote {picture} and {', '.join(str(directory) for directory in directories.values())}.")
    return 128 + attrs["stopped_by_signal"] if attrs["interrupted"] else 0


def parse_bandit_options(args: Sequence[str]) -> tuple[Any, Bandit, list[BanditAlgorithm]]:
    """Options of `jaxrl bandit`, the bandit and the policies that they name.

    Raises:
      CommandError, ValueError: A name is unknown, or an option does not parse.
    """
    env = _bandit(args)
    policies = [bandits.policy(name) for name in _names(_chosen(args, "policies"))]
    description = "Run policies thousands of times each on one bandit; show their regret as a table and a picture."
    options = parse(_options_class(env, policies), args, "jaxrl bandit", description)
    return options, env, policies


def _chosen(args: Sequence[str], name: str) -> str:
    """Value of an option that the other options depend on."""
    words = option_words(args, name)
    return DEFAULTS[name] if words is None else (words or [""])[0]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise CommandError("--policies takes names with commas between them, such as ucb1,thompson, but got none")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise CommandError(f"--policies names {twice[0]} twice; several values of its parameters make a sweep")
    return names


def _bandit(args: Sequence[str]) -> Bandit:
    """Bandit of the options --env, --arms, --means and --static."""
    name = _chosen(args, "env")
    if PREFIX + name in ROWS or not (name in ROWS or name.startswith(PREFIX) or ":" in name or "/" in name):
        name = PREFIX + name
    static = static_fields(args)
    arms = next((_number("--arms", text, int) for text in option_words(args, "arms") or ()), None)
    means = tuple(_number("--means", text, float) for text in option_words(args, "means") or ())
    if arms is not None and means and arms != len(means):
        raise CommandError(f"--arms is {arms}, but --means has {len(means)}; leave out --arms")
    static |= ({} if arms is None else {"num_arms": arms}) | ({"means": means} if means else {})
    env = envs.make(name, **static)
    if not isinstance(env, Bandit):
        known = ", ".join(row.removeprefix(PREFIX) for row in ROWS if row.startswith(PREFIX))
        raise CommandError(f"--env takes a bandit, but {name} is not a bandit; choose from {known}")
    return env


def _number(flag: str, text: str, kind: Callable[[str], Any]) -> Any:
    """Parse a number of an option."""
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "numbers"
        raise CommandError(f"{flag} takes {what}, but got {text!r}") from None


def _options_class(env: Bandit, policies: Sequence[BanditAlgorithm]) -> type:
    """Dataclass whose fields are the options for these policies on this bandit."""
    hparams = [
        (_field(policy), kind, dataclasses.field(default_factory=kind))
        for policy in policies
        if (kind := values_class(policy.hparams, numbers(policy.hparams)))
    ]
    of_policies = dataclasses.make_dataclass("HParams", hparams, frozen=True)
    params = values_class(env.default_params, _env_numbers(env))
    fields = [
        option("env", str, DEFAULTS["env"], "Bandit: a name in `jaxrl envs` without bandit/, or module:Class."),
        option("arms", int | None, None, "Number of arms, whose means are drawn from the prior."),
        option("means", tuple[float, ...], (), "Means of the arms: a fixed instance in place of draws from the prior."),
        option("static", tuple[str, ...], (), "Other static fields of the bandit, such as num_features=5."),
        option("policies", str, DEFAULTS["policies"], f"Policies, separated by commas: {', '.join(bandits.POLICIES)}."),
        option("steps", WholeNumber, 10_000, "Number of pulls of each run."),
        option("runs", Seeds, 1_000, "Number of runs (0, 1, ...), or the runs themselves: 3 5 8, or 7:10 for 7 8 9."),
        option(
            "points", WholeNumber, 50, "Number of recorded points, evenly spaced in log(pulls), the last at the end."
        ),
        *run_flags(
            BanditOptions,
            texts={
                "memory": "Memory limit, such as 8GiB; 80 % of the free memory if None.",
                "out": "Directory for the picture, and for the result directory of each policy.",
                "force": "Flag to overwrite existing results.",
                "resume": "Flag to resume the same command with the same --out after an interruption.",
            },
            kinds={"out": Path | None},
            after={"memory": [xla_flags_option()], "trackers": tracking_options()},
            without=("devices", "shard"),
        ),
        ("hparams", of_policies, dataclasses.field(default_factory=of_policies)),
        ("env_params", Annotated[params, tyro.conf.arg(name="env")], dataclasses.field(default_factory=params)),
    ]
    return dataclasses.make_dataclass("Bandit", fields, frozen=True)


def _field(policy: BanditAlgorithm) -> str:
    return policy.name.replace("-", "_")


def _env_numbers(env: Bandit) -> dict[str, Any]:
    """Parameters of the bandit that may be swept; the length is a separate option."""
    numbers = numbers_of(env.default_params)
    return {name: leaf for name, leaf in numbers.items() if name != "max_steps_in_episode"}


def _sweep(policy: BanditAlgorithm, env: Bandit, options: Any) -> jaxrl.Sweep | None:
    """Sweep over the parameters of policy and bandit that the options change, by one value or several."""
    values = getattr(options.hparams, _field(policy))
    fixed, swept = split(f"hparams.{policy.name}", values, numbers(policy.hparams))
    fixed_env, swept_env = split("env", options.env_params, _env_numbers(env))
    # One value is a sweep of length one, so that the result directory records it.
    paths = {path: [value] for path, value in fixed.items()} | swept
    paths |= {f"env.{path}": [value] for path, value in fixed_env.items()}
    paths |= {f"env.{path}": values for path, values in swept_env.items()}
    return jaxrl.grid(policy.hparams, paths) if paths else None


def _check(policy: BanditAlgorithm, env: Bandit, sweep: jaxrl.Sweep | None, options: Any) -> None:
    """Check the arguments of `run_bandit`, before anything is printed or written for any policy."""
    call = bandit_call(policy, env, sweep, steps=options.steps, runs=options.runs, points=options.points)
    check_choice("precision", options.precision, PRECISIONS)
    plan_layout(call.num_runs, options.block, None)


def _directories(policies: Sequence[BanditAlgorithm], options: Any) -> dict[str, Path]:
    """Directory of each result, created if it may be written to."""
    if options.out is None:
        if options.resume:
            raise CommandError("--resume takes --out as well, the directory to resume")
        return {}
    if str(options.out) in ("", "."):
        raise CommandError("--out takes a directory of its own, such as runs/bandit")
    accepted = options.force or options.resume
    if any((options.out / picture).exists() for picture in PICTURES) and not accepted:
        raise CommandError(
            f"{options.out} holds a comparison already: choose another directory, use --force, or --resume"
        )
    claim_directory(options.out, accepted)
    return {policy.name: claim_directory(options.out / policy.name, accepted, checkpoints=True) for policy in policies}


def _bounds(env: Bandit, options: Any) -> dict[str, Any]:
    """Bounds to draw: those of the bandit, if a single setting of its parameters ran."""
    fixed, swept = split("env", options.env_params, _env_numbers(env))
    return {} if swept else bounds_of(env, dataclasses.replace(env.default_params, **fixed))
