"""Differences between Apache Kafka 4.4 and kgw that are known, each with its reason.

A difference is a line of `differences`: the API, where in the answer, Kafka's value and ours. Each
row must be met by some request: one that has become needless is found, too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.differential.servers import SILENT

if TYPE_CHECKING:
    from collections.abc import Iterator


class Listed(NamedTuple):
    """A kind of difference."""

    api: str
    line: str
    """A regular expression for the whole line."""
    reason: str


CONTROLLER = "Kafka's controller goes on when the time of the request is over; kgw has done it"
SHARE = "share groups are not served"
TWICE = (
    "two batches for one partition: kgw stores both and answers each; Kafka drops the first in"
    " silence"
)
NOBODY = "a marker of a producer id below -1: Kafka writes it for nobody, kgw refuses it"
OVERFLOW = "a number of Kafka's overflows"

# Of the requests that Kafka fails at.
NO_RECORDS = "Kafka meets null and never answers: no batch is INVALID_RECORD, or acks=0 refused"
NO_LEVEL = "an isolation level that there is none of: UNKNOWN_SERVER_ERROR; INVALID_REQUEST here"
NEGATIVE = "a size below 0: UNKNOWN_SERVER_ERROR; here it is as 0, with which one batch comes"
NO_SESSION = "Kafka's cache has no place for such an id; here it is one that is not known"
NO_NAME = "a topic by neither name nor id: UNKNOWN_SERVER_ERROR; here an id that is not known"
SAME_PROTOCOL = "a protocol twice: Kafka never answers; here the first counts"
NOTHING = "no transaction: Kafka never answers, as nothing calls it; here the answer is empty"
NO_PRODUCER = "a producer id or epoch of -1: Kafka cannot write it; here it is refused"
MARKED_TWICE = "a partition twice in one marker: Kafka waits for as many answers as mentions"
SAME_RESOURCE = "a resource twice: UNKNOWN_SERVER_ERROR; INVALID_REQUEST here"
NO_OPERATION = "an operation that there is none of: UNKNOWN_SERVER_ERROR; INVALID_REQUEST here"

LISTED = (
    Listed("PRODUCE", r"\S*partition_responses 1 of them -> [24]", TWICE),
    Listed("PRODUCE", r".*records = None: fails -> 87", NO_RECORDS),
    Listed("PRODUCE", r".*records = None and acks = 0: fails -> closed", NO_RECORDS),
    Listed("FETCH", r".*isolation_level = (-1|2).*: fails -> 42", NO_LEVEL),
    Listed("FETCH", r".*max_bytes = -1.*: fails -> [01]", NEGATIVE),
    Listed("FETCH", r".*session_id = 2147483647.*: fails -> 0(, (1|3|100))?", NO_SESSION),
    Listed("LIST_OFFSETS", r".*isolation_level = (-1|2).*: fails -> 42", NO_LEVEL),
    Listed("METADATA", r".*name = None: fails -> (0, )?100", NO_NAME),
    Listed("FIND_COORDINATOR", r"\S*error_code 42 -> 35", SHARE),
    Listed("JOIN_GROUP", r".*protocols = 'twice'.*: fails -> 0", SAME_PROTOCOL),
    Listed("CREATE_TOPICS", r".*timeout_ms = (0|-1).*: timed out -> [\d, ]+", CONTROLLER),
    Listed("DELETE_TOPICS", r".*timeout_ms = (0|-1).*: timed out -> [\d, ]+", CONTROLLER),
    Listed("CREATE_PARTITIONS", r".*timeout_ms = (0|-1).*: timed out -> [\d, ]+", CONTROLLER),
    Listed("ADD_PARTITIONS_TO_TXN", r".*transactions = \[\]: fails -> 0", NOTHING),
    Listed("WRITE_TXN_MARKERS", r"\S*error_code 0 -> 42", NOBODY),
    Listed("WRITE_TXN_MARKERS", r".*producer_(id|epoch) = -1: fails -> (42|47)", NO_PRODUCER),
    Listed("WRITE_TXN_MARKERS", r".*topics.*'twice'.*: fails -> (0|47)", MARKED_TWICE),
    Listed("ALTER_CONFIGS", r".*resources = 'twice'.*: fails -> 42", SAME_RESOURCE),
    Listed(
        "INCREMENTAL_ALTER_CONFIGS", r".*config_operation = .*: fails -> (3|17|42)", NO_OPERATION
    ),
    Listed("DESCRIBE_TOPIC_PARTITIONS", r'\S*next_cursor \{.*"partition_index": -.*', OVERFLOW),
)
_OF_CONTROLLERS = {"CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS"}
_TIMED_OUT = "7"
_FAILED = "-1"


def judge(api: str, name: str, kafka: Any, kgw: Any) -> Iterator[tuple[str, Listed | None]]:
    """Yield how the answers to a request differ, each with its row; None where it is not listed."""
    for line in _lines(api, name, kafka, kgw):
        yield line, row_of(api, line)


def _lines(api: str, name: str, kafka: Any, kgw: Any) -> Iterator[str]:
    """Yield how two answers differ. Where Kafka gives none that kgw could give that is one line."""
    codes = _codes(kafka)
    if kafka == SILENT or _FAILED in codes:
        yield f"{name}: fails -> {_summary(kgw)}"
    elif api in _OF_CONTROLLERS and _TIMED_OUT in codes:
        yield f"{name}: timed out -> {_summary(kgw)}"
    else:
        yield from differences(kafka, kgw)


def _summary(answer: Any) -> str:
    return answer if isinstance(answer, str) else ", ".join(_codes(answer)) or "nothing"


def _codes(answer: Any) -> list[str]:
    """Return the error codes in an answer, each once."""
    return sorted(set(re.findall(r'error_code": (-?\d+)', json.dumps(answer))))


def differences(kafka: Any, kgw: Any, place: str = "answer") -> Iterator[str]:
    """Yield where two answers differ, and how."""
    if isinstance(kafka, dict) and isinstance(kgw, dict):
        for name in sorted(kafka.keys() | kgw.keys()):
            yield from differences(kafka.get(name), kgw.get(name), f"{place}.{name}")
    elif isinstance(kafka, list) and isinstance(kgw, list) and len(kafka) == len(kgw):
        for ours, theirs in zip(kafka, kgw, strict=True):
            yield from differences(ours, theirs, f"{place}[]")
    elif isinstance(kafka, list) and isinstance(kgw, list):
        yield f"{place} {len(kafka)} of them -> {len(kgw)}"
    elif kafka != kgw:
        yield f"{place} {json.dumps(kafka)} -> {json.dumps(kgw)}"


def row_of(api: str, line: str) -> Listed | None:
    """Return the row that a difference belongs to."""
    for row in LISTED:
        if re.fullmatch(row.api, api) and re.fullmatch(row.line, line, re.DOTALL):
            return row
    return None
