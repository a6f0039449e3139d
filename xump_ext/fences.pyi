"""What waits for another store, or for somebody in RAM; for the compiled modules only."""
