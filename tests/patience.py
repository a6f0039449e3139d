"""How long a test waits for what another thread or program of its own does.

Only where no time of Xump's brings the same later, such as the end of a lease or a client's next try: there the test's own bound
says that it came without.
"""

import os
import tempfile
import time
from collections.abc import Iterator

# Seconds. Only a test that would fail waits so long: a core of a shared machine has stood still for two minutes.
PATIENCE = 300


def polls(seconds: float, each: float) -> Iterator[None]:
    """Yield every `each` seconds, for so many in all. Seconds in which this process or its disk stands still do not count."""
    for _ in range(int(seconds)):
        for _ in range(int(1 / each)):
            yield
            time.sleep(each)
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
