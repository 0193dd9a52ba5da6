"""Jumanji's environments under the contract."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jumanji.environments.packing.knapsack.generator import RandomGenerator
from jumanji.environments.packing.knapsack.reward import SparseReward
from jumanji.registration import make, registered_environments
from native_suites import STEPS, Native, allowed_actions, assert_parity, random_actions

import envs
import jaxrl
from envs.adapters.incoming.jumanji import REFUSED
from jaxrl.algorithms.registry import build, describe

# Tasks with a time limit, and tasks that end by themselves.
LIMITS = {
    "Cleaner-v0": 100,
    "MMST-v0": 70,
    "Maze-v0": 100,
    "PacMan-v1": 1000,
    "RobotWarehouse-v0": 500,
    "RubiksCube-partly-scrambled-v0": 20,
    "RubiksCube-v0": 200,
    "SlidingTilePuzzle-v0": 500,
    "Snake-v1": 4000,
    "Tetris-v0": 400,
}
UNLIMITED = {
    "BinPack-v2": 20,
    "CVRP-v1": 40,
    "FlatPack-v0": 25,
    "Game2048-v1": 10_000,
    "GraphColoring-v1": 20,
    "JobShop-v0": 961,
    "Knapsack-v1": 50,
    "Minesweeper-v0": 90,
    "Sudoku-v0": 81,
    "Sudoku-very-easy-v0": 81,
    "TSP-v1": 20,
}
# Numbers of choices of actions whose masks are joint.
JOINT = {
    "BinPack-v2": (40, 20),
    "FlatPack-v0": (25, 4, 9, 9),
    "Minesweeper-v0": (10, 10),
    "Sudoku-v0": (9, 9, 9),
    "Sudoku-very-easy-v0": (9, 9, 9),
    "Tetris-v0": (4, 10),
}
TASKS = (*LIMITS, *UNLIMITED)
ILLEGAL = ("BinPack-v2", "Cleaner-v0", "JobShop-v0", "Knapsack-v1", "Maze-v0", "Snake-v1", "Sudoku-v0", "Tetris-v0")


def entries(obs: Any) -> Any:
    """Nested dictionaries of an observation of Jumanji, without its mask."""
    if hasattr(obs, "_fields") or hasattr(obs, "__dataclass_fields__"):
        names = getattr(obs, "_fields", None) or obs.__dataclass_fields__
        return {name: entries(getattr(obs, name)) for name in names if name != "action_mask"}
    return obs


def native(task: Any, counts: tuple[int, ...] | None = None) -> Native:
    """A task by Jumanji's own functions, whose time limit ends an episode if it is reached."""

    def step(key: jax.Array, state: Any, action: Any) -> Any:
        del key
        state, timestep = task.step(state, action if counts is None else jnp.stack(jnp.unravel_index(action, counts)))
        limited = state.step_count >= task.time_limit if hasattr(task, "time_limit") else jnp.array(False)
        return entries(timestep.observation), state, timestep.reward, timestep.last() & ~limited, limited

    def reset(key: jax.Array) -> Any:
        state, timestep = jax.tree.map(jnp.asarray, task.reset(key))  # PacMan has numbers of Python
        return entries(timestep.observation), state

    return Native(reset, step)


def played(env: Any, key: jax.Array, actions: Any) -> Any:
    """Observations before resets, rewards, both flags and masks of an episode of these actions."""
    params = env.default_params

    def body(state: Any, action: Any) -> Any:
        obs, state, reward, terminated, info = env.step_env(key, state, action, params)
        return state, (obs, reward, terminated, env.is_truncated(state, params), info)

    return jax.lax.scan(body, env.reset_env(key, params)[1], jnp.asarray(actions))[1]


def test_every_task_is_there_or_left_out_with_a_reason():
    assert {*TASKS, *REFUSED} == registered_environments()
    assert set(envs.names("jumanji")) == {f"jumanji/{task}" for task in TASKS}
    with pytest.raises(ValueError, match=r"^jumanji/Connector-v3 is left out, as it rewards each of its agents\.$"):
        envs.make("jumanji/Connector-v3")


# Of BinPack's own step, which the adapter silences.
SCATTERS = "ignore:scatter inputs have incompatible types:FutureWarning"


