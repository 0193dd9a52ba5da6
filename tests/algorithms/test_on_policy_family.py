"""REINFORCE, A2C, SPO, MDPO and PPO with a penalty: cases in which two are equal by theory, and properties of each."""

import dataclasses
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit

import envs
import jaxrl
from envs.wrappers import time_limit
from jaxrl.algorithms.ppo_kl import BOUNDS, next_coefficient
from jaxrl.algorithms.registry import ROWS, builder_of, default_space, rebuilt
from jaxrl.cli import main as cli
from jaxrl.runtime.laws.algorithm_laws import check
from jaxrl.sweeps.sweep import Sweep

OWN = ("reinforce", "a2c", "spo", "mdpo", "ppo_kl")
IN_EPOCHS = ("ppo", "spo", "mdpo", "ppo_kl")
CONFIGS: Any = {
    "ppo": jaxrl.PPOConfig,
    "reinforce": jaxrl.ReinforceConfig,
    "a2c": jaxrl.A2CConfig,
    "spo": jaxrl.SPOConfig,
    "mdpo": jaxrl.MDPOConfig,
    "ppo_kl": jaxrl.PPOKLConfig,
}
EPS = float(np.finfo(np.float32).eps)
LR = 1e-2


def built(name: str, env: Any = "cartpole", **fields: Any) -> jaxrl.Algorithm:
    return builder_of(name)(envs.make(env) if isinstance(env, str) else env, CONFIGS[name](**fields))


def small(name: str, env: Any = "cartpole", **fields: Any) -> jaxrl.Algorithm:
    return built(name, env, **{**ROWS[name].small, **fields})


def steps(algo: jaxrl.Algorithm, count: int = 1, **hparams: Any) -> tuple[Any, list[Any], list[Any]]:
    """The state at the start, and states and metrics after each of `count` iterations."""
    hp = algo.prepare(algo.hparams.replace(**hparams))
    params, key = algo.env.default_params, jax.random.key(0)
    start = state = algo.init(key, hp, params)
    step, states, metrics = jax.jit(algo.step), [], []
    for i in range(count):
        state, numbers = step(jax.random.fold_in(key, i), jnp.int32(i), state, hp, params)
        states.append(state)
        metrics.append({name: float(value) for name, value in numbers.items()})
    return start, states, metrics


ROLLOUT = {"num_envs": 4, "num_steps": 16, "hidden": (8,)}
# With a stabiliser of 1 a first step of Adam is lr g / (|g| + 1), so that roundings of a gradient g change the step by
# lr times as much. Gradients are means of 64 terms, here at most 16 in size, in any order.
STEPS_OF = {"lr": LR, "adam_eps": 1.0, "max_grad_norm": np.inf, "lam": 0.9}
ROUNDING = LR * 64 * 16 * EPS


# --- the unit of rewards ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a2c", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ppo", "spo"))])
def test_policy_updates_do_not_depend_on_the_unit_of_rewards(name: str) -> None:
    """Of units that are powers of two, from 7e-9 to 1e15, in the first iteration, with a critic that begins at 0."""
    algo = small(name, "delayed-choice", num_envs=8, num_steps=4, hidden=(4,), normalise_advantage="batch")
    hparams = algo.prepare(algo.hparams.replace(**STEPS_OF))
    units = jnp.array([2.0**-27, 1.0, 2.0**50])
    usual = algo.env.default_params.replace(num_steps=2, max_steps_in_episode=4)

    def actors(unit: jax.Array) -> tuple[list[Any], ...]:
        params = usual.replace(first_reward=1.75 * unit, second_reward=unit)
        start = algo.init(jax.random.key(0), hparams, params)
        (weights, log_std), is_actor = start.weights, lambda at: "actor" in jax.tree_util.keystr(at)
        weights = jax.tree.map_with_path(lambda at, leaf: leaf if is_actor(at) else 0 * leaf, weights)
        start = start._replace(weights=(weights, log_std))
        after, _ = algo.step(jax.random.key(1), jnp.int32(0), start, hparams, params)
        return tuple(
            [leaf for at, leaf in jax.tree.leaves_with_path(state.weights[0]) if is_actor(at)]
            for state in (start, after)
        )

    pairs = zip(*quick_jit(jax.vmap(actors))(units), strict=True)
    moves = np.concatenate([np.reshape(np.asarray(new, np.float64) - old, (3, -1)) for old, new in pairs], axis=1)
    assert np.abs(moves[1]).max() > 100 * ROUNDING
    for of_unit in moves:
        np.testing.assert_allclose(of_unit, moves[1], rtol=0, atol=ROUNDING)


