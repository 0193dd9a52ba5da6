"""The command line: `jaxrl COMMAND ...`.

The commands `train`, `plan`, `search`, `meta`, `resume`, `merge`, `bandit` and `benchmark` compute, `submit` on a
cluster; `compare`, `report`, `plot`, `evaluate`, `render` and `export` use their results; `algorithms`, `envs` and
`version` list what is available.

Bad input gives one sentence on standard error and exit status 2; with JAXRL_TRACEBACK=1 in the environment it gives
Python's traceback instead. Bad input is an error of a class of `envs.errors`; the message of other errors that an
argument may cause, such as one in a custom environment, names their class as well.
JAXRL_COMPILATION_CACHE=DIRECTORY caches compiled programs there for later commands.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

import envs
import jaxrl
from jaxrl.cli.exit_status import exit_status
from jaxrl.cli.parsing import Allow, CommandError, KeptPolicy, RunDirectory, Setting, Trust, option_words, parse
from jaxrl.version import REPOSITORY

__all__ = ["main"]


@dataclass(frozen=True)
class Render:
    """Render an episode of one policy of a run directory as a film, or for a crowd also as a page or a picture."""

    run: RunDirectory
    out: Path = Path("episode.gif")
    """File to write: .gif or, with the extra `video`, .mp4; for a crowd also .html (to play) or .png (all paths)."""
    seed: int | None = None
    """Seed of the run to render; the first seed if None."""
    at: Setting = ()
    kept: KeptPolicy = "last"
    scenario: str | None = None
    """Scenario of a crowd, such as corridor, if different from training."""
    agents: int | None = None
    """Number of people in the crowd, if different from training."""
    allow: Allow = ()
    trust: Trust = False

    def run_command(self) -> None:
        """Write the file and print its path."""
        from jaxrl.cli.chosen_policy import chosen_policy, named_run
        from jaxrl.policies.crowds import crowd_like

        result = jaxrl.load_result(self.run, allow=self.allow, trust=self.trust)
        policy = chosen_policy(self.run, result, self.at, self.seed, self.kept)
        if self.scenario is None and self.agents is None:
            jaxrl.render(policy.algo.env, policy, self.out)
        else:
            env, params = crowd_like(policy, self.scenario, self.agents)
            jaxrl.render(env, policy, self.out, env_params=params)
        print(f"Wrote {self.out}: {named_run(policy, self.kept)}.")


@dataclass(frozen=True)
class Envs:
    """List the environments of jaxrl, with spaces, time limits and optima, or the environments of another library."""

    library: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[LIBRARY]")] = None
    """Prefix of a library, such as brax, to list the names of its environments."""
    optimum: tyro.conf.FlagCreatePairsOff[bool] = False
    """Flag to list only environments with a known optimum (best return), of three kinds: precommitted, stationary
    and sophisticated."""
    discount: str | None = None
    """Discount of the optimum, such as 0.99 or hyperbolic:k=0.1; undiscounted if None."""

    def run_command(self) -> None:
        """Print the table, or one name per line."""
        from jaxrl.cli.environments import environments_text, optima_text

        if self.optimum:
            if self.library is not None:
                raise CommandError(f"--optimum lists environments of jaxrl and gymnax, not those of {self.library!r}")
            print(optima_text(self.discount))
            return
        if self.discount is not None:
            raise CommandError("--discount is that of an optimum; add --optimum")
        print(environments_text() if self.library is None else "\n".join(envs.names(self.library)))


@dataclass(frozen=True)
class Algorithms:
    """List the names of algorithms."""

    def run_command(self) -> None:
        """Print one name per line."""
        from jaxrl.algorithms.registry import ROWS

        print("\n".join(ROWS))


@dataclass(frozen=True)
class Version:
    """Show the versions, devices and precision that results depend on."""

    def run_command(self) -> None:
        """Print one item per line."""
        import jax

        from jaxrl.results.json_values import versions
        from jaxrl.runtime.layout import default_devices

        precision = jax.config.values["jax_default_matmul_precision"] or "the default"
        facts = versions() | {
            "devices": ", ".join(f"{device.platform}:{device.id} ({device.device_kind})" for device in jax.devices()),
            "threads": f"{len(default_devices())}, each with its share of the runs",
            "precision": f"float32, matrix products at {precision}",
            "repository": REPOSITORY or f"not published; this copy is in {Path(__file__).parents[2]}",
        }
        width = max(map(len, facts))
        for name, fact in facts.items():
            print(f"{name:{width}}  {fact}")


_SIMPLE = {
    "render": Render,
    "algorithms": Algorithms,
    "envs": Envs,
    "version": Version,
}


# Functions of the arguments, or classes of options, in modules that are imported for their command alone.
_COMMANDS: dict[str, Any] = {
    "train": "train.run_train",
    "plan": "plan.run_plan",
    "bandit": "bandit.run_bandit_command",
    "export": "export.run_export",
    "evaluate": "evaluate.Evaluate",
    "compare": "compare.Compare",
    "report": "report.Report",
    "plot": "plot.Plot",
    "search": "search.run_search",
    "meta": "meta.run_meta",
    "resume": "resume_merge.run_resume",
    "merge": "resume_merge.Merge",
    "submit": "submit.Submit",
    "benchmark": "benchmark.run_benchmark",
    **_SIMPLE,
}
_ALIASES = {"sweep": "search"}
_WITHOUT_PROGRAMS = ("algorithms", "envs", "version", "merge", "compare", "report", "plot")

_USAGE = """usage: jaxrl COMMAND ...

  train ALGORITHM ENVIRONMENT   Train many seeds, under one setting or a sweep, in one call.
  plan ALGORITHM ENVIRONMENT    Estimate memory and time of a `train` call, and show how its runs are divided.
  bandit --policies NAME,...    Run bandit policies thousands of times, and compare their regret.
  search ALGORITHM ENVIRONMENT  Search for hyper-parameters; retrain the best setting and the default on separate seeds.
  meta ALGORITHM ENVIRONMENT    Learn numbers inside an algorithm, such as its discount, from complete training runs.
  resume RUN                    Resume a run or a search that was stopped or killed, or extend a finished run.
  merge SHARD ... --out OUT     Merge the shards of a run, and report missing ones.
  submit "train ..." --shards N Train the shards of a run as SLURM jobs; a last job merges them and writes a report.
  compare RUN RUN ...           Compare results: final values, probability of being better, different settings, figures.
  compare ALGORITHM ALGORITHM --until decided --tasks ENVIRONMENT
                                Train further seeds until it is decided which is better.
  report RUN ... --out PAGE     Compare results on one page: curves, tables, differences, failures.
  plot RUN ...                  Draw the learning curves of a run directory, or of several in one figure.
  benchmark run | table         Train cells (an algorithm on a task) of the stored benchmark, or show its table.
  export RUN                    Export one policy to a StableHLO, safetensors or ONNX file.
  evaluate RUN                  Run episodes with the policies of a run, optionally under other environment parameters.
{commands}

