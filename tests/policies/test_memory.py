"""A policy with a memory solves a memory task exactly in training, evaluation, films, loops, results and checks."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from remembering import NUM_ENVS, NUM_STEPS, Repeat, chain, echo, forgetful, recall

import envs
import jaxrl
from envs.rendering import scenes
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli import main as cli
from jaxrl.policies.playing import player_of
from jaxrl.policies.rendering import _play
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime.evaluate_again import evaluate_result

TASKS = {
    "chain": (lambda: recall(chain()), 1.0, 6),
    "terminated": (lambda: echo(Repeat("terminated")), 5.0, 5),
    "truncated": (lambda: echo(Repeat("truncated")), 5.0, 5),
}
EPISODES, ITERATIONS = 32, 6


def policy_of(algo: Algorithm) -> TrainedPolicy:
    return TrainedPolicy(algo, algo.policy(None, algo.hparams))


@pytest.fixture(scope="module", params=TASKS)
def task(request: pytest.FixtureRequest) -> tuple[Algorithm, float, int]:
    make, optimum, length = TASKS[request.param]
    return make(), optimum, length


@pytest.fixture(scope="module")
def result(task: Any, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Two settings with two seeds, trained in two chunks and saved."""
    algo = task[0]
    out = tmp_path_factory.mktemp("memory") / "run"
    return jaxrl.train(
        algo,
        jaxrl.grid(algo.hparams, {"strength": [1e4, 1e5]}),
        seeds=2,
        env_steps=ITERATIONS * algo.env_steps_per_iteration,
        evals=2,
        eval_episodes=EPISODES,
        out=out,
        progress=False,
    )


