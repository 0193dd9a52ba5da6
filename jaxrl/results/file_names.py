"""Names of the files in the directory of a result or a search."""

METRICS, TABLE, PARQUET, POLICIES, CONFIG = FILES = (
    "metrics.nc",
    "metrics.csv",
    "metrics.parquet",
    "policies.npz",
    "config.json",
)

SEARCH = "search.json"  # file that marks the directory of a search

__all__ = ["CONFIG", "FILES", "METRICS", "PARQUET", "POLICIES", "SEARCH", "TABLE"]
