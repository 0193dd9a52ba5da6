"""Actor-critic networks and their layers, shapes of observations, and the check of custom flax modules."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import InvalidRngError
from jax.typing import DTypeLike

from envs.base import Environment
from envs.choices import Choices, encoded, with_choices
from envs.errors import UserTypeError, UserValueError
from envs.loops import traced_platform
from jaxrl.pytrees import Action, Observation, Params, PyTree

# flax's module under another name: only this file and others of its folder import flax.linen.
Module = nn.Module

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "silu": nn.silu,
}
_EXPANSION = 4  # width within a block, in widths of the block


def flatten_observation(obs: Observation) -> jax.Array:
    """One observation, an array or a dictionary of arrays, as a float32 vector, in which pixels are divided by 255."""
    return jnp.concatenate([_numbers(leaf) for leaf in jax.tree.leaves(obs)])


def are_pixels(leaf: jax.Array) -> bool:
    """Whether a leaf of an observation is an image of unsigned integers of 8 bits, or a stack of such images."""
    return jnp.result_type(leaf) == jnp.uint8 and jnp.ndim(leaf) in (3, 4)


def _numbers(leaf: jax.Array) -> jax.Array:
    numbers = jnp.ravel(leaf).astype(jnp.float32)
    return numbers / 255.0 if are_pixels(leaf) else numbers


class MLPActorCritic(nn.Module):
    """Two multilayer perceptrons, or one with two heads, from one observation.

    Orthogonal initial weights with gain sqrt(2), .01 for the actor's last layer and 1 for the
    critic's, as is usual for PPO.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`); None for an encoder, which
        returns the features of a shared trunk.
      hidden: Widths of the hidden layers.
      activation: Name in `ACTIVATIONS`.
      shared_trunk: Whether actor and critic share the hidden layers.
      num_values: Number of values of the critic; None for one, without an axis.
      layer_norm: Whether each hidden layer is normalised before its activation.
      choices: Choices in observations, by `choices.choices_of`.
    """

    num_outputs: int | None
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    num_values: int | None = None
    layer_norm: bool = False
    choices: Choices = ()

    @nn.compact
    def __call__(self, obs: Observation) -> Any:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one observation."""
        features = flatten_observation(encoded(obs, self.choices))
        if self.num_outputs is None:
            return self._features(features, "trunk")
        actor = self._features(features, "trunk" if self.shared_trunk else "actor")
        critic = actor if self.shared_trunk else self._features(features, "critic")
        return last_layers(actor, critic, self.num_outputs, self.num_values)

    def _features(self, features: jax.Array, name: str) -> jax.Array:
        return perceptron(features, self.hidden, self.activation, name, self.layer_norm)


class ResidualActorCritic(MLPActorCritic):
    """`MLPActorCritic` with a residual block for each hidden layer, all of one width, and `layer_norm` without effect.

    Source: Lee et al. (2024), "SimBa: simplicity bias for scaling up parameters in deep reinforcement learning", arXiv
    2410.09754; its normalisation of observations is a setting of the algorithms, `normalise_observation`.
    """

    def _features(self, features: jax.Array, name: str) -> jax.Array:
        return residual_blocks(features, self.hidden, self.activation, name)


