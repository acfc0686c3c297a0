"""Texts for the errors of a connection: the reason of the system, and the protocol of a peer."""

from __future__ import annotations


def describe(error: OSError) -> str:
    """Return the system's reason in a few words."""
    from os import strerror
    from socket import gaierror

    if isinstance(error, gaierror):
        return "the host name is not known"
    if error.errno is not None:
        return strerror(error.errno).lower()
    return str(error) or type(error).__name__


def is_of_handshake(error: OSError) -> bool:
    """Return whether a connection was made, and the TLS handshake has failed."""
    from ssl import SSLError

    return isinstance(error, (SSLError, ConnectionResetError, ConnectionAbortedError))


def is_tls_record(first_bytes: bytes) -> bool:
    """Return whether a peer speaks TLS, judged by its first bytes."""
    return first_bytes[:1] in {b"\x14", b"\x15", b"\x16", b"\x17"} and first_bytes[1:2] == b"\x03"


def what_answers(first_bytes: bytes) -> str:
    """Return a text about the protocol that a peer speaks, judged by its first bytes."""
    if first_bytes.startswith((b"HTTP", b"<!DOCTYP", b"<html")):
        return "speaks HTTP, not Kafka"
    if is_tls_record(first_bytes):
        return "speaks TLS: security.protocol must be SSL or SASL_SSL"
    if first_bytes.startswith((b"SSH-", b"220 ", b"+OK")):
        return "speaks another protocol, not Kafka"
    return f"does not speak Kafka: it began with {first_bytes!r}"
