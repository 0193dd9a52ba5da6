"""Scores, probabilities, action values and values of policies are those of formulas in float64."""

from types import SimpleNamespace
from typing import Any

import agents
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from untrained import SMALL, filled, policy_of
from xarray import DataArray

import envs
import jaxrl
from envs.base import spaces
from envs.errors import UserValueError
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.action_probabilities import probabilities
from jaxrl.learning.actor import head_actor
from jaxrl.results.observations import checked_observation
from jaxrl.results.policy import TrainedPolicy
from jaxrl.runtime.laws.actor_laws import check_actor

OBS = [[0.1, -0.2, 0.03, 0.4], [1.0, 2.0, -0.1, -3.0]]
EPSILON = 0.3


def softmax(logits: Any) -> np.ndarray:
    powers = np.exp(np.asarray(logits, np.float64) - np.max(logits, axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def ppo() -> TrainedPolicy:
    return policy_of(jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL)))


@pytest.fixture(scope="module")
def dqn() -> TrainedPolicy:
    algo = jaxrl.dqn(agents.Crowd(2, masked=True), jaxrl.DQNConfig(num_envs=2, num_steps=4, hidden=(4,)))
    params = filled(algo)
    acting = params.acting._replace(epsilon=np.float32(EPSILON), shares=np.ones(1, np.float32))
    return TrainedPolicy(algo, params._replace(acting=acting))


def test_probabilities_are_the_softmax_of_the_logits(ppo: TrainedPolicy) -> None:
    expected = softmax(ppo.scores(OBS)["logits"])
    assert expected.shape == (2, 2) and np.ptp(expected) > 0.1
    # Two exponentials, a logarithm and two sums of float32 near 1.
    np.testing.assert_allclose(ppo.probabilities(OBS), expected, rtol=1e-6)


@pytest.mark.parametrize("convert", [list, tuple, np.array, jnp.array, DataArray, lambda obs: np.array(obs)[None]])
def test_lists_arrays_and_batches_are_equal(ppo: TrainedPolicy, convert: Any) -> None:
    one_by_one = np.stack([ppo.probabilities(obs) for obs in OBS])
    # As above: a batch is computed in another order.
    np.testing.assert_allclose(np.reshape(ppo.probabilities(convert(OBS)), (2, 2)), one_by_one, rtol=1e-6)
    np.testing.assert_array_equal(np.ravel(ppo(convert(OBS))), one_by_one.argmax(axis=-1))


@pytest.mark.parametrize("call", ["__call__", "scores", "probabilities", "values"])
@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ([0, 0, 0, float("nan")], "obs holds 1 nan among 4 numbers"),
        ([0, 0, 0], "obs has the shape"),
        ([[0, 0, 0, 0], [0]], "obs must be like the environment's"),
        (["a", "b", "c", "d"], "obs must be like the environment's"),
        (np.array(["a", "b", "c", "d"]), "obs must be like the environment's"),
        ([None] * 4, "obs must be like the environment's"),
        ({"obs": [0, 0, 0, 0]}, "obs must be like the environment's"),
    ],
)
def test_other_observations_are_refused(ppo: TrainedPolicy, call: str, obs: Any, message: str) -> None:
    with pytest.raises(UserValueError, match=message):
        getattr(ppo, call)(obs)


def test_choices_are_not_rounded() -> None:

    shape = jax.ShapeDtypeStruct((2,), jnp.int32)
    obs, batch = checked_observation([[1, 2]], shape)
    assert obs.dtype == np.int32 and batch == (1,)
    with pytest.raises(UserValueError, match="obs must be like"):
        checked_observation([1.5, 2.0], shape)


def test_probabilities_of_an_epsilon_greedy_policy_respect_the_mask(dqn: TrainedPolicy) -> None:
    obs = np.random.default_rng(0).uniform(size=(5, 2, 2)).astype(np.float32)
    mask = np.random.default_rng(1).uniform(size=(5, 2, 3)) < 0.6
    mask[..., 0] |= ~mask.any(axis=-1)
    q = np.asarray(dqn.q_values(obs, mask), np.float64)
    assert q.shape == (5, 2, 3)
    best = np.where(mask, q, -np.inf).argmax(axis=-1)
    expected = EPSILON * mask / mask.sum(axis=-1, keepdims=True) + (1 - EPSILON) * np.eye(3)[best]
    np.testing.assert_allclose(dqn.probabilities(obs, mask), expected, rtol=1e-6)
    np.testing.assert_array_equal(dqn(obs, mask=mask), best)


