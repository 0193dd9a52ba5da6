"""Custom networks of every algorithm: shapes, errors, and training equal to that with an equal built-in network."""

import functools
import importlib
import pickle
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agents import Crowd
from linear_task import LinearTask
from quick_jit import quick_jit
from same_bits import assert_same_bits

import envs
import jaxrl
from envs import wrappers
from jaxrl.algorithms import registry
from jaxrl.algorithms.registry import ROWS, config_class
from jaxrl.cli import main as cli
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.networks import MLPActorCritic, dense, flatten_observation
from jaxrl.learning.output_networks import PolicyHead

ENCODER = MLPActorCritic(None, (8,), "relu")
NUMBERS, CHOICES = LinearTask(), LinearTask(discrete=True)


class ActionValues(nn.Module):
    """Action values with the layers of `QNetwork`."""

    encoder: nn.Module
    shape: tuple[int, ...] = (2,)

    @nn.compact
    def __call__(self, obs: Any) -> jax.Array:
        return dense(int(np.prod(self.shape)), 0.01, "advantage_out")(self.encoder(obs)).reshape(self.shape)


class Policy(nn.Module):
    """Outputs with the layers of `OutputNetwork`, and a value of 0 where `with_value`."""

    encoder: nn.Module
    num_outputs: int
    with_value: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        features = self.encoder(obs)
        if self.with_value:
            return PolicyHead(self.num_outputs, name="head")(features)
        return dense(self.num_outputs, 0.01, "out")(features)


class Value(nn.Module):
    """The value of an observation and an action with the layers of `OutputNetwork`."""

    encoder: nn.Module
    shape: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, obs: Any, action: jax.Array) -> jax.Array:
        features = self.encoder({"action": action, "observation": obs})
        return dense(int(np.prod(self.shape)), 1.0, "out")(features).reshape(self.shape)


class Case:
    """An algorithm on an environment, with custom networks equal to those of its configuration."""

    def __init__(self, name: str, env: Any, network: Any, **fields: Any):
        self.name, self.env, self.network, self.fields = name, env, network, fields

    def build(self, own: bool) -> Any:
        """The algorithm with its custom networks, or with those of the configuration."""
        fields = {**ROWS[self.name].small, "hidden": (8,), "activation": "relu", **self.fields}
        if own and not (isinstance(self.network, jaxrl.Networks) and None in vars(self.network).values()):
            fields = {name: value for name, value in fields.items() if name not in NetworkConfig().network_fields}
        config = config_class(BUILDERS[self.name])(**fields)
        return BUILDERS[self.name](self.env, config, self.network) if own else BUILDERS[self.name](self.env, config)


BUILDERS: dict[str, Any] = {name: getattr(jaxrl, name) for name in ROWS}
Q = ActionValues(ENCODER)
CASES = {
    "dqn": Case("dqn", CHOICES, Q),
    "dqn, joint heads of quantiles": Case(
        "dqn",
        CHOICES,
        ActionValues(ENCODER, (2, 3, 5)),
        heads="joint",
        num_heads=3,
        value_loss="quantile",
        num_atoms=5,
    ),
    "pqn": Case("pqn", CHOICES, Q, layer_norm=False),
    "sac": Case("sac", NUMBERS, jaxrl.Networks(actor=Policy(ENCODER, 4), critic=Value(ENCODER))),
    "sac, choices": Case("sac", CHOICES, jaxrl.Networks(actor=Policy(ENCODER, 2), critic=Q)),
    "td3": Case(
        "td3",
        NUMBERS,
        jaxrl.Networks(actor=Policy(ENCODER, 2), critic=Value(ENCODER)),
        normalise_observation=True,
    ),
    "td3, joint heads of quantiles": Case(
        "td3",
        NUMBERS,
        jaxrl.Networks(critic=Value(ENCODER, (3, 5))),
        heads="joint",
        num_heads=3,
        value_loss="quantile",
        num_atoms=5,
    ),
    "ppo": Case("ppo", CHOICES, MLPActorCritic(2, (8,), "relu")),
    "evolve": Case("evolve", CHOICES, Policy(ENCODER, 2, with_value=True)),
}
FAST = ("td3",)


def trained(algo: Any) -> Any:
    """State after two iterations, and their metrics."""
    params, states = algo.env.default_params, []
    state = quick_jit(algo.init)(jax.random.key(0), algo.hparams, params)
    step = quick_jit(algo.step)
    for i in range(2):
        state, metrics = step(jax.random.key(i), jnp.int32(i), state, algo.hparams, params)
        states.append((state, metrics))
    return states


