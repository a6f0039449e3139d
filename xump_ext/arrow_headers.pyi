"""Headers out of Arrow columns; for the compiled reader only."""
