"""Every law of the engine, verified from scratch: `Engine.check()`."""
