"""What waits for a clause, and for one target; for the compiled modules only."""
