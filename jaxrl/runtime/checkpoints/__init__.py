"""Files in a run directory that a call writes while it is executed."""
