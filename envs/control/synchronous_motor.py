"""Synchronous motor: let both currents of a motor with permanent magnets follow random references."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_flag, check_positive
from envs.base import spaces
from envs.control import references
from envs.control.references import Reference
from envs.control.runge_kutta import integrate
from envs.control.trigonometry import sin_cos
from envs.threefry import unrolled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PHASES = np.array([0.0, 2 * math.pi / 3, -2 * math.pi / 3])
_SWITCHES = np.array([[2.0 * bit - 1.0 for bit in (i >> 2 & 1, i >> 1 & 1, i & 1)] for i in range(8)], np.float32)


@struct.dataclass
class SynchronousMotorState(base.EnvState):
    """Currents along the magnets (d) and across (q) in A, `[2]`, electrical angle in rad, and references of the two."""

    time: jax.Array
    currents: jax.Array
    angle: jax.Array
    reference: Reference


@struct.dataclass
class SynchronousMotorParams(base.EnvParams):
    """Physical constants, and those of the references.

    Attributes:
      resistance: Resistance of a phase of the stator, in ohm.
      inductance_d, inductance_q: Inductances along the magnets and across, in H.
      flux: Flux of the magnets, in V s.
      pole_pairs: Number of pairs of poles.
      speed: Angular velocity, which the load keeps, in rad/s.
      voltage: Voltage of the supply, of which a phase has half, in V.
      max_current: Size of the currents beyond which the episode terminates, in A.
      nominal_current: Largest current of the references, in A.
      least_deviation, most_deviation: Range of the references' standard deviation in a step, as a share of the limit.
      least_steps, most_steps: Range of the number of steps with one deviation.
      dt: Time of a step, in s.
      max_steps_in_episode: Time limit, in steps.
    """

    resistance: float = 18e-3
    inductance_d: float = 0.37e-3
    inductance_q: float = 1.2e-3
    flux: float = 66e-3
    pole_pairs: float = 3.0
    speed: float = 100.0
    voltage: float = 300.0
    max_current: float = 400.0
    nominal_current: float = 240.0
    least_deviation: float = 1e-3
    most_deviation: float = 1e-1
    least_steps: float = 500.0
    most_steps: float = 2000.0
    dt: float = 1e-4
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class SynchronousMotor(base.Environment):
    """The reward is minus a quarter of the sum of both errors, as shares of the limit; a violation terminates with -10.

    In coordinates that turn with the magnets, with the electrical angular velocity w = pole_pairs speed,
    L_d di_d/dt = u_d - R i_d + w L_q i_q and L_q di_q/dt = u_q - R i_q - w (L_d i_d + flux). The voltages u_d and u_q
    are those of the three phases at the angle of the start of the step.

    Source: constants, reward and references of gym-electric-motor 3.0, `Cont-CC-PMSM-v0` and, with `finite`,
    `Finite-CC-PMSM-v0`, whose supply has 420 V and whose steps take 1e-5 s. They have no time limit.

    Attributes:
      finite: Flag for the eight states of three switches as actions, instead of any three voltages.
    """

    finite: bool = False

    def __post_init__(self) -> None:
        check_flag("finite", self.finite)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "motor/synchronous-finite" if self.finite else "motor/synchronous"

    @property
    def default_params(self) -> SynchronousMotorParams:
        """The constants of gym-electric-motor."""
        return SynchronousMotorParams(dt=1e-5, voltage=420.0) if self.finite else SynchronousMotorParams()

    def check_params(self, params: SynchronousMotorParams) -> None:
        """Reject inductances and times that are not above 0, negative resistances, and references outside limits."""
        check_positive(params, "inductance_d", "inductance_q", "voltage", "dt")
        check_at_least(params, resistance=0)
        references.check(params)

    def reset_env(self, key: jax.Array, params: SynchronousMotorParams) -> tuple[jax.Array, SynchronousMotorState]:
        """The first observation `[6]` and state: no currents, angle 0, and random references."""
        reference = references.begin(unrolled(key), 2, params)
        zero = jnp.zeros((), jnp.float32)
        state = SynchronousMotorState(jnp.zeros((), jnp.int32), jnp.zeros(2, jnp.float32), zero, reference)
        return _observe(state, params), state

    def step_env(
        self, key: jax.Array, state: SynchronousMotorState, action: jax.Array, params: SynchronousMotorParams
    ) -> tuple[jax.Array, SynchronousMotorState, jax.Array, jax.Array, dict[Any, Any]]:
        """One Runge-Kutta step under constant voltages; the reward refers to the references that were observed."""
        shares = jnp.asarray(_SWITCHES)[action] if self.finite else jnp.clip(action, -1.0, 1.0)
        sin, cos = sin_cos(state.angle - jnp.float32(_PHASES))
        along = 2 / 3 * params.voltage / 2 * jnp.sum(cos * shares)
        across = -2 / 3 * params.voltage / 2 * jnp.sum(sin * shares)
        turning = params.pole_pairs * params.speed

        def rates(currents: jax.Array) -> jax.Array:
            along_rate = along - params.resistance * currents[0] + turning * params.inductance_q * currents[1]
            induced = turning * (params.inductance_d * currents[0] + params.flux)
            across_rate = across - params.resistance * currents[1] - induced
            return jnp.stack([along_rate / params.inductance_d, across_rate / params.inductance_q])

        currents = integrate(rates, state.currents, params.dt)
        angle = state.angle + turning * params.dt
        angle = angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
        shares = currents / params.max_current
        terminated = jnp.sum(jnp.square(shares)) > 1
        reward = jnp.where(terminated, references.VIOLATION, -jnp.sum(jnp.abs(shares - state.reference.value)) / 4)
        reference = references.advance(unrolled(key), state.reference, params)
        state = SynchronousMotorState(state.time + 1, currents, angle, reference)
        return _observe(state, params), state, reward, terminated, {}

    def return_range(self, params: SynchronousMotorParams) -> tuple[Any, Any]:
        """From the largest errors in every step and a violation in the last to no error."""
        return references.return_range(params)

    def action_space(self, params: SynchronousMotorParams | None = None) -> spaces.Discrete | spaces.Box:
        """The voltages of the phases as shares of half the supply's, `[3]`; or three switches as bits of a number."""
        del params
        return spaces.Discrete(8) if self.finite else spaces.Box(-1.0, 1.0, (3,), jnp.float32)

    def observation_space(self, params: SynchronousMotorParams) -> spaces.Box:
        """The two currents as shares of the limit, cosine and sine of the angle, and the two references."""
        del params
        high = jnp.array([jnp.inf] * 2 + [1.0] * 4, jnp.float32)
        return spaces.Box(-high, high, (6,), jnp.float32)

    def draw(self, ax: "Axes", state: SynchronousMotorState, params: SynchronousMotorParams) -> None:
        """The currents and their references in the plane that turns with the magnets, within the limit."""
        from matplotlib.patches import Circle

        ax.set_xlim(-1.8, 1.8)
        ax.set_ylim(-1.2, 1.2)
        ax.add_patch(Circle((0, 0), 1.0, fill=False, color="#222222", linewidth=2))
        d, q = np.asarray(state.currents, np.float64) / float(params.max_current)
        ax.plot([0, d], [0, q], color="#0072B2", linewidth=4)
        ax.plot(*np.asarray(state.reference.value)[:, None], "x", color="#009E73", markersize=12, markeredgewidth=3)


def _observe(state: SynchronousMotorState, params: SynchronousMotorParams) -> jax.Array:
    sin, cos = sin_cos(state.angle)
    return jnp.concatenate([state.currents / params.max_current, jnp.stack([cos, sin]), state.reference.value])
