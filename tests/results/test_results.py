"""Results: labels, tables, the choice of a run, and the run directory."""

import csv
import dataclasses
import gc
import json
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import agents
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import xarray
from previous_format import write_json

from envs.base import spaces
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli.main import main
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning.actor import Actor, memoryless
from jaxrl.results.dataset import UNKNOWN, ResultError, metrics_dataset, unknown_algorithm
from jaxrl.results.loading import load_result
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.results.storage import FILES, claim_directory, write_csv

LRS, DISCOUNTS = (3e-4, 1e-3), ("exp:gamma=0.98", "beta:mu=0.98,eta=0.5", "hyperbolic:k=0.02")
SEEDS, ENV_STEPS = range(10, 15), (0, 500)
NUM_SETTINGS = len(LRS) * len(DISCOUNTS)


class LinearPolicy(NamedTuple):
    """The policy of the small algorithm of these tests."""

    weight: Any
    normalisation: dict[str, Any]


class SmallEnv:
    """An environment that only has observations, of three numbers."""

    name = "small"
    default_params = None

    def reset_env(self, key, params):
        return jnp.zeros(3), jnp.zeros(())

    def action_mask(self, state, params):
        return None

    def observation_space(self, params):
        return spaces.Box(-1.0, 1.0, (3,))


def small_algorithm(width=3):
    def scores(policy, obs, mask):
        return {"logit": (obs - policy.normalisation["mean"]) @ policy.weight}

    def choose(noise, scores, greedy, mask):
        action = scores["logit"] if greedy else scores["logit"] + noise
        return action, action

    return Algorithm(
        name="small",
        env=SmallEnv(),  # pyright: ignore[reportArgumentType]
        config=None,
        hparams=None,
        init=lambda key, hparams, env_params: jax.random.normal(key, (width,)),
        step=lambda key, iteration, state, hparams, env_params: (state, {}),
        policy=lambda state, hparams: LinearPolicy(state, {"mean": jnp.zeros(3)}),
        actor=memoryless(scores, jax.random.normal, choose),
        env_steps_per_iteration=1,
    )


def small_sweep():
    coords = {"lr": (("lr",), list(LRS)), "discount": (("discount",), list(DISCOUNTS))}
    return SimpleNamespace(dims=("lr", "discount"), shape=(len(LRS), len(DISCOUNTS)), coords=coords)


def numbers():
    """Values that encode their setting, seed and point."""
    s, n, e = np.meshgrid(np.arange(NUM_SETTINGS), np.arange(len(SEEDS)), np.arange(len(ENV_STEPS)), indexing="ij")
    return (100 * s + 10 * n + e).astype(np.float32)


def small_result(algo=None, values=None, sweep: Any = "full"):
    returns = numbers() if values is None else values
    dataset = metrics_dataset(
        {"return": returns, "loss": -returns},
        seeds=SEEDS,
        env_steps=ENV_STEPS,
        sweep=small_sweep() if sweep == "full" else sweep,  # pyright: ignore[reportArgumentType]
        attrs={"algorithm": "small", "wall_time": 1.5, "deterministic": True, "failed": [1, 2]},
    )
    count = returns.shape[0]
    weight = np.arange(count * len(SEEDS) * 3, dtype=np.float32).reshape(count, len(SEEDS), 3)
    policies = LinearPolicy(weight, {"mean": np.zeros((count, len(SEEDS), 3), np.float32)})
    return Result(dataset, policies, small_algorithm() if algo is None else algo)


@pytest.fixture(autouse=True)
def no_recipe(monkeypatch):
    """The small algorithm has no builder, so it has no description from which it can be built."""

    def describe(algo):
        raise ValueError("the environment SmallEnv was made by hand.")

    monkeypatch.setattr(algorithms, "describe", describe, raising=False)


def test_dataset_is_labelled_row_major():
    metrics = small_result().metrics
    assert metrics["return"].dims == ("lr", "discount", "seed", "env_step")
    value = metrics["return"].sel(lr=1e-3, discount="beta:mu=0.98,eta=0.5", seed=12, env_step=500)
    assert float(value) == 100 * 4 + 10 * 2 + 1
    with pytest.raises(ValueError, match=r"values\['return'\] has shape"):
        metrics_dataset({"return": np.zeros((2, 1, 1))}, seeds=[0], env_steps=[1])


