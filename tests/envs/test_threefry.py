"""Random keys with the rounds of Threefry written out: the numbers of `jax.random`, bit for bit."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import envs
import jaxrl
from envs import Environment, EnvParams, EnvState, spaces
from envs.bandits import normal_draws
from envs.threefry import rolled, threefry, unrolled
from jaxrl.learning import rollout

DRAWS = {
    "uniform": lambda key: jax.random.uniform(key),
    "normal": lambda key: jax.random.normal(key, (3, 5)),
    "permutation": lambda key: jax.random.permutation(key, 9),
    "8 bits": lambda key: jax.random.bits(key, (2, 7), jnp.uint8),
    "16 bits": lambda key: jax.random.bits(key, (7,), jnp.uint16),
    "a whole number": lambda key: jax.random.randint(key, (5,), -3, 4),
    "nothing": lambda key: jax.random.bits(key, (0, 3)),
    "categorical": lambda key: jax.random.categorical(key, jnp.zeros(6)),
    "folded": lambda key: jax.random.uniform(jax.random.fold_in(key, jnp.int32(12345)), (4,)),
    "split": lambda key: jax.vmap(lambda part: jax.random.uniform(part, (2,)))(jax.random.split(key, 3)),
}


def test_threefry_gives_the_published_words():
    """The known answers of Random123, of zeros and of ones."""
    for word, answer in ((0, (0x6B200159, 0x99BA4EFE)), (0xFFFFFFFF, (0x1CB996FC, 0xBB002BE7))):
        words = (jnp.uint32(word), jnp.uint32(word))
        assert tuple(int(x) for x in threefry(words, words)) == answer


@pytest.mark.slow
def test_draws_from_unrolled_keys_match_bit_for_bit():
    keys = jax.random.split(jax.random.key(7), 50)

    def all_draws(key):
        return {name: draw(key) for name, draw in DRAWS.items()}

    actual = jax.jit(jax.vmap(lambda key: all_draws(unrolled(key))))(keys)
    expected = jax.jit(jax.vmap(all_draws))(keys)
    for name in DRAWS:
        np.testing.assert_array_equal(actual[name], expected[name], name)


@pytest.mark.slow
def test_keys_alone_and_traced_are_the_same():
    key = jax.random.key(11)
    for name, draw in DRAWS.items():
        np.testing.assert_array_equal(draw(unrolled(key)), jax.jit(draw)(key), name)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_keys_of_other_implementations_are_unchanged(implementation):
    key = jax.random.key(0, impl=implementation)
    again = unrolled(unrolled(key))
    assert (again.dtype == key.dtype) == (implementation == "rbg")
    np.testing.assert_array_equal(jax.random.key_data(again), jax.random.key_data(key))


def test_keys_are_unchanged_where_jax_draws_other_numbers():
    key = jax.random.key(0)
    with jax.threefry_partitionable(False):
        assert unrolled(key).dtype == key.dtype
    assert unrolled(key).dtype != key.dtype


@pytest.mark.parametrize("partitionable", [True, False])
def test_normal_variates_of_bandits_are_those_of_jax(partitionable):
    keys = jax.random.split(jax.random.key(0), 3)
    with jax.threefry_partitionable(partitionable):
        exact = jax.vmap(lambda key: jax.random.normal(key, (7,)))(keys)
        np.testing.assert_array_equal(jax.jit(jax.vmap(lambda key: normal_draws.normal(key, (7,))))(keys), exact)


def test_a_word_is_drawn_by_one_pass_without_a_loop():
    """So are all words that training draws: only loops over steps, minibatches and rows of matrices remain."""
    words = jax.jit(lambda key: jax.random.bits(unrolled(key), (1000,))).lower(jax.random.key(0)).compile()
    assert "while" not in str(words.as_text())
    env = envs.make("cartpole")
    resets = jax.jit(lambda key: rollout.reset_all(env, key, env.default_params, 100))
    assert "while" not in str(resets.lower(jax.random.key(0)).compile().as_text())


def test_bare_words_are_unchanged():
    key = jax.random.PRNGKey(5)
    assert unrolled(key) is key and rolled(key) is key
    env = envs.make("cartpole")
    obs = env.reset_env(key, env.default_params)[0]
    np.testing.assert_array_equal(obs, env.reset_env(jax.random.key(5), env.default_params)[0])


def test_there_and_back():
    for key in (jax.random.key(3), jax.random.split(jax.random.key(3), 4), jax.random.key(3, impl="rbg")):
        back = rolled(unrolled(key))
        assert back.dtype == key.dtype
        np.testing.assert_array_equal(jax.random.key_data(back), jax.random.key_data(key))


@struct.dataclass
class Queue(EnvState):
    """The state of an environment that keeps its key."""

    key: jax.Array
    length: jax.Array


@dataclasses.dataclass(frozen=True)
class Counter(Environment):
    """People arrive by a Poisson process, which JAX draws only from usual keys; the state holds one."""

    def observation_space(self, params):
        del params
        return spaces.Box(0.0, 1e6, (1,))

    def action_space(self, params=None):
        del params
        return spaces.Discrete(2)

    @property
    def default_params(self):
        return EnvParams(max_steps_in_episode=6)

    def reset_env(self, key, params):
        del params
        state = Queue(time=jnp.int32(0), key=key, length=jnp.float32(jax.random.poisson(key, 3.0)))
        return state.length[None], state

    def step_env(self, key, state, action, params):
        del params
        key = jnp.where(action == 0, state.key, key)
        came = jnp.float32(jax.random.poisson(jax.random.fold_in(state.key, 1), 2.0))
        state = Queue(time=state.time + 1, key=key, length=state.length + came - 2 * action)
        return state.length[None], state, -state.length, jnp.bool_(False), {"metrics": {}}


@pytest.mark.slow
def test_environments_and_algorithms_get_usual_keys(tmp_path):
    config = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,))
    algo = jaxrl.ppo(Counter(), config)
    run = functools.partial(jaxrl.train, algo, seeds=2, evals=2, eval_episodes=2, progress=False, out=tmp_path / "x")
    run(env_steps=32)
    result = run(env_steps=64, resume=True)
    assert np.isfinite(result.values("return")).all()

    def init(key, hparams, params):
        return algo.init(jax.random.fold_in(key, jax.random.poisson(key, 9.0)), hparams, params)

    def step(key, iteration, state, hparams, params):
        return algo.step(jax.random.fold_in(key, jax.random.poisson(key, 9.0)), iteration, state, hparams, params)

    def noise(key, shape):
        return algo.actor.noise(jax.random.fold_in(key, jax.random.poisson(key, 9.0)), shape)

    own = algo._replace(name="own", init=init, step=step, actor=algo.actor._replace(noise=noise))
    result = jaxrl.train(own, seeds=1, env_steps=32, evals=1, eval_episodes=2, progress=False)
    assert np.isfinite(result.values("return")).all()
