"""Bandit policies, one family per file."""
