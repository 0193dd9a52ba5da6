"""Recurrent networks: each cell in float64, sequences against single steps, and errors."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from jaxrl.learning.cells import CELLS, GRU, FlaxCell
from jaxrl.learning.linear_cells import LRU
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.networks import MLPActorCritic
from jaxrl.learning.recurrent import (
    Heads,
    RecurrentActorCritic,
    check_recurrent,
    is_recurrent,
    step_over,
    unroll_by_steps,
    unroll_over,
)

EPS = float(np.finfo(np.float32).eps)
WIDTH, SIZE, STEPS = 3, 4, 11


def in_float64(tree: Any) -> Any:
    """Numbers in float64, and whole numbers as they are."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, leaf.dtype if leaf.dtype == np.int32 else np.float64), tree)


def differentiable(tree: Any) -> Any:
    """The gradients that there are: a whole number has none."""
    return [leaf for leaf in jax.tree.leaves(tree) if leaf.dtype != jax.dtypes.float0]


def gru_by_hand(weights: Any, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
    h = memory["hidden"]
    driven, recalled = x @ weights["input_kernel"] + weights["bias"], h @ weights["kernel"]
    r, z = expit((driven + recalled)[:SIZE]), expit((driven + recalled)[SIZE : 2 * SIZE])
    n = np.tanh(driven[2 * SIZE :] + r * (recalled[2 * SIZE :] + weights["candidate_bias"]))
    h = (1 - z) * n + z * h
    return h, {"hidden": h}


def lstm_by_hand(weights: Any, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
    i, f, o, g = np.split(x @ weights["input_kernel"] + weights["bias"] + memory["hidden"] @ weights["kernel"], 4)
    cell = expit(f) * memory["cell"] + expit(i) * np.tanh(g)
    hidden = expit(o) * np.tanh(cell)
    return hidden, {"cell": cell, "hidden": hidden}


def lru_by_hand(weights: Any, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
    decay = np.exp(-np.exp(weights["nu"]) + 1j * np.exp(weights["theta"]))
    into = weights["input_kernel"][:, :SIZE] + 1j * weights["input_kernel"][:, SIZE:]
    h = decay * (memory["real"] + 1j * memory["imaginary"]) + np.sqrt(1 - np.abs(decay) ** 2) * (x @ into)
    out_of = weights["output_kernel"][:SIZE] - 1j * weights["output_kernel"][SIZE:]
    return np.tanh((h @ out_of).real + weights["skip"] * x), {"real": h.real, "imaginary": h.imag}


def mingru_by_hand(weights: Any, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
    gate, candidate = np.split(x @ weights["input_kernel"] + weights["bias"], 2)
    h = (1 - expit(gate)) * memory["hidden"] + expit(gate) * candidate
    return h, {"hidden": h}


def s5_by_hand(weights: Any, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
    rate, step = -np.exp(weights["log_rate"]) + 1j * weights["frequency"], np.exp(weights["log_step"])
    decay = np.exp(rate * step)
    into = weights["input_kernel"][:, :SIZE] + 1j * weights["input_kernel"][:, SIZE:]
    h = decay * (memory["real"] + 1j * memory["imaginary"]) + (decay - 1) / rate * (x @ into)
    out_of = weights["output_kernel"][:SIZE] - 1j * weights["output_kernel"][SIZE:]
    return np.tanh(2 * (h @ out_of).real + weights["skip"] * x), {"real": h.real, "imaginary": h.imag}


def normalised_by_hand(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * scale + shift


def gate_by_hand(weights: Any, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    w_r, w_z, w, u_r, u_z, u = np.split(weights[f"{name}_gate_kernel"][0], 6, axis=1)
    r, z = expit(y @ w_r + x @ u_r), expit(y @ w_z + x @ u_z - weights[f"{name}_gate_bias"][0])
    return (1 - z) * x + z * np.tanh(y @ w + (r * x) @ u)


def gtrxl_by_hand(weights: Any, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
    """One layer, with queries, keys and values of every step, head by head."""
    _, heads, window = weights["distance"].shape
    x = x @ weights["enter_kernel"] + weights["enter_bias"]
    normed = normalised_by_hand(x, weights["attention_scale"][0], weights["attention_shift"][0])
    count = int(memory["count"])
    steps = [*memory["inputs"][0][window - 1 - count :], normed]  # the newest last
    *of_heads, joining = np.split(weights["attention_kernel"][0], 4, axis=1)
    parts = [np.split(kernel, heads, axis=1) for kernel in of_heads]
    attended = []
    for head, (of_query, of_key, of_value) in enumerate(zip(*parts, strict=True)):
        scores = [
            (normed @ of_query) @ (step @ of_key) / np.sqrt(SIZE // heads) + weights["distance"][0, head, count - i]
            for i, step in enumerate(steps)
        ]
        shares = np.exp(scores) / np.sum(np.exp(scores))
        attended.append(sum(share * (step @ of_value) for share, step in zip(shares, steps, strict=True)))
    change = np.maximum(np.concatenate(attended) @ joining, 0)
    x = gate_by_hand(weights, "attention", x, change)
    normed_again = normalised_by_hand(x, weights["dense_scale"][0], weights["dense_shift"][0])
    (first, second), bias = np.split(weights["dense_kernel"][0], 2, axis=1), np.split(weights["dense_bias"][0], 2)
    change = np.maximum(np.maximum(normed_again @ first + bias[0], 0) @ second + bias[1], 0)
    inputs = np.concatenate([memory["inputs"][0][1:], normed[None]])
    return gate_by_hand(weights, "dense", x, change), {"count": min(count + 1, window - 1), "inputs": inputs[None]}


BY_HAND = {
    "gru": gru_by_hand,
    "lstm": lstm_by_hand,
    "lru": lru_by_hand,
    "mingru": mingru_by_hand,
    "s5": s5_by_hand,
    "gtrxl": gtrxl_by_hand,
}


def shaken(cell: Any, key: jax.Array) -> Any:
    """Parameters moved away from their initial values, some of which are 0 or 1."""
    params = jax.jit(cell.init)(key, jnp.zeros(WIDTH), cell.initial_memory())
    draws = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: leaf + jnp.asarray(0.3 * draws.normal(size=leaf.shape), jnp.float32), params)


def sequence() -> tuple[jax.Array, jax.Array]:
    draws = np.random.default_rng(1)
    reset = np.zeros(STEPS, bool)
    reset[[0, 4, 5, 10]] = True
    return jnp.asarray(draws.normal(size=(STEPS, WIDTH)), jnp.float32), jnp.asarray(reset)


def some_memory(cell: Any) -> Any:
    draws = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: _drawn(draws, leaf, leaf.shape), cell.initial_memory())


def _drawn(draws: np.random.Generator, leaf: Any, shape: tuple[int, ...]) -> Any:
    """Random numbers of at most some 2, and for a whole number, which counts steps, 3."""
    if leaf.dtype == jnp.int32:
        return jnp.full(shape, 3, jnp.int32)
    return jnp.asarray(0.5 * draws.normal(size=shape), jnp.float32)


@pytest.mark.fast_rows("lru")
@pytest.mark.parametrize("name", CELLS)
def test_a_step_equals_a_computation_by_hand(key: jax.Array, name: str) -> None:
    cell = CELLS[name](SIZE)
    params, (inputs, _), memory = shaken(cell, key), sequence(), some_memory(cell)
    features, after = jax.jit(cell.apply)(params, inputs[0], memory)
    expected = BY_HAND[name](in_float64(params["params"]), in_float64(inputs[0]), in_float64(memory))
    # A few sums of at most 8 terms of at most 4, and functions whose slope is at most 1.
    for got, exact in zip(jax.tree.leaves((features, after)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, exact, rtol=0, atol=4 * 8 * 4 * EPS)


@pytest.mark.parametrize("name", ["gru", "lstm", "mingru", "s5", "gtrxl"])
def test_a_step_of_a_gated_memory_is_its_formula(name: str) -> None:
    """As above, without a compilation of initial weights."""
    cell, draws = CELLS[name](SIZE), np.random.default_rng(4)
    shapes = jax.eval_shape(cell.init, jax.random.key(0), jnp.zeros(WIDTH), cell.initial_memory())
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape).astype(np.float32), shapes)
    inputs, memory = draws.normal(size=WIDTH).astype(np.float32), some_memory(cell)
    got = cell.apply(params, inputs, memory)
    expected = BY_HAND[name](in_float64(params["params"]), in_float64(inputs), in_float64(memory))
    for leaf, exact in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, exact, rtol=0, atol=4 * 8 * 4 * EPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("first", [False, True], ids=["goes on", "begins anew"])
def test_a_sequence_is_its_steps(key: jax.Array, name: str, first: bool) -> None:
    cell = CELLS[name](SIZE)
    params, (inputs, reset), memory = shaken(cell, key), sequence(), some_memory(cell)
    reset = reset.at[0].set(first)
    at_once = jax.jit(cell.unroll)(params, inputs, memory, reset)
    one_by_one = unroll_by_steps(cell, params, inputs, memory, reset)
    for got, expected in zip(jax.tree.leaves(at_once), jax.tree.leaves(one_by_one), strict=True):
        # As above at each of the up to 5 steps between resets.
        np.testing.assert_allclose(got, expected, rtol=0, atol=5 * 4 * 8 * 4 * EPS)


def summed(unroll: Any, params: Any, inputs: Any, memory: Any, reset: Any) -> jax.Array:
    """A number that depends on the features and the memories after every step."""
    weights = np.random.default_rng(3).normal(size=STEPS)
    both = jax.tree.leaves(unroll(params, inputs, memory, reset))
    return jnp.sum(jnp.stack([weights @ jnp.sin(leaf).reshape(STEPS, -1).sum(axis=1) for leaf in both]))


# In float64: the roundings of a step, see above, at each of the steps.
ROUNDING = STEPS * 4 * 8 * 4 * float(np.finfo(np.float64).eps)


@pytest.mark.slow_rows("lru")
@pytest.mark.parametrize("name", CELLS)
def test_gradients_of_a_sequence_are_those_of_its_steps(key: jax.Array, name: str) -> None:
    cell = CELLS[name](SIZE)
    (inputs, reset), arguments = sequence(), (shaken(cell, key), some_memory(cell))
    reset = reset.at[0].set(False)

    def by_steps(*arguments: Any) -> Any:
        return unroll_by_steps(cell, *arguments)

    with jax.enable_x64(True):
        params, memory = in_float64(arguments)
        got, expected = (
            jax.jit(jax.grad(functools.partial(summed, unroll), argnums=(0, 1, 2), allow_int=True))(
                params, in_float64(inputs), memory, reset
            )
            for unroll in (cell.unroll, by_steps)
        )
    got, expected = map(differentiable, (got, expected))
    for path, exact in jax.tree.leaves_with_path(expected):
        assert exact.dtype == np.float64 and np.all(np.abs(exact).max() > 1e-3), jax.tree_util.keystr(path)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING)


@pytest.mark.fast_rows("lstm")
@pytest.mark.parametrize("name", CELLS)
def test_gradients_of_runs_in_a_batch_are_those_of_each_alone(key: jax.Array, name: str) -> None:
    """Each run with its own weights, and each of its two sequences with its own inputs, memory and resets."""
    cell, draws = CELLS[name](SIZE), np.random.default_rng(5)
    params = [in_float64(shaken(cell, own)) for own in jax.random.split(key, 3)]
    inputs, reset = draws.normal(size=(3, STEPS, 2, WIDTH)), draws.random((3, STEPS, 2)) < 0.3
    reset[:, 0] = False
    memory = jax.tree.map(lambda leaf: in_float64(_drawn(draws, leaf, (3, 2, *leaf.shape))), cell.initial_memory())
    number = functools.partial(summed, functools.partial(unroll_over, cell))
    gradient = jax.grad(number, argnums=(0, 1, 2), allow_int=True)
    with jax.enable_x64(True):
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
        batched, alone = jax.jit(jax.vmap(gradient))(stacked, inputs, memory, reset), jax.jit(gradient)
        for run in range(3):
            each = [
                alone(params[run], inputs[run, :, i], jax.tree.map(lambda leaf: leaf[run, i], memory), reset[run, :, i])  # noqa: B023
                for i in range(2)
            ]
            of_params, of_inputs, of_memory = zip(*each, strict=True)
            expected = (
                jax.tree.map(jnp.add, *of_params),
                jnp.stack(of_inputs, axis=1),
                [jnp.stack(leaves) for leaves in zip(*map(differentiable, of_memory), strict=True)],
            )
            of_run = jax.tree.map(lambda leaf: leaf[run], batched)  # noqa: B023
            for got, exact in zip(differentiable(of_run), jax.tree.leaves(expected), strict=True):
                assert got.dtype == np.float64 and np.any(got != 0)
                np.testing.assert_allclose(got, exact, rtol=0, atol=2 * ROUNDING)  # of two sequences


@pytest.mark.slow
def test_initial_weights_are_orthogonal_gate_by_gate(key: jax.Array) -> None:
    for name, count in {"gru": 3, "lstm": 4}.items():
        weights = jax.jit(CELLS[name](SIZE).init)(key, jnp.zeros(SIZE), CELLS[name](SIZE).initial_memory())["params"]
        for kernel in ("kernel", "input_kernel"):
            for gate in np.split(np.asarray(weights[kernel], np.float64), count, axis=1):
                # Two projections, each a sum of SIZE terms of at most 1 and as many of their products.
                np.testing.assert_allclose(gate.T @ gate, np.eye(SIZE), rtol=0, atol=2 * 2 * SIZE * EPS)
    assert weights["bias"].tolist() == [0.0] * SIZE + [1.0] * SIZE + [0.0] * 2 * SIZE
    big = LRU(2000)
    weights = jax.jit(big.init)(key, jnp.zeros(1), big.initial_memory())["params"]
    size, phase = np.exp(-np.exp(weights["nu"])), np.exp(weights["theta"])
    assert size.min() >= 0.9 and size.max() <= 0.999 + 4 * EPS and phase.max() <= np.pi / 10
    # Uniform: the mean of 2000 is within 5 of its standard errors, 1 / sqrt(12 * 2000) of the width each.
    error = 5 / np.sqrt(12 * 2000)
    np.testing.assert_allclose(np.mean(size**2), (0.9**2 + 0.999**2) / 2, atol=(0.999**2 - 0.9**2) * error)
    np.testing.assert_allclose(np.mean(phase), np.pi / 20, atol=np.pi / 10 * (error + 1e-3))


class Counting(nn.Module):
    """A user-defined network without `unroll`, whose memory counts in whole numbers, visible to the outputs."""

    num_outputs: int

    def initial_memory(self) -> dict[str, jax.Array]:
        return {"count": jnp.int32(0)}

    @nn.compact
    def __call__(self, obs: jax.Array, memory: Any) -> tuple[jax.Array, jax.Array, Any]:
        memory = {"count": memory["count"] + 1}
        features = jnp.append(obs, memory["count"].astype(jnp.float32))
        return nn.Dense(self.num_outputs)(features), nn.Dense(1)(features)[0], memory


def built(name: str) -> Any:
    if name == "own":
        return Counting(2)
    if name == "flax":
        return RecurrentActorCritic(
            MLPActorCritic(None, (5,)), FlaxCell(nn.GRUCell(SIZE, param_dtype=jnp.float64)), Heads(2, (3,))
        )
    if name == "own cell":  # a user's cell without `unroll`, between jaxrl's encoder and heads
        return RecurrentActorCritic(MLPActorCritic(None, (5,)), Summing(), Heads(2, (3,)))
    return NetworkConfig(hidden=(5,), memory=name, memory_size=SIZE, memory_hidden=(3,)).actor_critic(  # pyright: ignore
        jax.ShapeDtypeStruct((WIDTH,), jnp.float32), 2, None
    )


class Summing(nn.Module):
    """A memory without parameters: the sum of the features."""

    def initial_memory(self) -> jax.Array:
        return jnp.zeros(5)

    def __call__(self, features: jax.Array, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(features + memory), features + memory


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CELLS, "own", "own cell", "flax"])
def test_unrolling_several_agents_equals_stepping_each_apart(key: jax.Array, name: str) -> None:
    with jax.enable_x64(True):
        network = built(name)
        assert is_recurrent(network)
        draws = np.random.default_rng(4)
        obs, reset = draws.normal(size=(STEPS, 2, 3, WIDTH)), draws.random((STEPS, 2, 3)) < 0.2
        params = jax.jit(network.init)(key, obs[0, 0, 0], network.initial_memory())
        params = jax.tree.map(lambda leaf: leaf + 0.1, in_float64(params))
        step, unroll = jax.jit(step_over, static_argnums=(0, 4)), jax.jit(unroll_over, static_argnums=0)
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2, 3, *leaf.shape)), network.initial_memory())
        outputs, value, after = unroll(network, params, obs, memory, reset)
        for t in range(STEPS):
            memory = jax.tree.map(
                lambda leaf, first: jnp.where(reset[t].reshape(2, 3, *[1] * first.ndim), first, leaf),  # noqa: B023
                memory,
                network.initial_memory(),
            )
            now, value_now, memory = step(network, params, obs[t], memory, 2)
            for got, expected in zip(
                jax.tree.leaves((outputs[t], value[t], jax.tree.map(lambda leaf: leaf[t], after))),  # noqa: B023
                jax.tree.leaves((now, value_now, memory)),
                strict=True,
            ):
                assert got.dtype in (np.float64, np.int32)
                np.testing.assert_allclose(got, expected, rtol=0, atol=ROUNDING)
        # The end of one agent's episode has no effect on another agent.
        ended = reset.copy()
        ended[6, 1, 2] = not reset[6, 1, 2]
        other, same = (unroll(network, params, obs, memory, flags)[0] for flags in (ended, reset))
    changed = np.any(np.asarray(same != other), axis=(0, 3))
    assert changed.tolist() == [[False] * 3, [False, False, True]]


class Odd(Counting):
    """Invalid networks, by their defect."""

    wrong: str = ""

    def initial_memory(self) -> Any:
        if self.wrong == "remembers nothing":
            return ()
        return jnp.zeros(2, jnp.complex64 if self.wrong == "complex" else jnp.float32)

    @nn.compact
    def __call__(self, obs: jax.Array, memory: Any) -> Any:
        if self.wrong == "counts":
            obs = nn.BatchNorm(use_running_average=False)(obs)
        outputs, value = nn.Dense(self.num_outputs)(obs), nn.Dense(1)(obs)[0]
        if self.wrong == "forgets":
            return outputs, value
        return outputs, value, memory[:1] if self.wrong == "shrinks" else memory


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Odd(2, wrong="forgets"), r"network must return \(outputs \[2\], value \[\], memory\) for one observation and"),
        (
            RecurrentActorCritic(MLPActorCritic(None, (5,)), nn.GRUCell(SIZE), Heads(2)),
            r"cell must have a method initial_memory, got flax's GRUCell; use cells.FlaxCell of it",
        ),
        (
            Odd(2, wrong="remembers nothing"),
            r"network.initial_memory\(\) must give a memory of at least one array, got \(\)",
        ),
        (Odd(3), r"network must return \(outputs \[2\], .* got shapes \(3,\) and \(\)"),
        (Odd(2, wrong="shrinks"), r"memory like its initial_memory, {'memory': 'float32\[2\]'}, got .*'float32\[1\]'"),
        (Odd(2, wrong="complex"), r"network.initial_memory\(\) must give real arrays, got complex64\[2\]"),
        (Odd(2, wrong="counts"), "network must have parameters as its only variables, got Odd with 'batch_stats'"),
    ],
)
def test_an_unusable_network_is_reported(network: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        check_recurrent(network, jax.ShapeDtypeStruct((WIDTH,), jnp.float32), 2)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"memory": "rnn"}, "memory must be one of none, gru, lstm, lru, mingru, s5, gtrxl, got 'rnn'"),
        ({"memory_size": 8}, "memory_size has no effect with memory='none', got 8; it takes a memory"),
        ({"memory_hidden": (8,)}, r"memory_hidden has no effect with memory='none', got \(8,\)"),
        ({"memory": "gru", "memory_size": 0}, "memory_size must be a whole number of at least 1, got 0"),
        ({"memory_window": 8}, "memory_window has no effect with memory='none', got 8; it takes memory='gtrxl'"),
        (
            {"memory": "gru", "memory_layers": 2},
            "memory_layers has no effect with memory='gru', got 2; it takes",
        ),
        ({"memory": "gtrxl", "memory_window": 1}, "memory_window must be a whole number of at least 2, got 1"),
        ({"memory": "gtrxl", "memory_layers": 0}, "memory_layers must be a whole number of at least 1, got 0"),
        ({"memory": "gtrxl", "memory_heads": 3}, "memory_heads must divide memory_size=64 with memory='gtrxl', got 3"),
        ({"memory": "gru", "shared_trunk": True}, "shared_trunk has no effect with memory='gru'"),
    ],
)
def test_fields_that_do_not_fit_get_a_sentence(fields: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        NetworkConfig(**fields)


OBSERVATIONS = {
    "mlp": jax.ShapeDtypeStruct((3,), jnp.float32),
    "cnn": jax.ShapeDtypeStruct((5, 5, 2), jnp.float32),
    "relation": {
        "own": jax.ShapeDtypeStruct((3,), jnp.float32),
        "neighbours": jax.ShapeDtypeStruct((2, 5), jnp.float32),
        "neighbours_present": jax.ShapeDtypeStruct((2,), jnp.float32),
    },
}


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_every_encoder_takes_a_memory(kind: Any) -> None:
    network = NetworkConfig(network=kind, hidden=(5,), memory="lru", memory_size=SIZE).actor_critic(
        OBSERVATIONS[kind], 2, 3
    )
    check_recurrent(network, OBSERVATIONS[kind], 2, 3)
    start: Any = network.initial_memory()  # pyright: ignore[reportAttributeAccessIssue]
    shapes: Any = jax.eval_shape(network.init, jax.random.key(0), OBSERVATIONS[kind], start)
    assert all(name.startswith("trunk") for name in shapes["params"]["encoder"])
    assert shapes["params"]["cell"]["input_kernel"].shape == (5, 2 * SIZE)


class Biased(GRU):
    """A cell whose memory at the start is not 0."""

    def initial_memory(self) -> dict[str, jax.Array]:
        return {"hidden": jnp.full(self.size, 0.5)}


@pytest.mark.slow
def test_a_reset_leads_to_the_cells_own_start(key: jax.Array) -> None:
    cell, features = Biased(SIZE), jax.random.normal(key, (STEPS, WIDTH))
    params = cell.init(key, features[0], cell.initial_memory())
    reset = jnp.arange(STEPS) % 4 == 3
    at_once = cell.unroll(params, features, cell.initial_memory(), reset)[0]
    in_steps = unroll_by_steps(cell, params, features, cell.initial_memory(), reset)[0]
    # Some ten roundings of numbers below 1 at each step, of which those of the last four steps remain.
    np.testing.assert_allclose(at_once, in_steps, rtol=0, atol=4 * 10 * EPS)


def test_a_field_named_start_is_not_a_memory() -> None:
    class Started(nn.Module):
        start: Any

        def __call__(self, obs: jax.Array) -> Any:
            return self.start(obs), jnp.sum(obs)

    assert not is_recurrent(Started(nn.Dense(2)))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_linear_recurrent_unit_takes_the_activation_of_the_configuration(activation: Any) -> None:
    config = NetworkConfig(hidden=(5,), activation=activation, memory="lru", memory_size=SIZE)
    network: Any = config.actor_critic(jax.ShapeDtypeStruct((WIDTH,), jnp.float32), 2, None)
    assert network.cell.activation == activation