@pytest.mark.filterwarnings(SCATTERS)
@pytest.mark.fast_rows("Game2048-v1")
@pytest.mark.parametrize("env_id", TASKS)
def test_500_legal_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    env: Any = envs.make(f"jumanji/{env_id}")
    limit = (LIMITS | UNLIMITED)[env_id]
    assert env.default_params.max_steps_in_episode == limit
    actions = jax.jit(lambda key: allowed_actions(env, key))(key)
    ours = assert_parity(env, native(make(env_id), JOINT.get(env_id)), key, actions=actions)
    assert np.any(ours.truncated | ours.terminated) or limit >= STEPS
    assert not np.any(ours.truncated & ~ours.terminated) or env_id in LIMITS


@pytest.mark.filterwarnings(SCATTERS)
@pytest.mark.slow
@pytest.mark.parametrize("env_id", ILLEGAL)
def test_random_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    """Of which many are illegal."""
    env: Any = envs.make(f"jumanji/{env_id}")
    actions = random_actions(env, key)
    ours = assert_parity(env, native(make(env_id), JOINT.get(env_id)), key, actions=actions)
    assert np.any(ours.terminated) or env_id == "Maze-v0"


@pytest.mark.fast_rows("Game2048-v1")
@pytest.mark.parametrize("env_id", [task for task in TASKS if task not in ("Sudoku-very-easy-v0", "RubiksCube-v0")])
def test_it_keeps_the_laws(env_id: str):
    envs.check(envs.make(f"jumanji/{env_id}"))


def test_a_wall_terminates_and_the_limit_truncates(key: jax.Array):
    """A snake that moves up in 12 rows is out after at most 12 steps; one that turns in a square of 2 x 2 lives on."""
    env: Any = envs.make("jumanji/Snake-v1", time_limit=40)
    task: Any = make("Snake-v1")
    state, _ = task.reset(key)
    row = int(state.head_position.row)
    obs, _, terminated, truncated, _ = played(env, key, [0] * (row + 1))
    np.testing.assert_array_equal(terminated, [False] * row + [True])
    assert not np.any(truncated)
    for _ in range(row + 1):
        state, timestep = task.step(state, jnp.array(0))
    np.testing.assert_array_equal(obs["grid"][-1], timestep.observation.grid)
    params = env.default_params.replace(max_steps_in_episode=row + 1)
    assert _last(env, params, key, [0] * (row + 1))[3]  # a termination at the limit

    square = [1, 2, 3, 0] if state.head_position.col < 11 and row < 11 else [3, 0, 1, 2]
    obs, _, terminated, truncated, _ = played(env, key, square * 10)
    assert not np.any(terminated)
    np.testing.assert_array_equal(truncated, [False] * 39 + [True])
    assert int(obs["step_count"][-1]) == 40
    obs, _, _, terminated, truncated, info = _last(env, env.default_params, key, square * 10)
    assert (terminated, truncated) == (False, True)
    assert int(info["final_observation"]["step_count"]) == 40 and int(obs["step_count"]) == 0


def _last(env: Any, params: Any, key: jax.Array, actions: list[int]) -> Any:
    """The result of the last of these actions, with an automatic reset."""
    _, state = env.reset(key, params)
    result: Any = None
    for action in actions:
        result = jax.jit(env.step)(key, state, action, params)
        state = result[1]
    return (*result[:3], bool(result[3]), bool(result[4]), result[5])


def test_the_time_limit_may_be_longer_than_the_suites(key: jax.Array):
    env: Any = envs.make("jumanji/RubiksCube-partly-scrambled-v0")
    params = env.default_params.replace(max_steps_in_episode=50)
    assert env.default_params.max_steps_in_episode == 20
    _, state = env.reset_env(key, params)

    def body(state: Any, action: Any) -> Any:
        _, state, _, terminated, _ = env.step_env(key, state, action, params)
        return state, (terminated, env.is_truncated(state, params))

    terminated, truncated = jax.lax.scan(body, state, jnp.zeros((50, 3), jnp.int32))[1]
    np.testing.assert_array_equal(truncated, [False] * 49 + [True])
    assert not np.any(terminated)


