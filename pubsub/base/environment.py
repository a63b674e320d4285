"""What the environment says to programs that speak HTTP: proxies and certificates, which may lead nowhere.

    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY     of requests to other hosts; those to this host go there directly
    SSL_CERT_FILE SSL_CERT_DIR                    certificates that are trusted, instead of the system's
    SSLKEYLOGFILE                                 never used

A variable that cannot be used is named in one sentence, and only where it is needed.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pubsub.base.sites import is_loopback
from pubsub.base.urls import masked
from pubsub.errors import ConfigurationError

PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def is_direct(url: str) -> bool:
    """Whether a request to a URL goes there without a proxy: to this host."""
    try:
        return is_loopback((urlsplit(url).hostname or "").removesuffix("."))
    except ValueError:
        return False


def trusted(ca: Path | str | None = None) -> ssl.SSLContext | bool:
    """Whom to trust in TLS, as httpx2 takes it: the certificates of a file, of the environment, or of the system.

    `ssl.create_default_context` also opens the file that SSLKEYLOGFILE names, and fails where it cannot.

    Args:
        ca: the file, instead of all others.

    Returns:
        A context; True: as the system has it.

    Raises:
        ConfigurationError: the file, or what a variable names, holds none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is not None:
        _load(context, str(ca), str(ca), None)
    elif file := os.environ.get("SSL_CERT_FILE"):
        _load(context, f"SSL_CERT_FILE={file}", file, None)
    elif folder := os.environ.get("SSL_CERT_DIR"):
        _load(context, f"SSL_CERT_DIR={folder}", None, folder)
    else:
        return True
    return context


def _load(context: ssl.SSLContext, named: str, file: str | None, folder: str | None) -> None:
    try:
        if folder is not None and not all(map(os.path.isdir, folder.split(os.pathsep))):
            raise FileNotFoundError(0, "it is no directory")
        context.load_verify_locations(file, folder)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"{named} holds no certificates that can be trusted: {reason}") from None


def plain() -> ssl.SSLContext:
    """A context that trusts nobody, for requests without TLS: no file is read for it."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def proxy_refused(error: Exception) -> ConfigurationError:
    """What is wrong with the proxies that the environment names, by the error of a client that was to use them."""
    given = {name: os.environ.get(name) or os.environ.get(name.lower()) for name in PROXIES}
    named = ", ".join(f"{name}={masked(value)}" for name, value in given.items() if value)
    reason = " ".join(str(error).split()) or type(error).__name__
    return ConfigurationError(f"{named or 'a proxy of the environment'} cannot be used: {reason}")
