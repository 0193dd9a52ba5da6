"""Drawn parameters in the shell: `jaxrl train --randomise`, and `jaxrl evaluate --held-out`."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import envs
import jaxrl
from envs.wrappers import randomise
from jaxrl.cli.main import main
from jaxrl.cli.preset_choice import start_of
from jaxrl.results.plotting.heat_map import heat_map

WORDS = ["--randomise", "length=0.25:1", "masspole=log:0.05:0.2", "gravity=9.8,12"]
DISTRIBUTIONS: dict[str, Any] = {
    "length": jaxrl.Uniform(0.25, 1.0),
    "masspole": jaxrl.LogUniform(0.05, 0.2),
    "gravity": jaxrl.Choice([9.8, 12]),
}


def together(key: Any) -> dict[str, Any]:
    """One number for two parameters."""
    length = jaxrl.Uniform(0.25, 1.0).sample(key)
    return {"length": length, "masspole": 0.2 * length}


def test_a_command_starts_on_the_randomised_environment_with_the_preset() -> None:
    start = start_of("ppo", "cartpole", WORDS)
    plain = start_of("ppo", "cartpole", [])
    assert start.algo.env == randomise(envs.make("cartpole"), DISTRIBUTIONS)
    assert (start.algo.config, start.algo.hparams) == (plain.algo.config, plain.algo.hparams)
    assert start.algo.settings_from == "preset of ppo on cartpole"
    assert start.preset == plain.preset


def test_a_function_of_a_key_is_named_by_its_path() -> None:
    env = start_of("dqn", "cartpole", ["--randomise", f"{__name__}:together"]).algo.env
    assert env == randomise(envs.make("cartpole"), together)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--randomise takes at least one parameter of the environment, such as length=0.25:1"),
        (["length"], "--randomise takes NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=VALUE,VALUE, such as length=0.25:1"),
        (["length:0.25:1"], "--randomise takes NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=VALUE,VALUE, such as"),
        ([":f"], "--randomise takes NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=VALUE,VALUE, such as length=0.25:1"),
        (
            ["length=0:1"],
            "randomise takes values of length that cartpole accepts: env.length must be above 0 and finite, got 0.0",
        ),
        (["lenght=1:2"], "randomise takes parameters of cartpole, got 'lenght'; did you mean 'length'?"),
        (["length=1:2", "length=1:3"], "--randomise has length twice"),
        (
            ["nowhere:at_all"],
            "The function of randomise 'nowhere:at_all' cannot be found: there is no module 'nowhere'",
        ),
    ],
)
def test_wrong_words_are_refused_in_one_sentence(words: list[str], sentence: str, capsys: Any) -> None:
    assert main(["train", "ppo", "cartpole", "--randomise", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"jaxrl: {sentence}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("words", [["--randomise", "drawing:f"], ["--randomise=drawing:f"]])
def test_a_search_resumes_with_a_function_where_its_module_is_allowed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code = "import jax\n\ndef f(key):\n    return {'length': jax.random.uniform(key) + 0.5}\n"
    (tmp_path / "drawing.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "drawing", raising=False)
    run = tmp_path / "run"
    run.mkdir()
    command = ["ppo", "cartpole", "--unknown", *words]
    (run / "search.json").write_text(json.dumps({"command": command}))
    assert main(["resume", str(run)]) == 2
    assert "the environment's function 'drawing:f' is of the module 'drawing'" in capsys.readouterr().err
    assert "drawing" not in sys.modules
    assert main(["resume", str(run), "--allow", "drawing"]) == 2  # the search begins, and refuses its options
    assert "unrecognized options: --unknown" in capsys.readouterr().err


SMALL = "--env-steps 1024 --evals 1 --eval-episodes 2 --seeds 2 --no-progress"


@pytest.mark.slow
def test_a_randomised_run_is_evaluated_on_parameters_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run, picture = str(tmp_path / "run"), tmp_path / "map.png"
    varied = [*WORDS, "--env.widening-env-steps", "512", "--config.critic-sees", "privileged"]
    assert main(["train", "ppo", "cartpole", *varied, *SMALL.split(), "--out", run]) == 0
    held_out = ["--held-out", "length=0.1,2", "masspole=0.05,0.1,0.2"]
    drawn = []
    monkeypatch.setattr(
        "jaxrl.plotting.heat_map", lambda *args, **options: drawn.append(options) or heat_map(*args, **options)
    )
    axes = ["--x", "masspole", "--y", "length"]
    assert main(["evaluate", run, "--episodes", "4", *held_out, "--picture", str(picture), *axes]) == 0
    assert [(each["x"], each["y"]) for each in drawn] == [("masspole", "length")]
    printed = capsys.readouterr().out
    assert "return of 2 seeds, 4 episodes each: interquartile mean" in printed
    assert "return_sampled of 2 seeds" in printed
    assert len([line for line in printed.splitlines() if line.startswith("512 ")]) == 1 + 2 * 6  # training, two tables
    assert picture.read_bytes()[:4] == b"\x89PNG"
    result = jaxrl.load_result(run)
    assert result.algo is not None
    assert result.algo.env == randomise(envs.make("cartpole"), DISTRIBUTIONS)
    assert main(["evaluate", run, "--episodes", "4", *held_out, "--discount", "hyperbolic:k=0.5"]) == 0
    printed = capsys.readouterr().out
    assert "every final policy, greedy and sampled; discounted_return is under hyperbolic:k=0.5\n" in printed
    assert "\ndiscounted_return of 2 seeds" in printed and "\ndiscounted_return_sampled of 2 seeds" in printed
    assert main(["evaluate", run, "--held-out", "lenght=1"]) == 2
    assert capsys.readouterr().err.startswith("jaxrl: env.lenght is not a parameter of cartpole; did you mean")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--picture map.png", "--picture takes --held-out as well, such as --held-out length=0.1,0.5,2"),
        ("--held-out length=1,2 --picture map.txt", "path is 'map.txt'; a picture's name ends in"),
        ("--held-out a=1,2 b=1,2 c=1,2 --picture map.png", "--picture takes at most two parameters of --held-out with"),
        (
            "--held-out length",
            "--held-out takes NAME=VALUE,VALUE with numbers, such as length=0.1,0.5,2, but got 'length'",
        ),
        (
            "--held-out length=0.1:2",
            "--held-out takes NAME=VALUE,VALUE with numbers, such as length=0.1,0.5,2, but got",
        ),
        ("--discount hyperbolik:k=1", "The discount 'hyperbolik:k=1' does not parse"),
        ("--held-out length=nan", "--held-out takes NAME=VALUE,VALUE with numbers, such as length=0.1,0.5,2, but got"),
        ("--held-out length=1 length=2", "--held-out has length twice"),
        ("--held-out a=1,2 --x a", "--x takes --picture as well, but got a alone"),
        ("--held-out a=1,2 b=1 --y c --picture map.png", "--y takes a parameter of --held-out, a, b, but got c"),
        ("--held-out a=1,2 b=1 --x a --y a --picture map.png", "--x and --y take two parameters, but got a twice"),
        (
            "--held-out a=1,2 b=1,2 c=1 --x c --picture map.png",
            "--picture takes at most two parameters of --held-out with several values, but got a, b with c",
        ),
    ],
)
def test_wrong_values_are_refused_before_the_run_is_read(words: str, sentence: str, capsys: Any) -> None:
    assert main(["evaluate", "no-such-run", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"jaxrl: {sentence}")
