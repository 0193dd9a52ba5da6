"""Search spaces: parsing, errors of one sentence, and the arithmetic of halving."""

from typing import Any

import jax
import numpy as np
import pytest

import envs
import jaxrl
from jaxrl import Choice, Halving, LogUniform, Uniform
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import default_space
from jaxrl.cli import main as cli
from jaxrl.tuning.halving import survivors
from jaxrl.tuning.samplers import sampler_of
from jaxrl.tuning.space import Space, parse_space, spelled


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return jaxrl.ppo(envs.make("pendulum"), jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, hidden=(8,)))


def test_static_paths_make_groups_and_traced_ones_a_sweep(algo: Algorithm):
    space = Space(
        algo,
        {
            "lr": LogUniform(1e-4, 1e-2),
            "config.hidden": Choice([[8], (16, 16)]),
            "discount": Choice([0.9, "hyperbolic:k=0.02"]),
            "env.gravity": Uniform(9.0, 11.0),
            "config.num_minibatches": Choice([1, 2]),
        },
    )
    assert list(space.groups) == [("(8,)", 1), ("(8,)", 2), ("(16, 16)", 1), ("(16, 16)", 2)]
    setting = {
        "lr": 1e-3,
        "config.hidden": "(16, 16)",
        "discount": "hyperbolic:k=0.02",
        "env.gravity": 10.0,
        "config.num_minibatches": 1,
    }
    group = space.groups[space.static_part(setting)]
    assert group.config.hidden == (16, 16) and group.config.num_minibatches == 1
    sweep = space.sweep([setting])
    assert sweep is not None
    assert sweep.settings[0] == {"lr": 1e-3, "discount": "hyperbolic:k=0.02", "env.gravity": 10.0}
    assert space.config_of(setting) == group.config


def test_programs_of_a_group_do_not_depend_on_the_discounts_of_a_population(algo: Algorithm):
    from jaxrl.tuning.run_trials import arguments_of, call_of

    space = Space(algo, {"discount": Choice([0.9, "hyperbolic:k=0.02", "fixed:horizon=20"])})
    shapes = set()
    for label in space.labels("discount"):
        call = call_of(space, [{"discount": label}], [0, 1], 2, [64])
        arguments = arguments_of(call, 1)
        assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(arguments))
        shapes.add(tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(arguments)))
    assert len(shapes) == 1


def test_a_group_keeps_the_hyper_parameters_that_the_search_starts_from(algo: Algorithm):
    tuned = algo._replace(hparams=algo.hparams.replace(lr=0.125))
    space = Space(tuned, {"lam": Uniform(0.8, 1.0), "config.normalise_observation": Choice([False, True])})
    assert [group.hparams.lr for group in space.groups.values()] == [0.125, 0.125]
    assert [group.hparams.observation_clip for group in space.groups.values()] == [None, 10.0]


def test_kinds_of_memory_are_static_values() -> None:
    config = jaxrl.DQNConfig(
        num_envs=2, batch_size=32, buffer_size=64, prefill=32, hidden=(4,), memory="gru", memory_size=4
    )
    space = Space(jaxrl.dqn(envs.make("memory/chain"), config), parse_space(["config.memory=gru,lru"]))
    assert {labels: algo.config.memory for labels, algo in space.groups.items()} == {("gru",): "gru", ("lru",): "lru"}
    with pytest.raises(
        ValueError, match=r"^space has config\.memory=none, with which no algorithm .*: memory_size has no"
    ):
        Space(space.algo, {"config.memory": Choice(["gru", "none"])})


