"""Training: one compiled program for anyone to transform, and the driver of thousands of runs."""

import contextlib
import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.spelling import near
from jaxrl.algorithms.base import Algorithm, check_choice, check_count
from jaxrl.layout import Layout, plan_layout
from jaxrl.loop import evaluation_points, make_loop, with_run_length
from jaxrl.programs import compiled_programs
from jaxrl.progress import Progress, stop_on_signals
from jaxrl.results import Result, metrics_dataset
from jaxrl.run_directory import claim_directory, exclusive, versions
from jaxrl.sweeps import Sweep

PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
SECONDS_PER_CHUNK = 1.0


class TrainOutput(NamedTuple):
    """What a compiled training program returns for one run.

    Attributes:
      state: the algorithm's final state.
      policy: what acting needs, for `algo.act`.
      metrics: `{name: [points]}`: `return`, `discounted_return` and `length` of whole greedy
        episodes, the same with the suffix `_sampled`, and the algorithm's own, averaged since
        the point before.
      env_steps: int32 `[points]`, environment steps at each point.
    """

    state: Any
    policy: Any
    metrics: dict[str, jax.Array]
    env_steps: jax.Array


def make_train(
    algo: Algorithm, *, env_steps: int, evals: int = 10, eval_episodes: int = 64
) -> Callable[..., TrainOutput]:
    """The whole training loop of one run as a pure function, to be jitted and vmapped.

    Args:
      algo: what to train.
      env_steps: environment steps of the run, rounded up to whole iterations.
      evals: evaluations, evenly spaced, the last at the end.
      eval_episodes: whole episodes of each evaluation, greedy and again sampled.

    Returns:
      `(key, hparams=algo.hparams, env_params=env.default_params) -> TrainOutput`, all of it
      traced. `train` with the same seed takes the same keys.
    """
    points = _points(algo, env_steps, evals, eval_episodes)
    loop = make_loop(algo, eval_episodes)
    per_iteration = algo.env_steps_per_iteration

    def run(key: jax.Array, hparams: Any = None, env_params: Any = None) -> TrainOutput:
        hparams = algo.hparams if hparams is None else hparams
        env_params = algo.env.default_params if env_params is None else env_params
        hparams = _float32(algo.prepare(with_run_length(hparams, int(points[-1]) * per_iteration)))
        env_params = jax.tree.map(_strong, env_params)

        def until(run: Any, num_iterations: jax.Array) -> Any:
            return loop.evaluate(loop.advance(run, key, hparams, env_params, num_iterations), key, hparams, env_params)

        chunks = jnp.asarray(np.diff(points, prepend=0), jnp.int32)
        last, metrics = jax.lax.scan(until, loop.init(key, hparams, env_params), chunks)
        env_steps = jnp.asarray(points * per_iteration, jnp.int32)
        return TrainOutput(last.state, algo.policy(last.state), metrics, env_steps)

    return run


