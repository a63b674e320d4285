"""Spark reads topics and writes to them: a source, a sink, and pipelines over both (docs/spark.md)."""
