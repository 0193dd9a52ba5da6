"""Starting point of the options of `jaxrl train` and `jaxrl search`: an algorithm with a preset, or its defaults."""

import dataclasses
import itertools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tyro

import envs
from envs.wrappers.asymmetric import seen_from
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli.dataclass_options import config_of, hparam_leaves, option, refuse_gamma, split, static_fields
from jaxrl.cli.parsing import CommandError, option_words, parse
from jaxrl.importing import imported
from jaxrl.learning.network_config import without_effect
from jaxrl.presets import registry as presets
from jaxrl.presets.preset import Preset
from jaxrl.tuning.space import parse_space


class Start(NamedTuple):
    """Starting point of the options of a command.

    Attributes:
      name, environment: Names of the algorithm and of the environment on the command line.
      algo: Algorithm on the environment, with the settings of the preset.
      preset: Preset; None for the defaults of the algorithm.
      static: Static fields of the environment among the options.
    """

    name: str
    environment: str
    algo: Algorithm
    preset: Preset | None
    static: Mapping[str, Any]

    @property
    def hparams(self) -> dict[str, Any]:
        """All hyper-parameters, including those that have an effect under other configurations only."""
        return hparam_leaves(self.algo.hparams)

    def env_steps(self, default: int) -> int:
        """Number of environment steps of a run: that of the preset, or a default."""
        return default if self.preset is None else self.preset.env_steps

    def options(self) -> list[tuple[str, Any, Any]]:
        """Options that select the start, for the class of a command's options."""
        fields = tuple(f"{name}={value}" for name, value in self.static.items())
        # fmt: off
        return [
            option("no_preset", tyro.conf.FlagCreatePairsOff[bool], False,
                   "Flag to start from defaults, not the preset."),
            option("preset", str | None, None,
                   "Name of the algorithm whose preset to start from, for a copy of its file: dqn for my_dqn:dqn."),
            option("tuned", str | None, None,
                   "Name of other tuned settings of a crowd: careful (fewer contacts), or a frame and a kind of "
                   "dynamics, such as 'egocentric polar-acceleration'."),
            option("static", tuple[str, ...], fields, "Static fields of the environment, such as num_agents=30."),
            option("randomise", tuple[str, ...], (),
                   "Parameters of the environment to draw anew for every episode, each as NAME=LOW:HIGH (uniform), "
                   "NAME=log:LOW:HIGH (log-uniform) or NAME=VALUE,VALUE (one of these); or module:function, a function "
                   "of a random key that returns values by name."),
        ]
        # fmt: on

    def configured(self, options: Any, args: Sequence[str]) -> tuple[Algorithm, dict[str, list[Any]]]:
        """The algorithm with the configuration and the hyper-parameters of parsed options.

        Fields and hyper-parameters of the preset without effect under this configuration are left out.

        Args:
          options: Parsed options.
          args: Their words.

        Returns:
          Algorithm; hyper-parameters that have several values in the options.

        Raises:
          CommandError: A hyper-parameter of the options has no effect under this configuration.
        """
        algo = algorithms.make(self.name, seen_from(self.algo.env), config_of(options, self.algo.config, args))
        fixed, several = split("hparams", options.hparams, self.hparams)
        for path in {**fixed, **several}:
            if getattr(algo.hparams, path) is None:
                where = f"this configuration of {self.name} on {self.environment}"
                raise CommandError(f"--hparams.{path} has no effect under {where}")
        own = {name: value for name, value in {**vars(self.algo.hparams), **fixed}.items() if value is not None}
        own = {name: value for name, value in own.items() if getattr(algo.hparams, name) is not None}
        hparams = dataclasses.replace(algo.hparams, **own)
        return algo._replace(hparams=hparams, settings_from=self.algo.settings_from), several

    def sentences(self, algo: Algorithm, args: Sequence[str], env_steps: int, option: str = "env_steps") -> str:
        """Sentences on the origin of settings, and on the number of environment steps if it is a default.

        Args:
          algo: Algorithm with the configuration of the options.
          args: Options.
          env_steps: Number of environment steps of each run.
          option: Name of its option, with underscores.
        """
        sentences = [f"Starting from the {self._origin(algo, option_words(args, 'no_preset') is not None)}."]
        if option_words(args, option) is None:
            flag = "--" + option.replace("_", "-")
            sentences.append(f"Each run takes {env_steps:,} environment steps ({flag} changes this).")
        return " ".join(sentences)

    def _origin(self, algo: Algorithm, no_preset: bool) -> str:
        """Origin of the settings, values of a preset that were left out, and the option for another origin."""
        if self.preset is not None:
            unused = [name for name in self.preset.hparams if getattr(algo.hparams, name) is None]
            unused += self._unused_fields(algo.config)
            has = "has" if len(unused) == 1 else "have"
            without = f" without its {' and '.join(unused)}, which {has} no effect here" if unused else ""
            return f"{self.preset.origin}{without} (--no-preset starts from the defaults)"
        original = self.name.rpartition(":")[2]
        preset = presets.find(original, self.environment)
        if preset is None:
            return f"defaults of {self.name}, which has no preset for {self.environment}"
        if no_preset or original == self.name:
            return f"defaults of {self.name}"
        return f"defaults of {self.name} (--preset {original} starts from the {preset.origin})"

    def _unused_fields(self, config: Any) -> list[str]:
        """Fields of the preset that another memory has made useless."""
        before, fields = getattr(self.preset, "config", None), getattr(config, "__dataclass_fields__", ())
        names = without_effect(config.memory) if "memory" in fields else ()
        return [name for name in names if name in fields and getattr(before, name) != getattr(config, name)]


