"""Check the arguments of callers before anything is done; errors begin with the name of the argument."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from pubsub.base.limits import BATCH_BYTES_MAX, PROXIES_MAX
from pubsub.client.batch_contents import BatchContents
from pubsub.errors import CallerError, ConfigurationError, TooLarge
from pubsub.protocol import RECORD_BYTES_MAX, batch_size, encode_headers
from pubsub.protocol.names import is_reply_topic, is_service_topic

Headers = Mapping[str, bytes]
"""A message's headers, as callers give them."""

_BYTES: Final = (bytes, bytearray, memoryview)
_SEQUENCES: Final = (list, tuple)
"""A constant, since each evaluation of `list | tuple` builds a new object, and each put needs it."""


def _refuse(name: str, allowed: str, value: object) -> CallerError:
    return CallerError(f"{name} is {allowed}, not {type(value).__name__}")


def check_seconds(name: str, value: float | None) -> None:
    """Check that a value is a number of seconds from 0 to infinity, or None.

    Raises:
        CallerError: it is not.
    """
    if value is None or (type(value) is float and value >= 0.0):
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _refuse(name, "a number of seconds, or None", value)
    if math.isnan(value):
        raise CallerError(f"{name} is a number of seconds, or None, not NaN")
    if value < 0:
        raise CallerError(f"{name} is at least 0 s, not {value:g}; None means the value from the settings")


def check_count(name: str, value: int) -> None:
    """Check that a value is a whole number from 1.

    Raises:
        CallerError: it is not.
    """
    if type(value) is int and value >= 1:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse(name, "a whole number", value)
    if value < 1:
        raise CallerError(f"{name} is at least 1, not {value}")


def check_truth(name: str, value: bool) -> None:
    """Check that a value is True or False.

    Raises:
        CallerError: it is not.
    """
    if not isinstance(value, bool):
        raise _refuse(name, "True or False", value)


def check_kind(name: str, value: object, kind: type[Any], what: str) -> None:
    """Check that a value is of a kind, or None. `what` is the kind in the error's text.

    Raises:
        CallerError: it is not.
    """
    if value is not None and not isinstance(value, kind):
        raise _refuse(name, what, value)


def check_surroundings(recorder: object, clock: object, random: object, boot: object) -> None:
    """Check that the objects given to a client have the needed methods or types; each may be None.

    Raises:
        CallerError: one has not.
    """
    for name, value, methods in (("recorder", recorder, ("write", "close")), ("clock", clock, ("monotonic", "wall"))):
        if value is None or (name == "recorder" and isinstance(value, str | Path)):
            continue
        if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
            kind = "a path, or a RecordSink" if name == "recorder" else "a Clock"
            raise _refuse(name, f"{kind} (with {' and '.join(methods)})", value)
    check_kind("random", random, Random, "a random.Random")
    check_kind("boot", boot, str, "text")


def check_path(name: str, value: Path | str) -> Path:
    """Return a path, from a path or a text.

    Raises:
        CallerError: it is of another type.
    """
    if not isinstance(value, str | Path):
        raise _refuse(name, "a path", value)
    return Path(value)


def check_proxies(proxies: Sequence[str]) -> Sequence[str]:
    """Return the addresses as a tuple.

    Raises:
        CallerError: they are not text.
        ConfigurationError: there are none.
    """
    found = (proxies,) if isinstance(proxies, str) else tuple(proxies) if isinstance(proxies, Iterable) else proxies
    if not isinstance(found, tuple) or not all(isinstance(proxy, str) for proxy in found):
        raise _refuse("proxies", "a sequence of addresses (text)", proxies)
    if not found:
        raise ConfigurationError(f"a client needs 1 to {PROXIES_MAX} proxies; none is named")
    return found


def check_body(body: bytes, name: str = "body") -> bytes:
    """Return the body as bytes.

    Raises:
        CallerError: it is not bytes.
        TooLarge: it does not fit into a batch.
    """
    if type(body) is not bytes:
        if not isinstance(body, _BYTES):
            hint = "; encode it: text.encode()" if isinstance(body, str) else ""
            raise CallerError(f"{name} is bytes, not {type(body).__name__}{hint}")
        body = body if isinstance(body, bytes) else bytes(body)
    if len(body) > RECORD_BYTES_MAX:
        raise TooLarge(name, len(body), RECORD_BYTES_MAX, "RECORD_BYTES_MAX")
    return body