def test_settings_follow_the_rows():
    result = small_result()
    assert result.settings[4] == {"lr": 1e-3, "discount": "beta:mu=0.98,eta=0.5"}
    np.testing.assert_array_equal(result.values("return"), numbers())


def test_a_sample_of_settings_keeps_its_coordinates():
    coords = {"lr": (("setting",), [1e-4, 2e-4, 3e-4]), "lam": (("setting",), [0.9, 0.95, 0.9])}
    sweep = SimpleNamespace(dims=("setting",), shape=(3,), coords=coords)
    result = small_result(values=numbers()[:3], sweep=sweep)
    assert result.settings[1] == {"lr": 2e-4, "lam": 0.95}
    assert result.policy(seed=10, lam=0.95).setting == {"lr": 2e-4, "lam": 0.95}
    with pytest.raises(ResultError, match=r"2 settings have lam=0.9; choose lr of 0.0001, 0.0003"):
        result.policy(seed=10, lam=0.9)


def test_table_prints_each_setting_with_its_interval():
    table = small_result().table()
    text = str(table)
    assert "return after 500 environment steps" in text and "95% bootstrap interval" in text
    assert len(text.splitlines()) == 2 + 1 + NUM_SETTINGS
    assert list(table.to_pandas().columns) == list(table.columns)
    row = dict(zip(table.columns, table.rows[3], strict=True))
    assert (row["lr"], row["discount"]) == (1e-3, "exp:gamma=0.98")
    runs = numbers()[3, :, -1]
    assert row["iqm"] == pytest.approx(np.sort(runs)[1:4].mean())
    assert row["low"] <= row["iqm"] <= row["high"]
    assert row["seeds"] == len(SEEDS) and "failed" not in table.columns
    with pytest.raises(ResultError, match=r"metric is 'retrun'; did you mean 'return'\?"):
        small_result().table("retrun")


def test_failed_runs_are_named_and_left_out():
    values = numbers()
    values[2, 1, 1] = np.nan
    values[5, :, 1] = np.inf
    result = small_result(values=values)
    assert result.failed[0] == ({"lr": 3e-4, "discount": "hyperbolic:k=0.02"}, 11)
    assert len(result.failed) == 1 + len(SEEDS)
    table = result.table()
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["failed"] for row in rows] == [0, 0, 1, 0, 0, 5]
    assert rows[2]["mean"] == pytest.approx(np.delete(values[2, :, 1], 1).mean())
    assert np.isnan(rows[5]["iqm"]) and "nan" in str(table)


def test_a_single_run_has_no_interval():
    values = numbers()
    values[1, 1:, 1] = np.nan
    table = small_result(values=values).table()
    rows = table.to_pandas()
    assert [rows[name].tolist()[1] for name in ("iqm", "mean", "seeds")] == [101, 101, 1]
    for end in ("low", "high"):
        np.testing.assert_array_equal(np.isnan(rows[end].to_numpy(float)), [False, True, False, False, False, False])
    line = str(table).splitlines()[2 + 1 + 1]
    assert line.split()[2:5] == ["101.0", "\N{EN DASH}", "101.0"] and "[" in str(table).splitlines()[3]


def test_table_of_a_single_setting():
    text = str(small_result(values=numbers()[:1], sweep=None).table("loss"))
    assert text.splitlines()[2].split() == ["iqm", "interval", "mean", "seeds"]


@pytest.mark.parametrize("lr", [1e-3, np.float32(1e-3), "0.001"])
def test_policy_is_the_one_of_the_labels(lr):
    result = small_result()
    policy = result.policy(lr=lr, discount="beta:mu=0.98,eta=0.5", seed=12)
    np.testing.assert_array_equal(policy.params.weight, result.policies.weight[4, 2])
    obs = np.array([1.0, 2.0, 3.0], np.float32)
    assert float(policy(obs)) == pytest.approx(float(obs @ result.policies.weight[4, 2]))


