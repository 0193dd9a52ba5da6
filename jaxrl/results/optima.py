"""Best attainable returns of the settings of a result, or upper bounds on them, where they are known."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from envs.base import Environment, bound_of, optimum_of
from jaxrl.discounts.parsing import as_discount
from jaxrl.pytrees import PyTree
from jaxrl.results.dataset import EVAL_DISCOUNT
from jaxrl.results.format import reason

if TYPE_CHECKING:
    from jaxrl.results.description import Description, Labelled

DISCOUNTED = {"return": False, "discounted_return": True}  # the metrics that an optimum bounds
MOST_OPTIMA = 32  # different ones of one result; each may take seconds

OPTIMA, BOUNDS = "optima", "bounds"  # keys of `config.json`
NAME_OF_KIND = {OPTIMA: "optimum", BOUNDS: "bound"}

__all__ = [
    "BOUNDS",
    "DISCOUNTED",
    "MOST_OPTIMA",
    "NAME_OF_KIND",
    "OPTIMA",
    "as_recorded",
    "bounds",
    "for_config",
    "known_values",
    "known_values_of_call",
    "optima",
]


def optima(result: Labelled, metric: str) -> np.ndarray | None:
    """The precommitted optimum of every setting, see `Environment.optimum`.

    Each different pair of environment parameters and discount is computed once per process.

    Args:
      result: Result; where only its metrics were read, optima are those of its `config.json`.
      metric: Name of the metric; optima are those of the undiscounted return, or of the discounted return under the
        discount of each setting, or of `evaluate_result(discount=)`, with greedy or sampled actions.

    Returns:
      Optima, float64 `[num_settings]`, nan for settings without a known one; None if no setting has one, the metric is
      another, or more than `MOST_OPTIMA` different ones would have to be computed.
    """
    return known_values(result, metric, OPTIMA)


def bounds(result: Labelled, metric: str) -> np.ndarray | None:
    """The upper bound of every setting whose optimum is not known, see `Environment.bound`; otherwise as `optima`."""
    return known_values(result, metric, BOUNDS)


def known_values(result: Labelled, metric: str, kind: str) -> np.ndarray | None:
    """The `optima` or the `bounds` of a result.

    Args:
      result, metric: See `optima`.
      kind: `OPTIMA` or `BOUNDS`.

    Returns:
      As of `optima`.
    """
    plain = metric.removesuffix("_sampled")
    if plain not in DISCOUNTED:
        return None
    return known_values_of_call(result.description(), plain, int(result.metrics["env_step"].values[-1]), kind)


def known_values_of_call(described: Description, metric: str, env_steps: int, kind: str) -> np.ndarray | None:
    """The precommitted optimum, or the bound, of every setting of a call, before or after it ran; see `optima`.

    Args:
      described: Description of the call.
      metric: "return" or "discounted_return".
      env_steps: Number of environment steps of each run, at which a curriculum has its parameters.
      kind: `OPTIMA` or `BOUNDS`.

    Returns:
      As of `optima`.
    """
    algo = described.algo
    env = getattr(algo, "env", None)
    if algo is None and described.loaded is not None:
        return _from_config(described.loaded.get(kind), metric, len(described.settings))
    if algo is None or not isinstance(env, Environment):
        return None
    settings = range(len(described.settings))
    params = [env.default_params if described.env_params is None else _at(described.env_params, s) for s in settings]
    discounts: list[Any] = [None for _ in settings]
    evaluated = described.attrs.get(EVAL_DISCOUNT)
    if DISCOUNTED[metric] and evaluated is not None:
        try:
            discounts = [as_discount(str(evaluated)) for _ in settings]
        except ValueError:  # a discount of the user's own, whose curve its name does not tell
            return None
    elif DISCOUNTED[metric]:
        if algo.discount is None:
            return None
        batched = described.hparams is not None
        # A discount of evaluation may be the same for all hyper-parameters, without an axis of settings.
        discount = jax.vmap(algo.discount)(described.hparams) if batched else algo.discount(algo.hparams)
        discounts = [_at(discount, s) if batched else discount for s in settings]
    tasks = [
        _Task(env, (_key(each), _key(discount)), each, discount, float(np.float32(env_steps)), kind)
        for each, discount in zip(params, discounts, strict=True)
    ]
    if len(set(tasks)) > MOST_OPTIMA:
        return None
    try:
        values = np.array([_value(task) for task in tasks])
    except Exception as error:  # of any environment, for which no result is lost
        warnings.warn(
            f"the {NAME_OF_KIND[kind]} of {env.name} is left out: {reason(error)}", RuntimeWarning, stacklevel=2
        )
        return None
    return values if np.isfinite(values).any() else None


def for_config(result: Labelled) -> dict[str, dict[str, list[float | None]]]:
    """Optima and bounds of the settings by kind and metric, as `config.json` records them; None for an unknown one."""
    of_kinds = {}
    for kind in NAME_OF_KIND:
        every = {metric: known_values(result, metric, kind) for metric in DISCOUNTED if metric in result.metrics}
        of_kinds[kind] = {metric: as_recorded(values) for metric, values in every.items() if values is not None}
    return {kind: values for kind, values in of_kinds.items() if values}


def as_recorded(values: np.ndarray) -> list[float | None]:
    """Optima or bounds for JSON, None for nan."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _from_config(recorded: PyTree, metric: str, num_settings: int) -> np.ndarray | None:
    """The optima or bounds that a `config.json` records, None if it has none of that form."""
    values = recorded.get(metric) if isinstance(recorded, dict) else None
    if not isinstance(values, list) or len(values) != num_settings:
        return None
    numbers = np.array([_number(value) for value in values])
    return numbers if np.isfinite(numbers).any() else None