def check_bodies(bodies: Iterable[bytes]) -> Sequence[bytes]:
    """Return the bodies as a sequence of bytes.

    Raises:
        CallerError: there is a single body instead of a sequence, or one is not bytes.
        TooLarge: one does not fit into a batch.
    """
    if not isinstance(bodies, _SEQUENCES) and isinstance(bodies, str | bytes | bytearray | memoryview):
        raise CallerError(f"bodies is a sequence of bytes, not {type(bodies).__name__}; put takes a single one")
    if not isinstance(bodies, _SEQUENCES):
        if not isinstance(bodies, Iterable):
            raise _refuse("bodies", "a sequence of bytes", bodies)
        bodies = list(bodies)
    if set(map(type, bodies)) <= {bytes} and batch_size(1, sum(map(len, bodies))) <= BATCH_BYTES_MAX:
        return bodies
    return [check_body(body, f"bodies[{at}]" if len(bodies) > 1 else "body") for at, body in enumerate(bodies)]


def check_key(key: bytes, name: str = "key") -> bytes:
    """Return the key as bytes.

    Raises:
        CallerError: it is not bytes.
    """
    if not isinstance(key, _BYTES):
        hint = "; encode it: text.encode()" if isinstance(key, str) else ""
        raise CallerError(f"{name} is bytes, not {type(key).__name__}{hint}")
    return bytes(key)


def check_headers(headers: Headers | None, name: str = "headers") -> bytes:
    """Encode headers as a batch holds them; None means no headers.

    Raises:
        CallerError: they are not a mapping of names to bytes.
        InvalidName, TooLarge: a name is not allowed, or there are too many bytes or names.
    """
    if not headers and (headers is None or isinstance(headers, Mapping)):
        return b""
    if not isinstance(headers, Mapping):
        raise _refuse(name, "a mapping of names to bytes, or None", headers)
    for header, value in headers.items():
        if not isinstance(header, str):
            raise _refuse(f"a name in {name}", "text", header)
        if not isinstance(value, _BYTES):
            hint = "; encode it: text.encode()" if isinstance(value, str) else ""
            raise CallerError(f"{name}[{header!r}] is bytes, not {type(value).__name__}{hint}")
    return encode_headers({header: bytes(value) for header, value in headers.items()})


def check_contents(
    bodies: Iterable[bytes], keys: Sequence[bytes] = (), headers: Sequence[Headers | None] = ()
) -> BatchContents:
    """Check the contents of a put: the bodies, and the keys and headers of each message.

    Raises:
        CallerError: a value has a wrong type, or the number of keys or headers differs from the number of messages.
        TooLarge: a message does not fit into a batch, or its headers are too many.
        InvalidName: a header's name is not allowed.
    """
    found = check_bodies(bodies)
    if not keys and not headers:
        return BatchContents(found)
    for name, values in (("keys", keys), ("headers", headers)):
        if not isinstance(values, _SEQUENCES):
            raise _refuse(name, "a list or tuple with one for each message", values)
        if values and len(values) != len(found):
            raise CallerError(f"{name} has one for each message, or none: {len(values)} for {len(found)} messages")
    which = (lambda at: "") if len(found) == 1 else "[{}]".format
    blocks = [check_headers(each, f"headers{which(at)}") for at, each in enumerate(headers)]
    checked = [check_key(each, f"key{which(at)}") for at, each in enumerate(keys)]
    return BatchContents(found, checked if any(checked) else (), blocks if any(blocks) else ())


def metadata_of(key: bytes, headers: Headers | None) -> tuple[Sequence[bytes], Sequence[Headers | None]]:
    """Return the keys and headers of one message; empty ones spare a plain put further checks."""
    if key == b"" and headers is None:
        return (), ()
    return (key,), (headers,)


def check_not_of_calls(topic: str) -> None:
    """Check that a topic is not one of calls: only `serve` and `reply` take from those.

    Raises:
        CallerError: it is.
    """
    if isinstance(topic, str) and topic.startswith("$") and (is_service_topic(topic) or is_reply_topic(topic)):
        raise CallerError(f"{topic} is a topic of calls: use call, reply or serve")
