"""What a server has in memory, and what of it is not committed yet."""
