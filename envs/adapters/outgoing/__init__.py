"""Environments of this package, adapted to the interfaces of other libraries."""
