"""What rewards are worth by their delay: forms, families, parsing, properties, fitting, hazards and mixtures."""
