"""The health check of the image: what it asks, and what it makes of the answer."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from socket import create_server
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from kgw.admin import probe
from tests.security.tls.handshakes import options, pki, server_context

if TYPE_CHECKING:
    from socket import socket

ALLOWED = {"kgw", "kgw.admin"}


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("127.0.0.1:9644", ("127.0.0.1", 9644)),
        ("ADMIN://localhost:1, 127.0.0.1:2", ("localhost", 1)),
        ("[::1]:9644", ("::1", 9644)),
        ("0.0.0.0:9644", ("127.0.0.1", 9644)),
        ("[::]:9644", ("::1", 9644)),
        (":9644", ("127.0.0.1", 9644)),
    ],
)
def test_whom_it_asks(listeners: str, expected: tuple[str, int]) -> None:
    """The first listener, by an address that is this machine's."""
    assert expected == probe.admin_address(listeners)


def test_listeners_with_tls() -> None:
    """The first listener says whether it has TLS."""
    assert probe.has_tls("https://0.0.0.0:9644,127.0.0.1:9645")
    assert not probe.has_tls("127.0.0.1:9645,https://0.0.0.0:9644")
    assert not probe.has_tls("http://127.0.0.1:9645")
    assert ("127.0.0.1", 9644) == probe.admin_address("https://0.0.0.0:9644,127.0.0.1:9645")


@pytest.mark.parametrize("listeners", ["", "localhost", "localhost:0", "localhost:x", "::1:70000"])
def test_nobody_to_ask(listeners: str) -> None:
    """Without a port there is nobody to ask, which is said with the variable's name."""
    with pytest.raises(ValueError, match="KGW_ADMIN_LISTENERS="):
        probe.admin_address(listeners)


def test_status() -> None:
    """Of HTTP the first line counts; anything else is no answer."""
    assert 503 == probe.status_of(b"HTTP/1.1 503 Service Unavailable\r\n\r\n{}")
    for answer in (b"", b"\0\0\0\4", b"HTTP/1.1", b"HTTP/1.1 x\r\n"):
        with pytest.raises(ValueError, match="no HTTP"):
            probe.status_of(answer)


def _answer_once(server: socket, answer: bytes, requests: list[bytes] | None = None) -> None:
    request = b""
    connection, _ = server.accept()
    with connection:
        while not request.endswith(b"\r\n\r\n"):
            request += connection.recv(4096)
        connection.sendall(answer)
    if requests is not None:
        requests.append(request)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"ready":true}\n', 0, '{"ready":true}'),
        (b'HTTP/1.1 503 No\r\n\r\n{"ready":false}', 1, '{"ready":false}'),
        (b"HTTP/1.1 204 Nothing\r\n\r\n", 1, "status 204"),
        (b"\0\0\0\4", 1, "not ready: what answers there speaks no HTTP"),
        (b"", 1, "not ready: what answers there speaks no HTTP"),
    ],
)
def test_answers(
    answer: bytes,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 where it is ready, else 1, with a line that the engine keeps."""
    with create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("KGW_ADMIN_LISTENERS", f"127.0.0.1:{server.getsockname()[1]}")
        answering = Thread(target=_answer_once, args=(server, answer))
        answering.start()
        assert code == probe.main()
        answering.join()
    assert f"{said}\n" == capsys.readouterr().out


def test_tls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A certificate names the server as clients know it: the status is taken all the same."""
    with create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("KGW_ADMIN_LISTENERS", f"https://127.0.0.1:{port}")
        secured = server_context(options(pki().other_server)).wrap_socket(server, server_side=True)
        with secured:
            answering = Thread(
                target=_answer_once, args=(secured, b'HTTP/1.1 200 OK\r\n\r\n{"ready":true}')
            )
            answering.start()
            assert 0 == probe.main()
            answering.join()
    assert '{"ready":true}\n' == capsys.readouterr().out


def test_another_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that stands by is asked whether it lives."""
    with create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("KGW_ADMIN_LISTENERS", f"127.0.0.1:{server.getsockname()[1]}")
        requests: list[bytes] = []
        answer = b"HTTP/1.1 200 OK\r\n\r\n"
        answering = Thread(target=_answer_once, args=(server, answer, requests))
        answering.start()
        assert 0 == probe.main("/health/live")
        answering.join()
    assert [b"GET /health/live HTTP/1.1"] == [one.split(b"\r\n")[0] for one in requests]


def test_nobody_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed port is not ready, which a start is until the admin side is open."""
    with closing(create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("KGW_ADMIN_LISTENERS", f"127.0.0.1:{port}")
    assert 1 == probe.main()
    assert capsys.readouterr().out.startswith("not ready: [Errno ")


def test_imports() -> None:
    """It imports nothing of kgw but itself: it runs every ten seconds."""
    program = "import sys; import kgw.admin.probe; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] == "kgw"}
    assert ALLOWED | {"kgw.admin.probe"} == loaded
    assert not {"asyncio", "http", "json", "ssl", "urllib"} & set(done.stdout.split())
