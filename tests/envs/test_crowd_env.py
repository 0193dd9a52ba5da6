"""Crowds as environments: laws, participation of agents, metrics compared with slow ones, sweeps and errors."""

import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs import wrappers
from envs.crowd import Areas, Crowd, CrowdParams, Range, Recorded, Weights, reward_variant, roll
from envs.crowd.scenarios import SCENARIOS
from envs.crowd.state import Obstacles
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.ppo import PPOConfig, ppo
from jaxrl.runtime.training import training_call

EPS = float(np.finfo(np.float32).eps)
AHEAD = Areas(spawns=[((-0.5, -0.5), (0.5, 0.5))], goals=[((8.0, -1.0), (9.0, 1.0))])


@functools.cache
def _straight(share: float) -> Any:
    """Cartesian walkers that head for their goals at a share of the largest speed."""

    def act(key, obs, state):
        del key, obs
        away = state.goals.centre - state.walkers.position
        unit = away / jnp.maximum(jnp.linalg.norm(away, axis=-1, keepdims=True), 1e-6)
        return unit * jnp.arctanh(jnp.float32(share))

    return act


def _random(key, obs, state):
    del obs
    return jax.random.normal(key, state.walkers.position.shape)


# --- laws --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_global_observation_has_a_row_for_everyone_present_and_the_boxes() -> None:
    """Entry by entry, whatever the agents observe themselves."""
    env = envs.make("crowd/car", num_agents=3, frame="egocentric", remove_globals=True)
    params = dataclasses.replace(env.default_params, num_present=2, max_steps_in_episode=8)
    state: Any = env.reset_env(jax.random.key(0), params)[1]
    state = dataclasses.replace(state, time=jnp.int32(2), arrived=jnp.array([True, False, False]))
    seen = env.global_observation(state, params)
    np.testing.assert_array_equal(seen["agents_present"], [1, 1, 0])
    np.testing.assert_array_equal(seen["agents"][2], np.zeros(13))
    for row, i in ((seen["agents"][0], 0), (seen["agents"][1], 1)):
        np.testing.assert_allclose(row[:2], state.walkers.position[i] / 10, rtol=1e-6)
        np.testing.assert_allclose(row[3:5], state.goals.centre[i] / 10, rtol=1e-6)
        np.testing.assert_allclose(row[jnp.array([7, 9, 12])], [i == 0, state.traits.resting[i], 0.25], rtol=1e-6)
    boxes = state.obstacles
    expected = np.concatenate([boxes.box_centre / 10, boxes.box_velocity / 2], axis=1)
    assert np.any(expected[:, 2:]) and len(expected) > 1  # one of them is the car
    np.testing.assert_allclose(seen["boxes"], expected, rtol=1e-6)
    alone = env.global_observation(state.replace(obstacles=Obstacles.none()), params)
    assert set(alone) == {"agents", "agents_present"}


@pytest.mark.slow
@pytest.mark.parametrize("perception", ["neighbours", "rays", "both"])
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_every_scenario_keeps_the_laws_with_every_perception(scenario: str, perception: str) -> None:
    envs.check(envs.make(f"crowd/{scenario}", num_agents=5, perception=perception), num_steps=24)


@pytest.mark.slow
@pytest.mark.parametrize("frame", ["absolute", "relative", "egocentric"])
@pytest.mark.parametrize("dynamics", ["cartesian-velocity", "cartesian-acceleration", "polar-velocity"])
def test_every_frame_and_dynamics_keeps_the_laws(frame: str, dynamics: str) -> None:
    env = envs.make("crowd/circle", num_agents=3, frame=frame, dynamics=dynamics, preset="2023")
    envs.check(env, num_steps=12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        Crowd(AHEAD, num_agents=4, end_when_all_arrived=True),
        Crowd(Recorded([[0, 0, 3, 0], [3, 0, 0, 0.1]]), num_agents=2, search="cells"),
        Crowd(num_agents=1, perception="both", tags=True, num_rays=3, stack=1, remove_globals=True),
    ],
    ids=["areas", "recorded", "alone"],
)
def test_scenes_of_ones_own_keep_the_laws(env: Crowd) -> None:
    envs.check(env, num_steps=16)


