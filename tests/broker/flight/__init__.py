"""The broker's Flight listener."""
