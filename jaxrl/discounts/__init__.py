"""Weights of rewards by their delay: forms, families, parsing, properties, fitting, hazards and mixtures."""
