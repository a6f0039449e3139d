"""Records of what happens in durable queues; for the compiled modules only."""
