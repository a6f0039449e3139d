"""The run; for the compiled modules only."""