def parse_started(
    args: Sequence[str], command: str, heading: str, options_class: Callable[[Start, Sequence[str]], type]
) -> tuple[Any, Start]:
    """Options of a command that takes an algorithm and an environment first, and their starting point.

    If one of the two is missing and help is requested, shows the help of the algorithm, PPO if missing or unknown, on
    the first environment for which it has a preset.

    Args:
      args: Arguments after the command.
      command: Name of the command.
      heading: Heading of the help, with placeholders for the algorithm and the environment.
      options_class: Function of the start and of the words after the first two that returns the dataclass of options.

    Raises:
      CommandError: The algorithm or the environment is missing, or an option is wrong.
    """
    named = list(itertools.takewhile(lambda arg: not arg.startswith("-"), args[:2]))
    if len(named) == 2:
        (name, environment), words = named, args[2:]
        prog = f"jaxrl {command} {name} {environment}"
    else:
        name = named[0] if named and named[0] in algorithms.ROWS else "ppo"
        environment = next((task for algorithm, task in presets.names() if algorithm == name), "cartpole")
        example = f"jaxrl {command} {name} {environment}"
        if not {"-h", "--help"} & set(args):
            raise CommandError(f"{command} takes an algorithm and an environment first, such as: {example}")
        print(
            "Options depend on the algorithm and the environment, which come first (see jaxrl algorithms and jaxrl "
            f"envs); the options below are those of: {example}\n"
        )
        words, prog = ["--help"], f"jaxrl {command} ALGORITHM ENVIRONMENT"
    start = start_of(name, environment, words)
    return parse(options_class(start, words), words, prog, heading.format(name, environment)), start


def _randomised(algo: Algorithm, words: Sequence[str] | None) -> Algorithm:
    """The algorithm with the drawn parameters of the option `--randomise`, None without the option.

    Raises:
      CommandError: The option has no value.
      ValueError: A value is wrong.
    """
    if words is None:
        return algo
    example = "length=0.25:1"
    if not words:
        raise CommandError(f"--randomise takes at least one parameter of the environment, such as {example}")
    if (path := drawing_function(words)) is not None:
        return algorithms.randomised(algo, imported(path, "function of randomise"))
    return algorithms.randomised(algo, parse_space(words, "--randomise", "NAME", example))


def drawing_function(words: Sequence[str] | None) -> str | None:
    """Path of the function among the words of `--randomise`; None for distributions, or without the option."""
    if words and len(words) == 1 and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", words[0]):
        return words[0]
    return None


def start_of(name: str, environment: str, args: Sequence[str]) -> Start:
    """The start that arguments select, before they are parsed.

    Args:
      name: Name of the algorithm.
      environment: Name of the environment, or its id in Gymnasium.
      args: Options; without a preset under `--no-preset`.

    Raises:
      CommandError: There are `--no-preset` and `--tuned` or `--preset`, or the options name gamma in place of the
        discount.
      ValueError: There is no algorithm or environment of that name, or there are no tuned settings of that name.
    """
    tuned = next(iter(option_words(args, "tuned") or ()), None)  # no value is reported where all options are parsed
    no_preset = option_words(args, "no_preset") is not None
    of = next(iter(option_words(args, "preset") or ()), None)
    for option_name, value in (("tuned", tuned), ("preset", of)):
        if no_preset and value is not None:
            raise CommandError(
                f"--no-preset starts from defaults, so that --{option_name} {value} has no effect; leave out one"
            )
    if tuned is not None or of is not None:
        preset = presets.preset(of or name, environment, tuned=tuned)
    else:
        preset = None if no_preset else presets.find(name, environment)
    static = static_fields(args)
    with warnings.catch_warnings():  # of a configuration that the options may change: `configured` warns of theirs
        warnings.filterwarnings("ignore", "(on .* )?the (actor|critic) sees ", RuntimeWarning)
        if preset is None:
            algo = algorithms.make(name, envs.make(environment, **static))
        else:
            algo = preset.on(**static) if preset.algorithm == name else preset.of(name, **static)
        algo = _randomised(algo, option_words(args, "randomise"))
    for field in getattr(type(algo.config), "elsewhere", {}):
        if field not in vars(algo.config) and option_words(args, f"config.{field}") is not None:
            type(algo.config)(**{field: None})  # raises the error that states which algorithms have it
    start = Start(name, environment, algo, preset, static)
    refuse_gamma(args, start.hparams)
    return start
