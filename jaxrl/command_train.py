"""`jaxrl train`: its options are made from the fields of an algorithm and of an environment."""

import ast
import contextlib
import dataclasses
import inspect
import itertools
import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import tyro

import envs
import jaxrl
from jaxrl import algorithms, presets
from jaxrl.algorithms.base import Algorithm
from jaxrl.command_parsing import CommandError, parse
from jaxrl.discounting import Discount, as_discount
from jaxrl.presets import Preset

DEFAULT_ENV_STEPS = 500_000


def _whole_number(words: list[str]) -> int:
    """Exact for digits, which a float is not beyond 2**53; and `1e6` for those who count so."""
    with contextlib.suppress(ValueError):
        return int(words[0])
    with contextlib.suppress(ValueError):
        number = float(words[0])
        if number.is_integer():
            return int(number)
    raise ValueError(f"{words[0]!r} is no whole number")


# What an option that counts takes: 1000000, 1_000_000 or 1e6.
WholeNumber = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=_whole_number,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]


def run_train(args: Sequence[str]) -> int:
    """Train as the arguments say, print a table, and name what was written.

    Args:
      args: what follows `jaxrl train`: algorithm, environment, options.

    Returns:
      The exit status: 0, or 128 and the number of the signal that ended training early.
    """
    named = list(itertools.takewhile(lambda arg: not arg.startswith("-"), args[:2]))
    if len(named) < 2:
        if {"-h", "--help"} & set(args):
            print("The algorithm and the environment come first; with ppo and cartpole the options are these.\n")
            _parse_options("ppo", "cartpole", ["--help"], "jaxrl train ALGORITHM ENVIRONMENT")
        raise CommandError("train takes an algorithm and an environment first, such as: jaxrl train ppo cartpole")
    name, environment = named
    options, defaults = _parse_options(name, environment, args[2:], f"jaxrl train {name} {environment}")

    algo = algorithms.member(name, "builder")(defaults.algo.env, options.config)
    fixed, swept = _split("hparams", options.hparams, defaults.hparams)
    for path in {**fixed, **swept}:
        if getattr(algo.hparams, path) is None:
            raise CommandError(f"--hparams.{path} has no effect under this configuration of {name} on {environment}")
    tuned = {} if defaults.preset is None else {k: v for k, v in defaults.preset.hparams.items() if k not in fixed}
    algo = algo._replace(hparams=dataclasses.replace(algo.hparams, **tuned, **fixed))
    # One value of an environment's parameter is a sweep of length one, so that the run directory tells it.
    fixed_params, swept_params = _split("env", options.env, defaults.env)
    paths = swept | {f"env.{path}": values for path, values in swept_params.items()}
    paths |= {f"env.{path}": [value] for path, value in fixed_params.items()}

    if defaults.preset is not None:
        print(
            f"Starting from the preset for {name} on {environment} (--no-preset starts from the defaults).", flush=True
        )
    seeds = options.seeds[0] if len(options.seeds) == 1 else options.seeds
    result = jaxrl.train(
        algo,
        jaxrl.grid(algo.hparams, paths) if paths else None,
        seeds=seeds,
        env_steps=options.env_steps,
        evals=options.evals,
        eval_episodes=options.eval_episodes,
        block=options.block,
        out=options.out,
        force=options.force,
        progress=not options.no_progress,
        precision=options.precision,
    )
    print(result.table())
    if options.out is not None:
        print(f"Wrote {options.out} (next: jaxrl plot {options.out})")
    attrs = result.metrics.attrs
    return 128 + attrs["stopped_by_signal"] if attrs["interrupted"] else 0


@dataclasses.dataclass(frozen=True)
class _Defaults:
    """Where the options start from: a preset, or the algorithm's own defaults where there is none."""

    algo: Algorithm
    preset: Preset | None
    static: Mapping[str, Any]

    @property
    def hparams(self) -> dict[str, Any]:
        """Every hyper-parameter, those included that have no effect (None) until the configuration gives them one."""
        effective = {name: leaf for name, leaf in _leaves(self.algo.hparams).items() if leaf is not None}
        return _leaves(type(self.algo.hparams)()) | effective

    @property
    def env(self) -> dict[str, Any]:
        """The environment's parameters that are single numbers."""
        return {name: leaf for name, leaf in _leaves(self.algo.env.default_params).items() if np.ndim(leaf) == 0}

    @property
    def env_steps(self) -> int:
        """The length of a run."""
        return DEFAULT_ENV_STEPS if self.preset is None else self.preset.env_steps


def _static_fields(args: Sequence[str]) -> dict[str, Any]:
    """The environment's static fields that the options name: `--static num_agents=30 frame=relative`."""
    words = iter(args)
    for word in words:
        if word == "--static":
            break
    fields = {}
    for word in words:
        if word.startswith("--"):
            break
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise CommandError(f"--static takes fields with values, such as num_agents=30, but got {word!r}")
        try:
            fields[name.replace("-", "_")] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            fields[name.replace("-", "_")] = text
    return fields


