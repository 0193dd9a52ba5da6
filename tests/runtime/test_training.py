"""Training: the same bits for any layout of runs, and no lost results."""

import dataclasses
import os
import signal
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chaotic_algorithm import wandering

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import random_key
from jaxrl.results.dataset import ResultError
from jaxrl.results.storage import claim_directory, exclusive
from jaxrl.runtime.layout import run_on_devices
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.programs import compilations

CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_epochs=2, num_minibatches=2, hidden=(8,))
PER_ITERATION = 32


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return jaxrl.ppo(envs.make("cartpole"), CONFIG)


def run(algo: Algorithm, hparams: Any = None, **changes: Any) -> jaxrl.Result:
    options = {"env_steps": 7 * PER_ITERATION, "evals": 1, "eval_episodes": 3, "block": 4, "progress": False}
    return jaxrl.train(algo, hparams, **(options | changes))


def assert_same_bits(one: Any, other: Any) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


def final(result: jaxrl.Result, setting: int, seed: int) -> Any:
    row = result.seeds.index(seed)
    metrics = {
        name: result.values(name)[setting, row, -1] for name in ("return", "return_sampled", "discounted_return")
    }
    return metrics, jax.tree.map(lambda leaf: leaf[setting, row], result.policies)


@pytest.mark.slow
def test_one_block_width_gives_the_same_bits(algo: Algorithm) -> None:
    one_device = jax.devices()[:1]
    sweep = jaxrl.grid(algo.hparams, {"discount": [0.98, "beta:0.98,0.5", "hyperbolic:0.02", 0.9]})
    many = run(algo, sweep, seeds=16, devices=jax.devices()[:2])
    assert many.metrics.attrs["num_devices"] == 2
    alone = run(algo, jaxrl.grid(algo.hparams, {"discount": ["beta:0.98,0.5"]}), seeds=[11])
    assert_same_bits(final(many, 1, 11), final(alone, 0, 11))
    reordered = run(algo, sweep, seeds=list(range(15, -1, -1)), devices=one_device)
    assert reordered.metrics.attrs["num_devices"] == 1
    for setting in range(4):
        for seed in range(16):
            assert_same_bits(final(many, setting, seed), final(reordered, setting, seed))
    chunked = run(algo, sweep, seeds=16, evals=7)
    assert chunked.metrics.sizes["env_step"] == 7
    for setting in range(4):
        assert_same_bits(final(many, setting, 5), final(chunked, setting, 5))


@pytest.mark.slow
def test_each_family_of_a_mixed_sweep_learns_as_if_alone(algo: Algorithm) -> None:
    # Mixed families share one program, whose rounding may differ from that of a program of one
    # family; over one iteration that stays below the bound that holds across block widths.
    families = [
        "exp:gamma=0.98",
        "quasi:beta=0.9,gamma=0.99",
        "hyperbolic:k=0.02",
        "beta:mu=0.98,eta=0.5",
        "fixed:horizon=5",
    ]
    mixed = run(algo, jaxrl.grid(algo.hparams, {"discount": families}), env_steps=PER_ITERATION)
    for i, family in enumerate(families):
        alone = run(algo, jaxrl.grid(algo.hparams, {"discount": [family]}), env_steps=PER_ITERATION)
        pairs = zip(jax.tree.leaves(mixed.policies.params), jax.tree.leaves(alone.policies.params), strict=True)
        for among, single in pairs:
            np.testing.assert_allclose(among[i], single[0], atol=2e-6)


@pytest.mark.slow
def test_widths_agree_over_one_iteration(algo: Algorithm) -> None:
    wide = run(algo, seeds=8, block=8, env_steps=PER_ITERATION)
    narrow = run(algo, seeds=8, block=1, env_steps=PER_ITERATION)
    for x, y in zip(jax.tree.leaves(wide.policies), jax.tree.leaves(narrow.policies), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-6)


