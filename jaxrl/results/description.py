"""Description of a call, before and after it ran: how `config.json` records it, and how it is read back."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from envs.base import Environment
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.discounts.families import Family
from jaxrl.discounts.parsing import Discount, as_discount, stack
from jaxrl.learning.composites import Composite, as_composite, is_composite_text, stack_composites
from jaxrl.pytrees import EnvParams, HParams
from jaxrl.results.dataset import RETURN_RANGE, UNKNOWN, ResultError
from jaxrl.results.json_values import versions
from jaxrl.sweeps.paths import leaves
from jaxrl.version import __version__

if TYPE_CHECKING:
    import xarray

OTHER_PARAMS = "different from the environment's defaults in non-numeric fields"

__all__ = ["Description", "Labelled", "attribute", "config_of", "env_params", "hparams", "plain", "return_range"]


@dataclasses.dataclass(frozen=True)
class Description:
    """Description of a call; equal for the call and for its result.

    Attributes:
      algo: Algorithm, or None if it is unknown.
      hparams: Batched pytree `[num_settings]`; None for those of `algo`.
      env_params: Parameters of the environment, a batched pytree `[num_settings]`; None for its defaults.
      seeds: Seeds of the call.
      dims: Dimensions of the sweep, in order, with their sizes; empty for a single setting.
      coords: Coordinates of the sweep, `{path: (dims, values)}`.
      attrs: Strings and numbers that describe the whole call, including the names of algorithm and environment.
      loaded: Contents of the `config.json` from which the description was read; None if it was not read.
    """

    algo: Algorithm | None
    hparams: HParams
    env_params: EnvParams
    seeds: Sequence[int]
    dims: Mapping[str, int]
    coords: Mapping[str, tuple[tuple[str, ...], np.ndarray]]
    attrs: Mapping[str, Any]
    loaded: Mapping[str, Any] | None = None

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The coordinates of every setting, `{path: value}`, row-major over `dims`."""
        settings = []
        for index in np.ndindex(*self.dims.values()):
            at = dict(zip(self.dims, index, strict=True))
            setting = {}
            for path, (on, values) in self.coords.items():
                value = values[tuple(at[dim] for dim in on)]
                setting[path] = value.item() if isinstance(value, np.generic) else value
            settings.append(setting)
        return settings


class Labelled(Protocol):
    """The part of `jaxrl.Result` that tables, pictures and files use; see there for each member."""

    @property
    def metrics(self) -> xarray.Dataset: ...

    @property
    def policies(self) -> Any: ...

    @property
    def best(self) -> Any: ...

    @property
    def dims(self) -> tuple[str, ...]: ...

    @property
    def seeds(self) -> list[int]: ...

    @property
    def settings(self) -> list[dict[str, Any]]: ...

    def values(self, metric: str) -> np.ndarray: ...

    def failed_runs(self) -> np.ndarray: ...

    def description(self) -> Description: ...


def config_of(described: Description) -> dict[str, Any]:
    """The contents of `config.json` for a call; for a loaded result, those of its own `config.json`."""
    reason = described.attrs.get(UNKNOWN, "the result was made without one")
    loaded = described.loaded or {}
    spec: dict[str, Any] = {"algorithm": None, UNKNOWN: reason}
    if described.algo is not None:
        spec = _spec(described, described.algo)
        own = described.hparams is None and "hparams" in loaded
        spec["hparams"] = loaded["hparams"] if own else _hparams(described, described.algo)
    elif loaded:
        whole = loaded.get("algorithm") is not None  # its module is not allowed or not available
        spec = {name: loaded.get(name) for name in ("algorithm", "environment", "config")} if whole else spec
        spec |= {name: loaded[name] for name in ("name", "hparams", "env_params") if name in loaded}
    return spec | {
        "sweep": {
            "dims": list(described.dims),
            "coords": {
                path: {"dims": list(on), "values": values.tolist()} for path, (on, values) in described.coords.items()
            },
        },
        "seeds": list(described.seeds),
        "attributes": {str(name): attribute(value) for name, value in described.attrs.items()},
        "devices": loaded.get("devices", [f"{at.platform}:{at.id} {at.device_kind}" for at in jax.devices()]),
        "versions": loaded.get("versions", versions()),
    }


def _spec(described: Description, algo: Algorithm) -> dict[str, Any]:
    """The algorithm and the environment's parameters as plain values; None and the reason if they have no such form."""
    spec: dict[str, Any] = {"env_params": None}
    if described.env_params is not None:
        if jax.tree.structure(described.env_params) != jax.tree.structure(algo.env.default_params):
            spec["env_params"] = OTHER_PARAMS
            return {"algorithm": None, UNKNOWN: f"its env_params are {OTHER_PARAMS}", "name": algo.name} | spec
        spec["env_params"] = {name: np.asarray(leaf).tolist() for name, leaf in leaves(described.env_params)}
    try:
        return dict(algorithms.describe(algo)) | spec
    except (TypeError, ValueError) as error:
        return {"algorithm": None, UNKNOWN: str(error).rstrip("."), "name": algo.name} | spec


def _hparams(described: Description, algo: Algorithm) -> dict[str, Any]:
    """Every hyper-parameter as a number or a discount's string: one, or a list over the settings."""
    settings = described.settings
    batched = described.hparams is not None
    hparams = described.hparams if batched else algo.hparams
    entries = {}
    for field in dataclasses.fields(hparams) if dataclasses.is_dataclass(hparams) else ():
        value = getattr(hparams, field.name)
        if field.name in settings[0]:
            values = [setting[field.name] for setting in settings]
        elif batched:
            values = [plain(jax.tree.map(itemgetter(s), value)) for s in range(len(settings))]
        else:
            values = [plain(value)]
        entries[field.name] = values[0] if all(value == values[0] for value in values) else values
    return entries


