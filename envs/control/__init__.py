"""Classic control, one task a file, with the dynamics, rewards and resets of Gymnasium."""
