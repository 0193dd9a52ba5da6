"""One run whose environments are distributed over the devices of several processes."""