@pytest.mark.slow
def test_make_train_takes_the_same_keys_as_train(algo: Algorithm) -> None:
    driven = run(algo, seeds=[3], env_steps=PER_ITERATION, block=1)
    output = jax.jit(jaxrl.make_train(algo, env_steps=PER_ITERATION, evals=1, eval_episodes=3))(jax.random.key(3))
    np.testing.assert_array_equal(output.env_steps, [PER_ITERATION])
    policies = jax.tree.map(lambda leaf: leaf[0, 0], driven.policies)
    for x, y in zip(jax.tree.leaves(output.policy), jax.tree.leaves(policies), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-6)
    np.testing.assert_allclose(output.metrics["return"], driven.values("return")[0, 0])


def test_a_key_may_be_the_raw_words_of_one_and_nothing_else(algo: Algorithm) -> None:
    raw: Any = jax.random.PRNGKey(3)
    for key in (raw, np.asarray(raw), jax.random.key(3)):
        assert np.array_equal(jax.random.key_data(random_key(key)), raw) and random_key(key).shape == ()
    program = jaxrl.make_train(algo, env_steps=PER_ITERATION, evals=1, eval_episodes=3)
    assert jax.eval_shape(program, raw) == jax.eval_shape(program, jax.random.key(3))
    jax.eval_shape(jax.vmap(program), jax.random.split(raw, 2))
    for wrong, got in ((3, "3"), (jnp.zeros(2), r"float32\[2\]"), (jax.random.split(raw), r"uint32\[2, 2\]")):
        for call in (program, lambda key: jaxrl.check(algo, key=key, progress=False)):
            with pytest.raises(TypeError, match=rf"^key takes one random key, such as jax.random.key\(0\), got {got}$"):
                call(wrong)


@pytest.mark.slow
def test_make_train_vmaps_over_keys_and_traced_hyper_parameters(algo: Algorithm) -> None:
    program = jaxrl.make_train(algo, env_steps=3 * PER_ITERATION, evals=2, eval_episodes=2)

    def with_mu(key: jax.Array, mu: jax.Array) -> jaxrl.TrainOutput:
        return program(key, algo.hparams.replace(discount=jaxrl.BetaWeighted(mu, 0.5)))

    output = jax.jit(jax.vmap(with_mu, in_axes=(None, 0)))(jax.random.key(0), jnp.array([0.9, 0.99]))
    assert output.metrics["return"].shape == (2, 2)
    assert np.all(np.isfinite(output.metrics["discounted_return"]))
    assert output.metrics["discounted_return"][0, 0] < output.metrics["discounted_return"][1, 0]


@pytest.mark.slow
def test_a_nan_is_named_and_leaves_every_other_run_alone(algo: Algorithm) -> None:
    healthy = run(algo, jaxrl.grid(algo.hparams, {"lr": [1e-3, 2e-3]}), seeds=4)
    with pytest.warns(
        RuntimeWarning, match=r"4 of 8 runs have metrics that are not finite: seed 0 of \{'lr': 1e\+38\}"
    ):
        poisoned = run(algo, jaxrl.grid(algo.hparams, {"lr": [1e-3, 1e38]}), seeds=4)
    assert [seed for _, seed in poisoned.failed] == [0, 1, 2, 3]
    for seed in range(4):
        assert_same_bits(final(healthy, 0, seed), final(poisoned, 0, seed))


@pytest.mark.slow
def test_equal_seeds_start_alike_under_every_setting(algo: Algorithm) -> None:
    result = run(algo, jaxrl.grid(algo.hparams, {"lr": [0.0, 1e-3], "entropy_coef": [0.0]}), seeds=2)
    frozen = run(algo, jaxrl.grid(algo.hparams, {"lr": [0.0], "entropy_coef": [1.0]}), seeds=2)
    assert_same_bits(
        jax.tree.map(lambda leaf: leaf[0], result.policies), jax.tree.map(lambda leaf: leaf[0], frozen.policies)
    )


@pytest.mark.slow
def test_environment_parameters_are_swept(algo: Algorithm) -> None:
    hparams = {"env.gravity": [9.8, 980.0], "env.max_steps_in_episode": [30]}
    result = run(algo, jaxrl.grid(algo.hparams, hparams), seeds=2)
    assert result.metrics["length"].dims == ("env.gravity", "env.max_steps_in_episode", "seed", "env_step")
    lengths = result.values("length")
    assert lengths.max() <= 30
    assert lengths[1].mean() < lengths[0].mean()


