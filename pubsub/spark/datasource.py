"""The data source that Spark finds under the format `pubsub`."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pubsub.spark.arrow import HEADERS_SCHEMA, SOURCE_SCHEMA, check_schema
from pubsub.spark.batch_source import BatchReader
from pubsub.spark.options import SourceOptions, includes_headers, sink_options, source_options
from pubsub.spark.sink import BatchWriter, StreamWriter, check_columns
from pubsub.spark.source import StreamReader


class PubsubDataSource(DataSource):
    """Topics as a source and a sink of Spark: `spark.readStream.format("pubsub")` and so on (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pubsub"

    def schema(self) -> str:
        """Return the source's columns; headers only if they are requested, as in every earlier release."""
        return HEADERS_SCHEMA if includes_headers(self.options) else SOURCE_SCHEMA

    def _source(self, schema: StructType, *, stream: bool) -> SourceOptions:
        """Parse the options; the columns are those of the schema, which the user may have given."""
        columns = check_schema({field.name: field.dataType.simpleString() for field in schema.fields})
        return replace(source_options(self.options, stream=stream), columns=columns)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader for `spark.read`."""
        return BatchReader(self._source(schema, stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Return the reader for `spark.readStream`."""
        return StreamReader(self._source(schema, stream=True))

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
