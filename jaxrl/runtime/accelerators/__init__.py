"""Accelerators that are absent: what their programs would take, from compilers that need no device."""
