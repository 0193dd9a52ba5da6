"""Training: one compiled program for anyone to transform, and the driver of thousands of runs."""

import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_choice, check_count
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.store import IDENTITY, read_identity
from jaxrl.runtime.driver import CHECKPOINT_MINUTES, PRECISIONS, Options, Tracker
from jaxrl.runtime.execution import Placement, run_call
from jaxrl.runtime.loop import evaluation_points, make_loop
from jaxrl.runtime.runs import Work
from jaxrl.sweeps.batching import batched_env_params, batched_hparams, seed_list
from jaxrl.sweeps.sweep import Sweep

STOPPED = "training stopped"  # how the warning of a signal begins


class TrainOutput(NamedTuple):
    """What a compiled training program returns for one run.

    Attributes:
      state: the algorithm's final state.
      policy: what acting needs, for `algo.actor`.
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
    points = points_of(algo, env_steps, evals, eval_episodes)
    loop = make_loop(algo, eval_episodes)
    per_iteration = algo.env_steps_per_iteration

    def run(key: jax.Array, hparams: Any = None, env_params: Any = None) -> TrainOutput:
        hparams = algo.hparams if hparams is None else hparams
        env_params = algo.env.default_params if env_params is None else env_params
        hparams = _float32(algo.prepare(hparams, run_length=int(points[-1]) * per_iteration))
        env_params = jax.tree.map(_strong, env_params)

        def until(run: Any, num_iterations: jax.Array) -> Any:
            return loop.evaluate(loop.advance(run, key, hparams, env_params, num_iterations), key, hparams, env_params)

        chunks = jnp.asarray(np.diff(points, prepend=0), jnp.int32)
        last, metrics = jax.lax.scan(until, loop.init(key, hparams, env_params), chunks)
        env_steps = jnp.asarray(points * per_iteration, jnp.int32)
        return TrainOutput(last.state, algo.policy(last.state, hparams), metrics, env_steps)

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
    memory: int | str | None = None,
    shard: str | tuple[int, int] | None = None,
    shard_environments: bool = False,
    on_chunk: Callable[[int, Mapping[str, np.ndarray]], None] | None = None,
    trackers: Sequence[Tracker] = (),
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    checkpoint_minutes: float | None = CHECKPOINT_MINUTES,
    progress: bool = True,
    precision: str = "default",
) -> Result:
    """Trains every setting with every seed, in one program on all devices.

    Ctrl-C, SIGTERM and SIGUSR1 end after the chunk under way, with what is done evaluated, returned
    and saved, and a warning. A run whose metrics cease to be finite is reported and leaves the others alone.

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
      devices: all local ones if None; or some, as JAX's devices or by name, such as `"gpu:0"`.
      memory: that the call may take, such as `"8GiB"` or a number of bytes: the whole process, or each
        device where these have memory of their own; 80 % of what is free if None. Runs that do not fit
        at the same time train in parts one after another, and where not even one block fits, blocks
        become narrower; see `jaxrl.plan`. A run that goes on keeps its parts and blocks.
      shard: `"i/n"` or `(i, n)`, the part of the runs to train here, for `merge` to assemble.
      shard_environments: whether all devices, those of the other processes that `jaxrl.distributed.start`
        joined among them, share the environments of one run: `num_envs` evenly, minibatches drawn on
        each, gradients, moments and running statistics averaged over all. For one setting and seed.
      on_chunk: called as `on_chunk(env_step, metrics)` after each evaluation, with arrays
        `[num_settings, num_seeds]`; NaN for runs that are not in the part that trains.
      trackers: likewise, and told of the beginning and the end; see `jaxrl.tracking`.
      out: a directory to save the result in.
      force: whether `out` may exist and be overwritten.
      resume: whether to go on from the checkpoint in `out`, bit for bit, where there is one; with more
        `env_steps` a finished run goes on, too. A run that was begun and has no checkpoint starts anew,
        of which a warning tells.
      checkpoint_minutes: between two checkpoints in `out`, beside those at a signal and at the end;
        None for none.
      progress: whether to show a progress bar (a line a minute without a terminal).
      precision: of matrix products, as `jax.default_matmul_precision` names it.

    Raises:
      ValueError, TypeError: bad arguments, before anything is compiled.
      FileExistsError: `out` holds a result, or another call is training into it, likewise.
      ResultError: `resume`, where `out` holds a run of another configuration, or a finished result
        without a checkpoint or without `run.json`, which tells whose it is.
    """
    points = points_of(algo, env_steps, evals, eval_episodes)
    if out is not None and not isinstance(out, str | Path):
        raise TypeError(f"out takes a directory, such as 'runs/x', got {out!r}")
    check_choice("precision", precision, PRECISIONS)
    options = Options(
        on_chunk=on_chunk,
        trackers=trackers,
        out=out,
        force=force,
        resume=resume,
        checkpoint_minutes=checkpoint_minutes,
        progress=progress,
        precision=precision,
    )
    call = training_call(
        algo,
        hparams,
        seeds=seed_list(seeds),
        points=points,
        eval_episodes=eval_episodes,
        env_params=env_params,
        run_length=_length_at_first(options),
    )
    result = run_call(
        call, options, Placement(block, devices, shard, shard_environments=shard_environments, memory=memory)
    )
    _warn_of_a_stop(result, env_steps, out)
    return result


def training_call(
    algo: Algorithm,
    hparams: Any,
    *,
    seeds: list[int],
    points: np.ndarray,
    eval_episodes: int,
    env_params: Any = None,
    run_length: int | None = None,
) -> Call:
    """What `train` is to do, checked.

    Args:
      algo, hparams, eval_episodes, env_params: as in `train`.
      seeds: the seeds themselves.
      points: iterations after which to evaluate.
      run_length: environment steps over which what is annealed over the whole run is annealed; up to
        the last point if None. Where that is longer a warning says what stays as it was.
    """
    sweep = hparams if isinstance(hparams, Sweep) else None
    settings = batched_hparams(algo.hparams, hparams)
    env_settings = batched_env_params(algo.env, env_params, sweep)
    env_steps = int(points[-1]) * algo.env_steps_per_iteration
    run_length = env_steps if run_length is None else run_length
    num_settings = 1 if sweep is None else len(sweep)
    prepared = _prepare(algo, settings, num_settings, run_length)
    if env_steps > run_length:
        _warn_of_schedules(run_length, prepared, _prepare(algo, settings, num_settings, env_steps))
    work = Work(
        make_loop(algo, eval_episodes),
        (algo.env, algo.functions, eval_episodes),
        points,
        algo.env_steps_per_iteration,
        headline=lambda metrics: _mean_return(metrics["return"]),
        reserved=frozenset({"seed", "env_step"} | set(() if sweep is None else sweep.coords)),
    )
    return Call(
        work=work,
        prepared=prepared,
        env_params=env_settings,
        seeds=seeds,
        sweep=sweep,
        algo=algo,
        hparams=settings,
        attrs={
            "algorithm": algo.name,
            "environment": algo.env.name,
            "eval_episodes": eval_episodes,
            "run_length": run_length,
        },
    )


def _warn_of_schedules(run_length: int, prepared: Any, longer: Any) -> None:
    """Warns of what was scheduled over a run which then became longer: what preparing for the longer one changes."""
    leaves = zip(jax.tree.leaves_with_path(prepared), jax.tree.leaves(longer), strict=True)
    changed = [
        jax.tree_util.keystr(at, simple=True, separator=".") for (at, one), other in leaves if np.any(one != other)
    ]
    if changed:
        warnings.warn(
            f"schedules of {', '.join(changed)} were annealed over the first {run_length:,} env steps and stay where "
            f"that ended",
            RuntimeWarning,
            stacklevel=4,
        )


def _warn_of_a_stop(result: Result, env_steps: int, out: str | Path | None) -> None:
    """Tells of a signal, after which a script would go on as if the runs were complete."""
    attrs = result.metrics.attrs
    if attrs["interrupted"] and attrs["stopped_by_signal"]:
        name = signal.Signals(attrs["stopped_by_signal"]).name
        done = f"{int(result.metrics['env_step'].values[-1]):,} of {env_steps:,} environment steps"
        further = "" if out is None else "; with resume=True the same call goes on"
        warnings.warn(f"{STOPPED} at {done} by {name}{further}", RuntimeWarning, stacklevel=3)


def _length_at_first(options: Options) -> int | None:
    """The length that a run had when it began, if this call goes on with one: schedules keep to it."""
    if not options.resume or options.out is None or not (Path(options.out) / IDENTITY).is_file():
        return None
    return read_identity(Path(options.out)).get("run_length")


def _mean_return(returns: np.ndarray) -> str:
    finite = returns[np.isfinite(returns)]
    return f"return {finite.mean():.1f}" if finite.size else "no finite return"


def points_of(algo: Algorithm, env_steps: int, evals: int, eval_episodes: int) -> np.ndarray:
    """Iterations after which `train` evaluates; the arguments are its, and are checked."""
    if not isinstance(algo, Algorithm):
        raise TypeError(f"algo takes an algorithm, such as jaxrl.ppo(envs.make('cartpole')), got {algo!r}")
    if isinstance(env_steps, float) and env_steps.is_integer():
        env_steps = int(env_steps)
    for name, value in (("env_steps", env_steps), ("evals", evals), ("eval_episodes", eval_episodes)):
        check_count(name, value)
    return evaluation_points(env_steps, evals, algo.env_steps_per_iteration)


def _strong(leaf: Any) -> Any:
    """A number or array without a weak type; float64 becomes float32, int64 int32."""
    return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)) if np.isscalar(leaf) else leaf


def _float32(hparams: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), hparams)


def _prepare(algo: Algorithm, batched: Any, num_settings: int, run_length: int) -> Any:
    prepared = algo.prepare(batched, num_settings, run_length)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), prepared)
