"""Drawings of the control environments, and films of a policy."""

import builtins
from dataclasses import dataclass, replace

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.control.acrobot import Acrobot
from envs.control.cartpole import CartPole
from envs.control.mountain_car import MountainCar
from envs.control.mountain_car_continuous import MountainCarContinuous
from envs.control.pendulum import Pendulum
from envs.crowd import Crowd, roll
from envs.crowd.rendering import ARRIVED, COLOURS, paths
from envs.registry import ROWS, make
from envs.rendering import Scene, drawable, frame
from envs.rendering.scenes import BODY, ROD
from jaxrl import PPOConfig, ppo
from jaxrl.policies.playing import check_fit, random_actions
from jaxrl.policies.rendering import _write_gif, render
from jaxrl.results.policy import TrainedPolicy

KINDS = [CartPole, Pendulum, Acrobot, MountainCar, MountainCarContinuous]


def start(env):
    return env.reset_env(jax.random.key(0), env.default_params)[1]


def centre(picture, colour):
    """The mean position of the pixels of a colour: (row, column)."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    rows, columns = np.nonzero((picture == rgb).all(axis=-1))
    assert rows.size > 50
    return rows.mean(), columns.mean()


@pytest.mark.slow_rows("CartPole")
@pytest.mark.parametrize("kind", KINDS)
def test_frame_is_a_picture_of_the_state(kind):
    env = kind()
    state = start(env)
    picture = frame(env, state, env.default_params)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3
    assert picture.shape[0] % 16 == picture.shape[1] % 16 == 0
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 4
    np.testing.assert_array_equal(picture, frame(env, state, env.default_params))
    later = env.step_env(jax.random.key(1), state, env.action_space().sample(jax.random.key(2)), env.default_params)[1]
    assert not np.array_equal(picture, frame(env, later, env.default_params))


def test_a_scene_leaves_nothing_of_the_frame_before():
    env = Acrobot()
    state = start(env)
    scene = Scene(env, env.default_params)
    first = scene.frame(state)
    scene.frame(replace(state, joint_angle_1=jnp.float32(2.0)))
    np.testing.assert_array_equal(scene.frame(state), first)


def test_cartpole_moves_right_and_leans_right():
    env, state = CartPole(), start(CartPole())
    left = frame(env, replace(state, x=-1.0, theta=0.0), env.default_params)
    right = frame(env, replace(state, x=1.0, theta=0.2), env.default_params)
    assert centre(left, BODY)[1] < 320 < centre(right, BODY)[1]
    assert centre(right, ROD)[1] > centre(right, BODY)[1] + 5


def test_pendulum_at_zero_is_upright_and_turns_counterclockwise():
    env, state = Pendulum(), start(Pendulum())
    upright = centre(frame(env, replace(state, theta=0.0), env.default_params), ROD)
    turned = centre(frame(env, replace(state, theta=np.pi / 2), env.default_params), ROD)
    assert upright[0] < 150 and upright[1] == pytest.approx(199.5, abs=2)
    assert turned[1] < 150 and turned[0] == pytest.approx(199.5, abs=2)


def test_acrobot_hangs_at_zero_and_its_second_angle_is_relative():
    env, state = Acrobot(), start(Acrobot())
    zero = jnp.float32(0.0)
    hanging = frame(env, replace(state, joint_angle_1=zero, joint_angle_2=zero), env.default_params)
    assert 200 < centre(hanging, BODY)[0] < centre(hanging, ROD)[0]
    bent = frame(env, replace(state, joint_angle_1=jnp.float32(np.pi / 2), joint_angle_2=zero), env.default_params)
    assert 200 < centre(bent, BODY)[1] < centre(bent, ROD)[1]
    assert centre(bent, ROD)[0] == pytest.approx(199.5, abs=2)


@pytest.mark.parametrize("kind", [MountainCar, MountainCarContinuous])
def test_mountain_car_is_low_in_the_valley(kind):
    env, state = kind(), start(kind())
    valley, hill = (centre(frame(env, replace(state, position=x), env.default_params), BODY) for x in (-np.pi / 6, 0.4))
    assert hill[0] < valley[0] - 100 and hill[1] > valley[1]


DRAWN = [name for name in ROWS if not name.startswith(("crowd/", "bandit/")) or name in ("crowd/car", "bandit/dueling")]


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_every_environment_of_ours_can_be_drawn_and_a_step_shows(name):
    env = make(name)
    params = env.default_params
    _, state = env.reset_env(jax.random.key(3), params)
    scene = Scene(env, params)
    first = scene.frame(state)
    assert first.shape == (*scene.size, 3) and first.std() > 5
    if name.startswith("crowd/"):
        return
    action = env.action_space(params).sample(jax.random.key(4))
    if name.startswith("game/") or name.endswith("-self-play"):
        action = jnp.broadcast_to(action, (vars(env).get("num_agents", 2),))
    later = scene.frame(env.step_env(jax.random.key(1), state, action, params)[1])
    assert not np.array_equal(first, later)
    np.testing.assert_array_equal(scene.frame(state), first)


@pytest.mark.slow
def test_bars_are_as_high_as_the_values_and_sleeping_arms_are_grey():
    env = make("bandit/sleeping", num_arms=4)
    _, state = env.reset_env(jax.random.key(0), env.default_params)
    state = replace(state, values=jnp.array([0.2, 0.4, 0.8, 0.1]), awake=jnp.array([True, True, False, True]))
    picture = frame(env, state, env.default_params)
    rows, columns = np.nonzero(np.all(picture == [0x00, 0x72, 0xB2], axis=-1))
    # Five units across 640 pixels, from -1; what counts is the height of each bar.
    first, second, last = (np.ptp(rows[np.abs(columns - 128 * (arm + 1)) < 40]) for arm in (0, 1, 3))
    assert second == pytest.approx(2 * first, rel=0.05) and first == pytest.approx(2 * last, rel=0.05)
    assert np.all(picture == 0xBD, axis=-1).sum() > 1000


@dataclass(frozen=True)
class Unknown(CartPole):
    """An environment that inherits from one that can be drawn."""


def test_an_environment_without_a_drawing_is_refused(tmp_path):
    control = ["cartpole", "cartpole-swing-up", "pendulum", "acrobot", "mountain-car", "mountain-car-continuous"]
    decisions = ["pathworld", "delayed-choice", "preference-reversal", "random-dilemmas"]
    remembered = [f"memory/{task}" for task in ("repeat-first", "t-maze", "delayed-match", "chain", "bandit")]
    remembered += [f"memory/{task}" for task in ("autoencode", "count-recall", "concentration", "battleship-small")]
    games = ["game/climbing", "cooperation/levers", "cooperation/foraging", "cooperation/crowd"]
    assert drawable() == [*control, *decisions, *remembered, *games, "crowd/...", "bandit/...", "probe/..."]
    with pytest.raises(
        ValueError, match="Crowd cannot be drawn; supported environments are cartpole, cartpole-swing-up"
    ):
        render(agents.Crowd(), None, tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


def test_gif_of_one_episode(tmp_path):
    env = CartPole()
    params = replace(env.default_params, max_steps_in_episode=7)
    seen = []

    def policy(obs):
        seen.append(np.asarray(obs))
        return jnp.int32(len(seen) % 2)

    assert render(env, policy, tmp_path / "new" / "x.gif", env_params=params) == tmp_path / "new" / "x.gif"
    assert len(seen) == 7 and seen[0].shape == (4,)
    with Image.open(tmp_path / "new" / "x.gif") as film:
        assert (film.n_frames, film.size) == (8, (640, 400))  # type: ignore[attr-defined]
        first = np.asarray(film.convert("RGB"), dtype=np.int32)
        film.seek(7)
        last = np.asarray(film.convert("RGB"), dtype=np.int32)
    _, state = env.reset_env(jax.random.split(jax.random.key(0))[1], params)
    # One palette of 256 colours: no channel of the few colours of a drawing moves by more than 32.
    assert np.abs(first - frame(env, state, params)).max() <= 32
    assert np.abs(first - last).max() > 100


def test_a_film_continues_over_episodes(tmp_path):
    env = CartPole()
    params = replace(env.default_params, max_steps_in_episode=3)
    render(env, None, tmp_path / "x.gif", env_params=params, num_steps=10)
    with Image.open(tmp_path / "x.gif") as film:
        assert film.n_frames == 11  # type: ignore[attr-defined]


def test_mp4(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    render(Pendulum(), None, tmp_path / "x.mp4", num_steps=20, fps=10)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "x.mp4"))
    assert frames == 21 and seconds == pytest.approx(2.1)
    assert [file.name for file in tmp_path.iterdir()] == ["x.mp4"]


def test_a_missing_encoder_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "imageio_ffmpeg":
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install '\.\[video\]' in a clone"):
        render(Pendulum(), None, tmp_path / "x.mp4", num_steps=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("x.avi", {}, "a film's name ends in .mp4 or .gif, and for a crowd there is .html or .png as well"),
        ("x.gif", {"num_steps": 0}, "num_steps is 0; it takes a positive number"),
        ("x.gif", {"fps": 0}, "fps is 0; it takes a positive number"),
        ("file/x.gif", {"num_steps": 2}, "cannot be written"),
    ],
)
def test_wrong_arguments_get_one_sentence(tmp_path, name, arguments, sentence):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match=sentence):
        render(Pendulum(), None, tmp_path / name, **arguments)


def trained(env):
    return TrainedPolicy(ppo(env, PPOConfig(num_envs=2, num_steps=8, hidden=(4,))), params=None)


def test_a_policy_of_another_environment_is_refused(tmp_path):
    sentence = "policy was trained on pendulum, whose observations or actions are unlike those of cartpole; env takes"
    with pytest.raises(ValueError, match=sentence):
        render(CartPole(), trained(Pendulum()), tmp_path / "x.gif")
    # Equal observations are not enough, nor is an equal shape of actions.
    with pytest.raises(ValueError, match="policy was trained on mountain-car-continuous"):
        render(MountainCar(), trained(MountainCarContinuous()), tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Ways(CartPole):
    """A cart-pole with actions of some form."""

    form: str = "number"
    count: int = 3

    def action_space(self, params=None):
        number = spaces.Discrete(self.count)
        return {
            "number": number,
            "array": MultiDiscrete([2, self.count]),
            "dictionary": spaces.Dict({"gear": number, "brake": spaces.Discrete(2)}),
            "nested tuple": spaces.Tuple([spaces.Discrete(2), spaces.Tuple([number, number])]),
            "beside numbers": spaces.Tuple([number, spaces.Box(-1.0, 1.0, (), jnp.float32)]),
        }[self.form]


@pytest.mark.parametrize("form", ["number", "array", "dictionary", "nested tuple", "beside numbers"])
def test_numbers_of_actions_are_distinguished(form):
    check_fit(Ways(form), Ways(form))
    with pytest.raises(ValueError, match="unlike those of cartpole"):
        check_fit(Ways(form, 5), Ways(form, 3))


def test_a_policy_of_a_subclass_fits():
    check_fit(CartPole(), Unknown())


def test_bad_arguments_of_render_are_refused(tmp_path):
    class Result:
        """An object that, like a result, is not a function."""

    with pytest.raises(TypeError, match=r"policy must be a function .* result\.policy\(seed=0\), or None, got Result"):
        render(CartPole(), Result(), tmp_path / "x.gif")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"env must be .* such as envs\.make\('cartpole'\), got 'cartpole'"):
        render("cartpole", None, tmp_path / "x.gif")
    with pytest.raises(TypeError, match="env_params must be CartPoleParams of cartpole, got dict"):
        render(CartPole(), None, tmp_path / "x.gif", env_params={"gravity": 1.0})


@pytest.mark.slow
def test_a_crowd_is_drawn_at_its_positions(tmp_path):
    env = Crowd("choke", num_agents=4)
    scene, state = Scene(env, env.default_params), start(env)
    first = scene.frame(state)
    assert first.shape == (560, 560, 3)
    ahead = jnp.tile(jnp.array([0.0, 2.0]), (4, 1))
    moved = state
    for _ in range(3):
        moved = env.step_env(jax.random.key(0), moved, ahead, env.default_params)[1]
        later = scene.frame(moved)
    assert centre(later, COLOURS[0])[1] > centre(first, COLOURS[0])[1]  # the first one has gone to the right
    gone = scene.frame(replace(moved, arrived=jnp.arange(4) == 0))
    assert np.all(gone == [int(ARRIVED[i : i + 2], 16) for i in (1, 3, 5)], axis=-1).sum() > 50
    np.testing.assert_array_equal(scene.frame(state), first)  # a new episode removes all parts of the previous one


@pytest.mark.slow
def test_the_paths_of_a_crowd_are_a_picture(tmp_path):
    env = Crowd("circle", num_agents=3, obstacles=True)
    figure = paths(roll(env, walk_ahead, jax.random.key(0), num_steps=5), path=tmp_path / "paths.png", title="three")
    with Image.open(tmp_path / "paths.png") as picture:
        assert picture.size[0] > 500
    ax, bar = figure.axes
    assert (ax.get_title(), ax.get_xlabel(), bar.get_ylabel()) == ("three", "x (m)", "speed (m/s)")
    assert len(ax.collections[-1].get_paths()) == 3 * 5  # one for every decision of every agent


def walk_ahead(key, obs, state):
    return jnp.tile(jnp.array([0.0, 1.0]), (3, 1))


def test_a_film_keeps_colours_that_its_first_frames_lack(tmp_path):
    """Each colour of many appears in its own frame, as the arms of a bandit do; the first frame is grey."""
    colours = [(120, 120, 120), (240, 140, 20), (30, 90, 220), (20, 160, 60), (240, 140, 20)]
    shades = np.linspace(0, 255, 48, dtype=np.uint8)
    frames = []
    for colour in colours:
        frame = np.broadcast_to(shades[None, :, None], (48, 48, 3)).copy()  # greys that fill much of a palette
        frame[8:20, 8:20] = colour
        frames.append(frame)
    path = tmp_path / "film.gif"
    _write_gif(path, iter(frames), (48, 48), 10)
    with Image.open(path) as film:
        for i, frame in enumerate(frames):
            film.seek(i)
            shown = np.asarray(film.convert("RGB"), np.int16)
            # Less than the distance of neighbouring shades and than what `_VISIBLE` lets pass.
            assert np.abs(shown - frame).max() <= 20, f"frame {i}"


@pytest.mark.parametrize("name", ["game/climbing", "cooperation/levers-self-play"])
def test_films_of_several_agents_without_a_policy(name, tmp_path):
    env = make(name)
    actions = random_actions(env, env.default_params)(jax.random.key(0))
    agents = env.reset_env(jax.random.key(0), env.default_params)[0]
    assert jax.tree.leaves(actions)[0].shape[0] == jax.tree.leaves(agents)[0].shape[0] == 2
    assert render(env, None, tmp_path / "film.gif", num_steps=1).exists()
