"""The command `xump`."""
