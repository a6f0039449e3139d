"""The demo: a year of flights out of New York, replayed through one engine.

`main` is the command. `flights` reads the data, `actors` work on them, `replay` makes the graph and runs it, `durable` does
that in a process that is killed half way, and `report` shows the results.
"""
