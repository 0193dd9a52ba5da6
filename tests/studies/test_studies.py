"""Studies: finished parts are kept and skipped, mismatches are rejected, and each runs at a small size."""

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
from bench.studies import STUDIES, Study, StudyError, StudyRun, frames, run_study, ugae_vs_monte_carlo
from bench.studies import __main__ as cli
from jaxrl.results.dataset import ResultError

ALGO = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=4, num_steps=16, hidden=(8,)))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the toy study."""

    seeds: int = 2
    """How many seeds."""
    lam: tuple[float, ...] = (0.9, 1.0)
    """Which lambdas."""

    def __post_init__(self):
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")


@pytest.fixture(scope="module")
def result() -> jaxrl.Result:
    """The result of one small training call."""
    sweep = jaxrl.grid(ALGO.hparams, {"lam": [0.9, 1.0]})
    return jaxrl.train(ALGO, sweep, seeds=2, env_steps=128, evals=2, eval_episodes=2, progress=False)


@dataclasses.dataclass
class Work:
    """Parts in the order of work, and the ends of training calls."""

    parts: list[str] = dataclasses.field(default_factory=list)
    attrs: dict[str, int] = dataclasses.field(default_factory=dict)


@pytest.fixture
def work(result: jaxrl.Result, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Replace `jaxrl.train` by a function that always saves and returns the same result."""
    work = Work()

    def train(algo: jaxrl.Algorithm, hparams: Any, *, out: Path, force: bool, **arguments: Any) -> jaxrl.Result:
        assert set(arguments) == {"progress", "seeds", "env_steps"}
        assert force
        work.parts.append("trained")
        ended = dataclasses.replace(result, metrics=result.metrics.assign_attrs(work.attrs))
        ended.save(out, force=True)
        return ended

    monkeypatch.setattr(jaxrl, "train", train)
    return work


