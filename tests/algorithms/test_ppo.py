"""Properties of PPO alone: its arguments, its hyper-parameters, and their effects."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from laws.test_environments import PythonReward, Unhashable

import envs
import jaxrl
from envs import probes, spaces
from jaxrl.discounts.hazards import ExponentialHazard, UniformHazard
from jaxrl.learning.losses import kept_means, share_without_effect

TINY = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_epochs=2, num_minibatches=2, hidden=(8,))


# --- a user-defined discount -------------------------------------------------------------


@struct.dataclass
class Sloped:
    """A discount that falls linearly to 0."""

    slope: Any

    def curve(self, horizon: int) -> Any:
        return jnp.maximum(0.0, 1.0 - self.slope * jnp.arange(horizon + 1))


@struct.dataclass
class Halved:
    """A discount of 1 and then 1/2 forever, without parameters."""

    def curve(self, horizon: int) -> Any:
        return np.where(np.arange(horizon + 1) == 0, 1.0, 0.5)


def trained(algo: jaxrl.Algorithm, hparams: Any) -> jaxrl.Result:
    return jaxrl.train(algo, hparams, seeds=2, env_steps=3 * 32, evals=3, eval_episodes=2, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "own",
    [UniformHazard(0, 0.05), *(pytest.param(own, marks=pytest.mark.slow) for own in (Sloped(0.0625), Halved()))],
    ids=["belief", "one leaf", "no leaf"],
)
def test_a_discount_of_ones_own_trains_as_its_table_does(own: Any) -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), TINY)
    table = jaxrl.Tabulated(np.asarray(own.curve(TINY.num_steps)))
    by_family, by_table = (trained(algo, algo.hparams.replace(discount=discount)) for discount in (own, table))
    # The same float32 curve, in the same lag form in two programs: equal up to the rounding of three iterations of 4
    # minibatches, in each of which a weight moves by lr = 2.5e-4.
    for one, other in zip(jax.tree.leaves(by_family.policies), jax.tree.leaves(by_table.policies), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_discount_of_ones_own_is_swept_by_its_parameter() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), TINY)
    base = algo.hparams.replace(discount=Sloped(0.1))
    result = trained(algo, jaxrl.grid(base, {"discount.slope": [0.0625, 0.25]}))
    alone = trained(algo, base.replace(discount=Sloped(0.25)))
    for many, one in zip(jax.tree.leaves(result.policies), jax.tree.leaves(alone.policies), strict=True):
        np.testing.assert_allclose(many[1], one[0], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_discounted_return_of_a_curve_alone_is_that_of_whole_episodes() -> None:
    """Episodes of 200 steps, rollouts of 16: 1 / (1 + t / 50) is worth the same as a family and as a belief."""
    algo = jaxrl.ppo(envs.make("pendulum"), TINY)
    belief, family = (
        trained(algo, algo.hparams.replace(lr=0.0, discount=discount)).values("discounted_return")
        for discount in (ExponentialHazard(0.02), jaxrl.Hyperbolic(0.02))
    )
    # The same rewards: a running product of 200 factors, compared with the curve itself.
    np.testing.assert_allclose(belief, family, rtol=200 * 2.0**-22)


def test_a_curve_alone_is_refused_where_its_end_is_not_known() -> None:
    hparams = jaxrl.ppo(envs.make("pendulum"), TINY).hparams.replace(discount=Halved())
    with pytest.raises(ValueError, match=r"env.max_steps_in_episode must be at most 200, .* got 300; build ppo on"):
        longer = envs.make("pendulum").default_params.replace(max_steps_in_episode=300)
        jaxrl.train(jaxrl.ppo(envs.make("pendulum"), TINY), hparams, env_steps=32, env_params=longer)
    endless = envs.wrappers.time_limit(envs.make("pendulum"), 10**9)
    with pytest.raises(ValueError, match=r"^Halved only has a curve.*max_steps_in_episode must be at most 131072"):
        jaxrl.train(jaxrl.ppo(endless, TINY), hparams, env_steps=32)


@pytest.mark.slow
def test_schedules_continue_beyond_the_exact_integers_of_float32() -> None:
    """Counted in float32 by 32 at a time, environment steps would stop at 2^29."""
    algo = jaxrl.ppo(envs.make("cartpole"), TINY)
    hparams = algo.prepare(algo.hparams.replace(lr_end=0.0, anneal_env_steps=2.0**31))
    params = algo.env.default_params
    state = algo.init(jax.random.key(0), hparams, params)
    rates = []
    step = jax.jit(algo.step)
    for iteration in (2**25, 2**27):  # of 2^26 in all
        state, metrics = step(jax.random.key(1), jnp.int32(iteration), state, hparams, params)
        rates.append(float(metrics["learning_rate"]) / 2.5e-4)
    np.testing.assert_allclose(rates, [0.5, 0.0], atol=1e-6)


# --- construction ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "error", "sentence"),
    [
        (PythonReward(), envs.ContractError, r"^type law: the reward is the Python value 1\.0; it must be an array"),
        (Unhashable(), envs.ContractError, r"^hash law: .* cannot be hashed .*; make it a frozen dataclass"),
        ("cartpole", TypeError, r"^env is 'cartpole'; it must be an instance of a subclass of envs\.Environment"),
    ],
    ids=["Python reward", "unhashable", "a name"],
)
def test_a_bad_environment_gets_one_sentence(env: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        jaxrl.ppo(env, TINY)


ONE = r"takes one number, got .*; several values make a sweep: use jaxrl\.grid$"
GAMMA = r"^gamma is not a field: use discount=0\.99 or another discount, such as 'beta:0\.98,0\.5'"


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"lr": [1e-3, 1e-4]}, TypeError, "^lr " + ONE),
        ({"lam": (0.9, 0.95)}, TypeError, "^lam " + ONE),
        ({"lr": "fast"}, TypeError, "^lr takes a number, got 'fast'$"),
        ({"clip_eps": True}, TypeError, "^clip_eps takes a number, got True$"),
        ({"discount": [0.9, 0.99]}, TypeError, r"^discount takes one discount, got \[0\.9, 0\.99\]; several make a"),
        ({"gamma": 0.99}, TypeError, GAMMA),
        ({"lr": np.inf}, ValueError, r"^lr must lie in \[0, inf\), got inf$"),
        ({"clip_eps": np.inf}, ValueError, r"^clip_eps must lie in \[0, inf\), got inf$"),
        ({"entropy_coef": -np.inf}, ValueError, r"^entropy_coef must lie in \(-inf, inf\), got -inf$"),
        ({"adam_b1": 1.0}, ValueError, r"^adam_b1 must lie in \[0, 1\), got 1\.0$"),
        # 1 in float32, the precision that it is used in.
        ({"adam_b2": 1 - 1e-9}, ValueError, r"^adam_b2 must lie in \[0, 1\), got 0\.999999999$"),
        ({"lam": 1.5}, ValueError, r"^lam must lie in \[0, 1\], got 1\.5$"),
        ({"lam": np.float32("nan")}, ValueError, r"^lam must lie in \[0, 1\], got nan$"),
    ],
    ids=str,
)
def test_a_bad_hyper_parameter_gets_one_sentence(changes: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        jaxrl.PPOHParams(**changes)


def test_clips_and_limits_may_be_infinite() -> None:
    names = ("anneal_env_steps", "value_clip", "max_grad_norm", "target_kl", "observation_clip", "reward_clip")
    hparams = jaxrl.PPOHParams(**dict.fromkeys(names, np.inf))
    assert all(getattr(hparams, name) == np.inf for name in names)


def test_gamma_is_answered_in_the_configuration_and_in_a_sweep() -> None:
    with pytest.raises(TypeError, match=GAMMA):
        jaxrl.PPOConfig(gamma=0.99)  # pyright: ignore[reportArgumentType]
    assert dataclasses.replace(TINY, num_envs=3).num_envs == 3
    with pytest.raises(ValueError, match=r"no hyper-parameter 'gamma'; gamma is not a field: use discount=0\.99"):
        jaxrl.grid(jaxrl.PPOHParams(), {"gamma": [0.9, 0.99]})


# --- behaviour ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_takes_the_clip_of_its_own_hyper_parameters() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(TINY, normalise_observation=True))
    params, key = algo.env.default_params, jax.random.key(0)
    narrow = algo.hparams.replace(observation_clip=0.01)
    step = jax.jit(algo.step)
    state = step(key, jnp.int32(0), algo.init(key, algo.hparams, params), algo.hparams, params)[0]
    kept, changed = (
        algo.policy(step(key, jnp.int32(1), state, hparams, params)[0], hparams) for hparams in (algo.hparams, narrow)
    )
    assert (float(kept.observation_clip), changed.observation_clip) == (10.0, np.float32(0.01))
    assert np.any(kept.params["params"]["actor_0"]["kernel"] != changed.params["params"]["actor_0"]["kernel"])


@pytest.mark.slow
def test_discarded_epochs_leave_no_trace_in_the_metrics() -> None:
    # One epoch, and four of which target_kl = 0 discards the last three: the same weights and metrics.
    env = envs.make("cartpole")
    key, results = jax.random.key(0), []
    for num_epochs in (1, 4):
        algo = jaxrl.ppo(env, dataclasses.replace(TINY, num_epochs=num_epochs))
        hparams = algo.hparams.replace(target_kl=0.0, lr=1e-2)
        state = algo.init(key, hparams, env.default_params)
        results.append(jax.jit(algo.step)(key, jnp.int32(0), state, hparams, env.default_params))
    (one, single), (four, stopped) = results
    assert (single.pop("stopped_early"), stopped.pop("stopped_early")) == (0.0, 0.75)
    # The first epoch's key is the first of any number of keys that are split off in this way.
    keys = jax.random.key_data(jax.random.split(key, 4))
    assert np.array_equal(jax.random.key_data(jax.random.split(key, 1)), keys[:1])
    for name, value in single.items():
        np.testing.assert_allclose(stopped[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    for leaf, other in zip(jax.tree.leaves(one.weights), jax.tree.leaves(four.weights), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_kl_stop_ends_an_epoch_or_a_minibatch_or_rewinds_the_step() -> None:
    """Adam's first step moves every weight by about lr, and at the second minibatch the divergence is too large."""
    env, key, lr = envs.make("cartpole"), jax.random.key(0), 1e-2
    moved, stopped = {}, {}
    for kl_stop in ("epoch", "minibatch", "rewind"):
        algo = jaxrl.ppo(env, dataclasses.replace(TINY, num_epochs=3, num_minibatches=4, kl_stop=kl_stop))
        hparams = algo.hparams.replace(target_kl=1e-6, lr=lr)
        before = algo.init(key, hparams, env.default_params)
        after, metrics = jax.jit(algo.step)(key, jnp.int32(0), before, hparams, env.default_params)
        both = zip(*map(jax.tree.leaves, (before.weights[0], after.weights[0])), strict=True)
        moved[kl_stop] = max(float(np.abs(a - b).max()) for a, b in both)
        stopped[kl_stop] = float(metrics["stopped_early"])
    assert stopped == pytest.approx({"epoch": 2 / 3, "minibatch": 11 / 12, "rewind": 1})
    assert moved["rewind"] == 0
    assert moved["minibatch"] == pytest.approx(lr, rel=1e-2)
    assert moved["epoch"] > 2 * lr


