"""DC motor: let the current of a motor with permanent magnets follow a random reference."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.arguments import check_flag, check_positive
from envs.base import spaces
from envs.control import references
from envs.control.references import Reference
from envs.threefry import unrolled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@struct.dataclass
class DCMotorState(base.EnvState):
    """Current in A, and the current to follow as a share of the limit."""

    time: jax.Array
    current: jax.Array
    reference: Reference


@struct.dataclass
class DCMotorParams(base.EnvParams):
    """Physical constants, and those of the reference.

    Attributes:
      resistance: Resistance of the armature, in ohm.
      inductance: Inductance of the armature, in H.
      flux: Induced voltage by speed, in V s.
      speed: Angular velocity, which the load keeps, in rad/s.
      voltage: Voltage of the supply, in V.
      max_current: Current beyond which the episode terminates, in A.
      nominal_current: Largest current of the reference, in A.
      least_deviation, most_deviation: Range of the reference's standard deviation in a step, as a share of the limit.
      least_steps, most_steps: Range of the number of steps with one deviation.
      dt: Time of a step, in s.
      max_steps_in_episode: Time limit, in steps.
    """

    resistance: float = 16e-3
    inductance: float = 19e-6
    flux: float = 0.165
    speed: float = 100.0
    voltage: float = 60.0
    max_current: float = 210.0
    nominal_current: float = 97.0
    least_deviation: float = 1e-2
    most_deviation: float = 1e-1
    least_steps: float = 500.0
    most_steps: float = 2000.0
    dt: float = 1e-4
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class DCMotor(base.Environment):
    """The reward is minus half of the error, as a share of the limit; a current beyond the limit terminates with -10.

    The current i under a voltage u follows L di/dt = u - R i - flux speed, which is solved exactly.

    Source: constants, reward and reference of gym-electric-motor 3.0, `Cont-CC-PermExDc-v0` and, with `finite`,
    `Finite-CC-PermExDc-v0`, whose steps take 1e-5 s. They have no time limit.

    Attributes:
      finite: Flag for the four states of the converter as actions, instead of any voltage.
    """

    finite: bool = False

    def __post_init__(self) -> None:
        check_flag("finite", self.finite)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "motor/dc-finite" if self.finite else "motor/dc"

    @property
    def default_params(self) -> DCMotorParams:
        """The constants of gym-electric-motor."""
        return DCMotorParams(dt=1e-5 if self.finite else 1e-4)

    def check_params(self, params: DCMotorParams) -> None:
        """Reject resistances, inductances and times that are not above 0, and references outside the limits."""
        check_positive(params, "resistance", "inductance", "voltage", "dt")
        references.check(params)

    def reset_env(self, key: jax.Array, params: DCMotorParams) -> tuple[jax.Array, DCMotorState]:
        """The first observation `[2]` and state: no current, and a random reference."""
        reference = references.begin(unrolled(key), 1, params)
        state = DCMotorState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32), reference)
        return _observe(state, params), state

    def step_env(
        self, key: jax.Array, state: DCMotorState, action: jax.Array, params: DCMotorParams
    ) -> tuple[jax.Array, DCMotorState, jax.Array, jax.Array, dict[Any, Any]]:
        """The current after a step under a constant voltage; the reward refers to the reference that was observed."""
        share = jnp.array([0.0, 1.0, -1.0, 0.0])[action] if self.finite else jnp.clip(action[0], -1.0, 1.0)
        moved = -jnp.expm1(-params.resistance / params.inductance * params.dt)
        final = (share * params.voltage - params.flux * params.speed) / params.resistance
        current = state.current + moved * (final - state.current)
        error = jnp.abs(current / params.max_current - state.reference.value[0])
        terminated = jnp.abs(current) > params.max_current
        reward = jnp.where(terminated, references.VIOLATION, -error / 2)
        state = DCMotorState(state.time + 1, current, references.advance(unrolled(key), state.reference, params))
        return _observe(state, params), state, reward, terminated, {}

    def return_range(self, params: DCMotorParams) -> tuple[Any, Any]:
        """From the largest error in every step and a violation in the last to no error."""
        return references.return_range(params)

    def action_space(self, params: DCMotorParams | None = None) -> spaces.Discrete | spaces.Box:
        """The voltage as a share of the supply's, `[1]`; or one of four states, with the shares 0, 1, -1 and 0."""
        del params
        return spaces.Discrete(4) if self.finite else spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def observation_space(self, params: DCMotorParams) -> spaces.Box:
        """The current and its reference, as shares of the limit."""
        del params
        high = jnp.array([jnp.inf, 1.0], jnp.float32)
        return spaces.Box(-high, high, (2,), jnp.float32)

    def draw(self, ax: "Axes", state: DCMotorState, params: DCMotorParams) -> None:
        """The current, the reference and the limits on a scale."""
        ax.set_xlim(-1.3, 1.3)
        ax.set_ylim(-0.87, 0.87)
        ax.plot([-1, 1], [0, 0], color="#bdbdbd", linewidth=2)
        for limit in (-1, 1):
            ax.plot([limit, limit], [-0.2, 0.2], color="#222222", linewidth=3)
        ax.plot([0, float(state.current / params.max_current)], [0, 0], color="#0072B2", linewidth=14)
        ax.plot([float(state.reference.value[0])] * 2, [-0.15, 0.15], color="#009E73", linewidth=4)


def _observe(state: DCMotorState, params: DCMotorParams) -> jax.Array:
    return jnp.stack([state.current / params.max_current, state.reference.value[0]])
