"""Policies of one crowd shown in another."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import episode_in
from PIL import Image

import envs
import jaxrl
from envs.control.pendulum import Pendulum
from envs.crowd import Areas, Crowd
from jaxrl import PPOConfig, ppo
from jaxrl.algorithms.contract import policy_shapes
from jaxrl.cli import main as cli
from jaxrl.policies.crowds import crowd_like, for_any_number, params_in, walk
from jaxrl.policies.playing import check_fit, player_of, random_actions
from jaxrl.results.policy import TrainedPolicy

SIZES = PPOConfig(num_envs=1, num_steps=4, num_minibatches=1, num_epochs=1, hidden=(4,), own_hidden=(4,))


def of(env, **params):
    return TrainedPolicy(ppo(env, SIZES), params=None, env_params=replace(env.default_params, **params))


@pytest.fixture(scope="module")
def policy():
    env = Crowd("circle", num_agents=4, num_neighbours=2, obstacles=False)
    params = replace(env.default_params, max_steps_in_episode=6, num_present=3)
    algo = ppo(env, SIZES)
    shapes = policy_shapes(algo)
    generator = np.random.default_rng(0)
    weights = jax.tree.map(lambda leaf: jnp.asarray(generator.normal(size=leaf.shape), jnp.float32), shapes)
    return TrainedPolicy(algo, weights, env_params=params)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 7])
def test_everybody_acts_alone_however_many_there_are(policy, count):
    keys = jax.random.split(jax.random.key(1), 3)
    obs = {
        "own": jax.random.normal(keys[0], (count, 9)),
        "neighbours": jax.random.normal(keys[1], (count, 2, 4)),
        "neighbours_present": jax.random.bernoulli(keys[2], 0.5, (count, 2)).astype(jnp.float32),
    }
    alone = [policy(jax.tree.map(lambda leaf, i=i: jnp.stack([leaf[i]] * 4), obs))[0] for i in range(count)]
    crowd = for_any_number(policy)
    action, memory = crowd.act(obs, crowd.initial_memory(count))
    assert memory == ()
    assert np.ptp(np.asarray(action), axis=0).min() > 0.01 or count == 1
    # The same four layers, each of at most 68 products of size 1, perhaps summed in another order.
    np.testing.assert_allclose(action, jnp.stack(alone), rtol=0, atol=4 * 68 * 2.0**-23)


@pytest.mark.slow
def test_a_learned_crowd_walks_elsewhere(policy):
    elsewhere = Areas(spawns=[((-4, -1), (-2, 1))], goals=[((3, -1), (4, 1))], walls=[((-0.1, 2), (0.1, 4))])
    episode = walk(policy, scenario=elsewhere, num_agents=5, seed=1)
    assert episode.position.shape == (7, 5, 2)
    assert np.all(episode.position[0, :, 0] <= -2)  # it starts at the place of the scene
    assert 0 <= float(episode.metrics["success"]) <= 1
    again = walk(policy, scenario=elsewhere, num_agents=5, seed=1)
    assert np.array_equal(episode.position, again.position)
    sampled = [walk(policy, scenario=elsewhere, num_agents=5, seed=seed, greedy=False).position for seed in (1, 2)]
    # The starts have no randomness, so that only sampled actions differ between seeds.
    assert np.array_equal(sampled[0][0], sampled[1][0]) and not np.array_equal(sampled[0], sampled[1])
    assert np.array_equal(walk(policy, scenario=elsewhere, num_agents=5, seed=2).position, episode.position)
    assert not np.array_equal(walk(policy, scenario="circle", num_agents=5).position[0], episode.position[0])


def test_crowds_default_to_the_environment_of_the_run(policy):
    assert crowd_like(policy) == (policy.algo.env, policy.env_params)
    env, params = crowd_like(policy, "circle", 4)
    assert (env, params) == (policy.algo.env, replace(policy.env_params, num_present=4))


def test_more_people_in_another_scenario_see_as_many_neighbours(policy):
    env, params = crowd_like(policy, "corridor", 12)
    assert (env.name, env.num_agents, env.num_neighbours) == ("crowd/corridor", 12, 2)
    assert env.obstacles is True and policy.algo.env.obstacles is False  # its walls come with the scenario
    assert params.num_present == 12 and params.max_steps_in_episode == 6
    assert params.scenario == env.default_params.scenario
    check_fit(env, policy.algo.env)
    assert params_in(env, policy) == params


def test_a_smaller_crowd_keeps_places_for_absent_neighbours(policy):
    env, params = crowd_like(policy, None, 1)
    assert (env.num_agents, env.num_neighbours, params.num_present) == (3, 2, 1)
    check_fit(env, policy.algo.env)


def test_numbers_of_a_scenario_of_the_same_kind_are_kept():
    env = Crowd("circle", num_agents=3)
    wide = of(env, scenario=replace(env.default_params.scenario, radius=9.0))
    assert crowd_like(wide, "circle", 5)[1].scenario.radius == 9.0
    assert crowd_like(wide, "circle-block", 5)[1].scenario.radius == 6.0


@pytest.mark.parametrize(
    ("scenario", "num_agents", "sentence"),
    [
        ("ring", None, "there is no scenario 'ring'; known are circle, "),
        ("coridor", None, "did you mean 'corridor'"),
        (None, 0, "num_agents must be a whole number of at least 1, got 0"),
        (None, 1000, "num_agents must be at most 94 in circle"),
    ],
)
def test_crowds_that_cannot_be(policy, scenario, num_agents, sentence):
    with pytest.raises(ValueError, match=sentence):
        crowd_like(policy, scenario, num_agents)


def test_a_crowd_elsewhere_has_the_time_limit_of_the_training(policy):
    limited = envs.wrappers.time_limit(policy.algo.env, 5)
    trained = TrainedPolicy(ppo(limited, SIZES), policy.params, env_params=limited.default_params)
    assert crowd_like(trained)[1].max_steps_in_episode == 5
    assert params_in(policy.algo.env, trained).max_steps_in_episode == 200


def test_a_policy_of_crowds_that_vary_walks_and_is_evaluated_without_draws(policy):
    crowd = policy.algo.env
    varied = envs.wrappers.randomise(crowd, {"num_present": jaxrl.Choice([2, 3]), "max_speed": jaxrl.Uniform(1.0, 2.0)})
    params = varied.default_params.replace(inner=policy.env_params, max_steps_in_episode=6)
    drawn = TrainedPolicy(ppo(varied, SIZES), policy.params, env_params=params)
    assert crowd_like(drawn) == (crowd, policy.env_params)
    assert crowd_like(drawn, "corridor", 12) == crowd_like(policy, "corridor", 12)
    for env in (crowd, replace(crowd, num_agents=5)):
        check_fit(env, varied)
        assert params_in(env, drawn) == params_in(env, policy)
    more = envs.wrappers.time_limit(replace(crowd, num_agents=5), 4)  # another number of people in a wrapper
    check_fit(more, varied)
    player = player_of(more, policy)
    obs = jax.eval_shape(more.reset_env, jax.random.key(0), more.default_params)[0]
    filled = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), obs)
    assert player.act(filled, None, player.initial_memory())[0].shape == (5, 2)
    numbers = {"num_present": [2.0, 4.0]}
    one, other = (jaxrl.evaluate(each, crowd, 2, 0, env_params=numbers) for each in (drawn, policy))
    np.testing.assert_array_equal(one["return"], other["return"])
    slower = envs.wrappers.action_repeat(crowd, 2)
    with pytest.raises(ValueError, match="only the policy of a crowd can walk"):
        crowd_like(TrainedPolicy(ppo(slower, SIZES), params=None))


def test_only_crowds_are_like_crowds():
    other = TrainedPolicy(ppo(Pendulum(), PPOConfig(num_envs=2, num_steps=8, hidden=(4,))), params=None)
    with pytest.raises(
        ValueError, match="policy was trained on pendulum; only the policy of a crowd can walk in another scene"
    ):
        crowd_like(other, "circle")


def test_other_observations_are_refused(policy):
    for change in ({"num_neighbours": 3}, {"extended": True}):
        with pytest.raises(ValueError, match="policy was trained with other observations than those of crowd/circle"):
            check_fit(replace(policy.algo.env, **change), policy.algo.env)


def test_random_actions_are_everybodys_own():
    env = Crowd("circle", num_agents=5)
    action = np.asarray(random_actions(env, env.default_params)(jax.random.key(0)))
    assert action.shape == (5, 2) and len(np.unique(action)) == 10


def test_more_steps_than_an_episode_has_are_refused(policy, tmp_path):
    with pytest.raises(ValueError, match=r"num_steps is 7; \.html shows one episode, of 6 steps at most"):
        jaxrl.render(policy.algo.env, policy, tmp_path / "x.html", num_steps=7)


@pytest.mark.slow
def test_a_run_is_played_in_another_crowd_from_the_command_line(tmp_path, capsys):
    run, page, picture = tmp_path / "run", tmp_path / "x.html", tmp_path / "x.png"
    sizes = "--config.num-envs 1 --config.num-steps 4 --config.num-minibatches 1 --config.num-epochs 1 --evals 1"
    words = f"--static num_agents=4 num_neighbours=2 --no-preset --env-steps 8 --eval-episodes 1 {sizes} --no-progress"
    assert cli.main(f"train ppo crowd/circle {words} --env.max-steps-in-episode 4 --out {run}".split()) == 0
    for more, agents, boxes in (("--scenario corridor --agents 7", 7, 6), ("--agents 2", 2, 4)):
        assert cli.main(f"render {run} {more} --out {page}".split()) == 0
        data = episode_in(page)
        assert data["agents"] == list(range(agents)) and len(data["box_half"]) == boxes and data["num_frames"] == 5
    assert cli.main(f"render {run} --scenario car --agents 5 --out {picture}".split()) == 0
    with Image.open(picture) as seen:
        assert seen.size[0] > 500
    assert cli.main(f"render {run} --agents 6 --out {tmp_path / 'x.gif'}".split()) == 0
    capsys.readouterr()
    assert cli.main(f"render {run} --scenario ring --out {page}".split()) == 2
    assert "jaxrl: there is no scenario 'ring'" in capsys.readouterr().err
    jaxrl.render(Crowd("circle", num_agents=3), None, page, num_steps=2)  # at random
    assert episode_in(page)["num_frames"] == 3
