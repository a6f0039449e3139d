"""Credit, rotation and room; for the compiled modules only."""