def test_policy_understands_other_spellings_of_a_discount():
    from jaxrl.discounts.parsing import as_discount

    policy = small_result().policy(lr=1e-3, discount="beta:0.98,0.5", seed=12)
    assert policy.setting["discount"] == "beta:mu=0.98,eta=0.5"
    assert small_result().policy(lr=1e-3, discount=0.98, seed=12).setting["discount"] == str(as_discount(0.98))


def test_policy_takes_batches_and_samples():
    policy = small_result().policy(lr=1e-3, discount="exp:gamma=0.98", seed=10)
    obs = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    actions = policy(obs)
    assert actions.shape == (2, 4)
    # One batched product against single ones: three float32 terms of up to 24 * 50, in another order.
    np.testing.assert_allclose(actions[1, 2], policy(obs[1, 2]), rtol=4 * float(np.finfo(np.float32).eps))
    sampled = policy(np.zeros((64, 3), np.float32), key=jax.random.key(1), greedy=False)
    assert len(np.unique(sampled)) == 64
    with pytest.raises(ValueError, match="takes a random key"):
        policy(obs, greedy=False)
    with pytest.raises(ValueError, match=r"obs has the shape \(2,\); the environment's is \(3,\)"):
        policy(np.zeros(2))


def test_policy_asks_for_the_mask_of_an_environment_that_forbids_actions():
    def first_allowed(noise: Any, scores: Any, greedy: Any, mask: Any) -> Any:
        return jnp.argmax(mask, -1), None

    actor = memoryless(lambda policy, obs, mask: {}, jax.random.normal, first_allowed)
    env = agents.Crowd(2, masked=True)
    policy = TrainedPolicy(small_algorithm()._replace(env=env, actor=actor), {})
    obs, state = env.reset_env(jax.random.key(0), env.default_params)
    with pytest.raises(ValueError, match=r"mask is None, but Crowd forbids actions; it takes the result of env\."):
        policy(obs)
    mask = env.action_mask(state, env.default_params)
    assert mask is not None and obs is not None
    np.testing.assert_array_equal(policy(obs, mask=mask), [1, 0])
    np.testing.assert_array_equal(policy(obs[None], mask=mask[None]), [[1, 0]])
    with pytest.raises(ValueError, match=r"mask has the shape \(1, 3\); it takes \(2, 3\)"):
        policy(obs, mask=mask[:1])


def counting(env: Any) -> TrainedPolicy:
    """An actor that acts by the number of steps that each agent remembers."""

    def scores(policy: Any, memory: Any, obs: Any, mask: Any) -> Any:
        return {"steps": memory["steps"]}, {"steps": memory["steps"] + policy}

    def choose(noise: Any, scores: Any, memory: Any, greedy: Any, mask: Any) -> Any:
        return scores["steps"], None, memory

    actor = Actor(lambda policy: {"steps": jnp.zeros((), jnp.int32)}, scores, jax.random.normal, choose)
    return TrainedPolicy(small_algorithm()._replace(env=env, actor=actor), jnp.int32(1))


@pytest.mark.parametrize("batch", [(), (4,), (2, 4)], ids=str)
def test_a_policy_that_remembers_takes_and_returns_its_memory(batch: tuple[int, ...]):
    policy = counting(agents.Crowd(2))
    assert policy.remembers and not small_result().policy(lr=1e-3, discount=0.98, seed=12).remembers
    obs, memory = np.zeros((*batch, 2, 2), np.float32), policy.initial_memory(*batch)
    for step in range(3):
        action, memory = policy(obs, memory=memory)
        np.testing.assert_array_equal(action, np.full((*batch, 2), step))
    ended = np.broadcast_to([True, False], (*batch, 2))
    np.testing.assert_array_equal(policy.remembered(memory, ended)["steps"], np.where(ended, 0, 3))
    over = np.zeros(batch, bool)
    np.testing.assert_array_equal(policy.remembered(memory, over)["steps"], memory["steps"])
    np.testing.assert_array_equal(policy.remembered(memory, ~over)["steps"], policy.initial_memory(*batch)["steps"])


@pytest.mark.parametrize(("shape", "holds"), [((), "obs holds 1 nan among 3 numbers"), ((2,), "1 nan among 6 numbers")])
def test_an_observation_with_nan_gets_no_action(shape, holds):
    policy, obs = small_result().policy(lr=1e-3, discount=0.98, seed=12), np.zeros((*shape, 3), np.float32)
    policy(obs)
    obs[(0,) * len(shape) + (1,)] = np.nan
    with pytest.raises(ValueError, match=holds):
        policy(obs)
    assert jax.jit(policy)(obs).shape == shape  # nothing is known of traced numbers


