"""Training: one compiled program for anyone to transform, and the driver of thousands of runs."""

import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.registry import near
from jaxrl.algorithms.base import Algorithm, check_choice, check_count
from jaxrl.layout import Layout, compile_programs, over_runs, plan_layout, run_on_devices
from jaxrl.loop import Loop, evaluation_points, make_loop, with_run_length
from jaxrl.progress import Progress, stop_on_signals
from jaxrl.results import Result, metrics_dataset
from jaxrl.run_directory import claim_directory, versions
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
      FileExistsError, OSError: `out` exists or cannot be written, likewise.
    """
    points = _points(algo, env_steps, evals, eval_episodes)
    check_choice("precision", precision, PRECISIONS)
    seed_list = _seeds(seeds)
    sweep = hparams if isinstance(hparams, Sweep) else None
    batched = _settings(algo, hparams)
    prepared = _prepare(algo, batched, int(points[-1]) * algo.env_steps_per_iteration)
    batched_params = _env_settings(algo, env_params, sweep)
    num_settings = 1 if sweep is None else len(sweep)
    layout = plan_layout(num_settings * len(seed_list), block, devices)
    directory = None if out is None else claim_directory(out, force)

    arguments = layout.spread(
        (
            np.tile(np.asarray(seed_list, np.uint32), num_settings),
            *jax.tree.map(lambda leaf: np.repeat(leaf, len(seed_list), axis=0), (prepared, batched_params)),
        )
    )
    shape = (num_settings, len(seed_list))
    bar = Progress(int(points[-1]) * algo.env_steps_per_iteration * layout.num_runs, progress)
    bar.phase("compiling")
    started = time.perf_counter()
    with jax.default_matmul_precision(None if precision == "default" else precision):
        programs = _programs(algo, eval_episodes, layout, precision, arguments)
    clashes = set(programs.metric_names) & ({"seed", "env_step"} | set(() if sweep is None else sweep.coords))
    if clashes:
        raise ValueError(f"metrics and swept paths must differ in name, got {', '.join(sorted(clashes))} for both")
    attrs = {
        "algorithm": algo.name,
        "environment": algo.env.name,
        "block": layout.block,
        "num_devices": len(layout.devices),
        "device_kind": layout.devices[0].device_kind,
        "precision": precision,
        "eval_episodes": eval_episodes,
        "compile_seconds": time.perf_counter() - started,
        **{f"version_{name}": version for name, version in versions().items()},
    }
    history = _History(shape, algo.env_steps_per_iteration)
    runs = programs.init(arguments)
    bar.start()
    started = time.perf_counter()

    def result() -> Result:
        gathered = layout.gather([jax.vmap(algo.policy)(part.state) for part in runs])
        policies = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), gathered)
        seconds = time.perf_counter() - started
        done = history.iterations[-1] * algo.env_steps_per_iteration * layout.num_runs
        attrs.update(run_seconds=seconds, env_steps_per_second=done / seconds)
        attrs.update(interrupted=int(history.iterations[-1] < points[-1]))
        metrics = metrics_dataset(
            history.stacked(), seeds=seed_list, env_steps=history.env_steps, sweep=sweep, attrs=attrs
        )
        return Result(metrics, policies, algo, batched, batched_params)

    with stop_on_signals() as stop:
        try:
            done, seconds_per_iteration = 0, None
            for point in points.tolist():
                while done < point and not stop:
                    count = 1 if seconds_per_iteration is None else int(SECONDS_PER_CHUNK / seconds_per_iteration)
                    count = min(max(count, 1), point - done)
                    chunk_started = time.perf_counter()
                    runs = programs.advance(runs, arguments, count)
                    seconds_per_iteration = (time.perf_counter() - chunk_started) / count
                    done += count
                    bar.advance(count * algo.env_steps_per_iteration * layout.num_runs)
                if history.iterations and history.iterations[-1] == done:
                    break
                runs, metrics = programs.evaluate(runs, arguments)
                chunk = history.add(done, layout.gather(metrics))
                bar.report(f"return {np.nanmean(chunk['return']):.1f}")
                if on_chunk is not None:
                    on_chunk(history.env_steps[-1], chunk)
                if stop:
                    break
        except BaseException:
            # Nothing already computed is lost: what was evaluated is saved before the error goes on.
            if directory is not None and history.iterations:
                result().save(directory, force=True)
            raise
        finally:
            bar.close()
    finished = result()
    _warn_of_failures(finished)
    if directory is not None:
        finished.save(directory, force=True)
    return finished


class _Programs(NamedTuple):
    """Compiled; runs and arguments are lists over devices.

    Attributes:
      init: `(arguments) -> runs`.
      advance: `(runs, arguments, count) -> runs`; the runs given are updated in place.
      evaluate: `(runs, arguments) -> (runs, metrics)`, likewise.
      metric_names: of an evaluation.
    """

    init: Callable[[Any], Any]
    advance: Callable[[Any, Any, int], Any]
    evaluate: Callable[[Any, Any], tuple[Any, Any]]
    metric_names: tuple[str, ...]


# The programs of the last few calls, so that another one with other seeds or values compiles nothing.
_COMPILED: OrderedDict[Any, _Programs] = OrderedDict()
_KEPT_PROGRAMS = 16


def _programs(algo: Algorithm, eval_episodes: int, layout: Layout, precision: str, arguments: Any) -> _Programs:
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    functions = (algo.init, algo.step, algo.policy, algo.act)
    key = (algo.env, functions, eval_episodes, layout._replace(num_runs=0), precision, structure, shapes)
    if key not in _COMPILED:
        _COMPILED[key] = _compile(make_loop(algo, eval_episodes), layout, arguments)
    _COMPILED.move_to_end(key)
    while len(_COMPILED) > _KEPT_PROGRAMS:
        _COMPILED.popitem(last=False)
    return _COMPILED[key]


def _compile(loop: Loop, layout: Layout, arguments: Any) -> _Programs:
    def init(arguments: Any) -> Any:
        seed, hparams, env_params = arguments
        return loop.init(jax.random.key(seed), hparams, env_params)

    def advance(run: Any, arguments: Any, count: jax.Array) -> Any:
        seed, hparams, env_params = arguments
        return loop.advance(run, jax.random.key(seed), hparams, env_params, count)

    def evaluate(run: Any, arguments: Any) -> Any:
        seed, hparams, env_params = arguments
        return loop.evaluate(run, jax.random.key(seed), hparams, env_params)

    num_blocks = np.int32(layout.num_blocks)
    jit_init = jax.jit(over_runs(init, layout.block))
    jit_advance = jax.jit(over_runs(advance, layout.block, num_shared=1), donate_argnums=0)
    jit_evaluate = jax.jit(over_runs(evaluate, layout.block), donate_argnums=0)
    shapes = jax.eval_shape(jit_init, arguments[0], num_blocks)
    metric_names = tuple(jax.eval_shape(jit_evaluate, shapes, arguments[0], num_blocks)[1])

    def at(device: Any, tree: Any) -> Any:
        sharding = jax.sharding.SingleDeviceSharding(device)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)

    inits, advances, evaluates = compile_programs(
        [
            lambda device: jit_init.lower(at(device, arguments[0]), num_blocks),
            lambda device: jit_advance.lower(at(device, shapes), at(device, arguments[0]), np.int32(1), num_blocks),
            lambda device: jit_evaluate.lower(at(device, shapes), at(device, arguments[0]), num_blocks),
        ],
        layout.devices,
    )

    def everywhere(value: Any) -> list[Any]:
        return [value] * len(layout.devices)

    def evaluate_all(runs: Any, arguments: Any) -> tuple[Any, Any]:
        results = run_on_devices(evaluates, runs, arguments, everywhere(num_blocks))
        return [run for run, _ in results], [metrics for _, metrics in results]

    return _Programs(
        init=lambda arguments: run_on_devices(inits, arguments, everywhere(num_blocks)),
        advance=lambda runs, arguments, count: run_on_devices(
            advances, runs, arguments, everywhere(np.int32(count)), everywhere(num_blocks)
        ),
        evaluate=evaluate_all,
        metric_names=metric_names,
    )


class _History:
    """Metrics of the evaluations so far, on the host."""

    def __init__(self, shape: tuple[int, int], env_steps_per_iteration: int):
        self.iterations: list[int] = []
        self._shape = shape
        self._per_iteration = env_steps_per_iteration
        self._chunks: list[dict[str, np.ndarray]] = []

    @property
    def env_steps(self) -> list[int]:
        return [iteration * self._per_iteration for iteration in self.iterations]

    def add(self, iteration: int, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        chunk = {name: values.reshape(self._shape) for name, values in metrics.items()}
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
    if not isinstance(seeds, Sequence | np.ndarray):
        check_count("seeds", seeds)
        return list(range(seeds))
    chosen = [int(seed) for seed in seeds]
    if not chosen or len(set(chosen)) != len(chosen) or min(chosen) < 0 or max(chosen) >= 2**32:
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
        known = tuple(batched.__dataclass_fields__)
        if path not in known:
            raise ValueError(f"env.{path} is no parameter of {algo.env.name}{near(path, known)}")
        default = getattr(batched, path)
        if np.shape(values) != default.shape:
            raise ValueError(f"env.{path} takes values of shape {default.shape[1:]}, got {np.shape(values)[1:]}")
        batched = batched.replace(**{path: np.asarray(values).astype(default.dtype)})
    return batched


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