def test_probabilities_are_the_shares_of_sampled_actions(dqn: TrainedPolicy) -> None:
    count = 4000
    obs, mask = np.full((count, 2, 2), 0.5, np.float32), np.ones((count, 2, 3), bool)
    drawn = np.asarray(dqn(obs, jax.random.key(0), greedy=False, mask=mask))
    shares = (drawn[..., None] == np.arange(3)).mean(axis=0)
    # Five standard deviations of a share, of at most sqrt(0.25 / 4000).
    np.testing.assert_allclose(dqn.probabilities(obs[0], mask[0]), shares, atol=5 * np.sqrt(0.25 / count))


@pytest.mark.fast_rows("True")
@pytest.mark.parametrize("masked", [False, True])
def test_probabilities_of_several_choices_are_those_of_each_part(masked: bool) -> None:
    space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
    actor = head_actor(lambda policy, obs, mask: {"logits": obs}, action_head(space))
    env: Any = SimpleNamespace(default_params=None, action_space=lambda params: space)
    logits = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    # The first choice of the first part, which the other parts are held at, is forbidden.
    mask = (jnp.array([[False, True]] * 4), jnp.array([[True, False, True]] * 4)) if masked else None
    parts = probabilities(env, actor, {"logits": jnp.asarray(logits)}, (), mask)
    for part, own, allowed in zip(parts, np.split(logits, [2], axis=-1), mask or (True, True), strict=True):
        np.testing.assert_allclose(part, softmax(np.where(allowed, own, -1e9)), rtol=1e-5, atol=1e-12)


class Linear(nn.Module):
    """A network whose value is a known function."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        return nn.Dense(2)(obs), 2.0 * obs[0] - obs[3]


def test_values_are_those_of_the_critic() -> None:
    policy = policy_of(jaxrl.ppo(envs.make("cartpole"), network=Linear()))
    obs = np.asarray(OBS)
    np.testing.assert_allclose(policy.values(OBS), 2 * obs[:, 0] - obs[:, 3], rtol=1e-6)


def test_policies_without_the_numbers_are_refused(ppo: TrainedPolicy, dqn: TrainedPolicy) -> None:
    with pytest.raises(UserValueError, match=r"q_values needs a policy that acts by action values.* got one of ppo"):
        ppo.q_values(OBS)
    with pytest.raises(UserValueError, match=r"values needs a policy with a critic .* got one of dqn"):
        dqn.values(np.zeros((2, 2)))
    continuous = policy_of(jaxrl.ppo(envs.make("pendulum"), jaxrl.PPOConfig(**SMALL)))
    with pytest.raises(UserValueError, match=r"probabilities needs a policy of discrete actions.* got one of ppo"):
        continuous.probabilities([0.0, 0.0, 0.0])
    assert sorted(continuous.scores([0.0, 0.0, 0.0])) == ["mean", "std"]
    assert jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL, critic="mixture")).value is None


def test_scores_depend_on_the_memory() -> None:
    config = jaxrl.PPOConfig(num_envs=4, num_steps=4, memory="gru", memory_size=4, hidden=(4,))
    policy = policy_of(jaxrl.ppo(envs.make("cartpole"), config))
    memory = policy.initial_memory(2)
    _, later = policy(OBS, memory=memory)
    first, second = policy.scores(OBS, memory=memory)["logits"], policy.scores(OBS, memory=later)["logits"]
    assert not np.allclose(first, second)
    assert policy.values(OBS, memory=later).shape == (2,)
    with pytest.raises(UserValueError, match="memory is None"):
        policy.scores(OBS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda logs: logs + 0.1,
            r"actor\.log_prob must be of probabilities that sum to 1 over all actions, got 1\.105",
        ),
        (lambda logs: logs[..., None], r"actor\.log_prob must return a number for each agent, \[\], got "),
    ],
)
def test_the_laws_cover_log_probabilities(ppo: TrainedPolicy, change: Any, message: str) -> None:
    own = ppo.algo.actor.log_prob
    assert own is not None
    actor = ppo.algo.actor._replace(log_prob=lambda scores, mask, raw: change(own(scores, mask, raw)))
    laws: list[str] = []
    with pytest.raises(envs.ContractError, match=message):
        check_actor(ppo.algo._replace(actor=actor), jax.random.key(0), ppo.params, laws.append)  # type: ignore[arg-type]
    assert laws[-1] == "log-probabilities are of the actions"
