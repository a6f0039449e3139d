"""What was read of a store comes to life: nothing for Python."""
