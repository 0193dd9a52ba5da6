"""Thousands of runs of a policy on a bandit in one program, and their regret."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from envs.bandits.base import Bandit
from envs.bandits.batched_last import runs_last
from envs.errors import UserTypeError, UserValueError
from envs.settings import own_settings
from envs.threefry import unrolled
from jaxrl.bandits.arms import Tally
from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.checks import check_count
from jaxrl.pytrees import EnvParams, HParams, Number, PyTree, State
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, seeds_that_fit
from jaxrl.runtime.checkpoints.store import begun_in
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.layout import LANES
from jaxrl.runtime.loop import Loop
from jaxrl.runtime.options import BanditOptions, checked
from jaxrl.sweeps.batching import batched_env_params, batched_hparams
from jaxrl.sweeps.sweep import Sweep

CPU_BLOCK, ARMS_OF_BLOCK = 1024, 16_384  # on a CPU: runs, and runs times arms, that fit into a core's cache
ARM_METRICS = ("pulls",)
MOST_STEPS = 2**31 - 1

__all__ = ["bandit_call", "checkpoints", "make_bandit_loop", "run_bandit", "task_of"]


class BanditRun(NamedTuple):
    """The state of one run between two chunks.

    Attributes:
      env: State of the bandit.
      policy: State of the policy, which sees the arms in an order of its own.
      time: Number of pulls so far, int32 `[]`.
      totals: Sums `[n]`: of rewards; if the bandit has a regret, of the regret, of the realised regret, and of pulls of
        a best arm; if values change, of the values of the pulled arms.
      values: Sums of every arm's values where they change, `[K]`; else None.
      pulls: Numbers of pulls of each arm, `[K]`.
      order: Arms in the order in which the policy sees them, int32 `[K]`, None for the bandit's own.
    """

    env: Any
    policy: State
    time: jax.Array
    totals: Total
    values: Total | None
    pulls: Tally
    order: jax.Array | None


class Total(NamedTuple):
    """A float32 sum without rounding loss over millions of terms (Kahan): the sum and its correction."""

    sum: jax.Array
    lacks: jax.Array

    @classmethod
    def zeros(cls, size: int) -> Total:
        """`[size]` sums of no terms."""
        return cls(jnp.zeros(size), jnp.zeros(size))

    def add(self, term: jax.Array) -> Total:
        """The total with one more term."""
        term = term - self.lacks
        larger = self.sum + term
        return Total(larger, (larger - self.sum) - term)


def run_bandit(
    policy: BanditAlgorithm,
    env: Bandit,
    hparams: HParams = None,
    *,
    steps: int,
    runs: int | Sequence[int] = 100,
    points: int | Sequence[int] = 50,
    env_params: EnvParams = None,
    **options: Unpack[BanditOptions],
) -> Result:
    """Run a policy on a bandit, each setting in many independent runs, in one program on all devices.

    Args:
      policy: Policy, such as `jaxrl.bandits.ucb1()`.
      env: Bandit, such as `envs.make("bandit/bernoulli", num_arms=10)`; its time limit does not apply.
      hparams: One setting of the policy, or a `Sweep` from `grid` or `sample`, which may contain
        parameters of the bandit as `env.alpha`; `policy.hparams` if None.
      steps: Number of pulls of each run.
      runs: Number of runs (0, 1, ...), or a list of their numbers; a run's number is its seed. Runs with equal numbers
        draw the same instance and the same random numbers for every policy and setting.
      points: Number of checkpoints, spaced evenly in the logarithm, the last at the end; or a list of
        numbers of pulls. Memory grows with runs and checkpoints, not with steps.
      env_params: Parameters of the bandit; its defaults if None.
      **options: Options of execution, see `jaxrl.runtime.options.BanditOptions`.
        A `block` of None takes up to 4096 runs, on a CPU up to 1024, and fewer for more than 16 arms. With `resume` a
        finished run is not extended, because its policy may have depended on its length.

    Returns:
      A result whose metrics have the dims `(*sweep dims, "seed", "env_step")`, where `seed` is the
      run: `regret`, the sum over pulls of the best expected reward less that of the pulled arm;
      `realised_regret`, with the received reward instead of the latter; `simple_regret` of the
      arm recommended at that point, unless features are drawn again for each pull; `optimal`,
      the fraction of pulls of a best arm; `reward`,
      the mean reward of a pull; `pulls` of each arm, with "arm" as the last dim; and, where values change,
      `fixed_regret`, compared in expected rewards with the arm that was best in hindsight. A restless bandit has no
      regret and no best arm, so it reports only `reward`, `pulls`, and the metrics that the policy measures.

    Raises:
      ValueError, TypeError: Arguments are invalid, or the policy cannot be used on the bandit; raised before
        anything is compiled.
    """
    chosen = checked(run_bandit, BanditOptions, options)
    with own_settings():
        call = bandit_call(policy, env, hparams, steps=steps, runs=runs, points=points, env_params=env_params)
        return carry_out(call, chosen, begun=begun_in(chosen.out, trust=chosen.trust) if chosen.resume else None)


def bandit_call(
    policy: BanditAlgorithm,
    env: Bandit,
    hparams: HParams = None,
    *,
    steps: int,
    runs: int | Sequence[int],
    points: int | Sequence[int],
    env_params: EnvParams = None,
) -> Call:
    """The call of `run_bandit`, with the same arguments, which are checked."""
    if not isinstance(policy, BanditAlgorithm):
        raise UserTypeError(f"policy must be a BanditAlgorithm, such as jaxrl.bandits.ucb1(), got {policy!r}")
    if not isinstance(env, Bandit):
        raise UserTypeError(f"env must be a bandit, such as envs.make('bandit/bernoulli'), got {env!r}")
    check_count("steps", steps)
    if steps > MOST_STEPS:
        raise UserValueError(f"steps must be at most {MOST_STEPS}, which an int32 counts, got {steps}")
    at = checkpoints(points, steps)
    run_list = seeds_that_fit(runs, hparams, "runs")
    sweep = hparams if isinstance(hparams, Sweep) else None
    settings = batched_hparams(policy.hparams, hparams)
    env_settings = batched_env_params(env, env_params, sweep)
    policy.check(task_of(env))
    return Call(
        loop=make_bandit_loop(policy, env, steps),
        identity=(policy[2:], env, steps),
        points=at,
        env_steps_per_iteration=1,
        headline=_headline,
        reserved=frozenset({"seed", "env_step", "arm"} | set(() if sweep is None else sweep.coords)),
        prepared=settings,
        env_params=env_settings,
        seeds=run_list,
        sweep=sweep,
        algo=None,
        hparams=settings,
        attrs={
            "algorithm": policy.name,
            "environment": env.name,
            "algorithm_unknown": f"it is of the bandit policy {policy.name}, which learns as it acts",
            "steps": steps,
        },
        last_dims={name: ("arm",) for name in ARM_METRICS},
        cpu_block=max(min(CPU_BLOCK, ARMS_OF_BLOCK // env.num_arms) // LANES, 1) * LANES,
    )


def checkpoints(points: int | Sequence[int], steps: int) -> np.ndarray:
    """Numbers of pulls at which to evaluate, int64, increasing, the last one at the end.

    Args:
      points: Number of checkpoints, spaced evenly in the logarithm (fewer where they would coincide), or a list.
      steps: Number of pulls of a run.

    Raises:
      ValueError: An argument is invalid; the message names it.
    """
    if isinstance(points, int | np.integer):
        check_count("points", int(points))
        return np.unique(np.rint(np.geomspace(1, steps, int(points) + 1)[1:]).astype(np.int64))
    at = np.asarray(points)
    whole = at.ndim == 1 and at.size > 0 and at.dtype.kind in "iu"
    if not whole or at[0] < 1 or np.any(np.diff(at) <= 0) or at[-1] != steps:
        raise UserValueError(
            f"points must be a number, or increasing whole numbers from 1 to steps={steps}, got {points}"
        )
    return at.astype(np.int64)


def task_of(env: Bandit) -> Task:
    """The static properties of a bandit, as policies see them."""
    params = env.default_params
    state = jax.eval_shape(lambda key: env.reset_env(key, params)[1], jax.random.key(0))
    context = jax.eval_shape(lambda state: env.context(state, params), state)
    features = context.shape[-1] if isinstance(context, jax.ShapeDtypeStruct) and context.ndim == 2 else 0
    return Task(env.num_arms, features, env)


def make_bandit_loop(policy: BanditAlgorithm, env: Bandit, steps: int) -> Loop:
    """One run as the functions that the driver calls; an iteration is one pull.

    The run's key is split in three: for the instance, for the bandit's random numbers and for the policy's; the
    latter two are folded with the number of the pull.

    Policies take the first of several best arms. Each run therefore shows its policy the arms in a random order, the
    same for every policy, so that no result depends on the place of an arm.
    """
    task, horizon = task_of(env), np.int32(steps)
    changing = env.has_regret and not env.stationary
    num_totals = 1 + 3 * env.has_regret + changing

    def init(key: jax.Array, hparams: HParams, params: EnvParams) -> BanditRun:
        instance_key, _, policy_key = jax.random.split(unrolled(key), 3)
        env_state = env.reset_env(instance_key, params)[1]
        order_key = jax.random.fold_in(policy_key, np.uint32(steps) + np.uint32(1))  # beyond all numbers of pulls
        order = jax.random.permutation(order_key, np.arange(env.num_arms, dtype=np.int32))
        policy_key = jax.random.fold_in(policy_key, horizon)
        policy_state = policy.init(policy_key, task, env.known(env_state, params), hparams)
        totals = Total.zeros(num_totals)
        values = Total.zeros(env.num_arms) if changing else None
        pulls = Tally.zeros(env.num_arms)
        order = order if env.interchangeable else None
        return BanditRun(env_state, policy_state, jnp.zeros((), jnp.int32), totals, values, pulls, order)

    def pull(
        run: BanditRun, env_key: jax.Array, policy_key: jax.Array, hparams: HParams, params: EnvParams
    ) -> BanditRun:
        before = run.env
        mask, context = _ordered((env.action_mask(before, params), env.context(before, params)), run.order)
        view = View(run.time, jnp.asarray(horizon), mask, context, params)
        chosen = policy.choose(jax.random.fold_in(policy_key, run.time), run.policy, view, hparams)
        action = _named(chosen, run.order)
        _, after, reward, _, info = env.step_env(jax.random.fold_in(env_key, run.time), before, action, params)
        state = _learn(policy, run.policy, view, chosen, reward, info, hparams, run.order)
        terms, values = [reward], None
        if env.has_regret:
            optimum, value = env.optimum(before, params), env.action_value(before, action, params)
            terms += [optimum - value, optimum - reward, (value >= optimum).astype(jnp.float32)]
            if changing:
                terms.append(value)
                values = _plus(run.values, before.values)
        totals = _plus_each(run.totals, *terms)
        pulls = _plus(run.pulls, env.pulls(action))
        return BanditRun(after, state, run.time + 1, totals, values, pulls, run.order)

    def advance(
        run: BanditRun, key: jax.Array, hparams: HParams, params: EnvParams, iteration: jax.Array, num_pulls: Number
    ) -> BanditRun:
        del iteration  # `run.time`
        constants, structure = jax.tree.flatten((hparams, params))

        def one_pull(run: BanditRun, keys: tuple[jax.Array, ...], constants: list[Any]) -> BanditRun:
            return pull(run, *keys, *jax.tree.unflatten(structure, constants))

        return _many_pulls(one_pull, num_pulls, run, tuple(jax.random.split(unrolled(key), 3)[1:]), constants)

    def evaluate(
        run: BanditRun, key: jax.Array, hparams: HParams, params: EnvParams, iteration: jax.Array
    ) -> tuple[BanditRun, dict[str, jax.Array]]:
        del key, iteration
        done = run.time.astype(jnp.float32)
        totals = run.totals.sum
        metrics = {"reward": totals[0] / done, "pulls": run.pulls.value} | policy.measure(run.policy)
        if not env.has_regret:
            return run, metrics
        arm = _named(policy.recommend(run.policy, hparams), run.order)
        values = run.env.values
        metrics |= {"regret": totals[1], "realised_regret": totals[2], "optimal": totals[3] / done}
        if env.stationary or not task.num_features:  # an arm recommended for its features, which have changed since
            metrics["simple_regret"] = jnp.max(values) - values[arm]
        if run.values is not None:
            metrics["fixed_regret"] = jnp.max(run.values.sum) - totals[4]
        return run, metrics

    def keep(run: BanditRun, hparams: HParams) -> dict[str, jax.Array]:
        del hparams
        return {"values": run.env.values}

    return Loop(init, advance, evaluate, keep)


@runs_last
def _plus(total: Total | Tally, term: jax.Array) -> Any:
    return total.add(term)


@runs_last
def _plus_each(total: Total, *terms: jax.Array) -> Total:
    return total.add(jnp.stack(jnp.broadcast_arrays(*terms)))


def _ordered(of_arms: Any, order: jax.Array | None) -> Any:
    """Arrays with a row for each arm, in the order in which the policy sees the arms."""
    return of_arms if order is None else jax.tree.map(lambda leaf: leaf[order], of_arms)


def _named(place: Any, order: jax.Array | None) -> Any:
    """The arm, or the arms, in the policy's places."""
    if order is None:
        return place
    return jnp.stack([_at(order, each) for each in place]) if jnp.ndim(place) else _at(order, place)


