"""Films of user-defined environments: by a method `draw`, or like the environment from which they derive."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import jaxrl
from envs.control.cartpole import CartPole
from envs.probes import ConstantReward
from envs.rendering import Scene
from envs.wrappers import time_limit


@dataclass(frozen=True)
class Drawn(ConstantReward):
    """A clock, which draws itself."""

    def draw(self, ax: Any, state: Any, params: Any) -> None:
        ax.set_xlim(0, 4)
        ax.plot([0, 4], [int(state.time)] * 2, color="black", linewidth=8)
        ax.set_ylim(-1, 4)


class Centred(CartPole):
    """A user-defined cart-pole."""


def test_a_film_shows_the_frames_of_the_draw_method(tmp_path: Path) -> None:
    env = time_limit(Drawn(), 3)
    path = jaxrl.render(env, None, tmp_path / "own.gif", num_steps=3)
    with Image.open(path) as film:
        assert film.n_frames > 1  # pyright: ignore[reportAttributeAccessIssue]
    params = env.default_params
    scene = Scene(env, params)
    _, state = env.reset_env(jax.random.key(0), params)
    first = scene.frame(state)
    _, state, *_ = env.step_env(jax.random.key(0), state, np.int32(0), params)
    second = scene.frame(state)
    rows = [np.flatnonzero((frame[:, 240] < 50).all(axis=-1)).mean() for frame in (first, second)]
    # The previous line is gone, and the present one is higher by one of the five units of the axes.
    assert rows[0] - rows[1] == pytest.approx(scene.size[0] / 5, abs=1.5)


def test_a_subclass_is_drawn_like_its_base_class() -> None:
    assert Scene(Centred(), Centred().default_params).size == Scene(CartPole(), CartPole().default_params).size
