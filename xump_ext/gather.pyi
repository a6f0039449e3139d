"""What a run begins with; for the compiled modules only."""
