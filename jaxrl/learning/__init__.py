"""What algorithms are made of, each part usable alone."""
