"""What every algorithm takes, tried by building it, for the table of docs/algorithms/capabilities.md and its tests."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from linear_task import LinearTask
from lock_task import Lock

import envs
import jaxrl
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import ROWS, builder_of, config_class

SIDE = 6  # pixels


@dataclasses.dataclass(frozen=True)
class Pixels(LinearTask):
    """The linear task, whose observation fills an image."""

    def observation_space(self, params: Any = None) -> spaces.Box:
        del params
        return spaces.Box(-1.0, 1.0, (SIDE, SIDE, 1), jnp.float32)

    def _observe(self, state: Any, params: Any) -> jax.Array:
        return jnp.broadcast_to(super()._observe(state, params)[0], (SIDE, SIDE, 1))


@dataclasses.dataclass(frozen=True)
class Choices(LinearTask):
    """The linear task, whose observation is the sign of the place, as a choice of two."""

    def observation_space(self, params: Any = None) -> Any:
        del params
        return spaces.Discrete(2)

    def _observe(self, state: Any, params: Any) -> jax.Array:
        return (super()._observe(state, params)[0] > 0).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Privileged(LinearTask):
    """The linear task, whose observation is privileged as well."""

    def privileged(self, state: Any, params: Any) -> jax.Array:
        return self._observe(state, params)


class Linear(nn.Module):
    """A linear layer, with a value where `with_value`."""

    num_outputs: int
    with_value: bool = False

    @nn.compact
    def __call__(self, obs: Any, *action: jax.Array) -> Any:
        outputs = nn.Dense(max(self.num_outputs, 1))(jnp.concatenate([obs, *action]))
        outputs = outputs if self.num_outputs else outputs[0]
        return (outputs, jnp.zeros(())) if self.with_value else outputs


class Capability(NamedTuple):
    """Something that an algorithm takes or not.

    Attributes:
      group: Group of capabilities.
      text: Name in the table.
      env: Function of whether actions are discrete that makes an environment.
      config: Fields of the configuration, without which an algorithm lacks the capability.
      optional: Further fields, for the configurations that have them.
      discrete: Whether actions are discrete; None for those that the algorithm takes, discrete ones first.
      hparams: Hyper-parameters.
      network: Function of the name of the algorithm that makes a custom network.
    """

    group: str
    text: str
    env: Callable[[bool], Any] = LinearTask
    config: Mapping[str, Any] = {}
    optional: Mapping[str, Any] = {}
    discrete: bool | None = None
    hparams: Mapping[str, Any] = {}
    network: Callable[[str], Any] = lambda name: None

    def build(self, name: str) -> Algorithm:
        """The algorithm with the capability.

        Raises:
          TypeError, ValueError: It does not have it.
        """
        discrete = takes_discrete(name) if self.discrete is None else self.discrete
        kind = config_class(builder_of(name))
        fields = {field.name for field in dataclasses.fields(kind)}
        optional = {field: value for field, value in self.optional.items() if field in fields}
        small = ROWS[name].small if not self.network(name) else {**ROWS[name].small, "hidden": kind.hidden}
        algo = builder_of(name)(self.env(discrete), kind(**{**small, **self.config, **optional}), self.network(name))
        return algo._replace(hparams=algo.prepare(dataclasses.replace(algo.hparams, **self.hparams)))

    @property
    def title(self) -> str:
        """Title of its row."""
        return f"{self.group}: {self.text}"


@functools.cache
def refusal(name: str, title: str) -> str | None:
    """Error by which an algorithm refuses what the capability of a title has; None if it takes it."""
    try:
        CAPABILITIES[title].build(name)
    except (UserTypeError, UserValueError) as error:
        return str(error)
    return None


def takes_discrete(name: str) -> bool:
    """Whether an algorithm takes discrete actions."""
    return refusal(name, "Actions: discrete") is None


def names() -> list[str]:
    """Names of the algorithms, those that take the most first."""
    return sorted(ROWS, key=lambda name: sum(refusal(name, title) is not None for title in CAPABILITIES))


def crowd(discrete: bool) -> Any:
    """Two agents in a matrix game; for continuous actions, three walkers."""
    if discrete:
        return envs.make("game/climbing")
    return envs.wrappers.bound_actions(envs.make("crowd/circle", num_agents=3), 1.0)


def custom(name: str) -> Any:
    """Linear networks on the linear task."""
    if name in ("dqn", "pqn"):
        return Linear(2)
    if name not in ("sac", "td3"):
        return Linear(2, with_value=True)
    discrete = takes_discrete(name)
    return jaxrl.Networks(actor=Linear(2 if discrete or name == "td3" else 4), critic=Linear(2 if discrete else 0))


def hparams_class(name: str) -> Any:
    """Class of the hyper-parameters of an algorithm."""
    kind = config_class(builder_of(name))
    return getattr(sys.modules[kind.__module__], kind.__name__.replace("Config", "HParams"))


def schedules() -> list[str]:
    """Hyper-parameters of any algorithm that are the end or the length of a schedule."""
    fields = dict.fromkeys(field.name for name in ROWS for field in dataclasses.fields(hparams_class(name)))
    return [name for name in fields if name.endswith(("_end", "_decay", "_decay_env_steps"))]


MIXTURE, FIXED = {"heads": "joint", "num_heads": 3}, {"automatic_temperature": False}
_ROWS = (
    Capability("Actions", "discrete", discrete=True),
    Capability("Actions", "several discrete", env=lambda discrete: Lock((2, 3)), discrete=True),
    Capability("Actions", "continuous", discrete=False),
    Capability("Actions", "masked", env=lambda discrete: envs.make("pathworld"), discrete=True),
    Capability("Observations", "vectors"),
    Capability("Observations", "choices", env=Choices),
    Capability("Observations", "images", env=Pixels, config={"network": "cnn", "channels": (2,)}),
    Capability("Policies", "memory", config={"memory": "gru", "memory_size": 4}, optional={"sequence_length": 4}),
    Capability("Policies", "several agents", env=crowd),
    Capability("Critics", 'global, `critic_sees="global"`', env=crowd, config={"critic_sees": "global"}),
    Capability(
        "Critics", 'privileged, `critic_sees="privileged"`', env=Privileged, config={"critic_sees": "privileged"}
    ),
    Capability("Episodes", "levels played again, `levels`", config={"levels": "max-return"}),
    Capability("Parts", "custom `network=`", network=custom),
    Capability("Parts", "custom `optimiser`", config={"optimiser": optax.lion}),
    Capability("Parts", 'learned, `optimiser="learned"`', config={"optimiser": "learned"}),
    Capability("Discounts", "exponential", hparams={"discount": 0.9}),
    Capability("Discounts", "mixtures of exponentials", optional=MIXTURE, hparams={"discount": "hyperbolic:k=0.5"}),
    Capability("Discounts", "all others", optional=MIXTURE, hparams={"discount": "fixed:horizon=3"}),
    *(
        Capability("Schedules", f"`{name}`", optional=FIXED, hparams={name: 100.0 if name.endswith("steps") else 0.5})
        for name in schedules()
    ),
)
CAPABILITIES = {each.title: each for each in _ROWS}
