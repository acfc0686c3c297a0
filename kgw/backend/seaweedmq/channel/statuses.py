"""Converts answers of gRPC to errors that say whether a change may have been made. Pure."""

from __future__ import annotations

from grpc import StatusCode

from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerError,
    OutcomeUnknownError,
)
from kgw.backend.seaweedmq.protos import filer_pb2


class PassingError(FilerError):
    """Nothing was done, and a retry may succeed."""


# Beginnings of the details of UNAVAILABLE if gRPC had no connection and sent nothing: the name was
# not resolved, or no address accepted a connection. After any other UNAVAILABLE ("Socket closed",
# "GOAWAY received", ...) the request may have arrived.
_NOT_SENT = (
    "failed to connect to all addresses",
    "errors resolving ",
    "DNS resolution failed",
)

# The filer has no status code for a missing entry; `UpdateEntry` puts more text before this.
_NO_ENTRY = "no entry is found in filer store"

_REFUSED = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.PERMISSION_DENIED,
    StatusCode.UNAUTHENTICATED,
    StatusCode.UNIMPLEMENTED,
}


def error_of(what: str, code: StatusCode, details: str | None, *, is_change: bool) -> FilerError:
    """Return the error for a status other than OK; `what` describes the call."""
    details = details or ""
    message = f"{what}: {code.name}: {details}"
    if code is StatusCode.FAILED_PRECONDITION:
        return ConditionFailedError(message)
    if code is StatusCode.ALREADY_EXISTS:
        return EntryExistsError(message)
    if code is StatusCode.NOT_FOUND or (code is StatusCode.UNKNOWN and _NO_ENTRY in details):
        return EntryMissingError(message)
    if code in _REFUSED:
        return FilerError(message)
    if is_change and not (code is StatusCode.UNAVAILABLE and details.startswith(_NOT_SENT)):
        return OutcomeUnknownError(message)
    return PassingError(message)


_EXISTS = {
    filer_pb2.ENTRY_ALREADY_EXISTS,
    filer_pb2.EXISTING_IS_DIRECTORY,
    filer_pb2.EXISTING_IS_FILE,
}


def creation_error(what: str, answer: filer_pb2.CreateEntryResponse) -> FilerError | None:
    """Return the error in an answer with status OK; None if the entry was made."""
    if not answer.error and answer.error_code == filer_pb2.OK:
        return None
    message = f"{what}: {answer.error}"
    if answer.error_code in _EXISTS:
        return EntryExistsError(message)
    if answer.error_code == filer_pb2.PRECONDITION_FAILED:
        return ConditionFailedError(message)
    if answer.error_code != filer_pb2.OK:
        return FilerError(message)
    # The filer's own store failed, so the entry may or may not have been made.
    return OutcomeUnknownError(message)


def deletion_error(what: str, answer: filer_pb2.DeleteEntryResponse) -> FilerError | None:
    """Return the error in an answer with status OK; None if the entry was removed."""
    if not answer.error:
        return None
    message = f"{what}: {answer.error}"
    if "non-empty folder" in answer.error:
        return FilerError(message)
    return OutcomeUnknownError(message)


def trouble_at_start(address: str, target: str, code: StatusCode, details: str | None) -> str:
    """Return the error text for a filer that does not answer the first request."""
    details = details or ""
    place = f"no filer of SeaweedFS answers at {address} (gRPC {target})"
    if code is StatusCode.UNIMPLEMENTED:
        return f"{place}: another server of SeaweedFS or of gRPC does; give the filer's address"
    if "http1.x server" in details:
        return (
            f"{place}: that is an HTTP port; give host:port of the filer's HTTP, "
            "or host:port.grpcport, as in seaweedmq://filer:8888.18888/kafka"
        )
    # "tcp handshaker shutdown" means that the connection ended, or took too long on a busy machine.
    if "tls handshake" in details.lower() or "ssl" in details.lower():
        return (
            f"{place}: TLS fails; is it on at both ends, with certificates of one CA? ({details})"
        )
    if "Connection refused" in details:
        return (
            f"{place}: nothing listens there; is the filer up, and its gRPC port 10000 above the "
            "one given? If not, give host:port.grpcport, as in seaweedmq://filer:8888.18888/kafka "
            f"({details})"
        )
    if code is StatusCode.DEADLINE_EXCEEDED:
        return f"{place}: no answer in time"
    if code is not StatusCode.UNAVAILABLE:
        return f"{place}: {code.name}: {details}"
    if "resol" in details:
        return f"{place}: the host is unknown; give the filer's name or address ({details})"
    return f"{place}: the connection fails or ends; does the filer want TLS? ({details})"
