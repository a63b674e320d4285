"""The environment variables of programs that use HTTP: proxies and certificates.

    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY     for requests to other hosts; requests to this host go there directly
    SSL_CERT_FILE SSL_CERT_DIR                    trusted certificates, instead of the system's
    SSLKEYLOGFILE                                 never used

The error for an unusable variable names it in one sentence. It is raised only if the variable is needed.
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
    """Return whether a request to a URL uses no proxy, because it goes to this host."""
    try:
        return is_loopback((urlsplit(url).hostname or "").removesuffix("."))
    except ValueError:
        return False


def trusted(ca: Path | str | None = None) -> ssl.SSLContext | bool:
    """Return the trusted certificates for TLS, in the form of httpx2: of a file, of the environment, or of the system.

    `ssl.create_default_context` is not used, because it also opens the file in SSLKEYLOGFILE and fails if it cannot.

    Args:
        ca: a file that replaces all others.

    Returns:
        A context; True for the system's certificates.

    Raises:
        ConfigurationError: the file, or the value of a variable, has no certificates.
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
    """Return a context that trusts no certificate, for requests without TLS. It reads no file."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def proxy_refused(error: Exception) -> ConfigurationError:
    """Return the error about the proxies in the environment, for the error of a client that was to use them."""
    given = {name: os.environ.get(name) or os.environ.get(name.lower()) for name in PROXIES}
    named = ", ".join(f"{name}={masked(value)}" for name, value in given.items() if value)
    reason = " ".join(str(error).split()) or type(error).__name__
    return ConfigurationError(f"{named or 'a proxy of the environment'} cannot be used: {reason}")
