"""`pubsub …`: composes the roles' commands."""

from pubsub.cli.app import main

__all__ = ["main"]
