"""Look at the state of a client without opening the client: another process may have it open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pubsub.client.storage import places
from pubsub.client.storage.postgres import require_psycopg
from pubsub.client.storage.reading import Reading
from pubsub.config.databases import DatabaseUrl
from pubsub.config.settings import ClientSettings
from pubsub.errors import NoSuchClient
from pubsub.protocol import check_id


def check_exists(name: str, settings: ClientSettings) -> None:
    """Check that a client has state, in its directory or its database.

    Raises:
        InvalidName: the name is not a client ID.
        NoSuchClient: it has none.
        StorageError, ConfigurationError: the database cannot be used.
    """
    if settings.database is None:
        places.check_exists(name, settings.directory)
        return
    require_psycopg()
    from pubsub.client.storage.postgres.looking import Looking  # noqa: PLC0415 - most clients have a file.

    url = DatabaseUrl(settings.database)
    with Looking(check_id("client ID", name), url) as found:
        others = found.clients()
        if name not in others:
            raise NoSuchClient(name, url, others)


@contextmanager
def reading_of(name: str, settings: ClientSettings) -> Iterator[Reading]:
    """Read the state of a client while another process has it open.

    Raises:
        StorageError: it cannot be read.
    """
    if settings.database is None:
        from pubsub.client.storage.copies import copied  # noqa: PLC0415 - only this command needs it.

        with copied(places.state_path(name, settings.directory)) as copy:
            yield copy
        return
    require_psycopg()
    from pubsub.client.storage.postgres.looking import Looking  # noqa: PLC0415 - most clients have a file.

    with Looking(name, DatabaseUrl(settings.database)) as found:
        yield found
