"""The envelope of a body in the engine: the exchange that it was published to and its properties as they came, an annex."""

KIND: int
KEYS_KIND: int
