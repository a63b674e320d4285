"""How a process comes to tell its metrics: where it may, and what it needs for it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from pubsub.base.addresses import join_place, split_place
from pubsub.base.listening import Listening, listen_at
from pubsub.base.loopback import reaches_out
from pubsub.base.sites import Sites
from pubsub.errors import ConfigurationError
from pubsub.metrics.handover import Handover
from pubsub.metrics.limits import BACKLOG

_log: Final = logging.getLogger(__name__)


class Metrics:
    """The metrics of a running process.

    Args:
        address: HOST:PORT to listen on; port 0: one that is free.
        insecure: others than this host may reach it.
        wake: ends the sleep of the process's loop; any thread may call it.

    Attributes:
        url: where they are read.
        handover: takes the snapshots of the process's loop.

    Raises:
        ConfigurationError: the address cannot be used, others would reach it, or prometheus-client is not installed.
    """

    def __init__(self, address: str, wake: Callable[[], None], *, insecure: bool = False) -> None:
        try:
            from pubsub.metrics.exposition import MEDIA_TYPE, exposition  # noqa: PLC0415  only where it is asked for
            from pubsub.metrics.pages import Pages  # noqa: PLC0415
        except ImportError as error:
            raise ConfigurationError(f"--metrics needs pip install '.[http]' in a clone ({error})") from None
        listening = listen(address, insecure=insecure)
        host, port = listening.getsockname()[:2]
        self.url = f"http://{join_place(host, port)}/metrics"
        self.handover = Handover(wake)
        self._pages = Pages(listening, self.handover, exposition, MEDIA_TYPE, sites_of(address))
        self._pages.start()
        if reaches_out(f"tcp://{address}"):
            _log.warning("metrics are told at %s to anyone who reaches it", self.url)

    def close(self) -> None:
        """Tell no more."""
        self._pages.stop()


def open_metrics(
    address: str | None, insecure: bool, wake: Callable[[], None], closers: list[Callable[[], Any]]
) -> Metrics | None:
    """The metrics of a process that is told to have them, else None.

    Args:
        address, insecure, wake: as of `Metrics`; address None: it has none.
        closers: gets what closes them.

    Raises:
        ConfigurationError: as of `Metrics`.
    """
    if address is None:
        return None
    made = Metrics(address, wake, insecure=insecure)
    closers.append(made.close)
    return made


def sites_of(address: str) -> Sites:
    """Whose requests are answered there.

    A port that only this host reaches knows all names that it has, so that no page reads it by DNS rebinding. One that
    others reach does not know by which names Prometheus asks, and what it tells anyone may ask for: any name will do.
    """
    host, _ = split_place(address)
    return Sites(
        frozenset({socket.gethostname().lower()}), bound=host.lower(), any_host=reaches_out(f"tcp://{address}")
    )


def listen(address: str, *, insecure: bool) -> Listening:
    """A socket that listens there.

    Raises:
        ConfigurationError: it cannot be used, or others would reach it.
    """
    remedy = "it asks nobody for a key; listen on 127.0.0.1, or say --insecure"
    return listen_at(address, insecure=insecure, option="--metrics", remedy=remedy, backlog=BACKLOG)


def said(metrics: Metrics | None) -> str:
    """The end of the line by which a process says that it is ready."""
    return "" if metrics is None else f", metrics {metrics.url}"
