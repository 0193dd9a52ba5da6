"""Training: one compiled program for anyone to transform, and the driver of thousands of runs."""

import dataclasses
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.wrappers.wrapper import limit
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.members import check_members
from jaxrl.checks import check_count
from jaxrl.discounts.parsing import Prepared
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, seeds_that_fit
from jaxrl.runtime.checkpoints.store import begun_in
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.loop import evaluation_points, make_loop
from jaxrl.runtime.options import RunOptions, checked
from jaxrl.runtime.starting import starting_policies
from jaxrl.sweeps.batching import batched_env_params, batched_hparams
from jaxrl.sweeps.paths import leaves
from jaxrl.sweeps.sweep import Sweep

STOPPED = "training stopped"  # how the warning of a signal begins


class TrainOutput(NamedTuple):
    """What a compiled training program returns for one run.

    Attributes:
      state: the algorithm's final state.
      policy: what acting needs, for `algo.actor`.
      metrics: `{name: [points]}`: `return`, `discounted_return` and `length` of whole greedy
        episodes, the same with the suffix `_sampled`, and the algorithm's own, reduced by its rules since
        the point before.
      env_steps: Environment steps at each point, int32 `[points]`; float32, rounded, where they do not fit into it.
    """

    state: Any
    policy: Any
    metrics: dict[str, jax.Array]
    env_steps: jax.Array

    def __repr__(self) -> str:
        return f"TrainOutput(points {list(jnp.shape(self.env_steps))}; {', '.join(self.metrics)})"


