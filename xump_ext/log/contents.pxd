"""Declarations of `contents.pyx`."""

from xump_ext.message.headers cimport content_t
from xump_ext.records.kinds cimport enter_record_t

cdef content_t* content_of_record(const enter_record_t* record) except NULL
