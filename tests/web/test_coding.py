"""Bodies in a content coding: every split gives the same, and foreign bytes are noticed."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from pubsub.web.coding import MEMBERS_MAX, PIECE_BYTES_MAX, Corrupt, Decoder, coding_of

TEXT = b"".join(b'{"i":%d}\n' % number for number in range(3000))


def raw(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


FORMS = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "gzip in members": ("gzip", gzip.compress(TEXT[:100]) + gzip.compress(b"") + gzip.compress(TEXT[100:])),
    "gzip stored": ("gzip", gzip.compress(TEXT, 0)),
    "zlib": ("deflate", zlib.compress(TEXT)),
    "raw deflate": ("deflate", raw(TEXT)),
}


def decoded(coding: str, *parts: bytes) -> bytes:
    decoder = Decoder(coding)
    found = b"".join(piece for part in parts for piece in decoder.feed(part))
    decoder.finish()
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_body_is_decoded_in_any_pieces(form: str) -> None:
    coding, body = FORMS[form]
    assert decoded(coding, body) == TEXT
    assert decoded(coding, *(bytes([byte]) for byte in body[:3]), b"", body[3:]) == TEXT
    chance = random.Random(7)
    for _ in range(20):
        places = sorted(chance.sample(range(len(body)), 5))
        assert decoded(coding, *(body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True))) == TEXT


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX])
def test_no_piece_is_larger_than_the_limit_and_none_is_left_behind(size: int) -> None:
    content = b"x" * size
    for coding, body in (
        ("gzip", gzip.compress(content)),
        ("deflate", zlib.compress(content)),
        ("deflate", raw(content)),
    ):
        decoder = Decoder(coding)
        found = list(decoder.feed(body))
        decoder.finish()
        assert all(len(piece) <= PIECE_BYTES_MAX for piece in found)
        assert b"".join(found) == content


@pytest.mark.parametrize("form", FORMS)
def test_a_body_that_is_cut_off_changed_or_followed_by_more_is_corrupt(form: str) -> None:
    coding, body = FORMS[form]
    for bad in (b"", body[:1], body[: len(body) // 2], body[:-1], body + b"more"):
        with pytest.raises(Corrupt):
            decoded(coding, bad)
    if form != "raw deflate":  # It has no sum.
        with pytest.raises(Corrupt):
            decoded(coding, body[:-6] + bytes([body[-6] ^ 1]) + body[-5:])


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bytes_in_no_coding_are_corrupt(coding: str) -> None:
    for bad in (b"\x07not compressed", b"\xff" * 100, b"\x1f\x8b\x08", TEXT):
        with pytest.raises(Corrupt):
            decoded(coding, bad)


def test_members_are_bounded() -> None:
    assert decoded("gzip", gzip.compress(b"a") * MEMBERS_MAX) == b"a" * MEMBERS_MAX
    with pytest.raises(Corrupt, match="bytes follow its end"):
        decoded("gzip", gzip.compress(b"a") * (MEMBERS_MAX + 1))


@pytest.mark.parametrize(
    ("value", "coding"),
    [("", ""), ("identity", ""), ("gzip", "gzip"), (" GZIP ", "gzip"), ("x-gzip", "gzip"), ("Deflate", "deflate"),
     ("br", None), ("zstd", None), ("gzip, gzip", None), ("gzip,identity", None), ("compress", None)],
)  # fmt: skip
def test_codings_are_known_by_their_names(value: str, coding: str | None) -> None:
    assert coding_of(value) == coding
