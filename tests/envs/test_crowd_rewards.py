"""Rewards and energies of a crowd against closed forms, and every term against a slow NumPy one."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import energy, measures, presets, rewards
from envs.crowd.rewards import Outcome, Weights
from envs.crowd.state import Goals, Traits

EPS = float(np.finfo(np.float32).eps)
E_S, E_W = 2.23, 1.26
AGENTS = 64


def _traits(num_agents: int, seed: int | None = None) -> Traits:
    """Average people, or random ones."""
    one = jnp.ones(num_agents)
    resting, walking = E_S * one, E_W * one
    if seed is not None:
        generator = np.random.default_rng(seed)
        resting = jnp.asarray(generator.uniform(1.5, 3, num_agents), jnp.float32)
        walking = jnp.asarray(generator.uniform(1, 1.5, num_agents), jnp.float32)
    return Traits(
        radius=0.2 * one,
        mass=one,
        size_mass=one,
        resting=resting,
        walking=walking,
        max_speed=2 * one,
        max_acceleration=5 * one,
    )


def _outcome(seed: int = 0, **changes) -> Outcome:
    generator = np.random.default_rng(seed)

    def uniform(low, high, *shape):
        return jnp.asarray(generator.uniform(low, high, (AGENTS, *shape)), jnp.float32)

    angle = uniform(-np.pi, np.pi)
    velocity = uniform(-2, 2, 2)
    step = Outcome(
        walking=jnp.ones(AGENTS, bool),
        arrived=jnp.asarray(generator.random(AGENTS) < 0.3),
        duration=uniform(0.01, 0.1),
        velocity=velocity,
        mean_square=jnp.sum(velocity**2, -1),
        previous_velocity=uniform(-2, 2, 2),
        towards=jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1),
        before=uniform(1, 8),
        after=uniform(1, 8),
        start_distance=uniform(6, 9),
        touches=jnp.asarray(generator.integers(0, 20, AGENTS), jnp.float32),
        at_limit=jnp.asarray(False),
        elapsed=jnp.float32(7.5),
        interval=jnp.float32(0.1),
        traits=_traits(AGENTS, seed),
    )
    return dataclasses.replace(step, **changes)


def _slow(step: Outcome, weights: Weights) -> dict[str, np.ndarray]:
    """Every term, agent by agent, in float64."""
    rows = {name: [] for name in rewards.TERMS}
    for i in range(AGENTS):
        e_s, e_w = float(step.traits.resting[i]), float(step.traits.walking[i])
        best = math.sqrt(e_s / e_w)
        scale = 2 * math.sqrt(e_s * e_w)
        v, old, g = (np.asarray(x[i], np.float64) for x in (step.velocity, step.previous_velocity, step.towards))
        dt, d, d_old = float(step.duration[i]), float(step.after[i]), float(step.before[i])
        size, miss = np.linalg.norm(v), np.linalg.norm(v - best * g)
        late = bool(step.at_limit) and not bool(step.arrived[i])
        average = max((float(step.start_distance[i]) - d) / float(step.elapsed), 0.1)
        p = float(weights.matching_exponent)
        values = {
            "progress": d_old - d,
            "speed": -(abs(size - best) ** float(weights.speed_exponent)),
            "time": 1.0,
            "goal": float(step.arrived[i]),
            "collision": float(step.touches[i]),
            "bmr": -e_s * dt,
            "drag": -e_w * size**2 * dt,
            "dynamics": -abs(v @ (v - old) / float(step.interval) + e_w * v @ old) * dt,
            "potential": scale * (d_old - d),
            "diff_potential": scale * (v @ g) * dt,
            "s_matching": -(abs(size - best) ** p) * dt,
            "speeding": -(max(size - best, 0.0) ** p) * dt,
            "v_matching": -e_w * miss**2 * dt,
            "exp_v_matching": -math.exp(float(weights.sigma) * miss) * dt,
            "final": -scale * d if late else 0.0,
            "avg_final": -(e_s + e_w * average**2) * d / average if late else 0.0,
        }
        for name, value in values.items():
            rows[name].append(value)
    return {name: np.asarray(values) for name, values in rows.items()}


@pytest.mark.slow_rows("False")
@pytest.mark.parametrize("at_limit", [False, True])
def test_every_term_is_the_papers(at_limit: bool) -> None:
    step = _outcome(at_limit=jnp.asarray(at_limit))
    weights = Weights(speed_exponent=1.3, matching_exponent=1.7, sigma=0.6)
    expected = _slow(step, weights)
    assert set(rewards.TERMS) == set(expected)
    for name, term in rewards.TERMS.items():
        # Differences of numbers up to 50, rounded a dozen times.
        np.testing.assert_allclose(term(step, weights), expected[name], rtol=20 * EPS, atol=500 * EPS, err_msg=name)


def test_each_weight_scales_its_own_term() -> None:
    step = _outcome(at_limit=jnp.asarray(True))
    for name in rewards.TERMS:
        weights = Weights(**{name: 0.5})
        total, shares = rewards.reward(weights, step)
        np.testing.assert_array_equal(total, shares[name], err_msg=name)
        np.testing.assert_allclose(total, 0.5 * rewards.TERMS[name](step, weights), rtol=EPS, err_msg=name)
        assert np.any(np.asarray(total) != 0), name
        assert all(not np.any(np.asarray(share)) for other, share in shares.items() if other != name)


def test_rewards_are_sums_of_shares_and_zero_for_agents_that_do_not_walk() -> None:
    walking = jnp.arange(AGENTS) % 3 > 0
    step = _outcome(walking=walking, at_limit=jnp.asarray(True))
    weights = Weights(**{name: 0.1 * (i + 1) for i, name in enumerate(rewards.TERMS)})
    total, shares = rewards.reward(weights, step)
    np.testing.assert_allclose(total, sum(np.asarray(share, np.float64) for share in shares.values()), rtol=1e-5)
    for name, share in shares.items():
        assert not np.any(np.asarray(share)[~np.asarray(walking)]), name


def test_weights_are_traced() -> None:
    step = _outcome()
    traces = []

    @jax.jit
    def total(weights: Weights) -> jax.Array:
        traces.append(1)
        return rewards.reward(weights, step)[0]

    for scale in (0.5, 2.0):
        total(jax.tree.map(jnp.float32, Weights(goal=scale, speed=scale, speed_exponent=scale)))
    assert len(traces) == 1


def test_an_exponent_at_no_excess_gives_nothing_but_finite_slopes() -> None:
    step = _outcome(velocity=jnp.zeros((AGENTS, 2)))

    def paid(exponent: jax.Array) -> jax.Array:
        return jnp.sum(rewards.reward(Weights(speeding=1.0, matching_exponent=exponent), step)[0])

    assert float(paid(jnp.float32(2))) == 0
    assert float(jax.grad(paid)(jnp.float32(2))) == 0


# --- the identity and the potentials ----------------------------------------------------


@pytest.mark.parametrize("wobble", [0.0, 0.3])
def test_metabolism_drag_and_differential_potential_are_velocity_matching(wobble: float) -> None:
    step = _outcome(3)
    # A speed that varies within the decision adds the same variance to both sides.
    step = dataclasses.replace(step, mean_square=step.mean_square + wobble)
    weights = Weights()
    parts = [rewards.TERMS[name](step, weights) for name in ("bmr", "drag", "diff_potential")]
    largest = np.max(np.abs(np.stack(parts)), axis=0)
    error = np.abs(sum(np.asarray(part, np.float64) for part in parts) - rewards.v_matching(step, weights))
    assert np.all(error <= 16 * EPS * largest), np.max(error / largest) / EPS


def test_walking_straight_at_the_preferred_speed_costs_nothing_beside_the_potential() -> None:
    step = _outcome()
    best = step.traits.preferred_speed
    velocity = best[:, None] * step.towards
    step = dataclasses.replace(step, velocity=velocity, mean_square=best**2)
    weights = Weights(bmr=1.0, drag=1.0, diff_potential=1.0)
    total, _ = rewards.reward(weights, step)
    # Three terms of up to 2 x 3 J/(kg s) x 0.1 s that cancel.
    assert np.max(np.abs(total)) <= 8 * EPS * 0.6
    for factor in (0.9, 1.1):
        other = dataclasses.replace(step, velocity=factor * velocity, mean_square=(factor * best) ** 2)
        assert np.all(np.asarray(rewards.reward(weights, other)[0]) < 0)


def test_potentials_telescope() -> None:
    way = np.abs(np.cumsum(np.random.default_rng(1).normal(size=(101, AGENTS)), axis=0)).astype(np.float32) + 1
    traits = _traits(AGENTS, 5)
    total = np.zeros((2, AGENTS))
    for before, after in itertools.pairwise(way):
        step = _outcome(before=jnp.asarray(before), after=jnp.asarray(after), traits=traits)
        total += [rewards.TERMS[name](step, Weights()) for name in ("progress", "potential")]
    change = (way[0] - way[-1]).astype(np.float64)
    scale = 2 * np.sqrt(np.asarray(traits.resting, np.float64) * np.asarray(traits.walking))
    # A hundred differences, each rounded at the size of the largest distance.
    bound = float(100 * EPS * np.max(way))
    np.testing.assert_allclose(total[0], change, rtol=0, atol=bound)
    np.testing.assert_allclose(total[1], scale * change, rtol=4 * EPS, atol=4 * bound * np.max(scale))


# --- energy ------------------------------------------------------------------------------


def test_preferred_speed_and_optimum_of_an_average_person() -> None:
    assert abs(float(energy.preferred_speed(E_S, E_W)) - 1.3304) < 5e-5
    assert abs(float(energy.optimum(jnp.ones(1), _traits(1))[0]) - 3.3525) < 5e-5
    np.testing.assert_allclose(_traits(1).preferred_speed, energy.preferred_speed(E_S, E_W), rtol=EPS)
    assert (energy.RESTING, energy.WALKING) == (E_S, E_W)


def test_no_speed_is_cheaper_than_the_preferred_one() -> None:
    speeds = np.linspace(0.2, 3, 2801)
    traits = _traits(len(speeds))
    cost = np.asarray(energy.power(jnp.asarray(speeds**2, jnp.float32), traits)) / speeds  # J/(kg m)
    assert abs(speeds[np.argmin(cost)] - 1.3304) < 2e-2  # the minimum is flat: 2e-2 m/s off costs 1e-4 of it
    np.testing.assert_allclose(cost.min(), energy.optimum(jnp.ones(1), traits)[0], rtol=1e-5)


def test_both_models_agree_at_a_constant_velocity_and_slowing_down_to_the_drag_is_free() -> None:
    traits = _traits(AGENTS, 2)
    velocity = jnp.asarray(np.random.default_rng(0).uniform(-2, 2, (AGENTS, 2)), jnp.float32)
    steady = energy.dynamic_power(velocity, velocity, traits, jnp.float32(0.1))
    np.testing.assert_allclose(steady, energy.power(jnp.sum(velocity**2, -1), traits), rtol=4 * EPS)
    # Drag alone slows a body by a = -e_w v_prev: only resting remains, up to the rounding of two powers of up to 70.
    previous = velocity / (1 - traits.walking[:, None] * 0.1)
    free = energy.dynamic_power(velocity, previous, traits, jnp.float32(0.1))
    np.testing.assert_allclose(free, traits.resting, rtol=0, atol=4 * 70 * EPS)
    start = energy.dynamic_power(velocity, jnp.zeros_like(velocity), traits, jnp.float32(0.1))
    np.testing.assert_allclose(start - traits.resting, 10 * jnp.sum(velocity**2, -1), rtol=1e-5)


def test_a_body_touches_its_goal_before_its_centre_does() -> None:
    position = jnp.array([[-5.0, 0.0], [0.0, 3.0], [3.0, 4.0], [0.5, 0.0], [0.1, 0.1]])
    goals = Goals(centre=jnp.zeros((5, 2)), half=jnp.full((5, 2), 0.375))
    corner = math.hypot(3 - 0.375, 4 - 0.375)
    expected = [5 - 0.575, 3 - 0.575, corner - 0.2, 0, 0]
    np.testing.assert_allclose(energy.distance_to_touch(position, _traits(5), goals), expected, rtol=1e-6)


@pytest.mark.parametrize("time_limit", [20.0, 200 / 12])
def test_standing_pays_exactly_beyond_the_threshold(time_limit: float) -> None:
    traits = _traits(1)
    threshold = float(energy.standing_threshold(time_limit, energy.preferred_speed(E_S, E_W)))
    assert abs(threshold - time_limit * 1.33035 / 2) < 1e-3

    def cheapest(distance: float) -> float:
        """The best constant speed, 0 for standing, by trying all of them."""
        speeds = np.linspace(0, 4, 4001)
        duration = np.minimum(np.full_like(speeds, time_limit), distance / np.maximum(speeds, 1e-9))
        spent = np.asarray(energy.power(jnp.asarray(speeds**2), traits)) * duration
        return float(speeds[np.argmin(spent)])

    for share in (0.3, 0.7, 0.99):
        assert abs(cheapest(share * threshold) - 1.3304) < 2e-2
    for share in (1.01, 1.3, 3.0):
        assert cheapest(share * threshold) == 0.0


def test_the_rest_of_a_way_at_the_average_speed_so_far() -> None:
    traits = _traits(3)
    rest = energy.average_remaining(jnp.array([4.0, 8.0, 0.0]), jnp.full(3, 8.0), jnp.float32(4), traits)
    expected = [(E_S + E_W) * 4, (E_S + E_W * 0.01) * 8 / 0.1, 0.0]
    np.testing.assert_allclose(rest, expected, rtol=4 * EPS)


# --- presets -------------------------------------------------------------------------------


def test_the_two_presets_are_the_papers() -> None:
    old, new = presets.preset("2022"), presets.preset("2023")
    columns = {
        "dt": (1 / 120, 0.01),
        "turn_rate": (math.radians(1), math.radians(3)),
        "max_speed": (2.0, 4.0),
        "max_acceleration": (5.0, 5.0),
        "backwards": (False, True),
        "energy_from": ("commanded", "moved"),
        "size_mass": ((1.0, 1.0), (0.5, 1.5)),
        "resting": ((2.23, 2.23), (1.5, 3.0)),
        "walking": ((1.26, 1.26), (1.0, 1.5)),
        "num_neighbours": (10, 20),
        "extended": (False, True),
        "circle_radius": (6.0, 7.0),
        "circle_noise": (0.5, 1.5),
        "circle_obstacles": (False, True),
        "ray_length": (4.0, 10.0),  # 10 m, times the bodies' scale of 0.4 in 2022
        "wall_ray_length": (16.0, 40.0),  # 40 m likewise
        "weights": (
            rewards.Weights(progress=1.0, speed=0.75, time=-0.005, goal=10.0, collision=-0.05),
            rewards.Weights(potential=1.0, goal=10.0, bmr=1.0, drag=1.0, collision=-0.05),
        ),
    }
    assert set(columns) == {field.name for field in dataclasses.fields(presets.Preset)}
    for name, column in columns.items():
        assert (getattr(old, name), getattr(new, name)) == column, name


def test_the_rewards_of_2023_are_the_papers() -> None:
    """Rewards 0 to 9: with or without a first stage that teaches to walk; then the weights that are not 0."""
    first = {"potential": 1, "speeding": 10, "goal": 10, "collision": -0.05}
    energy = {"potential": 1, "goal": 10, "bmr": 1, "dynamics": 1, "collision": -0.05}
    drag = {"potential": 1, "goal": 10, "bmr": 1, "drag": 1, "collision": -0.05}
    after_first = {
        "base": energy | {"avg_final": 1},
        "base-optimal": energy | {"final": 1},
        "base-no-final": energy,
        "base-drag": drag | {"avg_final": 1},
    }
    always = {
        "energy-dynamics": energy,
        "energy-drag": drag,
        "energy-no-potential": drag | {"potential": 0},
        "velocity-matching": {"goal": 10, "exp_v_matching": 10, "sigma": 0.85, "collision": -0.2},
        "speed-matching": {"potential": 1, "s_matching": 10, "matching_exponent": 2, "goal": 10, "collision": -0.2},
        "speeding": {"potential": 1, "speeding": 10, "matching_exponent": 1, "goal": 10, "collision": -0.2},
    }
    for name, weights in after_first.items():
        actual = presets.REWARDS[name]
        assert (actual.weights, actual.later_weights) == (Weights(**first), Weights(**weights)), name
        assert actual.weights.matching_exponent == 2 and actual.switch_env_steps == 199 * 400, name
    for name, weights in always.items():
        actual = presets.REWARDS[name]
        assert actual.weights == actual.later_weights == Weights(**weights), name
        assert actual.switch_env_steps == math.inf, name


def test_unknown_presets_and_rewards_are_reported_with_near_matches() -> None:
    with pytest.raises(ValueError, match=r"preset is '2032'; did you mean '202[23]'"):
        presets.preset("2032")
    with pytest.raises(ValueError, match="reward is 'pure-enegy'; did you mean 'pure-energy'"):
        presets.reward_variant("pure-enegy")


# --- flows and densities -------------------------------------------------------------------


@pytest.mark.slow
def test_flow_counts_crossings_of_the_line_with_their_direction() -> None:
    # One crosses upwards, one downwards, one next to the line, one is not walking, one stops on it.
    path = np.array(
        [
            [[1, -1], [2, 1], [9, -1], [1, -1], [3, -1]],
            [[1, 1], [2, -1], [9, 1], [1, 1], [3, 0]],
            [[1, 2], [2, -2], [9, 2], [1, 2], [3, 1]],
        ],
        np.float32,
    )
    walking = jnp.asarray([[True, True, True, False, True]] * 3)
    crossing = measures.flow(jnp.asarray(path), walking, (0, 0), (5, 0), 0.5)
    np.testing.assert_allclose(crossing, [(1 - 1 + 1) / 0.5, 0.0])
    np.testing.assert_allclose(measures.flow(jnp.asarray(path), walking, (5, 0), (0, 0), 0.5).sum(), -2.0)


@pytest.mark.slow
def test_density_speed_and_flow_of_a_steady_stream() -> None:
    # People 0.8 m apart at 1.2 m/s through a rectangle of 4 x 2 m, endlessly.
    moments = np.arange(40) * 0.1
    place = (np.arange(50)[None] * 0.8 + 1.2 * moments[:, None]) % 40.0
    position = jnp.asarray(np.stack([place - 20, np.full_like(place, 0.5)], -1), jnp.float32)
    velocity = jnp.broadcast_to(jnp.array([1.2, 0.0]), position.shape)
    walking = jnp.ones(position.shape[:2], bool)
    inside = ((position[..., 0] >= 0) & (position[..., 0] < 4)).sum(-1) / 8
    np.testing.assert_allclose(measures.density(position, walking, (0, 0), (4, 2)), inside)
    diagram = measures.fundamental_diagram(position, velocity, walking, (0, 0), (4, 2), num_bins=5, largest=2.0)
    count = np.asarray(diagram.count)
    assert count.sum() == 40 and count[1] == 40  # 5 of them in 8 m^2 at any time: 0.625 per m^2
    np.testing.assert_allclose(diagram.speed[1], 1.2, rtol=1e-5)
    np.testing.assert_allclose(diagram.flow[1], 1.2 * inside.mean(), rtol=1e-5)
    assert np.all(np.isnan(np.asarray(diagram.speed)[count == 0]))


@pytest.mark.slow
def test_local_density_and_the_nearest_two() -> None:
    generator = np.random.default_rng(0)
    position = generator.uniform(-4, 4, (40, 2)).astype(np.float32)
    walking = generator.random(40) < 0.8
    gaps = np.linalg.norm(position[:, None] - position[None], axis=-1)
    both = walking[:, None] & walking[None]
    around = np.where(walking, ((gaps <= 1) & both).sum(1), 0) / np.pi
    np.testing.assert_allclose(measures.local_density(jnp.asarray(position), jnp.asarray(walking)), around, rtol=1e-6)
    np.fill_diagonal(both, False)
    alone = jnp.arange(40) == 3
    for search in ("all-pairs", "cells"):
        actual = measures.nearest(jnp.asarray(position), jnp.asarray(walking), search)
        np.testing.assert_allclose(actual, gaps[both].min(), rtol=1e-4)
        assert float(measures.nearest(jnp.asarray(position), alone, search)) == measures.APART


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 80.0, 2000.0])
def test_empty_places_are_no_neighbours(scale: float) -> None:
    """From 200 places on, lists are used; empty places have no effect on the distances in them."""
    position = jnp.asarray(np.random.default_rng(0).uniform(-scale, scale, (40, 2)), jnp.float32)
    places = jnp.concatenate([position, jnp.zeros((260, 2))])
    exact = measures.nearest(position, jnp.ones(40, bool))
    actual = measures.nearest(places, jnp.arange(300) < 40)
    np.testing.assert_allclose(actual, exact, rtol=1e-6)
    assert (float(exact) > 1) == (scale > 1) and exact <= measures.APART
