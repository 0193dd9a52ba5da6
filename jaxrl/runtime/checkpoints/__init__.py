"""What a run directory keeps of a call while it is carried out."""
