"""The loop of one run, written once: initialise, advance, evaluate."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserValueError
from envs.threefry import rolled, unrolled
from jaxrl.algorithms.contract import METRIC_RULES, Algorithm, check_stepped
from jaxrl.checks import check_choice
from jaxrl.learning.evaluation import episode_metrics, evaluate, finite_only
from jaxrl.pytrees import EnvParams, HParams, Policy, State
from jaxrl.results.best import Best, Kept, better, unevaluated

Metrics = dict[str, jax.Array]


class Run(NamedTuple):
    """One run between two chunks.

    Attributes:
      state: State of the algorithm.
      sums: Metrics of the algorithm, reduced since the last evaluation: their sum, or the last one.
      since: Number of iterations since the last evaluation, int32 `[]`.
      best: Policy of the best evaluation so far; None where only the last one is kept.
    """

    state: State
    sums: Metrics
    since: jax.Array
    best: Best | None = None


class Loop(NamedTuple):
    """The functions of one run, for prepared hyper-parameters; pure, to be vmapped and compiled.

    The number of iterations done, `iteration`, is an argument: the runs of a block share it, so it is not batched.

    Attributes:
      init: Function `(key, hparams, env_params) -> Run`.
      advance: Function `(Run, key, hparams, env_params, iteration, num_iterations) -> Run`; both numbers are traced.
      evaluate: Function `(Run, key, hparams, env_params, iteration) -> (Run, metrics)`: the algorithm's metrics
        over the iterations since the last evaluation, by their rules (0 where there is none), and the evaluation
        itself, whose metrics are NaN where a metric of the algorithm is not finite or the policy holds a NaN.
      keep: Function `(Run, hparams) -> policies` that a result keeps of a run.
      warm: Function `(Run, policy) -> Run` that starts an initialised run from a policy; None if not supported.
      unmeasured: Function (names of metrics) -> those that have no value before the first iteration. Results have NaN
        there, which programs leave to their callers because `jax_debug_nans` would refuse it.
      again: Function `(Run, key, hparams, env_params, iteration) -> Kept` that evaluates the last and the best policy
        with other keys; None where only the last one is kept.
    """

    init: Callable[[jax.Array, Any, Any], Any]
    advance: Callable[[Any, jax.Array, Any, Any, Any, Any], Any]
    evaluate: Callable[[Any, jax.Array, Any, Any, Any], tuple[Any, Metrics]]
    keep: Callable[[Any, Any], Any]
    warm: Callable[[Any, Any], Any] | None = None
    unmeasured: Callable[[Collection[str]], Collection[str]] = lambda names: ()
    again: Callable[[Any, jax.Array, Any, Any, Any], Kept] | None = None


def make_loop(algo: Algorithm, eval_episodes: int, keep: str = "last") -> Loop:
    """Loop of one run of an algorithm, evaluated over `eval_episodes` whole episodes.

    With `keep="best"` it keeps the policy of the best evaluation beside the last one. Its `evaluate` raises ValueError,
    when traced, if a metric of the algorithm has the name of a metric of the evaluation.
    """
    for name, used in algo.metric_rules.items():
        check_choice(f"metric_rules[{name!r}]", used, METRIC_RULES)

    # Traced once, for its metrics and for its iterations; the trace belongs to the loop, not to the algorithm.
    step = jax.jit(lambda *arguments: algo.step(*arguments))

    def rule(name: str) -> str:
        return algo.metric_rules.get(name, "mean")

    def keys(key: jax.Array) -> jax.Array:
        return jax.random.split(unrolled(key), 3)

    def params_at(env_params: EnvParams, iteration: jax.Array) -> Any:
        return algo.env.params_at(env_params, jnp.float32(algo.env_steps_per_iteration) * iteration)

    def init(key: jax.Array, hparams: HParams, env_params: EnvParams) -> Run:
        state = algo.init(rolled(keys(key)[0]), hparams, params_at(env_params, jnp.int32(0)))
        stepped = jax.eval_shape(step, key, jnp.int32(0), state, hparams, env_params)
        check_stepped(state, stepped)
        metrics = stepped[1]
        for name in algo.metric_rules:
            check_choice("metric_rules", name, tuple(metrics))
        sums = {name: jnp.zeros(leaf.shape, jnp.float32) for name, leaf in metrics.items()}
        best = unevaluated(algo.policy(state, hparams)) if keep == "best" else None
        return Run(state, sums, jnp.zeros((), jnp.int32), best)

    def advance(
        run: Run, key: jax.Array, hparams: HParams, env_params: EnvParams, iteration: jax.Array, num_iterations: Any
    ) -> Run:
        iterations_key, first = keys(key)[1], jnp.asarray(iteration, jnp.int32)

        def body(iteration: jax.Array, run: Run) -> Run:
            params = params_at(env_params, iteration)
            step_key = rolled(jax.random.fold_in(iterations_key, iteration))
            state, metrics = step(step_key, iteration, run.state, hparams, params)
            sums = {name: metrics[name] if rule(name) == "last" else run.sums[name] + metrics[name] for name in metrics}
            return Run(state, sums, run.since + 1, run.best)

        return jax.lax.fori_loop(first, first + num_iterations, body, run)

    def evaluate_run(
        run: Run, key: jax.Array, hparams: HParams, env_params: EnvParams, iteration: jax.Array
    ) -> tuple[Run, Metrics]:
        policy = algo.policy(run.state, hparams)
        episodes = episodes_of(policy, jax.random.fold_in(keys(key)[2], iteration), hparams, env_params, iteration)
        own = {name: _reduced(rule(name), total, run.since) for name, total in run.sums.items()}
        clashes = sorted(set(episodes) & set(own))
        if clashes:
            raise UserValueError(
                f"{', '.join(clashes)} is a metric of {algo.name} and of the evaluation of {type(algo.env).__name__} "
                f"too; metric_rules and the algorithm's metrics take different names."
            )
        started = run._replace(sums=jax.tree.map(jnp.zeros_like, run.sums), since=jnp.zeros((), jnp.int32))
        metrics = finite_only(episodes, policy, run.sums) | own
        if run.best is not None:
            started = started._replace(best=better(run.best, policy, jnp.mean(metrics["return"]), iteration))
        return started, metrics

    def episodes_of(
        policy: Policy, key: jax.Array, hparams: HParams, env_params: EnvParams, iteration: jax.Array
    ) -> Metrics:
        params = params_at(env_params, iteration)
        weight = None if algo.discount is None else algo.discount(hparams).next_weight
        return evaluate(algo.env, params, algo.actor, policy, key, eval_episodes, weight)

    def kept(run: Run, hparams: HParams) -> Any:
        policy = algo.policy(run.state, hparams)
        return policy if run.best is None else Kept(policy, run.best)

    def again(run: Run, key: jax.Array, hparams: HParams, env_params: EnvParams, iteration: jax.Array) -> Kept:
        last, best = kept(run, hparams)
        assert best is not None
        fresh = jax.random.fold_in(jax.random.fold_in(keys(key)[2], iteration), 1)
        of_last, of_best = (
            jnp.mean(finite_only(episodes_of(policy, fresh, hparams, env_params, iteration), policy, {})["return"])
            for policy in (last, best.policy)
        )
        of_best = jnp.where(jnp.isneginf(best.return_then), jnp.nan, of_best)  # no evaluation was finite
        return Kept(last, best._replace(return_again=of_best, return_of_last=of_last))

    def warm(run: Run, policy: Policy) -> Run:
        assert algo.warm_start is not None  # refused by `starting_policies`
        return run._replace(state=algo.warm_start(run.state, policy))

    def unmeasured(names: Collection[str]) -> Collection[str]:
        return [name for name in names if name not in measured and rule(name) != "sum"]

    measured = episode_metrics(algo.env)
    return Loop(init, advance, evaluate_run, kept, warm, unmeasured, again if keep == "best" else None)


def _reduced(rule: str, total: jax.Array, since: jax.Array) -> jax.Array:
    """A metric over the iterations since the last evaluation, 0 if there is none."""
    return total / jnp.maximum(since, 1).astype(jnp.float32) if rule == "mean" else total


def evaluation_points(env_steps: int, evals: int, env_steps_per_iteration: int, at_start: bool = False) -> np.ndarray:
    """Iterations after which to evaluate, evenly spaced, the last one the end.

    Args:
      env_steps: Number of environment steps of one run; rounded up to whole iterations.
      evals: Number of evaluations, limited to the number of iterations.
      env_steps_per_iteration: Number of environment steps of the algorithm per iteration.
      at_start: Whether to evaluate before the first iteration as well.

    Returns:
      Increasing iterations, int64 `[<= evals]`, with a leading 0 if `at_start`.
    """
    iterations = -(-env_steps // env_steps_per_iteration)
    evals = min(evals, iterations)
    return -(-iterations * np.arange(0 if at_start else 1, evals + 1) // evals)