def test_the_environment_of_a_run_is_kept_with_its_policy(algo: Algorithm, tmp_path: Any) -> None:
    heavy = dataclasses.replace(algo.env.default_params, gravity=20.0)
    sweep = jaxrl.grid(algo.hparams, {"env.max_steps_in_episode": [30, 40]})
    run(algo, sweep, env_params=heavy, out=tmp_path / "x")
    loaded = jaxrl.load_result(tmp_path / "x")
    params = loaded.policy(**{"env.max_steps_in_episode": 40}).env_params
    assert (float(params.gravity), int(params.max_steps_in_episode)) == (20.0, 40)
    np.testing.assert_array_equal(loaded.env_params.max_steps_in_episode, [30, 40])


def test_on_chunk_sees_every_evaluation(algo: Algorithm) -> None:
    seen = []
    result = run(algo, seeds=3, evals=3, on_chunk=lambda env_step, metrics: seen.append((env_step, metrics["return"])))
    assert [env_step for env_step, _ in seen] == result.metrics["env_step"].values.tolist()
    np.testing.assert_array_equal(np.stack([returns for _, returns in seen], -1), result.values("return"))


def test_an_error_in_on_chunk_loses_nothing(algo: Algorithm, tmp_path: Any) -> None:
    def stop_at_second(env_step: int, metrics: Any) -> None:
        if env_step > 100:
            raise RuntimeError("my tracker is down")

    with pytest.raises(RuntimeError, match="my tracker is down"):
        run(algo, seeds=2, evals=7, on_chunk=stop_at_second, out=tmp_path / "x")
    saved = jaxrl.load_result(tmp_path / "x")
    assert saved.metrics["env_step"].values.tolist() == [32, 64, 96, 128]
    assert saved.metrics.attrs["interrupted"] == 1


@pytest.mark.slow
def test_any_number_of_blocks_is_the_same_program() -> None:
    """Random states at the start and end of a program round alike in all blocks.

    They would not if the compiler fused them with the preceding or following operations.
    """
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_epochs=1, num_minibatches=2, hidden=(8,))
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    options: dict[str, Any] = {"env_steps": 64, "evals": 2, "eval_episodes": 2, "block": 4, "progress": False}
    one = jaxrl.train(algo, seeds=4, devices=["cpu:0"], **options)
    before = compilations()
    several = jaxrl.train(algo, seeds=14, devices=["cpu:0"], **options)
    assert compilations() == before
    for leaf, other_leaf in zip(jax.tree.leaves(one.policies), jax.tree.leaves(several.policies), strict=True):
        np.testing.assert_array_equal(leaf, other_leaf[:, :4])
    for name in one.metrics.data_vars:
        np.testing.assert_array_equal(one.values(str(name)), several.values(str(name))[:, :4])


@pytest.mark.slow
def test_a_step_is_traced_once(algo: Algorithm) -> None:
    traced = []

    def step(*arguments: Any) -> Any:
        traced.append(None)
        return algo.step(*arguments)

    run(algo._replace(step=step), seeds=2)
    assert len(traced) == 1


