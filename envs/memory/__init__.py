"""Tasks that require memory, one per file, with the best returns with and without it."""
