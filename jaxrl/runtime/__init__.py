"""From a call to its result: the one package that knows devices, memory and time."""
