"""What both readers share on the driver: a connection that is made on first use, and the topics to read."""

from __future__ import annotations

import re
from typing import Any

from pubsub.client.requests import Proxies
from pubsub.spark.options import SourceOptions
from pubsub.spark.ranges import Topics


class Asking:
    """Asks about topics over one connection, which is not pickled.

    Attributes:
        subscription: name of the durable subscription; "" for none, or none yet.
        tells_absent: a topic that does not exist is an error at once. A stream makes its topics by subscribing.
    """

    tells_absent = False

    def __init__(self, options: SourceOptions) -> None:
        self.options, self.subscription = options, options.subscription
        self._link: Proxies | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_link": None}

    @property
    def topics(self) -> Topics:
        if self._link is None:
            options = self.options
            self._link = options.identity.connect(options.proxies, options.timeout)
            self._link.tells_absent = self.tells_absent
        return Topics(self._link, self.subscription, fail_on_data_loss=self.options.fail_on_data_loss)

    def renew(self) -> None:
        """Use the key file's new key if it was replaced."""
        if self._link is not None and self._link.asker.pair != self.options.identity.pair():
            self.close()

    def named(self) -> list[str]:
        """Return the topics to read; it may be empty for a pattern."""
        options = self.options
        if options.subscribe:
            return list(options.subscribe)
        return [topic for topic in self.topics.listed() if re.fullmatch(options.pattern, topic)]

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
