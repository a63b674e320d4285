"""The requests that are answered, by their origin in a browser's headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.sites import Asked, Sites, asked, parse_host, parse_origin

SITES = Sites.of(
    ["pubsub.example", "2001:db8::1"], ["https://app.example", "http://localhost:3000"], bound="bound.example"
)
HERE = "127.0.0.1:8080"


def refused(sites: Sites = SITES, reached: str = "10.0.0.7", **said: str) -> bool:
    headers = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in said.items()]
    return bool(sites.refusal(asked(headers), reached))


@pytest.mark.parametrize("host", [
    "localhost", "localhost:8080", "LOCALHOST:80", "localhost.", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]",
    "[::1]:8080", "[0:0:0:0:0:0:0:1]:8080", "pubsub.example", "PubSub.Example:9000", "[2001:db8::1]:8080",
    "[2001:DB8:0::1]", "bound.example:8080", "10.0.0.7:8080", "",
])  # fmt: skip
def test_loopback_names_and_named_hosts_are_accepted(host: str) -> None:
    assert not refused(host=host)


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:8080", "localhost.evil.example", "evil-localhost", "127.0.0.1.evil.example",
    "10.0.0.8", "0.0.0.0:8080", "[::]:8080", "[::2]:8080", "app.example", "pubsub.example.evil.example",
    "x@localhost", "localhost:x",
    "localhost:", "localhost:8080:8080", "localhost/", "localhost evil.example", "::1", "[::1", "127.1", "2130706433",
    "0x7f.0.0.1", "local\xadhost", ",localhost", "localhost,evil.example",
])  # fmt: skip
def test_any_other_host_is_refused(host: str) -> None:
    assert refused(host=host)


@pytest.mark.parametrize(("host", "origin"), [
    (HERE, "http://127.0.0.1:8080"), (HERE, "https://127.0.0.1:8080"), ("localhost", "http://localhost"),
    ("localhost:80", "http://localhost"), ("localhost:443", "https://localhost"), ("[::1]:8080", "http://[::1]:8080"),
    ("LocalHost:8080", "http://localhost:8080"), ("pubsub.example:8080", "http://pubsub.example:8080"),
    (HERE, "https://pubsub.example"), (HERE, "https://app.example"), (HERE, "http://localhost:3000"),
])  # fmt: skip
def test_pages_of_the_process_and_of_named_sites_are_accepted(host: str, origin: str) -> None:
    assert not refused(host=host, origin=origin)
    assert not refused(host=host, origin=origin, sec_fetch_site="same-origin")


@pytest.mark.parametrize("origin", [
    "null", "", "http://127.0.0.1:8081", "http://127.0.0.1", "https://127.0.0.1", "http://localhost:8080", "http://evil.example",
    "http://127.0.0.1:8080.evil.example", "http://127.0.0.1:8080@evil.example", "http://evil.example:8080", "file://",
    "http://app.example", "https://app.example:8443", "https://app.example.evil.example", "https://x.app.example",
    "https://pubsub.example:8443", "http://bound.example", "chrome-extension://abc", "127.0.0.1:8080", "http://127.0.0.1:8080/",
    "HTTPS://APP.EXAMPLE/", "https://app.example https://app.example",
])  # fmt: skip
def test_pages_of_any_other_site_are_refused(origin: str) -> None:
    assert refused(host=HERE, origin=origin)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "Same-Origin", "anything", "none, cross-site"])
def test_a_cross_site_request_is_refused_unless_its_origin_is_named(site: str) -> None:
    assert refused(host=HERE, sec_fetch_site=site)
    assert refused(host=HERE, origin="http://127.0.0.1:8080", sec_fetch_site=site)
    assert not refused(host=HERE, origin="https://app.example", sec_fetch_site=site)


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_request_of_a_person_or_of_the_same_page_is_answered(site: str) -> None:
    assert not refused(host=HERE, sec_fetch_site=site)


def test_a_program_without_these_headers_is_answered() -> None:
    assert not refused()
    assert not refused(Sites())


def test_a_repeated_header_is_refused() -> None:
    assert SITES.refusal(Asked(("localhost", "localhost"), (), ()))
    assert SITES.refusal(Asked((HERE,), ("http://127.0.0.1:8080",) * 2, ()))
    assert SITES.refusal(Asked((HERE,), (), ("same-origin", "cross-site")))


def test_pages_of_other_sites_are_refused_though_any_host_is_accepted() -> None:
    for sites in (Sites.of(["*"], []), Sites(any_host=True)):
        assert not refused(sites, host="evil.example")
        assert not refused(sites, host="public.example", origin="https://public.example")
        assert refused(sites, host="public.example", origin="https://evil.example")
        assert refused(sites, host="public.example", sec_fetch_site="cross-site")


@pytest.mark.parametrize(("text", "host"), [
    ("Pubsub.Example", "pubsub.example"), ("::1", "::1"), ("[2001:DB8::0]", "2001:db8::"), ("10.0.0.1", "10.0.0.1"),
    ("*", "*"), ("a.b.", "a.b"),
])  # fmt: skip
def test_a_host_is_a_name_or_an_address(text: str, host: str) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize("text", ["", "http://a", "a:80", "[::1]:80", "a b", "a/b", "*.example", "a@b"])
def test_an_invalid_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a host is"):
        parse_host(text)


@pytest.mark.parametrize(("text", "origin"), [
    ("https://App.Example", "https://app.example"), ("https://app.example:443/", "https://app.example"),
    ("http://a:80", "http://a"), ("http://a:443", "http://a:443"), ("http://[::1]:3000", "http://[::1]:3000"),
])  # fmt: skip
def test_an_origin_is_written_as_browsers_write_it(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text", ["", "*", "null", "app.example", "ftp://a", "http://", "http://a/b", "http://a b", "http://u@a"]
)
def test_an_invalid_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an origin is"):
        parse_origin(text)


@given(st.lists(st.tuples(st.sampled_from(["host", "origin", "sec-fetch-site"]), st.binary(max_size=30)), max_size=4))
def test_any_headers_are_accepted_or_refused_in_one_line(said: list[tuple[str, bytes]]) -> None:
    found = SITES.refusal(asked([(name.encode(), value) for name, value in said]))
    assert found.isprintable()
