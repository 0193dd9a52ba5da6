"""Fields of a configuration that select the network, the same for all algorithms."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal

import jax

from envs.arguments import check_flags, described
from envs.choices import choices_of
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from jaxrl.checks import Range, Settings, check_choice, check_count, check_range, short
from jaxrl.learning.asymmetric import (
    ACTOR_WORDS,
    AsymmetricActorCritic,
    AsymmetricHeads,
    AsymmetricRecurrentActorCritic,
    CentralisedActorCritic,
    Sees,
    View,
    check_sees,
    critic_input,
    critic_observation,
)
from jaxrl.learning.cells import CELLS, cell_of
from jaxrl.learning.networks import (
    ACTIVATIONS,
    CNNActorCritic,
    EntriesActorCritic,
    MLPActorCritic,
    Module,
    ResidualActorCritic,
    with_action,
    without_action,
)
from jaxrl.learning.recurrent import Heads, RecurrentActorCritic, RecurrentNetwork
from jaxrl.learning.relation import POOLINGS, RelationActorCritic
from jaxrl.pytrees import Action, Observation, PyTree

__all__ = ["NetworkConfig", "without_effect"]

# The fields that only some networks have.
_OWN = {
    "mlp": ("shared_trunk",),
    "simba": ("shared_trunk",),
    "relation": ("own_hidden", "neighbour_hidden", "pooling", "own_scale", "neighbour_scale"),
    "cnn": ("shared_trunk", "channels", "strides"),
    "entries": ("shared_trunk", "channels", "strides", "encoders", "encoder_hidden"),
    "rows": ("own_hidden", "neighbour_hidden", "pooling", "own_scale"),  # of a centralised critic
}
_EXAMPLES = {"channels": (16, 32), "strides": (2, 1)}
_ENCODERS = ("cnn", "mlp", "flat")
_OF_WINDOW = ("memory_window", "memory_layers", "memory_heads")


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Settings):
    """Kind and sizes of the network; static.

    Attributes:
      network: Kind of network: "mlp", an MLP on the flattened observation; "relation", for observations with
        "neighbours", see `relation.RelationActorCritic`; "cnn", for one array `[height, width, channels]`, such as a
        grid or pixels, or a stack of them `[frames, height, width, channels]`; "simba", residual blocks with normalised
        layers on the flattened observation; or "auto": by `encoders` if there are any, "relation" for observations with
        neighbours, and "mlp" otherwise.
      hidden: Widths of the hidden layers, or of the blocks of "simba", which must be equal; with a memory, widths of
        the layers before it, which actor and critic share in on-policy algorithms.
      activation: Activation function: tanh, relu, leaky_relu, elu, gelu or silu.
      layer_norm: Whether each hidden layer is normalised over its units before the activation function. If actor and
        critic share a memory, layers after it are not normalised.
      shared_trunk: Whether actor and critic share the hidden layers; not for "relation", nor with a memory.
      own_hidden: Widths of the layers of "relation" for an agent's own part, before it is joined with the neighbours;
        `hidden` follows.
      neighbour_hidden: Widths of the layers of "relation" for each neighbour.
      pooling: Reduction over neighbours in "relation": over all slots, padding included ("mean"), over those that are
        present ("masked-mean", "max"), or by "attention".
      own_scale: Factor by which "relation" multiplies an agent's own part of observations, and the whole global
        observation, but not an action in the input of a critic.
      neighbour_scale: Factor of the neighbours' part of observations in "relation".
      encoders: Encoders of the entries of a dictionary, such as `{"image": "cnn", "state": "mlp"}`, or the same as
        `("image:cnn", "state:mlp")`: "cnn", the convolutions of the network "cnn"; "mlp", layers of `encoder_hidden`;
        or "flat", unchanged numbers, the default for other entries. All outputs together are the input of `hidden`.
      encoder_hidden: Widths of the layers of the encoder "mlp".
      channels: Numbers of channels of the 3 x 3 convolutions in "cnn"; `hidden` follows.
      strides: Strides of the convolutions in "cnn"; empty for 1 each.
      memory: Kind of memory between the hidden layers and the last layers: "none"; "gru", the gated recurrent unit;
        "lstm", long short-term memory; "lru", the linear recurrent unit; "s5", the simplified state space layer;
        "mingru", the minimal gated recurrent unit; or "gtrxl", a gated transformer that attends to the last steps; the
        last four process all steps of a sequence in parallel in training.
      memory_size: Number of units of the memory, each of which is one number for "gru" and "mingru", two for "lstm",
        and a complex number for "lru" and "s5"; for "gtrxl", the width of its layers, whose memory has
        `memory_window - 1` vectors of this width for each layer.
      memory_hidden: Widths of further hidden layers after the memory, separate for actor and critic.
      memory_window: Number of steps that a step of "gtrxl" attends to, itself included, at least 2.
      memory_layers: Number of layers of "gtrxl".
      memory_heads: Number of heads of each layer of "gtrxl", a divisor of `memory_size`.
      actor_sees: Part of observations that the actor sees, in training, evaluation, films and exports: "all"; "auto",
        all but entries with "privileged" in their names; the name of an entry, several names, or a function of an
        observation, or its path `module:name`.
    """

    elsewhere = MappingProxyType({"critic_sees": "ppo, sac, td3 and other algorithms of an actor and a critic have it"})

    network: Literal["auto", "mlp", "relation", "cnn", "simba"] = "auto"
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    layer_norm: bool = False
    shared_trunk: bool = False
    own_hidden: tuple[int, ...] = (64,)
    neighbour_hidden: tuple[int, ...] = (64,)
    pooling: Literal["mean", "masked-mean", "max", "attention"] = "mean"
    own_scale: float = 1.0
    neighbour_scale: float = 1.0
    encoders: tuple[str, ...] | Mapping[str, str] = ()
    encoder_hidden: tuple[int, ...] = (64,)
    channels: tuple[int, ...] = (16, 32)
    strides: tuple[int, ...] = ()
    memory: Literal["none", "gru", "lstm", "lru", "mingru", "s5", "gtrxl"] = "none"
    memory_size: int = 64
    memory_hidden: tuple[int, ...] = ()
    memory_window: int = 16
    memory_layers: int = 1
    memory_heads: int = 4
    actor_sees: Sees = "auto"

    def __post_init__(self) -> None:
        check_flags(self)
        object.__setattr__(self, "actor_sees", check_sees("actor_sees", self.actor_sees, ACTOR_WORDS))
        if not isinstance(self.network, str):
            raise UserTypeError(
                f"network takes the name of a network, such as 'mlp', got {short(self.network)}; your own flax module "
                "is an argument of the algorithm, such as ppo(env, config, network=module)"
            )
        check_choice("network", self.network, ("auto", "mlp", "relation", "cnn", "simba"))
        object.__setattr__(self, "encoders", _checked_encoders(self.encoders))
        if self.encoders and self.network != "auto":
            raise UserValueError(f"encoders takes network='auto', got {self.network!r}; leave network out")
        for name in (
            "hidden",
            "own_hidden",
            "neighbour_hidden",
            "encoder_hidden",
            "channels",
            "strides",
            "memory_hidden",
        ):
            value, what = getattr(self, name), "strides" if name == "strides" else "widths of layers"
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise UserTypeError(f"{name} takes the {what}, such as {_EXAMPLES.get(name, (64, 64))}, got {value!r}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
            for width in getattr(self, name):
                check_count(name, width)
        if self.network == "simba":
            if len(set(self.hidden)) != 1:
                raise UserValueError(f"hidden takes one width or several equal ones with 'simba', got {self.hidden}")
            if self.layer_norm:
                raise UserValueError("layer_norm has no effect with network='simba', got True; leave it out")
        if not self.channels:
            raise UserValueError("channels takes the channels of at least one convolution, such as (16,), got ()")
        if self.strides and len(self.strides) != len(self.channels):
            raise UserValueError(f"strides takes one for each of the {len(self.channels)} channels, got {self.strides}")
        check_choice("memory", self.memory, ("none", *CELLS))
        check_count("memory_size", self.memory_size)
        for name, default in {"memory_size": 64, "memory_hidden": ()}.items():
            if self.memory == "none" and getattr(self, name) != default:
                raise UserValueError(
                    f"{name} has no effect with memory='none', got {getattr(self, name)}; it takes a memory, one of "
                    f"{', '.join(CELLS)}"
                )
        self._check_window()
        if self.memory != "none" and self.shared_trunk:
            raise UserValueError(
                f"shared_trunk has no effect with memory={self.memory!r}, where actor and critic share all layers up "
                "to the memory; leave it out"
            )
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_choice("pooling", self.pooling, POOLINGS)
        for name in ("own_scale", "neighbour_scale"):
            check_range(name, getattr(self, name), Range(0, math.inf, "()"))

    def encoder(self, obs: Observation, with_action: bool = False) -> Module:
        """The network without its last layers, which gives the features of one observation, `[width]`.

        Args:
          obs: Shapes of one observation.
          with_action: Whether observations are joined with an action by `networks.with_action`.

        Raises:
          ValueError: See `actor_critic`.
        """
        kind = self._kind(without_action(obs)[0] if self.encoders and with_action else obs)
        return self._network(*kind, obs, None, None, with_action)

    def remembering(self, encoder: Module, head: Callable[[Module], Module]) -> Module:
        """Network of an encoder and last layers, with the memory of the configuration between them if there is one.

        Args:
          encoder: Encoder of inputs, such as `encoder`.
          head: Function of a module that returns features, from which it makes a network with the last layers.
        """
        if self.memory == "none":
            return head(encoder)
        after = MLPActorCritic(None, self.memory_hidden, self.activation, layer_norm=self.layer_norm)
        return RecurrentNetwork(encoder, self.memory_cell(), head(after))

    def actor_critic(self, obs: Observation, num_outputs: int, num_values: int | None) -> Module:
        """Network of an actor and a critic.

        Args:
          obs: Shapes of one observation.
          num_outputs: Number of outputs of the actor.
          num_values: Number of values of the critic; None for one, without an axis.

        Raises:
          ValueError: A field has no effect on these observations, or the network does not support them.
        """
        kind, relational = self._kind(obs)
        if self.memory == "none":
            return self._network(kind, relational, obs, num_outputs, num_values)
        encoder = self._network(kind, relational, obs, None, None)
        cell = self.memory_cell()
        return RecurrentActorCritic(encoder, cell, Heads(num_outputs, self.memory_hidden, self.activation, num_values))

    def centralised(
        self, obs: Observation, global_obs: Observation, num_outputs: int, num_values: int | None
    ) -> Module:
        """Network of an actor of an agent's own observation and of a centralised critic, without a memory.

        Args:
          obs: Shapes of one observation.
          global_obs: Shapes of the global observation.
          num_outputs: Number of outputs of the actor.
          num_values: Number of values of the critic; None for one, without an axis.

        Raises:
          ValueError: See `actor_critic`.
        """
        self._refuse_global()
        seen = jax.eval_shape(critic_observation, obs, global_obs)
        pooled = _is_relational(seen) and self.network != "mlp"
        actor = self._network(*self._kind(obs, "rows" if pooled else "mlp"), obs, None, None)
        if pooled:
            sizes = (self.own_hidden, self.neighbour_hidden, self.hidden)
            critic = RelationActorCritic(None, *sizes, self.pooling, activation=self.activation)
        else:
            critic = MLPActorCritic(None, self.hidden, self.activation)
        scales = (self.own_scale, self.neighbour_scale)
        return CentralisedActorCritic(actor, critic, num_outputs, num_values, *scales, choices_of(obs))

    def asymmetric(
        self, obs: Observation, facts: Observation, view: View, num_outputs: int, num_values: int | None
    ) -> Module:
        """Network of an actor, and of a critic that sees more.

        Args:
          obs: Shapes of one observation.
          facts: Shapes of what only the critic sees.
          view: Kind of the critic's input.
          num_outputs: Number of outputs of the actor.
          num_values: Number of values of the critic; None for one, without an axis.

        Raises:
          ValueError: See `actor_critic`.
        """
        if self.shared_trunk:
            raise UserValueError("shared_trunk has no effect where the critic sees more than the actor; leave it out")
        actor, critic = self.two_encoders(obs, critic_input(view, obs, facts))
        if self.memory == "none":
            return AsymmetricActorCritic(actor, critic, view, num_outputs, num_values)
        cell = self.memory_cell()
        heads = AsymmetricHeads(num_outputs, self.memory_hidden, self.activation, num_values)
        return AsymmetricRecurrentActorCritic(actor, cell, heads, critic, view)

    def two_encoders(
        self, obs: Observation, seen: PyTree, action: Action = None, scaled: bool = False
    ) -> tuple[Module, Module]:
        """Encoders of an actor, and of a critic that sees more, which has the same kind of network where that fits.

        Args:
          obs: Shapes of one observation of the actor.
          seen: Shapes of one input of the critic.
          action: Shape of an action that joins the critic's input; None for none.
          scaled: Whether inputs of the critic are multiplied by `own_scale` and `neighbour_scale` before.

        Raises:
          ValueError: See `actor_critic`.
        """
        relational = _is_relational(seen) and self.network != "mlp"
        same = self.network == "simba" or (self.network == "cnn" and len(getattr(seen, "shape", ())) in (3, 4))
        if self.encoders and scaled:
            self._refuse_global()
        if self.encoders and self._present(self._dictionary(seen)[0]):
            kind = "entries"
        else:
            kind = "relation" if relational else self.network if same else "mlp"
        actor = self._network(*self._kind(obs, kind, seen), obs, None, None)
        inputs = seen if action is None else with_action(seen, action)
        critic = self._network(kind, relational, inputs, None, None, action is not None)
        if scaled and isinstance(critic, RelationActorCritic):
            critic = critic.clone(own_scale=1.0, neighbour_scale=1.0)
        return actor, critic

    def memory_cell(self) -> Any:
        """Cell of the field `memory`, which is not "none"."""
        window = self.memory_window, self.memory_layers, self.memory_heads
        return cell_of(self.memory, self.memory_size, self.activation, *window)

    @property
    def network_fields(self) -> tuple[str, ...]:
        """Names of the fields that only the networks of jaxrl use."""
        return tuple(field.name for field in fields(NetworkConfig) if field.name != "actor_sees")

    def check_own_network(self) -> None:
        """Reject the field `memory` with a custom network, which defines its own memory or none.

        Raises:
          ValueError: `memory` is set.
        """
        if self.memory != "none":
            raise UserValueError(
                f"memory applies to jaxrl's own networks, got {self.memory!r} with network=; leave it out, as a "
                "custom network defines its own memory"
            )

    def report_unused(self) -> None:
        """Warn of fields of networks that differ from their defaults, which a custom network does not use."""
        known = type(self).__dataclass_fields__
        names = [name for name in self.network_fields if getattr(self, name) != known[name].default]
        if names:
            shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            effect = "has no effect" if len(names) == 1 else "have no effect"
            warnings.warn(f"{shown} {effect} with network=, which has layers of its own", RuntimeWarning, stacklevel=7)

    def _check_window(self) -> None:
        """Reject fields of the window of "gtrxl" that are wrong, or have no effect on another memory."""
        for name in _OF_WINDOW:
            value = getattr(self, name)
            check_count(name, value, 2 if name == "memory_window" else 1)
            if self.memory != "gtrxl" and value != NetworkConfig.__dataclass_fields__[name].default:
                raise UserValueError(
                    f"{name} has no effect with memory={self.memory!r}, got {value}; it takes memory='gtrxl'"
                )
        if self.memory == "gtrxl" and self.memory_size % self.memory_heads:
            raise UserValueError(
                f"memory_heads must divide memory_size={self.memory_size} with memory='gtrxl', got {self.memory_heads}"
            )

    def _kind(self, obs: Observation, critic: str | None = None, seen: PyTree = None) -> tuple[str, bool]:
        """The kind of network, and whether observations have neighbours; rejects fields that have no effect.

        Args:
          obs: Shapes of one observation.
          critic: Kind of a centralised critic, None without one.
          seen: Shapes of what the critic sees; None where it sees the same.
        """
        if self.encoders:
            self._check_entries(obs, {} if seen is None else self._dictionary(seen)[0])
            self._refuse_others("entries", critic or "entries")
            return "entries", False
        relational = _is_relational(obs)
        kind = self.network if self.network != "auto" else "relation" if relational else "mlp"
        self._refuse_others(kind, critic or kind)
        return kind, relational

    @property
    def _encoders(self) -> dict[str, str]:
        """Encoder of each entry."""
        pairs = (each.rpartition(":") for each in self.encoders)
        return {entry: kind for entry, _, kind in pairs}

    def _present(self, entries: Any) -> dict[str, str]:
        """Encoders of the entries that there are."""
        there = set(entries) if isinstance(entries, dict) else set()
        return {entry: kind for entry, kind in self._encoders.items() if entry in there}

    def _dictionary(self, seen: PyTree) -> tuple[Any, bool]:
        """The dictionary with entries in a critic's input, and whether privileged facts are beside it."""
        both = isinstance(seen, dict) and set(seen) == {"observation", "privileged"} and not self._present(seen)
        return (seen["observation"], True) if both else (seen, False)

    def _refuse_global(self) -> None:
        if self.encoders:
            raise UserValueError(
                f"encoders {self.encoders} cannot be combined with critic_sees='global', whose input has no entries; "
                "leave one of them out"
            )

    def _check_entries(self, obs: Observation, seen: PyTree) -> None:
        """Reject encoders that do not fit the shapes of an observation, and of what the critic sees.

        Raises:
          ValueError: An observation is not a dictionary, none has an entry, or an entry is not an image.
        """
        if not isinstance(obs, dict):
            raise UserValueError(
                f"encoders takes observations that are dictionaries, got {described(obs)}; network='cnn' takes images, "
                "and actor_sees=('image',) with a tuple of names keeps a dictionary"
            )
        parts = {**(seen if isinstance(seen, dict) else {}), **obs}
        for entry, kind in self._encoders.items():
            if entry not in parts:
                raise UserValueError(
                    f"encoders names the entry {entry!r}, which neither the actor nor a dictionary of the critic has"
                    f"{near(entry, list(parts))}; there are {', '.join(map(repr, sorted(parts)))}"
                )
            if kind == "cnn" and len(getattr(parts[entry], "shape", ())) not in (3, 4):
                raise UserValueError(
                    "encoder 'cnn' takes an array [height, width, channels], or a stack of them [frames, height, "
                    f"width, channels], got {described(parts[entry])} at {entry!r}; 'mlp' and 'flat' take others"
                )
        kinds = set(self._encoders.values())
        for name, needed in {"channels": "cnn", "strides": "cnn", "encoder_hidden": "mlp"}.items():
            if needed not in kinds and getattr(self, name) != NetworkConfig.__dataclass_fields__[name].default:
                raise UserValueError(f"{name} has an effect with an encoder {needed!r} only; leave it out")

    def _network(
        self,
        kind: str,
        relational: bool,
        obs: Observation,
        num_outputs: int | None,
        num_values: int | None,
        with_action: bool = False,
    ) -> Module:
        choices = choices_of(obs)
        if kind in ("mlp", "simba"):
            kind_of = MLPActorCritic if kind == "mlp" else ResidualActorCritic
            last = (self.shared_trunk, num_values, self.layer_norm, choices)
            return kind_of(num_outputs, self.hidden, self.activation, *last)
        if kind == "entries":
            strides = self.strides or (1,) * len(self.channels)
            entries, joined = self._dictionary(without_action(obs)[0] if with_action else obs)
            return EntriesActorCritic(
                num_outputs,
                tuple(self._present(entries).items()),
                self.channels,
                strides,
                self.encoder_hidden,
                self.hidden,
                self.activation,
                self.shared_trunk,
                num_values,
                self.layer_norm,
                choices,
                with_action,
                joined,
            )
        if kind == "cnn":
            image = obs.get("observation", obs) if with_action else obs  # absent where there are neighbours
            if len(getattr(image, "shape", ())) not in (3, 4):
                raise UserValueError(
                    "network 'cnn' takes observations [height, width, channels], or stacks of them [frames, height, "
                    f"width, channels], got {described(image)}; encoders has one for each entry of a dictionary, 'mlp' "
                    "reads any observation as one vector, and others take your own module, network= of the algorithm"
                )
            strides = self.strides or (1,) * len(self.channels)
            return CNNActorCritic(
                num_outputs,
                self.channels,
                strides,
                self.hidden,
                self.activation,
                self.shared_trunk,
                num_values,
                self.layer_norm,
                choices,
                with_action,
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
            self.layer_norm,
            with_action,
            choices,
        )

    def _refuse_others(self, kind: str, critic: str) -> None:
        """Reject changed fields of other networks."""
        defaults = {field.name: field.default for field in fields(NetworkConfig)}
        for name in {name: None for names in _OWN.values() for name in names}:
            if name in _OWN[kind] + _OWN[critic] or getattr(self, name) == defaults[name]:
                continue
            if name == "shared_trunk":
                raise UserValueError("shared_trunk has no effect on observations with 'neighbours'; leave it out")
            if name in _OWN["cnn"]:
                raise UserValueError(
                    f"{name} has an effect with network='cnn' or an encoder 'cnn' only, got {getattr(self, name)}; "
                    "leave it out"
                )
            if name in _OWN["entries"]:
                raise UserValueError(
                    f"{name} has an effect with encoders only, got {getattr(self, name)}; leave it out"
                )
            where = (
                "observations without 'neighbours' and 'neighbours_present'"
                if self.network == "auto"
                else f"network={kind!r}"
            )
            raise UserValueError(f"{name} has no effect on {where}, got {getattr(self, name)!r}; leave it out")


