"""Opens the metrics port of a process, and checks its address."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pubsub.base.addresses import join_place, split_place
from pubsub.base.loopback import reaches_out
from pubsub.base.sites import Sites
from pubsub.errors import ConfigurationError
from pubsub.metrics.handover import Handover
from pubsub.metrics.limits import BACKLOG

if TYPE_CHECKING:
    from pubsub.base.listening import Listening

_log: Final = logging.getLogger(__name__)


class Metrics:
    """The metrics port of a running process.

    Args:
        address: HOST:PORT to listen on; port 0: a free one.
        insecure: allow other hosts to connect.
        wake: ends the sleep of the process's loop; any thread may call it.

    Attributes:
        url: of the metrics.
        handover: takes the snapshots of the process's loop.

    Raises:
        ConfigurationError: the address cannot be used, other hosts could connect, or prometheus-client is not
            installed.
    """

    def __init__(self, address: str, wake: Callable[[], None], *, insecure: bool = False) -> None:
        try:
            from pubsub.metrics.exposition import MEDIA_TYPE, exposition  # noqa: PLC0415  the import is optional
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
            _log.warning("any host that reaches %s can read the metrics; restrict access by a firewall", self.url)

    def close(self) -> None:
        self._pages.stop()


def open_metrics(
    address: str | None, insecure: bool, wake: Callable[[], None], closers: list[Callable[[], Any]]
) -> Metrics | None:
    """Open the metrics port if the process has one.

    Args:
        address, insecure, wake: as of `Metrics`; address None: no port.
        closers: receives the function that closes the port.

    Raises:
        ConfigurationError: as of `Metrics`.
    """
    if address is None:
        return None
    made = Metrics(address, wake, insecure=insecure)
    closers.append(made.close)
    return made


def sites_of(address: str) -> Sites:
    """Return the hosts and origins from which requests are answered.

    A port that only this host reaches accepts only this host's own names, so that no web page reads it by DNS
    rebinding. A port that other hosts reach accepts any name: it cannot know the name that Prometheus uses, and any
    host may read it anyway.
    """
    host, _ = split_place(address)
    return Sites(
        frozenset({socket.gethostname().lower()}), bound=host.lower(), any_host=reaches_out(f"tcp://{address}")
    )


def listen(address: str, *, insecure: bool) -> Listening:
    """Return a listening socket.

    Raises:
        ConfigurationError: the address cannot be used, or other hosts could connect.
    """
    from pubsub.base.listening import listen_at  # noqa: PLC0415  most processes have no such port, nor asyncio

    remedy = "it checks no key; listen on 127.0.0.1, or allow other hosts by --insecure"
    return listen_at(address, insecure=insecure, option="--metrics", remedy=remedy, backlog=BACKLOG)


def said(metrics: Metrics | None) -> str:
    """Return the end of the line that a process prints when it is ready."""
    return "" if metrics is None else f", metrics {metrics.url}"