# --- cases in which two are equal by theory ----------------------------------------------


def moves(algo: jaxrl.Algorithm, **hparams: Any) -> np.ndarray:
    """The change of each weight in one iteration."""
    start, (after,), _ = steps(algo, **hparams)
    pairs = zip(jax.tree.leaves(after.weights), jax.tree.leaves(start.weights), strict=True)
    return np.concatenate([np.ravel(np.asarray(new, np.float64) - np.asarray(old)) for new, old in pairs])


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_EPOCHS)
@pytest.mark.parametrize("normalised", ["off", "batch"])
def test_one_epoch_of_one_minibatch_is_a2c(name: str, normalised: str) -> None:
    """At a ratio of 1 nothing is clipped, no penalty has a slope, and all losses have the policy gradient."""
    one = {"num_epochs": 1, "num_minibatches": 1, "normalise_advantage": normalised}
    by_a2c = moves(built("a2c", normalise_advantage=normalised, **ROLLOUT), **STEPS_OF)
    assert np.abs(by_a2c).max() > 100 * ROUNDING
    np.testing.assert_allclose(moves(built(name, **one, **ROLLOUT), **STEPS_OF), by_a2c, rtol=0, atol=ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("time_limits", ["bootstrap", pytest.param("terminal", marks=pytest.mark.slow)])
def test_reinforce_with_a_baseline_is_a2c_at_lambda_one_over_whole_episodes(time_limits: Any) -> None:
    env = time_limit(envs.make("pendulum"), ROLLOUT["num_steps"])
    hparams = STEPS_OF | {"lam": 1.0}
    by_a2c = moves(built("a2c", env, time_limits=time_limits, **ROLLOUT), **hparams)
    own = moves(built("reinforce", env, time_limits=time_limits, **ROLLOUT), **hparams)
    assert np.abs(by_a2c).max() > 100 * ROUNDING
    # Rewards of Pendulum add up to some -100 in 16 steps: gradients of up to 100 before they are averaged.
    np.testing.assert_allclose(own, by_a2c, rtol=0, atol=8 * ROUNDING)


# --- REINFORCE ---------------------------------------------------------------------------


@pytest.mark.slow
def test_reinforce_learns_from_whole_episodes_alone() -> None:
    """16 steps of episodes of 3 steps, the last of which the rollout cuts; and 16 steps of an episode of 20."""
    env = envs.make("probe/only-truncates", steps=3)
    assert steps(built("reinforce", env, **ROLLOUT))[2][0]["complete_share"] == 15 / 16
    start, (after,), (metrics,) = steps(built("reinforce", time_limit(envs.make("pendulum"), 20), **ROLLOUT))
    assert metrics["complete_share"] == 0
    jax.tree.map(np.testing.assert_array_equal, (start.weights, start.optimiser), (after.weights, after.optimiser))


def test_an_agent_that_outlives_the_episode_has_a_value_at_its_end() -> None:
    """Without a time limit within the rollout, both treatments of time limits are the same."""

    def learned(time_limits: str) -> Any:
        algo = small("a2c", agents.Outlived(), time_limits=time_limits)
        hparams, params, key = algo.prepare(algo.hparams), algo.env.default_params, jax.random.key(0)
        state = quick_jit(algo.init)(key, hparams, params)
        return quick_jit(algo.step)(key, jnp.int32(0), state, hparams, params)

    jax.tree.map(np.testing.assert_array_equal, learned("terminal"), learned("bootstrap"))


@pytest.mark.slow
def test_without_a_baseline_returns_take_the_place_of_advantages() -> None:
    """In one state, the gradient of the logits is that of log pi(a) times the return, averaged."""
    env = envs.make("probe/action-dependent")
    algo = built("reinforce", env, baseline="off", time_limits="terminal", num_envs=1, num_steps=8, hidden=())
    assert algo.hparams.value_coef is None and algo.hparams.lam is None
    start, (after,), metrics = steps(algo, lr=LR, adam_eps=1.0, max_grad_norm=np.inf, entropy_coef=0.0)
    assert "value_loss" not in metrics[0] and metrics[0]["complete_share"] == 1
    before, now = (state.weights[0]["params"] for state in (start, after))
    for name in before:
        if name.startswith("critic"):
            jax.tree.map(np.testing.assert_array_equal, before[name], now[name])
    assert np.any(before["actor_out"]["bias"] != now["actor_out"]["bias"])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"baseline": "off"},
            r"^baseline='off' has no critic, so that time_limits must be 'terminal', got 'bootstrap'$",
        ),
        (
            {"baseline": "off", "time_limits": "terminal", "critic": "mixture"},
            r"^baseline='off' has no critic, so that critic must be 'single', got 'mixture'$",
        ),
        ({"baseline": "mean"}, r"^baseline .*'mean'"),
        ({"normalise_advantage": "minibatch"}, r"^normalise_advantage .*'minibatch'"),
    ],
)
def test_reinforce_refuses_an_impossible_baseline(fields: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        jaxrl.ReinforceConfig(**fields)


def test_reinforce_has_no_lambda() -> None:
    algo = small("reinforce")
    with pytest.raises(ValueError, match=r"^lam has no effect on this environment and .* got 0\.9; leave it out$"):
        jaxrl.train(algo, algo.hparams.replace(lam=0.9), env_steps=64, progress=False)
    # make_train prepares the hyper-parameters unchanged: a JAX array raises an error, and one like the default passes.
    with pytest.raises(ValueError, match=r"^lam has no effect .* got 0\.9; leave it out$"):
        algo.prepare(algo.hparams.replace(lam=jnp.float32(0.9)))
    assert algo.prepare(algo.hparams.replace(lam=jnp.float32(1.0))).lam is None


# --- MDPO, and PPO with a penalty --------------------------------------------------------


@pytest.mark.slow
def test_the_step_size_of_mirror_descent_falls_over_the_run() -> None:
    """It also falls under a constant learning rate, and never to 0: weights stay finite after the annealing."""
    algo = small("mdpo")
    per_iteration = algo.env_steps_per_iteration
    prepared = algo.prepare(algo.hparams.replace(step_size=2.0), run_length=2 * per_iteration)
    assert prepared.anneal_env_steps == 2 * per_iteration
    _, states, metrics = steps(algo, 3, step_size=2.0, anneal_env_steps=2.0 * per_iteration)
    assert [numbers["current_step_size"] for numbers in metrics] == [2.0, 1.0, np.float32(1e-3)]
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(states[-1].weights))
    constant = algo.prepare(algo.hparams.replace(step_size_end=1.0), run_length=64)
    assert np.isinf(constant.anneal_env_steps)
    assert algo.stopped is not None and algo.stopped(constant, 64) is None
    reason = algo.stopped(prepared, 2 * per_iteration)
    assert reason == f"its step size fell to its least value within {2 * per_iteration} env steps (step_size_end=0)"
    assert algo.stopped(prepared, 2 * per_iteration - 1) is None


