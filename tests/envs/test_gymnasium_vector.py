"""The vector form: compared with Gymnasium's vectors of single ones, in all autoreset modes, and in a training loop."""

import pickle
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs.adapters.outgoing.gymnasium import as_gymnasium, as_gymnasium_vector, register
from envs.adapters.outgoing.packing import Layout, pack
from envs.base import spaces

MODES = ("NextStep", "SameStep", "Disabled")
# Episodes of a few steps, so that all kinds of ends happen; with masks, metrics, several numbers in an action.
SHORT = {
    "cartpole": 7,
    "pendulum": 3,
    "random-dilemmas": 5,
    "bandit/sleeping": 4,
    "bandit/restless": 3,
    "bandit/delayed": 4,
    "bandit/dueling": 3,
    "probe/action-dependent": 100,
}


def short(name: str) -> tuple[Any, Any]:
    env = envs.make(name)
    return env, env.default_params.replace(max_steps_in_episode=SHORT[name])


def sync(name: str, num_envs: int, mode: str) -> SyncVectorEnv:
    """Gymnasium's own vector form of our single ones."""
    return SyncVectorEnv([lambda: as_gymnasium(*short(name)) for _ in range(num_envs)], autoreset_mode=mode)


def without_types(value: Any) -> Any:
    """Values as float64: Gymnasium collects integers and floats in wide types, the adapter in narrow ones."""
    if isinstance(value, dict):
        return {name: without_types(leaf) for name, leaf in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [None if leaf is None else jax.tree.map(lambda part: np.asarray(part, float), leaf) for leaf in value]
    return np.asarray(value, np.float64)


QUICK = {
    ("cartpole", "NextStep"),
    ("random-dilemmas", "SameStep"),
    ("random-dilemmas", "Disabled"),
    ("bandit/dueling", "SameStep"),
}


@pytest.mark.fast_rows("random-dilemmas-Disabled")
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=() if (name, mode) in QUICK else pytest.mark.slow)
        for name in SHORT
        for mode in MODES
    ],
)
def test_it_is_gymnasiums_own_vector_of_single_ones(name: str, mode: str) -> None:
    num_envs = 3
    adapted = as_gymnasium_vector(short(name)[0], num_envs, short(name)[1], autoreset_mode=mode)
    reference = sync(name, num_envs, mode)
    assert adapted.metadata["autoreset_mode"] is reference.metadata["autoreset_mode"] is AutoresetMode(mode)
    assert adapted.action_space == reference.action_space and adapted.observation_space == reference.observation_space
    adapted.action_space.seed(0)

    def same(a: Any, b: Any) -> None:
        assert data_equivalence(without_types(a), without_types(b)), (a, b)

    same_reset = [one.reset(seed=11) for one in (adapted, reference)]
    same(same_reset[0][0], same_reset[1][0])
    same(same_reset[0][1], same_reset[1][1])
    for step in range(16):
        action = adapted.action_space.sample()
        reported, expected = adapted.step(action), reference.step(action)
        for part, expected_part in zip(reported, expected, strict=True):
            same(part, expected_part)
        assert reported[0] in adapted.observation_space and all(flags.dtype == bool for flags in reported[2:4])
        ended = reported[2] | reported[3]
        if mode == "Disabled" and ended.any():
            seed = 40 if step % 2 else None
            for part, expected_part in zip(
                adapted.reset(seed=seed, options={"reset_mask": ended.copy()}),
                reference.reset(seed=seed, options={"reset_mask": ended.copy()}),
                strict=True,
            ):
                same(part, expected_part)
    for part, expected_part in zip(adapted.reset(), reference.reset(), strict=True):
        same(part, expected_part)
    for part, expected_part in zip(adapted.reset(seed=[5, 3, 5]), reference.reset(seed=[5, 3, 5]), strict=True):
        same(part, expected_part)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", pytest.param("Disabled", marks=pytest.mark.slow)])
