"""The file that `pubsub pipeline run` reads (docs/reference/pipeline-file.md), checked without Spark."""
