"""The environment contract: gymnax 1.0's, with additions that rollouts need."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

import jax
import numpy as np
from flax import struct
from jax.core import Tracer

from envs.arguments import CheckedFlags, check_choice, check_time_limit
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, DiscountLike, Number, Observation, Params, PyTree, State
from envs.settings import in_own_settings, methods_in_own_settings, own_settings

with own_settings():  # gymnax makes arrays while it is imported
    from gymnax.environments import environment as gymnax_environment
    from gymnax.environments import spaces

if TYPE_CHECKING:

    @struct.dataclass
    class EnvParams(gymnax_environment.EnvParams):
        """gymnax's class, whose fields may be arrays."""

        max_steps_in_episode: Any = 1

    @struct.dataclass
    class EnvState(gymnax_environment.EnvState):
        """gymnax's class, whose `time` is an array in programs."""

        time: Any
else:
    EnvParams = gymnax_environment.EnvParams
    EnvState = gymnax_environment.EnvState

Checked = TypeVar("Checked")
MetricRule = Literal["sum", "mean", "last"]
OptimumKind = Literal["precommitted", "stationary", "sophisticated"]
OPTIMUM_KINDS: tuple[OptimumKind, ...] = get_args(OptimumKind)

# Methods that programs trace.
_TRACED = (
    "reset_env",
    "step_env",
    "step",
    "is_truncated",
    "action_mask",
    "global_observation",
    "privileged",
    "params_at",
    "action_space",
    "observation_space",
)

__all__ = [
    "OPTIMUM_KINDS",
    "EnvParams",
    "EnvState",
    "Environment",
    "MetricRule",
    "OptimumKind",
    "agent_axes",
    "check_optimum_kind",
    "entries",
    "optimum_of",
    "spaces",
]


