"""Evaluation in Python has the numbers of training and of `evaluate_result`, under any parameters."""

import pickle
from pathlib import Path
from typing import Any

import agents
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from untrained import LRS, SEEDS, SMALL, cartpole_result, filled, policy_of

import envs
import jaxrl
from envs.errors import UserError
from jaxrl.cli.main import main
from jaxrl.discounts.parsing import prepare
from jaxrl.policies import load_exported
from jaxrl.policies.crowds import adapted, params_in
from jaxrl.policies.runs import runs_of
from jaxrl.results.best import Best
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.sweeps.batching import batched_env_params

GRIP = {"grip": jaxrl.Uniform(1.0, 2.0)}
VARIED: Any = envs.wrappers.randomise(envs.make("racing"), GRIP)
AXES = ("eval.gravity", "eval.max_steps_in_episode")
EPISODES = 4  # a power of two, by which sums of rewards are divided exactly


@flax.struct.dataclass
class Halving:
    """A discount that only has a curve."""

    def curve(self, horizon: int) -> Any:
        return 0.5 ** jnp.arange(horizon + 1)


@pytest.fixture(scope="module")
def trained() -> Result:
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL))
    return jaxrl.train(algo, seeds=[3, 5], env_steps=16, evals=1, eval_episodes=EPISODES, progress=False)


@pytest.fixture(scope="module")
def result() -> Result:
    return cartpole_result()


def test_the_key_of_an_evaluation_in_training_gives_its_numbers(trained: Result) -> None:
    iteration = trained.metrics["env_step"].values[-1] // 8
    for run, seed in enumerate(trained.seeds):
        key = jax.random.fold_in(jax.random.split(jax.random.key(seed), 3)[2], iteration)
        again = jaxrl.evaluate(trained.policy(seed=seed), None, EPISODES, key)
        for name in ("return", "return_sampled", "length", "length_sampled"):
            assert again[name].dims == ("episode",)
            assert again[name].mean() == trained.values(name)[0, run, -1]
        assert again["seed"] == seed
    assert np.ptp(again["return_sampled"].values) > 0


def test_a_seed_gives_the_numbers_of_evaluate_result(result: Result) -> None:
    again = jaxrl.evaluate(result, episodes=EPISODES, key=7)
    assert again["return"].dims == ("lr", "seed", "episode")
    assert again["seed"].values.tolist() == SEEDS and again["lr"].values.tolist() == LRS
    whole = jaxrl.evaluate_result(result, EPISODES, key=7)
    for name in ("return", "return_sampled", "length"):
        np.testing.assert_array_equal(again[name].mean("episode"), whole.metrics[name].isel(env_step=0))
    alone = jaxrl.evaluate(result.policy(seed=5, lr=1e-2), episodes=EPISODES, key=7)
    np.testing.assert_array_equal(alone["return_sampled"], again["return_sampled"].sel(seed=5, lr=1e-2))
    other = jaxrl.evaluate(result, episodes=EPISODES, key=8)
    assert not np.array_equal(other["return_sampled"], again["return_sampled"])


def test_returns_under_any_discount_are_those_of_the_same_episodes(result: Result) -> None:
    """Every step of CartPole pays 1, so that a return is the sum of the weights of its steps."""
    plain = jaxrl.evaluate(result, episodes=EPISODES)
    assert not any(str(name).startswith("discounted") for name in plain.data_vars)
    for discount, weight in (
        ("hyperbolic:k=0.5", lambda t: 1 / (1 + 0.5 * t)),
        (0.9, lambda t: 0.9**t),
        (Halving(), lambda t: 0.5**t),
    ):
        under = jaxrl.evaluate(result, episodes=EPISODES, discount=discount)
        for suffix in ("", "_sampled"):
            lengths = under[f"length{suffix}"].values
            np.testing.assert_array_equal(lengths, plain[f"length{suffix}"].values)
            sums = np.cumsum(weight(np.arange(lengths.max(), dtype=np.float64)))[lengths.astype(int) - 1]
            # One rounding of a product and one of a sum in each of at most 500 steps.
            np.testing.assert_allclose(under[f"discounted_return{suffix}"], sums, rtol=1000 * 2**-24)
        assert under.attrs["eval_discount"] == str(jaxrl.as_discount(discount))


