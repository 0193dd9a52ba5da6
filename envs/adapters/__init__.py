"""Adapters from other libraries (`incoming`) and to them (`outgoing`)."""
