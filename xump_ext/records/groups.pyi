"""Groups of records, verified in memory or while they are read."""

from typing_extensions import Buffer

from xump_ext.records.record import STATES as STATES

def whole_groups(data: Buffer, position: int, salt: int) -> tuple[int, int, str, int | None]: ...
def read_groups(
    fd: int, at: int, data: Buffer, kept: int, position: int, salt: int
) -> tuple[int, int, str, int | None]: ...
