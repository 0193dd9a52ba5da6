"""Flags of XLA, which a process reads once, when JAX's backend starts: nothing here may start it."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence

from envs.errors import UserValueError

VARIABLE, OPTION = "XLA_FLAGS", "--xla-flags"
DETERMINISTIC = "xla_gpu_deterministic_ops"
# Flags that do not affect results: the number of CPU devices, and dumps for debugging.
_HARMLESS = ("--xla_force_host_platform_device_count", "--xla_dump")

__all__ = ["DETERMINISTIC", "add_flags", "asked_for", "flags_in_force", "refuse_unknown_flags"]


def flags_in_force() -> list[str]:
    """Flags in the environment that may affect results, in order, such as `--xla_cpu_prefer_vector_width=256`."""
    return [word for word in os.environ.get(VARIABLE, "").split() if not word.startswith(_HARMLESS)]


def asked_for(args: Sequence[str]) -> list[str]:
    """Flags requested by --xla-flags and --deterministic among the arguments of a command.

    Args:
      args: Arguments before parsing, since parsing starts JAX's backend.

    Raises:
      ValueError: A word after --xla-flags is not a flag.
    """
    words: list[str] = []
    listed = False
    for arg in args:
        option, equals, value = arg.partition("=")
        if arg.startswith("-"):
            listed = option.replace("_", "-") == OPTION
            words += [value] if listed and equals else []
        elif listed:
            words.append(arg)
    for word in words:
        if not re.fullmatch(r"(--)?xla_\w+(=\S*)?", word):
            raise UserValueError(f"{OPTION} takes words such as xla_cpu_prefer_vector_width=256, got {word!r}")
    flags = [f"--{word.removeprefix('--')}" for word in words]
    return [f"--{DETERMINISTIC}=true", *flags] if "--deterministic" in args else flags


def add_flags(flags: Sequence[str]) -> None:
    """Append flags to those in the environment.

    Raises:
      ValueError: The environment variable holds the name of a file with flags.
    """
    present = os.environ.get(VARIABLE, "").strip()
    if flags and present and not present.startswith("-"):
        raise UserValueError(
            f"{VARIABLE} must hold flags where {OPTION} or --deterministic adds some, got a file, {present}"
        )
    if flags:
        os.environ[VARIABLE] = " ".join([present, *flags]).strip()


def refuse_unknown_flags() -> None:
    """Raise an error for flags that XLA does not know, which would end this process; another process tries them first.

    Raises:
      ValueError: XLA does not know a flag in the environment.
    """
    if not flags_in_force():
        return
    trial = [sys.executable, "-c", "from jaxlib import xla_client; xla_client.make_cpu_client()"]
    process = subprocess.run(trial, capture_output=True, text=True, errors="replace", check=False)
    unknown = re.search(rf"Unknown flags? in {VARIABLE}: (.*)", process.stderr)
    if process.returncode and unknown is not None:
        raise UserValueError(f"{OPTION} and {VARIABLE} take flags of XLA, got the unknown {unknown[1].strip()}")
