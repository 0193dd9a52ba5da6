"""Evolution strategies of evosax by name, with returns to maximise in place of fitness to minimise."""

import copy
import functools
import inspect
import math
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from envs.errors import MissingPackageError, UserValueError, installing
from envs.spelling import near
from jaxrl.checks import check_count
from jaxrl.learning.optimisers import Optimiser, custom
from jaxrl.pytrees import HParams, Params, PyTree, State

# Strategies that take parts of episodes, or arguments of their own.
_UNFIT = {"RandomSearch", "PersistentES", "NoiseReuseES", "DiffusionEvolution", "SV_CMA_ES", "SV_Open_ES"}
_NATURAL = {"SNES", "xNES", "DiscoveredES", "SimpleES"}  # step sizes of natural gradients, near 1
# Most members per parameter that a strategy takes; its learning rates are not a number above.
_MOST_PER_PARAMETER = {"LM_MA_ES": 2}
_MOST_PER_MATRIX = 2**14  # parameters of strategies with a matrix of all pairs of them, which then takes 1 GiB
_UNUSED = ("best_solution_shaped", "grad")  # fields of a state that nothing reads, or whose NaN and 0 mean the same
_MEMBERS = ("population", "population_best")  # fields of a state with one row for each member
# Strategies whose own standard deviation is another quantity than the deviation of the parameters: the factor of it for
# N parameters. The covariance of iAMaLGaM starts at the identity, which is added to its noise: half of the variance, or
# of the deviation, is then in either.
_OWN_STD: dict[str, Callable[[int], float]] = {
    "GuidedES": math.sqrt,
    "ASEBO": math.sqrt,
    "iAMaLGaM_Full": lambda _: math.sqrt(0.5),
    "iAMaLGaM_Univariate": lambda _: 0.5,
}

__all__ = ["Strategy", "make_strategy", "strategy_names"]


class Strategy(NamedTuple):
    """Functions of an evolution strategy on parameters of one structure.

    Populations are pytrees with leaves `[population_size, ...]`; returns, which are maximised, are float32
    `[population_size]`. Hyper-parameters have the fields `lr`, `std` and `std_decay`, traced.

    Attributes:
      has_lr: Whether the strategy has an optimiser, which takes `lr`.
      has_std, has_decay: Whether it takes a standard deviation at the start, and one that falls over generations.
      natural: Whether `lr` is a share of the natural gradient, usually 1.
      evaluates_first: Whether `init` takes the returns of a first population.
      init: Function `(key, params, population, returns, hparams) -> state`, from parameters and, if `evaluates_first`,
        a population around them with its returns, otherwise None and None.
      ask: Function `(key, state, hparams) -> (population, state)`.
      tell: Function `(key, population, returns, state, hparams) -> state`.
      solution: Function `(state) -> params`, the mean of the distribution, or the best member of the population.
      moved: Function `(state, params) -> state`, an initial state whose solution becomes `params`; the other members of
        a population move along with the best, and keep the returns that the state has for them.
    """

    has_lr: bool
    has_std: bool
    has_decay: bool
    natural: bool
    evaluates_first: bool
    init: Callable[[jax.Array, Any, Any, Any, Any], Any]
    ask: Callable[[jax.Array, Any, Any], tuple[Any, Any]]
    tell: Callable[[jax.Array, Any, jax.Array, Any, Any], Any]
    solution: Callable[[Any], Any]
    moved: Callable[[Any, Any], Any]


def strategy_names() -> dict[str, str]:
    """Names of the strategies, and those of their classes in evosax.

    Raises:
      MissingPackageError: evosax is not installed.
    """
    kinds = [name for name, kind in vars(_algorithms()).items() if inspect.isclass(kind) and name not in _UNFIT]
    kinds = [name for name in kinds if hasattr(getattr(_algorithms(), name), "ask")]
    return {_name(kind): kind for kind in sorted(kinds, key=str.lower)}