def train(
    algo: Algorithm,
    hparams: Any = None,
    *,
    seeds: int | Sequence[int] = 1,
    env_steps: int,
    evals: int = 10,
    eval_episodes: int = 64,
    env_params: Any = None,
    block: int | None = None,
    devices: Sequence[Any] | None = None,
    on_chunk: Callable[[int, Mapping[str, np.ndarray]], None] | None = None,
    out: str | Path | None = None,
    force: bool = False,
    progress: bool = True,
    precision: str = "default",
) -> Result:
    """Trains every setting with every seed, in one program on all devices.

    Ctrl-C and SIGTERM end after the chunk under way, with what is done evaluated, returned and
    saved. A run whose metrics cease to be finite is reported and leaves the others alone.

    Args:
      algo: what to train.
      hparams: one setting, or a `Sweep` from `grid` or `sample`; `algo.hparams` if None.
      seeds: how many (0, 1, ...), or which. Equal seeds share keys across settings.
      env_steps: environment steps of each run, rounded up to whole iterations.
      evals: evaluations, evenly spaced, the last at the end; at most one per iteration.
      eval_episodes: whole episodes of each evaluation, greedy and again sampled.
      env_params: the environment's parameters, its defaults if None.
      block: runs of one vmap; see `plan_layout`. At one width results are equal bit for bit
        whatever the number of runs, their order, the devices and the chunks.
      devices: all local ones if None.
      on_chunk: called as `on_chunk(env_step, metrics)` after each evaluation, with arrays
        `[num_settings, num_seeds]`.
      out: a directory to save the result in.
      force: whether `out` may exist and be overwritten.
      progress: whether to show a progress bar (a line a minute without a terminal).
      precision: of matrix products, as `jax.default_matmul_precision` names it.

    Raises:
      ValueError, TypeError: bad arguments, before anything is compiled.
      FileExistsError: `out` holds a result, or another call is training into it, likewise.
    """
    points = _points(algo, env_steps, evals, eval_episodes)
    check_choice("precision", precision, PRECISIONS)
    seed_list = _seeds(seeds)
    sweep = hparams if isinstance(hparams, Sweep) else None
    settings = _settings(algo, hparams)
    env_settings = _env_settings(algo, env_params, sweep)
    prepared = _prepare(algo, settings, int(points[-1]) * algo.env_steps_per_iteration)
    shape = (1 if sweep is None else len(sweep), len(seed_list))
    layout = plan_layout(math.prod(shape), block, devices)
    directory = None if out is None else claim_directory(out, force)
    arguments = layout.spread(
        (
            np.tile(np.asarray(seed_list, np.uint32), shape[0]),
            *jax.tree.map(lambda leaf: np.repeat(leaf, shape[1], axis=0), (prepared, env_settings)),
        )
    )
    env_steps_per_iteration = algo.env_steps_per_iteration * layout.num_runs
    history = _History(shape, algo.env_steps_per_iteration)
    attrs = _attributes(algo, layout, eval_episodes)

    def result() -> Result:
        seconds = attrs["run_seconds"] = time.perf_counter() - started
        attrs["env_steps_per_second"] = history.iterations[-1] * env_steps_per_iteration / seconds
        attrs["interrupted"] = int(history.iterations[-1] < points[-1])
        attrs["stopped_by_signal"] = stop.signal or 0
        metrics = metrics_dataset(
            history.stacked(), seeds=seed_list, env_steps=history.env_steps, sweep=sweep, attrs=attrs
        )
        return Result(metrics, history.policies, algo, settings, env_settings)

    total = int(points[-1]) * env_steps_per_iteration
    with exclusive(directory, force), Progress(total, progress) as bar, stop_on_signals() as stop:
        started = time.perf_counter()
        try:
            bar.phase("compiling")
            reserved = {"seed", "env_step"} | set(() if sweep is None else sweep.coords)
            with contextlib.nullcontext() if precision == "default" else jax.default_matmul_precision(precision):
                attrs["precision"] = jax.config.values["jax_default_matmul_precision"] or "default"
                programs = compiled_programs(algo, eval_episodes, layout, arguments, reserved)
            attrs["compile_seconds"] = time.perf_counter() - started
            bar.start()
            started = time.perf_counter()
            runs = programs.init(arguments)
            done, seconds_per_iteration = 0, math.inf
            for point in points.tolist():
                while done < point and not stop:
                    # The first chunk is one iteration, to see how long one takes.
                    count = min(max(int(SECONDS_PER_CHUNK / seconds_per_iteration), 1), point - done)
                    chunk_started = time.perf_counter()
                    runs = programs.advance(runs, arguments, count)
                    seconds_per_iteration = (time.perf_counter() - chunk_started) / count
                    done += count
                    bar.advance(count * env_steps_per_iteration)
                if done == (history.iterations[-1] if history.iterations else 0):
                    break
                runs, metrics, policies = programs.evaluate(runs, arguments)
                chunk = history.add(done, layout.gather(metrics), layout.gather(policies))
                bar.report(_mean_return(chunk["return"]))
                if on_chunk is not None:
                    on_chunk(history.env_steps[-1], chunk)
            if not history.iterations:
                raise KeyboardInterrupt(stop.signal)
        except BaseException:
            # Nothing already computed is lost: what was evaluated is saved before the error goes on.
            if directory is not None and history.iterations:
                result().save(directory, force=True)
            elif directory is not None:
                with contextlib.suppress(OSError):
                    directory.rmdir()
            raise
        finished = result()
        if directory is not None:
            finished.save(directory, force=True)
    _warn_of_failures(finished)
    return finished


