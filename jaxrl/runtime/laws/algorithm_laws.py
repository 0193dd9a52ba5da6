"""Laws of the algorithm contract, tested on any algorithm."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.checking import ContractError
from envs.law_progress import Laws
from envs.settings import in_own_settings
from jaxrl.algorithms.contract import Algorithm, check_members, check_stepped
from jaxrl.algorithms.registry import EFFECTIVE_STEPS, row_of
from jaxrl.checks import check_flag, random_key
from jaxrl.pytrees import EnvParams, HParams, PyTree
from jaxrl.runtime.laws.actor_laws import check_actor
from jaxrl.runtime.loop import make_loop

# One iteration at two block widths may differ by rounding: relative to the largest entry of an array.
WIDTH_TOLERANCE = 2e-6

NUM_LAWS = 12
# Changes of a hyper-parameter that test whether it has an effect; the first one within its range is used.
_FACTORS_OF_FINITE = (0.5, 0.01, 1e-4)
_INSTEAD_OF_ZERO = (0.1, 1e-3)
_INSTEAD_OF_INFINITE = (10.0, 1e-3, 1e-8)


@in_own_settings
def check(
    algo: Algorithm, *, key: jax.Array | None = None, num_steps: int | None = None, progress: bool = True
) -> None:
    """Test an algorithm on every law of the contract, which takes about as long as compiling it a few times.

    The laws: members have the required types, and functions the required arguments; a step returns a state of the
    same structure and types, and finite scalars as metrics; all hyper-parameters are traced, so that other values
    compile nothing; each of them changes the result where it is active; a run in a batch starts as it does alone;
    training in chunks, with the state copied to the host and back, equals training in one piece bit for bit; the actor
    returns an action of the action space, the same one for every key when greedy; a batch acts as its elements do
    alone, and a memory keeps its shapes; replaying each agent of a rollout from its own observations and noise gives
    the same actions and memory.

    Args:
      algo: Algorithm on its environment; a small configuration is quicker.
      key: Random key, `jax.random.key(0)` if None.
      num_steps: Number of steps within which every hyper-parameter changes the result; None takes the number in the
        algorithm's registry row, and 3 for a custom algorithm.
      progress: Flag to show on standard error the law being tested, and at the end the number of laws that hold.

    Raises:
      ContractError: A law does not hold. The message is one sentence that names it.
      TypeError: `algo` is not an `Algorithm`.
    """
    check_flag("progress", progress)
    check_members(algo)
    key = jax.random.key(0) if key is None else random_key(key)
    env_params = jax.tree.map(jnp.asarray, algo.env.default_params)
    row = row_of(algo)
    if num_steps is None:
        num_steps = EFFECTIVE_STEPS if row is None else row.effective_steps
    with Laws(f"jaxrl.check({algo.name})", NUM_LAWS, progress) as law:
        law("members have the required types")
        law("a step keeps the state's types")
        _check_types(algo, key, env_params)
        state = _check_running(algo, key, env_params, law)
        check_actor(algo, key, algo.policy(state, _prepared(algo, algo.hparams)), law)
        law("every hyper-parameter has an effect")
        _check_leaves(algo, key, env_params, num_steps)


def _prepared(algo: Algorithm, hparams: HParams, num_settings: int | None = None) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), algo.prepare(hparams, num_settings))


def _check_types(algo: Algorithm, key: jax.Array, env_params: EnvParams) -> None:
    hparams = _prepared(algo, algo.hparams)
    before = jax.eval_shape(algo.init, key, hparams, env_params)
    stepped = jax.eval_shape(algo.step, key, jnp.int32(0), before, hparams, env_params)
    check_stepped(before, stepped)
    metrics = stepped[1]
    for name, leaf in metrics.items():
        if leaf.shape != () or leaf.dtype != jnp.float32:
            raise ContractError(f"metrics must be float32 scalars, {name!r} is {leaf.dtype}{list(leaf.shape)}")


def _check_running(algo: Algorithm, key: jax.Array, env_params: EnvParams, law: Laws) -> Any:
    """Test one trace, finite metrics, chunks against one piece, and a run in a batch; return a state."""
    law("other values of hyper-parameters trace nothing")
    loop = make_loop(algo, eval_episodes=1)
    hparams = _prepared(algo, algo.hparams)
    traces = []

    @jax.jit
    def advance(run: PyTree, key: jax.Array, hparams: HParams, iteration: jax.Array, count: Any) -> Any:
        traces.append(None)
        return loop.advance(run, key, hparams, env_params, iteration, count)

    keys = jax.random.split(key, 3)
    start = jax.jit(jax.vmap(loop.init, in_axes=(0, None, None)))(keys, hparams, env_params)
    first = np.int32(0)
    alone = advance(_row(start, 1), keys[1], hparams, first, np.int32(1))
    advance(_row(start, 1), keys[1], jax.tree.map(lambda leaf: leaf * jnp.float32(0.99), hparams), first, np.int32(1))
    if len(traces) > 1:
        raise ContractError("other values of hyper-parameters must not cause retracing, but they did")
    law("metrics are finite")
    for name, value in alone.sums.items():
        if not np.isfinite(value):
            raise ContractError(f"metrics must be finite, {name!r} is {value} in the first iteration")
    law("chunks equal one piece")
    whole = advance(_row(start, 1), keys[1], hparams, first, np.int32(3))
    chunked = advance(jax.tree.map(_host_and_back, alone), keys[1], hparams, np.int32(1), np.int32(2))
    if not _equal(whole, chunked):
        raise ContractError("three iterations must equal one and then two bit for bit, but they do not")
    law("a run among others starts as alone")
    together = jax.jit(jax.vmap(loop.advance, in_axes=(0, 0, None, None, None, None)))
    _compare_widths(alone, _row(together(start, keys, hparams, env_params, first, np.int32(1)), 1))
    return alone.state


def _compare_widths(alone: PyTree, among: PyTree) -> None:
    for (path, one), many in zip(jax.tree_util.tree_leaves_with_path(alone), jax.tree.leaves(among), strict=True):
        if not jnp.issubdtype(one.dtype, jnp.inexact):
            continue
        one, many = np.asarray(one), np.asarray(many)
        differ = ~np.equal(one, many)  # infinite entries that are equal, such as unbounded limits, do not
        error = float(np.max(np.abs(one[differ] - many[differ]), initial=0))
        scale = max(1.0, float(np.max(np.abs(one[np.isfinite(one)]), initial=0)))
        if not error <= WIDTH_TOLERANCE * scale:
            raise ContractError(
                f"a run must start among others as it does alone: {jax.tree_util.keystr(path)} differs by {error:.1e} "
                f"after one iteration, more than {WIDTH_TOLERANCE} of {scale:.3g}"
            )


def _check_leaves(algo: Algorithm, key: jax.Array, env_params: EnvParams, num_steps: int) -> None:
    """Change one hyper-parameter at a time, around the defaults and around a point where all are active."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(algo.hparams)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    defaults = [np.float32(leaf) for _, leaf in leaves]
    changes = [_allowed_changes(structure, defaults, i) for i in range(len(defaults))]
    all_on = [change[0] if change else default for change, default in zip(changes, defaults, strict=True)]
    rows, owners = [], []
    for base in (defaults, all_on):
        rows.append(base)
        owners.append(None)
        for i, change in enumerate(changes):
            for value in change if base is defaults else (*change[1:], defaults[i]):
                rows.append([*base[:i], value, *base[i + 1 :]])
                owners.append(i)
    batch = structure.unflatten([np.array(column, np.float32) for column in zip(*rows, strict=True)])

    def some_steps(hparams: HParams) -> tuple[Any, Any, Any]:
        state = algo.init(key, hparams, env_params)
        keys = jax.random.split(key, num_steps)
        iterations = jnp.arange(num_steps, dtype=jnp.int32)
        state, metrics = jax.lax.scan(
            lambda state, at: algo.step(*at, state, hparams, env_params), state, (keys, iterations)
        )
        return state, metrics, algo.policy(state, hparams)

    # Sequentially in one program, so that equal rows give results equal bit for bit.
    results = jax.device_get(jax.jit(lambda rows: jax.lax.map(some_steps, rows))(_prepared(algo, batch, len(rows))))
    start, effective = 0, set()
    for row, owner in enumerate(owners):
        if owner is None:
            start = row
        elif not _equal(_row(results, row), _row(results, start)):
            effective.add(owner)
    without = [name for i, name in enumerate(names) if i not in effective]
    if without:
        raise ContractError(
            f"every hyper-parameter must change the result where it is active, within {num_steps} steps: "
            f"{', '.join(without)} did not; make it None in Algorithm.hparams where it has no effect"
        )


def _allowed_changes(structure: PyTree, defaults: list[np.float32], i: int) -> list[np.float32]:
    value = defaults[i]
    changes = [factor * value for factor in _FACTORS_OF_FINITE]
    if not np.any(value):
        changes = [value + np.float32(change) for change in _INSTEAD_OF_ZERO]  # of an array: all its numbers
    elif np.any(np.isinf(value)):
        changes = _INSTEAD_OF_INFINITE
    allowed = []
    for changed in map(np.float32, changes):
        try:
            structure.unflatten([*defaults[:i], changed, *defaults[i + 1 :]])
        except (ValueError, TypeError):
            continue
        allowed.append(changed)
    return allowed


def _host_and_back(leaf: jax.Array) -> jax.Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(np.asarray(jax.random.key_data(leaf))))
    return jnp.asarray(np.asarray(leaf))


def _row(tree: PyTree, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)


def _equal(one: PyTree, other: PyTree) -> bool:
    def leaf_equal(x: PyTree, y: PyTree) -> bool:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        return np.array_equal(np.asarray(x), np.asarray(y), equal_nan=jnp.issubdtype(x.dtype, jnp.inexact))

    return all(map(leaf_equal, jax.tree.leaves(one), jax.tree.leaves(other)))
