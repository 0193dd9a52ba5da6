"""Images of all environments of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from envs import probes
from envs.bandits.base import Bandit
from envs.control.acrobot import Acrobot
from envs.control.cartpole import CartPole
from envs.control.cartpole_swing_up import CartPoleSwingUp
from envs.control.mountain_car import MountainCar
from envs.control.mountain_car_continuous import MountainCarContinuous
from envs.control.pendulum import Pendulum
from envs.cooperation.crowd import SharedCrowd
from envs.cooperation.foraging import Foraging
from envs.cooperation.levers import LeverGame
from envs.crowd.crowd import Crowd
from envs.crowd.rendering import draw as draw_crowd
from envs.decision.delayed_choice import DelayedChoice
from envs.decision.pathworld import Pathworld
from envs.decision.preference_reversal import PreferenceReversal
from envs.decision.random_dilemmas import RandomDilemmas
from envs.errors import UserValueError
from envs.games.climbing import ClimbingGame
from envs.memory.autoencode import Autoencode
from envs.memory.bandit import BanditEpisode
from envs.memory.battleship import Battleship
from envs.memory.chain import MemoryChain
from envs.memory.concentration import Concentration
from envs.memory.count_recall import CountRecall
from envs.memory.delayed_match import DelayedMatch
from envs.memory.repeat_first import RepeatFirst
from envs.memory.t_maze import TMaze
from envs.pytrees import Params, State
from envs.rendering import cooperation, memory_tasks, tasks
from envs.wrappers import Randomise, Wrapper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Update = Callable[[Any], None]

DPI = 80
SIZE = (320, 480)  # size of the frames of an environment that draws itself
INK, LIGHT, BODY, ROD, MARK = "#222222", "#bdbdbd", "#0072B2", "#D55E00", "#009E73"

__all__ = ["Scene", "drawable", "frame"]


class Scene:
    """One environment's drawing, kept between frames, so that a film creates its figure only once.

    Attributes:
      size: `(height, width)` of its frames in pixels, multiples of 16 as video formats require.
    """

    def __init__(self, env: Any, params: Params) -> None:
        """Draw the parts that do not move.

        Args:
          env: Environment that can be drawn, or one with a method `draw(ax, state, params)`, which draws a state on
            Matplotlib axes; wrapped or not.
          params: Parameters of the environment; lengths, limits and goals are drawn to scale. Parameters that every
            episode draws have the values of the episode.

        Raises:
          ValueError: The environment cannot be drawn.
        """
        self._params, self._wrappers = params, []
        while isinstance(env, Wrapper):
            self._wrappers.append(env)
            env, params = env.inner, env.inner_params(params)
        known = [kind for kind in type(env).__mro__ if kind in _SCENES]
        draws = hasattr(env, "draw") and not isinstance(env, Bandit)  # a bandit's `draw` draws a reward
        if not known and not draws:
            raise UserValueError(
                f"{type(env).__name__} cannot be drawn; supported environments are {', '.join(drawable())}, and "
                f"those with a method draw(ax, state, params)."
            )
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._env = env
        self.size, self._setup = (SIZE, _own) if draws else _SCENES[known[0]]
        height, width = self.size
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
        self._canvas = FigureCanvasAgg(figure)
        self._ax = figure.add_axes((0, 0, 1, 1))
        self._arrange(params)

    def frame(self, state: State) -> np.ndarray:
        """The image of a state: uint8 `[height, width, 3]`; values that the episode has drawn are written into it."""
        lines, params = [f"step {int(state.time)}"], self._params
        for wrapper in self._wrappers:
            if isinstance(wrapper, Randomise):
                lines += [f"{name} {float(value):.4g}" for name, value in sorted(state.drawn.items())]
            params, state = wrapper.episode_params(state, params), wrapper.inner_state(state)
        if self._wrappers and not _equal(params, self._arranged):
            self._arrange(params)
        self._text.set_text("\n".join(lines))
        self._update(state)
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()

    def _arrange(self, params: Params) -> None:
        """Draw the parts that do not move, with these parameters of the innermost environment."""
        ax, self._arranged = self._ax, params
        ax.clear()
        ax.set_axis_off()
        ax.set_aspect("equal")
        self._text = ax.text(0.02, 0.97, "", transform=ax.transAxes, ha="left", va="top", color=INK, fontsize=12)
        self._update = self._setup(ax, self._env, params)


def _equal(one: Params, other: Params) -> bool:
    """Whether two pytrees of one structure have the same numbers."""
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def _own(ax: Axes, env: Any, params: Params) -> Update:
    """The drawing of a user-defined environment, recreated for each frame."""
    kept = list(ax.texts)

    def update(state: State) -> None:
        for artist in (*ax.lines, *ax.patches, *ax.collections, *ax.images, *ax.texts):
            if artist not in kept:
                artist.remove()
        env.draw(ax, state, params)

    return update


def frame(env: Any, state: State, params: Params) -> np.ndarray:
    """The image of one state of an environment; for many, keep a `Scene`.

    Args:
      env: Environment that can be drawn.
      state: State of a single episode, concrete.
      params: Parameters of the environment.

    Returns:
      uint8 `[height, width, 3]`, red, green and blue.

    Raises:
      ValueError: The environment cannot be drawn.
    """
    return Scene(env, params).frame(state)


def drawable() -> list[str]:
    """The names of the environments that can be drawn."""
    families = {Crowd: "crowd/...", Bandit: "bandit/..."}
    names = [families.get(kind) or kind().name for kind in _SCENES if kind not in _PROBES]
    return [*names, "probe/..."]


def _cartpole(ax: Axes, env: CartPole | CartPoleSwingUp, params: Params) -> Update:
    from matplotlib.patches import Circle, FancyBboxPatch

    limit, pole = float(params.x_threshold), 2 * float(params.length)
    half = 1.15 * limit
    ax.set_xlim(-half, half)
    ax.set_ylim(-0.45 * half, 0.8 * half)
    ax.plot([-half, half], [0, 0], color=INK, linewidth=1.5)
    for side in (-limit, limit):
        ax.plot([side, side], [-0.12, 0.12], color=LIGHT, linewidth=3)
    cart = FancyBboxPatch((-0.3, 0.06), 0.6, 0.26, boxstyle="round,pad=0,rounding_size=0.05", color=BODY, zorder=2)
    wheels = [Circle((0, 0.06), 0.07, facecolor=INK, zorder=3) for _ in range(2)]
    for patch in (cart, *wheels):
        ax.add_patch(patch)
    (rod,) = ax.plot([], [], color=ROD, linewidth=8, solid_capstyle="round", zorder=4)
    (axle,) = ax.plot([], [], "o", color=INK, markersize=5, zorder=5)

    def update(state: State) -> None:
        x, theta = float(state.x), float(state.theta)
        cart.set_x(x - 0.3)
        for wheel, offset in zip(wheels, (-0.18, 0.18), strict=True):
            wheel.center = (x + offset, 0.06)
        rod.set_data([x, x + pole * np.sin(theta)], [0.27, 0.27 + pole * np.cos(theta)])
        axle.set_data([x], [0.27])

    return update


def _pendulum(ax: Axes, env: Pendulum, params: Params) -> Update:
    length = float(params.length)
    ax.set_xlim(-1.35 * length, 1.35 * length)
    ax.set_ylim(-1.35 * length, 1.35 * length)
    angle = np.linspace(0, 2 * np.pi, 100)
    ax.plot(length * np.sin(angle), length * np.cos(angle), color=LIGHT, linewidth=1, linestyle=":")
    ax.plot([0], [length], "o", color=MARK, markersize=14, markerfacecolor="none", markeredgewidth=2)
    (rod,) = ax.plot([], [], color=ROD, linewidth=16, solid_capstyle="round", zorder=2)
    ax.plot([0], [0], "o", color=INK, markersize=8, zorder=3)

    def update(state: State) -> None:
        theta = float(state.theta)  # 0 is upright, positive turns counterclockwise
        rod.set_data([0, -length * np.sin(theta)], [0, length * np.cos(theta)])

    return update


def _acrobot(ax: Axes, env: Acrobot, params: Params) -> Update:
    first, second, goal = float(params.link_length_1), float(params.link_length_2), float(params.goal_height)
    reach = 1.12 * (first + second)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    ax.plot([-reach, reach], [goal, goal], color=MARK, linewidth=2, linestyle="--")
    ax.text(-0.97 * reach, goal + 0.03 * reach, "goal", color=MARK, fontsize=12)
    (upper,) = ax.plot([], [], color=BODY, linewidth=12, solid_capstyle="round", zorder=2)
    (lower,) = ax.plot([], [], color=ROD, linewidth=12, solid_capstyle="round", zorder=3)
    (joints,) = ax.plot([], [], "o", color=INK, markersize=7, zorder=4)

    def update(state: State) -> None:
        angle_1 = float(state.joint_angle_1)  # 0 hangs down
        angle_2 = angle_1 + float(state.joint_angle_2)
        x, y = first * np.sin(angle_1), -first * np.cos(angle_1)
        upper.set_data([0, x], [0, y])
        lower.set_data([x, x + second * np.sin(angle_2)], [y, y - second * np.cos(angle_2)])
        joints.set_data([0, x], [0, y])

    return update


def _mountain_car(ax: Axes, env: MountainCar | MountainCarContinuous, params: Params) -> Update:
    from matplotlib.patches import Circle, FancyBboxPatch
    from matplotlib.transforms import Affine2D

    low, high, goal = float(params.min_position), float(params.max_position), float(params.goal_position)
    middle, half = (low + high) / 2, 0.53 * (high - low)
    ax.set_xlim(middle - half, middle + half)
    ax.set_ylim(0.05, 0.05 + 2 * half * 400 / 640)
    position = np.linspace(middle - half, middle + half, 200)
    ax.fill_between(position, 0, _height(position), color="#eeeeee", linewidth=0)
    ax.plot(position, _height(position), color=INK, linewidth=2)
    top = _height(goal)
    ax.plot([goal, goal], [top, top + 0.2], color=INK, linewidth=2)
    ax.fill([goal, goal - 0.1, goal], [top + 0.2, top + 0.165, top + 0.13], color=MARK)
    body = FancyBboxPatch((-0.06, 0.025), 0.12, 0.045, boxstyle="round,pad=0,rounding_size=0.015", color=BODY, zorder=3)
    wheels = [Circle((offset, 0.022), 0.022, facecolor=ROD, edgecolor=INK, zorder=4) for offset in (-0.036, 0.036)]
    for patch in (body, *wheels):
        ax.add_patch(patch)

    def update(state: State) -> None:
        x = float(state.position)
        slope = 3 * 0.45 * np.cos(3 * x)
        place = Affine2D().rotate(np.arctan(slope)).translate(x, _height(x)) + ax.transData
        for patch in (body, *wheels):
            patch.set_transform(place)

    return update


def _height(position: Any) -> Any:
    """The height of the road, of which only the slope matters to the dynamics."""
    return 0.45 * np.sin(3 * position) + 0.55


def _crowd(ax: Axes, env: Crowd, params: Params) -> Update:
    return draw_crowd(ax, params)


def _shared_crowd(ax: Axes, env: SharedCrowd, params: Params) -> Update:
    update = draw_crowd(ax, params)
    return lambda state: update(state.game)


_PROBES = (
    probes.ConstantReward,
    probes.DelayedReward,
    probes.OnlyTerminates,
    probes.OnlyTruncates,
    probes.ObservationDependent,
    probes.ActionDependent,
    probes.ActionAndObservationDependent,
)
_SCENES: dict[type, tuple[tuple[int, int], Callable[[Axes, Any, Any], Update]]] = {
    CartPole: ((400, 640), _cartpole),
    CartPoleSwingUp: ((400, 640), _cartpole),
    Pendulum: ((400, 400), _pendulum),
    Acrobot: ((400, 400), _acrobot),
    MountainCar: ((400, 640), _mountain_car),
    MountainCarContinuous: ((400, 640), _mountain_car),
    Pathworld: ((400, 640), tasks.pathworld),
    DelayedChoice: ((240, 640), tasks.delayed_choice),
    PreferenceReversal: ((240, 640), tasks.preference_reversal),
    RandomDilemmas: ((240, 640), tasks.random_dilemmas),
    RepeatFirst: ((240, 640), memory_tasks.repeat_first),
    TMaze: ((240, 640), memory_tasks.t_maze),
    DelayedMatch: ((240, 640), memory_tasks.delayed_match),
    MemoryChain: ((240, 640), memory_tasks.chain),
    BanditEpisode: ((240, 640), memory_tasks.bandit),
    Autoencode: ((240, 640), memory_tasks.autoencode),
    CountRecall: ((240, 640), memory_tasks.count_recall),
    Concentration: ((240, 640), memory_tasks.concentration),
    Battleship: ((400, 400), memory_tasks.battleship),
    ClimbingGame: ((240, 640), memory_tasks.climbing),
    LeverGame: ((240, 640), cooperation.levers),
    Foraging: ((400, 400), cooperation.foraging),
    SharedCrowd: ((560, 560), _shared_crowd),
    Crowd: ((560, 560), _crowd),
    Bandit: ((400, 640), tasks.bandit),
    **{kind: ((240, 640), tasks.probe) for kind in _PROBES},
}
