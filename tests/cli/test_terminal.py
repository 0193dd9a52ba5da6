"""Text on a terminal: control characters, encodings without a dash, and streams that are closed."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.errors import ExistsError, MissingPackageError, UserTypeError, UserValueError
from envs.terminal import printable
from jaxrl.cli import main as cli
from jaxrl.cli.chosen_policy import named_run
from jaxrl.cli.exit_status import exit_status
from jaxrl.results.tables import Table

EVIL = "\x1b]0;PWNED\x07\x9b2J\u202e\u2028"
SHOWN = r"\x1b]0;PWNED\x07\x9b2J\u202e\u2028"
TABLE = Table(EVIL, (f"lr{EVIL}", "iqm", "low", "high"), ((f"a{EVIL}", 1.5, float("nan"), float("nan")),), 1)


def test_control_characters_are_printed_as_escapes() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("a\nb\tc") == r"a\nb\tc" and printable("a\nb", lines=True) == "a\nb"
    plain = "Zoë's Läufe: 0.99 \N{EN DASH} \N{MULTIPLICATION SIGN} 日本語 \N{NO-BREAK SPACE}50 %"
    assert printable(plain) == plain
    assert printable(os.fsdecode(b"l\xe4ufe")) == r"l\udce4ufe"


@pytest.mark.parametrize("kind", [ExistsError, MissingPackageError, UserTypeError, UserValueError])
def test_no_error_of_ours_controls_a_terminal(kind: type[Exception]) -> None:
    assert str(kind(f"pass --allow {EVIL}\nor not")) == f"pass --allow {SHOWN}\nor not"


def test_tables_and_names_of_runs_control_no_terminal() -> None:
    lines = str(TABLE).splitlines()
    assert len(lines) == 4 and lines[0] == SHOWN and f"lr{SHOWN}" in lines[2] and f"a{SHOWN}" in lines[3]
    policy: Any = SimpleNamespace(setting={f"lr{EVIL}": EVIL}, seed=3)
    assert named_run(policy) == f"lr{SHOWN} {SHOWN}, seed 3"


def test_a_title_is_no_markup() -> None:
    assert "<script>" not in Table("<script>", ("iqm", "low", "high"), ((1.0, 0.0, 2.0),), 0)._repr_html_()


@pytest.mark.parametrize("error", [ValueError(EVIL), UserValueError(EVIL)])
def test_errors_of_others_and_warnings_control_no_terminal(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    import warnings

    def command() -> int:
        warnings.simplefilter("always")
        warnings.warn(EVIL, RuntimeWarning, stacklevel=1)
        raise error

    assert exit_status(command, "jaxrl") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all(SHOWN[:12] in line and "\x1b" not in line for line in lines)


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", r"- L\xe4ufe"), ("latin-1", "- Läufe"), ("utf-8", "\N{EN DASH} Läufe")]
)
def test_a_terminal_of_any_encoding_gets_the_table(encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    assert exit_status(lambda: print("\N{EN DASH} Läufe") or 0, "jaxrl") == 0
    assert out.buffer.getvalue().decode(encoding).strip() == shown  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_streams_may_be_closed(closed: str, tmp_path: Path) -> None:
    code = (
        "import sys; from jaxrl.cli.exit_status import exit_status\n"
        "def command():\n"
        "    print('out'); print('err', file=sys.stderr)\n"
        "    with open(sys.argv[1], 'w') as file:\n"
        "        assert file.fileno() > 2\n"
        "        return 7\n"
        "sys.exit(exit_status(command, 'jaxrl'))"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    shell = f"exec {sys.executable} -S {script} {tmp_path / 'file'} {closed}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        ["sh", "-c", shell], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == ("" if ">&-" in closed.split() else "out\n")
    assert done.stderr == ("" if "2>&-" in closed else "err\n")


def test_a_sentence_on_an_unknown_algorithm_controls_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxrl.algorithms.allowed_modules import check_allowed

    spec = {"algorithm": f"evil{EVIL}:ppo", "environment": {"name": "cartpole", "static": {}}, "config": None}
    monkeypatch.setitem(cli._COMMANDS, "version", lambda args: check_allowed(spec, {"ppo"}))
    assert cli.main(["version"]) == 2
    sentence = capsys.readouterr().err
    assert sentence[:-1].isprintable() and f"(--allow evil{SHOWN})" in sentence


def test_a_full_standard_output_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    class Full(io.RawIOBase):
        full = True

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return len(data)

    stream = io.TextIOWrapper(io.BufferedWriter(Full()), "utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    assert exit_status(lambda: print("out") or 0, "jaxrl") == 2
    sentence = "The standard output cannot be written: no space is left on its device."
    assert capsys.readouterr().err == f"jaxrl: {sentence}\n"
    Full.full = False  # for the rest, which closing writes
    stream.close()