def test_the_discount_of_training_gives_the_discounted_returns_of_its_evaluation(trained: Result) -> None:
    iteration = trained.metrics["env_step"].values[-1] // 8
    key = jax.random.fold_in(jax.random.split(jax.random.key(3), 3)[2], iteration)
    discount = trained.algo.hparams.discount if trained.algo else None
    again = jaxrl.evaluate(trained.policy(seed=3), None, EPISODES, key, discount=discount)
    for name in ("discounted_return", "discounted_return_sampled"):
        np.testing.assert_allclose(again[name].mean(), trained.values(name)[0, 0, -1], rtol=1e-6)


def test_a_discount_with_a_curve_alone_reaches_the_longest_held_out_limit(result: Result) -> None:
    """Also where that is longer than the default limit: a long pole on a heavy cart falls slowly."""
    values = {"length": [1000.0], "masscart": [1e6], "max_steps_in_episode": [3, 600]}
    under = jaxrl.evaluate(result, episodes=EPISODES, env_params=values, discount=Halving())
    longest = under.sel({"eval.max_steps_in_episode": 600})
    assert float(longest["length_sampled"].max()) == 600.0
    assert np.isfinite(longest["discounted_return_sampled"]).all()
    np.testing.assert_allclose(longest["discounted_return_sampled"].max(), 2.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("discount", "error", "sentence"),
    [
        (
            np.array([0.9, 0.99]),
            ValueError,
            "^discount takes a single discount, such as 0.99 or 'hyperbolic:k=0.02', got",
        ),
        (
            prepare(0.9, 8),
            ValueError,
            "^discount takes a single discount, such as 0.99 .*, got Prepared",
        ),
        ("hyperbolik:k=1", ValueError, "^The discount 'hyperbolik:k=1' does not parse"),
        (True, TypeError, "^A discount is a number, a string or a Discount"),
    ],
)
def test_a_discount_that_is_not_one_is_refused_first(discount: Any, error: Any, sentence: str) -> None:
    for call in (jaxrl.evaluate, jaxrl.evaluate_result):
        with pytest.raises(error, match=sentence):
            call("no result", episodes=EPISODES, discount=discount)  # pyright: ignore[reportArgumentType]


def test_a_result_under_a_discount_has_the_optima_under_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    algo = jaxrl.ppo(envs.make("stopping"), jaxrl.PPOConfig(**SMALL))
    metrics = metrics_dataset({"return": np.zeros((1, 2, 1))}, seeds=SEEDS, env_steps=[8])
    result = Result(metrics, filled(algo, 1, 2), algo)
    again = jaxrl.evaluate_result(result, EPISODES, discount="hyperbolic:k=0.5")
    each = jaxrl.evaluate(result, episodes=EPISODES, discount="hyperbolic:k=0.5")
    for name in ("discounted_return", "discounted_return_sampled"):
        np.testing.assert_array_equal(each[name].mean("episode"), again.values(name)[0, :, 0])
    table = again.table("discounted_return").to_pandas()
    optimum = algo.env.optimum(discount=jaxrl.as_discount("hyperbolic:k=0.5"))
    assert table["optimum"].tolist() == [pytest.approx(optimum, rel=1e-5)]
    assert algo.env.optimum(discount=0.99) != pytest.approx(optimum, rel=0.1)  # which is that of the training
    again.save(tmp_path / "again")
    loaded = jaxrl.load_result(tmp_path / "again")
    assert loaded.algo is not None and loaded.algo.hparams == algo.hparams
    for other in (loaded, pickle.loads(pickle.dumps(again))):
        assert other.table("discounted_return").rows == again.table("discounted_return").rows
    command = ["evaluate", str(tmp_path / "again"), "--episodes", str(EPISODES), "--discount", "hyperbolic:k=0.5"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "every final policy, greedy and sampled; discounted_return is under hyperbolic:k=0.5\n" in printed
    for name in ("return", "discounted_return", "discounted_return_sampled"):
        assert f"\n{again.table(name)}\n" in printed
    plain = jaxrl.evaluate_result(loaded, EPISODES)
    assert "eval_discount" not in plain.metrics.attrs and "discounted_return" not in plain.metrics
    own = jaxrl.evaluate_result(result, EPISODES, discount=Halving())  # whose name does not tell its curve
    assert "optimum" not in own.table("discounted_return").columns


def test_values_of_parameters_are_axes_on_the_same_episodes(result: Result) -> None:
    values = {"gravity": [9.8, 30.0], "max_steps_in_episode": [3, 500]}
    under = jaxrl.evaluate(result, episodes=EPISODES, env_params=values)
    assert under["return"].dims == ("lr", "seed", *AXES, "episode")
    np.testing.assert_array_equal(under["length"].sel({AXES[1]: 3}), 3)
    usual = jaxrl.evaluate(result, episodes=EPISODES)
    for name in ("return", "return_sampled"):
        np.testing.assert_array_equal(under[name].sel(dict(zip(AXES, (9.8, 500), strict=True))), usual[name])
        assert not np.array_equal(under[name].sel(dict(zip(AXES, (30, 500), strict=True))), usual[name])
    params = envs.make("cartpole").default_params.replace(gravity=30.0)
    whole = jaxrl.evaluate(result, episodes=EPISODES, env_params=params)
    np.testing.assert_array_equal(whole["return"], under["return"].sel(dict(zip(AXES, (30, 500), strict=True))))


def test_each_run_meets_the_parameters_of_its_training(result: Result) -> None:
    limits: Any = envs.make("cartpole").default_params.replace(max_steps_in_episode=np.array([2, 5], np.int32))
    limits = jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), 2), limits)
    again = jaxrl.evaluate(Result(result.metrics, result.policies, result.algo, result.hparams, limits), episodes=2)
    np.testing.assert_array_equal(again["length"].transpose("lr", ...)[0], 2)
    np.testing.assert_array_equal(again["length"].transpose("lr", ...)[1], 5)