@pytest.mark.slow
@pytest.mark.parametrize("kl_stop", ["minibatch", "rewind"])
def test_without_a_bound_on_the_divergence_the_place_to_stop_does_not_matter(kl_stop: Any) -> None:
    env, key, results = envs.make("cartpole"), jax.random.key(0), []
    for config in (TINY, dataclasses.replace(TINY, kl_stop=kl_stop)):
        algo = jaxrl.ppo(env, config)
        state = algo.init(key, algo.hparams, env.default_params)
        results.append(jax.jit(algo.step)(key, jnp.int32(0), state, algo.hparams, env.default_params))
    (one, single), (other, guarded) = results
    for leaf, other_leaf in zip(
        jax.tree.leaves((one.weights, single)), jax.tree.leaves((other.weights, guarded)), strict=True
    ):
        np.testing.assert_allclose(leaf, other_leaf, rtol=1e-4, atol=1e-6)  # programs that round differently


def test_means_over_kept_epochs_ignore_values_of_the_others() -> None:
    means = kept_means({"loss": jnp.array([1.0, 3.0, np.nan])}, jnp.array([True, True, False]))
    assert float(means["loss"]) == 2.0


@pytest.mark.parametrize(("first", "rewinds", "count"), [(1, False, 4), (1, True, 5), (0, True, 5), (5, True, 0)])
def test_updates_without_effect_are_those_prevented_and_the_one_undone(first: int, rewinds: bool, count: int) -> None:
    assert float(share_without_effect(jnp.arange(5) >= first, rewinds)) == pytest.approx(count / 5)


