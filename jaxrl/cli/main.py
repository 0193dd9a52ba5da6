"""The command line: `jaxrl COMMAND ...`.

The commands are `train`, `plan`, `sweep`, `resume`, `merge`, `bandit` and `experiment`; of what these
wrote `report`, `plot`, `evaluate`, `render` and `export`; `envs` and `version` say what there is.

Bad input gets one sentence on standard error and the exit status 2; with JAXRL_TRACEBACK=1 in
the environment it gets Python's traceback instead. Bad input is what raises a class of `envs.errors`;
another error that an argument may cause, such as one in an environment of one's own, gets a sentence that says so.
JAXRL_COMPILATION_CACHE=DIRECTORY keeps compiled programs there for the next command.
"""

import contextlib
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

import jaxrl
from jaxrl.cli.parsing import CommandError, parse

__all__ = ["main"]

_IDENTITY = "run.json"  # of a run directory; that of `jaxrl.runtime.checkpoints.identity`, which starts JAX's backend
# What an argument may cause wherever it is used; the classes of `envs.errors` are among them.
_CAUSED = (ValueError, TypeError, LookupError, OSError, ImportError)


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of a run directory."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory that `jaxrl train --out` wrote."""
    metric: str | None = None
    """Which metric: return, return_sampled, discounted_return, length, a loss, ...; the regret of a bandit."""
    hue: str | None = None
    """Which swept name the colours tell apart; all of them where there is none."""
    x: str | None = None
    """Swept name along the axis, such as lr, to draw the end of training against it; environment steps if none."""
    out: Path | None = None
    """Picture to write (.png, .pdf, .svg); METRIC.png in the run directory where there is none."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with files that do not have their checksums."""

    def run_command(self) -> None:
        """Write the picture and say where."""
        from jaxrl.results.dataset import main_metric
        from jaxrl.results.loading import load_metrics

        result = load_metrics(self.run, trust=self.trust)
        metric = self.metric or main_metric(result.metrics)
        out = self.out or self.run / f"{metric}.png"
        result.plot(metric, x=self.x, hue=self.hue, path=out)
        print(f"Wrote {out}.")


@dataclass(frozen=True)
class Evaluate:
    """Run whole episodes with the final policies of a run directory."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory that `jaxrl train --out` wrote."""
    episodes: int = 100
    """Episodes of every policy, greedy, and as many with sampled actions."""
    key: int = 0
    """Seed of the evaluation's own random numbers."""
    allow: tuple[str, ...] = ()
    """Modules of your own that may be imported where the run names them, such as my_algorithms."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with files that do not have their checksums."""

    def run_command(self) -> None:
        """Print a table per metric."""
        from jaxrl.runtime.reevaluation import evaluate_result

        evaluated = evaluate_result(
            jaxrl.load_result(self.run, allow=self.allow, trust=self.trust), self.episodes, self.key
        )
        print(f"{self.episodes} whole episodes with every final policy, greedy and sampled")
        for metric in ("return", "return_sampled", "length"):
            print(f"\n{evaluated.table(metric)}")


@dataclass(frozen=True)
class Render:
    """Show an episode of one policy of a run directory: a film, or a page or picture of a crowd."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory that `jaxrl train --out` wrote."""
    out: Path = Path("episode.gif")
    """File to write: .gif or, with the extra `video`, .mp4; of a crowd also .html, to play, or .png, all paths."""
    seed: int | None = None
    """Whose policy; the first seed where there is none."""
    at: tuple[str, ...] = ()
    """Which setting of a sweep, such as `lr=1e-3 discount=beta:0.98,0.5`; needed where there are several."""
    scenario: str | None = None
    """Of a crowd: another scenario for the policy to walk in, such as corridor."""
    agents: int | None = None
    """Of a crowd: another number of people."""
    allow: tuple[str, ...] = ()
    """Modules of your own that may be imported where the run names them, such as my_algorithms."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with files that do not have their checksums."""

    def run_command(self) -> None:
        """Write the file and say where."""
        from jaxrl.cli.chosen_policy import chosen_policy, named_run
        from jaxrl.policies.crowds import crowd_like

        result = jaxrl.load_result(self.run, allow=self.allow, trust=self.trust)
        policy = chosen_policy(self.run, result, self.at, self.seed)
        if self.scenario is None and self.agents is None:
            jaxrl.render(policy.algo.env, policy, self.out)
        else:
            env, params = crowd_like(policy, self.scenario, self.agents)
            jaxrl.render(env, policy, self.out, env_params=params)
        print(f"Wrote {self.out}: {named_run(policy)}.")


