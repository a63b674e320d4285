"""The server: it keeps topics, their messages and their subscriptions on disk."""