def test_an_error_in_the_middle_of_a_chunk_loses_nothing(
    algo: Algorithm, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail_late(executables: Any, *arguments: Any) -> Any:
        calls.append(None)
        out = run_on_devices(executables, *arguments)
        if len(calls) == 6:  # initial states, then chunk and evaluation alternately: in the third chunk
            raise MemoryError("no room")
        return out

    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", fail_late)
    with pytest.raises(MemoryError, match="no room"):
        run(algo, seeds=2, evals=7, out=tmp_path / "x")
    monkeypatch.undo()
    saved = jaxrl.load_result(tmp_path / "x")
    assert saved.metrics["env_step"].values.tolist() == [32, 64]
    assert_same_bits(saved.policies, run(algo, seeds=2, env_steps=64).policies)


def test_an_error_before_the_first_evaluation_leaves_no_directory(
    algo: Algorithm, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", fail)
    with pytest.raises(MemoryError):
        run(algo, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_training_and_keeps_its_progress(algo: Algorithm, tmp_path: Any, number: int) -> None:
    def ask_to_end(env_step: int, metrics: Any) -> None:
        if env_step == 3 * PER_ITERATION:
            os.kill(os.getpid(), number)

    reported = (
        rf"training stopped at {3 * PER_ITERATION} of .* steps by {signal.Signals(number).name}; with resume=True"
    )
    with pytest.warns(RuntimeWarning, match=reported):
        result = run(algo, seeds=2, evals=7, on_chunk=ask_to_end, out=tmp_path / "x")
    assert result.metrics["env_step"].values[-1] == 3 * PER_ITERATION
    assert result.metrics.attrs["interrupted"] == 1
    assert result.metrics.attrs["stopped_by_signal"] == number
    assert_same_bits(jaxrl.load_result(tmp_path / "x").policies, result.policies)
    whole = run(algo, seeds=2, evals=7)
    np.testing.assert_array_equal(whole.values("return")[:, :, :3], result.values("return"))


@pytest.mark.parametrize(
    ("env_steps", "evals", "expected"),
    [(320, 2, [5, 10]), (321, 2, [6, 11]), (64, 10, [1, 2]), (1, 1, [1]), (320, 3, [4, 7, 10])],
)
def test_evaluation_points(env_steps: int, evals: int, expected: list[int]) -> None:
    assert evaluation_points(env_steps, evals, PER_ITERATION).tolist() == expected


@pytest.mark.parametrize(("env_steps", "shown"), [(1, True), (15, True), (16, False), (33, False)])
@pytest.mark.parametrize("progress", [True, False])
def test_an_iteration_of_more_than_twice_the_steps_asked_for_is_shown(
    algo: Algorithm, env_steps: int, shown: bool, progress: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="seeds"):  # before anything is compiled
        jaxrl.train(algo, env_steps=env_steps, seeds=0, progress=progress)
    becomes = "becomes 32, the environment steps of one iteration of ppo, the least that it trains"
    line = f"jaxrl: env_steps={env_steps} {becomes}"
    assert capsys.readouterr().err.splitlines() == [line] * (shown and progress)


def test_the_learning_rate_falls_over_the_whole_run(algo: Algorithm) -> None:
    result = run(algo, algo.hparams.replace(lr=1e-3, lr_end=0.0), evals=7)
    np.testing.assert_allclose(result.values("learning_rate")[0, 0], 1e-3 * (1 - np.arange(7) / 7), rtol=1e-6)
    half = run(algo, algo.hparams.replace(lr=1e-3, lr_end=0.5, anneal_env_steps=64.0), evals=7)
    np.testing.assert_allclose(half.values("learning_rate")[0, 0], [1e-3, 7.5e-4] + [5e-4] * 5, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"seeds": 0}, ValueError, "seeds must be a whole number of at least 1, got 0"),
        ({"seeds": []}, ValueError, "seeds must be a number or different whole numbers"),
        ({"seeds": [1, 1]}, ValueError, "seeds must be a number or different whole numbers"),
        ({"seeds": [0.5, 1.7]}, ValueError, "seeds must be a number or different whole numbers"),
        ({"seeds": "64"}, ValueError, "seeds must be a number or different whole numbers"),
        ({"hparams": jaxrl.PPOHParams(lr=np.array([1e-3, 1e-4]))}, ValueError, "lr takes one number .*jaxrl.grid"),
        ({"seeds": 1.5}, ValueError, "seeds must be a whole number of at least 1, got 1.5"),
        ({"env_steps": 0}, ValueError, "env_steps must be a whole number of at least 1, got 0"),
        ({"evals": 0}, ValueError, "evals must be"),
        ({"eval_episodes": -1}, ValueError, "eval_episodes must be"),
        (
            {"eval_episodes": 2**31},
            ValueError,
            "eval_episodes must be a whole number from 1 to 2147483647, which int32 counts, got 2147483648",
        ),
        ({"block": 0}, ValueError, "block must be"),
        ({"devices": []}, ValueError, "devices must name at least one"),
        ({"out": 3}, TypeError, "out takes a directory, such as 'runs/x', got 3"),
        ({"out": ""}, ValueError, "out, the directory to save in, is an empty string"),
        ({"precision": "half"}, ValueError, "precision must be one of"),
        ({"hparams": {"lr": 1e-3}}, TypeError, "hparams must be a PPOHParams or a Sweep"),
        ({"env_params": {"gravity": 1.0}}, TypeError, "env_params must be CartPoleParams"),
        (
            {"env_params": dataclasses.make_dataclass("CartPoleParams", [])()},
            TypeError,
            r"must be envs\.control\.cartpole\.CartPoleParams of cartpole, got \w+\.CartPoleParams",
        ),
    ],
)
def test_bad_arguments_get_one_sentence(algo: Algorithm, changes: dict[str, Any], error: type, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        run(algo, **changes)


def test_bad_sweeps_get_one_sentence(algo: Algorithm) -> None:
    with pytest.raises(ValueError, match=r"env.gravty is not a parameter of .*gravity"):
        run(algo, jaxrl.grid(algo.hparams, {"env.gravty": [1.0]}))
    sticky = jaxrl.ppo(envs.wrappers.sticky_actions(algo.env, 0.1))
    for path, sentence in (("gravity", "did you mean 'env.inner.gravity'"), ("probability.x", "has no parts")):
        with pytest.raises(ValueError, match=sentence):
            run(sticky, jaxrl.grid(sticky.hparams, {f"env.{path}": [1.0]}))
    paths = jaxrl.ppo(envs.make("pathworld"))
    with pytest.raises(ValueError, match="num_paths is a static field, which"):
        run(paths, jaxrl.grid(paths.hparams, {"env.num_paths": [4]}))
    with pytest.raises(TypeError, match=r"algo takes an algorithm, such as jaxrl.ppo.*got CartPole"):
        run(algo.env)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"hidden takes the widths of layers, such as \(64, 64\), got 32"):
        jaxrl.PPOConfig(hidden=32)  # pyright: ignore[reportArgumentType]
    with pytest.raises((TypeError, ValueError), match="discount="):
        jaxrl.PPOHParams(gamma=0.99)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="log_std_init has no effect"):
        run(algo, jaxrl.PPOHParams(log_std_init=1.0))


