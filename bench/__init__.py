"""Benchmarks: each file is a script of its own, and `python -m bench` runs them all."""

import os

# Sides of a comparison live in processes of their own at the same time: none may take most of a GPU's memory at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
