"""Trained policies as partners: they act as in training, and can be replaced without compiling."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import envs
import jaxrl
from envs.cooperation.characters import with_characters
from envs.cooperation.learned import learned
from envs.cooperation.levers import LeverGame
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.actor import Actor, choose_by

SELF_PLAY = LeverGame(num_levers=3, partner=None)


@struct.dataclass
class Scale:
    scale: float = 50.0


def pullers(env: Any) -> jaxrl.Algorithm:
    """Policies with random logits for their first lever, which move on by one lever in every step."""
    head = action_head(env.action_space(env.default_params))
    chosen = choose_by(head)

    def scores(policy: Any, memory: Any, obs: Any, mask: Any) -> Any:
        logits = jnp.broadcast_to(policy, (*memory["time"].shape, *policy.shape))
        turned = jax.vmap(jnp.roll, (0, 0))(logits.reshape(-1, policy.shape[0]), memory["time"].ravel())
        return {"logits": turned.reshape(logits.shape)}, {"time": memory["time"] + 1}

    def choose(noise: Any, scores: Any, memory: Any, greedy: Any, mask: Any) -> Any:
        return *chosen(noise, scores, greedy, mask), memory

    return jaxrl.Algorithm(
        name="pullers",
        env=env,
        config=None,
        hparams=Scale(),
        init=lambda key, hparams, env_params: hparams.scale * jax.random.uniform(key, (4,)),
        step=lambda key, iteration, state, hparams, env_params: (state, {}),
        policy=lambda state, hparams: state,
        actor=Actor(lambda policy: {"time": jnp.zeros((), jnp.int32)}, scores, head.noise, choose),
        env_steps_per_iteration=1,
    )


ALGO = pullers(SELF_PLAY)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    where = tmp_path_factory.mktemp("partners")
    for name, seeds in (("one", [0, 1, 2]), ("two", [3, 4, 5])):
        jaxrl.train(ALGO, seeds=seeds, env_steps=1, evals=1, eval_episodes=2, out=where / name, progress=False)
    return where / "one", where / "two"


def levers(partners: jaxrl.Partners, steps: int = 3) -> np.ndarray:
    """Levers of every partner `[P, steps]`."""

    def play(member: jax.Array) -> jax.Array:
        params = partners.env_params.replace(weights=jax.nn.one_hot(member, len(partners.names)))
        _, state = partners.task.reset_env(jax.random.key(0), params)
        pulled = []
        for _ in range(steps):
            _, state, *_ = partners.task.step_env(jax.random.key(0), state, jnp.int32(0), params)
            pulled.append(state.game.last[1])
        return jnp.stack(pulled)

    return np.asarray(jax.jit(jax.vmap(play))(jnp.arange(len(partners.names))))


@pytest.mark.slow
def test_partners_act_as_in_self_play(runs: tuple[Path, Path]) -> None:
    partners = jaxrl.load_partners(runs, greedy=True, algo=ALGO)
    results = [jaxrl.load_result(run, ALGO) for run in runs]
    logits = np.concatenate([result.policies[0] for result in results])
    first = np.argmax(logits, axis=-1)
    np.testing.assert_array_equal(levers(partners), (first[:, None] + np.arange(3)) % 4)
    assert partners.names == tuple(
        f"{run} seed={seed}" for run, seeds in zip(runs, ((0, 1, 2), (3, 4, 5)), strict=True) for seed in seeds
    )
    space: Any = partners.task.behaviour_space()
    assert space.spaces[0].n == 6
    envs.check(partners.task, partners.env_params, progress=False)


@pytest.mark.slow
def test_others_take_their_place_without_compiling(runs: tuple[Path, Path]) -> None:
    one, two = (jaxrl.load_partners(run, algo=ALGO) for run in runs)
    assert one.task == two.task and hash(one.task) == hash(two.task)
    traces = []

    def first(task: Any, params: Any) -> Any:
        traces.append(task)
        key = jax.random.key(0)
        _, state = task.reset_env(key, params)
        return task.step_env(key, state, jnp.int32(0), params)[1].game.last

    jitted = jax.jit(first, static_argnums=0)
    for partners in (one, two):
        jitted(partners.task, partners.env_params)
    assert len(traces) == 1


@pytest.mark.slow
def test_a_run_with_characters_gives_a_partner_for_each_of_them(tmp_path: Path) -> None:
    algo = pullers(with_characters(LeverGame(num_levers=3)))
    jaxrl.train(algo, seeds=[0, 1], env_steps=1, evals=1, eval_episodes=2, out=tmp_path / "run", progress=False)
    partners = jaxrl.load_partners(tmp_path / "run", algo=algo, characters=1_000)
    assert partners.task == LeverGame(num_levers=3, partner=partners.partner)
    population = partners.env_params.population
    assert len(set(partners.names)) == 1_000 and population["params"].shape == (2, 4)
    character = population["characters"]
    for row in (0, 999):
        text = f"seed={row % 2} weights={','.join(f'{w:.2f}' for w in character.weights[row])} "
        assert text in partners.names[row]
    envs.check(partners.task, partners.env_params, progress=False)
    again = jaxrl.load_partners(tmp_path / "run", algo=algo, characters=1_000)
    assert again.task == partners.task and hash(again.task) == hash(partners.task)
    jax.tree.map(np.testing.assert_array_equal, again.env_params, partners.env_params)

    halves = jax.tree.map(lambda leaf: np.full((2, *leaf.shape[1:]), 0.5), character)
    own = jaxrl.load_partners(tmp_path / "run", algo=algo, characters=halves)
    assert len(own.names) == 2 and own.names[1].endswith("order=0.50 patience=0.50 rationality=0.50")
    own.task.check_params(own.env_params)
    wrong: Any
    for wrong, sentence in (
        (0, "characters must be a whole number of at least 1, got 0"),
        ({"order": 1}, r"characters takes a number, or an envs\.cooperation\.characters\.Character, got \{'order'"),
        (dataclasses.replace(halves, weights=np.zeros(2)), r"weights must have the shape \(2, 3\) for 2 weights"),
        (dataclasses.replace(halves, order=np.full(2, 2.0)), r"characters\.order must lie in \[0, 1\], got 2"),
    ):
        with pytest.raises((ValueError, TypeError), match=sentence):
            jaxrl.load_partners(tmp_path / "run", algo=algo, characters=wrong)

    rational = dataclasses.replace(algo.env.default_params, least_rationality=0.9)
    sizes: Any = {"env_steps": 1, "evals": 1, "eval_episodes": 2, "progress": False}
    other = jaxrl.train(algo, seeds=[0], env_params=rational, **sizes)
    drawn = jaxrl.load_partners(other, algo=algo).env_params.population["characters"]
    assert drawn.rationality.min() >= 0.9 and len(drawn.order) == 64
    with pytest.raises(ValueError, match=r"sources must have one least_rationality .* got 0\.5, 0\.9; otherwise"):
        jaxrl.load_partners([tmp_path / "run", other], algo=algo)


def test_partners_that_do_not_fit_are_refused(runs: tuple[Path, Path]) -> None:
    partners = jaxrl.load_partners(runs[0], algo=ALGO)
    with pytest.raises(ValueError, match=r"env\.population must have the parameters of trained partners"):
        partners.task.check_params(partners.task.default_params)
    partners.task.check_params(partners.env_params)
    result = jaxrl.load_result(runs[0], ALGO)
    other = dataclasses.replace(result, algo=pullers(LeverGame(num_levers=3, partner=None)))
    with pytest.raises(ValueError, match="sources must be runs of one algorithm in one task"):
        jaxrl.load_partners([result, other])
    beside = dataclasses.replace(result, algo=pullers(LeverGame(num_levers=3)))
    with pytest.raises(TypeError, match=r"takes runs of a cooperative task in self-play or .* got cooperation/levers"):
        jaxrl.load_partners(beside)
    with pytest.raises(ValueError, match="characters have no effect in cooperation/levers-self-play, whose agents"):
        jaxrl.load_partners(result, characters=3)
    with pytest.raises(ValueError, match="sources takes at least one run directory or result, got none"):
        jaxrl.load_partners([])
    with pytest.raises(ValueError, match=r"params must be arrays \[P, \.\.\.\] of at least one partner"):
        learned(lambda params: (), lambda key, params, memory, obs: (obs, memory), np.zeros((0, 3)))
