"""A member's disk: the stream of entries, the member's own file, the store, and copies of the store."""
