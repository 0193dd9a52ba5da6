"""What every benchmark prints first: the machine and the versions."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax


def header() -> dict[str, str]:
    """Processor, cores this process may use, memory, devices and versions."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "processor": f"{model}, {cores} cores, {platform.machine()}",
        "load": f"{os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else "unknown",
        "devices": ", ".join(f"{device.platform} {device.device_kind}" for device in jax.devices()),
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "flax", "gymnax")},
    }


def print_header() -> None:
    """The header, one line each."""
    for name, value in header().items():
        print(f"{name}: {value}")
