"""Training: one compiled program for anyone to transform, and the driver of thousands of runs."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.registry import near
from jaxrl.algorithms.base import Algorithm, check_choice, check_count
from jaxrl.layout import Layout, over_runs, plan_layout
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

    def every_run(leaf: np.ndarray) -> jax.Array:
        return layout.spread(np.repeat(leaf, len(seed_list), axis=0))

    arguments = (
        layout.spread(np.tile(np.asarray(seed_list, np.uint32), num_settings)),
        jax.tree.map(every_run, prepared),
        jax.tree.map(every_run, batched_params),
    )
    shape = (num_settings, len(seed_list))
    bar = Progress(int(points[-1]) * algo.env_steps_per_iteration * layout.num_runs, progress)
    bar.phase("compiling")
    started = time.perf_counter()
    with jax.default_matmul_precision(None if precision == "default" else precision):
        programs = _compile(make_loop(algo, eval_episodes), layout, arguments)
    clashes = set(programs.metric_names) & ({"seed", "env_step"} | set(() if sweep is None else sweep.coords))
    if clashes:
        raise ValueError(f"metrics and swept paths must differ in name, got {', '.join(sorted(clashes))} for both")
    attrs = {
        "algorithm": algo.name,
        "environment": algo.env.name,
        "block": layout.block,
        "num_devices": layout.mesh.size,
        "device_kind": layout.mesh.devices.flat[0].device_kind,
        "precision": precision,
        "eval_episodes": eval_episodes,
        "compile_seconds": time.perf_counter() - started,
        **{f"version_{name}": version for name, version in versions().items()},
    }
    history = _History(shape, algo.env_steps_per_iteration)
    runs = programs.init(*arguments)
    bar.start()
    started = time.perf_counter()

    def result() -> Result:
        policies = jax.tree.map(
            lambda leaf: layout.gather(leaf).reshape(*shape, *leaf.shape[1:]), jax.vmap(algo.policy)(runs.state)
        )
        seconds = time.perf_counter() - started
        done = history.iterations[-1] * algo.env_steps_per_iteration * layout.num_runs
        attrs.update(run_seconds=seconds, env_steps_per_second=done / seconds)
        attrs.update(interrupted=int(history.iterations[-1] < points[-1]))
        metrics = metrics_dataset(
            history.stacked(), seeds=seed_list, env_steps=history.env_steps, sweep=sweep, attrs=attrs
        )
        return Result(metrics, policies, algo, batched)

    with stop_on_signals() as stop:
        try:
            done, seconds_per_iteration = 0, None
            for point in points.tolist():
                while done < point and not stop:
                    count = 1 if seconds_per_iteration is None else int(SECONDS_PER_CHUNK / seconds_per_iteration)
                    count = min(max(count, 1), point - done)
                    chunk_started = time.perf_counter()
                    runs = programs.advance(runs, *arguments, np.int32(count))
                    jax.block_until_ready(runs.iteration)
                    seconds_per_iteration = (time.perf_counter() - chunk_started) / count
                    done += count
                    bar.advance(count * algo.env_steps_per_iteration * layout.num_runs)
                if history.iterations and history.iterations[-1] == done:
                    break
                runs, metrics = programs.evaluate(runs, *arguments)
                chunk = history.add(done, {name: layout.gather(leaf) for name, leaf in metrics.items()})
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
    init: Callable[..., Any]
    advance: Callable[..., Any]
    evaluate: Callable[..., Any]
    metric_names: tuple[str, ...]


def _compile(loop: Loop, layout: Layout, arguments: Any) -> _Programs:
    """Compiles the three programs side by side; states are updated in place."""

    def init(seed: jax.Array, hparams: Any, env_params: Any) -> Any:
        return loop.init(jax.random.key(seed), hparams, env_params)

    def advance(run: Any, seed: jax.Array, hparams: Any, env_params: Any, count: jax.Array) -> Any:
        return loop.advance(run, jax.random.key(seed), hparams, env_params, count)

    def evaluate(run: Any, seed: jax.Array, hparams: Any, env_params: Any) -> Any:
        return loop.evaluate(run, jax.random.key(seed), hparams, env_params)

    initialise = jax.jit(over_runs(init, layout))
    sharding = jax.sharding.NamedSharding(layout.mesh, jax.sharding.PartitionSpec("runs"))
    runs = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        jax.eval_shape(initialise, *arguments),
    )
    lowered = (
        jax.jit(over_runs(advance, layout, num_shared=1), donate_argnums=0).lower(runs, *arguments, np.int32(1)),
        jax.jit(over_runs(evaluate, layout), donate_argnums=0).lower(runs, *arguments),
        initialise.lower(*arguments),
    )
    with ThreadPoolExecutor() as pool:
        advance_program, evaluate_program, init_program = pool.map(lambda program: program.compile(), lowered)
    return _Programs(init_program, advance_program, evaluate_program, tuple(lowered[1].out_info[1]))


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
