"""Action distributions: conversion of a network's outputs to actions of a space."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import distrax
import jax
import jax.numpy as jnp
import numpy as np

from envs.base import spaces
from envs.choices import choice_sizes, in_space
from envs.errors import UserTypeError
from jaxrl.pytrees import Mask, Number

Scores = dict[str, jax.Array]


class ActionHead(NamedTuple):
    """Functions that convert a network's outputs to actions of one space.

    The *raw* action is stored and scored: an int32 for a `Discrete` space, int32 `[branches]` for a space of several
    choices, float32 `[num_outputs]` for a `Box`. Arrays may have any leading axes.

    Attributes:
      num_outputs: Number of outputs of the network for one observation.
      continuous: Whether the distribution is normal and needs a log standard deviation.
      scores: Function `(outputs, log_std) -> Scores`, the parameters of the distribution by name: `logits`, or `mean`
        and `std`.
      noise: Function `(key, shape) -> [*shape, num_outputs]`, the noise that `sample` consumes; drawn in bulk.
      sample: Function `(scores, mask, noise) -> raw action`.
      mode: Function `(scores, mask) -> raw action`, the most probable one.
      log_prob: Function `(scores, mask, raw) -> [...]`.
      entropy: Function `(scores, mask) -> [...]`.
      kl: Function `(scores, others, mask) -> [...]`, the exact divergence KL(scores || others).
      to_env: Function `(raw) -> action`, for one observation or any leading axes; a bounded `Box` maps
        [-1, 1] onto its bounds and clips.
      branches: Numbers of choices of the parts of an action; None for one choice, and for numbers.
    """

    num_outputs: int
    continuous: bool
    scores: Callable[[jax.Array, Any], Scores]
    noise: Callable[[jax.Array, tuple[int, ...]], jax.Array]
    sample: Callable[[Scores, Any, jax.Array], jax.Array]
    mode: Callable[[Scores, Any], jax.Array]
    log_prob: Callable[[Scores, Any, jax.Array], jax.Array]
    entropy: Callable[[Scores, Any], jax.Array]
    kl: Callable[[Scores, Scores, Any], jax.Array]
    to_env: Callable[[jax.Array], Any]
    branches: tuple[int, ...] | None = None


def action_head(space: spaces.Space) -> ActionHead:
    """Head for an action space: `Discrete`, several discrete choices (`choice_sizes`), or `Box` of floats.

    Args:
      space: Action space of one agent, with concrete bounds.

    Raises:
      TypeError: The space is of another type.
    """
    if isinstance(space, spaces.Discrete):
        return _categorical(space)
    if choice_sizes(space):
        return _several_categoricals(space)
    if isinstance(space, spaces.Box) and jnp.issubdtype(space.dtype, jnp.floating):
        return _normal(space)
    raise UserTypeError(
        f"action_space must be Discrete, MultiDiscrete, a Tuple or Dict of these, or a Box of floats, got {space!r}"
    )


def _masked(logits: jax.Array, mask: jax.Array | None) -> jax.Array:
    """The logits with disallowed actions at a probability of exactly 0, still finite."""
    if mask is not None:
        chex.assert_axis_dimension(mask, -1, logits.shape[-1], custom_message="mask")
    return logits if mask is None else jnp.where(mask, logits, jnp.finfo(logits.dtype).min)


def _logits(outputs: jax.Array, log_std: Number) -> Scores:
    del log_std
    return {"logits": outputs}


def _categorical(space: spaces.Discrete) -> ActionHead:
    def log_prob(scores: Scores, mask: Mask, raw: jax.Array) -> jax.Array:
        chex.assert_shape(scores["logits"], (..., space.n), custom_message="logits")
        chex.assert_shape(raw, scores["logits"].shape[:-1], custom_message="raw")
        return jnp.asarray(distrax.Categorical(logits=_masked(scores["logits"], mask)).log_prob(raw))

    def entropy(scores: Scores, mask: Mask) -> jax.Array:
        chex.assert_shape(scores["logits"], (..., space.n), custom_message="logits")
        return jnp.asarray(distrax.Categorical(logits=_masked(scores["logits"], mask)).entropy())

    def kl(scores: Scores, others: Scores, mask: Mask) -> jax.Array:
        chex.assert_shape([scores["logits"], others["logits"]], (..., space.n), custom_message="scores, others")
        one, other = (distrax.Categorical(logits=_masked(each["logits"], mask)) for each in (scores, others))
        return jnp.asarray(one.kl_divergence(other))

    def mode(scores: Scores, mask: Mask) -> jax.Array:
        chex.assert_shape(scores["logits"], (..., space.n), custom_message="logits")
        return jnp.argmax(_masked(scores["logits"], mask), axis=-1).astype(jnp.int32)

    def sample(scores: Scores, mask: Mask, noise: jax.Array) -> jax.Array:
        chex.assert_shape([scores["logits"], noise], (..., space.n), custom_message="logits, noise")
        # The Gumbel-max trick: the arg max of logits + Gumbel noise is a categorical sample.
        return mode({"logits": scores["logits"] + noise}, mask)

    return ActionHead(
        num_outputs=space.n,
        continuous=False,
        scores=_logits,
        noise=lambda key, shape: jax.random.gumbel(key, (*shape, space.n)),
        sample=sample,
        mode=mode,
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
        to_env=lambda raw: raw,
    )


def _several_categoricals(space: spaces.Space) -> ActionHead:
    sizes = choice_sizes(space)
    heads = [_categorical(spaces.Discrete(size)) for size in sizes]
    ends = np.cumsum(sizes)[:-1].tolist()

    def branches(scores: Scores, mask: Mask) -> list[tuple[ActionHead, Scores, Any]]:
        chex.assert_shape(scores["logits"], (..., sum(sizes)), custom_message="logits")
        masks = [None] * len(heads) if mask is None else jax.tree.leaves(mask)
        parts = [{"logits": part} for part in jnp.split(scores["logits"], ends, axis=-1)]
        return list(zip(heads, parts, masks, strict=True))

    def sample(scores: Scores, mask: Mask, noise: jax.Array) -> jax.Array:
        chex.assert_shape(noise, (..., sum(sizes)), custom_message="noise")
        parts = zip(branches(scores, mask), jnp.split(noise, ends, axis=-1), strict=True)
        return jnp.stack([head.sample(part, allowed, drawn) for (head, part, allowed), drawn in parts], -1)

    def mode(scores: Scores, mask: Mask) -> jax.Array:
        return jnp.stack([head.mode(part, allowed) for head, part, allowed in branches(scores, mask)], -1)

    def log_prob(scores: Scores, mask: Mask, raw: jax.Array) -> jax.Array:
        chex.assert_shape(raw, (*scores["logits"].shape[:-1], len(sizes)), custom_message="raw")
        parts = enumerate(branches(scores, mask))
        total = [head.log_prob(part, allowed, raw[..., i]) for i, (head, part, allowed) in parts]
        return jnp.sum(jnp.stack(total), axis=0)

    def entropy(scores: Scores, mask: Mask) -> jax.Array:
        parts = [head.entropy(part, allowed) for head, part, allowed in branches(scores, mask)]
        return jnp.sum(jnp.stack(parts), axis=0)

    def kl(scores: Scores, others: Scores, mask: Mask) -> jax.Array:
        pairs = zip(branches(scores, mask), branches(others, mask), strict=True)
        parts = [head.kl(one, other, allowed) for (head, one, allowed), (_, other, _) in pairs]
        return jnp.sum(jnp.stack(parts), axis=0)

    return ActionHead(
        num_outputs=sum(sizes),
        continuous=False,
        scores=_logits,
        noise=lambda key, shape: jax.random.gumbel(key, (*shape, sum(sizes))),
        sample=sample,
        mode=mode,
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
        to_env=lambda raw: in_space(space, [raw[..., i] for i in range(len(sizes))]),
        branches=sizes,
    )


def _normal(space: spaces.Box) -> ActionHead:
    shape = tuple(space.shape)
    size = math.prod(shape)
    low = np.broadcast_to(np.asarray(space.low, np.float64), shape).reshape(size)
    high = np.broadcast_to(np.asarray(space.high, np.float64), shape).reshape(size)
    largest = float(np.finfo(np.float32).max)
    bounded = (low > -largest) & (high < largest)
    lower, upper = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    centre = ((lower + upper) / 2).astype(np.float32)
    half_width = ((upper - lower) / 2).astype(np.float32)

    def scores(outputs: jax.Array, log_std: jax.Array) -> Scores:
        chex.assert_shape(outputs, (..., size), custom_message="outputs")
        chex.assert_is_broadcastable(jnp.shape(log_std), outputs.shape, custom_message="log_std")
        return {"mean": outputs, "std": jnp.broadcast_to(jnp.exp(log_std), outputs.shape)}

    def distribution(scores: Scores) -> "distrax.Distribution[Any, Any, Any]":
        return distrax.Independent(distrax.Normal(scores["mean"], scores["std"]), reinterpreted_batch_ndims=1)

    def log_prob(scores: Scores, mask: Mask, raw: jax.Array) -> jax.Array:
        del mask
        chex.assert_equal_shape([scores["mean"], raw], custom_message="mean, raw")
        return jnp.asarray(distribution(scores).log_prob(raw))

    def entropy(scores: Scores, mask: Mask) -> jax.Array:
        del mask
        chex.assert_shape(scores["mean"], (..., size), custom_message="mean")
        return jnp.asarray(distribution(scores).entropy())

    def kl(scores: Scores, others: Scores, mask: Mask) -> jax.Array:
        del mask
        chex.assert_shape([scores["mean"], others["mean"]], (..., size), custom_message="scores, others")
        return jnp.asarray(distribution(scores).kl_divergence(distribution(others)))

    def sample(scores: Scores, mask: Mask, noise: jax.Array) -> jax.Array:
        del mask
        chex.assert_shape([scores["mean"], noise], (..., size), custom_message="mean, noise")
        return scores["mean"] + scores["std"] * noise

    def to_env(raw: jax.Array) -> jax.Array:
        chex.assert_shape(raw, (..., size), custom_message="raw")
        action = jnp.clip(centre + half_width * raw, low.astype(np.float32), high.astype(np.float32))
        return action.reshape(raw.shape[:-1] + shape).astype(space.dtype)

    return ActionHead(
        num_outputs=size,
        continuous=True,
        scores=scores,
        noise=lambda key, shape: jax.random.normal(key, (*shape, size)),
        sample=sample,
        mode=lambda scores, mask: scores["mean"],
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
        to_env=to_env,
    )


def sample_squashed(mean: jax.Array, log_std: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Samples of tanh of a normal variable with independent components, and their log-probabilities.

    A log-probability is computed from the variable before tanh: it is finite, and exact up to rounding, where the
    sample is -1 or 1 in float32. Gradients with respect to `mean` and `log_std` are those of the reparameterised
    sample.

    Args:
      mean: Means before tanh, `[..., n]`.
      log_std: Logarithms of the standard deviations before tanh, `[..., n]`.
      noise: Standard normal noise, `[..., n]`.

    Returns:
      Samples `[..., n]` in [-1, 1], and their log-densities `[...]`.

    Source: Haarnoja et al. (2018), arXiv 1801.01290, appendix C.
    """
    chex.assert_equal_shape([mean, log_std, noise], custom_message="mean, log_std, noise")
    before = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
    return jnp.tanh(before), jnp.sum(log_normal - _log_slope(before), axis=-1)


def _log_slope(value: jax.Array) -> jax.Array:
    """The logarithm of the slope of tanh, log(1 - tanh(value)^2), without a difference of large numbers."""
    size = jnp.abs(value)
    return 2 * (math.log(2) - size - jnp.log1p(jnp.exp(-2 * size)))
