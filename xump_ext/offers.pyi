"""Deliveries that the application can take; for the compiled modules only."""
