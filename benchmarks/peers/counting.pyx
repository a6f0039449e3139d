"""Valgrind's requests, so that a program under callgrind counts the instructions of what it names. Does nothing elsewhere."""

cdef extern from *:
    """
    #include <valgrind/callgrind.h>
    static int xump_counting(void) { return (int) RUNNING_ON_VALGRIND; }
    static void xump_count_start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
    static void xump_count_stop(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
    """
    int xump_counting()
    void xump_count_start()
    void xump_count_stop(const char* name)


def counting():
    """Whether somebody counts."""
    return bool(xump_counting())


def start():
    """Count from here on."""
    xump_count_start()


def stop(bytes name not None):
    """To here: one more file of counts, under this name."""
    xump_count_stop(name)
