"""Tasks of one or two choices with exactly known values, one per file: they show the preferences of a discount."""
