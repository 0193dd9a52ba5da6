"""Kind of this machine's processor, and the instructions that it supports."""

import hashlib
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# Lines that identify a processor and its instructions, on x86 and on Arm.
_IDENTIFYING = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU part", "Features")


def processor() -> str:
    """Name of the processor and its instruction set, such as `x86_64-2f0c3a9d41be`."""
    text = "\n".join(line for line in _first_core() if line.partition(":")[0].strip() in _IDENTIFYING)
    text = text or platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def model() -> str:
    """Model of the processor, such as "AMD EPYC 9R14"."""
    fields = (line.partition(":") for line in _first_core())
    named = next((value.strip() for name, _, value in fields if name.strip() == "model name"), "")
    return named or platform.processor() or platform.machine()


def understands(instructions: str) -> bool:
    """Whether the processor supports an instruction set such as `avx512f`; known on Linux only, otherwise False."""
    fields = (line.partition(":") for line in _first_core())
    return any(instructions in flags.split() for name, _, flags in fields if name.strip() == "flags")


def _first_core() -> list[str]:
    """Lines of the first core in /proc/cpuinfo; none on systems other than Linux."""
    if not _CPUINFO.is_file():
        return []
    return _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