@dataclass(frozen=True)
class Envs:
    """List the environments that `jaxrl train` knows by name."""

    def run_command(self) -> None:
        """Print a row of a table for each, and the names of gymnax's."""
        from jaxrl.cli.environments import environments_text

        print(environments_text())


@dataclass(frozen=True)
class Algorithms:
    """List the algorithms that `jaxrl train` knows by name."""

    def run_command(self) -> None:
        """Print a name a line."""
        from jaxrl.algorithms.registry import ROWS

        print("\n".join(ROWS))


@dataclass(frozen=True)
class Version:
    """Show the versions, devices and precision that results here depend on."""

    def run_command(self) -> None:
        """Print a fact a line."""
        import jax

        from jaxrl.results.plain import versions
        from jaxrl.runtime.layout import default_devices

        facts = versions()
        facts |= {
            "devices": ", ".join(f"{device.platform}:{device.id} ({device.device_kind})" for device in jax.devices())
        }
        facts |= {"threads": f"{len(default_devices())}, each with its own share of the runs"}
        precision = jax.config.values["jax_default_matmul_precision"] or "the default"
        facts |= {"precision": f"float32, matrix products at {precision}"}
        facts |= {"repository": jaxrl.REPOSITORY}
        width = max(map(len, facts))
        for name, fact in facts.items():
            print(f"{name:{width}}  {fact}")


_SIMPLE = {
    "plot": Plot,
    "evaluate": Evaluate,
    "render": Render,
    "algorithms": Algorithms,
    "envs": Envs,
    "version": Version,
}


def _train(args: Sequence[str]) -> int:
    from jaxrl.cli.joining import join

    join(args)  # before the backend starts
    from jaxrl.cli.train import run_train

    return run_train(args)


def _plan(args: Sequence[str]) -> int:
    from jaxrl.cli.plan import run_plan

    return run_plan(args)


def _bandit(args: Sequence[str]) -> int:
    from jaxrl.cli.bandit import run_bandit_command

    return run_bandit_command(args)


def _experiment(args: Sequence[str]) -> int:
    from jaxrl.cli.experiment import run_experiment_command

    return run_experiment_command(args)


def _export(args: Sequence[str]) -> int:
    from jaxrl.cli.export import run_export

    return run_export(args)


def _report(args: Sequence[str]) -> int:
    from jaxrl.cli.report import Report

    parse(Report, args, "jaxrl report").run_command()
    return 0


def _sweep(args: Sequence[str]) -> int:
    from jaxrl.cli.sweep import run_sweep

    return run_sweep(args)


def _merge(args: Sequence[str]) -> int:
    from jaxrl.cli.shards import Merge

    return parse(Merge, args, "jaxrl merge").run_command()


def _resume(args: Sequence[str]) -> int:
    from jaxrl.cli.shards import run_resume

    return run_resume(args)


def _simple(name: str) -> Callable[[Sequence[str]], int]:
    def run(args: Sequence[str]) -> int:
        parse(_SIMPLE[name], args, f"jaxrl {name}").run_command()
        return 0

    return run


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": _train,
    "plan": _plan,
    "bandit": _bandit,
    "experiment": _experiment,
    "export": _export,
    "report": _report,
    "sweep": _sweep,
    "resume": _resume,
    "merge": _merge,
}
_COMMANDS |= {name: _simple(name) for name in _SIMPLE}

