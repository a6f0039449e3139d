"""The one thing that a worker of Spark's does when it has imported this package: it freezes its objects.

Such a worker collects garbage after each task, all generations of it: it looks through everything that pyarrow, numpy and this
package have brought, none of which is garbage, for some 20 ms. So that is frozen.
"""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"
"""The program whose forks are Spark's workers."""


def is_worker() -> bool:
    """Whether this process is a worker of Spark's, in which nothing of the user's own lives but tasks."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == DAEMON


def freeze_imports() -> None:
    """Let the garbage collector of a worker pass over what is there now. Elsewhere nothing is done."""
    if is_worker():
        gc.collect()
        gc.freeze()
