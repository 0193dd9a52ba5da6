"""Search spaces: ranges and lists of values for hyper-parameters, configuration and environment."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near, own_names
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_function
from jaxrl.discounts.parsing import Discount, as_discount
from jaxrl.importing import path_of
from jaxrl.pytrees import EnvParams
from jaxrl.sweeps.batching import batched_env_params
from jaxrl.sweeps.distributions import Choice, LogUniform, SearchSpace, Uniform
from jaxrl.sweeps.paths import fields_of, leaves
from jaxrl.sweeps.sweep import Sweep, grid, sample

STATIC = "config."
MOST_CONFIGURATIONS = 256

Builder = Callable[[Any], Algorithm]
Setting = dict[str, Any]

__all__ = ["Builder", "Setting", "Space", "parse_space", "spelled"]


class _Fixed(NamedTuple):
    """A distribution whose draws are known values, for `sample`."""

    values: list[Any]

    def draw(self, generator: np.random.Generator, count: int) -> list[Any]:
        del generator
        return self.values[:count]


class Space:
    """A checked search space. A setting is `{path: label}`, with numbers, and strings for non-numeric values.

    Args:
      algo: Algorithm; its hyper-parameters and configuration apply to all paths that are not in the space.
      distributions: Distributions `{path: Uniform | LogUniform | Choice}`; a path is one that `grid` takes, or
        `config.X` for a static field X of the configuration, which takes a Choice.
      env_params: Parameters of the environment; None for its defaults.
      builder: Function `(config) -> Algorithm` for static paths of a user-defined algorithm.

    Attributes:
      distributions: Distributions of the space, `{path: Uniform | LogUniform | Choice}`.
      groups: Algorithm of each static configuration, `{static values: Algorithm}`.

    Raises:
      ValueError, TypeError: A path is unknown, a path does not take its distribution or value, or a
        configuration is invalid.
    """

    def __init__(
        self,
        algo: Algorithm,
        distributions: Mapping[str, Uniform | LogUniform | Choice],
        env_params: EnvParams = None,
        builder: Builder | None = None,
    ) -> None:
        if not isinstance(distributions, Mapping) or not distributions:
            raise UserValueError(
                f"space takes at least one path, such as {{'lr': LogUniform(1e-4, 1e-2)}}, got {distributions!r}"
            )
        if builder is not None:
            check_function("builder", builder, ("config",))
        self.algo, self.distributions, self.env_params = algo, dict(distributions), env_params
        for path, distribution in self.distributions.items():
            if not isinstance(distribution, Uniform | LogUniform | Choice):
                raise UserTypeError(
                    f"{path} takes Uniform, LogUniform or Choice in a search space, got {distribution!r}"
                )
        self._refuse_names_of_others()
        self.static = tuple(path for path in self.distributions if path.startswith(STATIC))
        self.traced = tuple(path for path in self.distributions if not path.startswith(STATIC))
        for path in self.static:
            self._check_static(path)
        for path in self.traced:
            self._check_traced(path)
        self._values = {
            path: {_label(path, value): value for value in d.values}
            for path, d in self.distributions.items()
            if isinstance(d, Choice)
        }
        for path, values in self._values.items():
            choice = self.distributions[path]
            assert isinstance(choice, Choice)
            if len(values) < len(choice.values):
                raise UserValueError(f"{path} has a value twice: {spelled(choice)}")
        self.groups = self._build(builder)
        for labels, group in self.groups.items():
            for path in self.traced:
                name = path.partition(".")[0]
                if name != "env" and getattr(group.hparams, name) is None:
                    where = self.shown(labels) or "this configuration"
                    raise UserValueError(f"{path} has no effect under {where}; leave it out")

    def labels(self, path: str) -> list[Any]:
        """The values of a Choice as labels: numbers, strings, True, False and None."""
        return list(self._values[path])

    def static_part(self, setting: Setting) -> tuple[Any, ...]:
        """The values of the static paths, which are the key of the setting's group."""
        return tuple(setting[path] for path in self.static)

    def shown(self, labels: tuple[Any, ...]) -> str:
        """Static values as text, such as `config.num_steps=32`."""
        return ", ".join(f"{path}={label}" for path, label in zip(self.static, labels, strict=True))

    def draw(self, generator: Callable[[str], np.random.Generator]) -> Setting:
        """A random setting; each path draws from its own generator."""
        return {path: _label(path, d.draw(generator(path), 1)[0]) for path, d in self.distributions.items()}

    def drawn(self, seed: int, place: int) -> Setting:
        """The random setting at a place of a design."""
        return self.draw(lambda path: np.random.default_rng([seed, place, zlib.crc32(path.encode())]))

    def combinations(self) -> list[Setting]:
        """Every setting, the last path varying fastest.

        Raises:
          ValueError: The space has ranges.
        """
        ranges = [path for path in self.distributions if path not in self._values]
        if ranges:
            raise UserValueError(
                f"a grid takes values for every path, such as {ranges[0]}=0.1,0.2 (Choice), got a range for "
                f"{', '.join(ranges)}"
            )
        every = itertools.product(*(self.labels(path) for path in self.distributions))
        return [dict(zip(self.distributions, values, strict=True)) for values in every]

    def sweep(self, settings: Sequence[Setting]) -> Sweep | None:
        """Settings of one group as a Sweep along `"setting"`; None if the space has no traced paths.

        All settings of the group share the programs of the sweep, also if their discounts are of different families.
        """
        if not self.traced:
            return None
        algo = self.groups[self.static_part(settings[0])]
        discounts = list(self._values.get("discount", {}))
        padded = [*settings, *({**settings[0], "discount": label} for label in discounts)]
        columns = {path: _Fixed([self.value(path, setting[path]) for setting in padded]) for path in self.traced}
        return sample(algo.hparams, len(padded), columns)

    def value(self, path: str, label: Any) -> Any:
        """The value of a label."""
        return self._values[path][label] if path in self._values else label

    def config_of(self, setting: Setting) -> Any:
        """The configuration of a setting."""
        values = {path.removeprefix(STATIC): self.value(path, setting[path]) for path in self.static}
        return dataclasses.replace(self.algo.config, **values) if values else self.algo.config

    def described(self) -> dict[str, str]:
        """The space as `{path: text}` in the syntax of the command line."""
        return {path: spelled(distribution) for path, distribution in self.distributions.items()}

    def _refuse_names_of_others(self) -> None:
        """Reject all paths at once that are names of other libraries, with the paths here."""
        hparams = [path for path, _ in leaves(self.algo.hparams)] + fields_of(self.algo.hparams)
        config = [field.name for field in dataclasses.fields(self.algo.config)] if self.algo.config is not None else []
        known = [*hparams, *(f"{STATIC}{name}" for name in config)]
        meant = {}
        for path in self.distributions:
            name = path.removeprefix(STATIC)
            names = ["discount.gamma", *own_names(name)] if name == "gamma" else own_names(name)
            paths = [each for own in names for each in (own, f"{STATIC}{own}") if each in known]
            if path not in known and paths:
                meant[path] = " or ".join(paths)
        if meant:
            raise UserValueError(
                f"space has names of other libraries: {', '.join(meant)}; the paths here are "
                f"{', '.join(f'{own} (for {path})' for path, own in meant.items())}"
            )

    def _check_static(self, path: str) -> None:
        distribution, name = self.distributions[path], path.removeprefix(STATIC)
        config = self.algo.config
        fields = [field.name for field in dataclasses.fields(config) if field.init]
        if name not in fields:
            hint = near(name, fields) or f"; there are {', '.join(fields)}"
            raise UserValueError(f"{path} is not a field of {type(config).__name__}{hint}")
        if not isinstance(distribution, Choice):
            raise UserTypeError(
                f"{path} is static, with one program per value: it takes a Choice, got {spelled(distribution)}"
            )
        default = getattr(config, name)
        distribution = Choice([tuple(v) if isinstance(v, list) else v for v in distribution.values])
        self.distributions[path] = distribution
        for value in distribution.values:
            kinds = (int, float) if isinstance(default, float) else (type(default),)
            if default is not None and type(value) not in kinds:
                raise UserTypeError(f"{path} takes values such as {default!r}, got {value!r}")

    def _check_traced(self, path: str) -> None:
        distribution, config = self.distributions[path], self.algo.config
        fields = [field.name for field in dataclasses.fields(config)] if dataclasses.is_dataclass(config) else []
        if path in fields and path not in self.algo.hparams.__dataclass_fields__:
            raise UserValueError(f"{path} is static: a search space takes it as {STATIC}{path}")
        if path == "discount" and not isinstance(distribution, Choice):
            raise UserTypeError(
                f"discount takes a Choice of discounts, got {spelled(distribution)}; a range is of a parameter, such "
                f"as discount.gamma"
            )
        if isinstance(distribution, Choice):
            values = list(distribution.values)
        else:  # a point between the ends distinguishes a range of integers from one of numbers
            low, high = distribution.low, distribution.high
            values = [low, low + (high - low) / math.pi, high]
        sweep = grid(self.algo.hparams, {path: values})
        if path.startswith("env."):
            batched_env_params(self.algo.env, self.env_params, sweep)

    def _build(self, builder: Builder | None) -> dict[tuple[Any, ...], Algorithm]:
        every = list(itertools.product(*(self.labels(path) for path in self.static)))
        if len(every) > MOST_CONFIGURATIONS:
            raise UserValueError(
                f"{', '.join(self.static)} make {len(every)} static configurations with one program each; a "
                f"search takes at most {MOST_CONFIGURATIONS}"
            )
        if not self.static:
            return {(): self.algo}
        if builder is None and self.algo.builder is None:
            raise UserValueError(
                f"{self.static[0]} takes builder=, a function from a config to an Algorithm, because "
                f"{self.algo.name!r} has none of its own"
            )
        groups = {}
        for labels in every:
            setting = dict(zip(self.static, labels, strict=True))
            try:
                groups[labels] = self._group(self.config_of(setting), builder)
            except (ValueError, TypeError) as error:
                where = self.shown(labels)
                raise UserValueError(f"space has {where}, with which no algorithm can be built: {error}") from None
        return groups

    def _group(self, config: Any, builder: Builder | None) -> Algorithm:
        base = self.algo
        built = algorithms.rebuilt(base, config) if builder is None else builder(config)
        kept = {
            name: getattr(base.hparams, name)
            for name, default in vars(built.hparams).items()
            if default is not None and getattr(base.hparams, name) is not None
        }
        hparams = dataclasses.replace(built.hparams, **kept)
        return built._replace(hparams=hparams, settings_from=base.settings_from)


