"""`pubsub service …`: the patterns from the command line. Each role is a command; the kind says which pattern."""

from __future__ import annotations

import typer

app = typer.Typer(name="service", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.callback()
def service() -> None:
    """Request and reply that survive, in the patterns of the ZeroMQ Guide (docs/services.md)."""


# Commands of other modules: each has `def add_to(app)`.
