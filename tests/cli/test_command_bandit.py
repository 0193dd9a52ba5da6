"""`jaxrl bandit`: its files and output, sweeps by options, and one sentence for bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxrl
from envs.bandits.bernoulli import BernoulliBandit
from jaxrl.cli import main as cli
from jaxrl.cli.bandit import _sweep, parse_bandit_options
from jaxrl.runtime.runs import Runs


def failed(capsys: pytest.CaptureFixture[str], args: str) -> str:
    """The one sentence that the command fails with, and nothing before it."""
    assert cli.main(["bandit", *args.split()]) == 2
    reported, message = capsys.readouterr()
    assert reported == ""
    assert message.startswith("jaxrl: ") and message.count("\n") == 1
    assert "JAXRL_TRACEBACK" not in message
    return message


@pytest.mark.slow
def test_a_comparison_is_printed_drawn_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "b"
    options = f"--env bernoulli --arms 3 --policies ucb1,exp3 --steps 50 --runs 6 --points 4 --out {out} --no-progress"
    assert cli.main(["bandit", *options.split(), "--hparams.ucb1.exploration", "0.5", "2"]) == 0
    printed = capsys.readouterr().out
    assert "regret after 50 pulls: mean over runs, 95% interval of the mean" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("ucb1 ", "exp3 ")) and "[" in line]
    assert [row[0] for row in rows] == ["ucb1", "ucb1", "exp3"] and [row[1] for row in rows[:2]] == ["0.5", "2"]
    assert (out / "regret.png").is_file()
    saved = jaxrl.load_result(out / "ucb1")
    assert saved.dims == ("exploration",) and saved.seeds == list(range(6))
    assert saved.metrics["env_step"].values.tolist()[-1] == 50
    # The same call in Python.
    again = jaxrl.run_bandit(
        jaxrl.bandits.ucb1(),
        BernoulliBandit(num_arms=3),
        jaxrl.grid(jaxrl.bandits.ucb1().hparams, {"exploration": [0.5, 2]}),
        steps=50,
        runs=6,
        points=4,
        progress=False,
    )
    np.testing.assert_array_equal(saved.values("regret"), again.values("regret"))
    assert f"{again.values('regret')[0, :, -1].mean():.3f}"[:4] == rows[0][2][:4]
    assert "holds a comparison already: choose another directory, use --force, or --resume" in failed(capsys, options)
    (out / "regret.png").unlink()
    assert f"{out / 'ucb1'} holds a result already" in failed(capsys, options)


@pytest.mark.slow
def test_a_stopped_comparison_resumes_at_its_last_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    words = "bandit --arms 3 --policies ucb1,exp3 --steps 60 --runs 6 --points 3 --no-progress --out"
    options = words.split()
    assert cli.main([*options, str(tmp_path / "whole")]) == 0
    whole = capsys.readouterr().out
    run_bandit, ran = jaxrl.run_bandit, []

    def stopped_in_the_second(policy: Any, *args: Any, **options: Any) -> Any:
        ran.append(policy.name)
        if len(ran) == 2:
            raise KeyboardInterrupt(2)
        return run_bandit(policy, *args, **options)

    monkeypatch.setattr(jaxrl, "run_bandit", stopped_in_the_second)
    out = [*options, str(tmp_path / "x")]
    assert cli.main(out) == 130 and not (tmp_path / "x" / "regret.png").exists()
    advance, pulled = Runs.advance, []
    monkeypatch.setattr(Runs, "advance", lambda runs, count: pulled.append(count) or advance(runs, count))
    capsys.readouterr()
    assert f"{tmp_path / 'x' / 'ucb1'} holds a result already" in failed(capsys, " ".join(out[1:]))
    assert cli.main([*out, "--resume"]) == 0
    # The first policy was read, not run again; the table is that of the undisturbed comparison.
    assert sum(pulled) == 60
    assert capsys.readouterr().out.replace(str(tmp_path / "x"), "") == whole.replace(str(tmp_path / "whole"), "")
    assert "--resume takes --out as well" in failed(capsys, "--arms 3 --resume")


@pytest.mark.slow
def test_a_bandit_without_regret_is_drawn_by_its_reward(tmp_path: Path):
    options = f"--env restless --policies myopic --steps 20 --runs 3 --points 2 --no-progress --out {tmp_path}"
    assert cli.main(["bandit", *options.split()]) == 0
    assert (tmp_path / "reward.png").is_file() and not (tmp_path / "regret.png").exists()


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        ("", None),
        ("--hparams.ucb1.exploration 0.5", [{"exploration": 0.5}]),
        ("--env.alpha 1 2", [{"env.alpha": 1.0}, {"env.alpha": 2.0}]),
        (
            "--env.beta 3 --hparams.ucb1.exploration 1 2",
            [{"exploration": 1.0, "env.beta": 3.0}, {"exploration": 2.0, "env.beta": 3.0}],
        ),
    ],
)
def test_values_of_options_make_a_sweep(args: str, settings: list[dict[str, float]] | None):
    options, env, (policy,) = parse_bandit_options(["--policies", "ucb1", *args.split()])
    sweep = _sweep(policy, env, options)
    assert (None if sweep is None else sweep.settings) == settings


@pytest.mark.parametrize(
    ("args", "env"),
    [
        ("", BernoulliBandit()),
        ("--env bandit/bernoulli --arms 4", BernoulliBandit(num_arms=4)),
        ("--env=bernoulli --arms=4", BernoulliBandit(num_arms=4)),
        ("--means 0.1 0.2 --runs 3", BernoulliBandit(means=(0.1, 0.2))),
        ("--static num_arms=7", BernoulliBandit(num_arms=7)),
    ],
)
def test_the_bandit_is_named_by_its_options(args: str, env: BernoulliBandit):
    assert parse_bandit_options(args.split())[1] == env


def test_the_help_lists_every_option(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["bandit", "--help", "--policies", "ucb1,exp3"])
    reported = capsys.readouterr().out
    for option in (
        "--env",
        "--arms",
        "--means",
        "--policies",
        "--steps",
        "--runs",
        "--points",
        "--out",
        "--force",
        "--resume",
    ):
        assert f"{option} " in reported
    for option in ("--hparams.ucb1.exploration", "--hparams.exp3.", "--env.alpha"):
        assert option in reported
    assert "sqrt(c ln t / pulls)" in reported and "max-steps" not in reported


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("--policies ucb2", "no bandit policy 'ucb2'; did you mean 'ucb1'"),
        ("--policies ,", "--policies takes names with commas between them"),
        ("--policies ucb1,ucb1", "--policies names ucb1 twice"),
        ("--policies", "--policies takes names with commas"),
        ("--env bernouli", "no environment 'bandit/bernouli'; did you mean 'bandit/bernoulli'"),
        ("--env cartpole", "--env takes a bandit, but cartpole is not a bandit; choose from bernoulli"),
        ("--arms 1", "num_arms must be a whole number of at least 2, got 1"),
        ("--arms many", "--arms takes a whole number, but got 'many'"),
        ("--means 0.5", "num_arms must be a whole number of at least 2, got 1"),
        ("--means 0.5 high", "--means takes numbers, but got 'high'"),
        ("--means 0.5 1.5", "means must lie in [0, 1]"),
        ("--means 0.5 0.6 --arms 3", "--arms is 3, but --means has 2; leave out --arms"),
        ("--steps 0", "steps must be a whole number of at least 1, got 0"),
        ("--steps some", "'some' is not a whole number"),
        ("--runs 0", "runs must be a whole number of at least 1, got 0"),
        ("--points 0", "points must be a whole number of at least 1, got 0"),
        ("--stps 3", "unrecognized options: --stps, 3; did you mean --steps"),
        ("--policies ucb1 --hparams.exp3.rate 3", "unrecognized options: --hparams.exp3.rate"),
        ("--hparams.ucb1.exploration much", "--hparams.ucb1.exploration takes numbers, but got 'much'"),
        ("--hparams.ucb1.exploration 1 1", "'exploration' has the value 1.0 twice"),
        ("--env.alpha -1", "alpha must lie in (0.0, inf), got -1.0"),
        ("--runs 1 1", "runs must be a number or different whole numbers in [0, 2**32), got (1, 1)"),
        ("--env restless --policies whittle,ucb1", "its actions are Tuple of 10 numbers"),
        ("--env sequence --policies exp3 --static table=((0,2),(1,0))", "exp3 takes rewards in [0, 1], those of"),
        ("--policies lin-ucb", "lin-ucb needs features of every arm"),
        ("--out=", "--out takes a directory of its own"),
        ("--block 0", "block must be a whole number of at least 1, got 0"),
        ("--precision low", "precision must be one of default"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(
    args: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    out = tmp_path / "b"
    assert sentence in failed(capsys, args if "--out" in args else f"--out {out} {args}")
    assert not out.exists()
