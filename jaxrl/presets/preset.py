"""What a preset is: tuned settings of one algorithm on one environment."""

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
      algorithm, environment: names, as on the command line.
      config: static.
      hparams: `{name: value}` of the hyper-parameters that differ from the algorithm's defaults.
      env_steps: environment steps of a run.
      static: `{name: value}` of the environment's static fields that differ from its defaults.
    """

    algorithm: str
    environment: str
    config: Any
    hparams: Mapping[str, Any]
    env_steps: int
    static: Mapping[str, Any] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Preset({self.algorithm} on {self.environment}, {self.env_steps:,} env steps; {self.config!r})"

    @property
    def algo(self) -> Algorithm:
        """The algorithm on the environment with these settings as its defaults, ready for `train`."""
        return self.on()

    def on(self, env: Environment | None = None, /, **static: Any) -> Algorithm:
        """The same with other static fields of the environment, such as `num_agents`, or on another environment.

        Args:
          env: such as a crowd in a scene of your own; None for the preset's.
          **static: of the preset's environment.
        """
        if env is None:
            env = envs.make(self.environment, **{**self.static, **static})
        elif static:
            raise UserTypeError(
                f"on takes an environment or static fields, got both: {env.name} and {', '.join(static)}"
            )
        algo = builder_of(self.algorithm)(env, self.config)
        return algo._replace(hparams=dataclasses.replace(algo.hparams, **self.hparams))
