"""Where the command `jaxrl` begins and ends: an interrupt before its work, or after it, prints no traceback either."""

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
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to do but to end
