"""What is still to be done in a run; for the compiled modules only."""
