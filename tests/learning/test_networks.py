"""The default network written out in NumPy, its initial weights, and errors."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from envs.loops import traced_for
from jaxrl.learning.networks import (
    ACTIVATIONS,
    CNNActorCritic,
    MLPActorCritic,
    ResidualActorCritic,
    check_network,
    flatten_observation,
    orthogonal,
)
from jaxrl.learning.output_networks import QNetwork
from jaxrl.learning.relation import POOLINGS, RelationActorCritic, largest_product

OBS = {"b": jnp.array([[1, 2], [3, 4]], jnp.int32), "a": jnp.array(0.5), "c": jnp.array([-1.5, 2.5])}
EPS = float(np.finfo(np.float32).eps)


def by_hand(params: Any, features: np.ndarray, layers: list[str], activation: Any = np.tanh) -> np.ndarray:
    for name in layers:
        weights = {key: np.asarray(value, np.float64) for key, value in params["params"][name].items()}
        features = features @ weights["kernel"] + weights["bias"]
        features = features if name.endswith("_out") else activation(features)
    return features


def test_an_observation_is_flattened_by_the_order_of_its_keys() -> None:
    flat = flatten_observation(OBS)
    assert flat.tolist() == [0.5, 1, 2, 3, 4, -1.5, 2.5] and flat.dtype == jnp.float32
    assert flatten_observation(jnp.array(True)).tolist() == [1.0]


@pytest.mark.parametrize("shared", [False, True])
def test_the_network_equals_a_computation_by_hand(key: jax.Array, shared: bool) -> None:
    network = MLPActorCritic(num_outputs=3, hidden=(5, 4), shared_trunk=shared)
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(key, OBS))
    names = ["trunk"] if shared else ["actor", "critic"]
    assert set(params["params"]) == {f"{name}_{i}" for name in names for i in range(2)} | {"actor_out", "critic_out"}
    apply: Any = network.apply
    outputs, value = apply(params, OBS)
    features = np.array([0.5, 1, 2, 3, 4, -1.5, 2.5])
    assert outputs.shape == (3,) and value.shape == ()
    for got, end, name in ((outputs, "actor_out", names[0]), (value, "critic_out", names[-1])):
        exact = by_hand(params, features, [f"{name}_0", f"{name}_1", end])
        # Three layers of sums of at most 8 terms of at most 8.
        np.testing.assert_allclose(got, np.reshape(exact, np.shape(got)), rtol=0, atol=3 * 8 * 8 * EPS)


EXACT_ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * special.expit(x),
}


@pytest.mark.slow
def test_every_activation_is_used(key: jax.Array) -> None:
    assert set(EXACT_ACTIVATIONS) == set(ACTIVATIONS)
    features = np.array([1.0, -2.0, 0.5])
    params = MLPActorCritic(2, (4,)).init(key, jnp.asarray(features))
    for name, activation in EXACT_ACTIVATIONS.items():
        apply: Any = MLPActorCritic(2, (4,), activation=name).apply
        _, value = apply(params, jnp.asarray(features))
        exact = by_hand(params, features, ["critic_0", "critic_out"], activation)
        np.testing.assert_allclose(value, exact[0], rtol=0, atol=64 * EPS, err_msg=name)


def normalised(features: np.ndarray, layer: Any) -> np.ndarray:
    """Layer normalisation of all numbers of a layer, with a scale and an offset for each entry of the last axis."""
    centred = features - features.mean()
    return centred / np.sqrt(centred.var() + 1e-6) * np.float64(layer["scale"]) + np.float64(layer["bias"])


@pytest.mark.slow
def test_hidden_layers_are_normalised_before_the_activation(key: jax.Array) -> None:
    network = MLPActorCritic(None, (6, 5), "relu", layer_norm=True)
    obs = np.array([0.5, -1.0, 2.0])
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(key, jnp.asarray(obs)))
    features = obs
    for i in range(2):
        layer = {name: np.float64(leaf) for name, leaf in params["params"][f"trunk_{i}"].items()}
        features = features @ layer["kernel"] + layer["bias"]
        features = np.maximum(normalised(features, params["params"][f"trunk_{i}_norm"]), 0)
    # Two layers of sums of at most 6 terms of at most 8, divided by a standard deviation of at least 1/4.
    np.testing.assert_allclose(
        jax.jit(network.apply)(params, jnp.asarray(obs)), features, rtol=0, atol=2 * 6 * 32 * EPS
    )


def test_hidden_layers_of_both_streams_are_normalised_before_the_activation(key: jax.Array) -> None:
    network = QNetwork(MLPActorCritic(None, ()), 3, 2, dueling=True, layer_norm=True)
    obs = np.array([0.5, -1.0, 2.0])
    params = jax.tree.map(lambda leaf: leaf + 0.1, jax.jit(network.init)(key, jnp.asarray(obs)))
    layers, outputs = params["params"], {}
    for name in ("value", "advantage"):
        hidden, out = layers[f"{name}_hidden"], layers[f"{name}_out"]
        features = obs @ np.float64(hidden["kernel"]) + np.float64(hidden["bias"])
        features = np.maximum(normalised(features, layers[f"{name}_hidden_norm"]), 0)
        outputs[name] = features @ np.float64(out["kernel"]) + np.float64(out["bias"])
    of_action = outputs["advantage"].reshape(3, 2)
    exact = outputs["value"] + of_action - of_action.mean(axis=0)
    # Two layers of sums of at most 3 terms of at most 8, divided by a standard deviation of at least 1/4.
    np.testing.assert_allclose(jax.jit(network.apply)(params, jnp.asarray(obs)), exact, rtol=0, atol=2 * 3 * 32 * EPS)


@pytest.mark.slow
def test_residual_blocks_agree_with_float64(key: jax.Array) -> None:
    network = ResidualActorCritic(None, (6, 6), "relu")
    obs = np.array([0.5, -1.0, 2.0])
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(key, jnp.asarray(obs)))
    layers = params["params"]

    def linear(features: np.ndarray, name: str) -> np.ndarray:
        return features @ np.float64(layers[name]["kernel"]) + np.float64(layers[name]["bias"])

    features, largest = linear(obs, "trunk_in"), 0.0
    for i in range(2):
        hidden = np.maximum(linear(normalised(features, layers[f"trunk_{i}_norm"]), f"trunk_{i}_wide"), 0)
        assert hidden.shape == (24,)
        features = features + linear(hidden, f"trunk_{i}_out")
        assert features.std() > 0.25
        largest = max(largest, np.abs(hidden).max(), np.abs(features).max())
    exact = normalised(features, layers["trunk_norm"])
    # Two blocks of sums of at most 24 terms of at most `largest`, each divided by a standard deviation of at least 1/4.
    apply = jax.jit(network.apply)
    np.testing.assert_allclose(apply(params, jnp.asarray(obs)), exact, rtol=0, atol=2 * 24 * 4 * largest * EPS)


@pytest.mark.slow
def test_convolutions_are_normalised_over_the_whole_layer(key: jax.Array) -> None:
    network = CNNActorCritic(None, (3,), (1,), (), "relu", layer_norm=True)
    image = jax.random.normal(key, (4, 4, 2))
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(key, image))["params"]
    layer = {name: np.float64(leaf) for name, leaf in params["trunk_convolution_0"].items()}
    padded = np.pad(np.float64(image), ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))
    layer_output = np.einsum("ijcxy,xycd->ijd", windows, layer["kernel"]) + layer["bias"]
    exact = np.maximum(normalised(layer_output, params["trunk_convolution_0_norm"]), 0).ravel()
    # Sums of 18 terms of at most 8, divided by a standard deviation of at least 1/4.
    np.testing.assert_allclose(jax.jit(network.apply)({"params": params}, image), exact, rtol=0, atol=18 * 32 * EPS)


@pytest.mark.slow
def test_initial_weights_are_orthogonal_with_the_usual_gains(key: jax.Array) -> None:
    params = MLPActorCritic(3, (16, 8)).init(key, jnp.zeros(4))["params"]
    gains = {"actor_0": 2, "actor_1": 2, "critic_0": 2, "critic_1": 2, "actor_out": 0.01**2, "critic_out": 1}
    for name, squared in gains.items():
        kernel = np.asarray(params[name]["kernel"], np.float64)
        product = kernel.T @ kernel if kernel.shape[0] >= kernel.shape[1] else kernel @ kernel.T
        # A QR decomposition of 16 columns leaves some tens of roundings.
        np.testing.assert_allclose(product, squared * np.eye(len(product)), rtol=0, atol=64 * EPS * squared)
        assert not np.any(np.asarray(params[name]["bias"]))


@pytest.mark.slow_rows("shape3")
@pytest.mark.parametrize("shape", [(4, 64), (64, 64), (64, 2), (256, 256), (1, 1)])
def test_orthogonal_matrices_are_those_of_a_qr_decomposition(key: jax.Array, shape: tuple[int, int]) -> None:
    got = np.asarray(orthogonal(key, *shape))
    smaller = got @ got.T if shape[0] < shape[1] else got.T @ got
    assert np.abs(smaller - np.eye(len(smaller))).max() <= 8 * EPS  # as after one rounding: the second projection
    draws = np.asarray(jax.random.normal(key, (max(shape), min(shape))), np.float64)
    q, r = np.linalg.qr(draws)
    expected = q * np.sign(np.diag(r))
    # A singular matrix near draws is EPS |draws| away: the decomposition is that much less certain.
    tolerance = 8 * EPS * np.linalg.cond(draws) * np.sqrt(max(shape))
    np.testing.assert_allclose(got, expected.T if shape[0] < shape[1] else expected, atol=tolerance)


def test_weights_of_an_empty_observation_are_empty(key: jax.Array) -> None:
    assert (orthogonal(key, 0, 4).shape, orthogonal(key, 4, 0).shape) == ((0, 4), (4, 0))


def test_actor_and_critic_share_layers_only_with_a_shared_trunk(key: jax.Array) -> None:
    obs = jnp.array([1.0, -1.0])
    for shared in (False, True):
        network = MLPActorCritic(2, (4,), shared_trunk=shared)
        gradient = jax.grad(lambda params, network=network: network.apply(params, obs)[1])(network.init(key, obs))
        moved = {name for name, layer in gradient["params"].items() if np.any(layer["kernel"])}
        assert moved == ({"trunk_0", "critic_out"} if shared else {"critic_0", "critic_out"})


# --- user-defined networks ---------------------------------------------------------------


class Returns(nn.Module):
    """A network that returns one of several outputs for an observation of 2 numbers."""

    what: str

    @nn.compact
    def __call__(self, obs: jax.Array) -> Any:
        outputs, value = nn.Dense(3)(obs), nn.Dense(1)(obs)
        return {
            "right": (outputs, value[0]),
            "outputs": outputs,
            "list": [outputs, value[0]],
            "value [1]": (outputs, value),
            "too few": (outputs[:2], value[0]),
            "three": (outputs, value[0], value[0]),
            "dictionary": (outputs, {"value": value}),
        }[self.what]


WANTED = r"^network must return \(outputs \[3\], value \[\]\) for one observation, got "


def test_a_network_with_the_right_outputs_passes() -> None:
    check_network(Returns("right"), jax.ShapeDtypeStruct((2,), jnp.float32), 3)
    check_network(MLPActorCritic(3), jax.eval_shape(lambda: OBS), 3)


@pytest.mark.parametrize(
    ("what", "error", "sentence"),
    [
        ("outputs", TypeError, WANTED + r"\(3,\)$"),
        ("list", TypeError, WANTED + r"\[\(3,\), \(\)\]$"),
        ("three", TypeError, WANTED + r"\(\(3,\), \(\), \(\)\)$"),
        ("value [1]", ValueError, WANTED + r"shapes \(3,\) and \(1,\)$"),
        ("too few", ValueError, WANTED + r"shapes \(2,\) and \(\)$"),
        ("dictionary", ValueError, WANTED + r"shapes \(3,\) and dict$"),
    ],
)
def test_other_outputs_are_refused(what: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        check_network(Returns(what), jax.ShapeDtypeStruct((2,), jnp.float32), 3)


def test_a_value_that_is_not_a_module_is_refused() -> None:
    network: Any = lambda obs: (obs, obs[0])  # noqa: E731
    with pytest.raises(TypeError, match=r"^network must be a flax.linen module, got function$"):
        check_network(network, jax.ShapeDtypeStruct((2,), jnp.float32), 2)


def neighbourhood(num_present: int = 3) -> dict[str, jax.Array]:
    """An observation with five slots for neighbours, the last ones padded with zeros."""
    rows = jax.random.normal(jax.random.key(3), (5, 4))
    present = jnp.arange(5) < num_present
    return {
        "own": jnp.array([0.3, -0.7]),
        "rays": jnp.array([1.0, 0.0, 0.5]),
        "neighbours": jnp.where(present[:, None], rows, 0.0),
        "neighbours_present": present.astype(jnp.float32),
    }


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_relation_network_equals_a_computation_by_hand(key: jax.Array, pooling: str) -> None:
    network = RelationActorCritic(3, (6,), (4, 5), (7,), pooling, own_scale=2.0, neighbour_scale=0.5)
    params = jax.tree.map(lambda leaf: leaf + 0.1, jax.jit(network.init)(key, neighbourhood()))
    apply: Any = jax.jit(network.apply)
    for num_present in (0, 3, 5):
        obs = neighbourhood(num_present)
        compare_by_hand(params, obs, apply(params, obs), pooling, num_present)


def compare_by_hand(params: Any, obs: Any, got: Any, pooling: str, num_present: int) -> None:
    outputs, value = got
    assert outputs.shape == (3,) and value.shape == ()
    for got, end, name in ((outputs, "actor_out", "actor"), (value, "critic_out", "critic")):
        own = by_hand(params, 2 * np.array([0.3, -0.7, 1.0, 0.0, 0.5]), [f"{name}_own_0"])
        scaled = 0.5 * np.asarray(obs["neighbours"], np.float64)
        rows = by_hand(params, scaled, [f"{name}_neighbour_0", f"{name}_neighbour_1"])
        there = rows[:num_present]
        if pooling == "mean":
            pooled = rows.mean(0)
        elif num_present == 0:
            pooled = np.zeros(5)
        elif pooling == "masked-mean":
            pooled = there.mean(0)
        elif pooling == "max":
            pooled = there.max(0)
        else:
            query = by_hand(params, own, [f"{name}_attention_query"], lambda x: x)
            keys, values = (
                by_hand(params, there, [f"{name}_attention_{part}"], lambda x: x) for part in ("key", "value")
            )
            pooled = special.softmax(keys @ query / np.sqrt(5)) @ values
        exact = by_hand(params, np.concatenate([own, pooled]), [f"{name}_0", end])
        # Six layers of sums of at most 11 terms of at most 4.
        np.testing.assert_allclose(got, np.reshape(exact, np.shape(got)), rtol=0, atol=6 * 11 * 4 * EPS)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_order_of_neighbours_says_nothing(key: jax.Array, pooling: str) -> None:
    network, obs = RelationActorCritic(2, pooling=pooling), neighbourhood()
    params = jax.jit(network.init)(key, obs)
    apply: Any = network.apply
    order = jnp.array([4, 2, 0, 3, 1])
    other = {name: leaf[order] if name.startswith("neighbours") else leaf for name, leaf in obs.items()}
    for one, two in zip(apply(params, obs), apply(params, other), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["leaky_relu", "gelu"])
def test_a_maximum_over_rows_is_that_of_their_activations(key: jax.Array, activation: str) -> None:
    """A maximum commutes with an activation that increases; gelu does not increase everywhere."""
    network = RelationActorCritic(None, (6,), (5,), (7,), "max", activation=activation)
    obs = neighbourhood()
    params = jax.tree.map(lambda leaf: leaf - 0.2, network.init(key, obs))
    exact: Any = {"leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x), "gelu": EXACT_ACTIVATIONS["gelu"]}[activation]
    own = by_hand(params, np.array([0.3, -0.7, 1.0, 0.0, 0.5]), ["trunk_own_0"], exact)
    rows = by_hand(params, np.asarray(obs["neighbours"], np.float64)[:3], ["trunk_neighbour_0"], exact)
    features = by_hand(params, np.concatenate([own, rows.max(0)]), ["trunk_0"], exact)
    apply: Any = network.apply
    # Three layers of sums of at most 11 terms of at most 4.
    np.testing.assert_allclose(apply(params, obs), features, rtol=0, atol=3 * 11 * 4 * EPS)


def test_parameters_do_not_depend_on_the_pooling(key: jax.Array) -> None:
    largest, mean = (
        RelationActorCritic(None, (6,), (5, 4), (7,), pooling).init(key, neighbourhood())
        for pooling in ("max", "masked-mean")
    )
    jax.tree.map(np.testing.assert_array_equal, largest, mean)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_the_gradient_of_the_largest_product_is_that_of_the_rows_that_attain_it(platform: str) -> None:
    rows = np.array([[1.0, -2.0], [1.0, -2.0], [3.0, 1.0], [9.0, 9.0]], np.float32)
    present = np.array([True, True, True, False])
    kernel = np.array([[1.0, -1.0, 0.0], [0.5, 0.25, -1.0]], np.float32)
    weight = np.array([1.0, 2.0, 4.0], np.float32)
    products = np.where(present[:, None], rows.astype(np.float64) @ kernel, -np.inf)
    there = jnp.asarray(present)
    np.testing.assert_array_equal(largest_product(jnp.asarray(rows), there, jnp.asarray(kernel)), products.max(0))
    with traced_for(platform):
        by_rows, by_kernel = jax.grad(lambda rows, kernel: largest_product(rows, there, kernel) @ weight, (0, 1))(
            jnp.asarray(rows), jnp.asarray(kernel)
        )
    # The third row attains the first maximum, the first two share the others.
    share = np.array([[0, 0.5, 0.5], [0, 0.5, 0.5], [1, 0, 0], [0, 0, 0]]) * weight
    np.testing.assert_array_equal(by_kernel, rows.T @ share)
    np.testing.assert_array_equal(by_rows, share @ kernel.T)


def test_no_row_present_has_no_gradient(key: jax.Array) -> None:
    of_none = jax.grad(lambda rows, kernel: largest_product(rows, jnp.zeros(3, bool), kernel).sum(), (0, 1))
    assert not any(np.any(each) for each in of_none(jnp.ones((3, 2)), jnp.ones((2, 4))))
    network, obs = RelationActorCritic(None, pooling="max", activation="leaky_relu"), neighbourhood(0)
    params: Any = jax.jit(network.init)(key, obs)
    apply: Any = network.apply
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(apply(params, obs))))(params)["params"]
    assert not np.any(gradient["trunk_neighbour_0"]["kernel"]) and np.any(gradient["trunk_0"]["kernel"])