def parse_space(
    texts: Sequence[str], option: str = "space", word: str = "PATH", example: str = "lr=log:1e-4:1e-2"
) -> SearchSpace:
    """Distributions by path, as the command line takes them.

    Args:
      texts: Distributions, each `PATH=LOW:HIGH`, `PATH=log:LOW:HIGH` or `PATH=VALUE,VALUE,...`.
      option, word: Name of the option and word for a path, for error messages.
      example: Example of a text, for error messages.

    Raises:
      ValueError: A text has none of these forms.
    """
    space: SearchSpace = {}
    for text in texts:
        path, equals, values = text.partition("=")
        if not (path and equals and values):
            raise UserValueError(
                f"{option} takes {word}=LOW:HIGH, {word}=log:LOW:HIGH or {word}=VALUE,VALUE, such as {example}, got "
                f"{text!r}"
            )
        if path in space:
            raise UserValueError(f"{option} has {path} twice")
        space[path] = _parsed(path, values)
    return space


def spelled(distribution: Uniform | LogUniform | Choice) -> str:
    """A distribution as `parse_space` reads it."""
    if isinstance(distribution, Choice):
        return ",".join(str(_plain(value)) for value in distribution.values)
    return f"{'log:' if isinstance(distribution, LogUniform) else ''}{distribution.low!r}:{distribution.high!r}"


