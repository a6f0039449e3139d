"""The broker's HTTP face."""