@pytest.mark.seconds_to_compile(40)
@pytest.mark.filterwarnings("ignore:the 3 exponentials of the heads differ:RuntimeWarning")
@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_training_with_a_network_equal_to_the_configured_one_is_the_same(name: str) -> None:
    own, configured = (trained(CASES[name].build(own)) for own in (True, False))
    assert jax.tree.structure(own) == jax.tree.structure(configured)
    first, last = own
    assert not jax.tree.all(jax.tree.map(lambda one, two: np.array_equal(one, two), first, last))
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(configured), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_an_algorithm_knows_its_custom_network(name: str) -> None:
    algo = CASES[name].build(own=True)
    assert algo.network == CASES[name].network and CASES[name].build(own=False).network is None
    loaded = pickle.loads(pickle.dumps(algo))
    assert loaded.network == algo.network and loaded.step is algo.step


def layers(algo: Any) -> dict[str, set[str]]:
    """Names of the first layers of the policy and of the critics."""
    state = jax.eval_shape(algo.init, jax.random.key(0), algo.hparams, algo.env.default_params)
    names = {"policy": state.learner.policy, "critics": state.learner.critics}
    return {name: set(params["params"]) for name, params in names.items()}


class Linear(nn.Module):
    """A linear layer."""

    shape: tuple[int, ...]

    @nn.compact
    def __call__(self, obs: Any, *action: jax.Array) -> jax.Array:
        numbers = jnp.concatenate([flatten_observation(obs), *action])
        return nn.Dense(int(np.prod(self.shape)), name="linear")(numbers).reshape(self.shape)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_one_custom_network_leaves_the_other_to_the_configuration(name: str) -> None:
    for part, network, other in (
        ("policy", jaxrl.Networks(actor=Linear((4 if name == "sac" else 2,))), "critics"),
        ("critics", jaxrl.Networks(critic=Linear(())), "policy"),
    ):
        named = layers(Case(name, NUMBERS, network).build(own=True))
        assert named[part] == {"linear"} and named[other] == {"encoder", "out"}


def test_every_critic_has_parameters_of_its_own() -> None:
    algo = Case("sac", NUMBERS, jaxrl.Networks(critic=Linear(())), num_critics=3).build(own=True)
    state = quick_jit(algo.init)(jax.random.key(0), algo.hparams, algo.env.default_params)
    kernels = np.asarray(state.learner.critics["params"]["linear"]["kernel"])
    assert kernels.shape == (3, 4, 1) and len({kernel.tobytes() for kernel in kernels}) == 3


def test_agents_of_a_crowd_share_a_custom_network() -> None:
    algo = Case("dqn", Crowd(num_agents=2), Linear((3,))).build(own=True)
    state = jax.eval_shape(algo.init, jax.random.key(0), algo.hparams, algo.env.default_params)
    assert state.learner.acting.params["params"]["linear"]["kernel"].shape == (2, 3)


NAMED = wrappers.transform_observation(NUMBERS, lambda obs: {"first": obs[:1], "second": obs[1:]}, -9, 9)


@pytest.mark.parametrize(
    ("name", "env", "network"),
    [
        ("sac", Crowd(num_agents=2, masked=True), jaxrl.Networks(actor=Linear((3,)), critic=Linear((3,)))),
        ("td3", NAMED, jaxrl.Networks(actor=Linear((2,)), critic=Linear(()))),
    ],
    ids=["mask", "dictionary"],
)
def test_masks_and_dictionaries_leave_custom_networks_unchanged(name: str, env: Any, network: Any) -> None:
    algo = Case(name, env, network).build(own=True)
    hparams, params = algo.prepare(algo.hparams), env.default_params
    state = jax.eval_shape(algo.init, jax.random.key(0), hparams, params)
    after, _ = jax.eval_shape(algo.step, jax.random.key(0), jnp.int32(0), state, hparams, params)
    assert layers(algo) == {"policy": {"linear"}, "critics": {"linear"}}
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)


def test_a_preset_takes_a_custom_network() -> None:
    preset = jaxrl.preset("dqn", "cartpole")
    algo = preset.of(functools.partial(jaxrl.dqn, network=Q))
    assert algo.network == Q and algo.settings_from == preset.origin
    assert algo.config == preset.config and algo.hparams == preset.algo.hparams


class Listed(nn.Module):
    """A network without a hash."""

    widths: list[int]

    @nn.compact
    def __call__(self, obs: Any) -> jax.Array:
        return nn.Dense(2)(obs)


