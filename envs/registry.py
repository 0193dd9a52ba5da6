"""All environments by name: one row each, and `make`, which builds them; the rows alone load neither JAX nor gymnax."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near, near_or_all

if TYPE_CHECKING:
    from envs import base


class Row(NamedTuple):
    """The definition of an environment.

    Attributes:
      module, class_name: Module and name of the class.
      gymnasium_id: Id in Gymnasium, where it has one.
      fields: Static fields `(name, value)` that the name implies.
      wraps: Name of the inner environment, for a wrapper.
      optimum: Best expected return of an episode under the default parameters, without a discount, of an environment
        without a method `optimum`; all its kinds are equal. None if it is not known.
      bar: Return at which the task counts as solved; None without such a convention.
    """

    module: str
    class_name: str
    gymnasium_id: str | None = None
    fields: tuple[tuple[str, object], ...] = ()
    wraps: str | None = None
    optimum: float | None = None
    bar: float | None = None


_SCENARIOS = ("circle", "crossway", "corridor", "random", "circle-block", "choke", "car")
_PLANTS = (
    "scalar",
    "double-integrator",
    "lqg-double-integrator",
    "chain-of-masses",
    "unstable",
    "he1",
    "ac1",
)

ROWS: dict[str, Row] = {
    "cartpole": Row("envs.control.cartpole", "CartPole", "CartPole-v1", optimum=500.0, bar=475.0),
    "pendulum": Row("envs.control.pendulum", "Pendulum", "Pendulum-v1", bar=-220.0),
    "acrobot": Row("envs.control.acrobot", "Acrobot", "Acrobot-v1", bar=-90.0),
    "mountain-car": Row("envs.control.mountain_car", "MountainCar", "MountainCar-v0", bar=-110.0),
    "mountain-car-continuous": Row(
        "envs.control.mountain_car_continuous", "MountainCarContinuous", "MountainCarContinuous-v0", bar=90.0
    ),
    "cartpole-swing-up": Row("envs.control.cartpole_swing_up", "CartPoleSwingUp"),
    "acrobot-continuous": Row("envs.control.acrobot_continuous", "ContinuousAcrobot"),
    "reacher": Row("envs.control.reacher", "Reacher"),
    "motor/dc": Row("envs.control.dc_motor", "DCMotor"),
    "motor/dc-finite": Row("envs.control.dc_motor", "DCMotor", None, (("finite", True),)),
    "motor/synchronous": Row("envs.control.synchronous_motor", "SynchronousMotor"),
    "motor/synchronous-finite": Row("envs.control.synchronous_motor", "SynchronousMotor", None, (("finite", True),)),
    "quadrotor/hover": Row("envs.control.quadrotor", "Quadrotor"),
    "quadrotor/tracking": Row("envs.control.quadrotor", "Quadrotor", None, (("task", "tracking"),)),
    "racing": Row("envs.control.racing", "Racing"),
    "lander": Row("envs.control.lander", "Lander"),
    "lander-continuous": Row("envs.control.lander", "Lander", None, (("continuous", True),)),
    **{f"lq/{plant}": Row("envs.control.lq", "LinearQuadratic", fields=(("plant", plant),)) for plant in _PLANTS},
    "pde/convection-diffusion-reaction": Row("envs.pde.convection", "ConvectionDiffusionReaction"),
    "pde/wave": Row("envs.pde.wave", "Wave"),
    "pde/burgers": Row("envs.pde.burgers", "Burgers"),
    "pde/kuramoto-sivashinsky": Row("envs.pde.kuramoto_sivashinsky", "KuramotoSivashinsky"),
    "pathworld": Row("envs.decision.pathworld", "Pathworld"),
    "delayed-choice": Row("envs.decision.delayed_choice", "DelayedChoice"),
    "preference-reversal": Row("envs.decision.preference_reversal", "PreferenceReversal"),
    "random-dilemmas": Row("envs.decision.random_dilemmas", "RandomDilemmas"),
    "fishery": Row("envs.decision.fishery", "Fishery"),
    "inventory": Row("envs.decision.inventory", "Inventory"),
    "stopping": Row("envs.decision.stopping", "Stopping"),
    "replacement": Row("envs.decision.replacement", "Replacement"),
    "kelly": Row("envs.decision.kelly", "Kelly"),
    "queue": Row("envs.decision.queue", "Queue"),
    "river": Row("envs.decision.river", "River"),
    "maze": Row("envs.decision.maze", "Maze"),
    "memory/repeat-first": Row("envs.memory.repeat_first", "RepeatFirst"),
    "memory/t-maze": Row("envs.memory.t_maze", "TMaze"),
    "memory/delayed-match": Row("envs.memory.delayed_match", "DelayedMatch"),
    "memory/chain": Row("envs.memory.chain", "MemoryChain"),
    "memory/bandit": Row("envs.memory.bandit", "BanditEpisode"),
    "memory/autoencode": Row("envs.memory.autoencode", "Autoencode"),
    "memory/count-recall": Row("envs.memory.count_recall", "CountRecall"),
    "memory/concentration": Row("envs.memory.concentration", "Concentration"),
    "memory/battleship-small": Row("envs.memory.battleship", "Battleship"),
    "memory/cartpole": Row("envs.wrappers.hiding", "Hide", None, (("components", (1, 3)),), wraps="cartpole"),
    "memory/pendulum": Row("envs.wrappers.hiding", "Hide", None, (("components", (2,)),), wraps="pendulum"),
    "memory/acrobot": Row("envs.wrappers.hiding", "Hide", None, (("components", (4, 5)),), wraps="acrobot"),
    "memory/mountain-car": Row("envs.wrappers.hiding", "Hide", None, (("components", (1,)),), wraps="mountain-car"),
    "memory/mountain-car-continuous": Row(
        "envs.wrappers.hiding", "Hide", None, (("components", (1,)),), wraps="mountain-car-continuous"
    ),
    "memory/noisy-cartpole": Row(
        "envs.wrappers.observations", "ObservationNoise", None, (("scale", 0.1),), wraps="memory/cartpole"
    ),
    "memory/noisy-pendulum": Row(
        "envs.wrappers.observations", "ObservationNoise", None, (("scale", 0.1),), wraps="memory/pendulum"
    ),
    "game/climbing": Row("envs.games.climbing", "ClimbingGame"),
    "cooperation/levers": Row("envs.cooperation.levers", "LeverGame"),
    "cooperation/levers-self-play": Row("envs.cooperation.levers", "LeverGame", fields=(("partner", None),)),
    "cooperation/foraging": Row("envs.cooperation.foraging", "Foraging"),
    "cooperation/foraging-self-play": Row("envs.cooperation.foraging", "Foraging", fields=(("partner", None),)),
    "cooperation/levers-characters": Row("envs.cooperation.characters", "Characters", wraps="cooperation/levers"),
    "cooperation/foraging-characters": Row("envs.cooperation.characters", "Characters", wraps="cooperation/foraging"),
    "cooperation/crowd": Row("envs.cooperation.crowd", "SharedCrowd"),
    **{
        f"crowd/{scenario}": Row("envs.crowd.crowd", "Crowd", fields=(("scenario", scenario),))
        for scenario in _SCENARIOS
    },
    "bandit/bernoulli": Row("envs.bandits.bernoulli", "BernoulliBandit"),
    "bandit/gaussian": Row("envs.bandits.gaussian", "GaussianBandit"),
    "bandit/poisson": Row("envs.bandits.positive", "PoissonBandit"),
    "bandit/exponential": Row("envs.bandits.positive", "ExponentialBandit"),
    "bandit/student-t": Row("envs.bandits.heavy_tailed", "StudentBandit"),
    "bandit/pareto": Row("envs.bandits.heavy_tailed", "ParetoBandit"),
    "bandit/linear": Row("envs.bandits.contextual", "LinearBandit"),
    "bandit/logistic": Row("envs.bandits.contextual", "LogisticBandit"),
    "bandit/piecewise": Row("envs.bandits.piecewise", "PiecewiseBandit"),
    "bandit/random-walk": Row("envs.bandits.nonstationary", "RandomWalkBandit"),
    "bandit/sinusoidal": Row("envs.bandits.nonstationary", "SinusoidalBandit"),
    "bandit/sequence": Row("envs.bandits.adversarial", "SequenceBandit"),
    "bandit/constrained-adversary": Row("envs.bandits.adversarial", "ConstrainedAdversary"),
    "bandit/drifting-adversary": Row("envs.bandits.adversarial", "DriftingAdversary"),
    "bandit/adaptive-adversary": Row("envs.bandits.adaptive", "AdaptiveAdversary"),
    "bandit/dueling": Row("envs.bandits.dueling", "DuelingBandit"),
    "bandit/sleeping": Row("envs.bandits.sleeping", "SleepingBandit"),
    "bandit/delayed": Row("envs.bandits.delayed", "DelayedBandit"),
    "bandit/restless": Row("envs.bandits.restless", "RestlessBandit"),
    "bandit/gilbert-elliott": Row("envs.bandits.restless", "GilbertElliott"),
    "bandit/coupled-interventions": Row("envs.bandits.coupled", "InterventionBandit"),
    "bandit/coupled-matching": Row("envs.bandits.coupled", "MatchingBandit"),
    "bandit/coupled-capacity": Row("envs.bandits.coupled", "CapacityBandit"),
    "bandit/coupled-path": Row("envs.bandits.coupled", "PathBandit"),
    "probe/constant-reward": Row("envs.probes", "ConstantReward", optimum=1.0),
    "probe/observation-dependent": Row("envs.probes", "ObservationDependent", optimum=0.0),
    "probe/delayed-reward": Row("envs.probes", "DelayedReward", optimum=1.0),
    "probe/action-dependent": Row("envs.probes", "ActionDependent", optimum=1.0),
    "probe/action-and-observation-dependent": Row("envs.probes", "ActionAndObservationDependent", optimum=0.75),
    "probe/only-terminates": Row("envs.probes", "OnlyTerminates", optimum=3.0),
    "probe/only-truncates": Row("envs.probes", "OnlyTruncates", optimum=1.0),
}

# Environments of other libraries by the prefix of their names: modules with `environment_ids()` and
# `make(env_id, **static)`, whose environments have `name` and `fields`. All but gymnax and Gymnasium, which comes with
# it, are extras.
LIBRARIES = {
    "gymnax": "envs.gymnax_environment",
    "brax": "envs.adapters.incoming.brax",
    "playground": "envs.adapters.incoming.playground",
    "functional": "envs.adapters.incoming.functional",
    "gymnasium": "envs.adapters.incoming.host",
    "jaxmarl": "envs.adapters.incoming.from_jaxmarl",
    "xminigrid": "envs.adapters.incoming.xminigrid",
    "jumanji": "envs.adapters.incoming.jumanji",
    "navix": "envs.adapters.incoming.navix",
    "targetgym": "envs.adapters.incoming.targetgym",
    "pgx": "envs.adapters.incoming.pgx",
    "craftax": "envs.adapters.incoming.craftax",
    "octax": "envs.adapters.incoming.octax",
    "popgym_arcade": "envs.adapters.incoming.popgym_arcade",
}


def names(library: str | None = None) -> tuple[str, ...]:
    """The names that `make` takes.

    Args:
      library: Prefix of the names of another library's environments, one of `LIBRARIES`, such as "brax" for `brax/ant`;
        None for those of `envs` and gymnax.

    Raises:
      ValueError: There is no such library.
      ImportError: The library is missing or has another version; the message names the extra.
    """
    if library is None:
        return (*ROWS, *names("gymnax"))
    if library not in LIBRARIES:
        raise UserValueError(f"library is {library!r}{near_or_all(library, LIBRARIES)}")
    module = importlib.import_module(LIBRARIES[library])
    return tuple(f"{library}/{env_id}" for env_id in module.environment_ids())


def make(name: str, **static: object) -> base.Environment:
    """Make the environment of this name.

    Args:
      name: Name from `names()` or `names(library)`; or Gymnasium id (`CartPole-v1`) of such an environment;
        `module:Class`, an importable class; or `module:env`, an environment object of a module.
      static: Values of the environment's static fields.

    Returns:
      The environment. Two calls with equal arguments return equal environments, which share
      one compilation.

    Raises:
      ValueError: The name or a static field is unknown, or a field's value is out of range.
      ImportError: A library is missing or has another version; the message names the extra.
      gymnasium.error.DependencyNotInstalled: A dependency of a Gymnasium environment is not installed, such as Box2D.
      TypeError: The name is not a string, `module:Class` is not an environment, or a static value cannot be hashed.
    """
    if not isinstance(name, str):
        raise UserTypeError(
            f"name is {name!r}; it takes a string, such as 'cartpole' (an environment object is used as it is)."
        )
    library, slash, env_id = name.partition("/")
    if slash and library in LIBRARIES:
        module = importlib.import_module(LIBRARIES[library])
        known = module.environment_ids()
        if env_id not in known and env_id not in vars(module).get("REFUSED", ()):  # `make` reports the reason
            hint = near(env_id, known, f"{library}/") or f"; `envs.names({library!r})` lists its environments."
            raise UserValueError(f"There is no environment {name!r}{hint}")
        from envs.settings import own_settings  # imports JAX, which names alone do not need

        with own_settings():
            return module.make(env_id, **static)
    if ":" in name:
        return _build(name, _import(name), static)
    row = ROWS.get(name) or {row.gymnasium_id: row for row in ROWS.values()}.get(name)
    if row is None:
        raise _unknown(name)
    kind = vars(importlib.import_module(row.module))[row.class_name]
    inside = {} if row.wraps is None else {"inner": make(row.wraps)}
    return _build(name, kind, static, {**inside, **dict(row.fields)})


def row_of(kind: type, static: Mapping[str, object]) -> tuple[str, dict[str, object]] | None:
    """Name and arguments of `make` for an environment of this class with these static fields.

    Args:
      kind: Class of the environment.
      static: Static fields; an inner environment is given by the `"name"` and `"static"` that `make` takes for it.

    Returns:
      The name, and the fields that it does not imply; None if no row has the class.
    """
    for name, row in ROWS.items():
        inside = {} if row.wraps is None else {"inner": {"name": row.wraps, "static": {}}}
        fields = {**inside, **dict(row.fields)}
        same_class = (row.module, row.class_name) == (kind.__module__, kind.__name__)
        if same_class and all(static.get(field) == value for field, value in fields.items()):
            return name, {field: value for field, value in static.items() if field not in fields}
    return None


def adapted(env: Any) -> tuple[str, dict[str, object]] | None:
    """The name and the fields of an environment of another library, as `make` takes them; None for any other."""
    if type(env).__module__ not in LIBRARIES.values() or env.name.partition("/")[0] not in LIBRARIES:
        return None
    return env.name, dict(env.fields)


# Names in Brax of the MuJoCo tasks of Gymnasium.
_BRAX = {
    **{name.lower(): name.lower() for name in ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Pusher", "Reacher")},
    "walker2d": "walker2d",
    "humanoidstandup": "humanoidstandup",
    "invertedpendulum": "inverted_pendulum",
    "inverteddoublependulum": "inverted_double_pendulum",
}


def _elsewhere(name: str) -> str:
    """A clause with the names of a task of Gymnasium here and in other libraries, empty if there is none."""
    task, dash, version = name.lower().rpartition("-v")
    task = task if dash and version.isdigit() else name.lower()
    ours = {str(row.gymnasium_id).lower().rpartition("-v")[0]: own for own, row in ROWS.items() if row.gymnasium_id}
    if task in ours and dash:
        return f"; did you mean {ours[task]!r}?"
    same = [f"brax/{_BRAX[task]}"] if task in _BRAX else []
    if dash:
        ids = importlib.import_module(LIBRARIES["gymnasium"]).environment_ids()
        versions = [each for each in ids if each.lower().rpartition("-v")[0] == task]
        same += [f"gymnasium/{each}" for each in versions if each.lower() == name.lower()] or [
            f"gymnasium/{each}" for each in versions[-1:]
        ]
    return f"; did you mean {' or '.join(map(repr, same))}?" if same else ""


def _unknown(name: str) -> ValueError:
    known = [*names(), *(row.gymnasium_id for row in ROWS.values() if row.gymnasium_id)]
    prefixes = ("", "gymnax/", "probe/")
    prefix, _, rest = name.partition("/")
    library = prefix.lower().replace("-", "_")
    if library in LIBRARIES:
        meant = f"did you mean '{library}/{rest}'?" if rest else f"`envs.names({library!r})` lists its environments."
        return UserValueError(f"There is no environment {name!r}; {meant}")
    hint = _elsewhere(name) or next(filter(None, (near(prefix + name, known) for prefix in prefixes)), "")
    hint = hint or f"; known are {', '.join(ROWS)}, {', '.join(f'{each}/...' for each in LIBRARIES)} and module:Class."
    return UserValueError(f"There is no environment {name!r}{hint}")


def _import(name: str) -> object:
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UserValueError(f"There is no module {module_name!r} to import for the environment {name!r}.") from error
    if class_name not in vars(module):
        raise UserValueError(f"Module {module_name!r} defines no {class_name!r}{near(class_name, vars(module))}")
    return vars(module)[class_name]


def _build(
    name: str, kind: object, static: dict[str, object], fixed: Mapping[str, object] = MappingProxyType({})
) -> base.Environment:
    from envs import base

    if isinstance(kind, base.Environment):
        if static:
            raise UserTypeError(f"{name!r} is an object, which takes no static fields, got {', '.join(static)}.")
        return kind
    if not (isinstance(kind, type) and issubclass(kind, base.Environment)):
        raise UserTypeError(
            f"{name!r} is {kind!r}; it must be an environment object or a subclass of envs.Environment."
        )
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind) if field.init and field.name not in fixed]
        for field in static:
            if field not in fields:
                takes = f"its static fields are {', '.join(fields)}" if fields else "it has no static fields"
                hint = near(field, fields) or f"; {takes}."
                raise UserValueError(f"The environment {name!r} has no static field {field!r}{hint}")
    return kind(**fixed, **static)
