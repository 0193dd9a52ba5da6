"""Components of algorithms, each usable alone."""