@pytest.mark.parametrize(
    ("space", "error", "sentence"),
    [
        ({}, ValueError, "at least one path"),
        ({"lrr": Uniform(0, 1)}, ValueError, "'lrr'; did you mean 'lr'"),
        ({"gamma": Uniform(0, 1)}, ValueError, r"gamma; the paths here are discount.gamma or discount"),
        ({"config.num_step": Choice([1, 2])}, ValueError, "config.num_step is not a field of PPOConfig; did you mean"),
        ({"num_steps": Choice([1, 2])}, ValueError, "num_steps is static: a search space takes it as config.num_steps"),
        ({"config.num_steps": Uniform(1, 2)}, TypeError, "config.num_steps is static, with one program per value"),
        ({"config.num_steps": Choice([16, 32.0])}, TypeError, "config.num_steps takes values such as 16, got 32.0"),
        ({"config.num_steps": Choice([16, True])}, TypeError, "config.num_steps takes values such as 16, got True"),
        (
            {"config.activation": Choice(["tanh", "sin"])},
            ValueError,
            "config.activation=sin, with which no algorithm can be built",
        ),
        ({"config.num_minibatches": Choice([2, 3])}, ValueError, "must divide the 32 samples"),
        ({"config.num_minibatches": Choice([2, 2])}, ValueError, "config.num_minibatches has a value twice"),
        ({"lam": Uniform(0.8, 1.5)}, ValueError, "lam must lie in"),
        ({"lr": [1e-3, 1e-2]}, TypeError, "lr takes Uniform, LogUniform or Choice"),
        ({"lr": Choice(["a"])}, TypeError, "'lr' takes numbers"),
        ({"discount": Uniform(0.9, 1)}, TypeError, "discount takes a Choice of discounts"),
        ({"discount.gamma": Uniform(0.9, 1.5)}, ValueError, "gamma"),
        ({"env.gravitas": Uniform(1, 2)}, ValueError, "env.gravitas is not a parameter of"),
        ({"env.max_steps_in_episode": Uniform(10, 20)}, ValueError, "whole numbers"),
        ({"reward_clip": Uniform(1, 2)}, ValueError, "no effect"),
        (
            {"reward_clip": Uniform(1, 2), "config.normalise_reward": Choice([True, False])},
            ValueError,
            "no effect",
        ),
        ({"config.num_steps": Choice(range(1, 300))}, ValueError, "at most 256"),
    ],
)
def test_bad_spaces_raise_one_sentence(algo: Algorithm, space: Any, error: Any, sentence: str):
    with pytest.raises(error, match=sentence) as caught:
        Space(algo, space)
    assert "\n" not in str(caught.value)


