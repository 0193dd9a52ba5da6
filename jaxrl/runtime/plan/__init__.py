"""Plans of calls that fit into memory: layout, parts, memory and time."""