def test_names_stand_for_scenarios() -> None:
    for scenario in SCENARIOS:
        env = envs.make(f"crowd/{scenario}", num_agents=2)
        assert env == Crowd(scenario, num_agents=2) and env.name == f"crowd/{scenario}"
    assert hash(Crowd(num_agents=3)) == hash(Crowd(num_agents=3, num_neighbours=2))
    assert Crowd(num_agents=3) == Crowd(num_agents=3, num_neighbours=2)
    # A command line reads `preset=2023` as a number.
    assert envs.make("crowd/circle", preset=2023) == Crowd(preset="2023")


@pytest.mark.parametrize(
    ("fields", "shapes"),
    [
        ({}, {"own": (9,), "neighbours": (4, 4), "neighbours_present": (4,)}),
        ({"preset": "2023"}, {"own": (13,), "neighbours": (4, 5), "neighbours_present": (4,)}),
        ({"perception": "rays"}, {"own": (9,), "rays": (168,)}),
        (
            {"perception": "both", "num_rays": 5, "stack": 2, "tags": True, "num_neighbours": 3},
            {"own": (9,), "neighbours": (3, 4), "neighbours_present": (3,), "rays": (40,)},
        ),
    ],
)
def test_observations_have_the_shapes_of_their_space(fields, shapes) -> None:
    env = Crowd(num_agents=5, **fields)
    params = env.default_params
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    assert {name: leaf.shape for name, leaf in obs.items()} == {name: (5, *shape) for name, shape in shapes.items()}
    assert {name: space.shape for name, space in env.observation_space(params).spaces.items()} == shapes


@pytest.mark.slow
def test_frames_are_stacked_oldest_first() -> None:
    env = Crowd(num_agents=3, perception="rays", num_rays=4, stack=3)
    params = env.default_params
    obs, state = jax.jit(env.reset_env)(jax.random.key(0), params)
    step = jax.jit(env.step_env)
    seen = [obs["rays"]]
    for _ in range(3):
        obs, state, *_ = step(jax.random.key(0), state, jnp.ones((3, 2)), params)
        seen.append(obs["rays"])
    newest = [np.asarray(rays).reshape(3, 3, 8)[:, -1] for rays in seen]
    assert not np.any(np.asarray(seen[0]).reshape(3, 3, 8)[:, :2])
    np.testing.assert_array_equal(np.asarray(seen[3]).reshape(3, 3, 8), np.stack(newest[1:], axis=1))


# --- participation ----------------------------------------------------------------------


def _steps(env: Crowd, params: CrowdParams, act: Any, num_steps: int) -> Any:
    """Every transition of an episode, stacked: state before, state after, reward, terminated, info."""

    @jax.jit
    def run(params):
        def body(carry, key):
            obs, state = carry
            obs, after, reward, terminated, info = env.step_env(key, state, act(key, obs, state), params)
            return (obs, after), (state, after, reward, terminated, info)

        keys = jax.random.split(jax.random.key(1), num_steps)
        return jax.lax.scan(body, env.reset_env(jax.random.key(0), params), keys)[1]

    return jax.tree.map(np.asarray, run(jax.tree.map(jnp.asarray, params)))


