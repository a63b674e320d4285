"""The data source that Spark finds under the format `pubsub`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pubsub.spark.arrow import HEADERS_SCHEMA, SCHEMA
from pubsub.spark.options import includes_headers, sink_options, source_options
from pubsub.spark.sink import BatchWriter, StreamWriter, check_columns
from pubsub.spark.source import BatchReader, StreamReader


class PubsubDataSource(DataSource):
    """Topics as a source and a sink of Spark: `spark.readStream.format("pubsub")` and so on (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pubsub"

    def schema(self) -> str:
        """Return the source's columns; headers only if they are requested, as in every earlier release."""
        return HEADERS_SCHEMA if includes_headers(self.options) else SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader for `spark.read`."""
        return BatchReader(source_options(self.options, stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Return the reader for `spark.readStream`."""
        return StreamReader(source_options(self.options, stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer for `df.write`."""
        options = sink_options(self.options)
        check_columns(schema.fieldNames(), options)
        return BatchWriter(options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """Return the writer for `df.writeStream`."""
        options = sink_options(self.options)
        check_columns(schema.fieldNames(), options)
        return StreamWriter(options)
