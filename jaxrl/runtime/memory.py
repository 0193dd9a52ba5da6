"""How much memory there is, how much of it this process has, and how users write such sizes."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from envs.errors import UserValueError

KIB, MIB, GIB = 2**10, 2**20, 2**30
_UNITS = {
    "": 1,
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), start=1)},
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)},
}
# Three programs compiled side by side want about this much beside what the process has.
COMPILING_SIDE_BY_SIDE = 2 * GIB

__all__ = ["GIB", "KIB", "MIB", "available", "compiling_within", "give_back", "parse_size", "resident", "size", "tight"]


def parse_size(memory: int | str, name: str = "memory") -> int:
    """A size in bytes: `"8GiB"`, `"500MB"`, or a number of bytes.

    Raises:
      ValueError: it is none, naming the argument.
    """
    number: float = 0
    if isinstance(memory, str) and (match := re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*", memory.lower())):
        number = float(match[1]) * _UNITS.get(match[2], 0)
    elif isinstance(memory, int) and not isinstance(memory, bool):
        number = memory
    if number < 1:
        raise UserValueError(f"{name} must be a size such as 8GiB or 500MB, or a number of bytes, got {memory!r}")
    return int(number)


def size(num_bytes: float) -> str:
    """Bytes for a reader, such as `2.9 GiB`."""
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= 0.95 * GIB else f"{num_bytes / MIB:.0f} MiB"


def resident() -> int:
    """Bytes that this process has in memory now."""
    return psutil.Process().memory_info().rss


def available(root: Path = Path("/")) -> int:
    """Bytes that this process may take beside those that it has: of the machine, and of its control groups.

    Args:
      root: of the file system that shows the control groups.
    """
    free = [psutil.virtual_memory().available]
    cgroup = root / "proc/self/cgroup"
    for line in cgroup.read_text().splitlines() if cgroup.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            free += _room(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            free += _room(root / "sys/fs/cgroup/memory", path, *names)
    return max(min(free), 0)


def _room(mount: Path, path: str, limit: str, usage: str, reclaimable: str) -> list[int]:
    """What a control group and each of those around it has left; what only caches files does not count."""
    rooms = []
    inner = Path(path.lstrip("/"))
    for group in dict.fromkeys([mount / inner, *(mount / parent for parent in inner.parents), mount]):
        files = [group / name for name in (limit, usage, "memory.stat")]
        # A container sees its own group at the mount, while its path is told as the host sees it.
        if not all(file.is_file() for file in files):
            continue
        most, used, stat = (file.read_text().strip() for file in files)
        if most == "max":
            continue
        cached = [int(line.split()[1]) for line in stat.splitlines() if line.split()[0] == reclaimable]
        rooms.append(int(most) - int(used) + sum(cached))
    return rooms


def give_back() -> None:
    """Returns to the system what was freed but kept by the C library for later, where that is glibc's.

    The programs of 64 seeds of PPO on CartPole take a process from 426 MiB to 1.0 GiB, of which this returns 450 MiB
    in under a second. Without it a plan would count that memory against the runs. Collecting garbage before returns
    no more of what compiling took.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


_TIGHT: contextvars.ContextVar[bool] = contextvars.ContextVar("tight", default=False)


@contextlib.contextmanager
def compiling_within(limit: int | None) -> Iterator[None]:
    """Within this context programs are compiled one after another where the limit, in bytes, leaves no more room."""
    token = _TIGHT.set(limit is not None and limit < resident() + COMPILING_SIDE_BY_SIDE)
    try:
        yield
    finally:
        _TIGHT.reset(token)


def tight() -> bool:
    """Whether programs are to be compiled one after another, giving back in between what each took."""
    return _TIGHT.get()