def _seen(arm: Any, order: jax.Array | None) -> Any:
    """The places in which the policy sees an arm, or several; 0 for a number that is not an arm."""
    if order is None:
        return arm
    return jnp.stack([_place(order, each) for each in arm]) if jnp.ndim(arm) else _place(order, arm)


@runs_last
def _at(order: jax.Array, place: jax.Array) -> jax.Array:
    places = jnp.arange(order.shape[0], dtype=jnp.int32).reshape(-1, *[1] * (order.ndim - 1))
    return jnp.sum(jnp.where(places == place, order, 0), axis=0, dtype=jnp.int32)


@runs_last
def _place(order: jax.Array, arm: jax.Array) -> jax.Array:
    places = jnp.arange(order.shape[0], dtype=jnp.int32).reshape(-1, *[1] * (order.ndim - 1))
    return jnp.sum(jnp.where(order == arm, places, 0), axis=0, dtype=jnp.int32)


def _many_pulls(
    one_pull: Callable[..., Any], num_pulls: Number, run: PyTree, keys: tuple[jax.Array, ...], constants: list[Any]
) -> Any:
    """Many pulls of a run; under `vmap` with the runs along the last axis of every array.

    The arms are few and the runs many: computations for each arm, and above all the maximum over
    arms, are then done for many runs at a time.
    """
    leaves, structure = jax.tree.flatten(run)

    @jax.custom_batching.custom_vmap
    def loop(num_pulls: Number, leaves: list[Any], keys: jax.Array, constants: list[Any]) -> list[Any]:
        def body(_: object, leaves: list[Any]) -> list[Any]:
            return jax.tree.leaves(one_pull(jax.tree.unflatten(structure, leaves), keys, constants))

        return jax.lax.fori_loop(0, num_pulls, body, leaves)

    @loop.def_vmap
    def block(
        axis_size: int, batched: PyTree, num_pulls: Number, leaves: list[Any], keys: jax.Array, constants: list[Any]
    ) -> tuple[list[Any], list[bool]]:
        def last(leaf: PyTree, on: bool) -> Any:
            if on:
                return jnp.moveaxis(leaf, 0, -1)
            leaf = jnp.asarray(leaf)
            return jnp.broadcast_to(leaf[..., None], (*leaf.shape, axis_size))

        leaves, keys, constants = jax.tree.map(last, (leaves, keys, constants), tuple(batched[1:]))

        def body(_: object, leaves: list[Any]) -> list[Any]:
            def one(leaves: list[Any], keys: jax.Array, constants: list[Any]) -> list[Any]:
                return jax.tree.leaves(one_pull(jax.tree.unflatten(structure, leaves), keys, constants))

            return jax.vmap(one, in_axes=-1, out_axes=-1)(leaves, keys, constants)

        leaves = jax.lax.fori_loop(0, num_pulls, body, leaves)
        return [jnp.moveaxis(leaf, -1, 0) for leaf in leaves], [True] * len(leaves)

    return jax.tree.unflatten(structure, loop(num_pulls, leaves, keys, constants))


def _learn(
    policy: BanditAlgorithm,
    state: State,
    view: View,
    action: jax.Array,
    reward: jax.Array,
    info: PyTree,
    hparams: HParams,
    order: jax.Array | None,
) -> Any:
    """The policy's state after a pull: from its reward, or from all rewards that arrive with a delay."""
    if "arrivals" not in info:
        return policy.update(state, view, action, reward, hparams)

    def arrive(state: State, arrival: Any) -> tuple[Any, None]:
        action, reward, valid = arrival
        learned = policy.update(state, view, _seen(action, order), reward, hparams)
        return jax.tree.map(functools.partial(jnp.where, valid), learned, state), None

    return jax.lax.scan(arrive, state, info["arrivals"])[0]


def _headline(metrics: Mapping[str, np.ndarray]) -> str:
    name = "regret" if "regret" in metrics else "reward"
    finite = metrics[name][np.isfinite(metrics[name])]
    return f"{name} {finite.mean():.4g}" if finite.size else f"no finite {name}"