@pytest.mark.slow
def test_an_arriving_agent_is_active_in_that_step_and_inactive_afterwards() -> None:
    env = Crowd(num_agents=6, dynamics="cartesian-velocity")
    params = dataclasses.replace(env.default_params, num_present=4)
    before, after, reward, terminated, info = _steps(env, params, _straight(0.7), 150)
    present = np.arange(6) < 4
    active, finished = info["active"], info["agent_terminated"]
    np.testing.assert_array_equal(active, before.present & ~before.arrived)
    np.testing.assert_array_equal(finished, after.arrived)
    assert finished[-1, :4].all() and not finished[:, 4:].any() and not active[:, 4:].any()
    # In the decision in which it reaches the goal, an agent is active and terminated, and is paid for the goal once.
    arrives = active & finished
    np.testing.assert_array_equal(arrives.sum(0), present)
    assert np.all(reward[arrives] > 9) and np.all(reward[~arrives] < 1)
    assert not np.any(reward[~active]) and not terminated.any()
    # From then on it stays where it is, without energy.
    gone = ~active[1:]
    np.testing.assert_array_equal(after.walkers.position[1:][gone], before.walkers.position[1:][gone])
    np.testing.assert_array_equal(after.totals["energy"][1:][gone], before.totals["energy"][1:][gone])
    assert np.all((after.arrival_time[-1] > 0) == present)


@pytest.mark.slow
def test_an_episode_may_end_with_the_last_arrival() -> None:
    env = Crowd(AHEAD, num_agents=3, dynamics="cartesian-velocity", end_when_all_arrived=True)
    _, after, _, terminated, _ = _steps(env, env.default_params, _straight(0.9), 80)
    np.testing.assert_array_equal(terminated, after.arrived.all(1))
    assert bool(terminated[-1]) and not bool(terminated[0])


@pytest.mark.slow
def test_how_many_take_part_is_traced() -> None:
    env = Crowd(num_agents=6)
    traces = []

    @jax.jit
    def walking(num_present):
        traces.append(1)
        params = dataclasses.replace(env.default_params, num_present=num_present, sight_radius=20.0)
        obs, state = env.reset_env(jax.random.key(0), params)
        state = env.step_env(jax.random.key(1), state, jnp.ones((6, 2)), params)[1]
        return jnp.sum(state.walking), jnp.sum(obs["neighbours_present"])

    for count in (1, 3, 6):
        actual, seen = walking(jnp.int32(count))
        assert int(actual) == count and int(seen) == count * (count - 1)
    assert len(traces) == 1


@pytest.mark.slow
def test_absent_agents_change_nothing() -> None:
    few, many = Crowd(num_agents=3, num_neighbours=2), Crowd(num_agents=7, num_neighbours=2)
    fixed = [[-2.0, 0.1, 2.0, 0.0], [2.0, 0.0, -2.0, 0.0], [0.0, 2.0, 0.0, -2.0]]
    rows = fixed + [[0.1 * i, 0.0, 0.0, 0.0] for i in range(4)]
    few = dataclasses.replace(few, scenario=Recorded(fixed), obstacles=None)
    many = dataclasses.replace(many, scenario=Recorded(rows), obstacles=None)
    one = _steps(few, few.default_params, lambda *_: jnp.ones((3, 2)), 30)
    params = dataclasses.replace(many.default_params, num_present=3)
    other = _steps(many, params, lambda *_: jnp.ones((7, 2)), 30)
    np.testing.assert_allclose(one[1].walkers.position, other[1].walkers.position[:, :3], atol=1e-5)
    np.testing.assert_allclose(one[2], other[2][:, :3], atol=1e-4)
    for name, values in one[4]["metrics"].items():
        np.testing.assert_allclose(values, other[4]["metrics"][name], rtol=1e-3, atol=1e-3, err_msg=name)


# --- measures ----------------------------------------------------------------------------


@pytest.mark.slow
def test_an_agent_on_a_straight_line_spends_the_optimal_energy() -> None:
    env = Crowd(Recorded([[0, 0, 6, 0]]), num_agents=1, dynamics="cartesian-velocity")
    share = float(jnp.sqrt(2.23 / 1.26) / 2)
    track = roll(env, _straight(share), jax.random.key(0))
    metrics = {name: float(value) for name, value in track.metrics.items()}
    distance = 6 - 0.375 - 0.2
    assert metrics["success"] == 1
    assert abs(metrics["optimum"] - 3.3525 * distance) < 1e-3
    # A substep is 1.3304 / 120 m long: the agent may go farther than the touch by that much.
    longer = 1.3304 / 120
    assert 3.3525 * distance - 1e-3 <= metrics["energy"] <= 3.3526 * (distance + longer) + 1e-3
    assert abs(metrics["energy_dynamics"] - metrics["energy"] - _first_step(share)) < 2e-2
    assert metrics["energy_plus"] == metrics["energy"] == metrics["energy_plus_average"]
    assert abs(metrics["mean_speed"] - 1.3304) < 1e-4 * 1.33
    assert 1 - longer / distance <= metrics["path_efficiency"] <= 1
    assert abs(metrics["time_to_goal"] - distance / 1.3304) <= 1 / 120 + 1e-3
    assert metrics["contacts"] == 0 and metrics["minimum_distance"] == 100


