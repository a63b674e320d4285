"""A receiver without tokens answers this machine's programs, and no page of another site."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pubsub.errors import ConfigurationError
from pubsub.http import Receiver
from tests.http.rig import QUICK, counting, serving


def status(tmp_path: Path, headers: dict[str, str], **options: Any) -> int:
    """What a put is answered that says so."""

    async def main() -> int:
        receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK, **options))
        async with serving(receiver) as url, httpx2.AsyncClient(timeout=120.0, trust_env=False) as client:
            here = headers.get("origin", "").replace("SELF", url)
            sent = {"idempotency-key": '"a"', **headers, **({"origin": here} if here else {})}
            return (await client.put(f"{url}/put", content=b"x", headers=sent)).status_code

    return asyncio.run(main())


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:8080", "origin": "http://evil.example:8080"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_of_other_sites_and_foreign_names_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    assert status(tmp_path, headers) == 403


@pytest.mark.parametrize("headers", [{}, {"host": "localhost"}, {"origin": "SELF", "sec-fetch-site": "same-origin"}])
def test_programs_and_pages_of_the_receiver_are_answered(tmp_path: Path, headers: dict[str, str]) -> None:
    assert status(tmp_path, headers) == 200


def test_an_allowed_host_is_accepted(tmp_path: Path) -> None:
    allowed = {"allow_hosts": ("orders.example",), "insecure": True}
    assert status(tmp_path / "1", {"host": "orders.example"}, **allowed) == 200
    assert status(tmp_path / "2", {"host": "evil.example"}, **allowed) == 403


def test_a_public_receiver_without_tokens_accepts_any_host_but_refuses_other_sites(tmp_path: Path) -> None:
    assert status(tmp_path / "1", {"host": "host.example"}, insecure=True) == 200
    assert status(tmp_path / "2", {"origin": "https://evil.example"}, insecure=True) == 403


def test_a_request_with_a_token_is_accepted_under_any_host(tmp_path: Path) -> None:
    tokens = {"tokens": {"alice": "secret-secret-secret"}}
    bearer = {"authorization": "Bearer secret-secret-secret"}
    assert status(tmp_path / "1", {"host": "host.example", **bearer}, **tokens) == 200
    assert status(tmp_path / "2", {"host": "evil.example"}, **tokens) == 401


def test_an_invalid_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="allow_hosts: a host is"):
        Receiver(tmp_path, allow_hosts=("http://x",))
