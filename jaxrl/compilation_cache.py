"""Compiled programs kept on disk for the next process, apart for every kind of processor."""

import hashlib
import platform
from pathlib import Path

__all__ = ["VARIABLE", "processor", "understands", "use_compilation_cache"]

# What the command line takes the directory from.
VARIABLE = "JAXRL_COMPILATION_CACHE"
_CPUINFO = Path("/proc/cpuinfo")
# The lines of it that say what a processor understands: of x86, and of Arm.
_TELLING = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU part", "Features")


def use_compilation_cache(directory: str | Path) -> Path:
    """Makes JAX keep the programs that it compiles from now on, and take those that it kept before.

    A program that is taken computes the same bit for bit as one compiled anew. Programs for a CPU
    hold its instructions, and end a process on a CPU that lacks some; JAX's own key does not
    know them all. So they are kept in a directory of their own for every kind of processor, and a
    home directory may be shared. Nothing is ever deleted: delete the directory to empty it.

    Args:
      directory: below which to keep them; made where it is missing.

    Returns:
      The directory of this machine's processor.

    Raises:
      ValueError: it cannot be written.
    """
    import jax

    mine = Path(directory).expanduser() / processor()
    try:
        mine.mkdir(parents=True, exist_ok=True)
        probe = mine / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"The compilation cache {mine} cannot be written: {error.strerror or error}.") from None
    jax.config.update("jax_compilation_cache_dir", str(mine))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)  # its default, 1, leaves some of ours out
    return mine


def processor() -> str:
    """The kind of processor and what it understands, in a name such as `x86_64-2f0c3a9d41be`."""
    text = "\n".join(line for line in _first_core() if line.partition(":")[0].strip() in _TELLING)
    text = text or platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def understands(instructions: str) -> bool:
    """Whether this machine's processor is known to have instructions of a name such as `avx512f`; on Linux alone."""
    told = (line.partition(":") for line in _first_core())
    return any(instructions in flags.split() for name, _, flags in told if name.strip() == "flags")


def _first_core() -> list[str]:
    """The lines on the first core that Linux tells of; none on another system."""
    if not _CPUINFO.is_file():
        return []
    return _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
