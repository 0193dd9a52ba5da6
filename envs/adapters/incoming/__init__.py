"""Environments of other libraries, adapted to the contract, one library per file."""
