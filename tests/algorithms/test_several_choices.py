"""Several discrete actions off the policy: values of each choice, exploration, forms of actions, and a solved task."""

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lock_task import LIMIT, Lock

import envs
import jaxrl
from envs.base import check_action, spaces
from envs.checking import ContractError
from envs.choices import choice_sizes
from jaxrl.algorithms.value_function import ValueFunction
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.networks import Module
from jaxrl.learning.value_losses import KINDS, Kind, Scale, value_loss

SIZES = (3, 2, 4)
SMALL: dict[str, Any] = {"hidden": (8,), "num_envs": 2, "num_steps": 4}
KEY = jax.random.key(0)
REPLAY: dict[str, Any] = {**SMALL, "batch_size": 8, "buffer_size": 64, "prefill": 8}


class Unused(Module):
    """A network of a value function whose outputs a test makes itself."""


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
@pytest.mark.parametrize(
    ("name", "kind", "masked", "env_steps"),
    [
        ("dqn", "tuple", False, 20_000),
        ("dqn", "dict", True, 20_000),
        ("pqn", "multi", False, 200_000),
        ("sac", "tuple", False, 6_000),
        ("sac", "multi", True, 6_000),
    ],
)
def test_all_of_16_seeds_reach_the_optimum(name: str, kind: Any, masked: bool, env_steps: int) -> None:
    # 27 joint actions, of which one is paid, for 27 observations. The highest return is known, and is LIMIT.
    algo = getattr(jaxrl, name)(Lock(kind=kind, masked=masked))
    result = jaxrl.train(algo, seeds=16, env_steps=env_steps, evals=1, eval_episodes=64, progress=False)
    np.testing.assert_array_equal(np.asarray(result.values("return"))[..., -1], LIMIT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_value_of_an_action_is_the_mean_of_the_values_of_its_choices(kind: Kind) -> None:
    loss = value_loss(kind, 6)
    values = ValueFunction(Unused(), loss, 2, sum(SIZES), branches=SIZES)
    rng = np.random.default_rng(0)
    outputs = jnp.asarray(rng.normal(size=(5, sum(SIZES), 2, loss.num_outputs)), jnp.float32)
    action = jnp.stack([jnp.asarray(rng.integers(size, size=(5, 2))) for size in SIZES], axis=1)  # [5, D, K]
    scale = Scale(-jnp.ones(2), jnp.ones(2), jnp.float32(0.5))
    target = values.following(outputs, action, scale)
    assert np.allclose(jnp.sum(target.probabilities, axis=-1), 1, atol=1e-6)
    whole, first = np.asarray(loss.value(outputs, scale), np.float64), np.cumsum([0, *SIZES])
    for row, k in itertools.product(range(5), range(2)):
        expected = np.mean([whole[row, first[d] + int(action[row, d, k]), k] for d in range(len(SIZES))])
        mean = float(np.sum(np.asarray(target.atoms * target.probabilities, np.float64)[row, k]))
        np.testing.assert_allclose(mean, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        values.following_values(loss.value(outputs, scale), action),
        jnp.sum(target.atoms * target.probabilities, axis=-1),
        atol=1e-6,
    )


@pytest.mark.parametrize("masked", [False, True])
def test_each_choice_is_explored_by_itself(masked: bool) -> None:
    env, num = Lock(SIZES, "dict", masked), 20_000
    algo = jaxrl.dqn(env, jaxrl.DQNConfig(**REPLAY))
    obs, state = env.reset(jax.random.key(0), env.default_params)
    mask = env.action_mask(state, env.default_params)
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.normal(size=sum(SIZES)), jnp.float32)
    scores = {"q": jnp.broadcast_to(q, (num, len(q))), "epsilon": jnp.full(num, 0.6)}
    masks = None if mask is None else jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, len(leaf))), mask)
    noise = algo.actor.noise(jax.random.key(1), (num,))
    action, raw, _ = algo.actor.choose(noise, scores, (), False, masks)
    assert set(action) == {"a", "b", "c"}
    assert algo.actor.log_prob is not None
    chances = np.exp(np.asarray(algo.actor.log_prob(scores, masks, raw)))
    # Dials are "c", "b", "a" with the sizes 3, 2 and 4; the network has the sorted order, as JAX's leaves have.
    sizes, first = choice_sizes(env.action_space(env.default_params)), 0
    joint = np.ones(())
    assert sizes == (4, 2, 3)
    for name, size in zip("abc", sizes, strict=True):
        allowed = np.ones(size, bool) if mask is None else np.asarray(mask[name])
        best = np.argmax(np.where(allowed, q[first : first + size], -np.inf))
        chance = 0.6 * allowed / allowed.sum() + 0.4 * (np.arange(size) == best)
        joint, first = np.multiply.outer(joint, chance), first + size
    drawn = np.stack([np.asarray(action[name]) for name in "abc"])
    counts = np.zeros(sizes)
    np.add.at(counts, tuple(drawn), 1)
    # The standard deviation of a share is at most 0.5 / sqrt(num) = 0.0035; none of 24 exceeds five of them.
    np.testing.assert_allclose(counts / num, joint, rtol=0, atol=0.018)
    np.testing.assert_allclose(chances, joint[tuple(drawn)], rtol=1e-5)
    greedy, _, _ = algo.actor.choose(None, {name: leaf[0] for name, leaf in scores.items()}, (), True, mask)
    assert joint[tuple(int(greedy[name]) for name in "abc")] == joint.max()
    assert obs.shape == (sum(SIZES),)