def make_strategy(
    name: str, population_size: int, params: Params, custom_optimiser: Optimiser = None, raw: bool = False
) -> Strategy:
    """Strategy of a name.

    Args:
      name: Name of the strategy, such as "open-es"; case, "-" and "_" do not matter.
      population_size: Number of members of a generation.
      params: Parameters that are evolved, or their shapes.
      custom_optimiser: Optimiser of a strategy with one; None for Adam, or the steps of a natural gradient.
      raw: Whether a strategy that replaces returns by their ranks takes the returns themselves.

    Raises:
      MissingPackageError: evosax is not installed.
      ValueError: There is no such strategy, or not with this population size, number of parameters or optimiser, or
        `raw` is set for one that does not replace returns by their centred ranks.
    """
    names = strategy_names()
    meant = {_plain(known): known for known in names}.get(_plain(name))
    if meant is None:
        hint = near(name, names) or f"; known are {', '.join(names)}."
        raise UserValueError(f"There is no evolution strategy {name!r}{hint}")
    example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)
    check_count("population_size", population_size, 2)
    most = _MOST_PER_PARAMETER.get(names[meant], math.inf) * sum(leaf.size for leaf in jax.tree.leaves(example))
    if population_size > most:
        raise UserValueError(
            f"population_size={population_size} does not fit the strategy {meant!r} of evosax: it takes at most {most} "
            "members, twice the number of parameters"
        )
    kind = getattr(_algorithms(), names[meant])
    takes = inspect.signature(kind.__init__).parameters
    natural = names[meant] in _NATURAL
    if custom_optimiser is not None and "optimizer" not in takes:
        raise UserValueError(f"optimiser has no effect with strategy={meant!r}, which has none; leave it out")
    ranks = "fitness_shaping_fn" in takes and takes["fitness_shaping_fn"].default is _shaping("centered_rank")
    if raw and not ranks:
        raise UserValueError(f"shaping='raw' has no effect with strategy={meant!r}, which ranks members in its own way")
    shaping = {"fitness_shaping_fn": _shaping("identity")} if raw else {}
    try:
        with jax.ensure_compile_time_eval():
            optimiser = {"optimizer": _optimiser(natural, 1.0, custom_optimiser)} if "optimizer" in takes else {}
            made = kind(population_size, example, **optimiser, **shaping)
            defaults = made.default_params
    except (AssertionError, ValueError, TypeError) as error:
        raise UserValueError(
            f"population_size={population_size} does not fit the strategy {meant!r} of evosax: {error}"
        ) from error
    has_lr, has_decay, has_init = "optimizer" in takes, "std_schedule" in takes, hasattr(defaults, "std_init")
    evaluates_first = not hasattr(made, "get_mean")

    if not evaluates_first:
        _refuse_large_matrix(meant, made, defaults, example)
    own_std = _OWN_STD.get(names[meant], lambda _: 1.0)(made.num_dims)

    def of(hparams: HParams, generation: int = 0) -> tuple[Any, Any]:
        """The strategy and its parameters with these hyper-parameters, `generation` after the one that it counts."""
        strategy, own = copy.copy(made), defaults
        std = hparams.std if own_std == 1.0 else own_std * hparams.std
        if has_lr:
            strategy.optimizer = _optimiser(natural, hparams.lr, custom_optimiser)
        if has_decay:
            strategy.std_schedule = lambda counted: std * hparams.std_decay ** (counted + generation)
        if has_init:
            first = jnp.float32(hparams.std)
            own = own.replace(std_init=jnp.sqrt(first) if names[meant] == "xNES" else first)  # of two factors there
        if names[meant] == "GuidedES":  # without a gradient as a guide, all of its noise is the same in all directions
            own = own.replace(alpha=1.0)
        return strategy, own

    def init(key: jax.Array, params: Params, population: PyTree, returns: Any, hparams: HParams) -> Any:
        strategy, own = of(hparams)
        first = (population, -returns) if evaluates_first else (params,)
        state = _untraced(strategy.init)(strategy, key, *first, own)
        if names[meant].startswith("iAMaLGaM"):
            state = state.replace(C=state.C * jnp.square(own_std * jnp.float32(hparams.std)))
        return _filled(_strong(state), (*_UNUSED, *([] if evaluates_first else ["best_solution"])))

    def ask(key: jax.Array, state: State, hparams: HParams) -> tuple[Any, Any]:
        strategy, own = of(hparams)
        population, state = _untraced(strategy.ask)(strategy, key, state, own)
        return population, _strong(state)

    def tell(key: jax.Array, population: PyTree, returns: jax.Array, state: State, hparams: HParams) -> Any:
        strategy, own = of(hparams, 1)  # evosax asks for the deviation of the next generation before it counts this one
        state = _untraced(strategy.tell)(strategy, key, population, -returns, state, own)[0]
        return _filled(_strong(state), _UNUSED)

    def moved(state: State, params: Params) -> Any:
        solution = made._ravel_solution(params)
        if not evaluates_first:
            return state.replace(mean=solution)
        best = jnp.argmin(state.fitness)
        shift = solution - state.population[best]
        kept = {name: getattr(state, name) + shift for name in _MEMBERS if hasattr(state, name)}
        kept = {name: members.at[best].set(solution) for name, members in kept.items()}  # without rounding
        return state.replace(best_solution=solution, **kept)

    return Strategy(
        has_lr=has_lr,
        has_std=has_decay or has_init,
        has_decay=has_decay,
        natural=natural,
        evaluates_first=evaluates_first,
        init=init,
        ask=ask,
        tell=tell,
        solution=made.get_best_solution if evaluates_first else made.get_mean,
        moved=moved,
    )


