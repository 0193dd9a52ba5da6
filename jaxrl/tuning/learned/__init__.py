"""Numbers inside an algorithm that `jaxrl.meta` can learn, one small file for each kind."""
