"""Results on disk: a directory whose files open without jaxrl."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import platform
import tempfile
import zipfile
from collections.abc import Callable
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms.base import Algorithm
from jaxrl.discount_families import Family
from jaxrl.results import RUN_DIMS, UNKNOWN, Result, ResultError
from jaxrl.version import __version__

if TYPE_CHECKING:
    import xarray

METRICS, TABLE, POLICIES, CONFIG = FILES = ("metrics.nc", "metrics.csv", "policies.npz", "config.json")
PACKAGES = ("jax", "jaxlib", "flax", "optax", "chex", "distrax", "gymnax", "numpy", "xarray")

__all__ = ["claim_directory", "load_result", "save", "versions"]


def claim_directory(path: str | Path, force: bool = False) -> Path:
    """Makes sure, before the work starts, that a result can be saved in a directory.

    Args:
      path: the directory, made where it is missing.
      force: accept a directory that holds a result already.

    Returns:
      The directory.

    Raises:
      FileExistsError: there is a result already, and no `force`.
      ResultError: the directory cannot be written.
    """
    directory = Path(path)
    if not force and any((directory / name).exists() for name in FILES):
        raise FileExistsError(
            f"{directory} holds a result already: choose another directory, or overwrite it with --force (force=True)."
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
    return directory


def save(result: Result, path: str | Path, force: bool = False) -> Path:
    """Writes a result; see `Result.save`. A file is complete or not there."""
    directory = claim_directory(path, force)
    dataset = result.metrics.assign_attrs({name: _attribute(value) for name, value in result.metrics.attrs.items()})
    leaves = result.policies  # of an unknown algorithm they are still as they were read
    if UNKNOWN not in result.metrics.attrs:
        leaves = {jax.tree_util.keystr(at): np.asarray(leaf) for at, leaf in jax.tree.leaves_with_path(result.policies)}
    config = json.dumps(_config(result), indent=2, default=str) + "\n"

    def write_policies(file: Path) -> None:
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **leaves)

    writers: dict[str, Callable[[Path], Any]] = {
        METRICS: lambda file: dataset.to_netcdf(file, engine="h5netcdf"),
        TABLE: lambda file: _write_csv(result, file),
        POLICIES: write_policies,
        CONFIG: lambda file: file.write_text(config, encoding="utf-8"),
    }
    written = []
    try:
        for name, write in writers.items():
            file = directory / f".{os.getpid()}-{name}"
            written.append((file, directory / name))
            write(file)
        for file, final in written:
            os.replace(file, final)
    except OSError as error:
        raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
    finally:
        for file, _ in written:
            file.unlink(missing_ok=True)
    return directory


def load_result(path: str | Path, algo: Algorithm | None = None) -> Result:
    """Reads what `Result.save` wrote.

    Args:
      path: the run directory.
      algo: the algorithm; needed for policies where its network or environment is one's own,
        and otherwise built again from `config.json`.

    Returns:
      The result; its `algo` is None where it is not given and cannot be built again, and its
      `hparams` None (the coordinates and `config.json` tell them).

    Raises:
      ResultError: a file is missing or damaged, or the policies do not fit the algorithm.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise ResultError(f"{directory} is not a run directory: there is no such directory.")
    missing = [name for name in (METRICS, POLICIES, CONFIG) if not (directory / name).is_file()]
    if missing:
        raise ResultError(f"{directory} holds no whole result: {', '.join(missing)} is missing.")
    config = _read(directory / CONFIG, lambda file: json.loads(file.read_text(encoding="utf-8")))
    metrics = _read(directory / METRICS, _read_dataset)
    leaves = _read(directory / POLICIES, _read_policies)
    if not isinstance(config, dict) or "algorithm" not in config:
        raise ResultError(f"{directory / CONFIG} is damaged: it names no algorithm.")
    if algo is None and config["algorithm"] is not None:
        algo = _build(directory, config)
    if algo is None:
        metrics.attrs[UNKNOWN] = str(config.get(UNKNOWN, "config.json does not describe it"))
        return Result(metrics, leaves)
    metrics.attrs.pop(UNKNOWN, None)
    result = Result(metrics, leaves, algo, env_params=_env_params(directory, config, algo))
    result.policies = _restore(directory / POLICIES, result, leaves, algo)
    return result


def versions() -> dict[str, str]:
    """The versions of jaxrl, Python and what the numbers depend on."""
    ours = {"jaxrl": __version__, "python": platform.python_version()}
    return ours | {name: metadata.version(name) for name in PACKAGES}


def _config(result: Result) -> dict[str, Any]:
    reason = result.metrics.attrs.get(UNKNOWN, "the result was made without one")
    spec: dict[str, Any] = {"algorithm": None, UNKNOWN: reason}
    if result.algo is not None:
        try:
            spec = dict(algorithms.describe(result.algo))
        except (TypeError, ValueError) as error:
            spec = {"algorithm": None, UNKNOWN: str(error).rstrip("."), "name": result.algo.name}
        spec["hparams"] = _hparams(result)
        spec["env_params"] = None
        if result.env_params is not None:
            names = [field.name for field in dataclasses.fields(result.env_params)]
            spec["env_params"] = {name: np.asarray(getattr(result.env_params, name)).tolist() for name in names}
    coords = {str(name): coord for name, coord in result.metrics.coords.items() if name not in RUN_DIMS}
    return spec | {
        "sweep": {
            "dims": list(result.dims),
            "coords": {name: {"dims": list(at.dims), "values": at.values.tolist()} for name, at in coords.items()},
        },
        "seeds": result.seeds,
        "attributes": {str(name): _attribute(value) for name, value in result.metrics.attrs.items()},
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()],
        "versions": versions(),
    }


