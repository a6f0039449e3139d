"""The way back of what was taken; for the compiled modules only."""
