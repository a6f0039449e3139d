"""How long a test waits for what another thread or program of its own does.

`PATIENCE` is only for where no time of Xump's brings the same later, such as the end of a lease or a client's next try: there the
test's own bound says that it came without. `tries` and `polls` keep such a bound, and leave out what the machine takes.
"""

import os
import tempfile
import time
from collections.abc import Iterator

# Seconds. Only a test that would fail waits so long: a core of a shared machine has stood still for two minutes.
PATIENCE = 300


def tries(seconds: float, each: float) -> Iterator[None]:
    """Yield for a try that takes `each` seconds, for so many in all, and once more.

    What does not count: time in which this process stands still, so that a try takes more than twice its time, or its disk does.
    """
    for _ in range(int(seconds)):
        counted = 0.0
        while counted < 1:
            begun = time.monotonic()
            yield
            counted += min(time.monotonic() - begun, 2 * each)
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    yield


def polls(seconds: float, each: float) -> Iterator[None]:
    """Yield every `each` seconds. The same time counts."""
    for _ in tries(seconds, each):
        yield
        time.sleep(each)