class Inconstant(nn.Module):
    """Linear layers with one more layer, which has variables of its own or draws random numbers."""

    what: str

    @nn.compact
    def __call__(self, obs: Any) -> jax.Array:
        if self.what == "drops":
            obs = nn.Dropout(0.5, deterministic=False)(obs)
        elif self.what == "counts":
            obs = nn.BatchNorm(use_running_average=False)(obs)
        return nn.Dense(2)(obs)


class Two(nn.Module):
    """A network for `ppo`."""

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        return nn.Dense(2)(obs), nn.Dense(1)(obs)[0]


JOINT = {"heads": "joint", "num_heads": 3}
REFUSED: list[tuple[str, Any, Any, dict[str, Any], str]] = [
    (
        "dqn",
        CHOICES,
        Linear((3,)),
        {},
        r"network must return action values \[2\] for one observation, got shape \(3,\)",
    ),
    ("pqn", CHOICES, Two(), {}, r"network must return action values \[2\] for one observation, got \(\(2,\), \(\)\)"),
    ("dqn", CHOICES, Linear((2,)), JOINT, r"network must return action values \[2, 3\] for .*, got shape \(2,\)"),
    *(
        (name, CHOICES, Value(ENCODER), {}, r"network .* called with \(obs\), got Value, which takes \(obs, action\)")
        for name in ("pqn", "ppo", "evolve")
    ),
    ("dqn", CHOICES, jaxrl.Networks(), {}, "network must be a flax.linen module, got Networks"),
    (
        "dqn",
        CHOICES,
        Linear,
        {},
        "network must be a flax.linen module, got the class Linear, of which it takes an instance",
    ),
    (
        "dqn",
        CHOICES,
        "mlp",
        {},
        r"network takes your own flax module, got 'mlp'; .*: dqn\(env, DQNConfig\(network='mlp'\)\)",
    ),
    (
        "sac",
        NUMBERS,
        Q,
        {},
        r"network takes the networks of sac as jaxrl.Networks\(actor=..., critic=...\), got ActionValues$",
    ),
    ("sac", NUMBERS, ActionValues, {}, r"network takes the networks of sac as jaxrl.Networks\(.*, got ActionValues$"),
    ("td3", NUMBERS, {"hidden": (8,)}, {}, r"network takes the networks of td3 as jaxrl.Networks\(.*, got dict$"),
    ("td3", NUMBERS, jaxrl.Networks(), {}, "network takes the networks of td3 as .*, of which one suffices, got none$"),
    (
        "sac",
        NUMBERS,
        jaxrl.Networks(actor=Linear((2,))),
        {},
        r"network.actor must return outputs \[4\] for one observation, got shape \(2,\)",
    ),
    (
        "sac",
        CHOICES,
        jaxrl.Networks(critic=Linear(())),
        {},
        r"network.critic must return action values \[2\] for one observation, got shape \(\)",
    ),
    (
        "td3",
        NUMBERS,
        jaxrl.Networks(critic=Linear((1,))),
        {},
        r"network.critic must return a value \[\] for one observation and one action, got shape \(1,\)",
    ),
    (
        "td3",
        NUMBERS,
        jaxrl.Networks(critic=Q),
        {},
        r"network.critic .* called with \(obs, action\), got ActionValues, which takes \(obs\)",
    ),
    ("td3", NUMBERS, jaxrl.Networks(actor="mlp"), {}, r"network.actor must be a flax.linen module, got str"),  # type: ignore[arg-type]
    (
        "dqn",
        CHOICES,
        Inconstant("drops"),
        {},
        "network must compute its outputs without random numbers, got Inconstant",
    ),
    ("pqn", CHOICES, Inconstant("counts"), {}, "network .* only variables, got Inconstant with 'batch_stats', such as"),
    ("ppo", CHOICES, Inconstant("counts"), {}, "network .* only variables, got Inconstant with 'batch_stats', such as"),
    *((name, CHOICES, Listed([8]), {}, "network must be hashable; use tuples") for name in ("dqn", "pqn", "evolve")),
    ("sac", CHOICES, jaxrl.Networks(actor=Listed([8])), {}, "network must be hashable; use tuples"),
]


