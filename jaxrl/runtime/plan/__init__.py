"""What of a call fits into memory: its layout, parts, memory and time."""