def without_effect(memory: str) -> tuple[str, ...]:
    """Names of fields of configurations that have no effect with a kind of memory, such as "none"."""
    if memory == "none":
        return ("memory_size", "memory_hidden", *_OF_WINDOW, "sequence_length", "burn_in")
    return () if memory == "gtrxl" else _OF_WINDOW


def _checked_encoders(encoders: Any) -> tuple[str, ...]:
    """Encoders as sorted texts `entry:kind`, from a dictionary or from such texts.

    Raises:
      TypeError, ValueError: They are neither, or an encoder is unknown.
    """
    takes = "encoders takes a kind for each entry, such as {'image': 'cnn', 'state': 'mlp'}"
    if isinstance(encoders, Mapping):
        if not all(isinstance(text, str) for pair in encoders.items() for text in pair):
            raise UserTypeError(f"{takes}, got {dict(encoders)!r}")
        encoders = [f"{entry}:{kind}" for entry, kind in encoders.items()]
    if isinstance(encoders, str) or not isinstance(encoders, Sequence) or not all(isinstance(e, str) for e in encoders):
        raise UserTypeError(f"{takes}, got {encoders!r}")
    for each in encoders:
        entry, _, kind = each.rpartition(":")
        if not entry:
            raise UserValueError(f"{takes}, or texts such as 'image:cnn', got {each!r}")
        check_choice(f"the encoder of {entry!r}", kind, _ENCODERS)
    if len({each.rpartition(":")[0] for each in encoders}) < len(encoders):
        raise UserValueError(f"encoders takes one kind for each entry, got {tuple(encoders)}")
    return tuple(sorted(encoders))


def _is_relational(obs: Observation) -> bool:
    """Whether an observation has neighbours."""
    return isinstance(obs, dict) and {"neighbours", "neighbours_present"} <= set(obs)
