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
from envs.wrappers import Wrapper, randomise, sticky_actions, time_limit


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
    """Also those of a wrapper inside, and in any order of the episodes."""
    plain = CartPole()
    inner = sticky_actions(randomise(time_limit(plain, 9), {"length": jaxrl.Uniform(0.2, 1.0)}), 0.0)
    env = randomise(inner, {"probability": jaxrl.Uniform(0.1, 0.9)})
    scene = Scene(env, env.default_params)
    states = [env.reset_env(jax.random.key(seed), env.default_params)[1] for seed in (0, 1)]
    lengths = [float(state.inner.inner.drawn["length"]) for state in states]
    assert abs(lengths[0] - lengths[1]) > 0.1
    beside = 250  # columns with the step and the values
    for at in (0, 1, 0):
        state, length = states[at], lengths[at]
        picture = scene.frame(state)
        probability = float(state.drawn["probability"])
        assert scene._text.get_text() == f"step 0\nprobability {probability:.4g}\nlength {length:.4g}"
        alone = Scene(plain, replace(plain.default_params, length=length)).frame(state.inner.inner.inner)
        np.testing.assert_array_equal(picture[:, beside:], alone[:, beside:])


@dataclass(frozen=True)
class ByStart(Wrapper):
    """Short poles in the episodes that begin on the left, without a wrapper of this package."""

    def episode_params(self, state: Any, params: Any) -> Any:
        return params.replace(length=np.where(state.x < 0, 0.25, 0.5))


def test_a_film_shows_the_parameters_of_another_wrapper() -> None:
    plain = CartPole()
    env = ByStart(plain)
    scene = Scene(env, env.default_params)
    state = env.reset_env(jax.random.key(0), env.default_params)[1]
    for x, length in ((-0.1, 0.25), (0.1, 0.5), (-0.1, 0.25)):
        state = replace(state, x=np.float32(x))
        expected = Scene(plain, replace(plain.default_params, length=length)).frame(state)
        np.testing.assert_array_equal(scene.frame(state), expected)


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
