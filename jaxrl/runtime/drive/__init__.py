"""Runs while they advance: chunks, observers, progress and interrupts."""
