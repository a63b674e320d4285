"""The server: keeps topics, their messages and their subscribers on disk."""
