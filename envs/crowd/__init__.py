"""Crowds: pedestrians with hard bodies, their senses, their rewards and the scenes in which they walk."""
