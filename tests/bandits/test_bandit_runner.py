"""The runner of bandit policies: its counts, its labels, and the independence of runs."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs.bandits import BernoulliBandit, SequenceBandit
from envs.bandits.base import Bandit, BanditParams, BanditState, fresh
from jaxrl.bandits.runner import checkpoints, make_bandit_loop
from jaxrl.results.dataset import ResultError

ENV = BernoulliBandit(num_arms=3)
STEPS = 40


@dataclasses.dataclass(frozen=True)
class Swinging(Bandit):
    """Two arms that take turns at being the better one, and pay their values exactly."""

    num_arms: int = 2

    @property
    def name(self) -> str:
        return "swinging"

    @property
    def default_params(self) -> BanditParams:
        return BanditParams()

    @property
    def stationary(self) -> bool:
        return False

    def instance(self, key: jax.Array, params: Any) -> BanditState:
        del key, params
        return BanditState(**fresh(jnp.array([1.0, 0.25])))

    def reward(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> jax.Array:
        del key, params
        return state.values[action]

    def drift(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
        del key, action, params
        return dataclasses.replace(state, values=state.values[::-1])


def run(**arguments: Any) -> jaxrl.Result:
    defaults = {"steps": STEPS, "runs": 4, "points": [1, 7, STEPS], "progress": False}
    return jaxrl.run_bandit(jaxrl.bandits.ucb1(), ENV, **defaults | arguments)


def one_by_one(seed: int) -> dict[str, list[float]]:
    """One run of UCB1 in plain Python, pull by pull, with the keys that the runner documents."""
    instance_key, env_key, policy_key = jax.random.split(jax.random.key(seed), 3)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(policy_key, STEPS + 1), 3))
    params = ENV.default_params
    _, state = ENV.reset_env(instance_key, params)
    means = np.asarray(state.values, np.float64)
    pulls, sums = np.zeros(3), np.zeros(3)
    actual: dict[str, list[float]] = {name: [] for name in ("regret", "realised_regret", "optimal", "reward")}
    regret = realised = total = optimal = 0.0
    for t in range(STEPS):
        with np.errstate(all="ignore"):
            index = np.where(pulls > 0, sums / pulls + np.sqrt(2 * np.log(t) / pulls), np.inf)
        arm = int(order[np.argmax(index[order])])
        _, state, reward, _, _ = ENV.step_env(jax.random.fold_in(env_key, t), state, jnp.int32(arm), params)
        pulls[arm] += 1
        sums[arm] += float(reward)
        regret += means.max() - means[arm]
        realised += means.max() - float(reward)
        total += float(reward)
        optimal += arm == means.argmax()
        for name, value in (
            ("regret", regret),
            ("realised_regret", realised),
            ("optimal", optimal / (t + 1)),
            ("reward", total / (t + 1)),
        ):
            actual[name].append(value)
    actual["simple_regret"] = [means.max() - means[order[np.argmax(pulls[order])]]]
    actual["pulls"] = pulls.tolist()
    return actual


@pytest.mark.slow
def test_metrics_are_those_of_a_loop_in_plain_python() -> None:
    metrics = run().metrics
    assert metrics["regret"].dims == ("seed", "env_step")
    assert metrics["pulls"].dims == ("seed", "env_step", "arm")
    for seed in (0, 3):
        expected, recorded = one_by_one(seed), metrics.sel(seed=seed)
        for name in ("regret", "realised_regret", "optimal", "reward"):
            required = [expected[name][t - 1] for t in (1, 7, STEPS)]
            np.testing.assert_allclose(recorded[name], required, rtol=1e-6, atol=1e-6)  # float32 sums of 40 terms
        assert float(recorded["simple_regret"][-1]) == pytest.approx(expected["simple_regret"][0], abs=1e-6)
        assert recorded["pulls"][-1].values.tolist() == expected["pulls"]


@pytest.mark.fast_rows("10-3000-1008")
@pytest.mark.parametrize(("num_arms", "runs", "block"), [(10, 3000, 1008), (100, 489, 128), (2000, 40, 14)])
def test_a_block_holds_whole_vectors_and_no_more_arms_than_a_cache(num_arms: int, runs: int, block: int) -> None:
    devices = jax.local_devices(backend="cpu")[:1]
    options: dict[str, Any] = {"steps": 2, "points": [2], "progress": False, "devices": devices}
    env = BernoulliBandit(num_arms=num_arms)
    result = jaxrl.run_bandit(jaxrl.bandits.ucb1(), env, runs=runs, **options)
    assert result.metrics.attrs["block"] == block


@pytest.mark.slow
def test_runs_are_the_same_bit_for_bit_for_any_neighbours() -> None:
    together = run(runs=6, block=2).metrics
    alone = run(runs=[5, 2], block=2).metrics
    one_thread = run(runs=6, block=2, devices=jax.local_devices()[:1]).metrics
    for name in together.data_vars:
        assert np.array_equal(together[name].sel(seed=[5, 2]), alone[name])
        assert np.array_equal(together[name], one_thread[name])


@pytest.mark.slow
def test_a_block_that_shares_its_hyper_parameters_does_as_each_run_alone() -> None:
    policy, params = jaxrl.bandits.ucb1(), ENV.default_params
    loop, keys = make_bandit_loop(policy, ENV, STEPS), jax.random.split(jax.random.key(3), 4)
    runs = jax.vmap(loop.init, (0, None, None))(keys, policy.hparams, params)
    block = jax.jit(jax.vmap(loop.advance, (0, 0, None, None, None, None)))(runs, keys, policy.hparams, params, 0, 9)
    for i in (0, 3):
        alone = jax.jit(loop.advance)(
            jax.tree.map(lambda leaf, i=i: leaf[i], runs), keys[i], policy.hparams, params, 0, 9
        )
        pulls = alone.pulls.value
        assert np.array_equal(pulls, block.pulls.value[i]) and float(jnp.sum(pulls)) == 9
        assert np.allclose(alone.totals.sum, block.totals.sum[i], atol=1e-5)


def test_checkpoints_do_not_change_the_last_step() -> None:
    few, many = run(points=[STEPS]).metrics, run(points=list(range(1, STEPS + 1))).metrics
    for name in few.data_vars:
        assert np.array_equal(few[name].isel(env_step=-1), many[name].isel(env_step=-1))


@pytest.mark.slow
def test_equal_seeds_meet_the_same_instance_and_the_same_chances_in_every_setting() -> None:
    policy = jaxrl.bandits.ucb1()
    sweep = jaxrl.grid(policy.hparams, {"exploration": [0.0, 2.0], "env.alpha": [1.0, 20.0]})
    result = run(hparams=sweep)
    assert result.metrics["regret"].dims == ("exploration", "env.alpha", "seed", "env_step")
    values = result.policies["values"].reshape(2, 2, 4, 3)
    assert np.array_equal(values[0], values[1]) and not np.array_equal(values[:, 0], values[:, 1])
    first = result.metrics["reward"].isel(env_step=0)  # the first pull is of the same arm in every setting
    assert np.array_equal(first[0], first[1])
    assert result.table("regret").to_pandas().shape[0] == 4
    with pytest.raises(ValueError, match=r"^env\.means is not set in bandit/bernoulli; give it a value in env_params"):
        run(hparams=jaxrl.grid(policy.hparams, {"env.means": [0.1, 0.2]}))
    with pytest.raises(ValueError, match="no hyper-parameter 'explore'"):
        jaxrl.grid(policy.hparams, {"explore": [1.0]})


def test_where_values_change_regret_is_dynamic_and_another_is_against_the_best_arm_in_hindsight() -> None:
    result = jaxrl.run_bandit(jaxrl.bandits.ucb1(), Swinging(), steps=30, runs=1, points=[30], progress=False)
    last = result.metrics.isel(seed=0, env_step=-1)
    pulled = float(last["reward"]) * 30  # the values of the pulled arms, because rewards have no noise
    assert float(last["regret"]) == pytest.approx(30 * 1.0 - pulled, abs=1e-4)
    assert float(last["fixed_regret"]) == pytest.approx(15 * 1.25 - pulled, abs=1e-4)


def test_regret_is_that_of_the_values_at_the_pull() -> None:
    """UCB1 pulls both arms once, in either order; the first arm alone would earn 1 in all."""
    env = SequenceBandit(table=((1.0, 0.0), (0.0, 0.5), (0.25, 0.75)))
    result = jaxrl.run_bandit(jaxrl.bandits.ucb1(), env, steps=2, runs=16, points=[2], progress=False)
    last = result.metrics.isel(env_step=-1)
    rows = {tuple(float(last[name][i]) for name in ("reward", "regret", "fixed_regret")) for i in range(16)}
    assert rows == {(0.75, 0.0, -0.5), (0.0, 1.5, 1.0)}


@pytest.mark.slow_rows("True")
@pytest.mark.parametrize("redraw", [True, False])
def test_no_arm_is_recommended_for_features_that_are_gone(redraw: bool) -> None:
    env = envs.make("bandit/linear", num_arms=3, redraw=redraw)
    result = jaxrl.run_bandit(jaxrl.bandits.lin_ucb(), env, steps=20, runs=2, points=1, progress=False)  # type: ignore[arg-type]
    assert ("simple_regret" in result.metrics) == (not redraw)


def test_sums_of_a_million_terms_keep_their_digits() -> None:
    """0.1 is not a float32; a plain float32 sum of 10**5 of them has a relative error of 1e-4."""
    env = BernoulliBandit(means=(1.0, 0.9))
    result = jaxrl.run_bandit(
        jaxrl.bandits.ucb1(), env, jaxrl.bandits.UCB1HParams(1e6), steps=100_000, runs=1, points=1, progress=False
    )
    last = result.metrics.isel(seed=0, env_step=-1)
    gap = float(np.float32(1) - np.float32(0.9))
    assert float(last["pulls"][1]) > 40_000  # with so large a bonus both are pulled alike
    assert float(last["regret"]) == pytest.approx(gap * float(last["pulls"][1]), rel=1e-6)


def test_a_saved_result_loads_with_all_of_its_parts(tmp_path: Path) -> None:
    result = run(out=tmp_path / "run")
    loaded = jaxrl.load_result(tmp_path / "run")
    for name in result.metrics.data_vars:
        assert np.array_equal(result.metrics[name], loaded.metrics[name])
    assert loaded.dims == () and loaded.seeds == [0, 1, 2, 3]
    assert loaded.metrics.attrs["algorithm"] == "ucb1"
    assert loaded.plot("regret", path=tmp_path / "regret.png")
    assert (tmp_path / "run" / "metrics.csv").read_text().startswith("seed,env_step,")
    with pytest.raises(ResultError, match="bandit policy ucb1"):
        loaded.policy(seed=0)


def test_checkpoints_are_spaced_by_the_logarithm_or_as_asked() -> None:
    assert checkpoints(4, 10_000).tolist() == [10, 100, 1000, 10_000]
    assert checkpoints(50, 3).tolist() == [1, 2, 3]
    assert checkpoints([2, 5], 5).tolist() == [2, 5]


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"steps": 2**31}, ValueError, r"^steps must be at most 2147483647, which an int32 counts, got 2147483648$"),
        ({"steps": 0}, ValueError, "^steps must be a whole number of at least 1, got 0$"),
        ({"runs": 0}, ValueError, "^runs must be a whole number of at least 1, got 0$"),
        ({"runs": [1, 1]}, ValueError, "^runs must be a number or different whole numbers"),
        ({"points": 0}, ValueError, "^points must be a whole number of at least 1, got 0$"),
        ({"points": [5, 4]}, ValueError, "^points must be a number, or increasing whole numbers from 1 to steps=40"),
        ({"points": [5]}, ValueError, "^points must be a number, or increasing whole numbers from 1 to steps=40"),
        ({"hparams": {"exploration": 1}}, TypeError, "^hparams must be a UCB1HParams or a Sweep of them, got dict$"),
        ({"precision": "low"}, ValueError, "^precision must be one of"),
    ],
    ids=str,
)
def test_bad_arguments_get_one_sentence(arguments: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        run(**arguments)


def test_arguments_that_are_not_a_bandit_and_a_policy_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^env must be a bandit, such as envs\.make\('bandit/bernoulli'\), got CartPole"
    ):
        jaxrl.run_bandit(jaxrl.bandits.ucb1(), envs.make("cartpole"), steps=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"^policy must be a BanditAlgorithm, such as jaxrl\.bandits\.ucb1\(\)"):
        jaxrl.run_bandit("ucb1", ENV, steps=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"There is no bandit policy 'ucb'; did you mean"):
        jaxrl.bandits.policy("ucb")
    with pytest.raises(TypeError, match=r"^name must be the name of one policy, such as 'ucb1', got \['ucb1'\]$"):
        jaxrl.bandits.policy(["ucb1"])  # type: ignore[arg-type]


@pytest.mark.slow
def test_ppo_learns_a_bandit_like_any_environment() -> None:
    """Three arms that pay 0.1, 0.9 and 0.1; random pulls have a regret of 0.53 each."""
    env = envs.make("bandit/bernoulli", means=(0.1, 0.9, 0.1))
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=8, num_steps=50, hidden=(16,)))
    result = jaxrl.train(
        algo, algo.hparams.replace(lr=1e-2), seeds=2, env_steps=8_000, evals=1, eval_episodes=8, progress=False
    )
    assert np.all(result.metrics["optimal"] > 0.95)
    assert np.all(result.metrics["regret"] < 0.05 * 0.8 * 100)  # over an episode of 100 pulls


@pytest.mark.parametrize("means", ["abc", 0.5, [[0.1, 0.2]], [0.1, float("nan")]])
def test_means_that_are_no_numbers_get_one_sentence(means: Any) -> None:
    with pytest.raises(ValueError, match=r"^means must be a sequence of finite numbers, got"):
        envs.make("bandit/bernoulli", means=means)
