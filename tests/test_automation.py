"""The workflows of .github run what .ci/run runs, on every Python version, and their linters notice mistakes."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, flags=re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z]+) \?=", MAKEFILE, flags=re.MULTILINE))


def steps() -> list[tuple[str, dict[str, Any]]]:
    """Each step of a workflow, with the name of its job."""
    return [
        (f"{name}/{job}", step)
        for name, workflow in WORKFLOWS.items()
        for job, body in workflow["jobs"].items()
        for step in body["steps"]
    ]


def events(workflow: dict[Any, Any]) -> dict[str, Any]:
    """What starts a workflow; YAML 1.1 reads the key `on` as True."""
    return workflow[True]


def runs(text: str) -> set[str]:
    """The targets of make in a script."""
    return set(re.findall(r"\bmake (?:--silent )?([a-z][a-z-]*)", text))


def python_versions(job: dict[str, Any]) -> list[str]:
    """The versions of Python on which a job runs."""
    (version,) = (step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {}))
    return job["strategy"]["matrix"]["python"] if "matrix.python" in version else [version]


def test_each_step_runs_one_target_of_the_makefile() -> None:
    commands = [step["run"] for _, step in steps() if "run" in step]
    assert len(commands) >= 8
    for command in commands:
        matched = re.fullmatch(r"make ([a-z-]+)((?: [A-Z]+=\S+)*)", command)
        assert matched, command
        assert matched[1] in TARGETS
        assert {word.partition("=")[0] for word in matched[2].split()} <= VARIABLES


def test_they_run_all_that_a_change_must_pass() -> None:
    stages = re.sub(r"^#.*$", "", (ROOT / ".ci/run").read_text(), flags=re.MULTILINE)
    needed = runs(stages) - {"part"}
    assert needed == {"test", "lint", "notebook", "docs", "test-all"}
    assert needed <= runs("\n".join(step.get("run", "") for _, step in steps()))
    before_a_merge = {name for name, workflow in WORKFLOWS.items() if "pull_request" in events(workflow)}
    assert before_a_merge == {"checks", "docs"}


def test_the_fast_tests_run_on_every_python_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classifiers = " ".join(project["classifiers"])
    versions = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert python_versions(WORKFLOWS["checks"]["jobs"]["test"]) == versions
    assert python_versions(WORKFLOWS["newest"]["jobs"]["test"]) == versions
    assert python_versions(WORKFLOWS["checks"]["jobs"]["lowest"]) == versions[:1]
    assert project["requires-python"].startswith(f">={versions[0]},")


def test_newest_versions_run_weekly_and_all_slow_tests_nightly() -> None:
    (weekly,), (nightly,) = (events(WORKFLOWS[name])["schedule"] for name in ("newest", "nightly"))
    assert re.fullmatch(r"\d+ \d+ \* \* \d", weekly["cron"]) and re.fullmatch(r"\d+ \d+ \* \* \*", nightly["cron"])
    slow = WORKFLOWS["nightly"]["jobs"]["slow"]
    parts = re.search(r"number % (\d+)", MAKEFILE)
    assert parts and slow["strategy"]["matrix"]["part"] == list(range(1, int(parts[1]) + 1))
    assert slow["env"]["PART"].endswith(f"/{parts[1]}")
    assert f"PART=3/{parts[1]}" in (ROOT / "tests/README.md").read_text()


def test_actions_are_named_by_commits_and_a_version() -> None:
    texts = [path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")]
    uses = [line for text in texts for line in text.splitlines() if re.match(r"\s*-? *uses:", line)]
    assert len(uses) >= 16
    for line in uses:
        assert re.search(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def linters(root: Path) -> list[str]:
    """The commands of `make lint-workflows` in a directory, with the programs beside this interpreter."""
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "lint-workflows", f"BIN={Path(sys.executable).parent}"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in printed.stdout.splitlines() if re.search(r"/(?:check-jsonschema|zizmor) ", line)]


def lint(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    """A linter in a directory."""
    return subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True, check=False)


def test_linters_pass() -> None:
    commands = linters(ROOT)
    assert len(commands) == 6
    for command in commands:
        done = lint(ROOT, command)
        assert done.returncode == 0, done.stdout + done.stderr


MISTAKES = {
    "a key that jobs do not have": (0, "workflows/checks.yml", "timeout-minutes: 30", "timeout: 30"),
    "a field that forms do not have": (1, "ISSUE_TEMPLATE/bug.yml", "type: textarea", "type: area"),
    "a title in a script": (5, "workflows/checks.yml", "make lint", "make ${{ github.event.issue.title }}"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_linters_notice(tmp_path: Path, mistake: str) -> None:
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/locked.txt").touch()
    number, file, old, new = MISTAKES[mistake]
    path = tmp_path / ".github" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert lint(tmp_path, linters(tmp_path)[number]).returncode
