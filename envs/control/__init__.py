"""Classic control, one task per file, with the dynamics, rewards and resets of Gymnasium."""