def test_equal_arguments_give_the_same_functions_and_so_one_compilation() -> None:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16)
    one, other = (jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(config)) for _ in range(2))
    assert one.step is other.step
    assert jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(config, num_envs=4)).step is not one.step


def test_a_network_that_has_no_hash_is_refused() -> None:
    class Listed(nn.Module):
        widths: list[int]

        @nn.compact
        def __call__(self, obs: Any) -> Any:
            return nn.Dense(2)(obs), nn.Dense(1)(obs)[0]

    with pytest.raises(TypeError, match="network must be hashable"):
        jaxrl.ppo(envs.make("cartpole"), network=Listed([8]))


def test_a_config_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"config must be a PPOConfig, such as PPOConfig\(num_envs=8\), got dict"):
        jaxrl.ppo(envs.make("cartpole"), {"num_envs": 8})  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Neighbourly(probes.ConstantReward):
    """Constant reward, with observations that contain neighbours."""

    def reset_env(self, key: jax.Array, params: Any) -> Any:
        obs, state = super().reset_env(key, params)
        return self._dressed(obs), state

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step_env(key, state, action, params)
        return self._dressed(obs), *rest

    def observation_space(self, params: Any = None) -> Any:
        row = spaces.Box(-1.0, 1.0, (3, 4), jnp.float32)
        own = super().observation_space(self.default_params)
        present = spaces.Box(0.0, 1.0, (3,), jnp.float32)
        return spaces.Dict({"own": own, "neighbours": row, "neighbours_present": present})

    def _dressed(self, obs: Any) -> Any:
        return {"own": obs, "neighbours": jnp.zeros((3, 4)), "neighbours_present": jnp.zeros(3)}


