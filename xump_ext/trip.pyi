"""The queues that a message has entered in a run; for the compiled modules only."""
