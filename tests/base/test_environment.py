"""Variables of the environment that lead nowhere are named where they are needed, and do no harm where they are not."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pubsub.base.environment import is_direct, plain, proxy_refused, trusted
from pubsub.errors import ConfigurationError

CERTIFICATE = Path(__file__).parents[1] / "gateway" / "localhost.pem"


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(("url", "direct"), [
    ("http://127.0.0.1:8080/x", True), ("https://LOCALHOST", True), ("http://localhost.:80", True),
    ("http://[::1]:1", True), ("http://u:p@127.0.0.9", True), ("http://a.example", False),
    ("http://127.0.0.1.a.example", False), ("http://[", False), ("", False), ("http://10.0.0.1", False),
])  # fmt: skip
def test_hosts_of_this_machine_are_reached_without_a_proxy(url: str, direct: bool) -> None:
    assert is_direct(url) == direct


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificate_paths_that_do_not_exist_are_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match=f"^{name}=.*nowhere holds no certificates"):
        trusted()
    plain()


def test_a_file_of_no_certificates_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("none")
    for path in (tmp_path / "ca", tmp_path / "nowhere"):
        with pytest.raises(ConfigurationError, match=f"^{path} holds no certificates"):
            trusted(path)


def test_certificates_of_the_environment_are_trusted_and_a_log_of_keys_is_never_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "nowhere" / "keys"))
    assert trusted() is True
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    for context in (trusted(), trusted(CERTIFICATE)):
        assert isinstance(context, ssl.SSLContext)
        assert context.get_ca_certs()
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert isinstance(trusted(), ssl.SSLContext)


def test_an_unusable_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:Passw0rd@127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "foo://x")
    said = str(proxy_refused(ImportError("no\nsocks")))
    assert said == "HTTP_PROXY=foo://x, ALL_PROXY=socks5://***@127.0.0.1:9 cannot be used: no socks"
