"""Keep the client's state on disk."""
