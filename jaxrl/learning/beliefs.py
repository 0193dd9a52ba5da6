"""Beliefs about a behaviour that is not observed: distributions from a network's outputs, and heads that see them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from envs.base import Environment, spaces
from envs.errors import UserValueError
from jaxrl.learning.action_heads import ActionHead, Scores
from jaxrl.pytrees import Number, Params

# Bounds of the log standard deviation of a belief about a number: below them the gradients of a number that hardly
# varies exceed those of the policy, which the common clip then makes too short to learn from.
LOG_STD = (-2.0, 2.0)

BELIEF = "belief"  # entry of the scores

__all__ = [
    "BELIEF",
    "Belief",
    "BelievingHeads",
    "belief_about",
    "believing_head",
    "constant_belief",
]


@dataclasses.dataclass(frozen=True)
class Belief:
    """A product of categorical and normal distributions over the parts of a behaviour.

    Attributes:
      sizes: Number of choices of each discrete part, or of numbers of each `Box` part.
      discrete: Whether each part is discrete.
    """

    sizes: tuple[int, ...]
    discrete: tuple[bool, ...]

    @property
    def num_outputs(self) -> int:
        """Number of outputs of a network: logits of discrete parts, means and log standard deviations of others."""
        return sum(size if discrete else 2 * size for size, discrete in self._parts())

    def split(self, outputs: jax.Array) -> list[jax.Array]:
        """The outputs `[..., num_outputs]` of each part, `[..., its outputs]`."""
        chex.assert_axis_dimension(outputs, -1, self.num_outputs, custom_message="outputs")
        ends, end = [], 0
        for size, discrete in self._parts():
            end += size if discrete else 2 * size
            ends.append(end)
        return jnp.split(outputs, ends[:-1], axis=-1)

    def mean(self, outputs: jax.Array) -> jax.Array:
        """Means of all parts, one after another: probabilities of discrete parts, `[..., sum(sizes)]`."""
        chex.assert_axis_dimension(outputs, -1, self.num_outputs, custom_message="outputs")
        means = [
            jax.nn.softmax(part) if discrete else part[..., :size]
            for part, (size, discrete) in zip(self.split(outputs), self._parts(), strict=True)
        ]
        return jnp.concatenate(means, axis=-1)

    def uncertainty(self, outputs: jax.Array) -> jax.Array:
        """Entropy of each discrete part as a share of its maximum, and standard deviations of numbers, `[..., U]`."""
        chex.assert_axis_dimension(outputs, -1, self.num_outputs, custom_message="outputs")
        values = []
        for part, (size, discrete) in zip(self.split(outputs), self._parts(), strict=True):
            if discrete:
                log_prob = jax.nn.log_softmax(part)
                entropy = -jnp.sum(jnp.exp(log_prob) * log_prob, axis=-1, keepdims=True)
                values.append(entropy / math.log(max(size, 2)))
            else:
                values.append(jnp.exp(_log_std(part, size)))
        return jnp.concatenate(values, axis=-1)

    def log_prob(self, outputs: jax.Array, behaviour: tuple[jax.Array, ...]) -> jax.Array:
        """Log-density of behaviours.

        Args:
          outputs: Outputs of a network, `[*B, num_outputs]`.
          behaviour: Behaviours, for each part int `[*B]` if it is discrete, otherwise float `[*B, size]`.

        Returns:
          The sum over parts, `[*B]`.
        """
        chex.assert_tree_shape_prefix(behaviour, outputs.shape[:-1], custom_message="behaviour, outputs")
        total = jnp.zeros(outputs.shape[:-1])
        for part, value, (size, discrete) in zip(self.split(outputs), behaviour, self._parts(), strict=True):
            if discrete:
                total += jnp.take_along_axis(jax.nn.log_softmax(part), value[..., None], axis=-1)[..., 0]
            else:
                log_std = _log_std(part, size)
                scaled = (value - part[..., :size]) * jnp.exp(-log_std)
                total += jnp.sum(-0.5 * scaled**2 - log_std - 0.5 * math.log(2 * math.pi), axis=-1)
        return total

    def _parts(self) -> list[tuple[int, bool]]:
        return list(zip(self.sizes, self.discrete, strict=True))


class BelievingHeads(nn.Module):
    """Heads of a recurrent network with a belief: its outputs follow those of the actor.

    Attributes:
      heads: Module `(features) -> (outputs, value)`.
      belief: Belief about the behaviour.
      conditioned: Whether actor and critic take mean and uncertainty of the belief in addition to the features, without
        a gradient, so that only supervision changes the layer of the belief; the features, its input, are also trained
        by actor and critic.
    """

    heads: nn.Module
    belief: Belief
    conditioned: bool

    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Outputs of the actor and of the belief, one after another, and the value or values."""
        chex.assert_rank(features, 1, custom_message="features")
        believed = nn.Dense(self.belief.num_outputs, name="belief_layer")(features)
        seen = features
        if self.conditioned:
            fixed = jax.lax.stop_gradient(believed)
            seen = jnp.concatenate([features, self.belief.mean(fixed), self.belief.uncertainty(fixed)])
        outputs, value = self.heads(seen)  # pyright: ignore[reportCallIssue]
        return jnp.concatenate([outputs, believed]), value


def belief_about(env: Environment, agents: tuple[int, ...]) -> Belief:
    """The belief about the behaviour of an environment.

    Args:
      env: Environment with a `behaviour_space`.
      agents: Axes of its agents.

    Raises:
      ValueError: The environment has no behaviour, or several agents.
    """
    space = env.behaviour_space()
    if space is None or agents:
        raise UserValueError(
            f"belief takes an environment of one agent with a behaviour_space, such as cooperation/levers, got "
            f"{env.name} {'with several agents' if agents else 'without one'}"
        )
    discrete = tuple(isinstance(part, spaces.Discrete) for part in space.spaces)
    parts: tuple[Any, ...] = tuple(space.spaces)
    sizes = tuple(part.n if isinstance(part, spaces.Discrete) else part.shape[0] for part in parts)
    return Belief(sizes, discrete)


def believing_head(head: ActionHead, belief: Belief) -> ActionHead:
    """An action head whose scores have the outputs of a belief as well, as the entry `"belief"`."""

    def scores(outputs: jax.Array, log_std: Number) -> Scores:
        chex.assert_axis_dimension(outputs, -1, head.num_outputs + belief.num_outputs, custom_message="outputs")
        own, believed = jnp.split(outputs, [head.num_outputs], axis=-1)
        return head.scores(own, log_std) | {BELIEF: believed}

    return head._replace(scores=scores)


def constant_belief(weights: Params, constant: jax.Array) -> Any:
    """Weights whose gradients with respect to the memory and the belief are 0.

    Args:
      weights: Parameters of a recurrent network with `BelievingHeads`, and anything else.
      constant: Whether the gradients are 0, bool `[]`, traced; otherwise they are unchanged.
    """
    chex.assert_rank(constant, 0, custom_message="constant")

    def choose(path: Any, leaf: jax.Array) -> jax.Array:
        names = [getattr(entry, "key", None) for entry in path]
        believes = "params" in names and names.count("heads") < 2  # the inner heads are actor and critic
        return jnp.where(constant, jax.lax.stop_gradient(leaf), leaf) if believes else leaf

    return jax.tree_util.tree_map_with_path(choose, weights)


def _log_std(part: jax.Array, size: int) -> jax.Array:
    return jnp.clip(part[..., size:], *LOG_STD)