def _hparams(result: Result) -> dict[str, Any]:
    """Every hyper-parameter as a number or a discount's string: one, or a list over the settings."""
    settings = result.settings
    assert result.algo is not None
    batched = result.hparams is not None
    hparams = result.hparams if batched else result.algo.hparams
    plain = {}
    for field in dataclasses.fields(hparams) if dataclasses.is_dataclass(hparams) else ():
        value = getattr(hparams, field.name)
        if field.name in settings[0]:
            values = [setting[field.name] for setting in settings]
        elif batched:
            values = [_plain(jax.tree.map(itemgetter(s), value)) for s in range(len(settings))]
        else:
            values = [_plain(value)]
        plain[field.name] = values[0] if all(value == values[0] for value in values) else values
    return plain


def _plain(value: Any) -> Any:
    """A number, where JSON has one for it, or a string; None for a discount that is resolved already."""
    if isinstance(value, int | float | np.ndarray | np.generic | jax.Array):
        number = np.float32(value).item()
        return float(np.format_float_positional(np.float32(value))) if math.isfinite(number) else str(number)
    return str(value) if isinstance(value, Family) else None


def _attribute(value: Any) -> Any:
    """What netCDF can hold: strings and numbers as they are, anything else as JSON."""
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, str | int | float | np.integer | np.floating):
        return value
    return json.dumps(value, default=str)


def _write_csv(result: Result, file: Path) -> None:
    settings, seeds = result.settings, result.seeds
    env_steps = [int(step) for step in result.metrics["env_step"].values]
    names = [str(name) for name in result.metrics.data_vars]
    columns = np.stack([result.values(name) for name in names], axis=-1)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*settings[0], *RUN_DIMS, *names])
        for setting, of_setting in zip(settings, columns, strict=True):
            labels = list(setting.values())
            for seed, of_seed in zip(seeds, of_setting, strict=True):
                for env_step, numbers in zip(env_steps, of_seed, strict=True):
                    writer.writerow([*labels, seed, env_step, *numbers])


def _read(file: Path, reader: Callable[[Path], Any]) -> Any:
    try:
        return reader(file)
    except (OSError, ValueError, KeyError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ResultError(f"{file} is damaged or no result of jaxrl: {reason}") from None


def _read_dataset(file: Path) -> xarray.Dataset:
    import xarray

    dataset = xarray.load_dataset(file, engine="h5netcdf")
    if not dataset.data_vars or any(dim not in dataset.dims for dim in RUN_DIMS):
        raise ValueError("it has no metrics over seed and env_step")
    return dataset


def _read_policies(file: Path) -> dict[str, np.ndarray]:
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _build(directory: Path, config: dict[str, Any]) -> Algorithm:
    spec = {name: config.get(name) for name in ("algorithm", "environment", "config")}
    try:
        return algorithms.build(spec)
    except (ImportError, KeyError, TypeError, ValueError) as error:
        raise ResultError(f"{directory / CONFIG} describes an algorithm that cannot be built: {error}") from None


def _env_params(directory: Path, config: dict[str, Any], algo: Algorithm) -> Any:
    """The environment's parameters `[num_settings]` as they were trained with."""
    saved, params = config.get("env_params"), algo.env.default_params
    if saved is None:
        return None
    names = [field.name for field in dataclasses.fields(params)]
    if sorted(saved) != sorted(names):
        raise ResultError(
            f"{directory / CONFIG} does not fit the environment {algo.env.name}: "
            f"it has the parameters {', '.join(saved)}, not {', '.join(names)}."
        )
    types = {name: jax.dtypes.canonicalize_dtype(np.asarray(getattr(params, name)).dtype) for name in names}
    return dataclasses.replace(params, **{name: np.asarray(saved[name], types[name]) for name in names})


def _restore(file: Path, result: Result, leaves: dict[str, np.ndarray], algo: Algorithm) -> Any:
    """The policies' pytree, from the algorithm's own structure and the arrays' key paths."""

    def policy(key: jax.Array) -> Any:
        return algo.policy(algo.init(key, algo.prepare(algo.hparams), algo.env.default_params))

    wanted, structure = jax.tree_util.tree_flatten_with_path(jax.eval_shape(policy, jax.random.key(0)))
    runs = (len(result.settings), len(result.seeds))
    arrays = []
    for at, leaf in wanted:
        name = jax.tree_util.keystr(at)
        if name not in leaves:
            raise ResultError(f"{file} does not fit the algorithm {algo.name}: it has no array {name}.")
        array, shape = leaves[name], (*runs, *leaf.shape)
        if array.shape != shape or array.dtype != leaf.dtype:
            got, takes = f"{array.dtype}{list(array.shape)}", f"{leaf.dtype}{list(shape)}"
            raise ResultError(f"{file} does not fit the algorithm {algo.name}: {name} is {got}, not {takes}.")
        arrays.append(array)
    if len(leaves) > len(arrays):
        raise ResultError(f"{file} holds {len(leaves)} arrays, the algorithm {algo.name} takes {len(arrays)}.")
    return jax.tree_util.tree_unflatten(structure, arrays)