def _with_strong_observations(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, with strong types in the first of the values that it returns."""

    @functools.wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        returned = method(*arguments, **named)
        if not (isinstance(returned, tuple) and returned):  # what `check` refuses
            return returned
        if not any(getattr(leaf, "weak_type", False) for leaf in jax.tree.leaves(returned[0])):
            return returned  # unchanged: the map would order the entries of a dictionary, and the program with them
        return jax.tree.map(_strong, returned[0]), *returned[1:]

    return called


def _strong(leaf: PyTree) -> Any:
    return jax.lax.convert_element_type(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf


def check_optimum_kind(kind: str) -> OptimumKind:
    """Return a kind of optimum, see `Environment.optimum`; reject anything else.

    Raises:
      ValueError: The kind is none of `OPTIMUM_KINDS`.
    """
    check_choice("kind", kind, OPTIMUM_KINDS)
    return cast(OptimumKind, kind)


def check_action(space: spaces.Space, action: Action, name: str = "action") -> None:
    """Reject an action outside its space; agents may add leading axes."""
    if isinstance(space, spaces.Tuple | spaces.Dict):
        pairs = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for index, part in pairs:
            check_action(part, action[index], f"{name}[{index!r}]")
    elif isinstance(space, spaces.Discrete | spaces.Box):
        array = np.asarray(action)
        fits = array.ndim >= len(space.shape) and array.shape[array.ndim - len(space.shape) :] == space.shape
        if isinstance(space, spaces.Discrete):
            inside = (array >= 0) & (array < space.n) & (array == np.floor(array))
        else:
            used = array.astype(space.dtype)
            inside = (used >= np.asarray(space.low)) & (used <= np.asarray(space.high))
        if not fits or not np.all(inside):
            raise UserValueError(f"{name} must lie in the action space, {space!r}, got {action}")


class Environment(CheckedFlags, gymnax_environment.Environment):
    """An environment as pure functions; subclass it with a frozen dataclass.

    A subclass defines `default_params`, `reset_env`, `step_env`, `action_space` and
    `observation_space`; `reset` and `step`, which adds the time limit and the automatic reset, are inherited. Fields of
    the dataclass are static, and flags among them are checked: two equal environments share one compilation. Numbers to
    tune belong in an `EnvParams`, which is traced, and changing values in an `EnvState`, whose `time` counts the steps
    of the episode.

    `step_env(key, state, action, params) -> (obs, state, reward, terminated, info)`:
    `terminated` never includes the time limit, which is `is_truncated(state, params)`.
    The reward's shape `[*A]` is the batch shape: `()` for one agent, `(N,)` for a crowd;
    observation and action leaves are `[*A, ...]` while the spaces describe one agent, and the
    episode flags are scalars. `info` may contain

      * `"active"`: bool `[*A]`, whether the agent took part in this transition (weights the losses);
      * `"agent_terminated"`: bool `[*A]`, replaces `terminated` when bootstrapping;
      * `"behaviour"`: quantities that a learner may infer but does not observe, such as the behaviour of a partner, in
        the environment's `behaviour_space`;
      * `"metrics"`: a flat dictionary of numbers, reduced over an episode by `metric_rules`.

    Its methods compute in 32 bits, also under `jax_enable_x64`, see `envs.settings`. Observations of a weak type, such
    as those of `jnp.where(late, 1.0, 0.0)`, get the strong type.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        methods_in_own_settings(*_TRACED)(cls)
        for name in ("reset_env", "step_env"):
            if name in vars(cls):
                setattr(cls, name, _with_strong_observations(vars(cls)[name]))

    @property
    def default_params(self) -> Any:
        """The default parameters, of a subclass of `EnvParams` that sets `max_steps_in_episode`."""
        return EnvParams()

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        """The reduction over an episode of each entry of `info["metrics"]`."""
        return {}

    def action_mask(self, state: State, params: Params) -> Any:
        """The allowed discrete actions, or None if all are allowed.

        Args:
          state, params: State and parameters of the current step, traced.

        Returns:
          None, or a bool array `[*A, num_actions]`; for a `Tuple` of discrete spaces a tuple of such arrays, for a
          `MultiDiscrete` one with an array for each number, and for a `Dict` a dictionary. In every state it allows
          each agent at least one choice of each part.
        """
        del state, params
        return None

    def behaviour_space(self, params: Params = None) -> spaces.Tuple | None:
        """The space of `info["behaviour"]`: a `Tuple` of `Discrete` and one-dimensional `Box` parts; by default None.

        Args:
          params: Parameters, concrete; None for the defaults.
        """
        del params
        return None

    def global_observation(self, state: State, params: Params) -> Any:
        """The input of a centralised critic of a crowd, or None where the environment provides none.

        Args:
          state, params: State and parameters of the current step, traced.

        Returns:
          None, or a pytree of arrays about all agents together, without their leading axes. In a dictionary, "agents"
          `[N, F]` and "agents_present" `[N]`, 1 or 0, are rows whose order has no meaning, which critics may pool.
        """
        del state, params
        return None

    def privileged(self, state: State, params: Params) -> Any:
        """The facts that a critic may see and an actor may not, or None where the environment provides none.

        Args:
          state, params: State and parameters of the current step, traced.

        Returns:
          None, or a pytree of arrays of real numbers, leaves `[*A, ...]`.
        """
        del state, params
        return None

    def privileged_space(self, params: Params) -> spaces.Space | None:
        """The space of `privileged` for one agent, if it is stated; by default None.

        By default, a critic sees facts of a stated space beside the actor's observation, and
        reads choices among them as one-hot vectors.

        Args:
          params: Parameters, concrete.
        """
        del params
        return None

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: OptimumKind = "precommitted"
    ) -> float | None:
        """The best expected return of an episode, discounted from its start, where it is known exactly.

        Under a discount that is not exponential, what is best for the first step is not what later steps prefer, and
        there are three kinds of optimum:

          * `"precommitted"`: the best of all policies, with or without memory, which may depend on the time;
          * `"stationary"`: the best of the policies that act by the current observation alone, at random or not, or of
            the smaller class that the task states, such as functions of the state without the time, or linear ones;
          * `"sophisticated"`: the return of the policy that no change of a single step improves, if the decision at
            each step t discounts the rewards after it by Gamma(0), Gamma(1), ... from there, and the later ones act
            by the same policy.

        The first and the third are equal under an exponential discount, and all three where one step decides alone.

        Args:
          params: Parameters, concrete; None for the defaults.
          discount: Number, curve Gamma(0) = 1, Gamma(1), ... or object with `curve(horizon)`, such as a
            discount of `jaxrl`; None for the undiscounted sum of the rewards.
          kind: Kind of the optimum, one of `OPTIMUM_KINDS`.

        Returns:
          The mean return of an episode, per agent if there are several; None (the default) if it is not known.

        Raises:
          ValueError: There is no such kind, the discount is invalid, or `check_params` rejects a parameter, such as a
            time limit before every reward. Under a time limit that `check_params` accepts, rewards after the limit
            count as 0.
        """
        del params, discount
        check_optimum_kind(kind)
        return None

    def bound(self, params: Params = None, discount: DiscountLike = None) -> float | None:
        """An upper bound on the expected return of any policy, which no policy need attain: not an optimum.

        Args:
          params, discount: See `optimum`.

        Returns:
          The bound on the mean return of an episode; None (the default) if none is known.
        """
        del params, discount
        return None

    def memoryless(self, params: Params = None, discount: DiscountLike = None) -> float | None:
        """The best expected return of a policy without memory; None (the default) if it is not known exactly.

        Tasks that require a memory define it; there it is the stationary `optimum`.

        Args:
          params, discount: See `optimum`.
        """
        del params, discount
        return None

    def return_range(self, params: Params) -> tuple[Any, Any] | None:
        """The smallest and the largest undiscounted return that an episode can have, which end intervals of its mean.

        A subclass that changes `step_env` and not this method has other rewards, and counts as one without a range.

        Args:
          params: Parameters, concrete; every leaf may have a leading axis of settings.

        Returns:
          Two numbers, or arrays over the settings, for each agent if there are several; None (the default) if the
          returns have no known limits. An episode that the time limit ends early lies within them too.
        """
        del params
        return None

    def stated_return_range(self, params: Params) -> tuple[Any, Any] | None:
        """`return_range`, or None where a subclass of the class that states it changes `step_env`."""
        mro = type(self).__mro__

        def place(*names: str) -> int:
            return next(i for i, each in enumerate(mro) if not vars(each).keys().isdisjoint(names))

        return self.return_range(params) if place("return_range", "keeps_returns") <= place("step_env") else None

    def params_at(self, params: Params, env_steps: Number) -> Any:
        """The parameters after this many environment steps of a run's training, for curricula.

        Args:
          params: Parameters of the run, traced.
          env_steps: Number of steps taken by all environments of the run together, float32 `[]`, traced.

        Returns:
          Parameters like `params`; by default `params` themselves.
        """
        del env_steps
        return params

    def pays_beyond_limit(self, params: Params) -> bool:
        """Whether the reward at the time limit already includes the value of the rest; by default False.

        If True, an algorithm that bootstraps from the value of the last observation would count the rest twice.

        Args:
          params: Parameters, concrete; every leaf may have a leading axis of settings.
        """
        del params
        return False

    def check_params(self, params: Params) -> None:
        """Reject invalid parameters before compilation; by default all are accepted.

        Args:
          params: Parameters, concrete; every leaf may have a leading axis of settings.

        Raises:
          ValueError: A parameter is invalid; the message has its name, its range and its value.
        """
        del params

    def checked_params(self, params: Checked | None = None) -> Checked:
        """The parameters, or the defaults for None, after `check_params` and a check of the time limit.

        Args:
          params: Parameters, concrete; None for the defaults.

        Raises:
          ValueError: A parameter is invalid.
        """
        checked: Any = self.default_params if params is None else params
        check_time_limit(checked)
        self.check_params(checked)
        return checked

    @in_own_settings
    def step(  # pyright: ignore[reportIncompatibleVariableOverride] -- gymnax's is compiled as it is defined
        self, key: jax.Array, state: State, action: Action, params: Params = None
    ) -> tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[Any, Any]]:
        """One transition, with time limit and automatic reset.

        Raises:
          ValueError: An action that is not traced lies outside the action space.
        """
        if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((action, params))):
            check_action(self.action_space(self.default_params if params is None else params), action)
        return super().step(key, state, action, params)

    @property
    def num_actions(self) -> int:
        """Number of choices of a `Discrete` action space, or of numbers in a `Box` action."""
        space = self.action_space(self.default_params)
        if isinstance(space, spaces.Discrete):
            return space.n
        if isinstance(space, spaces.Box):
            return math.prod(space.shape)
        raise UserTypeError(f"num_actions is defined for a Discrete or Box action space, not {space!r}.")

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """One transition, without time limit and reset (see the class)."""
        raise NotImplementedError

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The first observation and state of an episode."""
        raise NotImplementedError


def optimum_of(
    env: Environment, params: Params = None, discount: DiscountLike = None, kind: OptimumKind = "precommitted"
) -> float | None:
    """The optimum of any environment, see `Environment.optimum`; None where its method is of another kind.

    The method of a bandit takes a state, because its optimum is that of one pull. A method without `kind` returns the
    precommitted optimum.

    Args:
      env: Environment.
      params, discount, kind: See `Environment.optimum`.
    """
    check_optimum_kind(kind)
    takes = inspect.signature(env.optimum).parameters
    if "kind" in takes:
        return env.optimum(params, discount, kind)
    return env.optimum(params, discount) if "discount" in takes and kind == "precommitted" else None


def bound_of(env: Environment, params: Params = None, discount: DiscountLike = None) -> float | None:
    """The bound of any environment, see `Environment.bound`; None where the attribute is not a method.

    Args:
      env: Environment.
      params, discount: See `Environment.optimum`.
    """
    return env.bound(params, discount) if callable(env.bound) else None


def agent_axes(space: spaces.Space, obs: Observation) -> tuple[int, ...]:
    """The axes of an observation before those of its space, which describes one agent.

    In a valid environment they are the reward's shape, which is not known before an action has
    been taken. Numbers of axes are added up, because a Dict's sample orders its leaves differently.
    """
    leaves = jax.tree.leaves(obs)
    one = jax.tree.leaves(jax.eval_shape(space.sample, jax.random.key(0)))
    axes = sum(len(leaf.shape) for leaf in leaves) - sum(len(leaf.shape) for leaf in one)
    return leaves[0].shape[: max(axes // len(leaves), 0)]


def entries(space: Any) -> dict[Any, spaces.Space]:
    """Entries of a `Tuple` or a `Dict`, in the order of JAX's leaves, which sorts names; empty for other spaces."""
    if isinstance(space, spaces.Dict):
        return dict(sorted(space.spaces.items()))
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else {}
