"""A crowd's policy with memory: agents walk in the direction of their first observation, and rest after k decisions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from remembering import Policy, stop_after

import jaxrl
from envs.crowd import Crowd
from envs.crowd.trajectories import Trajectory
from jaxrl.policies.crowds import crowd_like, for_any_number, walk
from jaxrl.policies.rendering_crowd import EPISODES
from jaxrl.results.policy import TrainedPolicy

DECISIONS, STEPS = 3, 12


@pytest.fixture(scope="module")
def policy() -> TrainedPolicy:
    env = Crowd("circle", num_agents=4, num_neighbours=2, obstacles=False, dynamics="cartesian-velocity")
    params = replace(env.default_params, max_steps_in_episode=STEPS)
    algo = stop_after(env, DECISIONS)
    return TrainedPolicy(algo, Policy(jnp.float32(1)), env_params=params)


def check_walk(episode: Trajectory, count: int) -> None:
    """All walk straight ahead, and stand still from the decision in their memory."""
    assert episode.position.shape == (STEPS + 1, count, 2)
    check_velocities(np.asarray(episode.velocity)[:, np.asarray(episode.present)], count)


def check_velocities(velocity: np.ndarray, count: int) -> None:
    assert velocity.shape == (STEPS + 1, count, 2)
    walked = velocity[1 : DECISIONS + 1]
    np.testing.assert_allclose(walked, np.broadcast_to(walked[:1], walked.shape), rtol=1e-5)
    assert np.linalg.norm(walked, axis=-1).min() > 1
    assert np.abs(velocity[DECISIONS + 1 :]).max() < 1e-6
    assert len(np.unique(np.sign(walked[0]), axis=0)) > 1  # not all in the same direction


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 3, 9])
def test_it_walks_among_any_number(policy: TrainedPolicy, count: int) -> None:
    check_walk(walk(policy, num_agents=count), count)


@pytest.mark.slow
def test_memories_of_any_number_are_each_ones_own(policy: TrainedPolicy) -> None:
    walkers = for_any_number(policy)
    count = 6
    spaces: Any = policy.algo.env.observation_space(policy.algo.env.default_params)
    size = {name: space.shape[-1] for name, space in spaces.spaces.items()}
    draws = jax.random.normal(jax.random.key(0), (2, count, size["own"]))
    others = {"neighbours": jnp.zeros((count, 2, size["neighbours"])), "neighbours_present": jnp.zeros((count, 2))}
    obs = [{"own": own, **others} for own in draws]
    memory = walkers.initial_memory(count)
    first, memory = walkers.act(obs[0], memory)
    np.testing.assert_array_equal(first, np.sign(draws[0, :, :2]))
    ended = jnp.arange(count) == 4
    memory = policy.remembered(memory, ended)
    second, memory = walkers.act(obs[1], memory)
    np.testing.assert_array_equal(second, np.sign(np.where(ended[:, None], draws[1, :, :2], draws[0, :, :2])))
    np.testing.assert_array_equal(memory.decisions, np.where(ended, 1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_pages_and_pictures_show_walks_of_a_policy_with_memory(
    policy: TrainedPolicy, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Trajectory] = []
    write = EPISODES[suffix]

    def kept(episode: Trajectory, file: Path, title: str) -> None:
        shown.append(episode)
        write(episode, file, title)

    monkeypatch.setitem(EPISODES, suffix, kept)
    path = jaxrl.render(policy.algo.env, policy, tmp_path / f"crowd{suffix}", seed=2)
    assert path.stat().st_size > 1000
    env, params = crowd_like(policy, num_agents=7)
    jaxrl.render(env, policy, tmp_path / f"more{suffix}", env_params=params)
    for episode, count in zip(shown, (4, 7), strict=True):
        check_walk(episode, count)


@pytest.mark.slow
def test_a_film_shows_walks_of_a_policy_with_memory(
    policy: TrainedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from envs.rendering import Scene

    velocities: list[Any] = []
    frame = Scene.frame

    def seen(self: Any, state: Any) -> Any:
        velocities.append(state.walkers.velocity)
        return frame(self, state)

    monkeypatch.setattr(Scene, "frame", seen)
    path = jaxrl.render(policy.algo.env, policy, tmp_path / "crowd.gif")
    with Image.open(path) as film:
        assert getattr(film, "n_frames", 1) == STEPS + 1
    check_velocities(np.stack(velocities), 4)


@pytest.mark.slow
def test_mean_speeds_count_steps_of_a_crowd_that_stopped(policy: TrainedPolicy) -> None:
    # Three decisions of twelve cover a quarter of the distance, whether actions are sampled or not.
    speeds, env = [], policy.algo.env
    assert isinstance(env, Crowd)
    for decisions in (DECISIONS, STEPS):
        algo = stop_after(env, decisions)
        sweep = jaxrl.grid(algo.hparams, {"env.max_steps_in_episode": [STEPS]})
        result = jaxrl.train(algo, sweep, env_steps=1, evals=1, eval_episodes=2, progress=False)
        assert result.values("mean_speed").item() == pytest.approx(result.values("mean_speed_sampled").item())
        speeds.append(result.values("mean_speed").item())
    assert speeds[0] == pytest.approx(speeds[1] * DECISIONS / STEPS, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stablehlo", "onnx"])
def test_a_file_remembers_for_a_crowd_of_any_size(policy: TrainedPolicy, name: str, tmp_path: Path) -> None:
    exported = jaxrl.load_exported(jaxrl.export_policy(policy, tmp_path / f"crowd.{name}"))
    shapes = {port["name"]: port["shape"] for port in exported.spec["inputs"]}
    assert shapes["memory.heading"] == ["batch", "agents", 2] and shapes["memory.decisions"] == ["batch", "agents"]
    obs = {part: np.ones((6, *shapes[f"obs.{part}"][2:]), np.float32) for part in ("neighbours", "neighbours_present")}
    draws = np.random.default_rng(0).normal(size=(DECISIONS + 1, 6, shapes["obs.own"][2])).astype(np.float32)
    memory = exported.initial_memory(6)
    for t, own in enumerate(draws):
        action, memory = exported({"own": own, **obs}, memory=memory)
        np.testing.assert_array_equal(action, np.sign(draws[0, :, :2]) if t < DECISIONS else 0)
    np.testing.assert_array_equal(memory["memory.decisions"], DECISIONS + 1)


@pytest.mark.slow
def test_its_laws_hold(policy: TrainedPolicy) -> None:
    jaxrl.check(policy.algo)
