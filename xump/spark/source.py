"""The data source `xump`: which writer or reader is meant."""

from __future__ import annotations

import pkgutil
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from xump.spark import options as given
from xump.spark.reader import Reader
from xump.spark.schema import read_schema
from xump.spark.stream_reader import StreamReader
from xump.spark.writer import StreamWriter, Writer


class XumpDataSource(DataSource):
    """Queues of a broker, as Spark reads and writes them: `df.write.format("xump")`, `spark.readStream.format("xump")`.

    Spark finds it by name where xump is installed. Elsewhere, as for classes of your own:
    `spark.dataSource.register(XumpDataSource)`.
    """

    @classmethod
    def name(cls) -> str:
        """Its name for `format`."""
        return "xump"

    def schema(self) -> StructType:
        """The columns of a queue."""
        return read_schema()

    def _options(self, reading: bool, streaming: bool) -> given.Options:
        return given.check_for(given.parsed(dict(self.options)), reading, streaming)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """For a dataframe. Raises what is wrong with options, columns or broker, before any task runs."""
        if overwrite:
            raise ValueError('a queue cannot be overwritten: write with .mode("append")')
        return Writer(self._options(False, False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """For a micro-batch of a stream: it is made anew for each."""
        return StreamWriter(self._options(False, True), schema)

    def reader(self, schema: StructType) -> Reader:
        """For a queue as it is now."""
        return Reader(self._options(True, False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """For a queue, and what comes into it."""
        return StreamReader(self._options(True, True), schema)

    def __reduce__(self) -> Any:
        return type(self), (dict(self.options),)


def ensure_source(spark: SparkSession) -> None:
    """Tell a session of the data source, if Spark does not find it by itself: an editable install is in no folder that it looks
    through. Spark looks among those of the session that is active in its thread, and a new thread has none."""
    virtual_machine = getattr(spark, "_jvm", None)          # Spark Connect has none
    if virtual_machine is not None:
        virtual_machine.SparkSession.setActiveSession(spark._jsparkSession)
    if not any(found.name == "pyspark_xump" for found in pkgutil.iter_modules()):
        try:
            spark.dataSource.register(XumpDataSource)
        except PySparkException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":       # another session has told Spark
                raise
