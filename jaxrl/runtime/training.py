"""Training: `make_train`, a pure function of one run, and `train`, which executes any number of runs."""

import dataclasses
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import entries
from envs.choices import one_hot_note
from envs.errors import UserTypeError, UserValueError
from envs.settings import in_own_settings, own_settings
from envs.wrappers.randomising import Sampler
from envs.wrappers.wrapper import limit, params_for
from jaxrl.algorithms.contract import Algorithm, check_members
from jaxrl.algorithms.off_policy_config import OffPolicyConfig
from jaxrl.algorithms.registry import randomised
from jaxrl.checks import check_count, check_flag, random_key
from jaxrl.discounts.parsing import Prepared
from jaxrl.pytrees import EnvParams, HParams, Number, Policy, PyTree, State
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, seeds_that_fit
from jaxrl.runtime.checkpoints.store import begun_in
from jaxrl.runtime.drive.progress import say
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.loop import evaluation_points, make_loop
from jaxrl.runtime.options import RunOptions, checked
from jaxrl.runtime.warm_start import warm_started
from jaxrl.sweeps.batching import batched_env_params, batched_hparams
from jaxrl.sweeps.paths import fields_of, leaves
from jaxrl.sweeps.sweep import Sweep

# Distributions by the names of parameters, or a function of a key that returns values.
Randomised = Mapping[str, Sampler] | Callable[[jax.Array], dict[str, Any]] | None
STOPPED = "training stopped"  # beginning of the warning after a signal


class TrainOutput(NamedTuple):
    """Output of the training program of one run.

    Attributes:
      state: Final state of the algorithm.
      policy: Policy with which `algo.actor` acts.
      metrics: Metrics `{name: [points]}`: `return`, `discounted_return` and `length` of whole greedy
        episodes, the same with the suffix `_sampled`, and those of the algorithm, reduced by its rules since
        the previous point.
      env_steps: Number of environment steps at each point, int32 `[points]`; float32, rounded, above the range of
        int32.
    """

    state: State
    policy: Policy
    metrics: dict[str, jax.Array]
    env_steps: jax.Array

    def __repr__(self) -> str:
        return f"TrainOutput(points {list(jnp.shape(self.env_steps))}; {', '.join(self.metrics)})"


def make_train(
    algo: Algorithm, *, env_steps: int, evals: int = 10, eval_episodes: int = 64, eval_at_start: bool = False
) -> Callable[..., TrainOutput]:
    """Whole training loop of one run as a pure function, to be jitted and vmapped.

    Args:
      algo: Algorithm to train.
      env_steps: Number of environment steps of the run, rounded up to whole iterations.
      evals: Number of evaluations, evenly spaced, the last at the end.
      eval_episodes: Number of whole episodes of each evaluation, once greedy and once sampled.
      eval_at_start: Flag to evaluate before training as well, as in `train`.

    Returns:
      Function `(key, hparams=algo.hparams, env_params=env.default_params) -> TrainOutput` of traced arguments.
      `train` with the same seed uses the same keys.
    """
    points = points_of(algo, env_steps, evals, eval_episodes, eval_at_start)
    loop = make_loop(algo, eval_episodes)
    per_iteration = algo.env_steps_per_iteration

    @in_own_settings
    def run(key: jax.Array, hparams: HParams = None, env_params: EnvParams = None) -> TrainOutput:
        key = random_key(key)
        hparams = algo.hparams if hparams is None else hparams
        env_params = algo.env.default_params if env_params is None else env_params
        prepared = algo.prepare(hparams, run_length=int(points[-1]) * per_iteration)
        hparams = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), prepared)
        env_params = jax.tree.map(_strong, env_params)

        def until(run: PyTree, chunk: jax.Array) -> Any:
            start, end = chunk
            run = loop.advance(run, key, hparams, env_params, start, end - start)
            return loop.evaluate(run, key, hparams, env_params, end)

        chunks = jnp.asarray(np.stack([np.append(0, points[:-1]), points], axis=1), jnp.int32)
        last, metrics = jax.lax.scan(until, loop.init(key, hparams, env_params), chunks)
        if eval_at_start:
            metrics |= {name: metrics[name].at[0].set(jnp.nan) for name in loop.unmeasured(metrics)}
        at = points * per_iteration
        env_steps = jnp.asarray(at, jnp.int32 if at[-1] <= jnp.iinfo(jnp.int32).max else jnp.float32)
        return TrainOutput(last.state, algo.policy(last.state, hparams), metrics, env_steps)

    return run


