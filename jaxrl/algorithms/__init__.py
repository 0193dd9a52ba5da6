"""The algorithm contract, the registry, the parts that algorithms share, and one file per algorithm."""
