"""Many settings as one batched pytree, and the selection of one of them."""