@pytest.mark.slow
def test_a_small_step_size_keeps_the_policy_near() -> None:
    algo = small("mdpo", num_epochs=8)
    far, near = (steps(algo, lr=3e-2, step_size=size, entropy_coef=0.0)[2][0]["kl_new_old"] for size in (100.0, 0.01))
    assert 0 < near < far / 4


def test_the_coefficient_of_the_penalty_follows_the_divergence() -> None:
    target = jnp.float32(0.01)
    for kl, factor in ((0.0, 0.5), (0.0066, 0.5), (0.0068, 1.0), (0.01, 1.0), (0.0149, 1.0), (0.0151, 2.0), (1.0, 2.0)):
        assert float(next_coefficient(jnp.float32(3.0), jnp.float32(kl), target)) == 3.0 * factor, kl
    assert float(next_coefficient(jnp.float32(BOUNDS[1]), jnp.float32(1.0), target)) == BOUNDS[1]
    assert float(next_coefficient(jnp.float32(BOUNDS[0]), jnp.float32(0.0), target)) == np.float32(BOUNDS[0])


@pytest.mark.slow
def test_the_coefficient_is_carried_from_iteration_to_iteration() -> None:
    algo = small("ppo_kl")
    _, states, metrics = steps(algo, 3, kl_target=1e-9, kl_coef=0.5)
    assert [numbers["current_kl_coef"] for numbers in metrics] == [0.5, 1.0, 2.0]
    assert [float(state.own) for state in states] == [1.0, 2.0, 4.0]
    _, states, _ = steps(algo, 2, kl_target=10.0, kl_coef=0.5)
    assert [float(state.own) for state in states] == [0.25, 0.125]