@pytest.mark.slow
def test_metrics_are_read_without_the_module_of_the_environment(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "of_mine.py").write_text(
        "from envs.control.cartpole import CartPole\n\nclass Mine(CartPole):\n    pass\n"
    )
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path)
        own = jaxrl.ppo(envs.make("of_mine:Mine"), CONFIG)
        trained = run(own, out=tmp_path / "x")
        here.delitem(sys.modules, "of_mine")
    monkeypatch.delitem(sys.modules, "of_mine", raising=False)
    result = jaxrl.load_result(tmp_path / "x")
    assert str(result.table()) == str(trained.table())
    with pytest.raises(ResultError, match=r"only where you allow it: pass allow='of_mine' \(--allow of_mine\)"):
        result.policy(seed=0)


def test_parameters_that_a_program_cannot_have_are_refused() -> None:
    algo = jaxrl.ppo(envs.make("pendulum"), CONFIG)
    with pytest.raises(ValueError, match=r"change the action space of pendulum.*2\.0\] by default.*4\.0\]"):
        run(algo, jaxrl.grid(algo.hparams, {"env.max_torque": [2.0, 4.0]}))
    with pytest.raises(ValueError, match=r"env\.max_steps_in_episode takes whole numbers, got 3\.9"):
        run(algo, jaxrl.grid(algo.hparams, {"env.max_steps_in_episode": [2.0, 3.9]}))
    with pytest.raises(ValueError, match=r"env\.max_steps_in_episode must be at least 1, got 0"):
        run(algo, jaxrl.grid(algo.hparams, {"env.max_steps_in_episode": [5, 0]}))
    with pytest.raises(ValueError, match=r"env\.max_steps_in_episode must be at least 1, got -1"):
        run(algo, env_params=dataclasses.replace(algo.env.default_params, max_steps_in_episode=-1))
    for limit in (7.5, np.inf):
        with pytest.raises(ValueError, match=rf"env\.max_steps_in_episode must be a whole number, got {limit}"):
            run(algo, env_params=dataclasses.replace(algo.env.default_params, max_steps_in_episode=limit))