def test_a_joint_mask_is_one_choice_of_all_combinations(key: jax.Array):
    env: Any = envs.make("jumanji/Minesweeper-v0")
    task: Any = make("Minesweeper-v0")
    params = env.default_params
    assert env.action_space(params).n == 100
    _, state = env.reset_env(key, params)
    own, _ = task.reset(key)
    safe = next(i for i in range(100) if i not in np.asarray(own.flat_mine_locations))
    obs, state, reward, terminated, _ = env.step_env(key, state, safe, params)
    assert not bool(terminated) and float(reward) == 1
    board = np.asarray(obs["board"])
    assert board[safe // 10, safe % 10] >= 0 and (board >= 0).sum() == 1
    np.testing.assert_array_equal(env.action_mask(state, params), np.arange(100) != safe)


def test_masks_of_each_number_are_exact(key: jax.Array):
    """In JobShop, a schedule ends early exactly if a machine gets a job that its mask forbids."""
    env: Any = envs.make("jumanji/JobShop-v0", num_jobs=3, num_machines=2, max_num_ops=2, max_op_duration=2)
    params = env.default_params
    assert params.max_steps_in_episode == 3 * 2 * 2 + 1
    _, state = env.reset_env(key, params)
    masks = env.action_mask(state, params)
    assert [mask.shape for mask in masks] == [(4,), (4,)]
    invalid = -3 * 2 * 2
    for action in np.ndindex(4, 4):
        _, _, reward, terminated, _ = env.step_env(key, state, jnp.asarray(action), params)
        legal = all(bool(mask[choice]) for mask, choice in zip(masks, action, strict=True))
        idle = action == (3, 3)
        assert bool(terminated) == (not legal or idle) and float(reward) == (-1 if legal and not idle else invalid)


def test_where_nothing_is_allowed_everything_is(key: jax.Array):
    env: Any = envs.make("jumanji/Game2048-v1")
    _, state = env.reset_env(key, env.default_params)
    held = state.inner._replace(mask=jnp.zeros(4, bool))
    np.testing.assert_array_equal(env.action_mask(state.replace(inner=held), env.default_params), [True] * 4)
    mask = env.action_mask(state, env.default_params)
    np.testing.assert_array_equal(mask, state.inner.state.action_mask)
    assert env.reset_env(key, env.default_params)[0].keys() == {"board"}


def test_metrics_are_the_suites_extras(key: jax.Array):
    env: Any = envs.make("jumanji/Game2048-v1")
    assert env.metric_rules == {"highest_tile": "last"}
    obs, *_, info = played(env, key, [0, 1, 2, 3] * 5)
    np.testing.assert_array_equal(info["metrics"]["highest_tile"], 2.0 ** np.max(obs["board"], axis=(1, 2)))


def test_static_fields_are_numbers_of_the_task_and_of_its_generator(key: jax.Array):
    env: Any = envs.make("jumanji/TSP-v1", num_cities=7)
    obs = env.reset_env(key, env.default_params)[0]
    assert obs["coordinates"].shape == (7, 2) and env.default_params.max_steps_in_episode == 7
    assert env == envs.make("jumanji/TSP-v1", num_cities=7) == copy.deepcopy(env)
    assert hash(env) == hash(envs.make("jumanji/TSP-v1", num_cities=7)) and env != envs.make("jumanji/TSP-v1")
    spec = describe(jaxrl.ppo(env))
    assert spec["environment"] == {"name": "jumanji/TSP-v1", "static": {"num_cities": 7}}
    assert build(spec).env == env


def test_rewards_are_chosen_by_name(key: jax.Array):
    env: Any = envs.make("jumanji/Knapsack-v1", reward_fn="SparseReward", num_items=10)
    own = make("Knapsack-v1", generator=RandomGenerator(10, 12.5), reward_fn=SparseReward())
    actions = jax.jit(lambda key: allowed_actions(env, key, 50))(key)
    ours = assert_parity(env, native(own), key, actions=actions)
    assert np.all((np.asarray(ours.reward) > 0) == ours.terminated)
    assert env.return_range(env.default_params) is None
    assert envs.make("jumanji/Knapsack-v1").return_range(None) == (0, 50)


def test_numbers_are_traced(key: jax.Array):
    colours: Any = envs.make("jumanji/GraphColoring-v1")
    knapsack: Any = envs.make("jumanji/Knapsack-v1")
    cleaner: Any = envs.make("jumanji/Cleaner-v0")
    assert colours.default_params.edge_probability == 0.8 and knapsack.default_params.total_budget == 12.5

    def edges(probability: Any) -> Any:
        params = colours.default_params.replace(edge_probability=probability)
        return jnp.sum(colours.reset_env(key, params)[0]["adj_matrix"])

    def allowed(budget: Any) -> Any:
        params = knapsack.default_params.replace(total_budget=budget)
        return jnp.sum(knapsack.action_mask(knapsack.reset_env(key, params)[1], params))

    def reward(penalty: Any) -> Any:
        params = cleaner.default_params.replace(penalty_per_timestep=penalty)
        return cleaner.step_env(key, cleaner.reset_env(key, params)[1], jnp.array([1, 1, 1]), params)[2]

    np.testing.assert_array_equal(jax.vmap(edges)(jnp.array([0.0, 1.0])), [0, 20 * 19])
    few, all_of_them = jax.vmap(allowed)(jnp.array([0.2, 12.5]))
    assert 0 < int(few) < 25 and int(all_of_them) == 50
    first, second = jax.vmap(reward)(jnp.array([0.5, 0.25]))
    assert float(second) - float(first) == 0.25


@pytest.mark.slow
def test_a_maze_is_solved_within_its_number_of_cells(key: jax.Array):
    """The ways by a search in NumPy, of which the optimum requires that none is longer."""
    env: Any = envs.make("jumanji/Maze-v0")
    params = env.default_params
    assert env.optimum(params) == 1 and env.optimum(params.replace(max_steps_in_episode=98)) is None
    obs, _ = jax.jit(jax.vmap(env.reset_env, (0, None)))(jax.random.split(key, 200), params)
    place = {name: np.stack([obs[name]["row"], obs[name]["col"]], 1) for name in ("agent_position", "target_position")}
    for walls, start, target in zip(np.asarray(obs["walls"]), *place.values(), strict=True):
        distance = {tuple(start): 0}
        for cell in distance_order(distance, walls):
            if cell == tuple(target):
                break
        assert 0 < distance[tuple(target)] <= 99


def distance_order(distance: dict[Any, int], walls: np.ndarray) -> Any:
    """Cells of a maze in the order of their distances, which are added to `distance`."""
    waiting = list(distance)
    for row, col in waiting:
        yield row, col
        for cell in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
            if min(cell) >= 0 and max(cell) < 10 and not walls[cell] and cell not in distance:
                distance[cell] = distance[row, col] + 1
                waiting.append(cell)


def test_a_cube_is_solved_within_20_turns():
    env: Any = envs.make("jumanji/RubiksCube-partly-scrambled-v0")
    assert env.optimum() == 1 and env.return_range(env.default_params) == (0, 1)
    assert env.optimum(env.default_params.replace(max_steps_in_episode=19)) is None
    assert env.optimum(discount=0.9) is None
    with pytest.raises(ValueError, match=r"^env\.max_steps_in_episode must be a whole number, got 30\.5$"):
        env.optimum(env.default_params.replace(max_steps_in_episode=30.5))
    assert envs.make("jumanji/RubiksCube-v0", cube_size=2).optimum() is None


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'jumanji/Game2048'; did you mean"):
        envs.make("jumanji/Game2048")
    with pytest.raises(ValueError, match="has no static field 'num_city'; did you mean 'num_cities'"):
        envs.make("jumanji/TSP-v1", num_city=5)
    with pytest.raises(ValueError, match=r"reward_fn='Sparse': reward_fn takes 'DenseReward' or 'SparseReward'$"):
        envs.make("jumanji/TSP-v1", reward_fn="Sparse")
    with pytest.raises(ValueError, match=r"^jumanji/Tetris-v0 cannot be made with num_rows=2: "):
        envs.make("jumanji/Tetris-v0", num_rows=2)
    with pytest.raises(ValueError, match=r"^time_limit must be a whole number of at least 1, got 0"):
        envs.make("jumanji/Snake-v1", time_limit=0)


@pytest.mark.fast_rows("Game2048-v1")
@pytest.mark.parametrize("env_id", TASKS)
def test_an_image_of_a_state(env_id: str, key: jax.Array):
    import matplotlib.pyplot as plt

    from envs.rendering import frame

    env = envs.make(f"jumanji/{env_id}")
    _, state = env.reset_env(key, env.default_params)
    image = frame(env, state, env.default_params)
    assert image.shape[2] == 3 and len(np.unique(image)) > 5
    assert not plt.get_fignums()
