"""Base of configurations and hyper-parameters of algorithms that learn from rollouts, and their preparation."""

import dataclasses
import functools
import inspect
import math
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.choices import ChoiceShape
from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import Range, Settings, check_choice, check_count, check_range, effective, is_concrete, short
from jaxrl.discounts.parsing import GAMMA_HINT, Exponential, as_discount
from jaxrl.learning.composites import Composite, Curve, check_curve_range
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.optimisers import ADAM_HPARAMS, LEARNED, Optimiser, check_optimiser, linear_share
from jaxrl.pytrees import DiscountLike, HParams, PyTree

INFINITE = math.inf
MOST_ROWS = 2**31 - 1
SCALED_SLOTS = (
    "normalise_observation would scale every slot of 'neighbours' differently; "
    "use own_scale and neighbour_scale instead"
)

__all__ = [
    "INFINITE",
    "SCALED_SLOTS",
    "DiscountedHParams",
    "RolloutConfig",
    "RolloutHParams",
    "TransitionsHParams",
    "annealed_over",
    "check_normalised",
    "check_not_choices_alone",
    "check_num_rows",
    "prepared",
    "stopped",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutConfig(NetworkConfig):
    """Static configuration of rollouts.

    Attributes:
      num_envs: Number of environments of one run.
      num_steps: Number of steps of each environment in one iteration.
      normalise_observation: Whether observations are normalised by their running mean and variance.
      reset_pool: Number of first states of episodes drawn in advance for each environment and iteration, and for each
        environment and `num_steps` of its steps before the first iteration. None draws enough for one reset every 8
        steps, or for one at every time limit if that is shorter. If an environment is reset more often, first states
        are used again, and `train` warns.
      time_limits: Treatment of time limits: "bootstrap" from the value of the last observation, or "terminal", which
        treats the limit as a termination; then the observation should include the remaining time, see
        `envs.wrappers.time_feature`.
      optimiser: Optimiser in place of Adam: a function of the step size that returns an optax.GradientTransformation,
        such as `optax.adamw` or `lambda lr: optax.sgd(lr, momentum=0.9)`, or its path, such as "optax:adamw"; None for
        Adam.
      gamma: Not a field; discounts are hyper-parameters.
    """

    num_envs: int = 4
    num_steps: int = 4
    normalise_observation: bool = False
    reset_pool: int | None = None
    time_limits: Literal["bootstrap", "terminal"] = "bootstrap"
    optimiser: Optimiser = None
    gamma: dataclasses.InitVar[None] = None
    takes_learned_optimiser: ClassVar[bool] = False

    def __post_init__(self, gamma: None) -> None:
        if gamma is not None:
            raise UserTypeError(f"{GAMMA_HINT}, among the hyper-parameters")
        super().__post_init__()
        for name in ("num_envs", "num_steps"):
            check_count(name, getattr(self, name))
        if self.reset_pool is not None:
            check_count("reset_pool", self.reset_pool)
        check_choice("time_limits", self.time_limits, ("bootstrap", "terminal"))
        check_optimiser(self.optimiser, self.takes_learned_optimiser)

    @property
    def steps_per_iteration(self) -> int:
        """Number of environment steps of one iteration."""
        return self.num_envs * self.num_steps

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        of_adam = {} if self.optimiser in (None, LEARNED) else dict.fromkeys(ADAM_HPARAMS, False)
        return {"observation_clip": self.normalise_observation, **of_adam}

    def _refuse_shared_trunk(self) -> None:
        """Reject a field of networks of an actor and a critic."""
        if self.shared_trunk:
            raise UserValueError(
                f"shared_trunk must be False in {type(self).__name__}, which has no network for both actor and critic, "
                "got True"
            )

    def _refuse_without_effect(self, name: str, where: str, effect: bool) -> None:
        """Reject a changed field that has no effect with the value of another, `where`."""
        if not effect and getattr(self, name) != type(self).__dataclass_fields__[name].default:
            raise UserValueError(f"{name} has no effect with {where}, got {getattr(self, name)}; leave it out")


class DiscountedHParams(Settings):
    """Base of hyper-parameters with a discount: dataclasses with `discount` and the argument `gamma`, not a field.

    Attributes:
      ranges: Valid values of other fields, by name.
      composites: Classes of several numbers that other fields take in place of a number, such as `Curve`, by name.
    """

    ranges = MappingProxyType[str, Range]({})
    composites = MappingProxyType[str, type[Composite]]({})

    def __post_init__(self, gamma: None) -> None:
        """Resolve a discount that is a number or a string, and reject values outside their ranges.

        Raises:
          TypeError: `gamma` is not None, or a field has several values, or a curve that it does not take.
          ValueError: A field lies outside its range.
        """
        if gamma is not None:
            raise UserTypeError(GAMMA_HINT)
        discount = vars(self)["discount"]
        if isinstance(discount, int | float | str):
            object.__setattr__(self, "discount", as_discount(discount))
        if inspect.isroutine(discount):
            raise UserTypeError(f"discount takes a number, a string or a Discount, got a function, {short(discount)}")
        if isinstance(discount, list | tuple):
            raise UserTypeError(f"discount takes one discount, got {discount!r}; several make a sweep: use jaxrl.grid")
        for name, allowed in type(self).ranges.items():
            value = getattr(self, name)
            if inspect.isroutine(value):
                end = f"; {name}_end anneals it" if f"{name}_end" in vars(self) else ""
                end += ", and optimiser= of the configuration takes schedules of optax" if name == "lr" and end else ""
                raise UserTypeError(f"{name} takes a number, got a function, {short(value)}{end}")
            check_range(name, value, allowed)
            if isinstance(value, Curve):
                check_curve_range(name, value, allowed)
        every: Any = self
        for field in dataclasses.fields(every):
            self._check_composite(field.name, getattr(self, field.name))

    @property
    def curved(self) -> list[str]:
        """Names of the fields that change over the run, as curves do."""
        values = {name: getattr(self, name) for name in type(self).composites}
        return [name for name, value in values.items() if isinstance(value, Composite) and value.over_run]

    def _check_composite(self, name: str, value: object) -> None:
        """Reject several numbers in a field that does not take them."""
        takes = type(self).composites
        if name not in type(self).ranges and name in takes and inspect.isroutine(value):
            raise UserTypeError(f"{name} takes a {takes[name].__name__}, got a function, {short(value)}")
        if not isinstance(value, Composite) or isinstance(value, takes.get(name, ())):
            return
        fields = [each for each, kind in takes.items() if kind is type(value)]
        takers = f"{', '.join(fields) or 'no field'} of {type(self).__name__}"
        raise UserTypeError(f"{name} takes a number, got {value!r}; {takers} can be a {type(value).__name__}")


class RolloutHParams(DiscountedHParams):
    """Base of hyper-parameters of algorithms that follow gradients, with the ranges that all of them have.

    Attributes:
      schedules: Names of the fields that fall linearly over `anneal_env_steps`, by the name of the field that has their
        final fraction; a fraction of 1 keeps them constant.
      stopping: Names of the fractions of which 0 ends learning.
    """

    schedules = MappingProxyType[str, tuple[str, ...]]({"lr_end": ("lr",)})
    stopping = ("lr_end",)
    ranges = MappingProxyType(
        {
            **dict.fromkeys(("lr", "lr_end"), Range(0, INFINITE, "[)")),
            "anneal_env_steps": Range(1, INFINITE),
            "adam_eps": Range(1e-30, INFINITE, "[)"),
            "max_grad_norm": Range(1e-30, INFINITE),
            "observation_clip": Range(0, INFINITE),
            **dict.fromkeys(("adam_b1", "adam_b2"), Range(0, 1, "[)")),
        }
    )

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        for end, names in type(self).schedules.items():
            for name in names:
                self._refuse_second_schedule(name, end, 1.0)

    def _refuse_second_schedule(self, name: str, other: str, neutral: float) -> None:
        """Reject a schedule of a field that is a curve.

        Args:
          name: Name of the field that may be a curve.
          other: Name of the field of the schedule, such as "lr_end".
          neutral: Value of that field without a schedule.
        """
        value = getattr(self, other)
        if not isinstance(getattr(self, name), Curve) or not is_concrete(value):
            return
        if isinstance(value, int | float | np.ndarray | np.number | jax.Array) and np.any(np.asarray(value) != neutral):
            raise UserValueError(f"{other} takes {neutral:g} where {name} is a curve with its own end, got {value}")

    def with_curves_at(self, env_steps: jax.Array) -> Self:
        """Hyper-parameters with the values after `env_steps` environment steps, `[]`, traced, in place of curves."""
        values: Any = self
        if not self.curved:
            return values
        share = jnp.minimum(env_steps / values.anneal_env_steps, 1.0)
        return dataclasses.replace(values, **{name: getattr(values, name).at(share) for name in self.curved})

    @property
    def final_fractions(self) -> dict[str, Any]:
        """Final fractions of the schedules that have an effect, by field."""
        ends = {end: getattr(self, end) for end in type(self).schedules}
        return {end: value for end, value in ends.items() if value is not None}

    def at(self, env_steps: jax.Array) -> Self:
        """Values after `env_steps` environment steps, `[]`, traced."""
        values: Any = self.with_curves_at(env_steps)
        changes = {}
        for end, fraction in self.final_fractions.items():
            share = linear_share(env_steps, fraction, values.anneal_env_steps)
            scaled = {name: getattr(values, name) for name in self.schedules[end]}
            changes |= {name: value * share for name, value in scaled.items() if value is not None}
        return dataclasses.replace(values, **changes)


@struct.dataclass
class TransitionsHParams(RolloutHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Initial step size of the optimiser, Adam by default.
      discount: Discount of rewards: a number (exponential), a string such as "beta:mu=0.98,eta=0.5", or a Discount.
      max_grad_norm: Global norm to which gradients are clipped; infinity disables clipping.
      adam_b1: Decay rate of the first moment in Adam.
      adam_b2: Decay rate of the second moment in Adam.
      adam_eps: Constant in the denominator of Adam.
      observation_clip: Bound of normalised observations.
      lr_end: Final step size as a fraction of the initial one, reached linearly; 1 keeps it constant.
      anneal_env_steps: Number of environment steps over which `lr_end` and other final fractions are reached; infinity
        means the whole run.
      gamma: Not a field; use `discount`.

    `observation_clip` is None in `Algorithm.hparams` where it has no effect.
    """

    lr: Any = 1e-3
    discount: Any = Exponential(0.99)
    max_grad_norm: Any = 10.0
    adam_b1: Any = 0.9
    adam_b2: Any = 0.999
    adam_eps: Any = 1e-5
    observation_clip: Any = 10.0
    lr_end: Any = 1.0
    anneal_env_steps: Any = INFINITE
    gamma: dataclasses.InitVar[None] = None


def prepared(
    hparams: HParams,
    effects: Mapping[str, bool],
    discount: DiscountLike,
    num_settings: int | None = None,
    run_length: int | None = None,
    defaults: Mapping[str, float] = MappingProxyType({}),
) -> HParams:
    """Hyper-parameters with a resolved discount and without those that have no effect, for `Algorithm.prepare`.

    Args:
      hparams: Hyper-parameters, of one setting, or with a leading axis `[num_settings]`.
      effects: Whether a hyper-parameter has an effect, by name, for those that do not always have one.
      discount: Resolved discount.
      num_settings: Number of settings; None for a single one.
      run_length: Number of environment steps of the run, at which infinite schedules end; None if unknown.
      defaults: Defaults of hyper-parameters that depend on the environment, by name.
    """
    fields = type(hparams).__dataclass_fields__
    for name, on in effects.items():
        value = getattr(hparams, name)
        if not on and isinstance(value, Composite):
            where = "this environment and configuration"
            raise UserValueError(f"{name} has no effect on {where}, got {value}; leave it out")
    changes = {
        name: effective(name, getattr(hparams, name), defaults.get(name, fields[name].default), on, num_settings)
        for name, on in effects.items()
    }
    if run_length is not None and hasattr(hparams, "final_fractions"):
        changes["anneal_env_steps"] = annealed_over(hparams, run_length)
    return dataclasses.replace(hparams, discount=discount, **changes)


def annealed_over(hparams: HParams, run_length: int) -> Any:
    """Effective `anneal_env_steps`: the run length if it is infinite and a schedule or a curve is set."""
    anneal, ends = hparams.anneal_env_steps, hparams.final_fractions
    xp = np if is_concrete((anneal, ends)) else jnp
    falls = functools.reduce(operator.or_, (end != 1.0 for end in ends.values())) | bool(hparams.curved)
    return xp.where(xp.isinf(anneal) & falls, np.float32(run_length), anneal)


def stopped(hparams: HParams, env_steps: int) -> str | None:
    """Reason why some setting learns nothing after `env_steps`: a step size has fallen to 0, or its least value."""
    anneal = np.asarray(hparams.anneal_env_steps)
    for name in hparams.stopping:
        ended = (np.asarray(getattr(hparams, name)) == 0) & (anneal <= env_steps)
        if ended.any():
            return f"its step size fell to its least value within {int(anneal[ended].max()):,} env steps ({name}=0)"
        for field in set(hparams.schedules[name]) & set(hparams.curved):
            ended = (np.asarray(getattr(hparams, field).values)[..., -1] == 0) & (anneal <= env_steps)
            if ended.any():
                return f"its step size fell to 0 within {int(anneal[ended].max()):,} env steps ({field} is a curve)"
    return None


def check_num_rows(num_rows: int) -> None:
    """Reject more samples in an iteration than int32 can count.

    Raises:
      ValueError: `num_rows` is above `MOST_ROWS`.
    """
    if num_rows > MOST_ROWS:
        raise UserValueError(
            f"num_envs * num_steps * agents must be at most {MOST_ROWS:,} samples of an iteration, which int32 "
            f"counts, got {num_rows:,}"
        )


def check_normalised(normalised: bool, shapes: PyTree) -> None:
    """Reject `normalise_observation` for observations with neighbours, whose slots are alike, or of choices alone.

    Args:
      normalised: Whether observations are normalised.
      shapes: Shapes of one observation.

    Raises:
      ValueError: Observations are normalised, and have the entry "neighbours" or nothing but choices.
    """
    if normalised and isinstance(shapes, dict) and "neighbours" in shapes:
        raise UserValueError(SCALED_SLOTS)
    check_not_choices_alone(normalised, shapes)


def check_not_choices_alone(normalised: bool, shapes: PyTree) -> None:
    """Reject `normalise_observation` for observations that consist of choices, which have no mean.

    Args:
      normalised: Whether observations are normalised.
      shapes: Shapes of one observation, by `networks.observation_shapes`.

    Raises:
      ValueError: Observations are normalised, and have no other numbers.
    """
    if normalised and all(isinstance(leaf, ChoiceShape) for leaf in jax.tree.leaves(shapes)):
        raise UserValueError(
            "normalise_observation has no effect on observations of choices alone (Discrete, MultiDiscrete), which "
            "networks take as one-hot vectors, got True; leave it out"
        )
