"""Keys for services, in memory."""

from __future__ import annotations

from pubsub.security.audit import Audit
from pubsub.security.authorized import Authorized, make_line, parse_name
from pubsub.security.pairs import Pair, new_pair
from pubsub.security.process_keys import InMemory, ProcessKeys
from pubsub.services.access import Locks


class Ring:
    """Key pairs by name, and who is authorized to do what."""

    def __init__(self) -> None:
        self.pairs: dict[str, Pair] = {}
        self._rights: dict[str, list[str]] = {}
        self.source = InMemory(Authorized(()))

    def pair(self, name: str) -> Pair:
        """The pair of somebody, made now where there is none."""
        return self.pairs.setdefault(name, new_pair())

    def authorize(self, name: str, *rights: str) -> None:
        """Let somebody in, with these rights and no others."""
        self._rights[name] = list(rights)
        self._write()

    def revoke(self, name: str) -> None:
        """Let somebody in no more."""
        del self._rights[name]
        self._write()

    def _write(self) -> None:
        lines = [
            make_line(*parse_name("client", name), self.pair(name).public, rights)
            for name, rights in self._rights.items()
        ]
        self.source.authorized = Authorized(tuple(lines))

    def listening(self, name: str) -> Locks:
        """The locks of somebody who listens."""
        return Locks(listening=ProcessKeys(self.pair(name), self.source), audit=Audit(None, name))

    def calling(self, name: str, *others: str) -> Locks:
        """The locks of somebody who connects to these."""
        return Locks(pair=self.pair(name), expected={"": tuple(self.pair(other).public for other in others)})