def _attributes(algo: Algorithm, layout: Layout, eval_episodes: int) -> dict[str, Any]:
    return {
        "algorithm": algo.name,
        "environment": algo.env.name,
        "block": layout.block,
        "num_devices": len(set(layout.devices)),
        "num_threads": len(layout.devices),
        "device_kind": layout.devices[0].device_kind,
        "eval_episodes": eval_episodes,
        **{f"version_{name}": version for name, version in versions().items()},
    }


def _mean_return(returns: np.ndarray) -> str:
    finite = returns[np.isfinite(returns)]
    return f"return {finite.mean():.1f}" if finite.size else "no finite return"


class _History:
    """The evaluations so far, on the host: metrics of all of them, and the policies of the last."""

    def __init__(self, shape: tuple[int, int], env_steps_per_iteration: int):
        self.iterations: list[int] = []
        self.policies: Any = None
        self._shape = shape
        self._per_iteration = env_steps_per_iteration
        self._chunks: list[dict[str, np.ndarray]] = []

    @property
    def env_steps(self) -> list[int]:
        return [iteration * self._per_iteration for iteration in self.iterations]

    def add(self, iteration: int, metrics: Any, policies: Any) -> dict[str, np.ndarray]:
        chunk, self.policies = jax.tree.map(
            lambda leaf: leaf.reshape(*self._shape, *leaf.shape[1:]), (dict(metrics), policies)
        )
        self.iterations.append(iteration)
        self._chunks.append(chunk)
        return chunk

    def stacked(self) -> dict[str, np.ndarray]:
        return {name: np.stack([chunk[name] for chunk in self._chunks], axis=-1) for name in self._chunks[0]}


def _points(algo: Algorithm, env_steps: int, evals: int, eval_episodes: int) -> np.ndarray:
    if isinstance(env_steps, float) and env_steps.is_integer():
        env_steps = int(env_steps)
    for name, value in (("env_steps", env_steps), ("evals", evals), ("eval_episodes", eval_episodes)):
        check_count(name, value)
    return evaluation_points(env_steps, evals, algo.env_steps_per_iteration)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, np.integer):
        seeds = int(seeds)
    if not isinstance(seeds, Sequence | np.ndarray):
        check_count("seeds", seeds)
        return list(range(seeds))
    whole = [seed for seed in seeds if isinstance(seed, int | np.integer) and not isinstance(seed, bool)]
    chosen = [int(seed) for seed in whole]
    wrong = len(chosen) < len(seeds) or len(set(chosen)) < len(chosen)
    if not chosen or wrong or min(chosen) < 0 or max(chosen) >= 2**32:
        raise ValueError(f"seeds must be a number or different whole numbers in [0, 2**32), got {seeds!r}")
    return chosen


def _strong(leaf: Any) -> Any:
    """A number or array without a weak type; float64 becomes float32, int64 int32."""
    return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)) if np.isscalar(leaf) else leaf


def _float32(hparams: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), hparams)


def _settings(algo: Algorithm, hparams: Any) -> Any:
    """Hyper-parameters with leaves float32 `[num_settings]`, on the host."""
    single = algo.hparams if hparams is None else hparams
    if isinstance(hparams, Sweep):
        single = hparams.hparams
    if not isinstance(single, type(algo.hparams)):
        raise TypeError(
            f"hparams must be a {type(algo.hparams).__name__} or a Sweep of them, got {type(single).__name__}"
        )
    if isinstance(hparams, Sweep):
        return single
    for field in single.__dataclass_fields__:
        if np.ndim(getattr(single, field)) > 0:
            raise ValueError(f"{field} takes one number in hparams; several values make a sweep: use jaxrl.grid")
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], single)