def test_observations_with_neighbours_get_a_network_for_relations() -> None:
    config = jaxrl.PPOConfig(own_hidden=(5,), neighbour_hidden=(6, 7), hidden=(8,), pooling="max", neighbour_scale=0.1)
    algo = jaxrl.ppo(Neighbourly(), config)
    state = jax.eval_shape(algo.init, jax.random.key(0), algo.hparams, algo.env.default_params)
    shapes = {name: leaf["kernel"].shape for name, leaf in state.weights[0]["params"].items()}
    assert {name: shape for name, shape in shapes.items() if name.startswith("critic")} == {
        "critic_own_0": (1, 5),
        "critic_neighbour_0": (4, 6),
        "critic_neighbour_1": (6, 7),
        "critic_0": (12, 8),
        "critic_out": (8, 1),
    }


@pytest.mark.parametrize(
    ("env", "fields", "sentence"),
    [
        (Neighbourly(), {"normalise_observation": True}, r"^normalise_observation would scale every slot"),
        (Neighbourly(), {"shared_trunk": True}, r"^shared_trunk has no effect on observations with 'neighbours'"),
        (None, {"pooling": "max"}, r"^pooling has no effect on observations without 'neighbours'.* got 'max'"),
        (None, {"own_hidden": (3,)}, r"^own_hidden has no effect on observations without 'neighbours'"),
        (None, {"neighbour_scale": 0.0}, r"^neighbour_scale must lie in \(0, inf\), got 0"),
        (None, {"pooling": "meen"}, r"^pooling .*'meen'"),
    ],
)
def test_fields_for_relations_are_refused_where_they_have_no_effect(env: Any, fields: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        jaxrl.ppo(env or envs.make("cartpole"), jaxrl.PPOConfig(**fields))


@dataclasses.dataclass(frozen=True)
class Scheduled(probes.ConstantReward):
    """The reward is the number of environment steps that the run has taken so far."""

    @property
    def default_params(self) -> Any:
        return ScheduledParams()

    def params_at(self, params: Any, env_steps: Any) -> Any:
        return params.replace(pay=params.pay + env_steps)

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, _, *rest = super().step_env(key, state, action, params)
        return obs, state, jnp.float32(params.pay), *rest


@struct.dataclass
class ScheduledParams(envs.EnvParams):
    """Parameters of `Scheduled`."""

    pay: Any = 0.0
    max_steps_in_episode: Any = 10


@pytest.mark.slow
def test_a_curriculum_follows_the_steps_of_the_run() -> None:
    algo = jaxrl.ppo(Scheduled(), jaxrl.PPOConfig(num_envs=2, num_steps=8, num_minibatches=1, num_epochs=1))
    result = jaxrl.train(algo, env_steps=64, evals=4, eval_episodes=1, progress=False)
    # One step per episode: the return is the pay after 16, 32, 48 and 64 steps.
    length = result.metrics["length"].values[0]
    np.testing.assert_allclose(result.metrics["return"].values[0], length * np.array([16, 32, 48, 64]))


@pytest.mark.slow
def test_the_entropy_bonus_decays() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=1, num_epochs=1))

    def second_step(**hparams: Any) -> np.ndarray:
        key, values = jax.random.key(0), algo.hparams.replace(lr=1e-2, **hparams)
        state = algo.init(key, values, algo.env.default_params)
        for i in range(2):
            state, _ = step(jax.random.fold_in(key, i), jnp.int32(i), state, values, algo.env.default_params)
        return np.asarray(state.weights[0]["params"]["actor_out"]["kernel"])

    step = jax.jit(algo.step)
    # After the first 32 steps the bonus is a tenth of its first value, as in a run with that value from the second step
    # on.
    decayed, kept = second_step(entropy_coef=1.0, entropy_decay_env_steps=32.0), second_step(entropy_coef=1.0)
    assert np.abs(decayed - kept).max() > 1e-4
    np.testing.assert_array_equal(second_step(entropy_coef=1.0, entropy_decay_env_steps=np.inf), kept)