def _parse_options(name: str, environment: str, args: Sequence[str], prog: str) -> tuple[Any, _Defaults]:
    if any(arg.partition("=")[0] == "--hparams.gamma" for arg in args):
        raise CommandError("gamma is not a field: use --hparams.discount, such as 0.98 or beta:0.98,0.5")
    preset = None if {"--no-preset", "--no_preset"} & set(args) else presets.find(name, environment)
    static = _static_fields(args)
    algo = _build(name, environment, static) if preset is None else preset.on(**static)
    defaults = _Defaults(algo, preset, static)
    description = f"Train {name} on {environment}: every seed under every setting, in one call."
    return parse(_options_class(defaults), args, prog, description), defaults


def _build(name: str, environment: str, static: Mapping[str, Any]) -> Algorithm:
    """The algorithm on the environment under its default configuration."""
    return algorithms.member(name, "builder")(envs.make(environment, **static))


def _leaves(values: Any) -> dict[str, Any]:
    """Every number, with what is inside of parts by its path, such as `weights.goal`."""
    leaves = {}
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, Discount):
            leaves |= {f"{field.name}.{path}": leaf for path, leaf in _leaves(value).items()}
        else:
            leaves[field.name] = value
    return leaves


def _options_class(defaults: _Defaults) -> type:
    """The dataclass whose fields are the options of `jaxrl train ALGORITHM ENVIRONMENT`."""
    algo = defaults.algo
    hparams = _values_class(algo.hparams, defaults.hparams)
    env = _values_class(algo.env.default_params, defaults.env)

    def option(name: str, kind: Any, default: Any, text: str) -> tuple[str, Any, Any]:
        return name, Annotated[kind, tyro.conf.arg(help=text)], dataclasses.field(default=default)

    fields = [
        option(
            "seeds", tuple[int, ...], (1,), "How many seeds (0, 1, ...), or, where there are several numbers, which."
        ),
        option("env_steps", WholeNumber, defaults.env_steps, "Environment steps of each run."),
        option("evals", WholeNumber, 10, "Evaluations, evenly spaced, the last at the end."),
        option("eval_episodes", WholeNumber, 64, "Whole episodes of each evaluation, greedy and again sampled."),
        option("block", int | None, None, "Runs that one device works on together; chosen where there is none."),
        option("precision", str, "default", "Of float32 matrix products: default, high or highest."),
        option("out", str | None, None, "Directory to write the result to."),
        option("force", tyro.conf.FlagCreatePairsOff[bool], False, "Overwrite a result that is there already."),
        option("no_progress", tyro.conf.FlagCreatePairsOff[bool], False, "Show no progress."),
        option("no_preset", tyro.conf.FlagCreatePairsOff[bool], False, "Start from defaults, not from the preset."),
        option(
            "static",
            tuple[str, ...],
            tuple(f"{name}={value}" for name, value in defaults.static.items()),
            "Static fields of the environment, such as num_agents=30.",
        ),
        option("config", type(algo.config), algo.config, "What is static: a value each."),
        ("hparams", hparams, dataclasses.field(default_factory=hparams)),
        ("env", env, dataclasses.field(default_factory=env)),
    ]
    return dataclasses.make_dataclass("Train", fields, frozen=True)


def _values_class(values: Any, defaults: Mapping[str, Any]) -> type:
    """A dataclass that takes one or several values, as text, for every default; paths are parts with their own."""
    texts = _field_texts(type(values))
    fields, parts = [], {}
    for path, default in defaults.items():
        name, _, rest = path.partition(".")
        if rest:
            parts.setdefault(name, {})[rest] = default
            continue
        argument = tyro.conf.arg(help=texts.get(name, ""), metavar="VALUE [VALUE ...]")
        fields.append((name, Annotated[tuple[str, ...], argument], dataclasses.field(default=(_text(default),))))
    for name, inner in parts.items():
        part = _values_class(getattr(values, name), inner)
        fields.append((name, part, dataclasses.field(default_factory=part)))
    made = dataclasses.make_dataclass(type(values).__name__, fields, frozen=True)
    made.__doc__ = "Several values make a sweep."
    return made


def _field_texts(documented: type) -> dict[str, str]:
    """What the section "Attributes:" of a class's docstring says of each field."""
    section = inspect.cleandoc(documented.__doc__ or "").partition("\nAttributes:\n")[2]
    texts = {}
    for names, text in re.findall(r"^  ([\w, ]+): (.*(?:\n    .*)*)", section, flags=re.MULTILINE):
        texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def _text(value: Any) -> str:
    return (
        str(value) if isinstance(value, Discount) else repr(value if isinstance(value, int | float) else float(value))
    )


def _split(prefix: str, given: Any, defaults: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What the options change, with one value each, and with several."""
    fixed, swept = {}, {}
    for name, default in defaults.items():
        texts = operator.attrgetter(name)(given)
        if texts == (_text(default),):
            continue
        values = [_value(f"--{prefix}.{name}", text, default) for text in texts]
        if not values:
            raise CommandError(f"--{prefix}.{name} takes at least one value")
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            swept[name] = values
    return fixed, swept


def _value(option: str, text: str, default: Any) -> Any:
    """A value of the kind that the default has: a discount, a whole number, a number, true or false."""
    if isinstance(default, Discount):
        return as_discount(text)
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise CommandError(f"{option} takes true or false, but got {text!r}")
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        raise CommandError(f"{option} takes numbers, but got {text!r}") from None
    if math.isnan(number):
        raise CommandError(f"{option} takes numbers, but got nan")
    if isinstance(default, int):
        if not number.is_integer():
            raise CommandError(f"{option} takes whole numbers, but got {text!r}")
        return int(number)
    return number