def _first_step(share: float) -> float:
    """The energy of acceleration in the second model: v.a for one decision instead of e_w v^2."""
    speed = 2 * share
    interval = 10 / 120
    return (speed * speed / interval - 1.26 * speed * speed) * interval


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["2022", pytest.param("2023", marks=pytest.mark.slow)])
def test_energy_and_matching_rewards_are_one_in_the_environment_too(preset: str) -> None:
    """r_bmr + r_drag + r_diff_potential = r_v_matching, with random walkers that collide."""
    env = Crowd(num_agents=8, preset=preset)
    weights = Weights(bmr=1.0, drag=1.0, diff_potential=1.0, v_matching=-1.0)
    people = {"resting": Range(1.5, 3.0), "walking": Range(1.0, 1.5)}
    params = dataclasses.replace(env.default_params, weights=weights, **people)
    _, _, reward, _, info = _steps(env, params, _random, 60)
    # Of terms up to 3 dt + 1.5 (2 v_max)^2 dt + 4 x 2 v_max dt, v_max 2 or 4 m/s; the rounding of five products.
    largest = (3 + 1.5 * 16 + 16) / 12 if preset == "2022" else (3 + 1.5 * 64 + 32) / 10
    assert np.max(np.abs(reward)) <= 16 * EPS * largest
    assert float(np.min(info["metrics"]["reward_bmr"])) < 0


@pytest.mark.slow
def test_potentials_telescope_over_an_episode() -> None:
    env = Crowd(num_agents=5)
    params = dataclasses.replace(env.default_params, weights=Weights(progress=1.0))
    before, after, reward, *_ = _steps(env, params, _random, 100)
    start = np.linalg.norm(np.asarray(before.goals.centre - before.walkers.position)[0], axis=-1)
    end = np.linalg.norm(np.asarray(after.goals.centre - after.walkers.position)[-1], axis=-1)
    np.testing.assert_allclose(np.asarray(reward, np.float64).sum(0), start - end, atol=100 * EPS * 13)


@pytest.mark.slow
def test_pure_energy_pays_for_walking_up_to_the_threshold_and_for_standing_beyond() -> None:
    threshold = 200 / 12 * 1.33035 / 2
    env = Crowd(Recorded([[0, 0, 1, 0]]), num_agents=1, dynamics="cartesian-velocity")
    params = dataclasses.replace(env.default_params, weights=Weights(bmr=1.0, drag=1.0))

    @jax.jit
    def paid(speeds: jax.Array, distance: jax.Array) -> jax.Array:
        _, state = env.reset_env(jax.random.key(0), params)
        goals = dataclasses.replace(state.goals, centre=jnp.array([[1.0, 0.0]]) * (distance + 0.575))
        state = dataclasses.replace(state, goals=goals)

        def total(speed: jax.Array) -> jax.Array:
            action = jnp.stack([jnp.arctanh(speed / 2), 0.0])[None]

            def body(state, _):
                _, state, reward, *_ = env.step_env(jax.random.key(0), state, action, params)
                return state, reward

            return jnp.sum(jax.lax.scan(body, state, length=200)[1])

        return jax.vmap(total)(speeds)

    speeds = 0.05 * np.arange(39, dtype=np.float32)
    for share in (0.7, 0.95, 1.05, 1.3):
        best = speeds[np.argmax(paid(jnp.asarray(speeds), jnp.float32(share * threshold)))]
        assert best == 0 if share > 1 else abs(best - 1.3304) <= 0.05, share


