"""Tasks of one or two choices whose values are known exactly, one a file: what a discount prefers."""
