"""Many settings as one batched pytree, and the choice of one of them."""