@pytest.mark.slow
@pytest.mark.parametrize("preset", [pytest.param("2022", marks=pytest.mark.slow), "2023"])
def test_metrics_agree_with_slow_ones(preset: str) -> None:
    env = Crowd(num_agents=7, preset=preset, dynamics="cartesian-velocity", obstacles=False)
    weights = Weights(bmr=1.0, drag=1.0, goal=3.0, collision=-0.1)
    params = dataclasses.replace(env.default_params, num_present=6, weights=weights)

    def act(key, obs, state):
        return _straight(0.6)(key, obs, state) + 0.5 * jax.random.normal(key, (7, 2))

    before, after, reward, _, info = _steps(env, params, act, 160)
    interval = 10 * params.dt
    slow = _slow_metrics(before, after, interval)
    for name, (expected, tolerance) in slow.items():
        got = info["metrics"][name]
        got = got.sum() if env.metric_rules[name] == "sum" else got[-1]
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=1e-5, err_msg=name)
    assert slow["success"][0] > 0.5
    energy = -(info["metrics"]["reward_bmr"] + info["metrics"]["reward_drag"]).astype(np.float64).sum()
    np.testing.assert_allclose(info["metrics"]["energy"][-1], energy, rtol=1e-5)
    if preset == "2023":  # from positions alone: a decision's mean velocity costs less energy than its parts
        shortest = _slow_energy(before, after, interval)
        assert 0.97 * energy <= shortest <= energy * (1 + 1e-4)
    terms = [name for name in env.metric_rules if name.startswith("reward_")]
    total = sum(info["metrics"][name].astype(np.float64).sum() for name in terms)
    np.testing.assert_allclose(total, reward.astype(np.float64).sum() / 6, rtol=1e-5)


def _slow_metrics(before, after, interval) -> dict[str, tuple[float, float]]:
    """Agent by agent and decision by decision, with a relative tolerance."""
    num_steps = before.time.shape[0]
    rows = []
    closest = 100.0
    for i in range(6):
        traits = {name: float(getattr(before.traits, name)[0, i]) for name in ("radius", "resting", "walking")}
        centre, half = before.goals.centre[0, i], before.goals.half[0, i]

        def to_touch(place, centre=centre, half=half, radius=traits["radius"]):
            outside = np.maximum(np.abs(np.asarray(place, np.float64) - centre) - half, 0)
            return max(np.linalg.norm(outside) - radius, 0.0)

        way = to_touch(before.walkers.position[0, i])
        arrived_at = np.flatnonzero(after.arrived[:, i])
        last = arrived_at[0] if len(arrived_at) else num_steps - 1
        left = 0.0 if len(arrived_at) else to_touch(after.walkers.position[-1, i])
        optimum = 2 * np.sqrt(traits["resting"] * traits["walking"])
        travelled = sum(
            np.linalg.norm(after.walkers.position[t, i].astype(np.float64) - before.walkers.position[t, i])
            for t in range(last + 1)
        )
        time = float(after.arrival_time[-1, i]) if len(arrived_at) else num_steps * interval
        assert last * interval < time <= (last + 1) * interval + 1e-4
        rows.append(
            {
                "success": float(len(arrived_at) > 0),
                "optimum": optimum * way,
                "time_to_goal": time,
                "mean_speed": travelled / time,
                "path_efficiency": (way - left) / travelled,
            }
        )
    for t in range(-1, num_steps):
        state, at = (before, 0) if t < 0 else (after, t)
        walking = [i for i in range(6) if not state.arrived[at, i]]
        for i in walking:
            for j in walking:
                if i < j:
                    gap = np.linalg.norm(state.walkers.position[at, i] - state.walkers.position[at, j])
                    closest = min(closest, float(gap))
    # A collision bends the path within a decision, so that the straight line between its ends is slightly shorter.
    tolerance = {"mean_speed": 2e-2, "path_efficiency": 2e-2}
    means = {name: (float(np.mean([row[name] for row in rows])), tolerance.get(name, 1e-4)) for name in rows[0]}
    return means | {"minimum_distance": (closest, 1e-5)}


