"""Choices in observations: every network takes them as one-hot vectors, and nothing else changes."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from echo_environment import equal
from flax import struct
from quick_jit import quick_jit

import envs
import jaxrl
from envs import base, wrappers
from envs.abstract_checking import check_abstractly
from envs.adapters.incoming import from_gymnasium
from envs.adapters.outgoing.gymnasium_spaces import to_gymnasium
from envs.base import spaces
from envs.choices import choices_of, columns_of, encoded, one_hot, one_hot_note, with_choices
from jaxrl.algorithms import registry
from jaxrl.algorithms.contract import policy_shapes
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.networks import observation_shapes
from jaxrl.learning.normalisation import init_statistics, normalise, update_statistics
from jaxrl.runtime.training import training_call

ROOM = spaces.Discrete(5)
DECK = envs.MultiDiscrete([3, 2], low=[1, 0])
PLACE = spaces.Box(-1.0, 1.0, (2,))
MIXED = spaces.Dict({"room": ROOM, "deck": DECK, "place": PLACE})
NEIGHBOURS = spaces.Dict(
    {
        "room": ROOM,
        "neighbours": envs.MultiDiscrete([[2, 3]] * 4),
        "neighbours_present": spaces.Box(0.0, 1.0, (4,)),
    }
)


@struct.dataclass
class DoorsState(base.EnvState):
    """Steps taken, and the present observation."""

    time: jax.Array
    obs: Any


@dataclass(frozen=True)
class Doors(base.Environment):
    """Shows samples of a space, and pays nothing."""

    kind: str = "room"
    continuous: bool = False
    agents: tuple[int, ...] = ()

    def _drawn(self, key: jax.Array) -> Any:
        sample: Any = self.observation_space().sample
        for size in self.agents:
            sample = jax.vmap(sample)
            key = jax.random.split(key, size)
        obs = sample(key)
        return dict(obs) if isinstance(obs, dict) else obs

    @property
    def default_params(self) -> base.EnvParams:
        return base.EnvParams(max_steps_in_episode=20)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, DoorsState]:
        obs = self._drawn(key)
        return obs, DoorsState(jnp.zeros((), jnp.int32), obs)

    def step_env(
        self, key: jax.Array, state: DoorsState, action: Any, params: Any
    ) -> tuple[Any, DoorsState, jax.Array, jax.Array, dict[Any, Any]]:
        obs = self._drawn(key)
        return obs, DoorsState(state.time + 1, obs), jnp.zeros(self.agents), jnp.zeros((), bool), {}

    def action_space(self, params: Any = None) -> spaces.Space:
        return spaces.Box(-1.0, 1.0, (1,)) if self.continuous else spaces.Discrete(2)

    def observation_space(self, params: Any = None) -> spaces.Space:
        return {"room": ROOM, "deck": DECK, "mixed": MIXED, "neighbours": NEIGHBOURS, "place": PLACE}[self.kind]

    def global_observation(self, state: DoorsState, params: Any) -> Any:
        return jnp.zeros(3)


def drawn(shapes: Any, seed: int = 0) -> Any:
    """Normal numbers in arrays of these shapes."""
    leaves, structure = jax.tree.flatten(shapes)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return structure.unflatten([jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)])


def built(name: str, env: Any, **fields: Any) -> Any:
    """An algorithm by name, in its small configuration with changed fields."""
    config = next(getattr(jaxrl, kind) for kind in dir(jaxrl) if kind.lower() == f"{name.replace('_', '')}config")
    return registry.make(name, env, config(**{**registry.ROWS[name].small, **fields}))


def attributes(algo: Any) -> Any:
    return training_call(algo, None, seeds=[0], points=np.array([1]), eval_episodes=1).attrs


def spec(shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def slow_one_hot(values: np.ndarray, columns: Any) -> np.ndarray:
    rows = []
    for row in values:
        pairs = list(zip(row, columns, strict=True))
        rows.append([float(value == low + i) for value, (low, count) in pairs for i in range(count)])
    return np.asarray(rows)


MEMORIES = {f"{name}-gru": {"memory": "gru", "memory_size": 4} for name in ("ppo", "evolve")}


@pytest.mark.slow_rows("a2c", "spo", "mdpo", "ppo_kl", "reinforce", "td3", "evolve-gru")
@pytest.mark.parametrize("name", [*registry.ROWS, *MEMORIES])
def test_every_algorithm_sees_choices_as_one_hot_vectors(name: str) -> None:
    """The oracle is the same network on the vector that `flatten_observation` makes of the observation."""
    fields = MEMORIES.get(name, {})
    name = name.removesuffix("-gru")
    env = Doors("mixed", continuous=name == "td3")
    flat = wrappers.flatten_observation(env)
    own, oracle = built(name, env, **fields), built(name, flat, **fields)
    key = jax.random.key(1)
    obs, vector = (each.reset_env(key, each.default_params)[0] for each in (env, flat))
    assert vector.shape == (3 + 2 + 2 + 5,)
    policy = drawn(policy_shapes(oracle))

    @quick_jit
    def scores(policy: Any, obs: Any, vector: Any) -> Any:
        pairs = ((own, obs), (oracle, vector))
        return [algo.actor.scores(policy, algo.actor.initial_memory(policy), seen, None)[0] for algo, seen in pairs]

    equal(*scores(policy, obs, vector))


def test_a_policy_from_before_has_another_shape() -> None:
    """A policy that took the number itself has one row in its first layer, so that it cannot be misread."""
    algo = jaxrl.ppo(Doors("room"), jaxrl.PPOConfig(hidden=(8,)))
    kernel = policy_shapes(algo).params["params"]["actor_0"]["kernel"]
    assert kernel.shape == (5, 8)


def test_networks_of_neighbours_take_choices_in_each_row() -> None:
    env = Doors("neighbours")
    config: dict[str, Any] = {"hidden": (8,), "own_hidden": (4,), "neighbour_hidden": (4,)}
    for pooling in ("mean", "max"):
        shapes = policy_shapes(jaxrl.ppo(env, jaxrl.PPOConfig(pooling=pooling, **config))).params["params"]
        assert shapes["actor_own_0"]["kernel"].shape[0] == 5
        assert shapes["actor_neighbour_0"]["kernel"].shape[0] == 2 + 3
    critic = policy_shapes(jaxrl.sac(env, jaxrl.SACConfig(**config)))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(critic) if leaf.ndim == 2} >= {5}


def test_a_centralised_critic_takes_own_choices_unscaled_by_their_number() -> None:
    env = Doors("room", agents=(2,))
    config = jaxrl.PPOConfig(hidden=(8,), critic_sees="global")
    network: Any = jaxrl.ppo(env, config).network or config.centralised(
        observation_shapes(env, (2,)), jax.ShapeDtypeStruct((3,), jnp.float32), 2, None
    )
    params = drawn(jax.eval_shape(network.init, jax.random.key(0), jnp.int32(0), jnp.zeros(3)))
    assert params["params"]["critic"]["trunk_0"]["kernel"].shape[0] == 3 + 5
    values = [float(network.apply(params, jnp.int32(room), jnp.zeros(3))[1]) for room in range(5)]
    assert np.ptp(np.diff(values)) > 0.1  # a number would enter as a straight line, up to the activation


def test_pixels_of_choices_become_channels() -> None:
    grid = envs.MultiDiscrete(np.full((6, 5, 2), 3))
    shapes = with_choices(grid, jax.ShapeDtypeStruct((6, 5, 2), jnp.int32))
    encoder = NetworkConfig(network="cnn", hidden=(4,)).encoder(shapes)
    kernel = jax.eval_shape(encoder.init, jax.random.key(0), jnp.zeros((6, 5, 2), jnp.int32))["params"]
    assert kernel["trunk_convolution_0"]["kernel"].shape == (3, 3, 6, 16)


@pytest.mark.parametrize("columns", [((0, 4),), ((0, 3), (0, 3)), ((1, 3), (-2, 2), (0, 1))])
def test_one_hot_vectors_equal_slow_ones(columns: Any) -> None:
    rng = np.random.default_rng(0)
    values = np.stack([rng.integers(low, low + n, 7) for low, n in columns], axis=1)
    np.testing.assert_array_equal(one_hot(jnp.asarray(values), columns), slow_one_hot(values, columns))


def test_only_choices_are_encoded() -> None:
    obs = {"room": jnp.int32(3), "deck": jnp.array([3, 0]), "place": jnp.array([0.5, -0.5])}
    shapes = with_choices(MIXED, jax.eval_shape(lambda: obs))
    got = encoded(obs, choices_of(shapes))
    equal(got, {"room": jnp.eye(5)[3], "deck": jnp.array([0.0, 0, 1, 1, 0]), "place": obs["place"]})
    plain = with_choices(PLACE, jax.ShapeDtypeStruct((2,), jnp.float32))
    assert choices_of(plain) == () and encoded(obs, ()) is obs
    single = with_choices(spaces.Discrete(1), jax.ShapeDtypeStruct((), jnp.int32))
    assert choices_of(single) == ()  # one choice says nothing, and a policy from before keeps its shape


def test_statistics_leave_choices_out() -> None:
    shapes = with_choices(MIXED, {"room": spec((), jnp.int32), "deck": spec((2,), jnp.int32), "place": spec((2,))})
    batch = {"room": jnp.arange(4), "deck": jnp.ones((4, 2), jnp.int32), "place": jnp.arange(8.0).reshape(4, 2)}
    statistics = update_statistics(init_statistics(shapes), batch, jnp.ones(4))
    seen = normalise(statistics, batch, jnp.float32(10.0))
    equal({name: seen[name] for name in ("room", "deck")}, {name: batch[name] for name in ("room", "deck")})
    place = np.asarray(batch["place"], np.float64)
    np.testing.assert_allclose(seen["place"], (place - place.mean(0)) / np.sqrt(place.var(0) + 1e-8), rtol=1e-5)


@pytest.mark.parametrize("name", ["ppo", "dqn", "pqn", "sac", "evolve"])
def test_normalising_choices_alone_is_refused(name: str) -> None:
    fields = {"normalise_observation": True}
    with pytest.raises(ValueError, match="normalise_observation has no effect on observations of choices alone"):
        built(name, Doors("room"), **fields)
    built(name, Doors("mixed"), **fields)


def test_a_result_notes_the_encoding() -> None:
    assert one_hot_note(Doors("mixed")) == "deck: 3, 2 choices; room: 5 choices"
    assert one_hot_note(Doors("room", agents=(3,))) == "observation: 5 choices"
    assert one_hot_note(Doors("place")) is None
    algo = jaxrl.ppo(Doors("room"), jaxrl.PPOConfig(hidden=(8,)))
    assert attributes(algo)["one_hot"] == "observation: 5 choices"
    assert "one_hot" not in attributes(jaxrl.ppo(Doors("place"), jaxrl.PPOConfig(hidden=(8,))))


def test_spaces_of_choices_survive_wrappers_and_gymnasium() -> None:
    theirs = gymnasium.spaces.MultiDiscrete([3, 2], start=[1, 0])
    adapted = from_gymnasium.observation_space(theirs, "x")
    assert columns_of(adapted) == columns_of(DECK) == ((1, 3), (0, 2))
    assert to_gymnasium(DECK) == gymnasium.spaces.MultiDiscrete([3, 2], np.int32, start=[1, 0])
    params = Doors("deck").default_params
    stacked = wrappers.frame_stack(Doors("room"), 3)
    assert columns_of(stacked.observation_space(params)) == ((0, 5),) * 3
    both = wrappers.frame_stack(Doors("deck"), 2)
    assert columns_of(both.observation_space(params)) == ((1, 3), (0, 2))
    assert columns_of(wrappers.hide(Doors("deck"), 0).observation_space(params)) == ((0, 2),)
    timed: Any = wrappers.time_feature(Doors("deck")).observation_space(params)
    assert [columns_of(part) for part in timed.spaces.values()].count(((1, 3), (0, 2))) == 1
    for env in (stacked, both, wrappers.flatten_observation(Doors("deck"))):
        check_abstractly(env)


@pytest.mark.parametrize("counts", [[], [0], 3, [1.5]])
def test_counts_of_choices_are_checked(counts: Any) -> None:
    with pytest.raises(ValueError, match="counts of MultiDiscrete must be an array of whole numbers of at least 1"):
        envs.MultiDiscrete(counts)


def test_samples_of_choices_reach_every_choice_and_no_other() -> None:
    draws = np.asarray(jax.vmap(DECK.sample)(jax.random.split(jax.random.key(0), 500)))
    # A choice of probability 1/3 is missed by 500 draws with probability (2/3)^500 = 1e-88.
    assert [sorted(set(column)) for column in draws.T] == [[1, 2, 3], [0, 1]]