def plain(value: object) -> Any:
    """A hyper-parameter as a number, a discount or curve as a string; None for a discount that is already resolved."""
    if isinstance(value, int | float | np.ndarray | np.generic | jax.Array):
        return float(np.format_float_positional(np.float32(value)))
    return str(value) if isinstance(value, Family | Composite) else None


def attribute(value: object) -> Any:
    """A value that netCDF can store: strings and numbers unchanged, anything else as JSON."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=str)


def return_range(algo: Any, env_params: EnvParams) -> dict[str, float]:
    """The attributes of a result with the range of its returns over all settings, where the environment states one.

    Args:
      algo: Algorithm with its environment, or a policy of a bandit, or None.
      env_params: Parameters of the environment, leaves `[num_settings]`; None for its defaults.
    """
    env = getattr(algo, "env", None)
    if not isinstance(env, Environment):
        return {}
    ends = env.stated_return_range(env.default_params if env_params is None else env_params)
    if ends is None:
        return {}
    return dict(zip(RETURN_RANGE, (float(np.min(ends[0])), float(np.max(ends[1]))), strict=True))


def _of_earlier_release(config: dict[str, Any]) -> bool:
    """Whether an earlier release of jaxrl wrote a description, so that its fields may lack later ones."""
    written = config.get("versions")
    release = str(written.get("jaxrl")) if isinstance(written, dict) else ""
    if re.fullmatch(r"\d+\.\d+\.\d+", release) is None:
        return False
    return [int(number) for number in release.split(".")] < [int(number) for number in __version__.split(".")]


def env_params(file: Path, config: dict[str, Any], algo: Algorithm, num_settings: int) -> Any:
    """The environment's parameters `[num_settings]` used in training, None for its defaults.

    Raises:
      ResultError: They do not match the algorithm's environment.
    """
    saved, params = config.get("env_params"), algo.env.default_params
    if saved is None:
        return None
    by_path = dict(leaves(params))
    if isinstance(saved, dict) and _of_earlier_release(config):
        later = {name: leaf for name, leaf in by_path.items() if name not in saved}
        saved = {name: np.broadcast_to(leaf, (num_settings, *np.shape(leaf))) for name, leaf in later.items()} | saved
    where = f"{file} does not fit the environment {algo.env.name}:"
    if not isinstance(saved, dict) or set(saved) != set(by_path):
        has = f"the parameters {', '.join(saved)}" if isinstance(saved, dict) else f"env_params {saved!r}"
        raise ResultError(f"{where} it has {has}, not {', '.join(by_path)}.")
    arrays = []
    for name, leaf in by_path.items():
        dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
        shape = (num_settings, *np.shape(leaf))
        try:
            array = np.asarray(saved[name])
        except ValueError:  # lists of different lengths
            array = np.asarray(None)
        if array.shape != shape or array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ResultError(f"{where} its {name} is not {dtype}{list(shape)}.")
        arrays.append(array.astype(dtype))
    return jax.tree.unflatten(jax.tree.structure(params), arrays)


def hparams(config: dict[str, Any], algo: Algorithm, num_settings: int) -> tuple[Any, list[Any]] | None:
    """The hyper-parameters of the runs, float32 `[num_settings]`, and those of every setting.

    Returns:
      The batched hyper-parameters and a list with those of each setting; None if the algorithm does not take them.
    """
    read, defaults = config.get("hparams"), algo.hparams
    if not dataclasses.is_dataclass(defaults) or isinstance(defaults, type) or not isinstance(read, dict):
        return None
    names = [field.name for field in dataclasses.fields(defaults)]
    # A later version may have further ones: None has no effect, and a new default repeats what there was before.
    added = names if _of_earlier_release(config) else [name for name in names if getattr(defaults, name) is None]
    saved: dict[str, Any] = {name: plain(getattr(defaults, name)) for name in added} | read
    if set(saved) != set(names):
        return None
    columns = {}
    for name in names:
        values = saved[name] if isinstance(saved[name], list) else [saved[name]] * num_settings
        if len(values) != num_settings or not all(_takes(getattr(defaults, name), value) for value in values):
            return None
        if isinstance(saved[name], list) and None in values:
            return None
        columns[name] = values
    try:
        for name, values in columns.items():
            columns[name] = [_from_text(value) if isinstance(value, str) else value for value in values]
        settings = [
            dataclasses.replace(defaults, **{name: values[s] for name, values in columns.items()})
            for s in range(num_settings)
        ]
        return dataclasses.replace(defaults, **{name: _batched(values) for name, values in columns.items()}), settings
    except (TypeError, ValueError):
        return None


def _takes(default: Any, value: object) -> bool:
    """Whether a value read from JSON is valid for a hyper-parameter with this default."""
    if isinstance(value, str):
        return isinstance(default, Discount) or is_composite_text(value)
    return default is None if value is None else isinstance(value, int | float) and not isinstance(value, bool)


def _from_text(text: str) -> Any:
    """A discount, or a hyper-parameter of several numbers such as a curve."""
    composite = as_composite(text)
    return as_discount(text) if composite is None else composite


def _batched(values: list[Any]) -> Any:
    if values[0] is None:
        return None
    if isinstance(values[0], Composite):
        return stack_composites(values)
    return stack(values) if isinstance(values[0], Discount) else np.asarray(values, np.float32)
