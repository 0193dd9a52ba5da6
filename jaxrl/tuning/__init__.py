"""Search, successive halving and population-based training."""
