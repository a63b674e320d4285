"""Titanic as a process: requests and replies on disk."""
