"""Declarations of `contents.pyx`."""

from libc.stdint cimport uint16_t

from xump_ext.message.headers cimport content_t
from xump_ext.records.kinds cimport enter_record_t

# The text of this size at `at`, or None; `at` moves behind it.
cdef object text_of_record(const char** at, uint16_t size)
# A new content with the texts, headers and body of the record; NULL: its headers are not valid. Raises UnicodeDecodeError for a
# text that is not UTF-8.
cdef content_t* content_of_record(const enter_record_t* record) except? NULL
