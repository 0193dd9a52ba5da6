"""Environments of other libraries, brought under the contract, one library a file."""