def _prepare(algo: Algorithm, batched: Any, env_steps: int) -> Any:
    prepared = algo.prepare(with_run_length(batched, env_steps))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), prepared)


def _env_settings(algo: Algorithm, env_params: Any, sweep: Sweep | None) -> Any:
    """Environment parameters with leaves `[num_settings]`, on the host."""
    env_params = algo.env.default_params if env_params is None else env_params
    if not isinstance(env_params, type(algo.env.default_params)):
        raise TypeError(
            f"env_params must be {type(algo.env.default_params).__name__} of {algo.env.name}, "
            f"got {type(env_params).__name__}"
        )
    num_settings = 1 if sweep is None else len(sweep)

    def repeat(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
        return np.repeat(array[None], num_settings, axis=0)

    batched = jax.tree.map(repeat, env_params)
    for path, values in ({} if sweep is None else sweep.env).items():
        batched = _with_env_values(batched, path, np.asarray(values), path, algo.env.name)
    limits = np.asarray(batched.max_steps_in_episode)
    if np.any(limits < 1):
        raise ValueError(f"env.max_steps_in_episode must be at least 1, got {limits[limits < 1][0]}")
    _check_action_space(algo, batched, num_settings)
    return batched


def _with_env_values(node: Any, rest: str, values: np.ndarray, path: str, env_name: str) -> Any:
    """Environment parameters `[num_settings]` with those at a path replaced, such as `weights.goal`."""
    name, _, rest = rest.partition(".")
    known = tuple(node.__dataclass_fields__)
    parent = path[: len(path) - len(name) - (len(rest) + 1 if rest else 0)]
    if name not in known:
        hint = near(path, [parent + field for field in known])
        raise ValueError(f"env.{path} is no parameter of {env_name}{hint}")
    default = getattr(node, name)
    if dataclasses.is_dataclass(default):
        if not rest:
            parts = " or ".join(f"env.{path}.{field}" for field in default.__dataclass_fields__)
            raise ValueError(f"env.{path} has parts of its own; sweep {parts or 'something else, it has none'}.")
        return dataclasses.replace(node, **{name: _with_env_values(default, rest, values, path, env_name)})
    if rest:
        raise ValueError(f"env.{path} is no parameter of {env_name}; env.{parent}{name} has no parts.")
    if values.shape != default.shape:
        raise ValueError(f"env.{path} takes values of shape {default.shape[1:]}, got {values.shape[1:]}")
    cast = values.astype(default.dtype)
    if np.issubdtype(default.dtype, np.integer) and np.any(cast != values):
        raise ValueError(f"env.{path} takes whole numbers, got {values[cast != values][0]}")
    return dataclasses.replace(node, **{name: cast})


def _check_action_space(algo: Algorithm, batched: Any, num_settings: int) -> None:
    """Refuse parameters that change the action space, which a policy has been built for."""

    def bounds(params: Any) -> list[np.ndarray]:
        space = algo.env.action_space(params)
        parts = getattr(space, "spaces", (space,))
        return [
            np.asarray(getattr(part, name)) for part in parts for name in ("n", "low", "high") if name in vars(part)
        ]

    wanted = bounds(algo.env.default_params)
    for i in range(num_settings):
        got = bounds(jax.tree.map(lambda leaf, i=i: leaf[i], batched))
        same = len(got) == len(wanted) and all(map(np.array_equal, map(np.float32, got), map(np.float32, wanted)))
        if not same:
            raise ValueError(
                f"env_params change the action space of {algo.env.name}, which policies are built for: it has the "
                f"bounds {[bound.tolist() for bound in wanted]} by default, got {[bound.tolist() for bound in got]}"
            )


def _warn_of_failures(result: Result) -> None:
    failed = result.failed
    if failed:
        named = "; ".join(f"seed {seed}" + (f" of {setting}" if setting else "") for setting, seed in failed[:10])
        more = f" and {len(failed) - 10} more" if len(failed) > 10 else ""
        warnings.warn(
            f"{len(failed)} of {result.failed_runs().size} runs have metrics that are not finite: {named}{more}",
            RuntimeWarning,
            stacklevel=3,
        )