def _refuse_large_matrix(name: str, made: Any, defaults: Any, example: Params) -> None:
    """Reject parameters whose pairs fill a matrix of more than a gibibyte in the state of a strategy."""
    size = made.num_dims
    if size <= _MOST_PER_MATRIX:
        return
    init = functools.partial(_untraced(made.init), made)
    state = jax.eval_shape(init, jax.random.key(0), example, defaults)
    if any(math.prod(leaf.shape) >= size**2 for leaf in jax.tree.leaves(state)):
        raise UserValueError(
            f"strategy={name!r} stores a matrix with a row and a column for each of the {size:,} parameters of the "
            f"network, {4 * size**2 / 1e9:,.1f} GB, and takes at most {_MOST_PER_MATRIX:,} parameters; use a smaller "
            "network, such as hidden=(), or a strategy without a matrix, such as 'snes'"
        )


def _algorithms() -> Any:
    try:
        import evosax.algorithms as algorithms
    except ImportError as error:
        raise MissingPackageError(
            f"Evolution strategies need an extra: {installing('evolution')} ({error})."
        ) from error
    return algorithms


def _shaping(name: str) -> Callable[..., Any]:
    from evosax.core import fitness_shaping

    return getattr(fitness_shaping, f"{name}_fitness_shaping_fn")


def _name(kind: str) -> str:
    """Name of a class of evosax as words with hyphens: Open_ES is open-es, and SimpleGA is simple-ga."""
    return re.sub(
        r"(?<=[a-z])(?=(ES|GA|TF|Descent|Annealing|Climbing|Evolution)$)", "-", kind.replace("_", "-")
    ).lower()


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _optimiser(natural: bool, lr: jax.Array | float, custom_optimiser: Optimiser) -> optax.GradientTransformation:
    if custom_optimiser is not None:
        return custom(custom_optimiser, lr)
    return optax.sgd(lr) if natural else optax.adam(lr)


def _untraced(method: Any) -> Any:
    """A method of evosax without its own `jit`, whose cache would keep a strategy for every trace."""
    return method.__func__.__wrapped__ if hasattr(method, "__func__") else method.__wrapped__


def _filled(state: State, names: Collection[str]) -> Any:
    """A state with zeros for the NaN of fields without a value, which `jax_debug_nans` would refuse."""

    def filled(path: Any, leaf: jax.Array) -> jax.Array:
        return jnp.where(jnp.isnan(leaf), 0, leaf) if getattr(path[-1], "name", "") in names else leaf

    return jax.tree.map_with_path(filled, state)


def _strong(state: State) -> Any:
    """The state as arrays whose types do not depend on the values of constants."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)