def train(
    algo: Algorithm | str,
    hparams: HParams = None,
    *,
    seeds: int | Sequence[int] = 1,
    env_steps: int | None = None,
    evals: int = 10,
    eval_episodes: int = 64,
    eval_at_start: bool = False,
    env_params: EnvParams = None,
    randomise: Randomised = None,
    warm_start: TrainedPolicy | Result | str | Path | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Train every setting with every seed, in one program on all devices.

    Ctrl-C, SIGTERM and SIGUSR1 stop training after the current chunk; the runs are then evaluated, returned
    and saved, with a warning. A run whose metrics are no longer finite is reported and does not affect the others.

    Args:
      algo: Algorithm to train. Two names instead of `algo` and `hparams`, `train("ppo", "cartpole")`, train with the
        preset of that pair, or with the defaults if there is none.
      hparams: Hyper-parameters of one setting, or a `Sweep` from `grid` or `sample`; `algo.hparams` if None.
      seeds: Number of seeds (0, 1, ...), or the seeds themselves. Equal seeds share keys across settings.
      env_steps: Number of environment steps of each run, rounded up to whole iterations; with two names, None takes the
        number of their preset and shows it.
      evals: Number of evaluations, evenly spaced, the last at the end; at most one per iteration.
      eval_episodes: Number of whole episodes of each evaluation, once greedy and once sampled.
      eval_at_start: Flag to evaluate before training as well, at environment step 0, where the metrics of the
        algorithm itself are NaN; later metrics do not change.
      env_params: Parameters of the environment, its defaults if None.
      randomise: Distributions of parameters of the environment by name, such as `{"length": jaxrl.Uniform(0.25, 1.0)}`,
        or function of a random key that returns values by name; drawn anew for every episode. The algorithm is built
        on `envs.wrappers.randomise(env, ...)`, so that a sweep takes paths such as `env.inner.gravity`. None draws no
        parameter.
      warm_start: Policy to begin with, its normalisation included, as `result.policy()` returns it, for all runs; or a
        result or its directory, whose runs are matched by seed and coordinates (a single run is used for all).
        Optimiser, schedules and environments start from scratch. The result's attribute `start` records the origin.
        None starts with random parameters.
      **options: Options of execution, see `jaxrl.runtime.options.RunOptions`.

    Raises:
      ValueError, TypeError: An argument is not valid; raised before anything is compiled.
      FileExistsError: `out` holds a result, or another call is training into it; raised before anything is compiled.
      ResultError: With `resume`, `out` holds a run of another configuration, or a finished result
        without a checkpoint or without `run.json`, which identifies the call.
    """
    chosen = checked(train, RunOptions, options)
    with own_settings():
        algo, hparams, env_steps = with_env_steps("train", algo, hparams, env_steps, show=chosen.progress)
        if randomise is not None:
            plain, algo = algo.env, randomised(algo, randomise)
            env_params = None if env_params is None else params_for(algo.env, plain, env_params)
        points = points_of(algo, env_steps, evals, eval_episodes, eval_at_start)
        if chosen.progress:
            _say_if_an_iteration_is_long(algo, env_steps)
            _say_if_sizes_are_rounded(algo.config)
            _say_if_images_are_flattened(algo)
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
            keep=chosen.keep,
        )
        if warm_start is not None:
            if chosen.shard_environments:
                raise UserValueError("warm_start cannot be combined with shard_environments: leave one of them out")
            call = warm_started(call, warm_start)
        result = carry_out(call, chosen, begun=begun)
    _warn_of_a_stop(result, env_steps, chosen.out)
    return result


def _of_names(algorithm: str, environment: str, env_steps: int | None, show: bool) -> tuple[Algorithm, int | None]:
    """The algorithm of two names, and its number of environment steps, None where neither call nor preset has one."""
    from jaxrl.presets import registry as presets  # imports every algorithm

    algo, preset = presets.named(algorithm, environment)
    settings = "default settings" if preset is None else "the settings of its preset"
    steps = ""
    if preset is not None and env_steps is None:
        env_steps = preset.env_steps
        steps = f" and its {env_steps:,} environment steps (env_steps=... changes them)"
    if show and env_steps is not None and jax.process_index() == 0:
        say(f"{algorithm} on {environment} with {settings}{steps}")
    return algo, env_steps


def with_env_steps(
    caller: str, algo: Any, second: object, env_steps: int | None, *, show: bool
) -> tuple[Algorithm, Any, int]:
    """The first two arguments of a function that trains, and its number of environment steps.

    Args:
      caller: Name of the function, for error messages.
      algo: Algorithm; or the name of one, with `second` the name of an environment, for the preset of that pair.
      second: Second argument, returned as it is; None where it was the name of an environment.
      env_steps: Number of environment steps; that of the preset of two names if None.
      show: Whether the preset is shown.

    Raises:
      TypeError: `algo` is not an algorithm, or the number of environment steps is missing.
      ValueError: There is no algorithm or environment of this name.
    """
    learner: Any = algo
    if isinstance(algo, str) and isinstance(second, str):
        learner, env_steps = _of_names(algo, second, env_steps, show)
        second = None
    check_members(learner)
    if env_steps is None:
        from jaxrl.presets import registry as presets

        known = presets.find(learner.name, learner.env.name)
        example = "500_000" if known is None else f"{known.env_steps:_} of the preset"
        raise UserTypeError(
            f"{caller} takes env_steps, the number of environment steps of each run, such as env_steps={example}"
        )
    return learner, second, env_steps


def training_call(
    algo: Algorithm,
    hparams: HParams,
    *,
    seeds: list[int],
    points: np.ndarray,
    eval_episodes: int,
    env_params: EnvParams = None,
    begun: Mapping[str, Any] | None = None,
    schedules: str = "keep",
    keep: str = "last",
) -> Call:
    """Checked call of `train`.

    Args:
      algo, hparams, eval_episodes, env_params: Arguments of `train`.
      seeds: Seeds of the runs.
      points: Iterations after which to evaluate.
      begun: Contents of `run.json` of the run to resume; None starts from scratch.
      schedules: Treatment of schedules over the whole run where a resumed run becomes longer: "keep" leaves them over
        the original length, with a warning that names them; "stretch" anneals over the longer run.
      keep: Policies to keep, as in `RunOptions`.

    Raises:
      ValueError: The run becomes longer, and would learn nothing further.
    """
    sweep = hparams if isinstance(hparams, Sweep) else None
    settings = batched_hparams(algo.hparams, hparams)
    env_settings = batched_env_params(algo.env, env_params, sweep)
    _warn_if_bootstrap_double_counts(algo, env_settings)
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
        loop=make_loop(algo, eval_episodes, keep),
        identity=(algo.env, algo.functions, eval_episodes, keep),
        points=points,
        env_steps_per_iteration=algo.env_steps_per_iteration,
        headline=lambda metrics: _mean_return(metrics["return"]),
        reserved=frozenset({"seed", "env_step"} | set(() if sweep is None else sweep.coords)),
        prepared=prepared,
        env_params=env_settings,
        seeds=seeds,
        sweep=sweep,
        algo=algo,
        hparams=_with_defaults(settings, prepared),
        attrs={
            "algorithm": algo.name,
            "environment": algo.env.name,
            "settings_from": algo.settings_from,
            "eval_episodes": eval_episodes,
            "run_length": run_length,
            **({} if keep == "last" else {"keep": keep}),
            **_notes(algo),
        },
    )


def _notes(algo: Algorithm) -> dict[str, str]:
    """Attributes of the result on the inputs of networks; custom networks get observations unchanged."""
    one_hot = one_hot_note(algo.env) if algo.network is None else None
    return {} if one_hot is None else {"one_hot": one_hot}


def _with_defaults(settings: Any, prepared: HParams) -> Any:
    """Hyper-parameters with the prepared values in place of None, so that a result states them."""
    missing = {name: getattr(prepared, name) for name in fields_of(settings) if getattr(settings, name) is None}
    return dataclasses.replace(settings, **missing)


def _warn_if_bootstrap_double_counts(algo: Algorithm, env_params: EnvParams) -> None:
    """Warn if the reward already includes the time after the limit and the algorithm bootstraps there as well."""
    if getattr(algo.config, "time_limits", None) == "bootstrap" and algo.env.pays_beyond_limit(env_params):
        warnings.warn(
            f"time_limits is 'bootstrap', and {algo.env.name} already pays for the rest of an episode at the limit, "
            f"which is then counted twice; {type(algo.config).__name__}(time_limits='terminal') counts it once",
            RuntimeWarning,
            stacklevel=4,
        )


def _check_discount_is_known(algo: Algorithm, prepared: HParams, env_params: EnvParams) -> None:
    """Reject episodes that are longer than the curve of a discount without a closed form."""
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


def _refuse_to_learn_nothing(algo: Algorithm, prepared: HParams, env_steps: int) -> None:
    """Refuse to extend a run that has stopped learning, such as by a step size of 0.

    Args:
      algo: Algorithm.
      prepared: Hyper-parameters, leaves `[num_settings]`.
      env_steps: Number of environment steps that the run was started with.

    Raises:
      ValueError: The run has stopped learning under some setting.
    """
    reason = None if algo.stopped is None else algo.stopped(prepared, env_steps)
    if reason is not None:
        raise UserValueError(
            f"env_steps extends a run that has stopped learning: {reason}; schedules='stretch' "
            f"(--schedules stretch) stretches annealing over the whole run to the longer run"
        )


def _warn_of_schedules(run_length: int, prepared: HParams, longer: Number) -> None:
    """Warn about schedules over a run that then became longer: values that differ when prepared for that length."""
    values = dict(leaves(prepared))
    changed = [path for path, other in leaves(longer) if np.any(values[path] != other)]
    shared = "anneal_env_steps"  # by all fractions of an initial value
    if shared in changed:
        fractions = [path for path in values if path.endswith("_end") and path != "epsilon_end"]
        ends = [path for path in fractions if np.any(values[path] != 1)] + getattr(prepared, "curved", [])
        changed = [path for path in changed if path != shared] + (ends or [shared])
    if changed:
        warnings.warn(
            f"schedules of {', '.join(changed)} end after the first {run_length:,} env steps, and their final values "
            f"are kept from then on; schedules='stretch' (--schedules stretch) spreads them over the longer run",
            RuntimeWarning,
            stacklevel=4,
        )


def _warn_of_a_stop(result: Result, env_steps: int, out: str | Path | None) -> None:
    """Warn after a signal, since a script would otherwise continue as if the runs were complete."""
    attrs = result.metrics.attrs
    if attrs["interrupted"] and attrs["stopped_by_signal"]:
        name = signal.Signals(attrs["stopped_by_signal"]).name
        done = f"{int(result.metrics['env_step'].values[-1]):,} of {env_steps:,} environment steps"
        further = "" if out is None else "; with resume=True the same call continues"
        warnings.warn(f"{STOPPED} at {done} by {name}{further}", RuntimeWarning, stacklevel=3)


def _mean_return(returns: np.ndarray) -> str:
    finite = returns[np.isfinite(returns)]
    return f"return {finite.mean():.1f}" if finite.size else "no finite return"


def points_of(
    algo: Algorithm, env_steps: int, evals: int, eval_episodes: int, eval_at_start: bool = False
) -> np.ndarray:
    """Iterations after which `train` evaluates, from its checked arguments."""
    check_members(algo)
    if isinstance(env_steps, float) and env_steps.is_integer():
        env_steps = int(env_steps)
    for name, value in (("env_steps", env_steps), ("evals", evals), ("eval_episodes", eval_episodes)):
        check_count(name, value)
    check_count("eval_episodes", eval_episodes, most=2**31 - 1, why=", which int32 counts")
    check_flag("eval_at_start", eval_at_start)
    return evaluation_points(env_steps, evals, algo.env_steps_per_iteration, eval_at_start)


def _say_if_an_iteration_is_long(algo: Algorithm, env_steps: int) -> None:
    """Say if one iteration, the least that a run takes, has more than twice the requested environment steps."""
    if algo.env_steps_per_iteration > 2 * env_steps:
        say(
            f"env_steps={env_steps:,} becomes {algo.env_steps_per_iteration:,}, the environment steps of one iteration "
            f"of {algo.name}, the least that it trains"
        )


def _say_if_images_are_flattened(algo: Algorithm) -> None:
    """Say if the network that a configuration chooses by itself has no convolutions for images."""
    if algo.network is not None or getattr(algo.config, "network", None) != "auto":
        return
    space = algo.env.observation_space(algo.env.default_params)
    shape, dtype = getattr(space, "shape", ()), getattr(space, "dtype", None)
    if len(shape) >= 3 and dtype is not None:
        say(
            f"observations {np.dtype(dtype)}{list(shape)} look like images, which network='auto' reads as one vector; "
            "network='cnn' has convolutions"
        )
    encoders = {each.rpartition(":")[0] for each in algo.config.encoders}
    images = [name for name, part in entries(space).items() if len(getattr(part, "shape", ())) >= 3]
    if flat := [str(name) for name in images if name not in encoders]:
        say(
            f"the entries {', '.join(flat)} of observations look like images, which are read as vectors; "
            f"encoders={{{flat[0]!r}: 'cnn'}} has convolutions"
        )


def _say_if_sizes_are_rounded(config: Any) -> None:
    """Say if a replay buffer, or its part that random actions fill, has more transitions than were asked for."""
    if not isinstance(config, OffPolicyConfig):
        return
    for name, size, rounded in (
        ("buffer_size", config.buffer_size, config.num_stored),
        ("prefill", config.prefill, config.num_prefilled),
    ):
        if size != rounded:
            say(
                f"{name}={size:,} becomes {rounded:,}, a multiple of the {config.steps_per_iteration:,} transitions of "
                "an iteration (num_envs * num_steps)"
            )


def _strong(leaf: PyTree) -> Any:
    """Convert a number to an array without a weak type; float64 becomes float32, int64 int32."""
    return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)) if np.isscalar(leaf) else leaf


def _prepare(algo: Algorithm, batched: PyTree, num_settings: int, run_length: int) -> Any:
    prepared = algo.prepare(batched, num_settings, run_length)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), prepared)
