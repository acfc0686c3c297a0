"""`python -m kgw.admin.probe [PATH]`: checks whether the gateway is ready.

It is the health check of the container image.

It requests `/health/ready`, or PATH. It imports few modules, because it runs every ten seconds.
"""

import os
import socket
import sys

DEFAULT_LISTENER = "127.0.0.1:9644"
PATH = "/health/ready"
TIMEOUT_S = 4.0
ANSWER_BYTES = 4096


def has_tls(listeners: str) -> bool:
    """Return whether the first admin listener has TLS."""
    return listeners.strip().startswith("https://")


def admin_address(listeners: str) -> tuple[str, int]:
    """Return the host and port of the first admin listener. Raises ValueError."""
    first = listeners.split(",", 1)[0].strip().rsplit("://", 1)[-1]
    host, _, port = first.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"KGW_ADMIN_LISTENERS={listeners}: the first has no HOST:PORT to ask")
    host = host.strip("[]")
    # Replace "all addresses" by the loopback address, which the admin listener accepts as Host.
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)  # noqa: S104 - replaced


def status_of(answer: bytes) -> int:
    """Return the status of an HTTP response.

    Raises ValueError if the bytes are not an HTTP response.
    """
    words = answer.split(b"\r\n", 1)[0].split(b" ")
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError("what answers there speaks no HTTP")
    return int(words[1])


def ask(host: str, port: int, path: str, *, tls: bool = False) -> bytes:
    """Request a path, and return the response. Raises OSError."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = b""
    with (
        socket.create_connection((host, port), TIMEOUT_S) as plain,
        _encrypted(plain) if tls else plain as connection,
    ):
        connection.sendall(request.encode("ascii"))
        while len(answer) < ANSWER_BYTES and (chunk := connection.recv(ANSWER_BYTES)):
            answer += chunk
    return answer


def _encrypted(plain: socket.socket) -> socket.socket:
    """Return a connection with TLS, whoever the certificate names.

    As with a probe of Kubernetes, nothing secret is sent, and the answer is a status: the
    certificate names the server as its clients know it, which is not the loopback address.
    """
    # Imported here: most listeners have no TLS.
    from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, SSLContext

    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = CERT_NONE
    return context.wrap_socket(plain)


def main(path: str = PATH) -> int:
    """Return 0 if the response has status 200, else 1; print the response in one line."""
    try:
        listeners = os.environ.get("KGW_ADMIN_LISTENERS", DEFAULT_LISTENER)
        host, port = admin_address(listeners)
        answer = ask(host, port, path, tls=has_tls(listeners))
        status = status_of(answer)
    except (OSError, ValueError) as error:
        print(f"not ready: {error}")  # noqa: T201 - kept by the engine with the state
        return 1
    body = answer.partition(b"\r\n\r\n")[2].decode("utf-8", "replace").strip()
    print(body or f"status {status}")  # noqa: T201 - kept by the engine with the state
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
