"""Uses of a trained policy: export, loading, rendering, partners, and walks of crowds."""
