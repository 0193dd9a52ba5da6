"""Exit status of a command line, which answers bad input by one sentence on standard error."""

import errno
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from jaxrl.cli.parsing import CommandError

# Errors that an argument may cause; the classes of `envs.errors` derive from them.
_CAUSED = (ValueError, TypeError, LookupError, OSError, ImportError)


def exit_status(command: Callable[[], int], prog: str) -> int:
    """Run a command line.

    Warnings and errors that an argument may cause are printed on standard error, each on one line that begins with the
    name of the program. With JAXRL_TRACEBACK=1 in the environment such an error has Python's traceback instead.

    Args:
      command: Function that does the work and returns an exit status.
      prog: Name of the program.

    Returns:
      Exit status: that of the command, 2 for bad input, 130 after Ctrl-C, 138 or 143 after SIGUSR1 or SIGTERM stopped
      training.
    """
    from jaxrl.runtime.drive.interrupts import hearing_interrupts

    def show_warning(message: Warning | str, *_: object) -> None:
        print(f"{prog}: warning: {_shown(str(message))}", file=sys.stderr)

    _prepare_streams()
    try:
        with hearing_interrupts(), warnings.catch_warnings():
            warnings.showwarning = show_warning
            status = command()
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + 13  # of SIGPIPE
    except KeyboardInterrupt as stop:  # with the number of the signal if training had nothing to save yet
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)
    except _CAUSED as error:
        if os.environ.get("JAXRL_TRACEBACK"):
            raise
        sentence = _sentence(error)
        if _is_of_output(error):
            sentence = "The standard output cannot be written: no space is left on its device."
        elif not _is_ours(error):
            sentence = f"{type(error).__name__}: {sentence.rstrip('.')} (JAXRL_TRACEBACK=1 shows where)"
        print(f"{prog}: {_shown(sentence)}", file=sys.stderr)
        return 2


def _is_ours(error: Exception) -> bool:
    """Whether the error is a refusal by jaxrl or envs, or of a path by the system, not one of other code or a bug."""
    if isinstance(error, CommandError):  # mainly if another package hides `envs`
        return True
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # of any look at a path
        return True
    from envs.errors import UserError

    return isinstance(error, UserError)


def _is_of_output(error: Exception) -> bool:
    """Whether nothing can be printed on the standard output: writers of files name theirs."""
    return isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _sentence(error: Exception) -> str:
    """Message of an exception on one line."""
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return message or type(error).__name__


def _shown(message: str) -> str:
    """A message on one line, without characters that control a terminal."""
    line = " ".join(message.split())
    try:
        from envs.terminal import printable
    except ImportError:  # another package hides `envs`
        return line
    return printable(line)


def _prepare_streams() -> None:
    """Open streams that the caller has closed, and make all of them write any text."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # or a file would get this number, and what libraries print
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 -- open until the end
    try:
        from envs.terminal import REPLACED
    except ImportError:
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=REPLACED)