def _number(value: object) -> float:
    """A finite number of a file that anyone may have written, otherwise nan."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float("nan")
    try:
        number = float(value)
    except OverflowError:
        return float("nan")
    return number if np.isfinite(number) else float("nan")


@dataclasses.dataclass(frozen=True)
class _Task:
    """Environment, parameters and discount of a setting; equal if all their numbers are equal.

    Attributes:
      env: Environment.
      key: Numbers and structures of parameters and discount.
      params: Parameters, concrete.
      discount: Discount, or None.
      env_steps: Number of environment steps of the training, at which a curriculum has its parameters.
      kind: `OPTIMA` or `BOUNDS`.
    """

    env: Environment
    key: Any
    params: Any = dataclasses.field(compare=False)
    discount: Any = dataclasses.field(compare=False)
    env_steps: float
    kind: str


@functools.lru_cache(maxsize=1024)
def _value(task: _Task) -> float:
    """The optimum of a setting or, of `BOUNDS`, the bound where no optimum is known; nan if there is no finite one."""
    if task.kind == BOUNDS and np.isfinite(_optimum(task)):
        return float("nan")
    of_kind = {OPTIMA: optimum_of, BOUNDS: bound_of}[task.kind]
    try:
        params = jax.device_get(task.env.params_at(task.params, np.float32(task.env_steps)))
        value = of_kind(task.env, params, task.discount)
    except ValueError:  # a discount or parameters without a finite optimum
        return float("nan")
    return float("nan") if value is None or not np.isfinite(value) else float(value)


def _optimum(task: _Task) -> float:
    """The optimum of a setting; nan if there is no finite one or the environment fails, of which `optima` warns."""
    try:
        return _value(dataclasses.replace(task, kind=OPTIMA))
    except Exception:
        return float("nan")


def _at(tree: PyTree, setting: int) -> Any:
    return jax.tree.map(itemgetter(setting), tree)


def _key(tree: PyTree) -> tuple[Any, ...]:
    """Hashable contents of a pytree of numbers."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return (structure, *((array.shape, array.dtype.str, array.tobytes()) for array in arrays))