def test_device_arrays_are_the_same_numbers(mode: str) -> None:
    env, params = short("random-dilemmas")
    host, device = (
        as_gymnasium_vector(env, 4, params, autoreset_mode=mode, device_arrays=there) for there in (False, True)
    )
    (obs, info), (there, reported) = host.reset(seed=1), device.reset(seed=1)
    assert isinstance(there, jax.Array) and np.array_equal(obs, there)
    assert np.array_equal(info["action_mask"], reported["action_mask"])
    for _ in range(12):
        action = np.argmax(info["action_mask"], axis=-1)
        a, b = host.step(action), device.step(jnp.asarray(action))
        assert all(isinstance(leaf, jax.Array) for leaf in b[:4])
        for host_part, device_part in zip(a[:4], b[:4], strict=True):
            assert np.array_equal(host_part, device_part)
        info, reported = a[4], b[4]
        if "metrics" in info:  # empty, because all were reset
            assert np.array_equal(info["metrics"]["chosen_delay"], reported["metrics"]["chosen_delay"])
        ended = a[2] | a[3]
        if mode == "SameStep":
            assert np.array_equal(reported["_final_obs"], ended) and reported["final_obs"].shape == a[0].shape
            for i in np.flatnonzero(ended):
                assert np.array_equal(info["final_obs"][i], reported["final_obs"][i])
        if mode == "Disabled" and ended.any():
            (obs, info), (there, reported) = (one.reset(options={"reset_mask": ended}) for one in (host, device))
            assert np.array_equal(obs, there)
            info["action_mask"] = np.where(ended[:, None], info["action_mask"], a[4]["action_mask"])


GAMMA = 0.9
WEIGHTS = np.array([0.3, -1.0, 2.0, 0.7])


def value(obs: np.ndarray) -> np.ndarray:
    return 1 + np.asarray(obs, np.float64) @ WEIGHTS


