"""Learned optimiser: Adam, whose step of each parameter a small network corrects, and which begins as Adam."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from jaxrl.learning.perceptrons import Perceptron

LEARNED = "learned"  # value of the field `optimiser` of configurations
RATES = (0.5, 0.99, 0.999)  # decay rates of the momenta beside Adam's
SHIFT = 0.1  # share of a step of Adam of full length that an output of 1 adds
LEAST = 1e-8  # of the size of parameters, by which those of zeros can be divided

__all__ = ["LEARNED", "LearnedOptimiser", "LearnedState", "Rule", "optimiser_features", "scale_by_learned"]


class LearnedOptimiser(Perceptron):
    """Weights of a learned optimiser, a `Perceptron` of `optimiser_features` with an output of 0 for Adam."""

    prefix = "learned-optimiser"
    field = "optimiser"
    num_inputs = 6 + len(RATES)
    outputs = (2,)
    over_run = True

    def at(self, share: jax.Array) -> Rule:
        """Update rule after a share of the run.

        Args:
          share: Share in [0, 1], `[]`, traced.
        """
        chex.assert_rank(share, 0, custom_message="share")
        return Rule(self, share)


class Rule(NamedTuple):
    """Update rule at one point of a run.

    Attributes:
      weights: Weights of the learned optimiser.
      share: Share of the run that is over, `[]`.
    """

    weights: LearnedOptimiser
    share: jax.Array


class LearnedState(NamedTuple):
    """State of a learned optimiser.

    Attributes:
      adam: State of Adam.
      momenta: Means of the gradients with the decay rates `RATES`, as Adam's first moment, `[3, n]`.
    """

    adam: Any
    momenta: jax.Array


def optimiser_features(
    gradient: jax.Array,
    step: jax.Array,
    size: jax.Array,
    momenta: jax.Array,
    params: jax.Array,
    share: jax.Array,
    eps: jax.Array,
) -> jax.Array:
    """Features of each parameter, `[9, n]`, all within [-1, 1].

    They are, with f(x) = x / (1 + |x|):

    * the sign of the gradient g, as f(g / eps), and its magnitude beside the size s so far, as tanh(log(|g| / s) / 2);
    * f of the step of Adam, and f(m / s) of each momentum m;
    * s beside its root mean square S over all parameters, as tanh(log(s / S) / 2);
    * f of the parameter in units of the root mean square of all;
    * the share of the run.

    Where gradients are large beside eps, all but the share are the same for gradients, or parameters, that are a
    positive number times as large.

    Args:
      gradient: Gradients, `[n]`.
      step: Steps of Adam before they are multiplied by the step size, `[n]`.
      size: Sizes of gradients, the denominators of these steps, `[n]`.
      momenta: Momenta without their bias towards 0, `[3, n]`.
      params: Parameters, `[n]`.
      share: Share of the run that is over, `[]`.
      eps: Constant in the denominator of Adam, `[]`.
    """
    chex.assert_equal_shape([gradient, step, size, params], custom_message="gradient, step, size, params")
    chex.assert_shape(momenta, (len(RATES), *gradient.shape), custom_message="momenta")
    chex.assert_rank([share, eps], 0, custom_message="share, eps")
    length, typical = jnp.abs(gradient), jnp.sqrt(jnp.mean(jnp.square(size)))
    of_params = jnp.sqrt(jnp.mean(jnp.square(params))) + LEAST
    features = (
        gradient / (length + eps),
        (length - size) / (length + size),  # tanh(log(x) / 2) = (x - 1) / (x + 1)
        step / (1 + jnp.abs(step)),
        *(momenta / (size + jnp.abs(momenta))),
        (size - typical) / (size + typical),
        params / (of_params + jnp.abs(params)),
        jnp.broadcast_to(share, gradient.shape),
    )
    return jnp.stack(features)


def scale_by_learned(rule: Rule, b1: Any, b2: Any, eps: Any) -> optax.GradientTransformation:
    """Steps of Adam, corrected by a learned rule: (u - 0.1 m) exp(e) in place of the step u.

    A small network gives m and e for each parameter, from its `optimiser_features`. With an output of 0, as by
    `LearnedOptimiser.initial`, this is `optax.scale_by_adam` bit for bit.

    Args:
      rule: Update rule, traced.
      b1, b2, eps: Decay rates of the moments and constant in the denominator of Adam, `[]`, traced.

    Returns:
      Transformation of gradients as one vector, which takes the parameters as well.

    Source: Goldie et al. (2024), Can learned optimization make reinforcement learning less difficult?
    """
    adam, weights = optax.scale_by_adam(b1, b2, eps), rule.weights

    def init_fn(params: Any) -> LearnedState:
        return LearnedState(adam.init(params), jnp.zeros((len(RATES), *params.shape)))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, LearnedState]:
        # Barriers, so that XLA compiles Adam, and the addition of its step, as without a rule, and rounds alike.
        adam_step, adam_state = adam.update(updates, state.adam)
        gradient, step, moments, params = jax.lax.optimization_barrier((updates, adam_step, adam_state, params))
        count, rates = moments.count, jnp.float32(RATES)[:, None]
        size = jnp.sqrt(moments.nu / (1 - b2**count)) + eps
        momenta = rates * state.momenta + (1 - rates) * gradient
        unbiased = momenta / (1 - rates**count)
        features = optimiser_features(gradient, step, size, unbiased, params, rule.share, eps)
        units = jnp.tanh(weights.hidden.T @ features + weights.bias[:, None])
        shift, stretch = weights.out.T @ units + weights.offset[:, None]
        corrected = (step - SHIFT * shift) * jnp.exp(stretch)  # a difference, which keeps a step of -0 as well
        return jax.lax.optimization_barrier(corrected), LearnedState(adam_state, momenta)

    return optax.GradientTransformation(init_fn, update_fn)
