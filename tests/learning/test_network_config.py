"""Networks by name: the fields of every configuration, and the inputs of each kind."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit

import envs
import jaxrl
from jaxrl.learning.asymmetric import AsymmetricActorCritic, CentralisedActorCritic, Seen
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.networks import (
    CNNActorCritic,
    EntriesActorCritic,
    MLPActorCritic,
    ResidualActorCritic,
    flatten_observation,
    with_action,
)
from jaxrl.learning.relation import RelationActorCritic

GRID = jax.ShapeDtypeStruct((10, 10, 4), jnp.float32)
FLAT = jax.ShapeDtypeStruct((3,), jnp.float32)
ROOM = {
    "image": jax.ShapeDtypeStruct((6, 7, 2), jnp.uint8),
    "map": jax.ShapeDtypeStruct((2, 2), jnp.float32),
    "state": FLAT,
}
NEIGHBOURS = {
    "own": FLAT,
    "neighbours": jax.ShapeDtypeStruct((2, 5), jnp.float32),
    "neighbours_present": jax.ShapeDtypeStruct((2,), jnp.float32),
}


@pytest.mark.parametrize(
    ("fields", "obs", "kind"),
    [
        ({}, FLAT, MLPActorCritic),
        ({}, GRID, MLPActorCritic),
        ({}, NEIGHBOURS, RelationActorCritic),
        ({"network": "mlp"}, NEIGHBOURS, MLPActorCritic),
        ({"network": "simba"}, NEIGHBOURS, ResidualActorCritic),
        ({"network": "relation", "pooling": "max"}, NEIGHBOURS, RelationActorCritic),
        ({"network": "cnn", "channels": [8]}, GRID, CNNActorCritic),
        ({"network": "cnn"}, jnp.zeros((4, *GRID.shape)), CNNActorCritic),
        ({"encoders": {"image": "cnn"}}, ROOM, EntriesActorCritic),
    ],
)
def test_a_name_gives_its_network(fields: dict[str, Any], obs: Any, kind: type) -> None:
    assert type(NetworkConfig(**fields).actor_critic(obs, 2, None)) is kind


@pytest.mark.parametrize("obs", [FLAT, NEIGHBOURS], ids=["vector", "neighbours"])
def test_convolutions_of_a_critic_take_images_only(obs: Any) -> None:
    sentence = r"^network 'cnn' takes observations \[height, width, channels\], or stacks of them .*, got "
    with pytest.raises(ValueError, match=sentence):
        NetworkConfig(network="cnn").encoder(with_action(obs, FLAT), with_action=True)


@pytest.mark.parametrize("obs", [FLAT, NEIGHBOURS, GRID], ids=["mlp", "relation", "cnn"])
def test_layers_of_every_network_are_normalised_on_request(obs: Any) -> None:
    config = NetworkConfig(network="cnn" if obs is GRID else "auto", layer_norm=True)
    shapes = jax.eval_shape(config.encoder(obs).init, jax.random.key(0), obs)["params"]
    hidden = {name for name in shapes if not name.endswith("_norm")}
    assert set(shapes) == hidden | {f"{name}_norm" for name in hidden} and len(hidden) >= 2


@pytest.mark.parametrize(
    ("fields", "obs", "sentence"),
    [
        ({"network": "cnn"}, FLAT, r"network 'cnn' takes observations \[height, width, channels\]"),
        ({"network": "relation"}, FLAT, "network 'relation' takes observations with 'neighbours'"),
        ({"network": "cnn", "pooling": "max"}, GRID, "pooling has no effect on network='cnn', got 'max'"),
        ({"channels": (8,)}, GRID, r"channels has an effect with network='cnn' or an encoder 'cnn' only, got \(8,\)"),
        ({"shared_trunk": True}, NEIGHBOURS, "shared_trunk has no effect on observations with 'neighbours'"),
        ({"encoder_hidden": (8,)}, FLAT, r"encoder_hidden has an effect with encoders only, got \(8,\)"),
        ({"encoders": {"a": "mlp"}}, FLAT, r"encoders takes observations that are dictionaries, got float32\[3\]"),
        ({"encoders": {"imag": "cnn"}}, ROOM, "names the entry 'imag', which neither .* has; did you mean 'image'"),
        (
            {"encoders": {"state": "cnn"}},
            ROOM,
            r"'cnn' takes an array \[height, .*, got float32\[3\] at 'state'; 'mlp' ",
        ),
        ({"encoders": {"state": "mlp"}, "strides": (2, 2)}, ROOM, "strides has an effect with an encoder 'cnn' only"),
        ({"encoders": {"image": "cnn"}, "encoder_hidden": (8,)}, ROOM, "encoder_hidden has an effect with an encoder"),
        ({"encoders": {"image": "cnn"}, "pooling": "max"}, ROOM, "pooling has no effect on observations without 'neig"),
    ],
)
def test_fields_without_an_effect_are_refused(fields: dict[str, Any], obs: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        NetworkConfig(**fields).actor_critic(obs, 2, None)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"network": "transformer"}, "network must be one of auto, mlp, relation, cnn, simba, got 'transformer'"),
        ({"network": "simba", "hidden": ()}, r"hidden takes one width or several equal ones with 'simba', got \(\)"),
        ({"network": "simba", "hidden": (8, 4)}, r"hidden takes one width or several equal ones .*, got \(8, 4\)"),
        ({"network": "simba", "layer_norm": True}, "layer_norm has no effect with network='simba', got True"),
        ({"strides": (1,)}, r"strides takes one for each of the 2 channels, got \(1,\)"),
        ({"layer_norm": "no"}, "layer_norm takes True or False, got 'no'"),
        ({"normalise_reward": 1}, "normalise_reward takes True or False, got 1"),
        ({"channels": ()}, "channels takes the channels of at least one convolution"),
        ({"encoders": {"a": "rnn"}}, "the encoder of 'a' must be one of cnn, mlp, flat, got 'rnn'"),
        (
            {"encoders": "image:cnn"},
            r"encoders takes a kind for each entry, such as \{'image': 'cnn', .*, got 'image:cnn'",
        ),
        ({"encoders": ["cnn"]}, "encoders takes a kind for each entry, .* or texts such as 'image:cnn', got 'cnn'"),
        ({"encoders": ["a:cnn", "a:mlp"]}, r"encoders takes one kind for each entry, got \('a:cnn', 'a:mlp'\)"),
        ({"encoders": {"a": "cnn"}, "network": "simba"}, "encoders takes network='auto', got 'simba'"),
        ({"channels": "16"}, r"channels takes the widths of layers, such as \(16, 32\), got '16'"),
    ],
)
def test_bad_fields_get_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        jaxrl.PPOConfig(**fields)


def convolved(image: np.ndarray, kernel: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """A 3 x 3 convolution in float64 that pads as "SAME" does."""
    height, width = (-(-size // stride) for size in image.shape[:2])
    total = [max((out - 1) * stride + 3 - size, 0) for out, size in zip((height, width), image.shape, strict=False)]
    padded = np.pad(image, [*((size // 2, size - size // 2) for size in total), (0, 0)])
    result = np.zeros((height, width, kernel.shape[-1]))
    for y in range(height):
        for x in range(width):
            patch = padded[y * stride : y * stride + 3, x * stride : x * stride + 3]
            result[y, x] = np.tensordot(patch, kernel, 3) + bias
    return result


def apply(network: Any, params: Any, obs: Any) -> Any:
    return network.apply(params, obs)


@pytest.mark.slow
def test_the_convolutional_network_equals_a_computation_by_hand(key: jax.Array) -> None:
    network = CNNActorCritic(2, channels=(3, 4), strides=(2, 1), hidden=(5,), num_values=2)
    image = np.random.default_rng(0).normal(size=(6, 7, 2)).astype(np.float32)
    params = network.init(key, jnp.asarray(image))
    weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params["params"])

    def head(name: str) -> np.ndarray:
        features = image.astype(np.float64)
        for i, stride in enumerate((2, 1)):
            layer = weights[f"{name}_convolution_{i}"]
            features = np.tanh(convolved(features, layer["kernel"], layer["bias"], stride))
        layer, out = weights[f"{name}_0"], weights[f"{name}_out"]
        return np.tanh(features.ravel() @ layer["kernel"] + layer["bias"]) @ out["kernel"] + out["bias"]

    outputs, values = apply(network, params, jnp.asarray(image))
    # Sums of at most 48 terms of size 1 in float32.
    np.testing.assert_allclose(outputs, head("actor"), atol=1e-5)
    np.testing.assert_allclose(values, head("critic"), atol=1e-5)


def test_each_entry_has_its_encoder(key: jax.Array) -> None:
    sizes: dict[str, Any] = {"channels": (3,), "strides": (2,), "encoder_hidden": (4,), "hidden": (5,)}
    config = NetworkConfig(encoders={"state": "mlp", "image": "cnn"}, **sizes)
    assert config.encoders == ("image:cnn", "state:mlp") and config == NetworkConfig(encoders=config.encoders, **sizes)
    rng = np.random.default_rng(0)
    obs = {
        "image": rng.integers(0, 256, (6, 7, 2), np.uint8),
        "map": rng.normal(size=(2, 2)).astype(np.float32),
        "state": rng.normal(size=3).astype(np.float32),
    }
    network = config.actor_critic(ROOM, 2, 2)
    params = network.init(key, obs)
    weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params["params"])

    def head(name: str) -> np.ndarray:
        layer = weights[f"{name}_cnn_image_convolution_0"]
        image = np.tanh(convolved(obs["image"] / 255, layer["kernel"], layer["bias"], 2))
        layer = weights[f"{name}_mlp_state_0"]
        state = np.tanh(obs["state"] @ layer["kernel"] + layer["bias"])
        features, layer, out = np.concatenate([image.ravel(), obs["map"].ravel(), state]), *heads(name)
        return np.tanh(features @ layer["kernel"] + layer["bias"]) @ out["kernel"] + out["bias"]

    def heads(name: str) -> tuple[Any, Any]:
        return weights[f"{name}_0"], weights[f"{name}_out"]

    outputs, values = apply(network, params, obs)
    # Sums of at most 43 terms of size 1 in float32.
    np.testing.assert_allclose(outputs, head("actor"), atol=1e-5)
    np.testing.assert_allclose(values, head("critic"), atol=1e-5)


def test_frames_of_a_stack_are_channels(key: jax.Array) -> None:
    network = CNNActorCritic(2, channels=(3,), strides=(2,), hidden=())
    stack = jnp.asarray(np.random.default_rng(0).integers(0, 256, (4, 5, 3, 2)), jnp.uint8)
    params = quick_jit(network.init)(key, stack)
    # Channel c of frame k is channel 2 k + c.
    image = jnp.concatenate(list(stack), axis=-1)
    assert image[1, 2, 5] == stack[2, 1, 2, 1]
    for ours, expected in zip(apply(network, params, stack), apply(network, params, image), strict=True):
        np.testing.assert_array_equal(ours, expected)


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3, 2), np.uint8)
FLATTENING: dict[str, Any] = {
    "mlp": (MLPActorCritic(2, hidden=(5,)), PIXELS),
    "simba": (ResidualActorCritic(2, hidden=(5,)), np.stack([PIXELS, PIXELS])),
    "relation": (
        RelationActorCritic(2),
        {"own": PIXELS, "neighbours": np.ones((2, 3)), "neighbours_present": np.ones(2)},
    ),
    "encoder mlp": (EntriesActorCritic(2, (("image", "mlp"),)), {"image": PIXELS, "state": np.ones(2)}),
    "encoder flat": (EntriesActorCritic(2, ()), {"image": PIXELS, "state": np.ones(2)}),
    "a global critic": (
        CentralisedActorCritic(MLPActorCritic(None), MLPActorCritic(None), 2, None, 0.5),
        (PIXELS, {"map": PIXELS}),
    ),
    "privileged facts": (
        AsymmetricActorCritic(CNNActorCritic(None), MLPActorCritic(None), "joined", 2),
        Seen(PIXELS, np.ones(2)),
    ),
}


@pytest.mark.parametrize("name", FLATTENING)
def test_pixels_are_divided_where_networks_flatten_them(key: jax.Array, name: str) -> None:
    network, obs = FLATTENING[name]
    seen = obs if name == "a global critic" else (obs,)
    floats = jax.tree.map(lambda leaf: leaf / np.float32(255) if leaf.dtype == np.uint8 else leaf, seen)
    params = quick_jit(network.init)(key, *seen)
    for ours, scaled in zip(*(network.apply(params, *each) for each in (seen, floats)), strict=True):
        np.testing.assert_allclose(ours, scaled, rtol=1e-5, atol=1e-6)
    numbers = flatten_observation({"image": PIXELS, "counts": np.asarray([7, 255], np.uint8)})
    np.testing.assert_array_equal(numbers[:2], [7.0, 255.0])


@pytest.mark.slow
def test_pixels_of_eight_bits_are_scaled(key: jax.Array) -> None:
    network = CNNActorCritic(2, channels=(3,), strides=(1,), hidden=(5,))
    pixels = jnp.arange(48, dtype=jnp.uint8).reshape(4, 4, 3)
    params = network.init(key, pixels)
    for ours, scaled in zip(apply(network, params, pixels), apply(network, params, pixels / 255.0), strict=True):
        np.testing.assert_allclose(ours, scaled, rtol=1e-6)


@pytest.mark.slow
def test_a_grid_trains_with_convolutions() -> None:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, network="cnn", channels=(4,), hidden=(8,))
    algo = jaxrl.ppo(envs.make("gymnax/Breakout-MinAtar"), config)
    result = jaxrl.train(algo, seeds=2, env_steps=16, evals=1, eval_episodes=1, progress=False)
    assert not result.failed
    kernel = result.policies.params["params"]["actor_convolution_0"]["kernel"]
    assert kernel.shape == (1, 2, 3, 3, 4, 4)
    obs, _ = algo.env.reset_env(jax.random.key(0), algo.env.default_params)
    assert result.policy(seed=1)(jnp.stack([obs] * 3)).shape == (3,)
