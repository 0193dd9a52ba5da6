"""Collected steps in files of other programs: netCDF, Parquet and Minari."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from envs.base import Environment
from envs.errors import MissingPackageError, UserTypeError, UserValueError, installing
from envs.files import replacing
from envs.settings import in_own_settings
from jaxrl.policies.labelling import LENGTH
from jaxrl.policies.playing import not_an_environment
from jaxrl.pytrees import PyTree
from jaxrl.results.parquet import write_parquet

if TYPE_CHECKING:
    import pandas
    import xarray

_WIDEST = 4096  # columns of a table
_NEEDED = ("observation", "action", "reward", "terminated", "truncated", "next_observation")  # or parts of them

__all__ = ["save_steps", "to_minari"]


def save_steps(data: xarray.Dataset, path: str | Path) -> Path:
    """Write the steps that `jaxrl.collect` returned to a file, which replaces an existing one.

    `.nc` is netCDF, which `xarray.open_dataset` reads with all axes. `.parquet` is a table with a row for each step
    that was taken, and for each agent if there are several; arrays are columns such as `observation.0`.

    Args:
      data: Steps of `jaxrl.collect`.
      path: File to write; its name ends in `.nc` or `.parquet`.

    Returns:
      The path.

    Raises:
      TypeError: `data` are not steps of `collect`.
      ValueError: The suffix is unknown, the table has more than 4,096 columns, or the file cannot be written.
      ImportError: The file is a `.parquet` and pyarrow is not installed.
    """
    _check_steps(data)
    file = Path(path)
    if file.suffix == ".nc":
        # Through memory, because the library leaves files open when the disk is full.
        content = data.to_netcdf(None, engine="h5netcdf")
        with replacing(file) as part:
            part.write_bytes(content)
        return file
    if file.suffix != ".parquet":
        raise UserValueError(f"path is {str(file)!r}; the name of a file of steps ends in .nc or .parquet.")
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingPackageError(f"a .parquet needs the extra: {installing('parquet')}, or write a .nc")
    table = _table(data)
    with replacing(file) as part:
        write_parquet(table, part)
    return file


@in_own_settings
def to_minari(data: xarray.Dataset, dataset_id: str, env: Environment, *, description: str | None = None) -> Any:
    """A Minari dataset of the steps that `jaxrl.collect` returned, which `minari.load_dataset(dataset_id)` loads.

    Each episode of each run that has not failed is an episode of the dataset, with its last observation before the
    reset. An incomplete one, which `collect(steps=...)` may end with, is neither terminated nor truncated. Minari
    stores them in `~/.minari/datasets`, or in the directory of the variable `MINARI_DATASETS_PATH`.

    Args:
      data: Steps of `jaxrl.collect` with a single agent.
      dataset_id: Name of the dataset, such as `"cartpole/ppo-v0"`.
      env: Environment of the steps, whose spaces the dataset has.
      description: Description of the dataset; None for the names of algorithm and environment.

    Returns:
      The `minari.MinariDataset`.

    Raises:
      ImportError: Minari is not installed.
      TypeError: `data` are not steps of `collect`, or a space has no counterpart in Gymnasium.
      ValueError: The steps have several agents, they are of another environment, or there is a dataset of this name.
    """
    try:
        import minari  # pyright: ignore[reportMissingImports]
        from minari.data_collector import EpisodeBuffer  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingPackageError(f"to_minari needs the extra: {installing('minari')} ({error})") from None
    from envs.adapters.outgoing.gymnasium_spaces import shown, to_gymnasium

    _check_steps(data)
    if not isinstance(env, Environment):
        raise UserTypeError(not_an_environment(env))
    agents = [str(dim) for dim in data.sizes if str(dim).startswith("agent")]
    if agents:
        raise UserValueError(f"data has {data.sizes[agents[0]]} agents, but Minari's datasets have one.")
    params, key = env.default_params, jax.random.key(0)
    seen, acts = env.observation_space(params), env.action_space(params)
    obs = jax.eval_shape(env.reset_env, key, params)[0]
    action = jax.eval_shape(acts.sample, key)
    buffers = []
    for number, steps in enumerate(_episodes(data)):
        before, after, actions = (
            _tree(like, steps, name)
            for like, name in ((obs, "observation"), (obs, "next_observation"), (action, "action"))
        )
        seen_by = jax.tree.map(lambda first, then: np.concatenate([first, then[-1:]]), before, after)
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=jax.tree.map(np.asarray, shown(seen, seen_by)),
                actions=jax.tree.map(np.asarray, shown(acts, actions)),
                rewards=list(steps["reward"]),
                terminations=list(steps["terminated"]),
                truncations=list(steps["truncated"]),
            )
        )
    if description is None:
        description = f"{data.attrs['algorithm']} on {data.attrs['environment']}, collected by jaxrl"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="minari")  # about authors and links, which are not known
            return minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                algorithm_name=data.attrs["algorithm"],
                observation_space=to_gymnasium(seen, "observation space"),
                action_space=to_gymnasium(acts, "action space"),
                description=description,
                jpeg_encoding=False,  # which would change images
            )
    except ValueError as error:
        raise UserValueError(f"dataset_id is {dataset_id!r}: {error}") from None


def _check_steps(data: Any) -> None:
    names = {str(name).partition(".")[0] for name in getattr(data, "data_vars", ())}
    if not names.issuperset(_NEEDED):
        raise UserTypeError(f"data takes the steps that jaxrl.collect returned, got {type(data).__name__}.")


def _episodes(data: xarray.Dataset) -> Iterator[dict[str, np.ndarray]]:
    """The steps of each episode, `{name: [T, ...]}`, without failed runs."""
    named = [name for name in data.data_vars if "step" in data[name].dims]
    lead = [dim for dim in data["reward"].dims if dim != "step"]
    arrays = {str(name): data[name].transpose(*lead, "step", ...).values for name in named}
    failed = data["failed"].broadcast_like(data["reward"].isel(step=0, drop=True)).transpose(*lead).values
    for place in np.ndindex(failed.shape):
        if failed[place]:
            continue
        steps = {name: array[place] for name, array in arrays.items()}
        if LENGTH in data:
            length = int(data[LENGTH].transpose(*lead).values[place])
            yield {name: array[:length] for name, array in steps.items()}
            continue
        ends = np.flatnonzero(steps["terminated"] | steps["truncated"]) + 1
        total = len(steps["reward"])
        for first, last in zip([0, *ends], [*ends, total], strict=True):
            if last > first:
                yield {name: array[first:last] for name, array in steps.items()}


def _tree(like: PyTree, steps: dict[str, np.ndarray], name: str) -> Any:
    """Arrays of the variables of an observation or an action, in the environment's structure."""
    arrays = []
    for path, leaf in jax.tree.leaves_with_path(like):
        text = jax.tree_util.keystr(path, simple=True, separator=".")
        array = steps.get(f"{name}.{text}" if text else name)
        if array is None or array.shape[1:] != leaf.shape:
            raise UserValueError(f"data has other shapes of {name} than env; env takes the environment of the steps.")
        arrays.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def _table(data: xarray.Dataset) -> pandas.DataFrame:
    """A row for each step that was taken, of each agent."""
    import pandas

    like = data["reward"]
    rows = like.dims
    taken = np.ones(like.shape, bool)
    if LENGTH in data:
        taken = (data["step"] < data[LENGTH]).broadcast_like(like).transpose(*rows).values
    arrays = {str(name): coord for name, coord in data.coords.items() if set(coord.dims) <= set(rows)}
    arrays |= {str(dim): data[dim] for dim in rows if dim not in data.coords}
    arrays |= {str(name): array for name, array in data.items() if "step" in array.dims}
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        behind = [dim for dim in array.dims if dim not in rows]
        shape = tuple(array.sizes[dim] for dim in behind)
        if len(columns) + math.prod(shape) > _WIDEST:
            raise UserValueError(f"{name} has {math.prod(shape):,} numbers, too many for columns; write a .nc.")
        missing = {dim: like.sizes[dim] for dim in rows if dim not in array.dims}
        values = array.expand_dims(missing).transpose(*rows, *behind).values[taken]
        for place in np.ndindex(shape):
            columns[".".join([name, *map(str, place)])] = values[(slice(None), *place)]
    return pandas.DataFrame(columns)
