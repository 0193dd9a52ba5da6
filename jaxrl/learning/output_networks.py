"""Networks with outputs of one kind: policies without a critic, critics of actions, and values of every action."""

import dataclasses
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from envs.errors import UserTypeError, UserValueError
from jaxrl.learning.networks import ACTIVATIONS, Module, dense, perceptron, returned
from jaxrl.learning.q_targets import of_branches
from jaxrl.learning.recurrent import check_remembering, is_recurrent
from jaxrl.pytrees import Observation

__all__ = ["Networks", "OutputNetwork", "PolicyHead", "QNetwork", "check_outputs"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Networks:
    """Custom networks of an algorithm with a policy and critics, `sac` or `td3`: hashable flax modules.

    Attributes:
      actor: Network of the policy, `(obs) -> outputs` of one observation; None for that of the configuration. For
        actions of `n` numbers, outputs are values before tanh: means, then logarithms of standard deviations,
        `[2 * n]`, for `sac`, and actions `[n]` for `td3`. For discrete actions, they are logits `[num_actions]`, of
        several choices one after another.
      critic: Network of each critic, `(obs, action) -> value []` of one observation and one action scaled to [-1, 1];
        for discrete actions, `(obs) -> action values [num_actions]`; None for that of the configuration. A value of
        `num_heads` heads or of `num_atoms` quantiles has these axes, in this order, at the end.

    Networks with a memory are called as `(obs, memory) -> (outputs, memory)`, and a critic of an observation and an
    action as `((obs, action), memory) -> (value, memory)`, see `jaxrl.learning.recurrent`.
    """

    actor: Module | None = None
    critic: Module | None = None


_WORDS = {"obs": "observation", "action": "action"}


class PolicyHead(nn.Module):
    """A perceptron from features to the outputs of an actor, with a constant value of 0.

    It takes the place of an actor-critic head in a policy without a critic.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`).
      hidden: Widths of the hidden layers.
      activation: Name in `networks.ACTIVATIONS`.
      gain: Gain of the last layer's orthogonal initial weights.
    """

    num_outputs: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    gain: float = 0.01

    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Outputs of the actor `[num_outputs]`, and 0 `[]`, from the features of one observation."""
        chex.assert_rank(features, 1, custom_message="features")
        hidden = perceptron(features, self.hidden, self.activation, "actor")
        return dense(self.num_outputs, self.gain, "actor_out")(hidden), jnp.zeros(())


class OutputNetwork(nn.Module):
    """An encoder with one linear layer after it: a policy, or a critic of observations with actions.

    Attributes:
      encoder: Module `(obs) -> features [F]`, such as that of `NetworkConfig.encoder`.
      num_outputs: Number of outputs.
      gain: Gain of the last layer's orthogonal initial weights.
      with_value: Whether the layer is a `PolicyHead`, which returns a value of 0 as well, for algorithms that take
        networks of an actor and a critic.
    """

    encoder: Module
    num_outputs: int
    gain: float = 1.0
    with_value: bool = False

    @nn.compact
    def __call__(self, obs: Observation) -> Any:
        """Outputs `[num_outputs]` of one observation; with a value, the pair of them."""
        features = self.encoder(obs)
        if self.with_value:
            return PolicyHead(self.num_outputs, gain=self.gain, name="head")(features)
        return dense(self.num_outputs, self.gain, "out")(features)


class QNetwork(nn.Module):
    """Network with outputs for each action, which represent action values in the form that a value loss defines.

    Attributes:
      encoder: Network that returns features, `[width]`.
      num_actions: Number of actions.
      num_values: Number of outputs for each action.
      dueling: Whether outputs are a state value plus an advantage minus the mean advantage over actions, each from its
        own hidden layer.
      activation: Activation function of the hidden layers, a name in `ACTIVATIONS`.
      layer_norm: Whether each hidden layer is normalised before its activation.
      branches: Numbers of choices of the parts of an action, over each of which advantages are centred; None for one
        choice.

    Source: Wang et al. (2016), "Dueling network architectures", equation 9.
    """

    encoder: Module
    num_actions: int
    num_values: int
    dueling: bool = False
    activation: str = "relu"
    layer_norm: bool = False
    branches: tuple[int, ...] | None = None

    @nn.compact
    def __call__(self, obs: Observation) -> jax.Array:
        """Outputs for every action, `[num_actions, num_values]`, of one observation."""
        features = self.encoder(obs)
        chex.assert_rank(features, 1, custom_message="features")
        of_action = self._stream(features, "advantage", self.num_actions * self.num_values)
        of_action = of_action.reshape(self.num_actions, self.num_values)
        if not self.dueling:
            return of_action
        if self.branches is None:
            return self._stream(features, "value", self.num_values) + of_action - jnp.mean(of_action, axis=0)
        parts = of_branches(of_action, self.branches, 0)
        centred = jnp.concatenate([part - jnp.mean(part, axis=0) for part in parts])
        return self._stream(features, "value", self.num_values) + centred

    def _stream(self, features: jax.Array, name: str, width: int) -> jax.Array:
        if self.dueling:
            features = dense(features.shape[-1], 2**0.5, f"{name}_hidden")(features)
            if self.layer_norm:
                features = nn.LayerNorm(name=f"{name}_hidden_norm")(features)
            features = ACTIVATIONS[self.activation](features)
        return dense(width, 0.01, f"{name}_out")(features)


def check_outputs(name: str, network: Any, inputs: dict[str, Any], outputs: str, shape: tuple[int, ...]) -> None:
    """Reject a custom network whose outputs an algorithm cannot use, before anything is compiled.

    Args:
      name: Name of the argument, for error messages.
      network: Flax module, called as `network.apply(params, *inputs)`; a recurrent one as `(inputs, memory)`, where
        several inputs are a tuple.
      inputs: Shapes of one input of each argument, by name.
      outputs: Meaning of the outputs, for error messages.
      shape: Shape of the outputs.

    Raises:
      TypeError, ValueError: The network is not a flax module, takes other arguments, or returns other shapes.
    """
    words = " and ".join(f"one {_WORDS[word]}" for word in inputs)
    if is_recurrent(network):
        takes = f"({outputs} {list(shape)}, memory) for {words} and one memory"
        pair = inputs if len(inputs) == 1 else {f"({', '.join(inputs)})": tuple(inputs.values())}
        return check_remembering(name, network, pair, takes, (shape,))
    of_one = returned(name, network, inputs)
    required = f"{outputs} {list(shape)} for {words}"
    if not hasattr(of_one, "shape"):
        raise UserTypeError(f"{name} must return {required}, got {jax.tree.map(jnp.shape, of_one)}")
    if of_one.shape != shape:
        raise UserValueError(f"{name} must return {required}, got shape {of_one.shape}")