class CNNActorCritic(nn.Module):
    """Two convolutional networks, or one with two heads, from one array `[height, width, channels]`.

    Of a stack of them, `[frames, height, width, channels]`, the frames are channels.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`); None for an encoder, which
        returns the features of a shared trunk.
      channels: Numbers of channels of the 3 x 3 convolutions, with padded borders.
      strides: Strides of the convolutions.
      hidden: Widths of the hidden layers that follow.
      activation: Name in `ACTIVATIONS`.
      shared_trunk: Whether actor and critic share all but the last layer.
      num_values: Number of values of the critic; None for one, without an axis.
      layer_norm: Whether each convolution and hidden layer is normalised before its activation.
      choices: Choices in observations, by `choices.choices_of`, whose one-hot vectors are channels.
      with_action: Whether observations are joined with an action by `networks.with_action`; the action joins the
        features of the image before the hidden layers.
    """

    num_outputs: int | None
    channels: tuple[int, ...] = (16, 32)
    strides: tuple[int, ...] = (1, 1)
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    num_values: int | None = None
    layer_norm: bool = False
    choices: Choices = ()
    with_action: bool = False

    @nn.compact
    def __call__(self, obs: Observation) -> Any:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one observation.

        Unsigned integers of 8 bits, such as pixels, are divided by 255.
        """
        chex.assert_rank(obs["observation"] if self.with_action else obs, {3, 4}, custom_message="obs")
        obs = encoded(obs, self.choices)
        pixels, action = (obs["observation"], (obs["action"],)) if self.with_action else (obs, ())
        image = image_of(pixels)
        if self.num_outputs is None:
            return self._features(image, "trunk", action)
        actor = self._features(image, "trunk" if self.shared_trunk else "actor")
        critic = actor if self.shared_trunk else self._features(image, "critic")
        return last_layers(actor, critic, self.num_outputs, self.num_values)

    def _features(self, image: jax.Array, name: str, action: tuple[jax.Array, ...] = ()) -> jax.Array:
        image = convolutions(image, self.channels, self.strides, self.activation, name, self.layer_norm)
        features = jnp.concatenate([jnp.ravel(image), *action]) if action else jnp.ravel(image)
        return perceptron(features, self.hidden, self.activation, name, self.layer_norm)


class EntriesActorCritic(nn.Module):
    """Two networks, or one with two heads, from a dictionary, each entry of which has an encoder of its own.

    Features of all entries, in the order of their sorted names, are the input of the hidden layers. Where the
    dictionary is the entry "observation" of another one (`joined`), what only a critic sees is beside it, and joins the
    features as it is.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`); None for an encoder, which
        returns the features of a shared trunk.
      encoders: Pairs of an entry and its encoder: "cnn", the convolutions of `CNNActorCritic`; "mlp", hidden layers on
        its flattened numbers; "flat", its flattened numbers, which is that of all other entries.
      channels, strides: Numbers of channels and strides of the convolutions.
      encoder_hidden: Widths of the hidden layers of "mlp".
      hidden: Widths of the hidden layers that follow.
      activation: Name in `ACTIVATIONS`.
      shared_trunk: Whether actor and critic share all but the last layer.
      num_values: Number of values of the critic; None for one, without an axis.
      layer_norm: Whether each convolution and hidden layer is normalised before its activation.
      choices: Choices in observations, by `choices.choices_of`.
      with_action: Whether observations are joined with an action by `networks.with_action`; the action joins the
        features before the hidden layers.
      joined: Whether the dictionary is the entry "observation" of another one.
    """

    num_outputs: int | None
    encoders: tuple[tuple[str, str], ...]
    channels: tuple[int, ...] = (16, 32)
    strides: tuple[int, ...] = (1, 1)
    encoder_hidden: tuple[int, ...] = (64,)
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    num_values: int | None = None
    layer_norm: bool = False
    choices: Choices = ()
    with_action: bool = False
    joined: bool = False

    @nn.compact
    def __call__(self, obs: dict[str, Any]) -> Any:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one observation."""
        obs = encoded(obs, self.choices)
        others = []
        if self.with_action:
            obs, action = without_action(obs)
            others = [action]
        if self.joined:
            others = [flatten_observation({**obs, "observation": ()}), *others]
            obs = obs["observation"]
        if self.num_outputs is None:
            return self._features(obs, others, "trunk")
        actor = self._features(obs, others, "trunk" if self.shared_trunk else "actor")
        critic = actor if self.shared_trunk else self._features(obs, others, "critic")
        return last_layers(actor, critic, self.num_outputs, self.num_values)

    def _features(self, obs: dict[str, Any], others: list[jax.Array], name: str) -> jax.Array:
        kinds = dict(self.encoders)
        parts = [self._part(kinds.get(entry, "flat"), leaf, name, entry) for entry, leaf in sorted(obs.items())]
        return perceptron(jnp.concatenate([*parts, *others]), self.hidden, self.activation, name, self.layer_norm)

    def _part(self, kind: str, leaf: PyTree, name: str, entry: str) -> jax.Array:
        if kind == "flat":
            return flatten_observation(leaf)
        name = f"{name}_{kind}_{entry}"
        if kind == "cnn":
            shape = (image_of(leaf), self.channels, self.strides, self.activation, name, self.layer_norm)
            return jnp.ravel(convolutions(*shape))
        return perceptron(flatten_observation(leaf), self.encoder_hidden, self.activation, name, self.layer_norm)


def image_of(pixels: jax.Array) -> jax.Array:
    """Image, float32 `[height, width, channels]`, of pixels, whose unsigned integers of 8 bits are divided by 255.

    Args:
      pixels: One array `[height, width, channels]`, or a stack `[frames, height, width, channels]`, whose frames become
        channels.
    """
    chex.assert_rank(pixels, {3, 4}, custom_message="pixels")
    image = pixels.astype(jnp.float32) / (255.0 if pixels.dtype == jnp.uint8 else 1.0)
    return jnp.moveaxis(image, 0, 2).reshape(*image.shape[1:3], -1) if image.ndim == 4 else image


def convolutions(
    image: jax.Array,
    channels: tuple[int, ...],
    strides: tuple[int, ...],
    activation: str,
    name: str,
    layer_norm: bool = False,
) -> jax.Array:
    """Image after the convolutions `name_convolution_0`, `name_convolution_1`, ... of the calling module.

    Args:
      image: Image, `[height, width, channels]`.
      channels, strides: Number of channels and stride of each convolution.
      activation: Name in `ACTIVATIONS`.
      name: Prefix of the layers' names.
      layer_norm: Whether each convolution is normalised before its activation.
    """
    chex.assert_rank(image, 3, custom_message="image")
    for i, (number, stride) in enumerate(zip(channels, strides, strict=True)):
        image = _Convolution(number, stride, name=f"{name}_convolution_{i}")(image)
        if layer_norm:
            # Over the whole layer, with a scale and an offset for each channel.
            image = nn.LayerNorm(reduction_axes=(-3, -2, -1), name=f"{name}_convolution_{i}_norm")(image)
        image = ACTIVATIONS[activation](image)
    return image


class _Convolution(nn.Module):
    """A 3 x 3 convolution with padded borders; on a CPU as the product of all patches of an image with one matrix.

    In a batch of runs the kernels of a convolution become the groups of one convolution, and those of its gradients,
    which take longer on a CPU than a batch of products. On an accelerator the patches, nine times as large as the
    image, would take most of the memory of a run.

    Attributes:
      channels: Number of channels of the result.
      stride: Distance of the patches.
    """

    channels: int
    stride: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        """Image `[ceil(height / stride), ceil(width / stride), channels]`."""
        kernel = self.param("kernel", _convolution_init, (3, 3, image.shape[-1], self.channels))
        bias = self.param("bias", nn.initializers.zeros, (self.channels,))
        ends = [(-(-size // self.stride) - 1) * self.stride + 1 for size in image.shape[:2]]  # of the first pixels
        borders = [max(end + 2 - size, 0) for end, size in zip(ends, image.shape[:2], strict=True)]
        padding = [(border // 2, border - border // 2) for border in borders]
        if traced_platform() != "cpu":
            strides, dimensions = (self.stride, self.stride), ("NHWC", "HWIO", "NHWC")
            return (
                jax.lax.conv_general_dilated(image[None], kernel, strides, padding, dimension_numbers=dimensions)[0]
                + bias
            )
        padded = jnp.pad(image, [*padding, (0, 0)])
        shifted = [
            padded[y : y + ends[0] : self.stride, x : x + ends[1] : self.stride] for y in range(3) for x in range(3)
        ]
        return jnp.concatenate(shifted, axis=-1) @ kernel.reshape(-1, self.channels) + bias


def perceptron(
    features: jax.Array, widths: tuple[int, ...], activation: str, name: str, layer_norm: bool = False
) -> jax.Array:
    """Features after the hidden layers `name_0`, `name_1`, ... of the calling module.

    Args:
      features: Input of the first layer, `[width]`.
      widths: Widths of the layers.
      activation: Name in `ACTIVATIONS`.
      name: Prefix of the layers' names.
      layer_norm: Whether each layer is normalised before its activation.

    Source: Ba, Kiros and Hinton (2016), "Layer normalization".
    """
    for i, width in enumerate(widths):
        features = dense(width, np.sqrt(2), f"{name}_{i}")(features)
        if layer_norm:
            features = nn.LayerNorm(name=f"{name}_{i}_norm")(features)
        features = ACTIVATIONS[activation](features)
    return features


def residual_blocks(features: jax.Array, widths: tuple[int, ...], activation: str, name: str) -> jax.Array:
    """Features after a linear layer, residual blocks and a layer normalisation of the calling module.

    A block adds to its input two layers of the normalised input, of which the first is four times as wide and the
    second is linear.

    Args:
      features: Input, `[width]`.
      widths: Width of each block, all equal.
      activation: Name in `ACTIVATIONS`.
      name: Prefix of the layers' names.

    Returns:
      Features, `[widths[0]]`.
    """
    chex.assert_rank(features, 1, custom_message="features")
    features = dense(widths[0], 1.0, f"{name}_in")(features)
    for i, width in enumerate(widths):
        hidden = nn.LayerNorm(name=f"{name}_{i}_norm")(features)
        hidden = ACTIVATIONS[activation](_layer(_EXPANSION * width, f"{name}_{i}_wide")(hidden))
        features = features + _layer(width, f"{name}_{i}_out")(hidden)
    return nn.LayerNorm(name=f"{name}_norm")(features)


def _layer(width: int, name: str) -> nn.Dense:
    return nn.Dense(width, kernel_init=nn.initializers.he_normal(), name=name)


def last_layers(
    actor: jax.Array, critic: jax.Array, num_outputs: int, num_values: int | None
) -> tuple[jax.Array, jax.Array]:
    """Last layers of the calling module: outputs, and the value or the values."""
    return last_of_actor(actor, num_outputs), last_of_critic(critic, num_values)


def last_of_actor(features: jax.Array, num_outputs: int) -> jax.Array:
    """Last layer of the actor, `actor_out`, of the calling module: outputs `[num_outputs]`."""
    return dense(num_outputs, 0.01, "actor_out")(features)


def last_of_critic(features: jax.Array, num_values: int | None) -> jax.Array:
    """Last layer of the critic, `critic_out`, of the calling module: the value `[]`, or values `[num_values]`."""
    values = dense(1 if num_values is None else num_values, 1.0, "critic_out")(features)
    return values[0] if num_values is None else values


def _convolution_init(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> jax.Array:
    return np.sqrt(2) * orthogonal(key, math.prod(shape[:-1]), shape[-1]).reshape(shape).astype(dtype)


def dense(width: int, gain: float, name: str) -> nn.Dense:
    """Dense layer with orthogonal initial weights of a gain."""
    return nn.Dense(width, kernel_init=dense_init(gain), name=name)


def dense_init(gain: float) -> Callable[..., jax.Array]:
    """Orthogonal initial weights of a gain."""

    def kernel_init(key: jax.Array, shape: tuple[int, int], dtype: DTypeLike = jnp.float32) -> jax.Array:
        return gain * orthogonal(key, *shape).astype(dtype)

    return kernel_init


@functools.partial(jax.jit, static_argnums=(1, 2))
def orthogonal(key: jax.Array, rows: int, columns: int) -> jax.Array:
    """Random matrix with orthonormal columns, or rows if those are fewer, by Gram-Schmidt.

    The distribution is uniform over such matrices. Every vector is projected twice, which gives orthogonality up to
    rounding. LAPACK is not used: its batched calls can deadlock by starving each other of threads in one program of
    JAX 0.10 on a CPU.

    Args:
      key: Random key, traced.
      rows, columns: Numbers of rows and columns, static.

    Returns:
      Matrix, float32 `[rows, columns]`; empty without rows or columns.

    Source: Giraud, Langou and Rozloznik (2005), "The loss of orthogonality in the Gram-Schmidt process".
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    length, count = max(rows, columns), min(rows, columns)
    if not count:  # of an empty observation
        return jnp.zeros((rows, columns))
    vectors = jax.random.normal(key, (length, count)).T

    def add(i: Any, basis: jax.Array) -> jax.Array:
        vector = vectors[i]
        for _ in range(2):
            along = jnp.matmul(basis, vector, precision="highest")
            vector = vector - jnp.matmul(along, basis, precision="highest")
        return basis.at[i].set(vector / jnp.linalg.norm(vector))

    basis = jax.lax.fori_loop(0, count, add, jnp.zeros_like(vectors))
    return basis.T if rows >= columns else basis


def orthogonal_gates(count: int) -> Callable[[jax.Array, tuple[int, ...]], jax.Array]:
    """Initial weights of `count` orthogonal matrices of equal shapes, concatenated along columns."""

    def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        rows, columns = shape[0], shape[1] // count
        matrices = jax.vmap(lambda key: orthogonal(key, rows, columns))(jax.random.split(key, count))
        return matrices.transpose(1, 0, 2).reshape(shape)

    return init


def observation_shapes(env: Environment, agents: tuple[int, ...]) -> Any:
    """Shapes of the observation of one agent, with choices as `choices.ChoiceShape`.

    Args:
      env: Environment with its default parameters.
      agents: Axes of its agents.
    """
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)[0]
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(agents) :], leaf.dtype), obs)
    return with_choices(env.observation_space(env.default_params), shapes)


def zeros(shapes: PyTree) -> Any:
    """Arrays of zeros, to initialise a network with."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def leading_axes(obs: Observation, shapes: PyTree) -> int:
    """Number of leading axes of observations, from the shapes of one."""
    return jax.tree.leaves(obs)[0].ndim - len(jax.tree.leaves(shapes)[0].shape)


def apply_over(network: nn.Module, params: Params, obs: Observation, num_axes: int, *others: Any) -> Any:
    """Apply a network to observations, and to other arguments if any, with `num_axes` leading axes."""
    function = network.apply
    for _ in range(num_axes):
        function = jax.vmap(function, in_axes=(None, 0, *[0] * len(others)))
    return function(params, obs, *others)


def returned(name: str, network: Any, inputs: Mapping[str, Any]) -> Any:
    """Shapes that a network returns for those of its inputs, with parameters as its only variables.

    Args:
      name: Name of the argument, for error messages.
      network: Flax module, called as `network.apply(params, *inputs.values())`.
      inputs: Shapes of its arguments, by name.

    Raises:
      TypeError, ValueError: It is not a flax module, takes other arguments, has other variables than parameters, or
        draws random numbers.
    """
    if not isinstance(network, nn.Module):
        is_class = isinstance(network, type)
        got = f"the class {network.__name__}, of which it takes an instance" if is_class else type(network).__name__
        raise UserTypeError(f"{name} must be a flax.linen module, got {got}")
    taken = inspect.signature(network.__call__)  # pyright: ignore
    try:
        taken.bind(*inputs)
    except TypeError:
        raise UserTypeError(
            f"{name} must be a module that is called with ({', '.join(inputs)}), got {type(network).__name__}, "
            f"which takes ({', '.join(taken.parameters)})"
        ) from None
    variables = jax.eval_shape(network.init, jax.random.key(0), *inputs.values())
    if others := sorted(variables.keys() - {"params"}):
        raise UserValueError(
            f"{name} must have parameters as its only variables, got {type(network).__name__} with "
            f"{', '.join(map(repr, others))}, such as those of batch normalisation; nn.LayerNorm has none"
        )
    try:
        return jax.eval_shape(network.apply, variables, *inputs.values())
    except InvalidRngError:
        raise UserValueError(
            f"{name} must compute its outputs without random numbers, got {type(network).__name__}, which draws some, "
            "as dropout does"
        ) from None


def with_action(obs: Observation, action: Action) -> Any:
    """One observation joined with an action, in the form that an encoder of such observations takes.

    Args:
      obs: Observation, or its shapes; with "neighbours", these stay apart from the rest.
      action: Action, or its shape.
    """
    if not isinstance(obs, dict) or "neighbours" not in obs:
        return {"action": action, "observation": obs}
    rows = {name: obs[name] for name in ("neighbours", "neighbours_present")}
    return rows | {"own": with_action({name: leaf for name, leaf in obs.items() if name not in rows}, action)}


def without_action(joined: dict[str, Any]) -> tuple[Any, Any]:
    """Observation and action, or their shapes, that `with_action` has joined."""
    if "neighbours" not in joined:
        return joined["observation"], joined["action"]
    rows = {name: leaf for name, leaf in joined.items() if name != "own"}
    return rows | joined["own"]["observation"], joined["own"]["action"]


def check_network(network: nn.Module, obs: Observation, num_outputs: int, num_values: int | None = None) -> None:
    """Reject a network whose outputs the algorithm cannot use, before anything is compiled.

    Args:
      network: Flax module, called as `network.apply(params, obs)` on one observation.
      obs: Shapes of one observation.
      num_outputs: Number of outputs that the action head needs.
      num_values: Number of values that the critic needs; None for one, without an axis.

    Raises:
      TypeError, ValueError: The outputs do not have the required structure or shapes.
    """
    values = "value []" if num_values is None else f"values [{num_values}], one for each head of the mixture critic"
    required = f"(outputs [{num_outputs}], {values})"
    got = returned("network", network, {"obs": obs})
    if not isinstance(got, tuple) or len(got) != 2:
        raise UserTypeError(f"network must return {required} for one observation, got {jax.tree.map(jnp.shape, got)}")
    shapes = tuple(getattr(leaf, "shape", type(leaf).__name__) for leaf in got)
    if shapes != ((num_outputs,), () if num_values is None else (num_values,)):
        raise UserValueError(
            f"network must return {required} for one observation, got shapes {shapes[0]} and {shapes[1]}"
        )
