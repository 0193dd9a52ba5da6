"""A convolution has the same values and gradients in both of its forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.loops import traced_for
from jaxrl.learning.networks import _Convolution


@pytest.mark.fast_rows("size0-2", "size1-3", "size2-1")
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(5, 5), (6, 7), (10, 4)])
def test_both_forms_are_the_same_convolution(size: tuple[int, int], stride: int):
    layer = _Convolution(channels=3, stride=stride)
    image = jax.random.normal(jax.random.key(0), (*size, 2))
    params = layer.init(jax.random.key(1), image)
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)

    def loss(params: Any, image: jax.Array) -> Any:
        result = layer.apply(params, image)
        assert isinstance(result, jax.Array)
        return jnp.sum(jnp.sin(result)), result

    gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (_, patches), of_patches = jax.jit(lambda *arguments: gradient(*arguments))(params, image)
    with traced_for("gpu"):
        (_, library), of_library = jax.jit(lambda *arguments: gradient(*arguments))(params, image)
    assert patches.shape == (-(-size[0] // stride), -(-size[1] // stride), 3)
    # Sums of 18 products, and of as many as there are pixels, of numbers of at most about 4.
    eps = float(np.finfo(np.float32).eps)
    np.testing.assert_allclose(library, patches, rtol=0, atol=18 * 4 * eps)
    for one, other in zip(jax.tree.leaves(of_library), jax.tree.leaves(of_patches), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=np.prod(size) * 18 * 4 * eps)
