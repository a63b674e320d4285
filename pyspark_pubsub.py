"""Spark looks through top-level modules of this name for formats: `spark.readStream.format("pubsub")` is found here."""

from pubsub.spark.datasource import PubsubDataSource as DefaultSource

__all__ = ["DefaultSource"]
