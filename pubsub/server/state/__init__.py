"""A server's state in memory, and its changes that are not committed yet."""
