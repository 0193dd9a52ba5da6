"""Bandit policies, one family a file."""