def _parsed(path: str, text: str) -> Uniform | LogUniform | Choice:
    ends = re.fullmatch(r"(log:)?([^:,]+):([^:,]+)", text)
    if ends is not None and (numbers := _numbers([ends[2], ends[3]])) is not None:
        return (LogUniform if ends[1] else Uniform)(*numbers)
    if path == "discount":  # a comma before a named parameter belongs to the discount
        return Choice([as_discount(part) for part in re.split(r",(?![\w.+-]+=)", text)])
    if path.startswith(STATIC):
        try:
            return Choice(list(ast.literal_eval(f"[{text}]")))
        except (ValueError, SyntaxError):
            return Choice(text.split(","))
    numbers = _numbers(text.split(","))
    if numbers is None:
        raise UserValueError(f"{path} takes LOW:HIGH, log:LOW:HIGH or numbers separated by commas, got {text!r}")
    return Choice(numbers)


def _numbers(texts: Sequence[str]) -> list[float] | None:
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    whole = [int(text) if re.fullmatch(r"[+-]?\d+", text.strip()) else None for text in texts]
    return [number if exact is None else exact for number, exact in zip(numbers, whole, strict=True)]


def _label(path: str, value: Any) -> Any:
    """A value as a study stores it."""
    return str(as_discount(value)) if path == "discount" else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Discount):
        return str(value)
    if isinstance(value, np.generic | np.ndarray | jax.Array) and np.ndim(value) == 0:
        value = np.asarray(value).item()
    if callable(value):
        return path_of(value) or str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
