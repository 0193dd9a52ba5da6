"""The kind of this machine's processor, and what instructions it understands."""

import hashlib
import platform
from pathlib import Path

__all__ = ["processor", "understands"]

_CPUINFO = Path("/proc/cpuinfo")
# The lines of it that say what a processor understands: of x86, and of Arm.
_TELLING = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU part", "Features")


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
