"""Several processes that compute together, on one host or many."""