@pytest.mark.parametrize("kind", ["tuple", "multi", "dict"])
def test_actions_have_the_form_of_their_space(kind: Any) -> None:
    env = Lock(SIZES, kind)
    space = env.action_space(env.default_params)
    head = action_head(space)
    assert head.num_outputs == sum(SIZES)
    positions = np.array([[2, 1, 3], [0, 1, 0]])
    raw = positions[:, ::-1] if kind == "dict" else positions
    action = head.to_env(jnp.asarray(raw, jnp.int32))
    np.testing.assert_array_equal(env.positions(action), positions)
    one = head.to_env(jnp.asarray(raw[0], jnp.int32))
    check_action(space, one)
    sample = dict(space.sample(KEY)) if kind == "dict" else space.sample(KEY)
    same = jax.tree.map(lambda leaf, like: (leaf.shape, leaf.dtype) == (like.shape, like.dtype), one, sample)
    assert all(jax.tree.leaves(same))


def test_spaces_within_spaces_are_one_list_of_choices() -> None:
    inner = spaces.Tuple((spaces.Discrete(2), envs.MultiDiscrete([[3], [4]])))
    space = spaces.Dict({"z": spaces.Discrete(5), "a": inner})
    assert choice_sizes(space) == (2, 3, 4, 5)
    action = action_head(space).to_env(jnp.array([1, 2, 3, 4]))
    assert int(action["z"]) == 4 and int(action["a"][0]) == 1
    np.testing.assert_array_equal(action["a"][1], [[2], [3]])
    assert choice_sizes(spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,))))) == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tuple", "multi", "dict"])
def test_policies_of_several_choices_are_saved_exported_and_recorded(kind: Any, tmp_path: Path) -> None:
    env = Lock(SIZES, kind, masked=True)
    algo = jaxrl.dqn(env, jaxrl.DQNConfig(**REPLAY))
    jaxrl.check(algo)
    result = jaxrl.train(algo, seeds=1, env_steps=64, evals=1, eval_episodes=2, progress=False)
    policy = result.policy()
    obs, state = env.reset(KEY, env.default_params)
    mask = env.action_mask(state, env.default_params)
    action = policy(obs, mask=mask)
    with pytest.raises(ValueError, match=r"mask is .* it takes the form of"):
        policy(obs, mask=jax.tree.leaves(mask))
    assert policy.q_values(obs, mask=mask).shape == (sum(SIZES),)
    parts = policy.probabilities(obs, mask=mask)
    for part, allowed in zip(parts, jax.tree.leaves(mask), strict=True):
        np.testing.assert_allclose(part.sum(), 1, rtol=1e-6)
        assert not np.any(np.asarray(part)[~np.asarray(allowed)])
    saved = jaxrl.load_result(result.save(tmp_path / "run"), algo=algo).policy()
    for other in (saved, *(_exported(policy, tmp_path / f"policy.{suffix}") for suffix in ("stablehlo", "onnx"))):
        again = other(np.asarray(obs), mask=jax.tree.map(np.asarray, mask))
        assert jax.tree.structure(again) == jax.tree.structure(action)
        jax.tree.map(np.testing.assert_array_equal, again, action)
    steps = jaxrl.collect(result, episodes=2)
    assert steps.sizes["episode"] == 2 and float(steps["log_prob"].max()) <= 0


def _exported(policy: Any, path: Path) -> Any:
    return jaxrl.load_exported(jaxrl.export_policy(policy, path))


@pytest.mark.parametrize("kind", ["tuple", "multi", "dict"])
def test_wrappers_of_actions_take_every_form(kind: Any) -> None:
    env = Lock(SIZES, kind, masked=True)
    for wrapped in (envs.wrappers.sticky_actions(env, 0.5), envs.wrappers.delay_actions(Lock(SIZES, kind), 1)):
        envs.check(wrapped, progress=False)
        jaxrl.dqn(wrapped, jaxrl.DQNConfig(**REPLAY))


def test_unsupported_uses_of_several_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="munchausen takes actions of one part, got actions of 3 parts"):
        jaxrl.dqn(Lock(), jaxrl.DQNConfig(munchausen=True))
    with pytest.raises(TypeError, match=r"td3 takes an environment whose action space is a Box of floats.*sac and ppo"):
        jaxrl.td3(Lock())
    with pytest.raises(ContractError, match=r"mask law: action_mask returns .* a dict with the keys"):
        envs.check(_WrongMask(SIZES, "dict", masked=True), progress=False)
    for kind in ("tuple", "multi"):
        with pytest.raises(ContractError, match=r"mask law: action_mask returns .* it must be None, or an array"):
            envs.check(_PartlyMasked(SIZES, kind, masked=True), progress=False)


class _PartlyMasked(Lock):
    """A lock with no mask of its first dial."""

    def action_mask(self, state: Any, params: Any = None) -> Any:
        return (None, *super().action_mask(state, params)[1:])


class _WrongMask(Lock):
    """A lock whose mask has the form of another."""

    def action_mask(self, state: Any, params: Any = None) -> Any:
        return tuple(super().action_mask(state, params).values())