ALGORITHM is a name from `jaxrl algorithms`, or module:function for a custom one; ENVIRONMENT is a name from
`jaxrl envs`, or module:Class.

`jaxrl COMMAND --help` lists the options. A first run: jaxrl train ppo cartpole --seeds 8 --out runs/first"""


def _usage() -> str:
    lines = [
        f"  {name + (' RUN' if name == 'render' else ''):28}  {command.__doc__}" for name, command in _SIMPLE.items()
    ]
    return _USAGE.format(commands="\n".join(lines))


def _dispatch(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0
    try:
        jaxrl.require_own_envs()
    except ImportError as error:
        raise CommandError(str(error)) from None
    from jaxrl.runtime.machine.compilation_cache import VARIABLE, use_compilation_cache

    if any("\0" in arg for arg in argv):
        raise CommandError(f"an argument has a null byte: {' '.join(map(repr, argv))}")
    argv = [_ALIASES.get(argv[0], argv[0]), *argv[1:]]
    if argv[0] not in _COMMANDS:
        from envs.spelling import near_or_all

        raise CommandError(f"there is no command {argv[0]!r}{near_or_all(argv[0], _COMMANDS)}")
    if folder := os.environ.get(VARIABLE):
        use_compilation_cache(folder)
    import numpy  # noqa: F401  # where jaxlib imports it first, an interrupt of that import prints a traceback

    name, args = argv[0], argv[1:]
    begun = _begun(args) if name == "resume" else {}
    _set_flags(name, args, deterministic=any(identity.get("deterministic") is True for identity in begun.values()))
    if name == "train":
        from jaxrl.cli.distributed import join

        join(args)  # before the backend starts
    command = _COMMANDS[name]
    if isinstance(command, str):
        module, _, attribute = command.partition(".")
        command = getattr(importlib.import_module(f"jaxrl.cli.{module}"), attribute)
    if isinstance(command, type):
        return parse(command, args, f"jaxrl {name}").run_command() or 0
    return command(args, begun) if name == "resume" else command(args)


def _set_flags(command: str, args: Sequence[str], deterministic: bool = False) -> None:
    """Set flags of XLA; must run before JAX's backend starts (importing gymnax starts it), which reads them once.

    Args:
      command: Name of the command.
      args: Its arguments.
      deterministic: Whether the run to resume was started with --deterministic.
    """
    from jaxrl.runtime.machine.xla_flags import DETERMINISTIC, add_flags, asked_for, refuse_unknown_flags

    add_flags([f"--{DETERMINISTIC}=true"] * deterministic + asked_for(args))
    if command == "plan" and any(arg.partition("=")[0] == "--for" for arg in args):
        # The plugin of a device that is absent fails to start.
        os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS") or "cpu"
    if command not in _WITHOUT_PROGRAMS or option_words(args, "until") is not None:
        refuse_unknown_flags()


def _begun(args: Sequence[str]) -> dict[Path, dict[str, Any]]:
    """Contents of `run.json` in the run directories among the arguments, read before JAX's backend starts.

    Raises:
      ResultError: The file is damaged.
    """
    from jaxrl.runtime.checkpoints.identity_file import IDENTITY, read_identity

    directories = [Path(arg) for arg in args if not arg.startswith("-")]
    return {path: read_identity(path, trust="--trust" in args) for path in directories if (path / IDENTITY).is_file()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: Arguments after `jaxrl`; those of the process if None.

    Returns:
      Exit status: 0, 2 for bad input, 130 after Ctrl-C, 138 or 143 after SIGUSR1 or SIGTERM stopped training.
    """
    if argv is None:
        argv = sys.argv[1:]
    # The current directory is searched only for modules that the user names, and last, so that nothing in it hides a
    # package.
    words = [word for arg in argv for word in arg.split()]  # `submit` has a command in an argument
    if any(map(_names_a_module, words)) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return exit_status(lambda: _dispatch(argv), "jaxrl")


def _names_a_module(arg: str) -> bool:
    """Whether an argument is `--allow`, or names user modules as `module:name`, after `option=` too."""
    option, equals, value = arg.partition("=")
    if option == "--allow":
        return True
    named = [word.partition(":") for word in (value if equals else arg).split(",")]
    return any(all(part.isidentifier() for part in (*module.split("."), name)) for module, _, name in named)


if __name__ == "__main__":
    sys.exit(main())
