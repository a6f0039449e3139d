"""Spark imports each module `pyspark_*` that it finds, and takes its `DefaultSource`. This one gives it the data source `xump`.

One module that fails to import would break that search for all other data sources. So where xump.spark cannot be imported this
module has no `DefaultSource`, and says why in a warning.
"""

import warnings

try:
    from xump.spark.source import XumpDataSource as DefaultSource
except Exception as error:      # whatever is wrong here is no reason for other data sources to fail
    warnings.warn(f"the data source 'xump' is not there: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
else:
    __all__ = ["DefaultSource"]
