"""Presets: tuned settings of one algorithm on one environment."""

import dataclasses
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import envs
from envs.base import Environment
from envs.errors import UserTypeError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import Builder, builder_of, config_class
from jaxrl.checks import carried_over


class Preset(NamedTuple):
    """Tuned settings of one algorithm on one environment.

    Attributes:
      algorithm: Name of the algorithm, as on the command line.
      environment: Name of the environment, as on the command line.
      config: Static configuration of the algorithm.
      hparams: Hyper-parameters that differ from the algorithm's defaults, `{name: value}`.
      env_steps: Number of environment steps of a run.
      static: Static fields of the environment that differ from its defaults, `{name: value}`.
      tuned: Name of tuned settings; None for the preset of the pair.
    """

    algorithm: str
    environment: str
    config: Any
    hparams: Mapping[str, Any]
    env_steps: int
    static: Mapping[str, Any] = MappingProxyType({})
    tuned: str | None = None

    def __repr__(self) -> str:
        return f"Preset({self.algorithm} on {self.environment}, {self.env_steps:,} env steps; {self.config!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Preset, tuple(self._replace(hparams=dict(self.hparams), static=dict(self.static)))

    @property
    def origin(self) -> str:
        """Text on the origin of settings, such as "preset of dqn on cartpole"."""
        which = "preset" if self.tuned is None else f"tuned settings {self.tuned!r}"
        return f"{which} of {self.algorithm} on {self.environment}"

    @property
    def algo(self) -> Algorithm:
        """The algorithm on the environment with these settings as its defaults, ready for `train`."""
        return self.on()

    def on(self, env: Environment | None = None, /, **static: Any) -> Algorithm:
        """The algorithm of the preset with other static fields of its environment, or on another environment.

        Hyper-parameters without effect there, such as with a replaced `config`, are left out.

        Args:
          env: Environment, such as a crowd in a custom scene; None for the preset's.
          **static: Static fields of the preset's environment to change, such as `num_agents`.
        """
        algo = builder_of(self.algorithm)(self._environment("on", env, static), self.config)
        known = vars(algo.hparams)
        effective = {name: value for name, value in self.hparams.items() if known.get(name, value) is not None}
        hparams = dataclasses.replace(algo.hparams, **effective)
        return algo._replace(hparams=hparams, settings_from=self.origin)

    def of(self, build: Builder | str, env: Environment | None = None, /, **static: Any) -> Algorithm:
        """Another algorithm with all settings of the preset, such as one from a copied file of the same algorithm.

        Args:
          build: Function that builds the algorithm from an environment and a configuration, such as `my_dqn.dqn` or,
            with a custom network, `functools.partial(jaxrl.dqn, network=...)`; or its path, "my_dqn:dqn". Fields that
            the preset does not know keep their defaults.
          env: Environment; None for the preset's.
          **static: Static fields of the preset's environment to change.

        Raises:
          TypeError: The algorithm has no configuration, or lacks a field that the preset changes.
        """
        builder = builder_of(build) if isinstance(build, str) else build
        if not callable(builder):
            raise UserTypeError(f"of takes a function that builds an algorithm, such as my_dqn.dqn, got {build!r}")
        original, config = self.algo, carried_over(config_class(builder)(), self.config)
        with warnings.catch_warnings():  # the preset has set them, for the network of the configuration
            warnings.filterwarnings("ignore", ".* with network=, which has layers of its own", RuntimeWarning)
            algo = builder(self._environment("of", env, static), config)
        unused = {name: None for name, value in vars(algo.hparams).items() if value is None}
        hparams = dataclasses.replace(carried_over(algo.hparams, original.hparams), **unused)
        return algo._replace(hparams=hparams, settings_from=self.origin)

    def _environment(self, function: str, env: Environment | None, static: Mapping[str, Any]) -> Environment:
        """Environment of the preset, with other static fields, or another environment."""
        if env is None:
            return envs.make(self.environment, **{**self.static, **static})
        if static:
            raise UserTypeError(
                f"{function} takes an environment or static fields, got both: {env.name} and {', '.join(static)}"
            )
        return env
