"""Sweeps: many settings of the hyper-parameters as one batched pytree, with the names and values of its axes."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from jaxrl.checks import check_count, with_example
from jaxrl.discounts.parsing import GAMMA_HINT, as_discount, stack
from jaxrl.learning.composites import Composite, Curve, as_composite
from jaxrl.pytrees import HParams, PyTree
from jaxrl.sweeps.choosing import choose_setting
from jaxrl.sweeps.distributions import Choice, Distribution, LogUniform, Uniform, several_of
from jaxrl.sweeps.paths import fields_of, place, replaced

__all__ = ["Choice", "Distribution", "LogUniform", "Sweep", "Uniform", "grid", "sample"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """S settings in one batched pytree, as returned by `grid` and `sample` and taken by `train`.

    Args:
      hparams: Hyper-parameters of the base's type, every leaf `[S, ...]` float32, row-major over `shape`.
      env: Swept environment parameters `{name: [S]}`, by their names without `"env."`.
      dims: Names of the axes: the paths of a grid, `("setting",)` for a sample.
      shape: Lengths of `dims`; S is their product.
      coords: Coordinates `{path: (dims, values)}`, values as passed; a discount as the string that parses back to it.
      settings: S dictionaries `{path: value}`, in the order of the leaves.
    """

    hparams: HParams
    env: dict[str, np.ndarray]
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: dict[str, tuple[tuple[str, ...], np.ndarray]]
    settings: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.settings)

    def __repr__(self) -> str:
        if self.dims == tuple(self.coords):
            axes = " x ".join(f"{dim} ({size})" for dim, size in zip(self.dims, self.shape, strict=True))
        else:
            axes = f"sampled over {', '.join(self.coords)}"
        return f"Sweep of {len(self)} settings: {axes}"

    def index(self, **values: Any) -> int:
        """The position of the one setting that has these values.

        Args:
          **values: Values `path=value`, a path with a dot as `**{"discount.mu": 0.98}`. A discount may be a number, a
            string or an object; a path with equal values in all settings may be left out.

        Returns:
          The index along the leaves of `hparams`.

        Raises:
          ValueError: A path is not swept, or no setting has these values, or several have.
        """
        return choose_setting(self.settings, values, "this sweep")

    def subset(self, indices: Sequence[int] | np.ndarray) -> Sweep:
        """Some of the settings, along one axis `"setting"`.

        Args:
          indices: Positions along the leaves of `hparams`.
        """
        chosen = np.asarray(indices)
        places = np.unravel_index(chosen, self.shape)
        at = dict(zip(self.dims, places, strict=True))
        coords = {
            path: (("setting",), values[tuple(at[dim] for dim in dims)]) for path, (dims, values) in self.coords.items()
        }
        return Sweep(
            jax.tree.map(lambda leaf: leaf[chosen], self.hparams),
            {name: values[chosen] for name, values in self.env.items()},
            ("setting",),
            (len(chosen),),
            coords,
            [self.settings[i] for i in chosen],
        )


@with_example("grid(hparams, {'lr': [3e-4, 1e-3]})")
def grid(base: HParams, values: Mapping[str, Sequence[Any] | np.ndarray]) -> Sweep:
    """Every combination of values.

    Args:
      base: Hyper-parameters, a `flax.struct` dataclass of numbers; fields that are not swept keep their values.
      values: Values by path, `{path: values}`. A path is a field (`"lr"`), a field of a field, a parameter of the
        base's discount (`"discount.mu"`) or of the environment (`"env.gravity"`). `"discount"` takes numbers, strings
        and objects.

    Returns:
      The sweep, with the last path varying fastest.

    Raises:
      ValueError: A path is unknown, there are no values, repeated values or nan, or a discount is out of range.
      TypeError: Values are not numbers (or discounts, for `"discount"`), or the base is not hyper-parameters but, for
        example, an algorithm.
    """
    if not values:
        raise UserValueError("grid takes at least one path, such as {'lr': [3e-4, 1e-3]}, got none.")
    base = _checked_base(base, list(values))
    axes: dict[str, list[Any]] = {}
    for path, column in values.items():
        axis = _alike(path, [_checked(path, value) for value in several_of(path, column)])
        labels = [_label(path, value) for value in axis]
        for i, label in enumerate(labels):
            if any(_same(label, earlier) for earlier in labels[:i]):
                raise UserValueError(f"{path!r} has the value {label!r} twice.")
        axes[path] = axis
    shape = tuple(len(axis) for axis in axes.values())
    places = np.indices(shape).reshape(len(shape), -1)
    columns = {path: [axis[i] for i in place] for (path, axis), place in zip(axes.items(), places, strict=True)}
    coords = {path: ((path,), _coordinate(path, axis)) for path, axis in axes.items()}
    return _sweep(base, columns, tuple(axes), shape, coords)


@with_example("sample(hparams, 100, {'lr': LogUniform(1e-5, 1e-2)})")
def sample(base: HParams, n: int, distributions: Mapping[str, Distribution], seed: int = 0) -> Sweep:
    """A random design of `n` settings.

    Args:
      base: Hyper-parameters, as in `grid`.
      n: Number of settings.
      distributions: `{path: Uniform | LogUniform | Choice}`, or any objects with their `draw`; paths as in `grid`.
      seed: Random seed; equal seeds give equal designs. Each path draws from its own stream, so adding a path leaves
        the others unchanged, and the first settings of a larger design are those of a smaller one for Uniform and
        LogUniform.

    Returns:
      The sweep, along one axis `"setting"`.

    Raises:
      ValueError, TypeError: See `grid`, except that settings may repeat.
    """
    n, seed = (int(number) if isinstance(number, np.integer) else number for number in (n, seed))
    check_count("n", n)
    check_count("seed", seed, 0)
    if not distributions:
        raise UserValueError("sample takes at least one path, such as {'lr': LogUniform(1e-4, 1e-2)}, got none.")
    base = _checked_base(base, list(distributions))
    columns = {}
    for path, distribution in distributions.items():
        if not isinstance(distribution, Distribution) or isinstance(distribution, type):
            raise UserTypeError(f"{path!r} takes a distribution such as Uniform(0, 1), got {distribution!r}.")
        generator = np.random.default_rng([seed, zlib.crc32(path.encode())])
        columns[path] = _alike(path, [_checked(path, value) for value in distribution.draw(generator, n)])
    coords = {path: (("setting",), _coordinate(path, column)) for path, column in columns.items()}
    return _sweep(base, columns, ("setting",), (n,), coords)


def swept(base: HParams, dims: Sequence[str], coords: Mapping[str, tuple[tuple[str, ...], np.ndarray]]) -> Sweep:
    """The sweep that `grid` or `sample` returned for a base, from the names and values of its axes.

    Args:
      base: Hyper-parameters; fields that are not swept keep their values.
      dims, coords: Fields of the sweep.
    """
    sizes = {dim: size for on, values in coords.values() for dim, size in zip(on, values.shape, strict=True)}
    shape = tuple(sizes[dim] for dim in dims)
    at = dict(zip(dims, np.indices(shape).reshape(len(shape), -1), strict=True))
    columns = {
        path: [_checked(path, value) for value in values[tuple(at[dim] for dim in on)].tolist()]
        for path, (on, values) in coords.items()
    }
    return _sweep(_checked_base(base, list(columns)), columns, tuple(dims), shape, dict(coords))


def _checked_base(base: HParams, paths: Sequence[str]) -> Any:
    """The base, with its discount as an object, after a check that it has these paths."""
    if not dataclasses.is_dataclass(base) or isinstance(base, type):
        raise UserTypeError(f"base takes hyper-parameters, such as algo.hparams, got {type(base).__name__}.")
    if "discount" in paths and any(path.startswith("discount.") for path in paths):
        raise UserValueError("'discount' and a parameter of it ('discount. ...') cannot be swept together.")
    discount = getattr(base, "discount", None)
    if isinstance(discount, int | float | str):
        base = dataclasses.replace(base, discount=as_discount(discount))
    for path in paths:
        if not path.startswith("env."):
            _check_path(base, path)
    return base


def _sweep(
    base: HParams,
    columns: dict[str, list[Any]],
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    coords: dict[str, tuple[tuple[str, ...], np.ndarray]],
) -> Sweep:
    count = math.prod(shape)
    fields, env = {}, {}
    for path, column in columns.items():
        if path.startswith("env."):
            env[path.removeprefix("env.")] = np.asarray(column)
        else:
            fields[path] = column
    settings = [replaced(base, {path: column[i] for path, column in fields.items()}) for i in range(count)]
    hparams = {}
    for name in fields_of(base):
        members = [getattr(setting, name) for setting in settings]
        hparams[name] = stack(members) if name == "discount" else _batched(members)
    labels = [{path: _label(path, column[i]) for path, column in columns.items()} for i in range(count)]
    return Sweep(dataclasses.replace(base, **hparams), env, dims, shape, coords, labels)


def _batched(members: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), *members)


def _check_path(base: HParams, path: str) -> None:
    """Reject a path that leads neither to a number nor to a discount of the base."""
    at = place(base, path)
    if at.there:
        if at.known and path.rpartition(".")[2] != "discount":
            raise UserValueError(f"{path!r} has parts of its own; sweep {' or '.join(at.known)}.")
        return
    if path == "gamma" and "discount" in at.known:
        raise UserValueError(f"There is no hyper-parameter 'gamma'; {GAMMA_HINT}")
    if not at.known:
        raise UserValueError(f"There is no hyper-parameter {path!r}; {at.inside.rstrip('.')!r} has no parts.")
    static = "" if at.inside else "; a static setting of the algorithm's config takes an algorithm for each value"
    hint = near(path, at.known) or f"; there are {', '.join(at.known)}{static}."
    raise UserValueError(f"There is no hyper-parameter {path!r}{hint}")


def _checked(path: str, value: object) -> Any:
    """The value in the form in which it is used: a discount or curve as an object, others a number that is not nan."""
    if path == "discount":
        return as_discount(value)
    if isinstance(value, str):
        value = as_composite(value) or value
    if isinstance(value, Composite):
        return value
    if isinstance(value, np.generic | np.ndarray | jax.Array) and np.ndim(value) == 0:
        value = np.asarray(value).item()
    if isinstance(value, bool) and not path.startswith("env."):
        raise UserTypeError(f"{path!r} takes numbers, got {value!r}.")
    if not isinstance(value, int | float):
        raise UserTypeError(f"{path!r} takes numbers, got {value!r}.")
    if math.isnan(value):
        raise UserValueError(f"{path!r} has the value nan.")
    return value


def _alike(path: str, values: list[Any]) -> list[Any]:
    """The values of a path, with numbers beside curves as constant curves, so that all settings share a program."""
    composites = [value for value in values if isinstance(value, Composite)]
    if not composites:
        return values
    first = composites[0]
    if isinstance(first, Curve):
        values = [value if isinstance(value, Composite) else Curve([value] * len(first.values)) for value in values]
    sizes = [list(map(np.shape, jax.tree.leaves(value))) for value in values]
    if any(type(value) is not type(first) or size != sizes[0] for value, size in zip(values, sizes, strict=True)):
        listing = " and ".join(dict.fromkeys(map(repr, values)))
        raise UserValueError(f"{path!r} takes curves with equal numbers of points in one sweep, got {listing}.")
    return values


def _label(path: str, value: object) -> Any:
    return str(as_discount(value)) if path == "discount" else str(value) if isinstance(value, Composite) else value


def _same(one: PyTree, other: PyTree) -> bool:
    """Whether values are equal as typed, or equal as floats in float32, the precision in which they are used."""
    if one == other:
        return True
    if not (isinstance(one, float | np.floating) or isinstance(other, float | np.floating)):
        return False
    if isinstance(one, str) or isinstance(other, str):
        return False
    with np.errstate(over="ignore"):
        return bool(np.float32(one) == np.float32(other))


def _coordinate(path: str, values: list[Any]) -> np.ndarray:
    return np.asarray([_label(path, value) for value in values])
