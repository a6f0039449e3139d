"""Who came back between others; for the compiled modules only."""
