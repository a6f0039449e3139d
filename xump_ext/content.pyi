"""What messages say; for the compiled modules only."""