def policy(taken: np.ndarray) -> np.ndarray:
    """Actions by the number of steps that an environment has taken, so that all modes do the same."""
    return ((taken * 5 + 2 * np.arange(len(taken))) // 3) % 2


def targets(mode: str, num_envs: int, num_steps: int) -> list[list[float]]:
    """The loop of a trainer as CleanRL writes it: the one-step targets of every environment, in order."""
    env, params = short("cartpole")
    many = as_gymnasium_vector(env, num_envs, params, autoreset_mode=mode)
    collected: list[list[float]] = [[] for _ in range(num_envs)]
    many.reset(seed=0)
    taken, over = np.zeros(num_envs, int), np.zeros(num_envs, bool)
    for _ in range(num_steps):
        next_obs, reward, terminated, truncated, infos = many.step(policy(taken))
        valid = ~over if mode == "NextStep" else np.ones(num_envs, bool)  # a reset is not a transition
        real_next_obs = next_obs.copy()
        if mode == "SameStep":
            for i in np.flatnonzero(terminated | truncated):
                assert infos["_final_obs"][i]
                real_next_obs[i] = infos["final_obs"][i]
        target = reward + GAMMA * value(real_next_obs) * ~terminated
        for i in np.flatnonzero(valid):
            collected[i].append(float(target[i]))
        taken += valid
        over = terminated | truncated
        if mode == "Disabled" and over.any():
            many.reset(options={"reset_mask": over})
    return collected


def native_targets(num_envs: int, num_steps: int) -> list[list[float]]:
    """The same targets from the environment itself, with explicit resets."""
    env, params = short("cartpole")
    reset, step = jax.jit(env.reset_env), jax.jit(env.step_env)
    collected, ends = [], 0
    for i in range(num_envs):
        reset_key, step_key = jax.random.split(jax.random.key(i))
        _, state = reset(jax.random.fold_in(reset_key, 0), params)
        resets, reported = 1, []
        for t in range(num_steps):
            action = jnp.asarray(policy(np.full(num_envs, t))[i])
            obs, state, reward, terminated, _ = step(jax.random.fold_in(step_key, t), state, action, params)
            reported.append(float(reward + GAMMA * value(np.asarray(obs)) * (not terminated)))
            if terminated or env.is_truncated(state, params):
                _, state = reset(jax.random.fold_in(reset_key, resets), params)
                resets, ends = resets + 1, ends + 1
        collected.append(reported)
    assert ends > 10
    return collected


@pytest.mark.slow
def test_a_trainer_bootstraps_from_the_final_observation_in_every_mode() -> None:
    num_envs, num_steps = 4, 40
    expected = native_targets(num_envs, num_steps)
    for mode in MODES:
        for collected, native in zip(targets(mode, num_envs, num_steps), expected, strict=True):
            assert len(collected) >= 0.8 * num_steps
            # Float32 of numbers about 1, through 7 steps compiled in two ways.
            np.testing.assert_allclose(collected, native[: len(collected)], rtol=0, atol=1e-4)


def test_gymnasiums_vector_wrappers_accept_the_environment() -> None:
    register()
    many = gymnasium.make_vec("jaxrl/DelayedChoice-v0", num_envs=3, max_episode_steps=6)
    assert many.spec is not None and many.spec.id == "jaxrl/DelayedChoice-v0" and many.num_envs == 3
    many = gymnasium.wrappers.vector.RecordEpisodeStatistics(many)
    many = gymnasium.wrappers.vector.NormalizeReward(many)
    many = gymnasium.wrappers.vector.DictInfoToList(many)
    _, infos = many.reset(seed=0)
    assert [list(info) for info in infos] == [["action_mask"]] * 3
    for _ in range(6):
        *_, truncated, infos = many.step(np.zeros(3, np.int64))
    assert truncated.all() and [int(info["episode"]["l"]) for info in infos] == [6] * 3
    assert infos[0]["metrics"]["chose_first"] == 0.0


def test_every_environment_has_its_picture() -> None:
    many = as_gymnasium_vector(envs.make("pendulum"), 2, render_mode="rgb_array")
    many.reset(seed=0)
    one = as_gymnasium(envs.make("pendulum"), render_mode="rgb_array")
    one.reset(seed=1)
    frames = many.render()
    assert frames is not None and len(frames) == 2
    np.testing.assert_array_equal(frames[1], one.render())


def test_equal_environments_share_their_programs() -> None:
    first, second = (as_gymnasium_vector(envs.make("cartpole"), 5) for _ in range(2))
    assert first._programs is second._programs
    heavier = envs.make("cartpole").default_params.replace(gravity=12.0)
    assert as_gymnasium_vector(envs.make("cartpole"), 5, heavier)._programs is not first._programs


@pytest.mark.slow
def test_bad_input_gets_one_sentence() -> None:
    env, params = short("cartpole")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"num_envs": 0}, "num_envs is 0; it takes a whole number of at least 1"),
        ({"autoreset_mode": "Never"}, "autoreset_mode is 'Never'; it takes 'NextStep', 'SameStep', 'Disabled'"),
        ({"params": params.replace(max_steps_in_episode=0)}, "max_steps_in_episode is 0; as_gymnasium_vector takes a"),
        ({"render_mode": "human"}, "of many environments it takes None or 'rgb_array'"),
        ({"env": envs.make("crowd/circle")}, "crowd/circle has 12 agents.* as_pettingzoo"),
    ]
    for change, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            as_gymnasium_vector(**({"env": env, "num_envs": 2} | change))
    many = as_gymnasium_vector(env, 2, params.replace(max_steps_in_episode=1), autoreset_mode="Disabled")
    with pytest.raises(gymnasium.error.ResetNeeded, match="step was called before reset"):
        many.step(np.zeros(2, int))
    with pytest.raises(gymnasium.error.ResetNeeded, match="the first reset takes all environments"):
        many.reset(options={"reset_mask": np.array([True, False])})
    many.reset(seed=0)
    with pytest.raises(ValueError, match=r"action has the shape \(3,\); it takes \(2,\)"):
        many.step(np.zeros(3, int))
    with pytest.raises(ValueError, match="action is 7; it takes a choice"):
        many.step(np.array([0, 7]))
    with pytest.raises(ValueError, match="seed has 3 numbers; it takes one, or one for each of 2"):
        many.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match=r"reset_mask'\] is .*; it takes bool \[2\]"):
        many.reset(options={"reset_mask": np.zeros(2, bool)})
    many.step(np.zeros(2, int))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"episodes of environments \[0, 1\] had ended"):
        many.step(np.zeros(2, int))