def test_a_missing_or_wrong_memory_gets_one_sentence():
    policy, obs = counting(agents.Crowd(2)), np.zeros((4, 2, 2), np.float32)
    with pytest.raises(
        ValueError, match=r"^memory is None, but this policy remembers; it takes policy\.initial_memory\(\)"
    ):
        policy(obs)
    with pytest.raises(ValueError, match=r"^memory has the shapes \[\(2,\)\]; .* it takes \[\(4, 2\)\], as policy"):
        policy(obs, memory=policy.initial_memory())
    without = small_result().policy(lr=1e-3, discount=0.98, seed=12)
    with pytest.raises(ValueError, match=r"^memory has no effect on a policy without a memory; leave it out\.$"):
        without(np.zeros(3, np.float32), memory={"steps": 0})


@pytest.mark.parametrize(
    ("coords", "sentence"),
    [
        ({"lr": 1e-3, "seed": 12}, "choose discount of exp:gamma=0.98, beta:mu=0.98,eta=0.5, hyperbolic:k=0.02"),
        ({"lr": 2e-3, "seed": 12}, "lr is '0.002'; this result has 0.0003, 0.001"),
        ({"lam": 2e-3, "seed": 12}, "lam is not a coordinate; this result has the coordinates lr, discount"),
        ({"lr": 1e-3, "discount": "exp:gamma=0.98"}, "seed is missing; this result has 10, 11, 12, 13, 14"),
        ({"lr": 1e-3, "discount": "exp:gamma=0.98", "seed": 3}, "seed is 3; this result has 10, 11, 12, 13, 14"),
    ],
)
def test_unclear_choices_get_one_sentence(coords, sentence):
    with pytest.raises(ResultError) as caught:
        small_result().policy(**coords)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_saved_files_open_without_us(tmp_path):
    result = small_result()
    directory = result.save(tmp_path / "deep" / "run")
    assert sorted(file.name for file in directory.iterdir()) == sorted(FILES)
    dataset = xarray.load_dataset(directory / "metrics.nc")
    xarray.testing.assert_equal(dataset, result.metrics)
    assert dataset.attrs["wall_time"] == 1.5 and dataset.attrs["failed"] == "[1, 2]"
    frame = pandas.read_csv(directory / "metrics.csv")
    assert list(frame.columns) == ["lr", "discount", "seed", "env_step", "return", "loss"]
    assert len(frame) == numbers().size
    row = frame[(frame.lr == 1e-3) & (frame.discount == DISCOUNTS[1]) & (frame.seed == 12) & (frame.env_step == 500)]
    assert row["return"].item() == 421
    config = json.loads((directory / "config.json").read_text())
    assert config["sweep"]["coords"]["lr"] == {"dims": ["lr"], "values": list(LRS)}
    assert config["seeds"] == list(SEEDS) and {"python", "jax", "flax", "jaxrl"} <= set(config["versions"])


