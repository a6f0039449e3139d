"""The log of durable stores: records of what happens, gathered in groups."""
