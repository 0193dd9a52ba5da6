"""Which skips fail a run."""

from pathlib import Path

import pytest
from suite.skips import is_allowed

pytest_plugins = ["pytester"]

TEXTS = {
    "a test": "def test_it():\n    pytest.skip('tired')\n",
    "a mark": "@pytest.mark.skipif(True, reason='tired')\ndef test_it():\n    pass\n",
    "a fixture": "@pytest.fixture\ndef it():\n    pytest.skip('tired')\n\ndef test_it(it):\n    pass\n",
    "a module": "pytest.skip('tired', allow_module_level=True)\n",
}


def run(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makepyfile(test_file="import pytest\n\n" + text, test_other="def test_other():\n    pass\n")
    return pytester.runpytest_inprocess("-p", "suite.skips", "-W", "ignore")


@pytest.mark.parametrize("ci", ["", "true"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_any_other_skip_fails_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, text: str, ci: str
) -> None:
    monkeypatch.setenv("CI", ci)
    result = run(pytester, text)
    assert (result.ret == 0) == (not ci)
    result.stdout.fnmatch_lines(["SKIPPED test_file.py*: tired; tests/suite/skips.py does not allow it"])


def test_workers_of_a_run_report_their_skips(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to import
    pytester.makepyfile(**{f"test_{i}": "import pytest\n\n" + text for i, text in enumerate(TEXTS.values())})
    result = pytester.runpytest_subprocess("-p", "suite.skips", "-p", "xdist", "-n", "1")
    result.stdout.fnmatch_lines_random(
        [f"SKIPPED test_{i}.py*: tired; tests/suite/skips.py does not allow it" for i in range(len(TEXTS))]
    )


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.xfail\ndef test_it():\n    assert False\n",
        "@pytest.mark.skipif(False, reason='tired')\ndef test_it():\n    pass\n",
    ],
)
def test_expected_failures_are_no_skips(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester, text)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*does not allow it")


def test_only_the_message_of_the_list_is_allowed() -> None:
    assert is_allowed("tests/report/test_report.py::test_it", "no browser: CHROMIUM is not set")
    assert not is_allowed("tests/report/test_report.py::test_it", "no driver of the browser: CHROMEDRIVER is not set")
    assert is_allowed("tests/envs/test_stable_baselines.py::test_it", "takes Stable-Baselines3: make test-sb3")
    assert not is_allowed("tests/envs/test_host.py::test_it", "takes Stable-Baselines3: make test-sb3")
