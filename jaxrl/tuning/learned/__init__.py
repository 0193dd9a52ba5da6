"""What `jaxrl.meta` can learn: numbers inside an algorithm, each kind a small file."""
