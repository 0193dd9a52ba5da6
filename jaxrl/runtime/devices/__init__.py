"""Devices and their compiler: processors, XLA flags, the compilation cache."""