@pytest.fixture
def toy(work: Work, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study of one computed and one trained part, known to the command line as `toy`."""

    def run(settings: Settings, study: StudyRun) -> None:
        def compute() -> xarray.Dataset:
            work.parts.append("computed")
            return xarray.Dataset({"square": ("x", np.arange(3.0) ** 2)}, attrs={"flag": True})

        squares = study.compute("computed", compute)
        result = study.train("trained", ALGO, seeds=settings.seeds, env_steps=128)
        frame = pandas.DataFrame({"lam": [0.9, 1.0], "mean": result.values("return")[:, :, -1].mean(axis=1)})
        study.table("means", frame, f"Means over {settings.seeds} seeds, beside {squares['square'].values.sum():g}.")

    study = Study("toy", "A toy.", Settings, run)
    monkeypatch.setitem(STUDIES, "toy", study)
    return study


@pytest.mark.slow
def test_finished_parts_are_loaded_with_equal_numbers(
    toy: Study, work: Work, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    study = run_study(toy, out=tmp_path / "toy")
    assert study.directory == tmp_path / "toy"
    assert work.parts == ["computed", "trained"]
    first = capsys.readouterr().out
    files = {name: (tmp_path / "toy" / name).read_text() for name in ("means.md", "means.csv")}
    run_study(toy, out=tmp_path / "toy")
    assert work.parts == ["computed", "trained"]
    second = capsys.readouterr().out
    assert "Skipped trained: finished before, in " in second
    assert "Skipped computed: " in second
    assert first[first.index("\nMeans over 2 seeds, beside 5.") :] == second[second.index("\nMeans over") :]
    assert files == {name: (tmp_path / "toy" / name).read_text() for name in files}


@pytest.mark.slow
def test_a_loaded_part_has_its_policies(toy: Study, tmp_path: Path):
    run_study(toy, out=tmp_path, progress=False)
    loaded = StudyRun(tmp_path, "toy", Settings(), progress=False).train("trained", ALGO)
    assert loaded.policy(lam=1.0, seed=1).setting == {"lam": 1.0}


@pytest.mark.slow
def test_only_the_part_that_is_missing_is_done(toy: Study, work: Work, tmp_path: Path):
    run_study(toy, out=tmp_path, progress=False)
    (tmp_path / "computed.nc").unlink()
    run_study(toy, out=tmp_path, progress=False)
    assert work.parts == ["computed", "trained", "computed"]


@pytest.mark.slow
def test_force_does_all_again_with_other_settings(toy: Study, work: Work, tmp_path: Path):
    run_study(toy, out=tmp_path, progress=False)
    run_study(toy, Settings(seeds=3), tmp_path, force=True, progress=False)
    assert work.parts == ["computed", "trained"] * 2
    run_study(toy, Settings(seeds=3), tmp_path, progress=False)
    assert len(work.parts) == 4
    assert json.loads((tmp_path / "study.json").read_text())["settings"] == {"seeds": 3, "lam": [0.9, 1.0]}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (Settings(seeds=3), "was made with seeds 2, not 3: choose another directory, or restart with --force"),
        (Settings(3, (0.9,)), "was made with seeds 2, not 3 and lam 0.9 1.0, not 0.9: "),
    ],
)
def test_other_settings_are_named(toy: Study, settings: Settings, sentence: str, tmp_path: Path):
    run_study(toy, out=tmp_path, progress=False)
    with pytest.raises(StudyError) as refused:
        run_study(toy, settings, tmp_path)
    assert sentence in str(refused.value)


def test_a_setting_that_came_later_is_named(toy: Study, tmp_path: Path):
    run_study(toy, out=tmp_path, progress=False)

    @dataclasses.dataclass(frozen=True)
    class Later(Settings):
        extra: int = 1

    with pytest.raises(StudyError, match="was made with no setting extra, not 1:"):
        run_study(dataclasses.replace(toy, settings=Later), out=tmp_path)


def test_another_study_is_named(toy: Study, tmp_path: Path):
    run_study(toy, out=tmp_path, progress=False)
    with pytest.raises(StudyError, match="holds the study toy, not other:"):
        run_study(dataclasses.replace(toy, name="other"), out=tmp_path)


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_of_other_files_is_left_alone(toy: Study, force: bool, tmp_path: Path):
    (tmp_path / "trained").mkdir()
    with pytest.raises(StudyError, match="holds files other than a study"):
        run_study(toy, out=tmp_path, force=force)
    assert not any((tmp_path / "trained").iterdir())


def test_a_damaged_directory_is_reported(toy: Study, work: Work, tmp_path: Path):
    (tmp_path / "study.json").write_text('{"study": "toy"}')
    with pytest.raises(StudyError, match="is damaged: choose another directory"):
        run_study(toy, out=tmp_path)
    run_study(toy, out=tmp_path, force=True, progress=False)
    assert work.parts == ["computed", "trained"]


def test_a_directory_that_cannot_be_made_is_reported(toy: Study, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        run_study(toy, out=tmp_path / "file" / "run")


@pytest.mark.parametrize(("signal", "status"), [(2, 130), (15, 143)])
def test_an_interrupted_part_is_done_again_and_the_others_stay(
    signal: int, status: int, toy: Study, work: Work, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    work.attrs |= {"interrupted": 1, "stopped_by_signal": signal}
    args = ["toy", "--out", str(tmp_path / "toy")]
    assert cli.main(args) == status
    assert f"Stopped with computed finished in {tmp_path / 'toy'}; the same command resumes" in capsys.readouterr().out
    assert (tmp_path / "toy" / "trained" / "config.json").is_file()
    work.attrs.clear()
    assert cli.main(args) == 0
    assert work.parts == ["computed", "trained", "trained"]


def test_a_part_that_ended_with_the_signal_counts(toy: Study, work: Work, tmp_path: Path):
    """The signal arrived after the last chunk had begun: nothing is missing, but no further part begins."""
    work.attrs |= {"interrupted": 0, "stopped_by_signal": 2}
    with pytest.raises(KeyboardInterrupt):
        run_study(toy, out=tmp_path)
    assert not (tmp_path / "means.csv").exists()
    work.attrs.clear()
    run_study(toy, out=tmp_path)
    assert work.parts == ["computed", "trained"]


def test_a_directory_with_nothing_finished_takes_other_settings(toy: Study, work: Work, tmp_path: Path):
    def fails(settings: Settings, study: StudyRun) -> None:
        study.compute("computed", lambda: (_ for _ in ()).throw(ValueError("none")))  # pyright: ignore

    with pytest.raises(ValueError, match="none"):
        run_study(dataclasses.replace(toy, run=fails), out=tmp_path)
    assert (tmp_path / "study.json").is_file()
    run_study(toy, Settings(seeds=1), tmp_path)
    assert work.parts == ["computed", "trained"]


@pytest.mark.parametrize("part", ["", "a/b", "..", ".hidden"])
def test_a_part_is_a_files_name(part: str, tmp_path: Path):
    with pytest.raises(ValueError, match="part must be a file's name"):
        StudyRun(tmp_path, "toy", Settings()).compute(part, xarray.Dataset)


def test_the_seconds_of_a_part_exclude_those_of_its_own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 1.0, 4.0, 4.5, 6.5, 7.0])  # outer, inner, end of it, another, end of it, end of outer
    monkeypatch.setattr("bench.studies.study.time.perf_counter", lambda: next(clock))
    study = StudyRun(tmp_path, "toy", Settings(), progress=False)

    def outer() -> xarray.Dataset:
        study.compute("inner", lambda: xarray.Dataset({"x": 1}))
        return study.compute("another", lambda: xarray.Dataset({"x": 1}))

    study.compute("outer", outer)
    seconds = json.loads((tmp_path / "study.json").read_text())["seconds"]
    assert seconds == {"inner": 3.0, "another": 2.0, "outer": 2.0}


def test_two_parts_have_two_names(tmp_path: Path):
    study = StudyRun(tmp_path, "toy", Settings(), progress=False)
    study.compute("one", lambda: xarray.Dataset({"x": 1}))
    with pytest.raises(ValueError, match="'one' is the name of another part"):
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


def test_the_command_runs_a_study_with_flags_for_settings(
    toy: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = str(tmp_path / "toy")
    assert cli.main(["toy", "--seeds", "1", "--lam", "0.8", "1", "--out", out, "--no-progress"]) == 0
    shown = capsys.readouterr().out
    assert "Means over 1 seeds" in shown
    assert shown.endswith(f"Wrote {out}.\n")
    assert "Finished" not in shown
    assert cli.main(["toy", "--out", out]) == 2
    assert capsys.readouterr().err == (
        f"python -m bench.studies: {out} was made with seeds 1, not 2 and lam 0.8 1.0, not 0.9 1.0: "
        "choose another directory, or restart with --force (force=True), which computes all parts again.\n"
    )


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("toi", "there is no study 'toi'; did you mean 'toy'?"),
        ("--seeds 3", "the name of a study comes first"),
        ("toy --sede 3", "unrecognized options: --sede, 3"),
        ("toy --seeds 0", "seeds must be at least 1, got 0"),
        ("toy --seeds many", "--seeds"),
    ],
)
def test_bad_input_gets_one_sentence(toy: Study, args: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main([*args.split()]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]):
    for args in ([], ["--help"]):
        assert cli.main([*args]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("usage: python -m bench.studies NAME")
        for name, study in STUDIES.items():
            assert name == study.name
            assert f"\n  {name} " in shown
            assert study.summary in shown


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_the_help_of_a_study_names_and_explains_every_setting(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert not end.value.code
    shown = capsys.readouterr().out
    assert f"usage: python -m bench.studies {name}" in shown
    lines = shown.splitlines()
    for field in [*(field.name for field in dataclasses.fields(STUDIES[name].settings)), "out", "force"]:
        (at,) = (i for i, line in enumerate(lines) if f"--{field.replace('_', '-')} " in line)
        text = " ".join(lines[at : at + 2]).split(maxsplit=3)[-1]
        assert not text.strip("│ ").startswith("(default"), f"{field} has no text"


TASKS = ("cartpole", "pendulum")
ETA, LAM = (0.0, 1.0), (0.8, 1.0, 0.95)
COMPARED = ugae_vs_monte_carlo.Settings(tasks=TASKS, eta=ETA, lam=LAM, seeds=16)


def scores(key: int = 0) -> dict[str, np.ndarray]:
    """Scores that are all equal on CartPole; on Pendulum lambda .8 is below and .95 above Monte Carlo, seed by seed."""
    noise = np.random.default_rng(key).normal(size=(2, 1, 16))
    return {"cartpole": np.full((2, 3, 16), 500.0), "pendulum": 10 * noise + np.array([-1.0, 0.0, 1.0])[:, None]}


def test_comparisons_with_monte_carlo_have_verdicts():
    frame = ugae_vs_monte_carlo.comparison(scores(), COMPARED)
    assert len(frame) == 3 * 2 * 3
    verdicts = frame.set_index(["task", "eta", "lam"])["against Monte Carlo"].to_dict()
    for eta in ETA:
        assert [verdicts["cartpole", eta, lam] for lam in LAM] == ["equal", "is Monte Carlo", "equal"]
        assert [verdicts["pendulum", eta, lam] for lam in LAM] == ["worse", "is Monte Carlo", "better"]
        assert [verdicts["all", eta, lam] for lam in LAM] == ["worse", "is Monte Carlo", "better"]
    chances = frame.set_index(["task", "eta", "lam"])["P(improvement)"].to_dict()
    assert [chances[task, 1.0, 0.95] for task in (*TASKS, "all")] == ["0.50", "1.00", "0.75"]
    short = ugae_vs_monte_carlo.summary(frame)
    assert list(short.columns) == ["task", "eta", "lam 0.8", "lam 0.95"]
    assert short["lam 0.95"].tolist()[2] == "1.00 [0.79, 1.00] better"


def test_noise_beats_nothing():
    noise = {"pendulum": np.random.default_rng(1).normal(size=(2, 3, 16))}
    frame = ugae_vs_monte_carlo.comparison(noise, dataclasses.replace(COMPARED, tasks=("pendulum",)))
    assert set(frame["against Monte Carlo"]) == {"unclear", "is Monte Carlo"}
    assert "all" not in set(frame["task"])


def test_a_failed_run_is_left_out_of_the_mean_and_loses_the_comparison():
    values = scores()
    values["pendulum"][0, 2, :4] = np.nan
    frame = ugae_vs_monte_carlo.comparison(values, COMPARED)
    row = frame.set_index(["task", "eta", "lam"]).to_dict("index")["pendulum", 0.0, 0.95]
    assert row["failed"] == 4
    assert row["P(improvement)"] == "0.75"
    assert row["IQM"] == pytest.approx(float(jaxrl.statistics.iqm(values["pendulum"][0, 2, 4:])))
    assert "failed" not in ugae_vs_monte_carlo.comparison(scores(), COMPARED).columns


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("--tasks cartpol", "tasks has 'cartpol'; did you mean 'cartpole'"),
        ("--tasks", "tasks takes one or more different values, got none"),
        ("--eta 0 0", "eta takes one or more different values, got 0.0 0.0"),
        ("--eta -1", "eta must"),
        ("--mu 1.5", "mu must"),
        ("--lam 0.8 0.9", "lam takes 1 and others to compare with it, got 0.8 0.9"),
        ("--lam 1", "lam takes 1 and others to compare with it, got 1.0"),
        ("--lam 1 1.1", "lam takes numbers in [0, 1], got 1.0 1.1"),
        ("--seeds 1", "seeds must be a whole number of at least 2, got 1"),
        ("--evals 0", "evals must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments_of_the_comparison_get_one_sentence(
    args: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["ugae-vs-monte-carlo", "--out", str(tmp_path / "x"), *args.split()]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_ugae_vs_monte_carlo_at_small_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = "--seeds 2 --eta 0 1 --lam 0.9 1 --env-steps 256 --num-steps 16 --evals 2 --eval-episodes 2 --no-progress"
    args = ["ugae-vs-monte-carlo", "--out", str(tmp_path / "x"), *small.split()]
    assert cli.main([*args, "--tasks", "cartpole", "mountain-car-continuous"]) == 0
    shown = capsys.readouterr().out
    assert "Environment steps: cartpole 256, mountain-car-continuous 256." in shown
    for name in ("final", "mean", "final_summary", "mean_summary"):
        assert (tmp_path / "x" / f"{name}.md").read_text().strip() != ""
    final = pandas.read_csv(tmp_path / "x" / "final.csv")
    assert len(final) == 3 * 2 * 2
    result = jaxrl.load_result(tmp_path / "x" / "cartpole")
    assert result.metrics["return"].dims == ("discount.eta", "lam", "seed", "env_step")
    first = jaxrl.statistics.iqm(result.metrics["return"].isel({"discount.eta": 0, "lam": 0, "env_step": -1}).values)
    assert final["IQM"].tolist()[0] == pytest.approx(float(first))
    assert (tmp_path / "x" / "ugae_vs_monte_carlo.png").read_bytes().startswith(b"\x89PNG")


def test_a_studys_default_directory_is_under_runs():
    options = cli.parse_options(Study("toy", "A toy.", Settings, lambda *_: None), [])
    assert options.out == Path("runs/studies/toy")
