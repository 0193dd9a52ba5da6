"""Compilation cache on disk, separate for every kind of processor."""

from pathlib import Path

from envs.errors import UserValueError
from jaxrl.runtime.devices.processors import processor

__all__ = ["VARIABLE", "use_compilation_cache"]

# Environment variable with the directory for the command line.
VARIABLE = "JAXRL_COMPILATION_CACHE"


def use_compilation_cache(directory: str | Path) -> Path:
    """Enables JAX's compilation cache on disk.

    A cached program computes the same bit for bit as one compiled again. Programs for a CPU contain its
    instructions, and crash on a CPU that lacks some of them, which JAX's own cache key does not fully cover.
    Every kind of processor therefore has its own directory, so that a home directory may be shared. Nothing is ever
    deleted: delete the directory to empty the cache.

    Args:
      directory: Parent directory of the cache; created if missing.

    Returns:
      Directory for this machine's processor.

    Raises:
      ValueError: The directory is not writable.
    """
    import jax

    cache = Path(directory).expanduser() / processor()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        probe = cache / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise UserValueError(f"The compilation cache {cache} cannot be written: {error.strerror or error}.") from None
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)  # the default, 1, excludes some programs
    return cache
