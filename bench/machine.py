"""Header of every benchmark: the machine and the versions."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import jax

from jaxrl.results.format import counted
from jaxrl.runtime.machine.processors import model

ROOT = Path(__file__).resolve().parents[1]


def num_cores() -> int:
    """Number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str:
    """The commit of this checkout, with a mark for uncommitted changes; empty outside a checkout."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return ""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "jaxrl", "envs", "bench/*.py")
    return f", commit {git('rev-parse', '--short=12', 'HEAD')}{' with changes' if changed else ''}"


def header() -> dict[str, str]:
    """Processor, cores available to this process, memory, devices, XLA's flags if any, versions."""
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        "processor": f"{model()}, {platform.machine()}",
        "cores": counted(num_cores(), "core"),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else "unknown",
        "devices": ", ".join(f"{device.platform} {device.device_kind}" for device in jax.devices()),
        "platform": jax.default_backend(),
        **({"XLA_FLAGS": flags} if flags else {}),
        "python": platform.python_version(),
        "jaxrl": f"{version('jaxrl')}{commit()}",
        **{name: version(name) for name in ("jax", "jaxlib", "numpy", "flax", "gymnax")},
    }
