"""The conversation that every driver of a client library has with the tests.

A driver reads one JSON object a line from standard input and answers each with one line on standard
output. `do` names the operation, `bootstrap` is the server as `host:port`; bytes travel as base64:

    create_topic       topic, partitions                                    -> {}
    produce            topic, partition, codec, idempotent, records,
                       producer or null                                     -> {offsets}
    consume            topic, partition, offset, count, isolation           -> {records}
    bounds             topic, partition, isolation                          -> {earliest, latest}
    offset_for_time    topic, partition, timestamp_ms                       -> {offset or null}
    open_member        member, group, topic, strategy, instance or null,
                       isolation                                            -> {}
    poll_members       members, timeout_s                                   -> {members}
    commit_member      member                                               -> {committed}
    close_member       member                                               -> {}
    open_producer      producer, transactional_id or null, timeout_ms, and
                       group or null, topic, strategy, isolation            -> {}
    begin              producer                                             -> {}
    send_offsets       producer                                             -> {}
    end                producer, commit                                     -> {}
    close_producer     producer                                             -> {}
    create_partitions  topic, partitions (in all)                           -> {}
    delete_topic       topic                                                -> {}
    topic_config       topic, name                                          -> {value}
    set_topic_config   topic, name, value, incremental                      -> {}

`incremental` chooses between IncrementalAlterConfigs and AlterConfigs, which resets every other
setting.

A member is a consumer in a group that lives until it is closed. Polling gives {records, assigned}
of each: pairs of partition and offset, and the partitions that it has now. Committing gives pairs
of partition and next offset, as the server has acknowledged them; drivers may leave them out.

`isolation` is read_uncommitted or read_committed. What a client that reads committed records calls
the latest offset is the first that it cannot have yet.

A producer with a transactional id lives from its opening, which fences another one of that id,
until it is closed. One whose id is null is idempotent, and needs no transaction for `produce`; the
drivers of aiokafka, confluent-kafka, franz-go, Java, KafkaJS and rust-rdkafka have it. `produce`
with its name is part of the transaction that it has begun, and leaves codec and idempotence to it;
the offsets are those that were acknowledged. A producer with a group is opened and closed together
with a member of the same name, and `send_offsets` makes what that member has read part of the
transaction; where a library does so by itself when it commits, `send_offsets` does nothing. `end`
commits or aborts, and fails where it did not do as it was told.

A record is {key, value, headers: [[name, value]], timestamp_ms}, with an `offset` if it was read.
A failed operation is answered with {error}, in Python also with what the library has logged, as
`logged`. Drivers in other languages (e2e/) speak the same lines.

`security` are the properties with which an operation's client connects; without them it speaks
plain text. They have the names of Java's clients: security.protocol, ssl.truststore.location,
ssl.keystore.location (a PEM file with the private key and the certificates), sasl.mechanism; and
librdkafka's sasl.username and sasl.password. With OAUTHBEARER, sasl.oauthbearer.token.endpoint.url
is the `file:` URL of the token. `connect_limit_s` is how long a client tries to
connect: some clients report a refused login only after that time.

Every operation on neither a member nor a producer makes a client of its own and closes it, so that
a test may restart the server between two of them.
"""

from __future__ import annotations

import base64
import json
import logging
import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Operation = dict[str, Any]


class Record(NamedTuple):
    """A record to send, or one that was read (then with its offset)."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    offset: int = -1


def to_text(data: bytes | None) -> str | None:
    """Bytes as they travel in JSON."""
    return None if data is None else base64.b64encode(data).decode()


def to_bytes(text: str | None) -> bytes | None:
    """Reverse of `to_text`."""
    return None if text is None else base64.b64decode(text)


def to_json(record: Record) -> Operation:
    """A record as it travels in JSON."""
    return {
        "key": to_text(record.key),
        "value": to_text(record.value),
        "headers": [[name, to_text(value)] for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
        "offset": record.offset,
    }


def from_json(fields: Operation) -> Record:
    """Reverse of `to_json`."""
    return Record(
        key=to_bytes(fields["key"]),
        value=to_bytes(fields["value"]),
        headers=[(name, to_bytes(value)) for name, value in fields["headers"]],
        timestamp_ms=fields["timestamp_ms"],
        offset=fields.get("offset", -1),
    )


class _Logged(logging.Handler):
    """The warnings and errors that a library logs during an operation."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def serve(operations: dict[str, Callable[[Operation], Operation]]) -> None:
    """Answers operations until standard input ends."""
    answers = sys.stdout
    # Whatever a library prints must not be taken for an answer.
    sys.stdout = sys.stderr
    logged = _Logged()
    logging.basicConfig(level=logging.WARNING, handlers=[logged, logging.StreamHandler()])
    for line in sys.stdin:
        operation = json.loads(line)
        logged.messages = []
        try:
            answer = operations[operation["do"]](operation)
        except Exception as error:  # noqa: BLE001 - a driver reports what its library raised
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}", "logged": logged.messages}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
