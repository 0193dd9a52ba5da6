"""Experiments: what is finished is kept and skipped, what does not fit is refused, and each runs at a small size."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray

import envs
import jaxrl
from jaxrl import cli, command_experiment
from jaxrl.experiments import EXPERIMENTS, Experiment, Study, StudyError, frames, run_experiment

ALGO = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=4, num_steps=16, hidden=(8,)))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of the toy."""

    seeds: int = 2
    """How many seeds."""
    lam: tuple[float, ...] = (0.9, 1.0)
    """Which lambdas."""

    def __post_init__(self):
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")


@pytest.fixture
def worked() -> list[str]:
    """The parts that the toy worked on, in order."""
    return []


@pytest.fixture
def toy(worked: list[str], monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment of one trained and one computed part, known to the command line as `toy`."""
    train = jaxrl.train

    def counted(*args: Any, **kwargs: Any) -> jaxrl.Result:
        worked.append("trained")
        return train(*args, **kwargs)

    monkeypatch.setattr(jaxrl, "train", counted)

    def run(settings: Settings, study: Study) -> None:
        sweep = jaxrl.grid(ALGO.hparams, {"lam": settings.lam})
        result = study.train("trained", ALGO, sweep, seeds=settings.seeds, env_steps=128, evals=2, eval_episodes=2)

        def compute() -> xarray.Dataset:
            worked.append("computed")
            return xarray.Dataset({"square": ("x", np.arange(3.0) ** 2)}, attrs={"flag": True})

        squares = study.compute("computed", compute)
        frame = pandas.DataFrame({"lam": list(settings.lam), "steps": [128] * len(settings.lam)})
        frame["mean"] = result.values("return")[:, :, -1].mean(axis=1)
        study.table("means", frame, f"Means over {settings.seeds} seeds, beside {squares['square'].values.sum():g}.")

    experiment = Experiment("toy", "A toy.", Settings, run)
    monkeypatch.setitem(EXPERIMENTS, "toy", experiment)
    return experiment


def test_what_is_finished_is_loaded_with_equal_numbers(
    toy: Experiment, worked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    study = run_experiment(toy, out=tmp_path / "toy")
    assert study.directory == tmp_path / "toy"
    assert worked == ["trained", "computed"]
    first = capsys.readouterr().out
    files = {name: (tmp_path / "toy" / name).read_text() for name in ("means.md", "means.csv")}
    run_experiment(toy, out=tmp_path / "toy")
    assert worked == ["trained", "computed"]
    second = capsys.readouterr().out
    assert "Skipped trained: finished before, in " in second
    assert "Skipped computed: " in second
    assert first[first.index("\nMeans over 2 seeds, beside 5.") :] == second[second.index("\nMeans over") :]
    assert files == {name: (tmp_path / "toy" / name).read_text() for name in files}


def test_a_loaded_part_has_its_policies(toy: Experiment, tmp_path: Path):
    run_experiment(toy, out=tmp_path, progress=False)
    study = Study(tmp_path, "toy", Settings(), progress=False)
    loaded = study.train("trained", ALGO, env_steps=128)  # not trained: it has two settings and two seeds
    assert loaded.policy(lam=1.0, seed=1).setting == {"lam": 1.0}


def test_only_the_part_that_is_missing_is_done(toy: Experiment, worked: list[str], tmp_path: Path):
    run_experiment(toy, out=tmp_path, progress=False)
    (tmp_path / "computed.nc").unlink()
    run_experiment(toy, out=tmp_path, progress=False)
    assert worked == ["trained", "computed", "computed"]


def test_force_does_all_again_with_other_settings(toy: Experiment, worked: list[str], tmp_path: Path):
    run_experiment(toy, out=tmp_path, progress=False)
    run_experiment(toy, Settings(seeds=3), tmp_path, force=True, progress=False)
    assert worked == ["trained", "computed"] * 2
    run_experiment(toy, Settings(seeds=3), tmp_path, progress=False)
    assert len(worked) == 4
    assert json.loads((tmp_path / "experiment.json").read_text())["settings"] == {"seeds": 3, "lam": [0.9, 1.0]}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (Settings(seeds=3), "was made with seeds 2, not 3: choose another directory, or start over with --force"),
        (Settings(3, (0.9,)), "was made with seeds 2, not 3 and lam 0.9 1.0, not 0.9: "),
    ],
)
def test_other_settings_are_named(toy: Experiment, settings: Settings, sentence: str, tmp_path: Path):
    run_experiment(toy, out=tmp_path, progress=False)
    with pytest.raises(StudyError) as refused:
        run_experiment(toy, settings, tmp_path)
    assert sentence in str(refused.value)


def test_a_setting_that_came_later_is_named(toy: Experiment, tmp_path: Path):
    run_experiment(toy, out=tmp_path, progress=False)

    @dataclasses.dataclass(frozen=True)
    class Later(Settings):
        extra: int = 1

    with pytest.raises(StudyError, match="was made with no setting extra, not 1:"):
        run_experiment(dataclasses.replace(toy, settings=Later), out=tmp_path)


def test_another_experiment_is_named(toy: Experiment, tmp_path: Path):
    run_experiment(toy, out=tmp_path, progress=False)
    with pytest.raises(StudyError, match="holds the experiment toy, not other:"):
        run_experiment(dataclasses.replace(toy, name="other"), out=tmp_path)


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_of_other_files_is_left_alone(toy: Experiment, force: bool, tmp_path: Path):
    (tmp_path / "trained").mkdir()
    with pytest.raises(StudyError, match="holds other files and no experiment"):
        run_experiment(toy, out=tmp_path, force=force)
    assert not any((tmp_path / "trained").iterdir())


def test_a_damaged_directory_is_told(toy: Experiment, worked: list[str], tmp_path: Path):
    (tmp_path / "experiment.json").write_text('{"experiment": "toy"}')
    with pytest.raises(StudyError, match="is damaged: choose another directory"):
        run_experiment(toy, out=tmp_path)
    run_experiment(toy, out=tmp_path, force=True, progress=False)
    assert worked == ["trained", "computed"]


def test_a_directory_that_cannot_be_made_is_told(toy: Experiment, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(jaxrl.results.ResultError, match="cannot be written"):
        run_experiment(toy, out=tmp_path / "file" / "run")


def test_an_interrupted_part_is_done_again_and_the_others_stay(
    toy: Experiment,
    worked: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    """A signal after the first of two evaluations of a second trained part, which is saved but not counted."""

    def run(settings: Settings, study: Study) -> None:
        toy.run(settings, study)
        study.train("second", ALGO, env_steps=128, evals=2, eval_episodes=2, on_chunk=stop)

    def stop(*_: Any) -> None:
        import signal

        signal.raise_signal(signal.SIGINT)

    twice = dataclasses.replace(toy, run=run)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_experiment(twice, out=tmp_path)
    assert stopped.value.args == (2,)
    assert "Stopped with trained, computed finished in " in capsys.readouterr().out
    assert (tmp_path / "second" / "config.json").is_file()
    with pytest.raises(KeyboardInterrupt):  # again
        run_experiment(twice, out=tmp_path)
    assert worked == ["trained", "computed", "trained", "trained"]
    # Nothing but an interrupted part: any settings may go on there.
    only = dataclasses.replace(toy, run=lambda settings, study: study.train("one", ALGO, env_steps=128, on_chunk=stop))
    with pytest.raises(KeyboardInterrupt):
        run_experiment(only, out=tmp_path / "only", progress=False)
    run_experiment(toy, Settings(seeds=1), tmp_path / "only", progress=False)


@pytest.mark.parametrize("part", ["", "a/b", "..", ".hidden"])
def test_a_part_is_a_files_name(part: str, tmp_path: Path):
    with pytest.raises(ValueError, match="part must be a file's name"):
        Study(tmp_path, "toy", Settings()).compute(part, xarray.Dataset)


def test_two_parts_have_two_names(tmp_path: Path):
    study = Study(tmp_path, "toy", Settings(), progress=False)
    study.compute("one", lambda: xarray.Dataset({"x": 1}))
    with pytest.raises(ValueError, match="'one' is another part's already"):
        study.compute("one", lambda: xarray.Dataset({"x": 2}))


def test_a_frame_as_text():
    frame = pandas.DataFrame(
        {"task": ["a|b", "c"], "eta": [0.5, 1.0], "seeds": [64, 64], "iqm": [1234.5678, float("nan")]}
    )
    assert frames.plain(frame).splitlines() == [
        "task  eta  seeds     iqm",
        "a|b   0.5     64  1234.6",
        "c       1     64       \N{EN DASH}",
    ]
    assert frames.markdown(frame).splitlines() == [
        "| task | eta | seeds |    iqm |",
        "| ---- | --: | ----: | -----: |",
        "| a\\|b | 0.5 |    64 | 1234.6 |",
        "| c    |   1 |    64 |      \N{EN DASH} |",
    ]


def test_the_command_runs_an_experiment_with_flags_for_settings(
    toy: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = str(tmp_path / "toy")
    assert cli.main(["experiment", "toy", "--seeds", "1", "--lam", "0.8", "1", "--out", out, "--no-progress"]) == 0
    shown = capsys.readouterr().out
    assert "Means over 1 seeds" in shown
    assert shown.endswith(f"Wrote {out}.\n")
    assert "Finished" not in shown
    assert cli.main(["experiment", "toy", "--out", out]) == 2
    assert capsys.readouterr().err == (
        f"jaxrl: {out} was made with seeds 1, not 2 and lam 0.8 1.0, not 0.9 1.0: "
        "choose another directory, or start over with --force (force=True).\n"
    )


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("toi", "there is no experiment 'toi'; did you mean toy?"),
        ("--seeds 3", "experiment takes a name first"),
        ("toy --sede 3", "unrecognized options: --sede, 3"),
        ("toy --seeds 0", "seeds must be at least 1, got 0"),
        ("toy --seeds many", "--seeds"),
    ],
)
def test_bad_input_gets_one_sentence(toy: Experiment, args: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["experiment", *args.split()]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1


def test_experiments_are_listed(capsys: pytest.CaptureFixture[str]):
    for args in ([], ["--help"]):
        assert cli.main(["experiment", *args]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("usage: jaxrl experiment NAME")
        for name, experiment in EXPERIMENTS.items():
            assert name == experiment.name
            assert f"\n  {name} " in shown
            assert experiment.summary in shown


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_the_help_of_an_experiment_names_and_explains_every_setting(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        cli.main(["experiment", name, "--help"])
    assert not end.value.code
    shown = capsys.readouterr().out
    assert f"usage: jaxrl experiment {name}" in shown
    lines = shown.splitlines()
    for field in [*(field.name for field in dataclasses.fields(EXPERIMENTS[name].settings)), "out", "force"]:
        (at,) = (i for i, line in enumerate(lines) if f"--{field.replace('_', '-')} " in line)
        text = " ".join(lines[at : at + 2]).split(maxsplit=3)[-1]
        assert not text.strip("│ ").startswith("(default"), f"{field} has no text"


def test_an_experiments_default_directory_is_under_runs():
    options = command_experiment.parse_options(Experiment("toy", "A toy.", Settings, lambda *_: None), [])
    assert options.out == Path("runs/experiments/toy")
