"""Encoders by entry of a dictionary: in every algorithm, and in saved, exported and asymmetric policies."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_task import LinearTask

import envs
import jaxrl
from envs.base import Environment, EnvParams, EnvState, spaces
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import ROWS, builder_of, config_class
from jaxrl.runtime.training import _say_if_images_are_flattened

LIMIT = 4
ENCODERS = {"image": "cnn", "state": "mlp"}
SIZES: dict[str, Any] = {"channels": (2,), "encoder_hidden": (3,)}


@flax.struct.dataclass
class RoomParams(EnvParams):
    """Parameters of the task.

    Attributes:
      max_steps_in_episode: Time limit, int.
    """

    max_steps_in_episode: jax.Array | int = LIMIT


@flax.struct.dataclass
class RoomState(EnvState):
    """Time and the bright column of the picture, int32 `[]`, and a sign, float32 `[]`."""

    time: jax.Array
    column: jax.Array
    sign: jax.Array


@dataclass(frozen=True)
class Room(Environment):
    """A bright column on the left or on the right of a picture, and a sign: equal ones take action 1, others 0."""

    discrete: bool = True

    @property
    def default_params(self) -> RoomParams:
        return RoomParams()

    def reset_env(self, key: jax.Array, params: RoomParams) -> tuple[Any, RoomState]:
        del params
        state = self._drawn(key, jnp.zeros((), jnp.int32))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: RoomState, action: jax.Array, params: RoomParams
    ) -> tuple[Any, RoomState, jax.Array, jax.Array, dict[Any, Any]]:
        del params
        right = ((state.column >= 2) == (state.sign > 0)).astype(jnp.int32)
        chosen = action if self.discrete else (action[0] > 0).astype(jnp.int32)
        state = self._drawn(key, state.time + 1)
        return self._observe(state), state, (chosen == right).astype(jnp.float32), jnp.bool_(False), {}

    def is_truncated(self, state: RoomState, params: RoomParams) -> jax.Array:
        return state.time >= params.max_steps_in_episode

    def privileged(self, state: RoomState, params: RoomParams) -> jax.Array:
        del params
        return jax.nn.one_hot(state.column, 4)

    def action_space(self, params: RoomParams | None = None) -> Any:
        del params
        return spaces.Discrete(2) if self.discrete else spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def observation_space(self, params: RoomParams | None = None) -> spaces.Dict:
        del params
        picture, sign = spaces.Box(0, 255, (4, 4, 1), jnp.uint8), spaces.Box(-1.0, 1.0, (1,), jnp.float32)
        return spaces.Dict({"image": picture, "state": sign})

    def _drawn(self, key: jax.Array, time: jax.Array) -> RoomState:
        column_key, sign_key = jax.random.split(key)
        return RoomState(
            time, jax.random.randint(column_key, (), 0, 4), jax.random.rademacher(sign_key, (), jnp.float32)
        )

    def _observe(self, state: RoomState) -> Any:
        picture = jnp.where(jnp.arange(4) == state.column, 255, 0).astype(jnp.uint8)
        return {"image": jnp.broadcast_to(picture[:, None], (4, 4, 1)), "state": state.sign[None]}


@dataclass(frozen=True)
class Turn(Room):
    """The room, whose action is a number, of which the sign counts."""

    discrete: bool = False


def built(name: str, **fields: Any) -> Algorithm:
    build = builder_of(name)
    config = config_class(build)(**{**ROWS[name].small, "encoders": ENCODERS, **SIZES, **fields})
    return build(Turn() if name == "td3" else Room(), config)


def trained(algo: Algorithm) -> jaxrl.Result:
    """The result of one iteration."""
    steps = algo.env_steps_per_iteration
    return jaxrl.train(algo, seeds=1, env_steps=steps, evals=1, eval_episodes=1, progress=False)


@pytest.mark.slow_rows(*[name for name in ROWS if name not in ("ppo", "dqn")])
@pytest.mark.parametrize("name", ROWS)
def test_every_algorithm_has_an_encoder_for_each_entry(name: str) -> None:
    algo = built(name)
    policy = trained(algo).policy()
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(policy.params)]
    assert any("cnn_image_convolution_0" in each for each in names) and any("mlp_state_0" in each for each in names)
    obs, _ = algo.env.reset(jax.random.key(0), algo.env.default_params)
    assert jnp.shape(policy(obs)) == (() if name != "td3" else (1,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_a_task_is_learnt_that_takes_both_entries(name: str) -> None:
    fields = {} if name == "ppo" else {"prefill": 200, "buffer_size": 10_000}
    build = builder_of(name)
    more: Any = {"encoders": ENCODERS, "channels": (8,), "encoder_hidden": (16,), **fields}
    algo = build(Room(), config_class(build)(**more))
    steps = 40_000 if name == "ppo" else 12_000
    result = jaxrl.train(algo, seeds=4, env_steps=steps, evals=1, eval_episodes=64, progress=False)
    # By one entry alone half of the steps are paid.
    assert np.all(np.asarray(result.values("return"))[..., -1] > 0.9 * LIMIT)


def test_policies_with_encoders_are_saved_and_exported(tmp_path: Path) -> None:
    algo = built("ppo")
    result = trained(algo)
    obs, _ = algo.env.reset(jax.random.key(1), algo.env.default_params)
    scores = result.policy().scores(obs)["logits"]
    saved = jaxrl.load_result(result.save(tmp_path / "run"), algo=algo)
    assert saved.policy().algo.config.encoders == ("image:cnn", "state:mlp")
    np.testing.assert_array_equal(saved.policy().scores(obs)["logits"], scores)
    exported = jaxrl.load_exported(jaxrl.export_policy(result.policy(), tmp_path / "policy.stablehlo"))
    assert [port["name"] for port in exported.spec["inputs"]] == ["obs.image", "obs.state"]
    np.testing.assert_allclose(exported.respond(obs)["logits"], scores, atol=1e-5)


def kernels_of(name: str, layer: str, **fields: Any) -> list[str]:
    """Paths of the kernels of a layer of an encoder in the parameters."""
    algo = built(name, **fields)
    shapes = jax.eval_shape(algo.init, jax.random.key(0), algo.prepare(algo.hparams), algo.env.default_params)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(shapes)]
    return [each for each in names if layer in each and each.endswith("['kernel']") and "optim" not in each]


@pytest.mark.parametrize("name", ["ppo", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_critic_that_sees_more_has_the_encoders_of_its_entries(name: str) -> None:
    def whose(layer: str, **fields: Any) -> set[bool]:
        return {"critic" in each or ".targets" in each for each in kernels_of(name, layer, **fields)}

    image, state = "cnn_image_convolution_0", "mlp_state_0"
    both: dict[str, Any] = {"critic_sees": "privileged"}
    assert whose(image, **both) == whose(state, **both) == {True, False}
    # The actor sees one entry, and the critic all of them.
    apart: dict[str, Any] = {"actor_sees": ("state",), "critic_sees": "all"}
    assert whose(image, **apart) == {True} and whose(state, **apart) == {True, False}
    other: dict[str, Any] = {"actor_sees": ("image", "state"), "critic_sees": ("image",)}
    assert whose(image, **other) == {True, False} and whose(state, **other) == {False}


def test_a_global_critic_has_no_entries() -> None:
    with pytest.raises(ValueError, match=r"encoders \(.*\) cannot be combined with critic_sees='global'"):
        jaxrl.ppo(envs.make("crowd/circle"), jaxrl.PPOConfig(encoders={"own": "mlp"}, critic_sees="global"))


def test_names_of_entries_may_look_like_layers() -> None:
    network = jaxrl.PPOConfig(encoders={"a": "cnn", "a_convolution": "mlp", "observation": "flat", "action": "flat"})
    obs = {
        "a": jnp.zeros((4, 4, 1)),
        "a_convolution": jnp.zeros(2),
        "observation": jnp.zeros(1),
        "action": jnp.zeros(1),
    }
    assert jax.eval_shape(network.actor_critic(obs, 2, None).init, jax.random.key(0), obs)


def test_actions_join_the_features_of_the_entries() -> None:
    algo = built("td3")
    shapes = jax.eval_shape(algo.init, jax.random.key(0), algo.prepare(algo.hparams), algo.env.default_params)
    encoder = shapes.learner.critics["params"]["encoder"]
    # 4 x 4 pixels in 2 channels, 3 features of the sign, and one number of the action.
    assert encoder["trunk_0"]["kernel"].shape[1] == 4 * 4 * 2 + 3 + 1


@pytest.mark.parametrize("critic_sees", ["own", "privileged"])
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_actions_join_the_features_of_entries_beside_neighbours(name: str, critic_sees: str) -> None:
    crowd = envs.wrappers.bound_actions(envs.make("crowd/circle", num_agents=3), 2.0)
    env = envs.wrappers.randomise(crowd, {"max_speed": jaxrl.Uniform(1.0, 2.0)})
    build = builder_of(name)
    config = config_class(build)(
        **{**ROWS[name].small, "encoders": {"own": "mlp"}, "encoder_hidden": (3,), "critic_sees": critic_sees}
    )
    algo = build(env, config)
    shapes = jax.eval_shape(algo.init, jax.random.key(0), algo.prepare(algo.hparams), env.default_params)
    encoder = shapes.learner.critics["params"]["encoder"]
    first, _ = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)
    neighbours = sum(math.prod(first[rows].shape[1:]) for rows in ("neighbours", "neighbours_present"))
    # 3 features of the own part, all neighbours, and the two numbers of the action.
    assert encoder["trunk_0"]["kernel"].shape[1] == 3 + neighbours + 2
    own = math.prod(first["own"].shape[1:]) + (critic_sees == "privileged")
    assert encoder["trunk_mlp_own_0"]["kernel"].shape[1] == own


def test_the_linear_task_has_no_entries() -> None:
    with pytest.raises(ValueError, match="encoders takes observations that are dictionaries, got"):
        jaxrl.ppo(LinearTask(), jaxrl.PPOConfig(encoders={"image": "cnn"}))


def test_images_without_an_encoder_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    _say_if_images_are_flattened(built("ppo"))
    assert capsys.readouterr().err == ""
    _say_if_images_are_flattened(built("ppo", encoders={"state": "mlp"}, channels=(16, 32)))
    assert "the entries image of observations look like images" in capsys.readouterr().err
