"""Compiled programs kept on disk for the next process, apart for every kind of processor."""

from pathlib import Path

from envs.errors import UserValueError
from jaxrl.runtime.devices.processors import processor

__all__ = ["VARIABLE", "use_compilation_cache"]

# What the command line takes the directory from.
VARIABLE = "JAXRL_COMPILATION_CACHE"


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
        raise UserValueError(f"The compilation cache {mine} cannot be written: {error.strerror or error}.") from None
    jax.config.update("jax_compilation_cache_dir", str(mine))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)  # its default, 1, leaves some of ours out
    return mine
