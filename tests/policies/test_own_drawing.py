"""Films of user-defined environments: by a method `draw`, or like the environment from which they derive."""

from dataclasses import dataclass, replace
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
from envs.wrappers import randomise, time_limit


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


def test_a_film_shows_the_values_that_each_episode_has_drawn() -> None:
    plain = CartPole()
    env = randomise(time_limit(plain, 9), {"length": jaxrl.Uniform(0.2, 1.0)})
    scene = Scene(env, env.default_params)
    states = [env.reset_env(jax.random.key(seed), env.default_params)[1] for seed in (0, 1)]
    lengths = [float(state.drawn["length"]) for state in states]
    assert abs(lengths[0] - lengths[1]) > 0.1
    below = 60  # rows with the step and the values
    for state, length in [*zip(states, lengths, strict=True), (states[0], lengths[0])]:
        picture = scene.frame(state)
        alone = Scene(plain, replace(plain.default_params, length=length)).frame(state.inner)
        np.testing.assert_array_equal(picture[below:], alone[below:])
        assert not np.array_equal(picture[:below], alone[:below])


@dataclass(frozen=True)
class Pole(CartPole):
    """A cart-pole that draws a bar as high as its pole is long."""

    def draw(self, ax: Any, state: Any, params: Any) -> None:
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 2)
        ax.set_aspect("auto")
        ax.bar([0.5], [float(params.length)], color="black")


def test_the_draw_method_gets_the_parameters_of_the_episode() -> None:
    env = randomise(Pole(), {"length": jaxrl.Uniform(0.5, 1.5)})
    scene = Scene(env, env.default_params)
    for seed in (0, 1):
        state = env.reset_env(jax.random.key(seed), env.default_params)[1]
        height = (scene.frame(state)[:, 240] < 50).all(axis=-1).sum()
        assert height == pytest.approx(scene.size[0] * float(state.drawn["length"]) / 2, abs=1.5)
