"""Critics of images and actions in float64: their values, their step, and the gradient that a policy gets from them."""

from typing import Any

import float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import Adam
from linear_task import LinearTask
from quick_jit import quick_jit
from recorded_env import RecordedEnv

import jaxrl
from envs import wrappers
from jaxrl.algorithms.actor_critic import ActorCritic, actor_critic
from jaxrl.algorithms.registry import ROWS
from jaxrl.algorithms.value_function import Nodes, Target
from jaxrl.learning.optimisers import adam
from jaxrl.learning.replay import Window

Array = np.ndarray
BATCH, HEIGHT, WIDTH, STRIDE = 6, 3, 2, 2
IMAGES = {"network": "cnn", "channels": (2,), "strides": (STRIDE,), "hidden": (3,), "activation": "tanh"}
LR, EPS = 0.01, 0.1
BUILDS: dict[str, Any] = {"sac": (jaxrl.SACConfig, jaxrl.sac), "td3": (jaxrl.TD3Config, jaxrl.td3)}


def pixels(obs: jax.Array) -> jax.Array:
    """An image, uint8 `[HEIGHT, WIDTH, 1]`, of two numbers."""
    place = jnp.arange(HEIGHT)[:, None] + 3.0 * jnp.arange(WIDTH)
    return jnp.clip(128 + 60 * jnp.sin(place * obs[0] + obs[1]), 0, 255).astype(jnp.uint8)[..., None]


ENV = wrappers.transform_observation(LinearTask(), pixels, 0, 255)


def convolved(layer: Any, image: Array) -> Array:
    """A 3 x 3 convolution of one image, pixel by pixel; a border of even length is larger at the end."""
    sizes = [-(-size // STRIDE) for size in image.shape[:2]]
    before = [max((new - 1) * STRIDE + 3 - old, 0) // 2 for new, old in zip(sizes, image.shape[:2], strict=True)]
    result = np.tile(layer["bias"], (*sizes, 1))
    for i, j, y, x in np.ndindex(*sizes, 3, 3):
        row, column = i * STRIDE + y - before[0], j * STRIDE + x - before[1]
        if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
            result[i, j] += image[row, column] @ layer["kernel"][y, x]
    return result


def outputs(params: Any, images: Array, actions: Array | None = None) -> Array:
    """Outputs `[B, n]` of a network for images, and for actions if any."""
    encoder, rows = params["params"]["encoder"], []
    for i, image in enumerate(images):
        features = np.tanh(convolved(encoder["trunk_convolution_0"], image / 255.0)).ravel()
        rows.append(features if actions is None else np.concatenate([features, actions[i]]))
    return float64.dense(params["params"]["out"], float64.perceptron(encoder, np.array(rows), "trunk"))


def values(critics: Any, images: Array, actions: Array) -> Array:
    """Values of each critic, `[C, B]`."""
    count = len(critics["params"]["out"]["bias"])
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], critics) for i in range(count)]
    return np.array([outputs(critic, images, actions)[:, 0] for critic in each])


@pytest.fixture(scope="module")
def agent() -> ActorCritic:
    return actor_critic("td3", ENV, jaxrl.TD3Config(**IMAGES), ())


@pytest.fixture(scope="module")
def params(agent: ActorCritic) -> Any:
    """Parameters of the policy and of the critics, without zeros."""
    return jax.tree.map(lambda leaf: leaf + 0.1, quick_jit(agent.init)(jax.random.key(1)))


@pytest.fixture(scope="module")
def batch() -> Window:
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.integers(0, 256, (2, BATCH, HEIGHT, WIDTH, 1)), jnp.uint8)
    action = jnp.asarray(rng.uniform(-1, 1, (BATCH, 2)), jnp.float32)
    reward, flags = jnp.asarray(rng.normal(size=(BATCH, 1)), jnp.float32), jnp.ones(BATCH, bool)
    ended = flags.at[2:].set(False), ~flags
    return Window(images[0], action, None, flags, reward, flags[:, None], images[1], None, *ended, *images)


