"""Named tuned settings: algorithm, hyper-parameters and number of environment steps for an environment."""

import envs
from envs import registry
from envs.errors import UserValueError
from envs.spelling import near
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.presets.off_policy import EVOLUTION, OFF_POLICY, REMEMBERING_Q
from jaxrl.presets.on_policy import GRIDS, JUMANJI, KNOWN_OPTIMUM, MINATAR, ON_POLICY, PPO_CONTROL, REMEMBERING
from jaxrl.presets.physical import PHYSICAL
from jaxrl.presets.preset import Preset
from jaxrl.presets.walking import CROWDS

PRESETS = (
    *PPO_CONTROL,
    *CROWDS,
    *MINATAR,
    *JUMANJI,
    *GRIDS,
    *KNOWN_OPTIMUM,
    *PHYSICAL,
    *REMEMBERING,
    *ON_POLICY,
    *OFF_POLICY,
    *REMEMBERING_Q,
    *EVOLUTION,
)


def names() -> tuple[tuple[str, str], ...]:
    """The `(algorithm, environment)` of every preset."""
    return tuple((row.algorithm, row.environment) for row in PRESETS)


def find(algorithm: str, environment: str) -> Preset | None:
    """The preset of an algorithm on an environment (or Gymnasium's id of it), None without one."""
    row = next((name for name, row in registry.ROWS.items() if row.gymnasium_id == environment), environment)
    return next((entry for entry in PRESETS if (entry.algorithm, entry.environment) == (algorithm, row)), None)


def env_steps_of(origin: str) -> int | None:
    """Number of environment steps of the preset with this text on its origin, None without one."""
    return next((entry.env_steps for entry in PRESETS if entry.origin == origin), None)


def named(algorithm: str, environment: str) -> tuple[Algorithm, Preset | None]:
    """The algorithm on the environment with its preset, and the preset; or with its defaults, and None."""
    known = find(algorithm, environment)
    return (algorithms.make(algorithm, envs.make(environment)) if known is None else known.algo), known


def preset(algorithm: str, environment: str, *, tuned: str | None = None) -> Preset:
    """The tuned settings of an algorithm on an environment.

    Args:
      algorithm: Name of the algorithm, such as `ppo`.
      environment: Name of the environment, such as `pendulum`, or its id in Gymnasium.
      tuned: "careful" for a crowd that avoids contacts, which exists for `crowd/corridor` and `crowd/choke`; or frame
        and kind of dynamics of a crowd whose settings of 2022 are used, such as "egocentric polar-acceleration"; see
        `jaxrl.presets.crowd.tuned`.

    Raises:
      ValueError: There is no such preset.
    """
    if tuned is not None:
        from jaxrl.presets import crowd as presets_crowd

        return presets_crowd.named(algorithm, environment, tuned)
    row = find(algorithm, environment)
    if row is None:
        known = [f"{algorithm} {environment}" for algorithm, environment in names()]
        name = f"{algorithm} {environment}"
        original = algorithm.rpartition(":")[2]
        if original != algorithm and find(original, environment) is not None:
            raise UserValueError(
                f"There is no preset for {name!r}; a copy starts from that of {original} by "
                f"jaxrl.preset({original!r}, {environment!r}).of({algorithm!r}), or in the shell by --preset {original}"
            )
        raise UserValueError(f"There is no preset for {name!r}{near(name, known)} ({', '.join(known)} exist)")
    return row
