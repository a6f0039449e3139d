"""The broker's HTTP API."""
