"""Reading results from the directories that `storage` writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.tree_util import keystr

from envs.arguments import check_flag
from envs.base import entries
from envs.errors import UserValueError
from envs.wrappers.asymmetric import ACTOR_WORDS, seen_from
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.allowed_modules import Allow, NotAllowedError, modules_of
from jaxrl.algorithms.contract import Algorithm, policy_shapes
from jaxrl.results.array_files import Header, difference_of_headers, npz_headers, read_netcdf, read_npz
from jaxrl.results.best import PREFIX, Best, unevaluated
from jaxrl.results.checksums import checksum_of_file, read_sealed
from jaxrl.results.dataset import RUN_DIMS, UNKNOWN, ResultError
from jaxrl.results.description import env_params, hparams
from jaxrl.results.format import reason
from jaxrl.results.result import Result
from jaxrl.results.storage import CHECKSUMS, CONFIG, METRICS, POLICIES, SEARCH

if TYPE_CHECKING:
    import xarray


def load_result(path: str | Path, algo: Algorithm | None = None, *, allow: Allow = (), trust: bool = False) -> Result:
    """Read a result that `Result.save` wrote.

    Args:
      path: Run directory.
      algo: Algorithm; required for the policies if its network or environment is user-defined,
        otherwise rebuilt from `config.json`.
      allow: Names of user modules that the result may import, such as `"my_algorithms"`; otherwise only
        modules of jaxrl and of known libraries are imported.
      trust: Whether to read files that do not match their checksums; older results have none.

    Returns:
      The result. Its `algo` is None if `algo` is None and the algorithm cannot be rebuilt or is from a module
      that is not allowed; the attribute `algorithm_unknown` states the reason. Its `hparams` are those of the
      runs, and for a single setting also those of its `algo`; `hparams` is None if `config.json` has no
      hyper-parameters that the algorithm takes.

    Raises:
      ResultError: A file is missing or damaged, or the policies do not match the algorithm.
    """
    check_flag("trust", trust)
    directory, allow = Path(path), modules_of(allow)
    config, metrics = _described(directory, (METRICS, POLICIES, CONFIG), trust)
    missing = None
    if algo is None and config["algorithm"] is not None:
        algo, missing = _build(directory, config, allow)
    if algo is None:
        metrics.attrs[UNKNOWN] = missing or str(config.get(UNKNOWN, "config.json does not describe it"))
        return Result(metrics, _read(directory / POLICIES, read_npz), loaded=config, directory=directory)
    metrics.attrs.pop(UNKNOWN, None)
    result = Result(metrics, {}, algo, loaded=config, directory=directory)
    algo = algo._replace(settings_from=result.metrics.attrs.get("settings_from", algo.settings_from))
    num_settings = len(result.settings)
    result.env_params = env_params(directory / CONFIG, config, algo, num_settings)
    leaves = _leaves(directory / POLICIES, result, algo)
    result.policies = _restored(leaves, algo)
    if _has_best(result):
        named = _named_best(algo)
        result.best = jax.tree_util.tree_map_with_path(lambda at, _: leaves[f"{PREFIX}{keystr(at)}"], named)
    restored = hparams(config, algo, num_settings)
    if restored is not None:
        result.hparams, settings = restored
        if num_settings == 1:
            result.algo = algo._replace(hparams=settings[0])
    return result


def load_metrics(path: str | Path, *, trust: bool = False) -> Result:
    """Read the metrics and the description of a result, without its policies and its algorithm.

    Args:
      path: Run directory.
      trust: Whether to read files that do not match their checksums, as in `load_result`.

    Raises:
      ResultError: A file is missing or damaged.
    """
    check_flag("trust", trust)
    config, metrics = _described(Path(path), (METRICS, CONFIG), trust)
    metrics.attrs.setdefault(UNKNOWN, "only its metrics were read")
    return Result(metrics, {}, loaded=config, directory=Path(path))


def load_best_returns(result: Result) -> Best | None:
    """The returns of the best policies of a result that `load_metrics` read, without the policies themselves.

    Returns:
      `Best` with `{}` for the policies; None if the call kept the last policies alone, or the file is missing.

    Raises:
      ResultError: The file is damaged, or of another result.
    """
    if result.directory is None or not _has_best(result) or not (file := result.directory / POLICIES).is_file():
        return None
    known = _read(result.directory / CONFIG, lambda at: read_sealed(at, trust=True)).get(CHECKSUMS, {})
    if POLICIES in known and _read(file, checksum_of_file) != known[POLICIES]:
        raise ResultError(f"{file} is damaged, or of another result: it does not match its checksum.")
    return _read(file, lambda at: _best_returns(at, result))


def load_policies(source: str | Path | Result, algo: Algorithm) -> tuple[Result, Any]:
    """The labels of a result, and its policies in the structure of an algorithm with policies of the same shapes.

    The algorithm and the environment of the result are neither built nor imported.

    Args:
      source: Run directory, or a result, whose algorithm may be unknown.
      algo: Algorithm that determines the structure of the policies.

    Raises:
      ResultError: A file is missing or damaged, or the policies do not match the algorithm.
    """
    if isinstance(source, Result) and source.algo is not None:
        return source, source.policies
    if not isinstance(source, Result):
        result = load_metrics(source)
        return result, _restored(_leaves(Path(source) / POLICIES, result, algo), algo)
    headers = {name: Header(leaf.shape, leaf.dtype) for name, leaf in source.policies.items()}
    _require_fit(Path("the result") / POLICIES, headers, source, algo)
    return source, _restored(source.policies, algo)


def _described(directory: Path, names: Sequence[str], trust: bool) -> tuple[dict[str, Any], xarray.Dataset]:
    """The contents of `config.json` and the metrics of a directory, which must hold the named files."""
    if not directory.is_dir():
        raise ResultError(f"{directory} is not a run directory: there is no such directory.")
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        if (directory / SEARCH).is_file():
            best = directory / "incumbent"
            where = f"is in {best}" if best.is_dir() else f"comes with its end: jaxrl resume {directory}"
            raise ResultError(f"{directory} holds a search: the result of its best setting {where}.")
        raise ResultError(f"{directory} does not hold a complete result: {', '.join(missing)} is missing.")
    config = _read(directory / CONFIG, lambda file: read_sealed(file, trust=trust))
    if not isinstance(config, dict) or "algorithm" not in config:
        raise ResultError(f"{directory / CONFIG} is damaged: it names no algorithm.")
    checksums = config.pop(CHECKSUMS, {})
    for file in (directory / name for name in names if not trust and name in checksums):
        if _read(file, checksum_of_file) != checksums[file.name]:
            raise ResultError(
                f"{file} is damaged, or of another result than {directory / CONFIG}: it does not match the checksum "
                f"recorded there; --trust (trust=True) ignores this."
            )
    metrics = _read(directory / METRICS, _read_metrics)
    return config, metrics


def _read(file: Path, reader: Callable[[Path], Any]) -> Any:
    try:
        return reader(file)
    except ResultError:
        raise
    except Exception as error:  # of any library underneath, which a crafted file may drive into any error
        raise ResultError(f"{file} is damaged or not a result of jaxrl: {reason(error)}") from None


def _read_metrics(file: Path) -> xarray.Dataset:
    dataset = read_netcdf(file)
    if not dataset.data_vars or any(dim not in dataset.dims for dim in RUN_DIMS):
        raise UserValueError("it has no metrics over seed and env_step")
    return dataset


def _build(directory: Path, config: dict[str, Any], allow: Allow) -> tuple[Algorithm | None, str | None]:
    """The algorithm, or the reason why it is unknown: its module is not allowed or not available."""
    spec = {name: config.get(name) for name in ("algorithm", "environment", "config")}
    try:
        return algorithms.build(spec, allow), None
    except NotAllowedError as error:
        return None, str(error).rstrip(".")
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            return None, f"{str(error).rstrip('.')}; set PYTHONPATH to the directory that holds it"
        raise ResultError(f"{directory / CONFIG} describes an algorithm that cannot be built: {error}") from None


def _leaves(file: Path, result: Result, algo: Algorithm) -> dict[str, np.ndarray]:
    """The arrays of a file of policies, which is not read before its shapes are those of the algorithm."""
    _require_fit(file, _read(file, npz_headers), result, algo)
    return _read(file, read_npz)


def _has_best(result: Result) -> bool:
    """Whether the file of the policies of a result has the best ones as well."""
    return result.metrics.attrs.get("keep") == "best"


def _named_best(algo: Algorithm) -> Best:
    """Shapes of the best policy of one run."""
    shapes = jax.eval_shape(unevaluated, policy_shapes(algo))
    return shapes._replace(return_again=shapes.return_then, return_of_last=shapes.return_then)


def _best_returns(file: Path, result: Result) -> Best:
    names = [f"{PREFIX}.{name}" for name in Best._fields if name != "policy"]
    arrays, runs = read_npz(file, names), (len(result.settings), len(result.seeds))
    for name, array in arrays.items():
        if array.shape != runs or array.dtype.kind not in "if":
            raise UserValueError(f"{name} is {array.dtype}{list(array.shape)}, not numbers {list(runs)}")
    return Best({}, *arrays.values())


def _require_fit(file: Path, headers: Mapping[str, Header], result: Result, algo: Algorithm) -> None:
    runs = (len(result.settings), len(result.seeds))
    kept = {"": policy_shapes(algo)} | ({PREFIX: _named_best(algo)} if _has_best(result) else {})
    expected = {
        f"{prefix}{keystr(at)}": Header((*runs, *leaf.shape), leaf.dtype)
        for prefix, shapes in kept.items()
        for at, leaf in jax.tree.leaves_with_path(shapes)
    }
    if (differs := difference_of_headers(headers, expected)) is not None:
        here = f"{algo.name} on {algo.env.name}"
        what = f"{differs}{_hint_of_critic(algo, headers, expected)}"
        raise ResultError(f"{file} is of {origin_of(result)}, and does not fit the algorithm {here}: {what}.")


def _hint_of_critic(algo: Algorithm, *names: Collection[str]) -> str:
    """The remedy where the default critic of earlier versions may have seen privileged entries alone.

    Args:
      algo: Algorithm.
      *names: Names of the arrays of the file, and of those that the algorithm takes.
    """
    actor, critic = (getattr(getattr(algo, "config", None), name, None) for name in ("actor_sees", "critic_sees"))
    if critic != "auto" or actor in (None, *ACTOR_WORDS):
        return ""
    env = seen_from(algo.env)
    in_file, here = (any("['critic']" in name for name in each) for each in names)  # a network of the critic alone
    entry_names = entries(env.observation_space(env.default_params))
    if not in_file or here or not any("privileged" in str(name) for name in entry_names):
        return ""
    return (
        "; in earlier versions critic_sees='auto' was the entries with 'privileged' in their names alone: pass algo= "
        "with critic_sees= these names"
    )


def origin_of(result: Result) -> str:
    """Algorithm and environment that a result was trained with, such as "ppo on cartpole"."""
    attrs = result.metrics.attrs
    return " on ".join(str(attrs[name]) for name in ("algorithm", "environment") if name in attrs) or "another call"


def _restored(leaves: Mapping[str, np.ndarray], algo: Algorithm) -> Any:
    """The pytree of the policies, from the algorithm's structure and the key paths of the arrays."""
    return jax.tree_util.tree_map_with_path(lambda at, _: leaves[keystr(at)], policy_shapes(algo))
