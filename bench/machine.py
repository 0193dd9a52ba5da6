"""What every benchmark prints first: the machine and the versions."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def header() -> dict[str, str]:
    """Processor, cores this process may use, memory, devices and versions."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {
        "processor": f"{model}, {num_cores()} cores, {platform.machine()}",
        "load": f"{os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else "unknown",
        "devices": ", ".join(f"{device.platform} {device.device_kind}" for device in jax.devices()),
        "platform": jax.default_backend(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "flax", "gymnax")},
    }
