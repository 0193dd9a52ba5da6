"""What one does with a trained policy: export, load, draw and walk it."""
