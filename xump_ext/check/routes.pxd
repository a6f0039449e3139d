"""Declarations of `routes.pyx`."""

from xump_ext.select.plan cimport Plan

cdef int check_pins(Plan plan) except -1
cdef int check_routes(Plan plan) except -1
