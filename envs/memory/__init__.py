"""Tasks that take a memory, one a file: what the best policies earn with one, and without."""