@pytest.mark.parametrize(("name", "env", "network", "fields", "sentence"), REFUSED)
def test_a_network_that_does_not_fit_is_refused(name: str, env: Any, network: Any, fields: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{sentence}") as caught:
        Case(name, env, network, **fields).build(own=True)
    assert len(str(caught.value).splitlines()) == 1


UNUSED: list[tuple[str, Any, Any, dict[str, Any], str]] = [
    ("dqn", CHOICES, Linear((2,)), {"hidden": (5,), "dueling": True}, r"hidden=\(5,\), dueling=True have no effect"),
    ("pqn", CHOICES, Linear((2,)), {"activation": "gelu"}, "activation='gelu' has no effect"),
    ("ppo", CHOICES, Two(), {"shared_trunk": True}, "shared_trunk=True has no effect"),
    ("evolve", CHOICES, Two(), {"network": "cnn"}, "network='cnn' has no effect"),
    ("sac", CHOICES, jaxrl.Networks(actor=Linear((2,)), critic=Linear((2,))), {"hidden": ()}, r"hidden=\(\) has no e"),
]


@pytest.mark.parametrize(("name", "env", "network", "fields", "sentence"), UNUSED)
def test_a_setting_without_effect_beside_a_network_is_reported(
    name: str, env: Any, network: Any, fields: Any, sentence: str
) -> None:
    config = config_class(BUILDERS[name])(**fields)
    with pytest.warns(RuntimeWarning, match=f"^{sentence}.* with network=, which has layers of its own$") as caught:
        BUILDERS[name](env, config, network)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("part", ["actor", "critic"])
def test_a_network_as_an_argument_of_its_own_is_refused(part: str) -> None:
    sentence = rf"^td3 takes env, config, network, got {part}; .*: td3\(env, network=jaxrl.Networks\({part}=...\)\)$"
    with pytest.raises(TypeError, match=sentence):
        BUILDERS["td3"](NUMBERS, **{part: Linear((2,))})


RUN: dict[str, Any] = {"seeds": 2, "evals": 2, "eval_episodes": 2, "progress": False}


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
@pytest.mark.parametrize("name", ["dqn", "pqn", "sac", "sac, choices", "td3"])
def test_results_load_resume_and_start_other_runs(name: str, tmp_path: Path) -> None:
    algo = CASES[name].build(own=True)
    one, three = algo.env_steps_per_iteration * 2, algo.env_steps_per_iteration * 6
    short = jaxrl.train(algo, env_steps=one, out=tmp_path / "run", **RUN)
    with pytest.raises(Exception, match=r"its network is the user's own .*: pass algo= to load_result"):
        jaxrl.load_result(tmp_path / "run").policy(seed=1)
    loaded = jaxrl.load_result(tmp_path / "run", algo=algo)
    assert_same_bits(loaded, short)
    obs, _ = algo.env.reset_env(jax.random.key(3), algo.env.default_params)
    policy = loaded.policy(seed=1)
    np.testing.assert_array_equal(policy(obs), short.policy(seed=1)(obs))
    resumed = jaxrl.resume(tmp_path / "run", algo=algo, env_steps=three)
    whole = jaxrl.train(algo, env_steps=three, **RUN)
    assert jax.tree.all(jax.tree.map(np.array_equal, resumed.policies, whole.policies))
    started = jaxrl.train(algo, env_steps=one, warm_start=policy, **RUN)
    assert np.isfinite(started.values("return")).all()


FILE = """
import flax.linen as nn
import jaxrl

class Linear(nn.Module):
    @nn.compact
    def __call__(self, obs):
        return nn.Dense(2, name="linear")(obs)

def dqn(env, config: jaxrl.DQNConfig | None = None):
    return jaxrl.dqn(env, config, network=Linear())
"""


def test_a_function_in_a_file_may_be_the_builder_of_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FILE.replace("network=Linear())", "network=Linear())._replace(builder='built_networks:dqn', network=None)")
    (tmp_path / "built_networks.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    algo = importlib.import_module("built_networks").dqn(envs.make("cartpole"))
    assert pickle.loads(pickle.dumps(algo)).step is algo.step
    loaded = registry.build(registry.describe(algo), allow="built_networks")  # as `jaxrl evaluate --allow` does
    assert loaded.builder == "built_networks:dqn" and loaded.step is algo.step
    assert registry.modules_to_allow(algo) == ["built_networks"]


@pytest.mark.slow
def test_a_function_in_a_file_takes_a_network_to_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "linear_networks.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    options = [
        "--preset",
        "dqn",
        "--seeds",
        "2",
        "--evals",
        "1",
        "--eval-episodes",
        "1",
        "--no-progress",
        "--out",
        "run",
    ]
    for steps, more in (("2000", []), ("4000", ["--resume"])):
        assert cli.main(["train", "linear_networks:dqn", "cartpole", "--env-steps", steps, *options, *more]) == 0
    result = jaxrl.load_result(tmp_path / "run", importlib.import_module("linear_networks").dqn(envs.make("cartpole")))
    assert result.metrics["env_step"][-1] >= 4000
    assert set(result.policy(seed=1).params.acting.params["params"]) == {"linear"}