def test_a_curriculum_is_at_its_end() -> None:
    class Later(type(envs.make("cartpole"))):
        def params_at(self, params: Any, env_steps: Any) -> Any:
            return params.replace(gravity=params.gravity + env_steps)

    policy = policy_of(jaxrl.ppo(Later(), jaxrl.PPOConfig(**SMALL)))
    unknown = runs_of(policy, None, None, 0).env_params.gravity
    policy.training_env_steps = 100
    np.testing.assert_allclose(runs_of(policy, None, None, 0).env_params.gravity, unknown + 100)
    np.testing.assert_allclose(runs_of(policy, None, Later().default_params, 0).env_params.gravity, unknown)


def test_parameters_left_at_their_defaults_are_those_of_another_environment(tmp_path: Path) -> None:
    cartpole = envs.make("cartpole")
    limited, policy = envs.wrappers.time_limit(cartpole, 3), policy_of(jaxrl.ppo(cartpole, jaxrl.PPOConfig(**SMALL)))
    policy.env_params = single(cartpole)
    np.testing.assert_array_equal(jaxrl.evaluate(policy, limited, 2)["length"], 3)
    assert jaxrl.collect(policy, limited, episodes=2).sizes["step"] == 3
    with Image.open(jaxrl.render(limited, policy, tmp_path / "film.gif")) as film:
        assert getattr(film, "n_frames", 1) <= 4  # equal frames are one
    noisy = envs.wrappers.observation_noise(limited, 0.0)
    np.testing.assert_array_equal(jaxrl.evaluate(policy, noisy, 2)["length"], 3)
    policy.env_params = policy.env_params.replace(max_steps_in_episode=np.int32(5))
    np.testing.assert_array_equal(jaxrl.evaluate(policy, limited, 2)["length"], 5)
    np.testing.assert_array_equal(jaxrl.evaluate(policy, noisy, 2)["length"], 5)


def single(env: Any) -> Any:
    """The default parameters of an environment as those of one run."""
    return jax.tree.map(lambda leaf: leaf[0], batched_env_params(env, None, None))


def result_of(algo: Any, sweep: dict[str, Any]) -> Result:
    """A result as of two settings and 32 steps, and best policies of the first iteration."""
    settings, policies = jaxrl.grid(algo.hparams, sweep), filled(algo, 2, 1)
    metrics = metrics_dataset({"return": np.zeros((2, 1, 1))}, seeds=[3], env_steps=[32], sweep=settings)
    params = batched_env_params(algo.env, None, settings)
    best = Best(policies, np.ones((2, 1), np.int32), *[np.zeros((2, 1), np.float32)] * 3)
    return Result(metrics, policies, algo, settings.hparams, params, best=best)


