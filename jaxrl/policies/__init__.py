"""Uses of a trained policy: export, loading, rendering, and walks of crowds."""
