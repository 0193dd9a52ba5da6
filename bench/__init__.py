"""Benchmarks: each file is a separate script, and `python -m bench` runs them all."""

import os

# The sides of a comparison are concurrent processes: none of them may preallocate most of a GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
