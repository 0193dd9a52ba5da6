"""Small cooperative games, one per file, with exactly known returns of the best joint play."""
