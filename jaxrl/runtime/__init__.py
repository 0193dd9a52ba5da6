"""From a call to its result: the one package that manages devices, memory and time."""
