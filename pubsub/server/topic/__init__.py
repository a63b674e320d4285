"""One topic and its logs as values: no storage, no messages."""
