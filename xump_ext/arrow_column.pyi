"""Arrow columns, checked before they are read; for the compiled readers only."""