def test_the_table_has_every_digit_of_a_float32_and_no_more(tmp_path):
    values = numbers().astype(np.float32)
    values[0, :2] = [[0.1, 1e-7], [np.nan, np.inf]]
    small_result(values=values).save(tmp_path)
    with (tmp_path / "metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["return"] for row in rows[:4]] == ["0.1", "1e-07", "nan", "inf"]
    assert rows[0]["lr"] == repr(float(LRS[0])) and rows[0]["discount"] == DISCOUNTS[0]


def test_no_text_of_the_table_is_a_formula(tmp_path):
    coords = {"@name": (("@name",), ["=1+1", "-1", "+x", "plain"]), "lr": (("@name",), [-0.5, 1.0, 2.0, 3.0])}
    sweep = SimpleNamespace(dims=("@name",), shape=(4,), coords=coords)
    small_result(values=numbers()[:4], sweep=sweep).save(tmp_path)
    frame = pandas.read_csv(tmp_path / "metrics.csv")
    assert list(frame.columns)[:2] == ["'@name", "lr"]
    assert frame["'@name"].unique().tolist() == ["'=1+1", "-1", "'+x", "plain"]
    assert frame["lr"].tolist()[0] == -0.5
    write_csv(tmp_path / "rows.csv", ["=a", "b"], [["=1", -1.0], ["1", float("nan")]])
    assert (tmp_path / "rows.csv").read_bytes() == b"'=a,b\r\n'=1,-1.0\r\n1,nan\r\n"


def test_the_table_is_there_as_parquet_too_where_pyarrow_is(tmp_path, monkeypatch):
    small_result().save(tmp_path)
    frame, table = pandas.read_parquet(tmp_path / "metrics.parquet"), pandas.read_csv(tmp_path / "metrics.csv")
    assert frame["loss"].dtype == small_result().values("loss").dtype
    pandas.testing.assert_frame_equal(frame, table, check_dtype=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    small_result(values=numbers() + 1).save(tmp_path, force=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(set(FILES) - {"metrics.parquet"})


@flax.struct.dataclass
class SmallHParams:
    """Hyper-parameters of all kinds: swept, common, infinite, and a discount."""

    lr: Any
    lam: Any
    anneal_env_steps: Any
    discount: Any


def test_configuration_shows_the_hyper_parameters_that_ran(tmp_path):
    def full(value):
        return np.full(NUM_SETTINGS, value, np.float32)

    lrs = np.repeat(np.asarray(LRS, np.float32), len(DISCOUNTS))
    hparams = SmallHParams(lrs, full(0.95), full(np.inf), Exponential(full(0.98)))
    result = dataclasses.replace(small_result(), hparams=hparams)
    result.metrics = result.metrics.drop_vars("discount")
    result.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(), parse_constant=pytest.fail)
    assert config["hparams"] == {
        "lr": [3e-4, 3e-4, 3e-4, 1e-3, 1e-3, 1e-3],
        "lam": 0.95,
        "anneal_env_steps": "inf",
        "discount": "exp:gamma=0.98",
    }


def test_load_gives_back_the_policies(tmp_path):
    result = small_result()
    result.save(tmp_path / "run")
    loaded = load_result(tmp_path / "run", algo=small_algorithm())
    assert isinstance(loaded.policies, LinearPolicy)
    jax.tree.map(np.testing.assert_array_equal, loaded.policies, result.policies)
    xarray.testing.assert_equal(loaded.metrics, result.metrics)
    choice = {"lr": 1e-3, "discount": "hyperbolic:k=0.02", "seed": 11}
    obs = np.ones(3, np.float32)
    assert float(loaded.policy(**choice)(obs)) == float(result.policy(**choice)(obs))
    assert loaded.settings == result.settings and str(loaded.table()) == str(result.table())


def test_a_described_algorithm_is_built_again(tmp_path, monkeypatch):
    spec = {"algorithm": "small", "environment": {"name": "small", "static": {}}, "config": {"width": 3}}
    built = []
    monkeypatch.setattr(algorithms, "describe", lambda algo: spec)
    monkeypatch.setattr(
        algorithms, "build", lambda description, allow: built.append(description) or small_algorithm(), raising=False
    )
    small_result().save(tmp_path / "run")
    assert load_result(tmp_path / "run").policy(lr=1e-3, discount="exp:gamma=0.98", seed=10).algo.name == "small"
    assert built == [spec]


def test_an_unknown_algorithm_is_asked_for(tmp_path):
    small_result().save(tmp_path / "run")
    loaded = load_result(tmp_path / "run")
    with pytest.raises(ResultError, match=r"SmallEnv was made by hand\): pass algo= to load_result in Python"):
        loaded.policy(lr=1e-3, discount="exp:gamma=0.98", seed=10)
    loaded.save(tmp_path / "again")
    again = load_result(tmp_path / "again", algo=small_algorithm())
    jax.tree.map(np.testing.assert_array_equal, again.policies, small_result().policies)


@pytest.mark.parametrize("interrupted", [0, 1])
def test_a_new_call_in_the_directory_of_a_stopped_run_is_shown_how_to_continue(tmp_path, interrupted):
    small_result().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["attributes"]["interrupted"] = interrupted
    write_json(tmp_path / "config.json", config)
    with pytest.raises(FileExistsError) as refused:
        claim_directory(tmp_path)
    assert ("was stopped: resume it with --resume (resume=True)" in str(refused.value)) is bool(interrupted)
    assert "--force (force=True)" in str(refused.value)


def test_never_overwrites_without_force(tmp_path):
    small_result().save(tmp_path)
    with pytest.raises(FileExistsError, match=r"holds a result already.*--force \(force=True\)"):
        small_result().save(tmp_path)
    with pytest.raises(FileExistsError):
        claim_directory(tmp_path)
    small_result(values=numbers() + 1).save(tmp_path, force=True)
    loaded = load_result(tmp_path)
    assert float(loaded.metrics["return"].min()) == 1.0


def test_unwritable_directory_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResultError, match="cannot be written"):
        small_result().save(tmp_path / "file" / "run")


def test_an_interrupted_write_leaves_the_old_result(tmp_path, monkeypatch):
    small_result().save(tmp_path)
    monkeypatch.setattr(np, "savez", lambda *args, **leaves: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        small_result(values=numbers() + 1).save(tmp_path, force=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(FILES)
    assert float(load_result(tmp_path).metrics["return"].min()) == 0.0


def test_missing_results_get_one_sentence(tmp_path):
    with pytest.raises(ResultError, match="no such directory"):
        load_result(tmp_path / "nothing")
    small_result().save(tmp_path)
    (tmp_path / "policies.npz").unlink()
    with pytest.raises(ResultError, match=r"policies\.npz is missing"):
        load_result(tmp_path)


@pytest.mark.parametrize("name", ["metrics.nc", "policies.npz", "config.json"])
@pytest.mark.parametrize("content", [b"", b"{not it", "half"])
def test_damaged_results_get_one_sentence(tmp_path, name, content):
    small_result().save(tmp_path)
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if content == "half" else content)
    with pytest.raises(ResultError, match=name) as caught:
        load_result(tmp_path)
    assert "\n" not in str(caught.value)


def test_policies_of_another_algorithm_are_refused(tmp_path):
    small_result().save(tmp_path)
    with pytest.raises(ResultError, match=r"\.weight is float32\[6, 5, 3\], not float32\[6, 5, 7\]"):
        load_result(tmp_path, algo=small_algorithm(width=7))


def test_a_damaged_head_prints_nothing_besides_the_sentence(tmp_path, monkeypatch):
    """A netCDF reader must not complain about a half open file while it is discarded."""
    small_result().save(tmp_path)
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    file = tmp_path / "metrics.nc"
    whole = file.read_bytes()
    refused = 0
    for at in range(0, 1024, 16):
        file.write_bytes(whole[:at] + b"\xff" * 16 + whole[at + 16 :])
        try:
            load_result(tmp_path)
        except ResultError as error:
            assert "\n" not in str(error)
            refused += 1
    gc.collect()
    assert refused > 0 and not complaints


def test_the_main_metric_of_a_result_needs_no_name() -> None:
    regret = {"pulls": np.ones((1, 2, 3, 4)), "regret": np.arange(6.0).reshape(1, 2, 3)}
    dims: Any = {"seeds": [0, 1], "env_steps": [1, 2, 3], "last_dims": {"pulls": ("arm",)}}
    result = Result(metrics_dataset(regret, **dims), {})
    assert result.table().title.startswith("regret after 3 ") and result.plot().get_ylabel() == "regret"
    with pytest.raises(ResultError, match=r"metric is 'pulls', which has a number for each arm; choose one"):
        result.table("pulls")


def test_an_unknown_algorithm_in_a_shell_is_asked_for_in_python(tmp_path, capsys):
    small_result().save(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "pass algo= to load_result in Python" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            "it was made by hand",
            "This result's algorithm is unknown (it was made by hand): pass algo= to load_result in Python.",
        ),
        ("pass allow='m' (--allow m)", "This result's algorithm is unknown (pass allow='m' (--allow m))."),
    ],
)
def test_an_unknown_algorithm_has_one_remedy(reason: str, sentence: str):
    assert str(unknown_algorithm(xarray.Dataset(attrs={UNKNOWN: reason}))) == sentence
