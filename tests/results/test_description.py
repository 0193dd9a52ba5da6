"""Descriptions of results in run directories, written and read back."""

import dataclasses
import json
from typing import Any

import agents
import flax.struct
import jax
import numpy as np
import pytest
from previous_format import write_json

import envs
import jaxrl
from jaxrl.algorithms import registry as algorithms
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result

PPO = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=8, num_minibatches=2, hidden=(4,)))


def untrained(hparams, sweep=None, env_params=None, algo=PPO, seeds=(0,)):
    """A result of PPO as returned by `train`, without the training."""
    settings = 1 if sweep is None else len(sweep)
    if sweep is None:
        hparams = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], hparams)
    prepared = algo.prepare(algo.hparams)
    policy = algo.policy(algo.init(jax.random.key(0), prepared, algo.env.default_params), prepared)
    policies = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (settings, len(seeds), *leaf.shape)), policy)
    dataset = metrics_dataset({"return": np.zeros((settings, len(seeds), 1))}, seeds=seeds, env_steps=[16], sweep=sweep)
    return Result(dataset, policies, algo, hparams, env_params)


def assert_same_tree(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def config_in(directory):
    config = json.loads((directory / "config.json").read_text(), parse_constant=pytest.fail)
    return {name: value for name, value in config.items() if name not in ("checksum", "files")}


@pytest.mark.slow_rows("exp:gamma=0.97")
@pytest.mark.parametrize("discount", ["exp:gamma=0.97", "beta:mu=0.98,eta=0.3", "table:1,0.9,0.5"])
def test_load_gives_back_the_hyper_parameters(tmp_path, discount):
    ran = PPO.hparams.replace(lr=1e-3, discount=jaxrl.as_discount(discount), clip_eps=0.3)
    result = untrained(ran)
    loaded = load_result(result.save(tmp_path / "run"))
    assert_same_tree(loaded.hparams, result.hparams)
    assert loaded.algo is not None and str(loaded.algo.hparams.discount) == discount
    assert (loaded.algo.hparams.lr, loaded.algo.hparams.clip_eps) == (1e-3, 0.3)
    assert loaded.algo.hparams.max_grad_norm == PPO.hparams.max_grad_norm
    assert loaded.algo.hparams.anneal_env_steps == np.inf and loaded.algo.hparams.log_std_init is None
    loaded.save(tmp_path / "again")
    assert config_in(tmp_path / "again") == config_in(tmp_path / "run")


def test_load_gives_back_the_hyper_parameters_of_a_sweep(tmp_path):
    values = {"value_clip": [0.2, np.inf], "discount": [0.9, "beta:0.98,0.5", "hyperbolic:0.02"]}
    sweep = jaxrl.grid(PPO.hparams.replace(lr=1e-3), values)
    loaded = load_result(untrained(sweep.hparams, sweep).save(tmp_path / "run"))
    assert_same_tree(loaded.hparams, sweep.hparams)
    assert loaded.algo is not None
    assert_same_tree(loaded.algo.hparams, PPO.hparams)  # several settings have no single value
    inner = jaxrl.grid(PPO.hparams.replace(discount="beta:0.98,0.5"), {"discount.mu": [0.9, 0.99]})
    assert_same_tree(load_result(untrained(inner.hparams, inner).save(tmp_path / "mu")).hparams, inner.hparams)


def test_load_gives_back_curves_and_a_learned_drift_and_optimiser(tmp_path):
    learned = {"drift": "learned", "drift_width": 2, "optimiser": "learned", "optimiser_width": 2}
    algo = jaxrl.ppo(PPO.env, dataclasses.replace(PPO.config, **learned))
    drift, optimiser = (
        jax.tree.map(lambda leaf: leaf + np.float32(0.1), each) for each in (algo.hparams.drift, algo.hparams.optimiser)
    )
    ran = algo.hparams.replace(lr=jaxrl.Curve([1e-3, 3e-4, 0.0]), drift=drift, optimiser=optimiser)
    result = untrained(ran, algo=algo)
    loaded = load_result(result.save(tmp_path / "run"))
    assert config_in(tmp_path / "run")["hparams"]["lr"] == "curve:0.001,0.0003,0"
    assert_same_tree(loaded.hparams, result.hparams)
    assert loaded.algo is not None and (loaded.algo.hparams.lr, loaded.algo.hparams.drift) == (ran.lr, drift)
    assert loaded.algo.hparams.optimiser == optimiser and loaded.algo.config == algo.config
    sweep = jaxrl.grid(ran, {"clip_eps": [jaxrl.Curve([0.2, 0.1]), 0.3], "value_coef": [0.5, 1.0]})
    again = load_result(untrained(sweep.hparams, sweep, algo=algo).save(tmp_path / "sweep"))
    assert_same_tree(again.hparams, sweep.hparams)
    assert again.metrics.coords["clip_eps"].values.tolist() == ["curve:0.2,0.1", "curve:0.3,0.3"]


@pytest.mark.parametrize(
    "saved",
    [
        *(5, None, ["lr"], {"lr": 1e-3}, {"discount": "gone:1"}, {"lr": "exp:gamma=0.9"}, {"lr": None}, {"lr": [1]}),
        *({"lr": "curve:1"}, {"value_coef": "curve:1,2"}),
    ],
)
def test_saving_again_keeps_hyperparameters_that_cannot_be_restored(tmp_path, saved):
    untrained(PPO.hparams).save(tmp_path)
    config = config_in(tmp_path)
    whole = isinstance(saved, dict) and saved != {"lr": 1e-3}
    config["hparams"] = {**config["hparams"], **saved} if whole else saved  # pyright: ignore[reportGeneralTypeIssues]
    if saved == {"lr": [1]}:
        config["hparams"]["lr"] = [1e-3, 2e-3]
    config["versions"], config["devices"] = {"jaxrl": "9.0.1"}, ["abacus:0"]
    write_json(tmp_path / "config.json", config)
    loaded = load_result(tmp_path)
    assert loaded.hparams is None and loaded.algo is not None
    assert_same_tree(loaded.algo.hparams, PPO.hparams)
    loaded.save(tmp_path / "again")
    assert config_in(tmp_path / "again") == config


def test_saving_again_without_the_algorithm_keeps_its_configuration(tmp_path, monkeypatch):
    def describe(algo):
        raise ValueError("the environment was made by hand.")

    monkeypatch.setattr(algorithms, "describe", describe)
    result = untrained(PPO.hparams.replace(lr=1e-3))
    loaded = load_result(result.save(tmp_path / "run"))
    assert loaded.algo is None and config_in(tmp_path / "run")["name"] == "ppo"
    loaded.save(tmp_path / "again")
    again = config_in(tmp_path / "again")
    assert again.pop("attributes")["algorithm_unknown"] == "the environment was made by hand"
    assert again == {name: value for name, value in config_in(tmp_path / "run").items() if name != "attributes"}
    assert_same_tree(load_result(tmp_path / "again", PPO).hparams, result.hparams)


@flax.struct.dataclass
class Motor:
    """Parameters within parameters."""

    torque: Any = 2.0
    gears: Any = (1, 2)


@flax.struct.dataclass
class NestedParams(agents.CrowdParams):
    """Parameters of parts, one without end, and a word."""

    motor: Any = Motor()
    limit: Any = np.inf
    terrain: str = flax.struct.field(pytree_node=False, default="flat")


@dataclasses.dataclass(frozen=True)
class NestedCrowd(agents.Crowd):
    """A crowd with nested parameters."""

    @property
    def default_params(self) -> Any:
        return NestedParams()


def nested(terrain="flat"):
    motor = Motor(np.array([3.0], np.float32), (np.array([1], np.int32), np.array([4], np.int32)))
    limit, pay = np.array([-np.inf], np.float32), np.array([0.5], np.float32)
    params: Any = NestedParams(motor=motor, limit=limit, terrain=terrain)
    params = params.replace(pay=pay, max_steps_in_episode=np.array([7], np.int32))
    algo = jaxrl.ppo(NestedCrowd(), PPO.config)
    return untrained(algo.hparams, env_params=params, algo=algo)


def test_nested_parameters_of_the_environment_come_back(tmp_path):
    result = nested()
    result.save(tmp_path)
    assert config_in(tmp_path)["env_params"] == {
        "pay": [0.5],
        "motor.torque": [3.0],
        "motor.gears.0": [1],
        "motor.gears.1": [4],
        "limit": ["-inf"],
        "max_steps_in_episode": [7],
    }
    assert_same_tree(load_result(tmp_path, allow=__name__).env_params, result.env_params)


def test_parameters_that_are_no_numbers_are_distinguished(tmp_path):
    nested("hills").save(tmp_path)
    loaded = load_result(tmp_path, allow=__name__)
    with pytest.raises(ResultError, match=r"unknown \(its env_params are different from the environment's defaults"):
        loaded.policy()
    with pytest.raises(ResultError, match=r"it has env_params .different from the environment's defaults"):
        load_result(tmp_path, jaxrl.ppo(NestedCrowd(), PPO.config))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"env_params": 5},
            "does not fit the environment NestedCrowd.*: it has env_params 5, not max_steps_in_episode, ",
        ),
        (
            {"env_params": {"limit": [1.0]}},
            "the parameters limit, not max_steps_in_episode, pay, motor.torque, motor.gears.0",
        ),
        ({"limit": ["high"]}, r"its limit is not float32\[1\]"),
        ({"limit": {"a": 1}}, r"its limit is not float32\[1\]"),
        ({"limit": [[1.0], [1.0, 2.0]]}, r"its limit is not float32\[1\]"),
        ({"limit": [1.0, 2.0]}, r"its limit is not float32\[1\]"),
        ({"max_steps_in_episode": ["inf"]}, r"its max_steps_in_episode is not int32\[1\]"),
        ({"environment": {"name": "cartpole", "static": [1]}}, "describes an algorithm that cannot be built"),
        ({"environment": {"name": 5, "static": {}}}, "describes an algorithm that cannot be built"),
        ({"environment": 5}, "describes an algorithm that cannot be built"),
        ({"config": [1]}, "describes an algorithm that cannot be built"),
        ({"algorithm": ["ppo"]}, "describes an algorithm that cannot be built"),
    ],
)
def test_a_configuration_that_makes_no_sense_gets_one_sentence(tmp_path, change, sentence):
    nested().save(tmp_path)
    config = config_in(tmp_path)
    (config if set(change) <= set(config) else config["env_params"]).update(change)
    write_json(tmp_path / "config.json", config)
    with pytest.raises(ResultError, match=sentence) as caught:
        load_result(tmp_path, allow=__name__)
    assert "\n" not in str(caught.value)
