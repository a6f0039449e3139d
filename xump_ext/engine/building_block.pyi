"""Building blocks: `with engine.building():` routes nothing before its end."""

from typing import NoReturn, Self

from xump_ext.engine.core import Core

class BuildingBlock:
    def __new__(cls, engine: Core) -> Self: ...
    def __reduce__(self) -> NoReturn: ...
    def __enter__(self) -> None: ...
    def __exit__(self, type: object, *_: object) -> None: ...
    def begin(self) -> None:
        """Enter the block."""
    def _leave(self, releases: bool) -> None: ...

class GraphChange(BuildingBlock):
    def __enter__(self) -> Self: ...  # type: ignore[override]