_USAGE = """usage: jaxrl COMMAND ...

  train ALGORITHM ENVIRONMENT   Train many seeds, under one setting or a sweep, in one call.
  plan ALGORITHM ENVIRONMENT    Say what that would take: blocks, parts, memory, time.
  bandit --policies NAME,...    Run bandit policies thousands of times: their regret, and a picture of it.
  sweep ALGORITHM ENVIRONMENT   Search for hyper-parameters; train the best anew on seeds of their own.
  resume RUN                    Go on with a run that was stopped or killed, or make one longer.
  merge SHARD ... --out OUT     Assemble the shards of a run, and say what is missing.
  report RUN ... --out PAGE     Compare results on one page: curves, tables, differences, failures.
  experiment NAME               Run or resume a study of this project; without a name, list them.
  export RUN                    Write one policy as a StableHLO, safetensors or ONNX file for elsewhere.
{commands}

ALGORITHM is a name of `jaxrl algorithms`, or module:function for your own; ENVIRONMENT a name of `jaxrl envs`, or
module:Class.

`jaxrl COMMAND --help` tells more. A first run: jaxrl train ppo cartpole --seeds 8 --out runs/first"""


def _usage() -> str:
    lines = [
        f"  {name + (' RUN' if name in ('plot', 'evaluate', 'render') else ''):28}  {command.__doc__}"
        for name, command in _SIMPLE.items()
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
    from jaxrl.runtime.devices.compilation_cache import VARIABLE, use_compilation_cache

    if argv[0] not in _COMMANDS:
        from envs.spelling import near_or_all

        raise CommandError(f"there is no command {argv[0]!r}{near_or_all(argv[0], _COMMANDS)}")
    if folder := os.environ.get(VARIABLE):
        use_compilation_cache(folder)
    _set_flags(argv[0], argv[1:])
    return _COMMANDS[argv[0]](argv[1:])


def _set_flags(command: str, args: Sequence[str]) -> None:
    """Has to come before anything starts JAX's backend, which reads the flags once: gymnax does."""
    from jaxrl.runtime.devices.xla_flags import DETERMINISTIC, add_flags, asked_for, refuse_unknown_flags

    again = command == "resume" and _began_deterministic(args)
    add_flags([f"--{DETERMINISTIC}=true"] * again + asked_for(args))
    if command not in ("algorithms", "envs", "version", "merge", "report", "plot"):  # which compute nothing
        refuse_unknown_flags()


def _began_deterministic(args: Sequence[str]) -> bool:
    """Whether the run directory among the arguments was begun with --deterministic."""
    for file in (Path(arg) / _IDENTITY for arg in args):
        with contextlib.suppress(OSError, ValueError):  # what is wrong with it is told later
            identity = json.loads(file.read_text(encoding="utf-8"))
            return isinstance(identity, dict) and identity.get("deterministic") is True
    return False


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: what follows `jaxrl`; the process's own arguments where there are none.

    Returns:
      The exit status: 0, 2 for bad input, 130 after Ctrl-C, 138 or 143 where SIGUSR1 or SIGTERM ended training.
    """
    if argv is None:
        argv = sys.argv[1:]
    # Modules of the current directory are named by the user, as module:name or by --allow; nothing else is looked for
    # there, such as a package that is not installed. It comes last: nothing in it hides a package.
    if any(":" in arg or arg.partition("=")[0] == "--allow" for arg in argv) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    from jaxrl.runtime.interrupts import hearing_interrupts

    try:
        with hearing_interrupts(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = _dispatch(argv)
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # whoever read what was printed has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + 13  # of SIGPIPE
    except KeyboardInterrupt as stop:  # it carries the signal's number where training had nothing to keep yet
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)
    except _CAUSED as error:
        if os.environ.get("JAXRL_TRACEBACK"):
            raise
        print(f"jaxrl: {_sentence(error) if _is_ours(error) else _sentence_of_another(error)}", file=sys.stderr)
        return 2


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"jaxrl: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _is_ours(error: Exception) -> bool:
    """Whether jaxrl or envs refused something, and not another's code or a bug."""
    if isinstance(error, CommandError):  # above all where another package hides `envs`
        return True
    from envs.errors import UserError

    return isinstance(error, UserError)


def _sentence(error: Exception) -> str:
    """The message of an exception on one line."""
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(message.split()) or type(error).__name__


def _sentence_of_another(error: Exception) -> str:
    """The kind and the message of an exception that may need a look at its traceback."""
    return f"{type(error).__name__}: {_sentence(error).rstrip('.')} (JAXRL_TRACEBACK=1 shows where)"


if __name__ == "__main__":
    sys.exit(main())
