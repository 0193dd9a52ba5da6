"""Console entry point; hides tracebacks of interrupts during imports and exit."""

import signal


def main() -> int:
    """Run the command line.

    Returns:
      The exit status, as of `jaxrl.cli.main`.
    """
    try:
        from jaxrl.cli.main import main as command  # which takes a third of a second

        return command()
    except KeyboardInterrupt:  # `command` answers its own
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt during the exit prints no traceback