@pytest.mark.slow
def test_rollouts_and_evaluations_reach_the_optimum(task: Any, result: Result) -> None:
    _, optimum, length = task
    for metric in ("return", "return_sampled"):
        np.testing.assert_array_equal(result.values(metric), optimum)  # the mean of the largest possible return
    np.testing.assert_array_equal(result.values("length"), length)
    np.testing.assert_array_equal(result.values("wrong"), 0)
    steps = ITERATIONS * NUM_STEPS // 2  # of an environment between two evaluations
    ends = np.diff([points // length for points in (0, steps, 2 * steps)])
    paid = ends if optimum == 1 else [steps, steps]
    np.testing.assert_array_equal(result.values("right")[0, 0], NUM_ENVS * np.asarray(paid))


@pytest.mark.slow
def test_the_task_takes_a_memory() -> None:
    algo = forgetful(Repeat())
    result = jaxrl.train(algo, seeds=1, env_steps=200, evals=1, eval_episodes=EPISODES, progress=False)
    assert result.values("return").max() < 2  # 5 symbols, of which 4 are right by one chance in 4: 1 - 4 / 2 = -1
    assert result.values("wrong").min() > 0


@pytest.mark.slow
def test_results_load_and_are_evaluated_again(
    task: Any, result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    algo, optimum, length = task
    run = result.save(tmp_path / "run")
    loaded = jaxrl.load_result(run, allow="remembering")
    assert loaded.algo is not None and loaded.algo.env == algo.env
    again = evaluate_result(loaded, 8, key=3)
    for metric, value in (("return", optimum), ("return_sampled", optimum), ("length", length)):
        np.testing.assert_array_equal(again.values(metric), value)
    assert cli.main(["evaluate", str(run), "--episodes", "5", "--allow", "remembering"]) == 0
    assert f"{optimum:g}" in capsys.readouterr().out
    assert loaded.policy(seed=1, strength=1e5).remembers


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
def test_the_users_loop_reaches_the_optimum(task: Any, result: Result, greedy: bool) -> None:
    algo, optimum, length = task
    env, params, policy = algo.env, algo.env.default_params, result.policy(seed=0, strength=1e4)
    memory, total = policy.initial_memory(), 0.0
    step = jax.jit(env.step_env)
    obs, state = env.reset_env(jax.random.key(0), params)
    for t in range(3 * length):
        action, memory = policy(obs, key=jax.random.key(t), greedy=greedy, memory=memory)
        assert action.shape == ()
        obs, state, reward, terminated, _ = step(jax.random.key(t), state, action, params)
        total += float(reward)
        done = terminated | env.is_truncated(state, params)
        memory = policy.remembered(memory, done)
        if done:
            assert all(
                np.array_equal(a, b)
                for a, b in zip(*map(jax.tree.leaves, (memory, policy.initial_memory())), strict=True)
            )
            obs, state = env.reset_env(jax.random.key(100 + t), params)
    assert total == 3 * optimum


@pytest.mark.slow
def test_a_batch_keeps_memories_apart(task: Any, result: Result) -> None:
    algo, optimum, length = task
    env, params, policy = algo.env, algo.env.default_params, result.policy(seed=0, strength=1e4)
    reset, step = jax.jit(jax.vmap(env.reset_env, (0, None))), jax.jit(jax.vmap(env.step_env, (0, 0, 0, None)))
    count, shape = 6, (2, 3)
    front = lambda leaf: leaf.reshape(*shape, *leaf.shape[1:])  # noqa: E731
    obs, state = reset(jax.random.split(jax.random.key(1), count), params)
    memory, total = policy.initial_memory(*shape), np.zeros(count)
    for t in range(length):
        action, memory = policy(front(obs), key=jax.random.key(t), greedy=False, memory=memory)
        assert action.shape == shape
        keys = jax.random.split(jax.random.key(50 + t), count)
        obs, state, reward, _, _ = step(keys, state, action.reshape(count), params)
        total += np.asarray(reward)
    np.testing.assert_array_equal(total, optimum)
    ended = jnp.array([[True, False, False], [False, False, True]])
    kept = policy.remembered(memory, ended)
    np.testing.assert_array_equal(kept["seen"], np.where(ended, 0, length))
    np.testing.assert_array_equal(kept["first"], np.where(ended[..., None], 0, memory["first"]))
    rows = policy.remembered(memory, ended[:, 0])  # of several environments at once, each with all its agents
    np.testing.assert_array_equal(rows["seen"], [[0] * 3, [length] * 3])
    for wrong, sentence in (
        ((memory, ended.T), r"^ended must be bool\[2, 3\] for this memory, or of its leading axes, got bool\[3, 2\]"),
        ((memory, ended.astype(int)), r"^ended must be bool\[2, 3\] .* got int32\[2, 3\]"),
        (({"seen": memory["seen"]}, ended), "^memory has the shapes"),
    ):
        with pytest.raises(ValueError, match=sentence):
            policy.remembered(*wrong)


@pytest.mark.slow_rows("chain")
def test_a_policy_without_its_memory_is_refused(task: Any, result: Result) -> None:
    policy = result.policy(seed=0, strength=1e4)
    obs = jnp.zeros(task[0].env.observation_space(task[0].env.default_params).shape)
    with pytest.raises(
        ValueError, match=r"^memory is None, .*policy\.initial_memory\(\) at the start .* policy\(obs, memory"
    ):
        policy(obs)
    with pytest.raises(ValueError, match=r"^memory has the shapes .* as policy\.initial_memory\(2\) returns it\.$"):
        policy(jnp.stack([obs, obs]), memory=policy.initial_memory())
    memoryless = TrainedPolicy(jaxrl.ppo(envs.make("cartpole")), None)
    with pytest.raises(ValueError, match="memory has no effect on a policy without a memory"):
        memoryless(jnp.zeros(4), memory={"first": jnp.zeros(4)})


@pytest.mark.slow_rows("chain")
def test_films_play_with_the_memory(task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algo, _, length = task
    policy, params = policy_of(algo), algo.env.default_params
    states = list(_play(algo.env, player_of(algo.env, policy), params, 4 * length, 5))
    assert len(states) == 4 * length + 1
    if not isinstance(algo.env, Repeat):  # the state counts right answers
        assert [int(state.total_perfect) for state in states[length::length]] == [1] * 4
        return
    assert [int(state.right) for state in states] == [0, *([1, 2, 3, 4, 5] * 4)]
    drawn: list[int] = []
    scene = ((16, 16), lambda ax, env, params: lambda state: drawn.append(int(state.right)))
    monkeypatch.setitem(scenes._SCENES, Repeat, scene)
    film = jaxrl.render(algo.env, policy, tmp_path / "film.gif", num_steps=2 * length, seed=3)
    assert drawn == [0, *([1, 2, 3, 4, 5] * 2)]
    with Image.open(film) as picture:
        assert picture.size == (16, 16)


@pytest.mark.slow_rows("chain", "terminated")
def test_gymnasium_single_and_many(task: Any) -> None:
    from envs.adapters.outgoing.gymnasium import as_gymnasium, as_gymnasium_vector

    algo, optimum, length = task
    policy = policy_of(algo)
    single = as_gymnasium(algo.env)
    for seed in range(3):
        obs, _ = single.reset(seed=seed)
        memory, total, done = policy.initial_memory(), 0.0, False
        while not done:
            action, memory = policy(obs, memory=memory)
            obs, reward, terminated, truncated, _ = single.step(int(action))
            total, done = total + float(reward), terminated or truncated
        assert total == optimum
    many = as_gymnasium_vector(algo.env, 4, autoreset_mode="SameStep")
    obs, _ = many.reset(seed=0)
    memory, total = policy.initial_memory(4), np.zeros(4)
    for _ in range(3 * length):
        action, memory = policy(obs, memory=memory)
        obs, reward, terminated, truncated, _ = many.step(np.asarray(action))
        memory = policy.remembered(memory, terminated | truncated)
        total += reward
    np.testing.assert_array_equal(total, 3 * optimum)


@pytest.mark.slow
def test_a_next_step_autoreset_forgets_with_the_first_observation() -> None:
    from envs.adapters.outgoing.gymnasium import as_gymnasium_vector

    algo = echo(Repeat())
    policy, many = policy_of(algo), as_gymnasium_vector(algo.env, 3)  # the step after an end restarts and pays 0
    obs, _ = many.reset(seed=0)
    memory, total, began = policy.initial_memory(3), np.zeros(3), np.zeros(3, bool)
    for _ in range(17):
        action, memory = policy(obs, memory=memory)
        obs, reward, terminated, truncated, _ = many.step(np.asarray(action))
        memory = policy.remembered(memory, began)  # whose observation is now the first of an episode
        began, total = terminated | truncated, total + reward
    np.testing.assert_array_equal(total, 15)


@pytest.mark.slow
def test_the_laws_hold(task: Any) -> None:
    jaxrl.check(task[0])


def test_config_says_how_the_policy_is_built(result: Result, tmp_path: Path) -> None:
    config = json.loads((result.save(tmp_path / "run") / "config.json").read_text())
    assert config["algorithm"] in ("remembering:recall", "remembering:echo")
