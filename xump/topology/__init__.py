"""A graph of queues and selectors as data: a plain dict, a TOML file, a drawing.

`describe` and `apply` do the work of `Engine.topology()` and `Engine.apply()`. `refusals` lists the mistakes in a description,
`check` also lists what is allowed but is probably a mistake, and `sketch` creates an engine in RAM from a description. The module
`drawing` draws a graph as Mermaid or Graphviz text, and `picture` draws it as SVG; `graph` reads what they show.

The ready-made graphs Housecat, Parrot and Wolfpack are in `xump.topologies`.
"""

from xump.topology.network import apply, check, describe, refusals, sketch

__all__ = ["apply", "check", "describe", "refusals", "sketch"]