@pytest.mark.slow
def test_a_large_coefficient_keeps_the_policy_near() -> None:
    algo = small("ppo_kl", num_epochs=8)
    far, near = (steps(algo, lr=3e-2, kl_coef=coef, entropy_coef=0.0)[2][0]["kl_old_new"] for coef in (0.01, 100.0))
    assert 0 < near < far / 4


# --- all of them -------------------------------------------------------------------------


def test_nothing_is_added_to_the_state_of_an_algorithm_without_a_state_of_its_own() -> None:
    for name in ROWS:
        if name in ("dqn", "pqn", "sac", "td3", "evolve"):  # whose states are of another kind
            continue
        algo = small(name)
        state = jax.eval_shape(algo.init, jax.random.key(0), algo.hparams, algo.env.default_params)
        assert (state.own is not None) == (name == "ppo_kl")


NORMALISED = {"normalise_observation": True, "normalise_reward": True}
MORE: Any = {
    "a mixture": (envs.make("pendulum"), NORMALISED | {"critic": "mixture", "critic_heads": 4}),
    "a crowd": (agents.Crowd(3, masked=True), NORMALISED | {"normalise_advantage": "batch"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_the_laws_hold(name: str) -> None:
    check(small(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("more", MORE)
def test_the_laws_hold_under_any_discount_with(name: str, more: str) -> None:
    env, fields = MORE[more]
    algo = small(name, env, **fields | ({"num_steps": 200} if name == "reinforce" else {}))
    check(algo._replace(hparams=algo.hparams.replace(discount=jaxrl.as_discount("beta:0.98,0.5"))))


@pytest.mark.parametrize("name", OWN)
def test_a_configuration_of_another_is_refused(name: str) -> None:
    kind = CONFIGS[name].__name__
    with pytest.raises(TypeError, match=rf"^config must be a {kind}, such as {kind}\(num_envs=8\), got PPOConfig$"):
        builder_of(name)(envs.make("cartpole"), jaxrl.PPOConfig())


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        (jaxrl.SPOHParams, {"ratio_eps": 0.0}, r"^ratio_eps must lie in \(0, inf\), got 0\.0$"),
        (jaxrl.MDPOHParams, {"step_size": 1e-4}, r"^step_size must lie in \[0\.001, inf\), got 0\.0001$"),
        (jaxrl.MDPOHParams, {"step_size_end": -1.0}, r"^step_size_end must lie in \[0, inf\), got -1\.0$"),
        (jaxrl.PPOKLHParams, {"kl_target": 0.0}, r"^kl_target must lie in \(0, inf\), got 0\.0$"),
        (jaxrl.PPOKLHParams, {"kl_coef": 1e5}, r"^kl_coef must lie in \[0\.0001, 10000\.0\], got 100000\.0$"),
        (jaxrl.A2CHParams, {"lam": 1.5}, r"^lam must lie in \[0, 1\], got 1\.5$"),
    ],
)
def test_a_bad_hyper_parameter_gets_one_sentence(kind: Any, changes: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        kind(**changes)


@pytest.mark.parametrize("name", [name for name in OWN if name in IN_EPOCHS])
def test_minibatches_divide_the_samples(name: str) -> None:
    with pytest.raises(ValueError, match=r"^num_minibatches must divide the 32 samples .* got 3$"):
        small(name, num_minibatches=3)


@pytest.mark.parametrize("name", ["ppo", "spo", "mdpo", "ppo_kl"])
def test_a_minibatch_of_one_sample_has_no_normalised_advantage(name: str) -> None:
    sizes = {"num_envs": 2, "num_steps": 4}
    sentence = r"^num_minibatches must leave 2 samples or more .* got 8 for 8 samples of an iteration$"
    with pytest.raises(ValueError, match=sentence):
        small(name, **sizes, num_minibatches=8, normalise_advantage="minibatch")
    for fields in ({"num_minibatches": 4, "normalise_advantage": "minibatch"}, {"normalise_advantage": "off"}):
        small(name, **(sizes | {"num_minibatches": 8} | fields))


@pytest.mark.parametrize("name", CONFIGS)
def test_an_iteration_of_one_sample_has_no_normalised_advantage(name: str) -> None:
    sizes = {"num_envs": 1, "num_steps": 1} | ({"num_minibatches": 1} if "num_minibatches" in ROWS[name].small else {})
    with pytest.raises(ValueError, match=r"^normalise_advantage takes 'off' where an iteration has one .* 'batch'$"):
        small(name, **sizes, normalise_advantage="batch")
    small(name, **sizes, normalise_advantage="off")


@pytest.mark.parametrize("name", OWN)
def test_a_default_space_lists_the_valid_names(name: str) -> None:
    algo = small(name)
    for path, values in default_space(algo).items():
        field = path.removeprefix("config.")
        if field != path:
            for value in values.values:
                rebuilt(algo, dataclasses.replace(algo.config, **{field: value}))
        else:
            assert getattr(algo.hparams, field) is not None


@pytest.mark.slow
def test_the_shell_lists_the_algorithms_and_trains_one(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["algorithms"]) == 0
    assert capsys.readouterr().out.split() == list(ROWS)
    options = ["--env-steps", "160", "--evals", "1", "--eval-episodes", "1", "--seeds", "1", "--no-progress"]
    fields = ["--config.num-envs", "2", "--config.hidden", "8", "--hparams.lam", "0.9", "1.0"]
    assert cli.main(["train", "a2c", "cartpole", "--no-preset", *options, *fields, "--out", str(tmp_path / "run")]) == 0
    result = jaxrl.load_result(tmp_path / "run")
    assert result.algo is not None and result.algo.name == "a2c"
    assert result.values("return").shape == (2, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_each_is_searched_and_exported(name: str, tmp_path: Any) -> None:
    algo = small(name)
    length = 4 * algo.env_steps_per_iteration
    actual = jaxrl.search(
        algo, trials=2, env_steps=length, search="random", seeds=1, test_seeds=1, eval_episodes=1, progress=False
    )
    assert actual.incumbent is not None
    sweep: Sweep = jaxrl.grid(algo.hparams, {"lr": [1e-3, 1e-2]})
    result = jaxrl.train(algo, sweep, env_steps=length, evals=1, eval_episodes=1, progress=False)
    policy = result.policy(seed=0, lr=1e-2)
    obs = np.asarray(jax.random.normal(jax.random.key(0), (5, 4)), np.float32)
    np.testing.assert_array_equal(
        jaxrl.load_exported(jaxrl.export_policy(policy, tmp_path / "policy.onnx"))(obs), policy(obs)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_a_run_that_is_made_longer_equals_one_in_one_piece(name: str, tmp_path: Any) -> None:
    """With a schedule that does not depend on the length of the run, bit for bit."""
    algo = small(name)
    if name == "mdpo":
        algo = algo._replace(hparams=algo.hparams.replace(step_size_end=1.0))
    length = 4 * algo.env_steps_per_iteration
    options: Any = {"seeds": 2, "eval_episodes": 1, "progress": False}
    whole = jaxrl.train(algo, env_steps=2 * length, evals=2, **options)
    jaxrl.train(algo, env_steps=length, evals=1, out=tmp_path / "run", **options)
    longer = jaxrl.resume(tmp_path / "run", env_steps=2 * length)
    for one, other in zip(jax.tree.leaves(whole.policies), jax.tree.leaves(longer.policies), strict=True):
        np.testing.assert_array_equal(one, other)
