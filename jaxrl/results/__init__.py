"""Labelled results in memory and on disk: datasets, estimates, tables, pictures and trained policies."""
