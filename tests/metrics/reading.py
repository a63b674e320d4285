"""Reading metrics as Prometheus does."""

from __future__ import annotations

import socket
from urllib.error import HTTPError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    """Each sample by its name and the values of its labels."""
    families = text_string_to_metric_families(text)
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


def read(url: str, path: str = "/metrics", seconds: float = 120.0) -> tuple[int, str]:
    """Status and body of a page; `url` is that of the metrics."""
    try:
        with urlopen(url.removesuffix("/metrics") + path, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def connect(url: str, seconds: float = 120.0) -> socket.socket:
    """A connection that says nothing yet."""
    host, _, port = url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=seconds)


def said(sock: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    found = b""
    try:
        while piece := sock.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found
