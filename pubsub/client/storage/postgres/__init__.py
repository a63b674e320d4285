"""Keep a client's state in a schema of the user's own PostgreSQL database (docs/explanation/databases.md)."""

from __future__ import annotations

from pubsub.errors import ConfigurationError


def require_psycopg() -> None:
    """Check that psycopg can be imported, before the modules here that need it are.

    Raises:
        ConfigurationError: it cannot.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 - most clients have a file.
    except ImportError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"a state or outgoing rows in PostgreSQL need psycopg ({reason}); run: pip install '.[postgres]'"
        ) from None
