"""Memory of the machine and of this process, and the notation of sizes."""

from __future__ import annotations

import ctypes
import math
import platform
import re
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


def parse_size(memory: int | str, name: str = "memory") -> int:
    """Size in bytes, from text such as `"8GiB"` or `"500MB"`, or a number of bytes.

    Raises:
      ValueError: `memory` is not a size; the message names the argument.
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
    """Number of bytes as text, such as `2.9 GiB`."""
    if num_bytes < 0.95 * MIB:
        return f"{num_bytes / KIB:.0f} KiB"
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= 0.95 * GIB else f"{num_bytes / MIB:.0f} MiB"


def at_least(num_bytes: float) -> str:
    """Size slightly above a number of bytes, in the notation of `parse_size`, such as `1240MiB` or `12GiB`."""
    more = 1.02 * num_bytes
    return f"{math.ceil(more / (10 * MIB)) * 10}MiB" if more < 10 * GIB else f"{math.ceil(more / GIB)}GiB"


def resident() -> int:
    """Resident size of this process, in bytes."""
    return psutil.Process().memory_info().rss


def available(root: Path = Path("/")) -> int:
    """Free memory in bytes that this process may take, by limits of the machine, control groups and `ulimit -v`.

    Args:
      root: Root of the file system with the control groups.
    """
    free = [psutil.virtual_memory().available, *_address_space()]
    cgroup = root / "proc/self/cgroup"
    for line in cgroup.read_text().splitlines() if cgroup.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            free += _room(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            free += _room(root / "sys/fs/cgroup/memory", path, *names)
    return max(min(free), 0)


def _address_space() -> list[int]:
    """Bytes that this process may still map, if it has a limit."""
    try:
        import resource
    except ImportError:  # on Windows
        return []
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if most == resource.RLIM_INFINITY else [most - psutil.Process().memory_info().vms]


def _room(mount: Path, path: str, limit: str, usage: str, reclaimable: str) -> list[int]:
    """Remaining bytes of a control group and of each of its parents; file caches are not counted."""
    rooms = []
    inner = Path(path.lstrip("/"))
    for group in dict.fromkeys([mount / inner, *(mount / parent for parent in inner.parents), mount]):
        files = [group / name for name in (limit, usage, "memory.stat")]
        # A container sees its own group at the mount, while the path is that on the host.
        if not all(file.is_file() for file in files):
            continue
        most, used, stat = (file.read_text().strip() for file in files)
        if most == "max":
            continue
        cached = [int(line.split()[1]) for line in stat.splitlines() if line.split()[0] == reclaimable]
        rooms.append(int(most) - int(used) + sum(cached))
    return rooms


def give_back() -> None:
    """Return freed memory that the C library retains to the system, if it is glibc.

    The programs of 64 seeds of PPO on CartPole take a process from 426 MiB to 1.0 GiB, of which this returns 450 MiB
    in under a second. Without it a plan would count that memory against the runs. Collecting garbage first does
    not return more.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
