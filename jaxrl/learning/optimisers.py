"""Optimisers of all algorithms that follow gradients, and schedules: factors by number of environment steps."""

import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from envs.arguments import described
from envs.errors import UserTypeError
from jaxrl.checks import check_function
from jaxrl.importing import imported
from jaxrl.learning.learned_optimiser import LEARNED, Rule, scale_by_learned
from jaxrl.pytrees import HParams, Number

_EXAMPLE = "lambda lr: optax.adamw(lr, weight_decay=1e-3)"

# Factory of an optimiser from a step size `[]`, traced, or its path `module:name`; None for Adam, "learned" for a rule
# among the hyper-parameters.
Optimiser = Callable[[jax.Array], optax.GradientTransformation] | str | None
ADAM_HPARAMS = ("adam_b1", "adam_b2", "adam_eps")

__all__ = [
    "ADAM_HPARAMS",
    "Optimiser",
    "adam",
    "check_optimiser",
    "check_transformation",
    "custom",
    "linear_share",
    "tenth_share",
    "transformation",
]


def adam(hparams: HParams, lr: Number, rule: Rule | None = None) -> optax.GradientTransformation:
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


def transformation(optimiser: Optimiser, hparams: HParams, lr: Number) -> optax.GradientTransformation:
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


def linear_share(env_steps: jax.Array, end: Number, anneal_env_steps: Number) -> jax.Array:
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
