"""What COPY makes; for the compiled modules only."""