def test_a_space_is_printed_in_the_syntax_of_the_command_line(algo: Algorithm):
    texts = [
        "lr=log:0.0001:0.01",
        "lam=0.8:1.0",
        "entropy_coef=0.0,0.01",
        "discount=0.98,beta:mu=0.98,eta=0.5,mixture:1e-05=0.5,0.9=0.5,hyperbolic:k=0.02",
        "config.num_steps=16,32",
        "config.activation=tanh,relu",
        "config.hidden=(8,),(16, 16)",
        "config.normalise_reward=False,True",
        "env.gravity=9.0:11.0",
    ]
    space = parse_space(texts)
    assert space["lr"] == LogUniform(1e-4, 1e-2)
    assert space["config.num_steps"] == Choice([16, 32])
    assert space["config.hidden"] == Choice([(8,), (16, 16)])
    assert [f"{path}={spelled(distribution)}" for path, distribution in space.items()][3] == (
        "discount=exp:gamma=0.98,beta:mu=0.98,eta=0.5,mixture:1e-05=0.5,0.9=0.5,hyperbolic:k=0.02"
    )
    again = parse_space([f"{path}={spelled(distribution)}" for path, distribution in space.items()])
    assert again == space
    assert len(Space(algo, space).groups) == 16


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lr", "PATH=LOW:HIGH"),
        ("lr=", "PATH=LOW:HIGH"),
        ("lr=a,b", "numbers separated by commas"),
        ("lr=2:1", "low < high"),
    ],
)
def test_bad_words_raise_one_sentence(algo: Algorithm, text: str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        parse_space([text])


def test_a_default_space_fits_every_preset():
    for name, environment in jaxrl.presets.names()[:3]:
        algo = jaxrl.preset(name, environment).algo
        assert len(Space(algo, default_space(algo)).distributions) >= 5


def test_a_random_design_depends_on_its_seed_alone_and_fills_its_ranges(algo: Algorithm):
    space = Space(algo, {"lr": LogUniform(1e-4, 1e-2), "lam": Uniform(0.8, 1.0), "config.num_epochs": Choice([1, 2])})
    settings = [space.drawn(3, place) for place in range(400)]
    assert settings == [space.drawn(3, place) for place in range(400)]
    assert settings[0] != space.drawn(4, 0)
    logs = np.log10([setting["lr"] for setting in settings])
    # The mean of 400 draws, uniform over a width of 2, is within five standard errors of the middle.
    assert abs(logs.mean() + 3) < 5 * 2 / np.sqrt(12 * 400)
    assert {setting["config.num_epochs"] for setting in settings} == {1, 2}
    # Paths draw apart: independent columns of 400 have a correlation of about 1/20.
    assert abs(np.corrcoef(logs, [setting["lam"] for setting in settings])[0, 1]) < 0.25


def test_samplers_reject_unsupported_spaces(algo: Algorithm):
    mixed = Space(algo, {"lr": LogUniform(1e-4, 1e-2), "config.num_epochs": Choice([1, 2])})
    with pytest.raises(ValueError, match=r"cmaes searches ranges only.*config.num_epochs"):
        sampler_of("cmaes", mixed, 0, 8)
    with pytest.raises(ValueError, match=r"a grid takes values for every path, such as lr=0.1,0.2"):
        sampler_of("grid", mixed, 0, 8)
    one = Space(algo, {"lr": LogUniform(1e-4, 1e-2)})
    with pytest.raises(ValueError, match=r"cmaes searches two ranges or more, got lr alone"):
        sampler_of("cmaes", one, 0, 8)


def test_halving_ends_with_whole_runs_at_its_stated_cost():
    halving = Halving(eta=3)
    assert halving.rungs(90_000) == [10_000, 30_000, 90_000]
    # 1/9 of a run for all, 2/9 for a third, 6/9 for a ninth.
    assert halving.share(90_000) == pytest.approx(1 / 9 + 2 / 27 + 6 / 81)
    assert Halving(eta=2, first_env_steps=30).rungs(100) == [30, 60, 100]
    with pytest.raises(ValueError, match="first_env_steps must be below the 30 env_steps"):
        Halving(first_env_steps=30).rungs(30)


@pytest.mark.parametrize("eta", [1, 0.5, float("nan"), True, "3"])
def test_halving_refuses_populations_that_do_not_shrink(eta: Any):
    with pytest.raises(ValueError, match="eta must be a number above 1"):
        Halving(eta=eta)


def test_survivors_are_the_best_and_none_that_failed():
    assert survivors([1.0, 5.0, np.nan, 3.0, 4.0, 2.0], 3).tolist() == [1, 4]
    assert survivors([np.nan, 1.0], 1.5).tolist() == [1]
    assert survivors([np.nan, np.nan], 2).tolist() == []
    assert survivors([2.0, 2.0, 2.0], 3).tolist() == [0]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("search", "an algorithm and an environment first"),
        ("tune ppo pendulum", "there is no command 'tune'; did you mean 'search'"),
        ("sweep ppo pendulum --trials 0", "trials must be a whole number of at least 1, got 0"),  # an alias
        ("search ppo pendulum --trials 0", "trials must be a whole number of at least 1, got 0"),
        ("search ppo pendulum --env-steps 0", "env_steps must be"),
        ("search ppo pendulum --seeds 0", "seeds must be"),
        ("search ppo pendulum --population 0", "population must be"),
        ("search ppo pendulum --search annealing", "search"),
        ("search ppo pendulum --space lr", "PATH=LOW:HIGH"),
        ("search ppo pendulum --space lrr=0:1", "did you mean 'lr'"),
        (
            "search ppo pendulum --space gamma=0.9:0.99 ent_coef=0:1 learning_rate=0:1 update_epochs=1,2 lam=0:1",
            r"other libraries: gamma, ent_coef, learning_rate, update_epochs; the paths here are discount.gamma or "
            r"discount \(for gamma\), entropy_coef \(for ent_coef\), lr \(for learning_rate\), config.num_epochs \(for",
        ),
        ("search ppo pendulum --space config.n_steps=32,64", r"config.num_steps \(for config.n_steps\)"),
        ("search dqn cartpole --space tau=0.1:1 lr=0:1 --config.target-update soft", r"target_rate \(for tau\)"),
        ("search ppo pendulum --hparams.lr 1e-3 1e-4", "--hparams.lr takes one value here"),
        ("search ppo pendulum --halving 1", "eta must be a number above 1"),
        ("search ppo pendulum --first-env-steps 10", "takes --halving as well"),
        ("search ppo pendulum --halving 3 --env-steps 1024 --no-preset", "are 1, 1 and 2 iterations of 512 each"),
        (
            "search ppo pendulum --env-steps 4000 --space config.num_steps=64,100000",
            "at least one iteration of every trial, which takes [0-9,]+ with config.num_steps=100000, got 4,000",
        ),
        (
            "search ppo pendulum --trials 1 --halving 2 --search random",
            "halving has no trial to stop in populations of one",
        ),
        ("search ppo pendulum --memory much", "memory must be a size such as 8GiB"),
        ("search ppo pendulum --devices gpu:9", "devices must be among"),
        ("search ppo pendulum --search tpe --trials 64 --population 64", "tpe learns nothing from 64 trials"),
        ("search ppo pendulum --search cmaes", "cmaes searches ranges only"),
        ("search ppo pendulum --search grid", "a grid takes values for every path"),
        (
            "search ppo pendulum --storage sqlite:////nowhere/at/all.db",
            "storage sqlite:////nowhere/at/all.db cannot be",
        ),
        ("search ppo pendulum --storage nonsense", "storage 'nonsense' cannot be used"),
        ("search ppo pendulum --storage nodb://me:secret@host/x", "nodb://me:\\*\\*\\*@host/x cannot be used"),
    ],
)
def test_bad_arguments_raise_one_sentence(capsys: pytest.CaptureFixture[str], args: str, sentence: str):
    import re

    assert cli.main(args.split()) == 2
    message = capsys.readouterr().err
    assert re.search(sentence, message) and message.startswith("jaxrl: ") and message.count("\n") == 1
    assert "secret" not in message and "TRACEBACK" not in message
