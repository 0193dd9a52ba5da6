"""Optimisers of all algorithms that follow gradients, a learned one among them, and schedules by environment steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from envs.arguments import described
from envs.errors import UserTypeError
from jaxrl.checks import check_function
from jaxrl.importing import imported
from jaxrl.learning.composites import Perceptron
from jaxrl.pytrees import HParams, Number

_EXAMPLE = "lambda lr: optax.adamw(lr, weight_decay=1e-3)"

# Factory of an optimiser from a step size `[]`, traced, or its path `module:name`; None for Adam, "learned" for a rule
# among the hyper-parameters.
Optimiser = Callable[[jax.Array], optax.GradientTransformation] | str | None
LEARNED = "learned"  # value of the field `optimiser` of configurations
RATES = (0.5, 0.99, 0.999)  # decay rates of the momenta beside Adam's
SHIFT = 0.1  # share of a step of Adam of full length that an output of 1 adds
LEAST = 1e-8  # of the size of parameters, by which those of zeros can be divided
ADAM_HPARAMS = ("adam_b1", "adam_b2", "adam_eps")

__all__ = [
    "ADAM_HPARAMS",
    "LEARNED",
    "LearnedOptimiser",
    "LearnedState",
    "Optimiser",
    "Rule",
    "adam",
    "check_optimiser",
    "check_transformation",
    "custom",
    "linear_share",
    "optimiser_features",
    "scale_by_learned",
    "tenth_share",
    "transformation",
]


def adam(hparams: HParams, lr: jax.Array | float, rule: Rule | None = None) -> optax.GradientTransformation:
    """Adam with gradients clipped by their global norm.

    It runs on one long vector instead of many small arrays: a third of the operations of a minibatch on a CPU.

    Args:
      hparams: Hyper-parameters with `max_grad_norm`, `adam_b1`, `adam_b2` and `adam_eps`, traced.
      lr: Step size, `[]`, traced.
      rule: Learned rule that corrects the steps, traced; None for Adam as it is.
    """
    numbers = hparams.adam_b1, hparams.adam_b2, hparams.adam_eps
    steps = optax.scale_by_adam(*numbers) if rule is None else scale_by_learned(rule, *numbers)
    return optax.flatten(optax.chain(_clipping(hparams), steps, optax.scale_by_learning_rate(lr)))


def custom(optimiser: Callable[[jax.Array], Any] | str, lr: Number) -> optax.GradientTransformation:
    """Transformation of a custom factory.

    Args:
      optimiser: Factory, or its path.
      lr: Step size, `[]`, traced.
    """
    factory = imported(optimiser, "optimiser") if isinstance(optimiser, str) else optimiser
    return factory(jnp.asarray(lr, jnp.float32))


def transformation(optimiser: Optimiser, hparams: HParams, lr: jax.Array | float) -> optax.GradientTransformation:
    """Adam, or the transformation of a custom factory, of gradients clipped by their global norm.

    A custom transformation gets parameters and gradients as the network has them, not as one vector.

    Args:
      optimiser: Factory, or its path; None for `adam`, "learned" for it with the rule in `hparams.optimiser`.
      hparams: Hyper-parameters with `max_grad_norm`, and those of Adam where it is the optimiser, traced.
      lr: Step size, `[]`, traced.
    """
    if optimiser is None:
        return adam(hparams, lr)
    if optimiser == LEARNED:
        return adam(hparams, lr, hparams.optimiser)
    return optax.chain(optax.flatten(_clipping(hparams)), custom(optimiser, lr))


def _clipping(hparams: HParams) -> optax.GradientTransformation:
    return optax.clip_by_global_norm(hparams.max_grad_norm)


def check_optimiser(optimiser: Any, learned: bool = False) -> None:
    """Reject a value that is not a factory of optimisers, without a call of it.

    Args:
      optimiser: Value of the field `optimiser` of a configuration.
      learned: Whether the configuration takes "learned".

    Raises:
      TypeError: It is not a function of a step size, or not hashable.
      ValueError: There is no function of this path.
    """
    if optimiser is None or (learned and optimiser == LEARNED):
        return
    takes = f"optimiser takes a function of the step size, such as {_EXAMPLE}, or its path, such as 'optax:adamw'"
    if _transforms(optimiser):
        raise UserTypeError(f"{takes}, got a transformation; a function that returns it has the step size as argument")
    if isinstance(optimiser, str):
        if ":" not in optimiser:
            other = f", or {LEARNED!r}" if learned else ""
            hint = f"; on-policy algorithms alone take {LEARNED!r}" if optimiser == LEARNED else ""
            raise UserTypeError(f"{takes}{other}, got {optimiser!r}{hint}")
        optimiser = imported(optimiser, "optimiser")
    elif not callable(optimiser):
        raise UserTypeError(f"{takes}, got {optimiser!r}")
    check_function("optimiser", optimiser, ("lr",))
    try:
        hash(optimiser)
    except TypeError:
        raise UserTypeError(f"optimiser must be hashable, got {type(optimiser).__name__}") from None


@functools.lru_cache(maxsize=64)
def check_transformation(optimiser: Optimiser) -> None:
    """Reject a factory whose result cannot transform gradients; nothing is compiled.

    Args:
      optimiser: Factory, or its path; None for `adam`, "learned" for a learned one.

    Raises:
      TypeError: It fails for a traced step size, returns something else than a transformation, or one that takes
        more than gradients and parameters.
    """
    if optimiser is None or optimiser == LEARNED:
        return
    problems: list[UserTypeError | None] = []  # raised below, because JAX adds lines to an error that is raised inside
    jax.eval_shape(lambda lr: problems.append(_problem(optimiser, lr)), jax.ShapeDtypeStruct((), jnp.float32))
    if problems[0] is not None:
        raise problems[0]


def _problem(optimiser: Callable[[jax.Array], Any] | str, lr: jax.Array) -> UserTypeError | None:
    """Reason to reject a factory, None if there is none, from its result for a traced step size."""
    try:
        result = custom(optimiser, lr)
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if isinstance(error, jax.errors.TracerBoolConversionError):
            reason = "a schedule that computes with numbers alone is a factor, as in lambda count: lr * schedule(count)"
        return UserTypeError(
            f"optimiser must return a transformation for a traced step size, got {type(error).__name__}: {reason}"
        )
    if not _transforms(result):
        got = described(result) if isinstance(result, jax.Array) else type(result).__name__
        is_schedule = callable(result) or isinstance(result, jax.Array)
        hint = "; a schedule is an argument of an optimiser of optax" if is_schedule else ""
        return UserTypeError(
            f"optimiser must return an optax.GradientTransformation, as {_EXAMPLE} does, got {got}{hint}"
        )
    params = {"kernel": jnp.zeros((2, 3)), "bias": jnp.zeros(3)}
    try:
        result.update(params, result.init(params), params)
    except Exception as error:
        # One for other parameters than these is not rejected.
        if isinstance(error, TypeError) and "keyword-only" in str(error):
            return UserTypeError(
                f"optimiser must return a transformation of gradients and parameters alone, got one that takes "
                f"{str(error).partition(': ')[2]} as well"
            )
    return None


def _transforms(value: object) -> bool:
    """Whether a value has the functions of an `optax.GradientTransformation`."""
    return callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))


def linear_share(env_steps: jax.Array, end: jax.Array | float, anneal_env_steps: Number) -> jax.Array:
    """Factor that falls linearly from 1 to `end`, and stays there.

    Args:
      env_steps: Number of environment steps so far, `[]`, traced.
      end: Final factor, `[]`, traced.
      anneal_env_steps: Number of environment steps over which the factor falls, `[]`, traced; infinity keeps 1.
    """
    chex.assert_rank([env_steps, end, anneal_env_steps], 0, custom_message="env_steps, end, anneal_env_steps")
    return 1 + (end - 1) * jnp.minimum(env_steps / anneal_env_steps, 1.0)


def tenth_share(env_steps: jax.Array, decay_env_steps: Number) -> jax.Array:
    """Factor that falls exponentially from 1.

    Args:
      env_steps: Number of environment steps so far, `[]`, traced.
      decay_env_steps: Number of environment steps in which the factor falls to a tenth, `[]`, traced; infinity keeps 1.
    """
    chex.assert_rank([env_steps, decay_env_steps], 0, custom_message="env_steps, decay_env_steps")
    return 0.1 ** (env_steps / decay_env_steps)


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
    `LearnedOptimiser.initial`, this is `optax.scale_by_adam` bit for bit; with JAX 0.11, up to rounding.

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
