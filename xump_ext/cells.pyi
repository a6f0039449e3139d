"""Memory for what there are many of; for the compiled modules only."""
