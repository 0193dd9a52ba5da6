"""Learning of action values: the exponentials of a discount, targets, and one gradient step towards them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.algorithms.contract import Metrics
from jaxrl.learning import value_losses
from jaxrl.learning.critics import head_sizes
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.q_targets import mixture_values, n_step_targets
from jaxrl.learning.replay import Window

__all__ = ["Nodes", "Target", "descend", "row_errors", "window_atoms"]


class Nodes(NamedTuple):
    """The exponentials of a discount, each `[K]`.

    Attributes:
      rates: Rates of the exponentials.
      sizes: Scales of the values under each rate; a network's outputs are values divided by these.
      shares: Weights of the outputs in a value, which sum to 1.
    """

    rates: jax.Array
    sizes: jax.Array
    shares: jax.Array

    @staticmethod
    def of(discount: Any) -> "Nodes":
        """The exponentials of a prepared discount."""
        sizes = head_sizes(discount)
        weights = jnp.asarray(discount.weights, jnp.float32)
        return Nodes(jnp.asarray(discount.rates, jnp.float32), sizes, weights * sizes)


class Target(NamedTuple):
    """Distributions of values under each exponential: atoms and probabilities, `[*B, K, M]`."""

    atoms: jax.Array
    probabilities: jax.Array


def window_atoms(batch: Window, reward: jax.Array, atoms: jax.Array, nodes: Nodes, time_limits: str) -> jax.Array:
    """Atoms of the targets of the first step of each window, `[B, *A, K, M]`.

    Args:
      batch: Windows.
      reward: Rewards of their steps, `[B, n, *A]`.
      atoms: Atoms after their last steps, `[B, *A, K, M]`.
      nodes: Exponentials of the discount.
      time_limits: Treatment of time limits, as in `TransitionsConfig`.
    """
    ended = batch.terminated | batch.truncated if time_limits == "terminal" else batch.terminated
    return n_step_targets(reward, batch.counts, ended, atoms, nodes.rates, nodes.sizes)


def descend(
    values: value_losses.ValueLoss,
    params: Any,
    optimiser: optax.OptState,
    chosen: Callable[[Any], jax.Array],
    target: Target,
    active: jax.Array,
    weight: jax.Array,
    shares: jax.Array,
    scale: value_losses.Scale,
    descent: optax.GradientTransformation,
) -> tuple[Any, optax.OptState, jax.Array, Metrics]:
    """One gradient step of a network, or of an ensemble of C networks, towards a target.

    Args:
      values: Representation and loss of values.
      params: Parameters.
      optimiser: State of `descent`.
      chosen: Function `(params) -> outputs` of the actions taken, `[*B, K, num_outputs]`, of an ensemble
        `[C, *B, K, num_outputs]`.
      target: Target, `[*B, K, M]`.
      active: Whether an agent took part, bool `[*B]`.
      weight: Weights of the losses, `[*B]`, 0 where not active.
      shares: Weights of the outputs in a value, `[K]`.
      scale: Parameters of the value loss.
      descent: Optimiser.

    Returns:
      Parameters, state of the optimiser, absolute errors of the values before the step, `[*B]`, and metrics; errors
      and values of an ensemble are means over its networks.
    """
    mask, target = active.astype(jnp.float32), jax.lax.stop_gradient(target)

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        outputs = chosen(params)
        by_head = values.loss(outputs, target.atoms, target.probabilities, scale)
        total = jnp.sum(mixture_values(by_head, shares) * weight) / jnp.maximum(jnp.sum(mask), 1)
        return total, mixture_values(values.value(outputs, scale), shares)

    (total, value), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    updates, optimiser = descent.update(gradient, optimiser, params)
    expected = mixture_values(value_losses.expected(target.atoms, target.probabilities), shares)
    error = jnp.abs(expected - value)
    if value.ndim > mask.ndim:
        error, value = jnp.mean(error, axis=0), jnp.mean(value, axis=0)
    metrics = {
        "value_loss": total,
        "q": weighted_mean(value, mask),
        "q_error": weighted_mean(error, mask),
        "grad_norm": optax.tree.norm(gradient),
    }
    return optax.apply_updates(params, updates), optimiser, error, metrics


def row_errors(error: jax.Array, active: jax.Array) -> jax.Array:
    """Mean error of the active agents of each row, `[B]`, from errors `[B, *A]`."""
    mask, agents = active.astype(jnp.float32), tuple(range(1, active.ndim))
    return jnp.sum(error * mask, axis=agents) / jnp.maximum(jnp.sum(mask, axis=agents), 1)
