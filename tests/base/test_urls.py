"""The shown part of a URL: neither its user and password nor its query."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.urls import is_masked, mask_logged_urls, masked, scrubbed

SECRET = st.text(st.characters(codec="ascii", exclude_characters="@/?#*", categories=("L", "N")), min_size=8)


@pytest.mark.parametrize(("url", "shown"), [
    ("http://a.example/hook", "http://a.example/hook"),
    ("https://u:pass@a.example:8443/hook", "https://***@a.example:8443/hook"),
    ("https://token@a.example", "https://***@a.example"),
    ("https://a.example/hook?key=1&b=2", "https://a.example/hook?***"),
    ("https://u:p@[::1]:80/x?k#f", "https://***@[::1]:80/x?***#***"),
    ("http://u:p@@a/", "http://***@a/"),
    ("nothing?key=1", "nothing?***"),
])  # fmt: skip
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert is_masked(shown) == (shown != url and "://" in url)
    assert masked(shown) == shown


@given(SECRET, SECRET)
def test_an_error_shows_no_secret_of_a_url(password: str, query: str) -> None:
    url = f"https://user:{password}@a.example/hook?{query}"
    for text in (url, f"cannot reach {url} now", f"no such host: user:{password}@a.example", f"bad {query} there"):
        assert password not in scrubbed(text, url).replace("a.example", "")
        assert query not in scrubbed(text, url).replace("a.example", "")


def test_urls_in_the_log_of_httpx2_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    mask_logged_urls()
    with caplog.at_level(logging.INFO, "httpx2"):
        logging.getLogger("httpx2").info('HTTP Request: %s %s "%d"', "POST", "https://u:p@a/x?key=1", 200)
    assert caplog.messages == ['HTTP Request: POST https://***@a/x?*** "200"']
