"""Names of the files in the directory of a result or a search."""

METRICS, TABLE, PARQUET, POLICIES, CONFIG = FILES = (
    "metrics.nc",
    "metrics.csv",
    "metrics.parquet",
    "policies.npz",
    "config.json",
)

SEARCH = "search.json"  # file that marks the directory of a search

# Of a run that can be resumed.
IDENTITY, CHECKPOINTS, PARTS, LOCK = "run.json", "checkpoints", "parts", ".lock"

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "FILES",
    "IDENTITY",
    "LOCK",
    "METRICS",
    "PARQUET",
    "PARTS",
    "POLICIES",
    "SEARCH",
    "TABLE",
]