def test_a_number_of_numpy_is_a_number_of_seeds(algo: Algorithm) -> None:
    assert run(algo, seeds=np.int64(2)).seeds == [0, 1]


@pytest.mark.slow
def test_precision_in_force_is_kept_and_recorded(algo: Algorithm) -> None:
    with jax.default_matmul_precision("highest"):
        assert run(algo).metrics.attrs["precision"] == "highest"


def test_an_existing_result_is_kept_unless_forced(algo: Algorithm, tmp_path: Any) -> None:
    run(algo, seeds=1, out=tmp_path / "x")
    with pytest.raises(FileExistsError, match="force"):
        run(algo, seeds=2, out=tmp_path / "x")
    assert jaxrl.load_result(tmp_path / "x").seeds == [0]
    run(algo, seeds=2, out=tmp_path / "x", force=True)
    assert jaxrl.load_result(tmp_path / "x").seeds == [0, 1]


def test_two_calls_do_not_train_into_one_directory(algo: Algorithm, tmp_path: Any) -> None:
    def second_call(env_step: int, metrics: Any) -> None:
        with pytest.raises(FileExistsError, match=r"x is in use by another run that is still training"):
            run(algo, out=tmp_path / "x", force=True)
        seen.append(env_step)

    seen: list[int] = []
    run(algo, seeds=2, out=tmp_path / "x", on_chunk=second_call)
    assert seen
    assert jaxrl.load_result(tmp_path / "x").seeds == [0, 1]
    run(algo, seeds=1, out=tmp_path / "x", force=True)


def test_a_result_that_came_while_claiming_is_kept(tmp_path: Any) -> None:
    directory = claim_directory(tmp_path / "x")
    (directory / "config.json").write_text('{"attributes": {}}')
    with pytest.raises(FileExistsError, match="holds a result already"), exclusive(directory):
        pass
    with exclusive(directory, force=True):
        pass


@pytest.mark.slow
def test_precision_is_recorded(algo: Algorithm) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(algo, precision="highest").metrics.attrs["precision"] == "highest"


@pytest.mark.slow
def test_env_steps_of_a_long_run_do_not_wrap(algo: Algorithm) -> None:
    program = jaxrl.make_train(algo, env_steps=2**33, evals=2, eval_episodes=2)
    assert jax.eval_shape(program, jax.random.key(0)).env_steps.dtype == jnp.float32
    short = jaxrl.make_train(algo, env_steps=PER_ITERATION, evals=1, eval_episodes=2)
    assert jax.eval_shape(short, jax.random.key(0)).env_steps.dtype == jnp.int32


def test_observations_that_replay_has_lost_are_reported() -> None:
    algo = wandering()

    def step(*arguments: Any) -> Any:
        state, metrics = algo.step(*arguments)
        return state, metrics | {"replay_lost": jnp.where(arguments[1] == 1, 7.0, 0.0)}

    sentence = r"^episodes were so short that up to 3.5 of their last observations per iteration were lost"
    with pytest.warns(RuntimeWarning, match=sentence):
        jaxrl.train(algo._replace(step=step), env_steps=4 * 16, evals=2, eval_episodes=1, progress=False)


def test_episodes_that_begin_alike_are_reported() -> None:
    algo = wandering()

    def step(*arguments: Any) -> Any:
        state, metrics = algo.step(*arguments)
        return state, metrics | {"reset_reuse": jnp.where(arguments[1] == 1, 7.0, 0.0)}

    again = algo._replace(step=step, config=CONFIG)
    sentence = r"^episodes were so short that up to 3.5 per iteration .*; PPOConfig\(reset_pool=16\) has a new state"
    with pytest.warns(RuntimeWarning, match=sentence):
        jaxrl.train(again, env_steps=4 * 16, evals=2, eval_episodes=1, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxrl.train(again, env_steps=16, evals=1, eval_episodes=1, progress=False)
