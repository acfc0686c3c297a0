from __future__ import annotations

import pytest

from kgw.config.web_url import WebUrl, parse_web_url


@pytest.mark.parametrize(
    ("text", "expected", "shown", "address"),
    [
        (
            "https://issuer.example/a/keys?tenant=secret",
            WebUrl("https", "issuer.example", 443, "/a/keys?tenant=secret"),
            "https://issuer.example/a/keys",
            "issuer.example",
        ),
        (
            "HTTPS://Issuer.Example:8443",
            WebUrl("https", "issuer.example", 8443, "/"),
            "https://issuer.example:8443/",
            "issuer.example:8443",
        ),
        (
            "https://[2001:db8::1]/k",
            WebUrl("https", "2001:db8::1", 443, "/k"),
            "https://[2001:db8::1]/k",
            "[2001:db8::1]",
        ),
        (
            "http://[::1]:8080/k",
            WebUrl("http", "::1", 8080, "/k"),
            "http://[::1]:8080/k",
            "[::1]:8080",
        ),
        (
            "http://127.0.0.1/k",
            WebUrl("http", "127.0.0.1", 80, "/k"),
            "http://127.0.0.1/k",
            "127.0.0.1",
        ),
        (
            "http://localhost:80/k",
            WebUrl("http", "localhost", 80, "/k"),
            "http://localhost/k",
            "localhost",
        ),
    ],
)
def test_urls(text: str, expected: WebUrl, shown: str, address: str) -> None:
    """The text form has no query; the address is that of a Host header."""
    url = parse_web_url(text)
    assert expected == url
    assert (shown, address) == (str(url), url.address)
    assert url.is_encrypted == (url.scheme == "https")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "https://"),
        ("issuer.example/keys", "https://"),
        ("file:///etc/keys.json", "https://"),
        ("ftp://issuer.example/keys", "https://"),
        ("data:application/json,{}", "https://"),
        ("http://issuer.example/keys", "this machine alone"),
        ("http://127.0.0.1.attacker.example/keys", "this machine alone"),
        ("http://169.254.169.254/latest", "this machine alone"),
        ("http://0.0.0.0/keys", "this machine alone"),
        ("http://127.0.0.1@attacker.example/keys", "user or a password"),
        ("https://canary:canary@issuer.example/keys", "user or a password"),
        ("https:///keys", "no host"),
        ("https://issuer.example:0/keys", "no host"),
        ("https://issuer.example:99999/keys", "no URL"),
        ("https://issuer.example:port/keys", "no URL"),
        ("https://[::1/keys", "no URL"),
        ("https://issuer.example/keys#canary", "#"),
        ("https://issuer.example/keys\r\nHost: a", "characters"),
        ("https://issuer.example\\@attacker.example/", "characters"),
        ("https://issuer.example/ke ys", "characters"),
        ("https://issüer.example/keys", "characters"),
    ],
)
def test_other_urls_are_refused(text: str, why: str) -> None:
    """The reason shows no part of the URL, which may have a password."""
    with pytest.raises(ValueError, match=why) as caught:
        parse_web_url(text)
    assert "canary" not in str(caught.value)
    assert "issuer" not in str(caught.value)