def _slow_energy(before, after, interval) -> float:
    spent = 0.0
    for t, i in np.ndindex(before.time.shape[0], 6):
        if before.arrived[t, i]:
            continue
        lasted = float(after.totals["walked"][t, i] - before.totals["walked"][t, i])
        assert 0 < lasted <= interval * (1 + 1e-4)
        way = after.walkers.position[t, i].astype(np.float64) - before.walkers.position[t, i]
        spent += (before.traits.resting[t, i] + before.traits.walking[t, i] * (way @ way) / lasted**2) * lasted
    return spent / 6


@pytest.mark.slow
def test_actions_may_be_anything() -> None:
    env = Crowd(num_agents=6, perception="both", num_rays=5)
    extremes = jnp.array([1e30, -1e30, 3e38, -3e38, 0.0])

    def act(key, obs, state):
        del key, obs
        return jnp.broadcast_to(extremes[state.time // 10], (6, 2)).at[::2, 0].multiply(-1)

    run = _steps(env, env.default_params, act, 50)
    for leaf in jax.tree.leaves((run[2], run[4]["metrics"], run[1].walkers, run[1].totals)):
        assert np.isfinite(leaf).all()


@pytest.mark.slow
def test_random_people_are_drawn_within_their_ranges() -> None:
    env = Crowd(num_agents=40, preset="2023")
    traits = jax.jit(env.reset_env)(jax.random.key(3), env.default_params)[1].traits
    for values, low, high in (
        (traits.size_mass, 0.5, 1.5),
        (traits.resting, 1.5, 3.0),
        (traits.walking, 1.0, 1.5),
    ):
        assert low <= float(values.min()) < low + 0.2 * (high - low)
        assert high - 0.2 * (high - low) < float(values.max()) <= high
    np.testing.assert_allclose(traits.radius, 0.2 * np.cbrt(traits.size_mass), rtol=4 * EPS)
    assert np.all(np.asarray(traits.mass) == 1)
    env = Crowd(num_agents=5)
    alike = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)[1].traits
    np.testing.assert_array_equal(alike.preferred_speed, np.sqrt(np.float32(2.23) / np.float32(1.26)))


# --- sweeps, curricula, descriptions -------------------------------------------------------


def test_a_curriculum_switches_weights_at_its_step() -> None:
    env = Crowd(num_agents=2, preset="2023")
    stages = reward_variant("base")
    params = dataclasses.replace(
        env.default_params,
        weights=stages.weights,
        later_weights=stages.later_weights,
        switch_env_steps=stages.switch_env_steps,
    )
    at = jax.jit(env.params_at)
    for env_steps, weights in ((0, stages.weights), (79_599, stages.weights), (79_600, stages.later_weights)):
        actual = at(params, jnp.float32(env_steps)).weights
        assert jax.tree.map(float, actual) == jax.tree.map(lambda x: float(np.float32(x)), weights)
    assert env.params_at(env.default_params, 1e12).weights == jax.tree.map(jnp.float32, env.default_params.weights)


def test_weights_change_along_a_line_over_the_ramp() -> None:
    env = Crowd(num_agents=2, reward="straight")
    later = dataclasses.replace(env.default_params.weights, collision=-0.3)
    at = jax.jit(env.params_at)
    for ramp, expected in ((0.0, (-0.005, -0.3, -0.3, -0.3)), (1000.0, (-0.005, -0.005, -0.1525, -0.3))):
        params = dataclasses.replace(
            env.default_params, later_weights=later, switch_env_steps=2000.0, ramp_env_steps=ramp
        )
        weights = [at(params, jnp.float32(env_steps)).weights for env_steps in (1999, 2000, 2500, 3000)]
        np.testing.assert_allclose([each.collision for each in weights], expected, rtol=1e-6)
        assert all(float(each.progress) == 1.0 for each in weights)
    never = dataclasses.replace(env.default_params, later_weights=later, ramp_env_steps=1000.0)
    assert float(at(never, jnp.float32(1e9)).weights.collision) == np.float32(-0.005)


@pytest.mark.slow
def test_reward_weights_are_swept_in_one_training_call() -> None:
    env = Crowd(num_agents=3)
    algo = ppo(env, PPOConfig(num_envs=2, num_steps=20, num_minibatches=2, num_epochs=1))
    sweep = jaxrl.grid(algo.hparams, {"env.weights.goal": [0.0, 10.0], "env.scenario.radius": [0.9, 1.2]})
    params = dataclasses.replace(env.default_params, max_steps_in_episode=20)
    result = jaxrl.train(
        algo, sweep, seeds=2, env_steps=80, evals=1, eval_episodes=4, env_params=params, progress=False
    )
    assert set(result.metrics["success"].dims) >= {"env.weights.goal", "env.scenario.radius", "seed"}
    goal = result.metrics["reward_goal_sampled"]
    assert float(abs(goal.sel({"env.weights.goal": 0.0})).max()) == 0
    assert np.isfinite(result.metrics["energy_plus"]).all()


def test_paths_into_parameters_that_do_not_exist_are_reported() -> None:
    env = Crowd(num_agents=2)
    algo = ppo(env, PPOConfig(num_envs=1, num_steps=4, num_minibatches=1))
    for path, sentence in (
        (
            "env.weights.gaol",
            r"env\.weights\.gaol is not a parameter of crowd/circle; did you mean 'env\.weights\.goal'",
        ),
        ("env.weights", r"env\.weights has parts of its own; sweep env\.weights\.progress or"),
        ("env.dt.low", r"env\.dt\.low is not a parameter of crowd/circle; env\.dt has no parts"),
    ):
        with pytest.raises(ValueError, match=sentence):
            jaxrl.train(algo, jaxrl.grid(algo.hparams, {path: [1.0]}), env_steps=4, evals=1, progress=False)


def test_a_crowd_can_be_described_and_built_again() -> None:
    env = envs.make("crowd/crossway", num_agents=4, perception="both", preset="2023")
    algo = ppo(env, PPOConfig(num_envs=1, num_steps=4, num_minibatches=1))
    spec = algorithms.describe(algo)
    assert spec["environment"]["name"] == "crowd/crossway" and "scenario" not in spec["environment"]["static"]
    assert algorithms.build(spec).env == env
    own = ppo(Crowd(AHEAD, num_agents=2), PPOConfig(num_envs=1, num_steps=4, num_minibatches=1))
    with pytest.raises(ValueError, match="scenario is an object, Areas"):
        algorithms.describe(own)


def _crowd(**fields: Any) -> Crowd:
    return Crowd(**fields)


def _checked(**fields: Any) -> None:
    env = Crowd(num_agents=3)
    env.check_params(env.default_params)
    env.check_params(dataclasses.replace(env.default_params, **fields))


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: envs.make("crowd/circel"), "no environment 'crowd/circel'; did you mean 'crowd/circle'"),
        (lambda: envs.make("crowd/circle", scenario="car"), "no static field 'scenario'"),
        (lambda: Crowd("circel"), "no scenario 'circel'; did you mean 'circle'"),
        (lambda: _crowd(frame="egocentrik"), "frame must be one of .*, got 'egocentrik'; did you mean 'egocentric'"),
        (lambda: _crowd(frame="x"), "frame must be one of absolute, relative, egocentric, got 'x'"),
        (lambda: _crowd(dynamics="polar"), "dynamics must be one of cartesian-velocity, .*, got 'polar'"),
        (lambda: _crowd(dynamics="polar-velocty"), "did you mean 'polar-velocity'"),
        (lambda: _crowd(perception="ray"), "perception must be one of .*, got 'ray'; did you mean 'rays'"),
        (lambda: _crowd(preset="2024"), "preset is '2024'; did you mean"),
        (lambda: _crowd(perception="rays", num_rays=0), "num_rays must be a whole number of at least 1, got 0"),
        (lambda: _crowd(num_rays=5), "num_rays has no effect with perception='neighbours'"),
        (lambda: _crowd(perception="rays", num_neighbours=5), "num_neighbours has no effect with perception='rays'"),
        (lambda: _crowd(num_agents=5, num_neighbours=5), "at most the number of other agents, 4, got 5"),
        (lambda: _crowd(num_agents=0), "num_agents must be a whole number of at least 1, got 0"),
        (lambda: Crowd("choke", num_agents=65), "num_agents must be at most 64 in choke"),
        (lambda: Crowd("choke", num_agents=50, preset="2023"), "num_agents must be at most 49 in choke"),
        (lambda: _crowd(preset=2024), "preset is '2024'; did you mean"),
        (lambda: _crowd(substeps=0), "substeps must be a whole number of at least 1, got 0"),
        (lambda: _crowd(substeps=2.5), r"substeps must be a whole number of at least 1, got 2\.5"),
        (lambda: _crowd(iterations=0), "iterations must be a whole number of at least 1, got 0"),
        (lambda: _crowd(tags=True), "tags has no effect with perception='neighbours'"),
        (lambda: Crowd(AHEAD, num_agents=2, obstacles=False), "obstacles is False, but True in the scenario"),
        (lambda: _checked(num_present=4), "num_present must lie between 1 and num_agents, 3, got 4"),
        (lambda: _checked(num_present=np.array([3, 0])), "num_present must lie between 1 and num_agents, 3, got 0"),
        (lambda: _checked(radius=np.array([0.2, 6.0])), "num_agents must be at most 2 in circle with a radius .* 6 m"),
        (lambda: CrowdParams(radius=0.0), r"radius must be above 0, got 0\.0"),
        (lambda: CrowdParams(ramp_env_steps=-1.0), r"ramp_env_steps must be at least 0, got -1\.0"),
        (lambda: CrowdParams(resting=Range(0.0, 1.0)), r"resting\.low must be above 0"),
        (lambda: Range(2.0, 1.0), "low must not be above high"),
    ],
)
def test_mistakes_get_one_sentence(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_return_counts_people_and_not_places() -> None:
    """The sum of the terms of the reward, a mean over participating agents, is the return."""
    env = envs.make("crowd/circle", num_agents=12)
    algo = ppo(env, PPOConfig(num_envs=2, num_steps=8, num_minibatches=1, hidden=(8,)))
    params = env.default_params.replace(num_present=3, max_steps_in_episode=20)
    result = jaxrl.train(algo, env_params=params, env_steps=16, eval_episodes=4, progress=False)
    metrics = result.metrics.isel(env_step=-1, seed=0)
    terms = sum(float(metrics[name]) for name in env.metric_rules if name.startswith("reward_"))
    assert abs(float(metrics["return"]) - terms) <= 1e-4 * abs(terms) and abs(terms) > 0.1


@pytest.mark.parametrize(("reward", "time_limits", "twice"), [
    ("base", "bootstrap", True), ("base", "terminal", False), ("base-no-final", "bootstrap", False)
])  # fmt: skip
def test_the_rest_of_the_way_is_counted_once(reward: str, time_limits: Any, twice: bool) -> None:
    env = wrappers.time_limit(envs.make("crowd/circle", num_agents=3, preset="2023", reward=reward), 50)
    algo = ppo(env, PPOConfig(num_envs=2, num_steps=8, num_minibatches=1, hidden=(8,), time_limits=time_limits))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training_call(algo, None, seeds=[0], points=np.array([1]), eval_episodes=1)
    sentences = [str(each.message) for each in caught if "counted twice" in str(each.message)]
    assert bool(sentences) == twice and all("PPOConfig(time_limits='terminal')" in each for each in sentences)