@pytest.mark.slow
def test_infos_are_listed_by_environment() -> None:
    many = gymnasium.wrappers.vector.DictInfoToList(as_gymnasium_vector(envs.make("bandit/delayed"), 2))
    many.reset(seed=0)
    infos: Any = many.step(many.action_space.sample())[4]
    assert [len(info["arrivals"]) for info in infos] == [3, 3]


@pytest.mark.slow
def test_seeds_may_be_missing_or_large() -> None:
    """A seed of None is drawn at random, and a seed of more than 32 bits is hashed to another one."""
    many = as_gymnasium_vector(envs.make("cartpole"), 2)
    starts = [many.reset(seed=[7, None])[0] for _ in range(2)]
    assert np.array_equal(starts[0][0], starts[1][0])
    single = as_gymnasium(envs.make("cartpole"))
    small, large = (single.reset(seed=seed)[0] for seed in (1, 2**32 + 1))
    assert not np.array_equal(small, large)
    np.testing.assert_array_equal(single.reset(seed=2**32 + 1)[0], large)
    np.testing.assert_array_equal(many.reset(seed=[1, 2**32 + 1])[0], [small, large])


@pytest.mark.slow
def test_it_goes_to_other_processes_in_the_midst_of_an_episode() -> None:
    many = as_gymnasium_vector(envs.make("cartpole"), 3)
    many.reset(seed=0)
    many.step(np.ones(3, int))
    twin = pickle.loads(pickle.dumps(many))
    for one in (many, twin):
        one.action_space.seed(0)
    for _ in range(30):
        action = many.action_space.sample()
        for part, twin_part in zip(many.step(action)[:4], twin.step(action)[:4], strict=True):
            np.testing.assert_array_equal(part, twin_part)


def test_packing_keeps_every_bit() -> None:
    tree = {
        "float": jnp.array([[1.5, -0.0, jnp.nan], [jnp.inf, 1e-45, 2.0]], jnp.float32),
        "bool": jnp.array([True, False, True]),
        "byte": jnp.arange(250, 255, dtype=jnp.uint8),
        "half": jnp.arange(3, dtype=jnp.float16),
        "whole": jnp.int32(-7),
        "key": jax.random.split(jax.random.key(3), 2),
        "none": None,
        "empty": jnp.zeros((2, 0)),
    }
    layout = Layout.of(tree)
    buffer = jax.jit(pack)(tree)
    assert buffer.dtype == jnp.uint32
    bits = lambda leaf: np.asarray(jax.random.key_data(leaf) if leaf.dtype == tree["key"].dtype else leaf).tobytes()  # noqa: E731
    back, host = jax.jit(layout.unpack)(buffer), layout.view(np.array(buffer))
    for (path, leaf), unpacked, viewed in zip(
        jax.tree.leaves_with_path(tree), jax.tree.leaves(back), jax.tree.leaves(host), strict=True
    ):
        assert unpacked.dtype == leaf.dtype and unpacked.shape == leaf.shape and bits(unpacked) == bits(leaf), path
        assert viewed.tobytes() == bits(leaf), path


@pytest.mark.slow
def test_spaces_with_parts_are_batched_part_by_part() -> None:
    many = as_gymnasium_vector(envs.wrappers.time_feature(envs.make("gymnax/Catch-bsuite")), 2)
    obs, _ = many.reset(seed=0)
    assert isinstance(many.env.observation_space(many.params), spaces.Dict)
    assert obs in many.observation_space and obs["remaining_time"].shape == (2, 1)