@pytest.mark.parametrize(
    ("noisy", "name", "plain", "there"),
    [
        (False, "length", r"cartpole", "length"),
        (False, "inner.length", r"cartpole", "length"),
        (True, "length", r"observation_noise\(cartpole\)", "inner.length"),
    ],
)
def test_held_out_values_of_drawn_parameters_are_refused(noisy: bool, name: str, plain: str, there: str) -> None:
    drawn = envs.wrappers.randomise(envs.make("cartpole"), {"length": jaxrl.Uniform(0.25, 1.0)})
    env = envs.wrappers.observation_noise(drawn, 0.1) if noisy else drawn
    policy = TrainedPolicy(jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=2, num_steps=8, hidden=(4,))), params=None)
    sentence = rf"^env_params takes parameters that episodes do not draw, got '{name}', which \S* draws; as env, "
    with pytest.raises(ValueError, match=rf"{sentence}{plain}, without draws, takes '{there}'$"):
        jaxrl.evaluate(policy, env_params={name: [0.5]})
    with pytest.raises(ValueError, match=r"env\.gravity is not a parameter of \S*; did you mean"):
        jaxrl.evaluate(policy, env_params={"gravity": [5.0]})


def test_swept_parameters_are_kept_in_another_environment() -> None:
    algo = jaxrl.ppo(envs.make("memory/t-maze"), jaxrl.PPOConfig(**SMALL))
    result, longer = result_of(algo, {"env.length": [5, 20]}), envs.make("memory/t-maze", length=40)
    unswept = policy_of(algo)
    unswept.env_params = single(algo.env)
    for each, lengths in ((result, [5, 20]), (result.policy(**{"env.length": 20}), [20]), (unswept, [40])):
        assert runs_of(each, longer, None, 0).env_params.length.ravel().tolist() == lengths
    assert params_in(longer, unswept).length == 40


def test_a_mixture_that_the_environment_rejects_is_replaced_by_the_training() -> None:
    algo = jaxrl.ppo(envs.make("memory/t-maze"), jaxrl.PPOConfig(**SMALL))
    result, shorter = result_of(algo, {"env.length": [5, 60]}), envs.make("memory/t-maze", length=10)
    params = runs_of(result, shorter, None, 0).env_params
    assert (params.length.ravel().tolist(), params.max_steps_in_episode.ravel().tolist()) == ([5, 60], [44, 84])
    alone = params_in(shorter, result.policy(**{"env.length": 60}))
    assert (alone.length, alone.max_steps_in_episode) == (60, 84)


@pytest.mark.parametrize(("path", "widths"), [("width", (1.0, 0.2)), ("inner.width", (0.5, 0.08))])
def test_a_swept_parameter_is_not_one_of_the_same_name_inside(path: str, widths: tuple[float, float]) -> None:
    usual = VARIED.default_params
    here = usual.replace(width=0.5, inner=usual.inner.replace(width=0.2))

    class Other(type(VARIED)):
        @property
        def default_params(self) -> Any:
            return here

    params = adapted(Other(VARIED.inner, VARIED.parameters), VARIED, usual, [f"env.{path}"])
    assert (params.width, params.inner.width) == widths


def test_a_swept_parameter_inside_a_wrapper_is_not_one_of_the_wrapper() -> None:
    class Wide(type(envs.make("racing"))):
        @property
        def default_params(self) -> Any:
            return super().default_params.replace(width=0.2)

    params = adapted(envs.wrappers.randomise(Wide(), GRIP), VARIED.inner, VARIED.inner.default_params, ["env.width"])
    assert (params.width, params.inner.width) == (1.0, 0.08)


