"""Small games of agents that earn together, one a file: what the best joint play earns is known exactly."""
