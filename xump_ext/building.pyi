"""Queues and selectors come and go; for the compiled modules only."""