def test_a_step_of_critics_of_images_is_that_of_float64(agent: ActorCritic, params: Any, batch: Window) -> None:
    algo = jaxrl.td3(ENV, agent.config)
    hparams = agent.prepare(algo.hparams.replace(lr=LR, adam_eps=EPS, discount=0.9))
    nodes, after = Nodes.of(hparams.discount), jnp.linspace(-1, 1, BATCH)[:, None, None]
    optimiser = adam(hparams, LR).init(params[1])

    def step(critics: Any) -> Any:
        following = Target(after, jnp.ones_like(after))
        return agent.descend(critics, optimiser, batch, following, jnp.ones(BATCH), nodes, hparams)

    learnt, _, error, _ = quick_jit(step)(params[1])
    critics, images = float64.in_float64(params[1]), np.asarray(batch.obs, np.float64)
    goal = np.float64(batch.reward[:, 0]) + 0.9 * ~np.asarray(batch.terminated) * np.float64(after[:, 0, 0])

    def errors(critics: Any) -> Array:
        return values(critics, images, np.asarray(batch.raw_action, np.float64)) - goal

    def loss(critics: Any) -> float:
        return float(np.sum(errors(critics) ** 2) / 2 / BATCH)

    np.testing.assert_allclose(error, np.mean(np.abs(errors(critics)), axis=0), rtol=0, atol=1e-5)
    expected = Adam(hparams)(critics, float64.gradient(loss, critics), LR)
    # A gradient of at most 10 with relative roundings of 1e-6 in all; Adam multiplies them by lr / eps = 0.1.
    float64.assert_same(learnt, expected, 1e-6)
    moves = float64.vector_of(expected) - float64.vector_of(critics)
    assert np.median(np.abs(moves)) > 1e-4


def test_a_policy_of_images_follows_the_gradient_of_its_critics(agent: ActorCritic, params: Any, batch: Window) -> None:
    def value(policy: Any) -> jax.Array:
        action = jnp.tanh(agent.outputs(policy, batch.obs))
        return jnp.mean(agent.values(params[1], batch.obs, action))

    gradient = quick_jit(jax.grad(value))(params[0])
    policy, critics, images = *float64.in_float64(params), np.asarray(batch.obs, np.float64)

    def reference(policy: Any) -> float:
        return float(np.mean(values(critics, images, np.tanh(outputs(policy, images)))))

    slopes = float64.gradient(reference, policy)
    np.testing.assert_allclose(float64.vector_of(gradient), slopes, rtol=0, atol=1e-5)
    assert np.median(np.abs(slopes)) > 1e-3


@pytest.mark.parametrize("name", ["sac", "td3"])
@pytest.mark.parametrize("crowd", [False, True])
def test_images_are_stored_unchanged(name: str, crowd: bool) -> None:
    env = wrappers.transform_observation(
        RecordedEnv(discrete=False, num_agents=2) if crowd else LinearTask(), pixels, 0, 255
    )
    config, build = BUILDS[name]
    algo = build(env, config(**{**ROWS[name].small, **IMAGES}))
    hparams, params = algo.prepare(algo.hparams), env.default_params
    state = jax.eval_shape(algo.init, jax.random.key(0), hparams, params)
    # Each image once, but where agents that outlive an episode may end it at any step.
    images, shape = (state.buffer.obs, (HEIGHT, WIDTH, 1)) if crowd else (state.buffer.obs.newest, (HEIGHT * WIDTH,))
    assert images.dtype == jnp.uint8 and images.shape[-len(shape) :] == shape
    kernels = state.learner.critics["params"]["encoder"]
    assert kernels["trunk_convolution_0"]["kernel"].shape == (2, 3, 3, 1, 2)  # an encoder for each critic
    assert kernels["trunk_0"]["kernel"].shape == (2, 2 * 1 * 2 + 2, 3)
    after = jax.eval_shape(algo.step, jax.random.key(0), jnp.int32(0), state, hparams, params)[0]
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), state
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_the_laws_hold_of_images(name: str) -> None:
    config, build = BUILDS[name]
    jaxrl.check(build(ENV, config(**{**ROWS[name].small, **IMAGES})))
