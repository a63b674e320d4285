"""`pubsub …`: composes the roles' commands."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point: runs `pubsub ARGV…` and returns its exit code (docs/commands.md lists them)."""
    if argv is None:
        # Before anything else is loaded, which takes long enough for a person to change their mind.
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pubsub.cli.app import main as run

    return run(argv)


__all__ = ["main"]
