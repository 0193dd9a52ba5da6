"""The fields of a configuration that say which network an algorithm trains, the same for all algorithms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from envs.arguments import described
from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import Range, Settings, check_choice, check_count, check_range
from jaxrl.learning.networks import (
    ACTIVATIONS,
    POOLINGS,
    CNNActorCritic,
    MLPActorCritic,
    Module,
    RelationActorCritic,
)

__all__ = ["NetworkConfig"]

# The fields that only some networks have.
_OWN = {
    "mlp": ("shared_trunk",),
    "relation": ("own_hidden", "neighbour_hidden", "pooling", "own_scale", "neighbour_scale"),
    "cnn": ("shared_trunk", "channels", "strides"),
}
_EXAMPLES = {"channels": (16, 32), "strides": (2, 1)}


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Settings):
    """Which network, and its sizes; static.

    Attributes:
      network: Kind of network: "mlp", of the flattened observation; "relation", for observations with "neighbours",
        see `networks.RelationActorCritic`; "cnn", for one array `[height, width, channels]`, such as a grid or pixels;
        or "auto", which takes "relation" where there are neighbours and "mlp" elsewhere.
      hidden: Widths of the hidden layers.
      activation: Activation function: tanh, relu, leaky_relu, elu, gelu or silu.
      shared_trunk: Whether actor and critic share the hidden layers; not of "relation".
      own_hidden, neighbour_hidden: Widths of what an agent's own part and each neighbour go through before they are
        joined, of "relation"; `hidden` follows.
      pooling: Reduction over neighbours, of "relation": over all slots, padding included ("mean"), over those that are
        there ("masked-mean", "max"), or by "attention".
      own_scale, neighbour_scale: Factors of an agent's own part and of neighbours' rows, of "relation".
      channels: Numbers of channels of the 3 x 3 convolutions, of "cnn"; `hidden` follows.
      strides: Strides of the convolutions, of "cnn"; empty for 1 each.
    """

    network: Literal["auto", "mlp", "relation", "cnn"] = "auto"
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    own_hidden: tuple[int, ...] = (64,)
    neighbour_hidden: tuple[int, ...] = (64,)
    pooling: Literal["mean", "masked-mean", "max", "attention"] = "mean"
    own_scale: float = 1.0
    neighbour_scale: float = 1.0
    channels: tuple[int, ...] = (16, 32)
    strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice("network", self.network, ("auto", *_OWN))
        for name in ("hidden", "own_hidden", "neighbour_hidden", "channels", "strides"):
            value, what = getattr(self, name), "strides" if name == "strides" else "widths of layers"
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise UserTypeError(f"{name} takes the {what}, such as {_EXAMPLES.get(name, (64, 64))}, got {value!r}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
            for width in getattr(self, name):
                check_count(name, width)
        if not self.channels:
            raise UserValueError("channels takes the channels of at least one convolution, such as (16,), got ()")
        if self.strides and len(self.strides) != len(self.channels):
            raise UserValueError(f"strides takes one for each of the {len(self.channels)} channels, got {self.strides}")
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_choice("pooling", self.pooling, POOLINGS)
        for name in ("own_scale", "neighbour_scale"):
            check_range(name, getattr(self, name), Range(0, math.inf, "()"))

    def actor_critic(self, obs: Any, num_outputs: int, num_values: int | None) -> Module:
        """The network, for an actor and a critic.

        Args:
          obs: Shapes of one observation.
          num_outputs: Number of outputs of the actor.
          num_values: Number of values of the critic; None for one, without an axis.

        Raises:
          ValueError: A field has no effect on these observations, or they are not what the network takes.
        """
        relational = isinstance(obs, dict) and {"neighbours", "neighbours_present"} <= set(obs)
        kind = self.network if self.network != "auto" else "relation" if relational else "mlp"
        self._refuse_others(kind)
        if kind == "mlp":
            return MLPActorCritic(num_outputs, self.hidden, self.activation, self.shared_trunk, num_values)
        if kind == "cnn":
            if len(getattr(obs, "shape", ())) != 3:
                raise UserValueError(
                    f"network 'cnn' takes observations [height, width, channels], got {described(obs)}"
                )
            strides = self.strides or (1,) * len(self.channels)
            return CNNActorCritic(
                num_outputs, self.channels, strides, self.hidden, self.activation, self.shared_trunk, num_values
            )
        if not relational:
            raise UserValueError(
                f"network 'relation' takes observations with 'neighbours' and 'neighbours_present', got "
                f"{described(obs)}"
            )
        return RelationActorCritic(
            num_outputs,
            self.own_hidden,
            self.neighbour_hidden,
            self.hidden,
            self.pooling,
            self.own_scale,
            self.neighbour_scale,
            self.activation,
            num_values,
        )

    def _refuse_others(self, kind: str) -> None:
        """Refuse fields of other networks that were changed."""
        defaults = {field.name: field.default for field in fields(NetworkConfig)}
        for name in {name: None for names in _OWN.values() for name in names}:
            if name in _OWN[kind] or getattr(self, name) == defaults[name]:
                continue
            if name == "shared_trunk":
                raise UserValueError("shared_trunk has no effect on observations with 'neighbours'; leave it out")
            if name in _OWN["cnn"]:
                raise UserValueError(
                    f"{name} has an effect with network='cnn' only, got {getattr(self, name)}; leave it out"
                )
            where = (
                "observations without 'neighbours' and 'neighbours_present'"
                if self.network == "auto"
                else f"network={kind!r}"
            )
            raise UserValueError(f"{name} has no effect on {where}, got {getattr(self, name)!r}; leave it out")