def test_a_policy_of_the_best_evaluation_meets_the_end_of_a_curriculum() -> None:
    varied = envs.wrappers.randomise(envs.make("cartpole"), {"length": jaxrl.Uniform(0.25, 1.0)})
    result = result_of(jaxrl.ppo(varied, jaxrl.PPOConfig(**SMALL)), {"env.widening_env_steps": [32.0, 64.0]})
    of_best = result.with_policies("best")
    for each in (result, of_best):
        assert runs_of(each, None, None, 0).env_params.width.ravel().tolist() == [1.0, 0.5]
    for each in (result.policy(kept="best", **LATER), of_best.policy(**LATER)):
        policy = pickle.loads(pickle.dumps(each))
        assert (policy.env_steps, policy.training_env_steps) == (8, 32)
        assert runs_of(policy, None, None, 0).env_params.width.ravel().tolist() == [0.5]
        assert params_in(varied, policy).width == 0.5


LATER: Any = {"env.widening_env_steps": 64.0}


def test_failed_runs_are_nan(result: Result) -> None:
    broken = jax.tree.map(np.copy, result.policies)
    jax.tree.leaves(broken)[0][1, 0] = np.nan
    metrics = result.metrics.copy(deep=True)
    metrics["return"][0, 1] = np.nan
    again = jaxrl.evaluate(Result(metrics, broken, result.algo, result.hparams), episodes=2)
    expected = np.array([[False, True], [True, False]])[..., None].repeat(2, -1)
    for values in again.data_vars.values():
        np.testing.assert_array_equal(np.isnan(values), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": None}, "policy must be a trained policy"),
        ({"policy": lambda obs: 0}, "policy must be a trained policy"),
        ({"env": "cartpole"}, "env must be an environment"),
        ({"env": envs.make("pendulum")}, "policy was trained on cartpole, whose observations or actions are unlike"),
        ({"episodes": 0}, "episodes must be a whole number of at least 1"),
        ({"episodes": 2.5}, "episodes must be a whole number"),
        ({"key": -1}, "key takes a whole number in"),
        ({"key": "a"}, "key takes one random key"),
        ({"env_params": {}}, "env_params takes at least one name"),
        ({"env_params": {"gravty": [1.0]}}, "gravty"),
        ({"env_params": {"gravity": []}}, "gravity"),
        ({"env_params": {"gravity": ["a"]}}, "gravity"),
        ({"env_params": {"max_steps_in_episode": [0]}}, "max_steps_in_episode must be at least 1"),
        ({"env_params": {3: [1.0]}}, "3"),
        ({"env_params": agents.CrowdParams()}, "env_params must be"),
    ],
)
def test_wrong_arguments_are_refused(result: Result, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        jaxrl.evaluate(**({"policy": result.policy(seed=3, lr=1e-3), "episodes": 1} | arguments))


def test_a_policy_keeps_the_length_of_its_training(trained: Result) -> None:
    policy = trained.policy(seed=3)
    assert isinstance(policy, TrainedPolicy) and policy.env_steps == trained.metrics["env_step"].values[-1]


def test_exported_weights_meet_the_parameters_of_their_training(tmp_path: Path) -> None:
    class Heavy(type(envs.make("cartpole"))):
        @property
        def default_params(self) -> Any:
            return super().default_params.replace(gravity=20.0, masspole=0.3)

    result = result_of(jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL)), {"env.gravity": [9.8, 15.0]})
    chosen: Any = {"env.gravity": 9.8}
    policy = result.policy(kept="best", **chosen)
    loaded = load_exported.load_weights(jaxrl.export_policy(policy, tmp_path / "policy.safetensors"))
    assert (loaded.setting, loaded.seed) == (policy.setting, 3) == ({"env.gravity": 9.8}, 3)
    assert (loaded.env_steps, loaded.training_env_steps) == (8, 32)
    for each in (policy, loaded):
        params = params_in(Heavy(), each)
        assert (params.gravity, params.masspole) == (np.float32(9.8), np.float32(0.3))


def test_weights_of_earlier_versions_do_not_state_the_length_of_the_training(
    trained: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = jaxrl.export_policy(trained.policy(seed=3), tmp_path / "policy.safetensors"), load_exported._read_spec

    def without_steps(*args: Any) -> dict[str, Any]:
        return {name: value for name, value in read(*args).items() if not name.endswith("env_steps")}

    assert load_exported.load_weights(file).training_env_steps == 16
    monkeypatch.setattr(load_exported, "_read_spec", without_steps)
    loaded = load_exported.load_weights(file)
    assert (loaded.env_steps, loaded.training_env_steps) == (None, None)
