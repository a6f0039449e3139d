"""Whose turn it is; for the compiled modules only."""
