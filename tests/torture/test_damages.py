"""Hundreds of damages to directories: each load gives its previous result or an error of one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from previous_format import write_json
from torturing import EVALS, LEARNERS, OPTIONS, SEEDS, assert_one_sentence, content, drawn, learner, quiet, run, share

import jaxrl
from envs.errors import UserError
from jaxrl.report.search import read_search
from jaxrl.results.checksums import CHECKSUM
from jaxrl.runtime.checkpoints.identity_file import IDENTITY

DAMAGES = {"result": 120, "checkpoint": 60, "export": 120, "search": 60, "storage": 40}  # of all learners
EDITS = {"result": 60, "checkpoint": 60, "export": 30, "search": 40}
WRONG = (None, True, -1, 0, 1.5, 10**30, "x", "", [], {}, [[]], [1, "x"], {"x": []}, "nan", "inf", ...)


POLICIES = ("policy.onnx", "policy.stablehlo", "policy.safetensors")
ALONE = (".onnx", ".safetensors")  # a file of another call is also valid here


class Subject(NamedTuple):
    """Kinds of damaged directories.

    Attributes:
      learner: Name of the learner.
      directory: Directory as it was written.
      other: Directory of the same kind from another call, whose files replace these.
      load: Function that returns everything that is read from such a directory.
      files: Patterns of the files that are read, which are damaged.
    """

    learner: str
    directory: Path
    other: Path
    load: Callable[[Path], Any]
    files: tuple[str, ...]


def loaded(directory: Path) -> Any:
    result = jaxrl.load_result(directory)
    return content(result), result.settings, result.seeds, str(result.hparams)


def resumed(directory: Path) -> Any:
    return content(jaxrl.resume(directory, progress=False))


def exported(directory: Path) -> Any:
    """The answers of each policy to one draw of observations."""
    answers = {}
    for name in POLICIES:
        policy, generator = jaxrl.load_exported(directory / name), np.random.default_rng(0)
        shapes = [[size if isinstance(size, int) else 3 for size in port["shape"]] for port in policy.spec["inputs"]]
        arrays: list[Any] = [generator.normal(size=shape) for shape in shapes]
        obs, *others = arrays
        memory = {port["name"]: array for port, array in zip(policy.spec["inputs"][1:], others, strict=True)}
        responses = policy.respond(obs, memory=memory or None)
        answers[name] = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(responses)]
    return answers


def searched(name: str, out: Path, **changes: Any) -> Any:
    algo = learner(name)
    options = {
        "trials": 4,
        "env_steps": 4 * algo.env_steps_per_iteration,
        "search": "random",
        "seeds": 2,
        "test_seeds": 2,
    }
    return jaxrl.search(algo, out=out, eval_episodes=2, population=2, **options | OPTIONS | changes)


def of_search(directory: Path) -> Any:
    search = read_search(directory)
    return (
        repr((search.summary, search.best, search.ended)),
        content(search.trials),
        [content(r) for r in search.tests.values()],
    )


@pytest.fixture(scope="module", params=list(LEARNERS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    """Directories of each kind, two calls of each."""
    name, at = request.param, tmp_path_factory.mktemp("made")
    evals = []

    def half(env_step: int, metrics: Any) -> None:
        evals.append(env_step)
        if len(evals) % (EVALS // 2) == 0:
            raise KeyboardInterrupt

    with quiet():
        for call, seeds in (("one", SEEDS), ("other", [7, 8])):
            result = run(name, "control", out=at / call / "result", seeds=seeds, checkpoint_minutes=None)
            (at / call / "result" / IDENTITY).unlink()  # which is tortured with the checkpoints
            with pytest.raises(KeyboardInterrupt):
                run(
                    name,
                    "control",
                    out=at / call / "checkpoint",
                    seeds=seeds,
                    on_chunk=half,
                    checkpoint_minutes=1e-9,
                )
            (at / call / "export").mkdir()
            for file in POLICIES:
                jaxrl.export_policy(result.policy(seed=result.seeds[0]), at / call / "export" / file)
            searched(name, at / call / "search", seed=len(call))

    def again(directory: Path) -> Any:
        result = searched(name, directory, seed=3)
        return [sorted(map(repr, result.trials)), content(result.test), content(result.default)]

    kinds: dict[str, tuple[Any, ...]] = {
        "result": (loaded, ("*.json", "*.nc", "*.npz")),
        "checkpoint": (resumed, ("run.json", "checkpoints/**/*")),
        "export": (exported, ("*",)),
        "search": (of_search, ("search.json", "*/config.json", "*/metrics.nc")),
    }
    subjects = {kind: Subject(name, at / "one" / kind, at / "other" / kind, *how) for kind, how in kinds.items()}
    return subjects | {"storage": Subject(name, at / "one" / "search", at / "one" / "search", again, ("study.db",))}


def files_of(directory: Path, subject: Subject) -> list[Path]:
    return sorted({file for pattern in subject.files for file in directory.glob(pattern) if file.is_file()})


def damage(generator: np.random.Generator, directory: Path, subject: Subject) -> str:
    """Damage one file at random; return a description of the damage, for the message of a failure."""
    files = files_of(directory, subject)
    file = files[generator.integers(len(files))]
    before, name = file.read_bytes(), file.relative_to(directory)
    at = int(generator.integers(len(before) or 1))
    kind = str(
        generator.choice(["bit", "byte", "cut", "empty", "delete", "zeros", "longer", "swap", "doubled", "moved"])
    )
    after = before
    if kind == "bit" and before:
        after = before[:at] + bytes([before[at] ^ 1 << int(generator.integers(8))]) + before[at + 1 :]
    elif kind == "byte":
        after = before[:at] + generator.bytes(1) + before[at + 1 :]
    elif kind == "cut":
        after = before[:at]
    elif kind == "empty":
        after = b""
    elif kind == "zeros":
        after = before[:at] + bytes(min(512, len(before) - at)) + before[at + 512 :]
    elif kind == "longer":
        after = before + generator.bytes(int(generator.integers(1, 64)))
    elif kind == "doubled":
        after = before[:at] + before
    elif kind == "moved":
        after = before[at:] + before[:at]
    elif kind == "swap" and file.suffix not in ALONE and (subject.other / name).is_file():
        after = (subject.other / name).read_bytes()
    if kind == "delete":
        file.unlink()
    else:
        file.write_bytes(after)
    return f"{kind} {name} at {at}"


def edit(generator: np.random.Generator, directory: Path, subject: Subject) -> tuple[str, bool]:
    """Change a field of a file of JSON, whose checksum stays or is taken out.

    Returns:
      Description of the change, and whether the checksum must reveal it.
    """
    files = [file for file in files_of(directory, subject) if file.suffix == ".json" or "done" in file.parts]
    file = files[generator.integers(len(files))]
    values = json.loads(file.read_text())
    inner, path = values, []
    while isinstance(inner, dict) and inner and (not path or generator.random() < 0.6):
        at, name = inner, sorted(inner)[generator.integers(len(inner))]
        path, inner = [*path, name], inner[name]
    wrong = WRONG[generator.integers(len(WRONG))]
    kept = path == [CHECKSUM] or json.dumps(inner) == json.dumps(None if wrong is ... else wrong)
    if wrong is ...:
        del at[name]
    else:
        at[name] = wrong
    unsealed = bool(generator.random() < 0.7)
    if unsealed:
        write_json(file, values)
    else:
        file.write_text(json.dumps(values, indent=2))
    what = (
        f"{file.relative_to(directory)} {'.'.join(path)} = {wrong!r}, {'without' if unsealed else 'with'} its checksum"
    )
    return what, not (unsealed or kept)


def outcome(load: Callable[[Path], Any], directory: Path, what: str) -> Any:
    """The result of a load, or None after a user error of one sentence; any other error is a failure."""
    try:
        with quiet():
            return load(directory)
    except UserError as error:
        assert_one_sentence(str(error))
        return None
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_or_changes_nothing(
    kind: str, made: dict[str, Subject], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    subject = made[kind]
    generator, at = drawn("damages", subject.learner, kind), tmp_path / "x"
    shutil.copytree(subject.directory, at)
    with quiet():
        sound = subject.load(at)
    for _ in range(share(DAMAGES[kind])):
        shutil.rmtree(at)
        shutil.copytree(subject.directory, at)
        what = damage(generator, at, subject)
        capfd.readouterr()
        after = outcome(subject.load, at, what)
        assert after is None or after == sound, what
        assert "Traceback" not in capfd.readouterr().err, what
    for file in files_of(at, subject):
        file.write_bytes(b"x" * 1024)
    assert outcome(subject.load, at, "all files") is None


@pytest.mark.parametrize("kind", EDITS)
def test_an_edited_field_gets_one_sentence_or_is_taken(kind: str, made: dict[str, Subject], tmp_path: Path) -> None:
    """Without its checksum, a file counts as one of an older version, and valid values are accepted."""
    subject = made[kind]
    generator, at = drawn("edits", subject.learner, kind), tmp_path / "x"
    for _ in range(share(EDITS[kind])):
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(subject.directory, at)
        what, is_found = edit(generator, at, subject)
        after = outcome(subject.load, at, what)
        assert after is None or not is_found, what