def make_train(
    algo: Algorithm, *, env_steps: int, evals: int = 10, eval_episodes: int = 64, eval_at_start: bool = False
) -> Callable[..., TrainOutput]:
    """The whole training loop of one run as a pure function, to be jitted and vmapped.

    Args:
      algo: what to train.
      env_steps: environment steps of the run, rounded up to whole iterations.
      evals: evaluations, evenly spaced, the last at the end.
      eval_episodes: whole episodes of each evaluation, greedy and again sampled.
      eval_at_start: Flag to evaluate before training as well, as in `train`.

    Returns:
      `(key, hparams=algo.hparams, env_params=env.default_params) -> TrainOutput`, all of it
      traced. `train` with the same seed takes the same keys.
    """
    points = points_of(algo, env_steps, evals, eval_episodes, eval_at_start)
    loop = make_loop(algo, eval_episodes)
    per_iteration = algo.env_steps_per_iteration

    def run(key: jax.Array, hparams: Any = None, env_params: Any = None) -> TrainOutput:
        hparams = algo.hparams if hparams is None else hparams
        env_params = algo.env.default_params if env_params is None else env_params
        hparams = _float32(algo.prepare(hparams, run_length=int(points[-1]) * per_iteration))
        env_params = jax.tree.map(_strong, env_params)

        def until(run: Any, chunk: jax.Array) -> Any:
            start, end = chunk
            run = loop.advance(run, key, hparams, env_params, start, end - start)
            return loop.evaluate(run, key, hparams, env_params, end)

        chunks = jnp.asarray(np.stack([np.append(0, points[:-1]), points], axis=1), jnp.int32)
        last, metrics = jax.lax.scan(until, loop.init(key, hparams, env_params), chunks)
        at = points * per_iteration
        env_steps = jnp.asarray(at, jnp.int32 if at[-1] <= jnp.iinfo(jnp.int32).max else jnp.float32)
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
    eval_at_start: bool = False,
    env_params: Any = None,
    start: TrainedPolicy | Result | str | Path | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Trains every setting with every seed, in one program on all devices.

    Ctrl-C, SIGTERM and SIGUSR1 end after the chunk under way, with what is done evaluated, returned
    and saved, and a warning. A run whose metrics cease to be finite is reported and leaves the others alone.

    Args:
      algo: Algorithm to train.
      hparams: Hyper-parameters of one setting, or a `Sweep` from `grid` or `sample`; `algo.hparams` if None.
      seeds: Number of seeds (0, 1, ...), or the seeds themselves. Equal seeds share keys across settings.
      env_steps: Number of environment steps of each run, rounded up to whole iterations.
      evals: Number of evaluations, evenly spaced, the last at the end; at most one per iteration.
      eval_episodes: Number of whole episodes of each evaluation, greedy and again sampled.
      eval_at_start: Flag to evaluate before training as well, at environment step 0, where the metrics of the
        algorithm itself are NaN; nothing that follows changes.
      env_params: Parameters of the environment, its defaults if None.
      start: Policy to begin with, its normalisation included, as `result.policy()` returns it, for all runs; or a
        result or its directory, whose runs of equal seeds and coordinates are begun with, and a single one by all.
        Optimiser, schedules and environments begin anew. The result's attribute `start` records the origin. None
        begins with random parameters.
      **options: Options that say where and how the call is carried out, see `jaxrl.runtime.options.RunOptions`.

    Raises:
      ValueError, TypeError: bad arguments, before anything is compiled.
      FileExistsError: `out` holds a result, or another call is training into it, likewise.
      ResultError: `resume`, where `out` holds a run of another configuration, or a finished result
        without a checkpoint or without `run.json`, which tells whose it is.
    """
    points = points_of(algo, env_steps, evals, eval_episodes, eval_at_start)
    chosen = checked(train, RunOptions, options)
    begun = begun_in(chosen.out, trust=chosen.trust) if chosen.resume else None
    call = training_call(
        algo,
        hparams,
        seeds=seeds_that_fit(seeds, hparams),
        points=points,
        eval_episodes=eval_episodes,
        env_params=env_params,
        begun=begun,
        schedules=chosen.schedules,
    )
    if start is not None:
        if chosen.shard_environments:
            raise UserValueError("start does not go with shard_environments: leave one of them out")
        policies, origin = starting_policies(algo, start, call.sweep, call.seeds)
        call = dataclasses.replace(call, start=policies, attrs={**call.attrs, "start": origin})
    result = carry_out(call, chosen, begun=begun)
    _warn_of_a_stop(result, env_steps, chosen.out)
    return result


def training_call(
    algo: Algorithm,
    hparams: Any,
    *,
    seeds: list[int],
    points: np.ndarray,
    eval_episodes: int,
    env_params: Any = None,
    begun: Mapping[str, Any] | None = None,
    schedules: str = "keep",
) -> Call:
    """What `train` is to do, checked.

    Args:
      algo, hparams, eval_episodes, env_params: as in `train`.
      seeds: the seeds themselves.
      points: iterations after which to evaluate.
      begun: what `run.json` says of the run to resume, None where it begins anew.
      schedules: "keep" anneals what is annealed over the whole run over that of then, and a warning says what stays
        as it was where the run becomes longer; "stretch" anneals it over the longer run.

    Raises:
      ValueError: the run becomes longer, and would learn nothing further.
    """
    sweep = hparams if isinstance(hparams, Sweep) else None
    settings = batched_hparams(algo.hparams, hparams)
    env_settings = batched_env_params(algo.env, env_params, sweep)
    _warn_of_a_rest_counted_twice(algo, env_settings)
    env_steps = int(points[-1]) * algo.env_steps_per_iteration
    before = 0 if begun is None else int(begun["env_steps"])
    run_length = env_steps if begun is None else int(begun.get("run_length", env_steps))
    if schedules == "stretch" and env_steps > before:
        run_length = env_steps
    num_settings = 1 if sweep is None else len(sweep)
    prepared = _prepare(algo, settings, num_settings, run_length)
    _check_discount_is_known(algo, prepared, env_settings)
    if 0 < before < env_steps:
        _refuse_to_learn_nothing(algo, prepared, before)
    if env_steps > run_length:
        _warn_of_schedules(run_length, prepared, _prepare(algo, settings, num_settings, env_steps))
    return Call(
        loop=make_loop(algo, eval_episodes),
        identity=(algo.env, algo.functions, eval_episodes),
        points=points,
        env_steps_per_iteration=algo.env_steps_per_iteration,
        headline=lambda metrics: _mean_return(metrics["return"]),
        reserved=frozenset({"seed", "env_step"} | set(() if sweep is None else sweep.coords)),
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


def _warn_of_a_rest_counted_twice(algo: Algorithm, env_params: Any) -> None:
    """Warns where a reward pays for what follows the time limit and the algorithm bootstraps from its value too."""
    if getattr(algo.config, "time_limits", None) == "bootstrap" and algo.env.pays_beyond_limit(env_params):
        warnings.warn(
            f"time_limits is 'bootstrap', and {algo.env.name} already pays at the time limit for what would follow, "
            f"which is then counted twice; {type(algo.config).__name__}(time_limits='terminal') counts it once",
            RuntimeWarning,
            stacklevel=4,
        )


def _check_discount_is_known(algo: Algorithm, prepared: Any, env_params: Any) -> None:
    """Refuse episodes that are longer than the curve of a discount that only has one."""
    discount = None if algo.discount is None else algo.discount(prepared)
    if not isinstance(discount, Prepared) or discount.form is not None:
        return
    longest = int(np.max(limit(algo.env, env_params)))
    if longest > discount.horizon:
        raise UserValueError(
            f"env.max_steps_in_episode must be at most {discount.horizon}, the steps for which the curve of discount "
            f"is prepared, got {longest}; build {algo.name} on an environment of that limit, such as "
            f"envs.wrappers.time_limit(env, {longest})"
        )


def _refuse_to_learn_nothing(algo: Algorithm, prepared: Any, env_steps: int) -> None:
    """Refuses to make a run longer that has stopped to learn, such as by a step size of 0.

    Args:
      algo: Algorithm.
      prepared: Hyper-parameters, leaves `[num_settings]`.
      env_steps: Number of environment steps that the run was begun for.

    Raises:
      ValueError: Under some setting it has.
    """
    reason = None if algo.stopped is None else algo.stopped(prepared, env_steps)
    if reason is not None:
        raise UserValueError(
            f"env_steps makes a run longer that learns nothing further, for {reason}; schedules='stretch' "
            f"(--schedules stretch) anneals over the longer run what was annealed over the whole one"
        )


def _warn_of_schedules(run_length: int, prepared: Any, longer: Any) -> None:
    """Warns of what was scheduled over a run which then became longer: what preparing for the longer one changes."""
    pairs = zip(leaves(prepared), leaves(longer), strict=True)
    changed = [path for (path, one), (_, other) in pairs if np.any(one != other)]
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


def _mean_return(returns: np.ndarray) -> str:
    finite = returns[np.isfinite(returns)]
    return f"return {finite.mean():.1f}" if finite.size else "no finite return"


def points_of(
    algo: Algorithm, env_steps: int, evals: int, eval_episodes: int, eval_at_start: bool = False
) -> np.ndarray:
    """Iterations after which `train` evaluates; the arguments are its, and are checked."""
    check_members(algo)
    if isinstance(env_steps, float) and env_steps.is_integer():
        env_steps = int(env_steps)
    for name, value in (("env_steps", env_steps), ("evals", evals), ("eval_episodes", eval_episodes)):
        check_count(name, value)
    if not isinstance(eval_at_start, bool):
        raise UserTypeError(f"eval_at_start takes True or False, got {eval_at_start!r}")
    return evaluation_points(env_steps, evals, algo.env_steps_per_iteration, eval_at_start)


def _strong(leaf: Any) -> Any:
    """A number or array without a weak type; float64 becomes float32, int64 int32."""
    return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)) if np.isscalar(leaf) else leaf


def _float32(hparams: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), hparams)


def _prepare(algo: Algorithm, batched: Any, num_settings: int, run_length: int) -> Any:
    prepared = algo.prepare(batched, num_settings, run_length)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), prepared)
