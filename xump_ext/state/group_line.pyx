"""The line of a group: the messages of one key that are ready, or delayed by a retry, by id.

New messages go to the end of the line. One whose delay ends, or that comes back past others, would have to search for its place:
it goes into a pairing heap beside the line, the **strays** (Fredman, Sedgewick, Sleator, Tarjan 1986). So each step costs O(1),
or O(log strays) amortized, however long the line is.
"""

from xump_ext.state.constants cimport GROUP_LINE, GROUP_NONE, GROUP_STRAY


cdef void line_add(group_t* group, extra_t* extra) noexcept:
    extra.before = extra.after = extra.below = NULL
    group.count += 1
    if group.tail == NULL or group.tail.entry.id < extra.entry.id:
        extra.standing = GROUP_LINE
        extra.before = group.tail
        if group.tail == NULL:
            group.head = extra
        else:
            group.tail.after = extra
        group.tail = extra
    elif extra.entry.id < group.head.entry.id:
        extra.standing = GROUP_LINE
        extra.after = group.head
        group.head.before = extra
        group.head = extra
    else:
        extra.standing = GROUP_STRAY
        group.strays = merged(group.strays, extra)


cdef void line_remove(group_t* group, extra_t* extra) noexcept:
    group.count -= 1
    if extra.standing == GROUP_STRAY:
        stray_remove(group, extra)
    else:
        if extra.before == NULL:
            group.head = extra.after
        else:
            extra.before.after = extra.after
        if extra.after == NULL:
            group.tail = extra.before
        else:
            extra.after.before = extra.before
    extra.before = extra.after = extra.below = NULL
    extra.standing = GROUP_NONE


# ---- the heap of strays: `below` is the first of those below, `after` the next beside, `before` the one before or above

cdef extra_t* merged(extra_t* one, extra_t* other) noexcept:
    """The root of two heaps made one. Both are roots, or NULL."""
    cdef extra_t* upper = one
    cdef extra_t* lower = other
    if one == NULL or other == NULL:
        return other if one == NULL else one
    if other.entry.id < one.entry.id:
        upper = other
        lower = one
    lower.before = upper
    lower.after = upper.below
    if upper.below != NULL:
        upper.below.before = lower
    upper.below = lower
    return upper


cdef void stray_remove(group_t* group, extra_t* extra) noexcept:
    cdef extra_t* rest = paired(extra.below)
    if group.strays == extra:
        group.strays = rest
        return
    if extra.before.below == extra:
        extra.before.below = extra.after
    else:
        extra.before.after = extra.after
    if extra.after != NULL:
        extra.after.before = extra.before
    group.strays = merged(group.strays, rest)


cdef extra_t* paired(extra_t* first) noexcept:
    """One heap of all those beside `first`: merged two by two, then from the last pair on."""
    cdef extra_t* pairs = NULL      # linked by `before`, the last one first
    cdef extra_t* one
    cdef extra_t* other
    cdef extra_t* rest
    while first != NULL:
        one = first
        other = first.after
        rest = NULL if other == NULL else other.after
        one.before = one.after = NULL
        if other != NULL:
            other.before = other.after = NULL
        one = merged(one, other)
        one.before = pairs
        pairs = one
        first = rest
    one = NULL
    while pairs != NULL:
        other = pairs
        pairs = pairs.before
        other.before = NULL
        one = merged(one, other)
    return one
