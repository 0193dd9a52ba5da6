"""The outer loop of `jaxrl.meta`: inner trainings, their scores, and the strategies that learn from them."""
