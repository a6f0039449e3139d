"""The verbs of routing: enter, copy, take, settle, requeue, and the run that goes on until all is quiet (rules 1 to 12)."""
