"""Accelerators that are absent: memory and time of their programs, from compilers that need no device."""
