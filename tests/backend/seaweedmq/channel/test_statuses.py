from __future__ import annotations

import pytest
from grpc import StatusCode

from kgw.backend.seaweedmq.channel.statuses import (
    PassingError,
    creation_error,
    deletion_error,
    error_of,
    trouble_at_start,
)
from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerError,
    OutcomeUnknownError,
)
from kgw.backend.seaweedmq.protos import filer_pb2

REFUSED = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"


@pytest.mark.parametrize(
    ("code", "details", "of_a_look_up", "of_a_change"),
    [
        (StatusCode.FAILED_PRECONDITION, "attribute changed", *[ConditionFailedError] * 2),
        (StatusCode.ALREADY_EXISTS, "", *[EntryExistsError] * 2),
        (
            StatusCode.UNKNOWN,
            "not found /a/b: filer: no entry is found in filer store",
            *[EntryMissingError] * 2,
        ),
        (StatusCode.NOT_FOUND, "", *[EntryMissingError] * 2),
        (StatusCode.INVALID_ARGUMENT, "", *[FilerError] * 2),
        (StatusCode.UNIMPLEMENTED, "", *[FilerError] * 2),
        (StatusCode.UNAUTHENTICATED, "", *[FilerError] * 2),
        # Nothing to send it on.
        (StatusCode.UNAVAILABLE, REFUSED, *[PassingError] * 2),
        (StatusCode.UNAVAILABLE, "errors resolving nosuch:1", *[PassingError] * 2),
        # It may have arrived.
        (StatusCode.UNAVAILABLE, "Socket closed", PassingError, OutcomeUnknownError),
        (StatusCode.UNAVAILABLE, "GOAWAY received", PassingError, OutcomeUnknownError),
        (StatusCode.UNAVAILABLE, None, PassingError, OutcomeUnknownError),
        (StatusCode.UNKNOWN, REFUSED, PassingError, OutcomeUnknownError),
        (StatusCode.UNKNOWN, "leveldb: closed", PassingError, OutcomeUnknownError),
        (StatusCode.INTERNAL, "stream reset", PassingError, OutcomeUnknownError),
        (StatusCode.DEADLINE_EXCEEDED, "", PassingError, OutcomeUnknownError),
        (StatusCode.CANCELLED, "", PassingError, OutcomeUnknownError),
        (StatusCode.RESOURCE_EXHAUSTED, "", PassingError, OutcomeUnknownError),
    ],
)
def test_what_a_status_means(
    code: StatusCode,
    details: str | None,
    of_a_look_up: type[FilerError],
    of_a_change: type[FilerError],
) -> None:
    """In doubt a change may have been made, and a look-up may be repeated."""
    assert of_a_look_up is type(error_of("what", code, details, is_change=False))
    assert of_a_change is type(error_of("what", code, details, is_change=True))


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (filer_pb2.OK, "", type(None)),
        (filer_pb2.ENTRY_ALREADY_EXISTS, "entry already exists", EntryExistsError),
        (filer_pb2.EXISTING_IS_DIRECTORY, "", EntryExistsError),
        (filer_pb2.EXISTING_IS_FILE, "", EntryExistsError),
        (filer_pb2.PRECONDITION_FAILED, "", ConditionFailedError),
        (filer_pb2.ENTRY_NAME_TOO_LONG, "entry name too long", FilerError),
        (filer_pb2.PARENT_IS_FILE, "", FilerError),
        (filer_pb2.OK, "insert entry: disk trouble", OutcomeUnknownError),
    ],
)
def test_what_an_answer_to_a_creation_means(
    code: filer_pb2.FilerError, text: str, expected: type[FilerError | None]
) -> None:
    """Its status is OK whatever it says."""
    answer = filer_pb2.CreateEntryResponse(error=text, error_code=code)
    assert expected is type(creation_error("what", answer))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", type(None)),
        ("fail to delete non-empty folder: /a", FilerError),
        ("delete /a: disk trouble", OutcomeUnknownError),
    ],
)
def test_what_an_answer_to_a_deletion_means(text: str, expected: type[FilerError | None]) -> None:
    """Its status is OK whatever it says."""
    assert expected is type(deletion_error("what", filer_pb2.DeleteEntryResponse(error=text)))


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (StatusCode.UNAVAILABLE, REFUSED, "nothing listens there"),
        (StatusCode.UNAVAILABLE, "errors resolving nosuch:1: [...]", "the host is unknown"),
        (
            StatusCode.UNAVAILABLE,
            (
                "failed to connect to all addresses; last error: UNAVAILABLE: "
                "Failed parsing HTTP/2 (Trying to connect an http1.x server (HTTP status 405))"
            ),
            "that is an HTTP port",
        ),
        (
            StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNKNOWN: Tls handshake failed",
            "TLS fails",
        ),
        (StatusCode.UNAVAILABLE, "Socket closed", "does the filer want TLS?"),
        # Seen without any TLS, on a busy machine.
        (StatusCode.UNAVAILABLE, "tcp handshaker shutdown", "the connection fails or ends"),
        (StatusCode.UNIMPLEMENTED, "unknown service", "give the filer's address"),
        (StatusCode.DEADLINE_EXCEEDED, "", "no answer in time"),
        (StatusCode.INTERNAL, "odd", "INTERNAL: odd"),
    ],
)
def test_what_is_wrong_at_the_start_is_said(code: StatusCode, details: str, expected: str) -> None:
    """With the address that was given and the one that was tried."""
    message = trouble_at_start("host:8888", "host:18888", code, details)
    assert message.startswith("no filer of SeaweedFS answers at host:8888 (gRPC host:18888): ")
    assert expected in message
