"""Laws of the algorithm contract, tested on any algorithm."""
