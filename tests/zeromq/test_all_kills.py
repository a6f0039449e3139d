"""A few kills of each role of each system. XUMP_KILLS says how many; `python -m tests.zeromq.kills` does 200."""

import os
import random

import pytest

from tests.zeromq import kill_roles
from tests.zeromq.kills import ROLES, System, count, kill_role

KILLS = int(os.environ.get("XUMP_KILLS", "2"))


@pytest.mark.parametrize("role", ROLES)
def test_nothing_is_lost_whoever_is_killed_and_nothing_done_twice_where_that_is_promised(role, tmp_path):
    answered, _ = kill_role(*role.split("/"), KILLS, random.Random(role), str(tmp_path))
    assert answered


@pytest.mark.parametrize(("answers", "done", "said"), [
    ([b"0 done 0", b"2 done 2"], b"0 2", "lost: \\[1\\]"),
    ([b"0 done 0", b"1 done 0"], b"0 1", "wrong answers"),
    ([b"0 done 0", b"0 done 0"], b"0", "answered twice"),
    ([b"0 done 0"], b"0 0", "done twice: \\[0\\]"),
    ([b"0 done 0"], b"", "never done"),
    ([b"0 none", b"1"], b"0 1", "wrong answers"),
])
def test_what_is_wrong_is_found(answers, done, said, tmp_path):
    class Shown:
        place = kill_roles.Place((), str(tmp_path))

    for line in answers:
        Shown.place.write("answers", line)
    for word in done.split():
        Shown.place.write("done", word)
    with pytest.raises(AssertionError, match=said):
        count(Shown, System({}, (), "at most once"))
