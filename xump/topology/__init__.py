"""A graph as data: a plain dict, a TOML file, a drawing.

`describe` and `apply` are what `Engine.topology()` and `Engine.apply()` do. `refusals` says what is wrong with a description,
`check` also what is suspicious in it; `sketch` makes an engine in RAM of it. The module `drawing` draws a graph as Mermaid or
Graphviz text, `picture` as SVG.
"""

from xump.topology.network import apply, check, describe, refusals, sketch

__all__ = ["apply", "check", "describe", "refusals", "sketch"]
