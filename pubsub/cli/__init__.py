"""The command line `pubsub …`, built from the commands of all roles."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `pubsub ARGV…` and return its exit code (docs/commands.md lists the codes).

    Args:
        argv: arguments after `pubsub`; None takes them from the process's own command line.
    """
    if argv is None:
        # Set this before the slow imports, so that Ctrl-C works during them.
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pubsub.cli.app import main as run

    return run(argv)


__all__ = ["main"]
