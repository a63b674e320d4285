"""Delta tables without a JVM library: tasks write Parquet files, and one commit adds those of a batch to the table."""
