"""Golden frames of every message of MDP 0.1 and 0.2, and the mistakes in invalid ones."""

from __future__ import annotations

import pytest

from pubsub.services.core.majordomo.messages import (
    BARE,
    CLIENT_DIALECTS,
    DELIMITED,
    SERVICE_BYTES_MAX,
    WORKER_DIALECTS,
    ClientDialect,
    WorkerDialect,
    dialect_of,
    is_name,
    ready,
    reply,
    request,
    wrong_with_reply,
    wrong_with_request,
)

W1, W2, C1, C2 = WORKER_DIALECTS[1], WORKER_DIALECTS[2], CLIENT_DIALECTS[1], CLIENT_DIALECTS[2]


@pytest.mark.parametrize(
    ("frames", "golden"),
    [
        (request(C1, b"echo", (b"a", b"b")), [b"", b"MDPC01", b"echo", b"a", b"b"]),
        ((*C1.final, b"echo", b"a"), [b"", b"MDPC01", b"echo", b"a"]),
        (request(C2, b"echo", (b"a", b"b")), [b"MDPC02", b"\x01", b"echo", b"a", b"b"]),
        ((*(C2.partial or ()), b"echo", b"a"), [b"MDPC02", b"\x02", b"echo", b"a"]),
        ((*C2.final, b"echo", b"a"), [b"MDPC02", b"\x03", b"echo", b"a"]),
        (ready(W1, b"echo"), [b"", b"MDPW01", b"\x01", b"echo"]),
        ((*W1.to_worker, b"c", b"", b"a"), [b"", b"MDPW01", b"\x02", b"c", b"", b"a"]),
        (reply(W1, W1.final, b"c", (b"a", b"b")), [b"", b"MDPW01", b"\x03", b"c", b"", b"a", b"b"]),
        (W1.beat, [b"", b"MDPW01", b"\x04"]),
        (W1.bye, [b"", b"MDPW01", b"\x05"]),
        (ready(W2, b"echo"), [b"MDPW02", b"\x01", b"echo"]),
        ((*W2.to_worker, b"c", b"", b"a"), [b"MDPW02", b"\x02", b"c", b"", b"a"]),
        (reply(W2, W2.partial, b"c", (b"a",)), [b"MDPW02", b"\x03", b"c", b"", b"a"]),
        (reply(W2, W2.final, b"c", (b"a",)), [b"MDPW02", b"\x04", b"c", b"", b"a"]),
        (W2.beat, [b"MDPW02", b"\x05"]),
        (W2.bye, [b"MDPW02", b"\x06"]),
    ],
)
def test_each_message_has_the_frames_of_the_documents(frames: tuple[bytes, ...], golden: list[bytes]) -> None:
    assert list(frames) == golden


def test_version_1_has_no_parts() -> None:
    assert C1.partial is None
    assert W1.partial == b""


@pytest.mark.parametrize(
    ("frames", "dialect"),
    [
        ([b"", b"MDPC01", b"x"], C1),
        ([b"", b"MDPW01"], W1),
        ([b"MDPC02"], C2),
        ([b"MDPW02", b"\x01"], W2),
        ([b"", b"MDPC02"], DELIMITED[b"MDPC02"]),
        ([b"", b"MDPW02"], DELIMITED[b"MDPW02"]),
        ([b""], None),
        ([b"MDPC01"], None),
        ([b"MDPW01"], None),
        ([b"", b""], None),
        ([b"", b"MDPC03"], None),
        ([b"x", b"MDPC01"], None),
    ],
)
def test_the_dialect_is_recognized_by_the_first_frames(
    frames: list[bytes], dialect: ClientDialect | WorkerDialect | None
) -> None:
    assert dialect_of(frames) is dialect
    assert len(BARE) == 2


@pytest.mark.parametrize(
    ("frames", "wrong"),
    [
        ([b"", b"MDPC01"], "no_service"),
        ([b"", b"MDPC01", b"echo"], "no_body"),
        ([b"", b"MDPC01", b"echo", b""], ""),
        ([b"MDPC02"], "command"),
        ([b"MDPC02", b"\x01"], "no_service"),
        ([b"MDPC02", b"\x02", b"echo", b"x"], "command"),
        ([b"MDPC02", b"\x01", b"echo"], "no_body"),
        ([b"MDPC02", b"\x01", b"echo", b"x"], ""),
    ],
)
def test_the_mistake_in_a_request_is_named(frames: list[bytes], wrong: str) -> None:
    dialect = dialect_of(frames)
    assert isinstance(dialect, ClientDialect)
    assert wrong_with_request(dialect, frames) == wrong


@pytest.mark.parametrize(
    ("rest", "wrong"),
    [
        ([], "no_address"),
        ([b"c"], "no_address"),
        ([b"c", b"x", b"y"], "no_address"),
        ([b"", b"", b"x"], "address"),
        ([b"c" * 256, b"", b"x"], "address"),
        ([b"c", b""], "no_body"),
        ([b"c", b"", b""], ""),
    ],
)
@pytest.mark.parametrize("dialect", [W1, W2])
def test_the_mistake_in_a_reply_is_named(dialect: WorkerDialect, rest: list[bytes], wrong: str) -> None:
    assert wrong_with_reply(dialect, [*dialect.lead, dialect.final, *rest]) == wrong


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        (b"echo", True),
        ("größe".encode(), True),
        (b"with space", True),
        (b"x" * SERVICE_BYTES_MAX, True),
        (b"x" * (SERVICE_BYTES_MAX + 1), False),
        (b"", False),
        (b"\x00", False),
        (b"a\nb", False),
        (b"\xff", False),
    ],
)
def test_a_name_is_printable_and_bounded(name: bytes, *, allowed: bool) -> None:
    assert is_name(name) is allowed
