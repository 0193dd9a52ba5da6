"""Presets: tuned settings of one algorithm on one environment."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import envs
from envs.base import Environment
from envs.errors import UserTypeError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import builder_of


class Preset(NamedTuple):
    """Tuned settings of one algorithm on one environment.

    Attributes:
      algorithm: Name of the algorithm, as on the command line.
      environment: Name of the environment, as on the command line.
      config: Static configuration of the algorithm.
      hparams: Hyper-parameters that differ from the algorithm's defaults, `{name: value}`.
      env_steps: Number of environment steps of a run.
      static: Static fields of the environment that differ from its defaults, `{name: value}`.
    """

    algorithm: str
    environment: str
    config: Any
    hparams: Mapping[str, Any]
    env_steps: int
    static: Mapping[str, Any] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Preset({self.algorithm} on {self.environment}, {self.env_steps:,} env steps; {self.config!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Preset, (*self[:-3], dict(self.hparams), self.env_steps, dict(self.static))

    @property
    def algo(self) -> Algorithm:
        """The algorithm on the environment with these settings as its defaults, ready for `train`."""
        return self.on()

    def on(self, env: Environment | None = None, /, **static: Any) -> Algorithm:
        """The algorithm of the preset with other static fields of its environment, or on another environment.

        Args:
          env: Environment, such as a crowd in a custom scene; None for the preset's.
          **static: Static fields of the preset's environment to change, such as `num_agents`.
        """
        if env is None:
            env = envs.make(self.environment, **{**self.static, **static})
        elif static:
            raise UserTypeError(
                f"on takes an environment or static fields, got both: {env.name} and {', '.join(static)}"
            )
        algo = builder_of(self.algorithm)(env, self.config)
        return algo._replace(hparams=dataclasses.replace(algo.hparams, **self.hparams))
