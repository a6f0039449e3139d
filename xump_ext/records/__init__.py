"""The record format of durable stores, byte by byte, and the functions that a store calls on it.

`kinds.pxd` draws the records, and `kinds` has the constants of the format. A plug-in store calls the functions below, each on
whole buffers.
"""

from xump_ext.records.groups import read_groups, whole_groups
from xump_ext.records.record import (
    crc,
    crc_soft,
    describe,
    entry_key,
    items,
    next_group,
    next_record,
    place_record,
    record_whole,
    salt_of,
    whole_records,
)

__all__ = [
    "crc", "crc_soft", "describe", "entry_key", "items", "next_group", "next_record", "place_record", "read_groups",
    "record_whole", "salt_of", "whole_groups", "whole_records",
]
