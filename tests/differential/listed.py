"""Differences between Apache Kafka 4.4 and kgw that are known, each with its reason.

A difference is a line of `differences`: the API, where in the answer, Kafka's value and ours. Each
row must be met by some request: one that has become needless is found, too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Listed(NamedTuple):
    """A kind of difference."""

    api: str
    line: str
    """A regular expression for the whole line."""
    reason: str


FAILS = "Kafka fails in itself there: UNKNOWN_SERVER_ERROR, or no answer at all"
CONTROLLER = "Kafka's controller goes on when the time of the request is over; kgw has done it"
SETTINGS = "which settings there are, and their defaults (docs/reference/configuration.md)"
SHARE = "share groups are not served"
TWICE = (
    "two batches for one partition: kgw stores both and answers each; Kafka drops the first in"
    " silence"
)
ORDER = "two things are wrong, and another one is told first"
BROKERS = "brokers alone ask for it; kgw refuses ids below zero, and answers each marker"
GROUPS = "settings of groups and of clients' metrics: of groups of KIP-848 and KIP-714, not served"
VALIDATED = "a topic that is only validated has no id; Kafka names one that no topic gets"
OVERFLOW = "a number of Kafka's overflows"

LISTED = (
    Listed("PRODUCE", r"\S*partition_responses 1 of them -> [24]", TWICE),
    Listed("FIND_COORDINATOR", r"\S*error_code 42 -> 35", SHARE),
    Listed("JOIN_GROUP", r"\S*error_code 26 -> 25", ORDER),
    Listed("CREATE_TOPICS", r"\S*error_code (40 -> 37|17 -> 38)", ORDER),
    Listed("CREATE_TOPICS", r'\S*topic_id "<id>" -> "0+"', VALIDATED),
    Listed("DELETE_TOPICS", r"answer\.responses 2 of them -> 1", TWICE),
    Listed("LIST_OFFSETS", r"answer\.topics 1 of them -> 0", ORDER),
    Listed("ADD_PARTITIONS_TO_TXN", r"\S*results_by_\w+ 1 of them -> 2", TWICE),
    Listed("ADD_PARTITIONS_TO_TXN", r"\S*topic_results 1 of them -> 2", TWICE),
    Listed("TXN_OFFSET_COMMIT", r"\S*error_code 25 -> 12", ORDER),
    Listed("TXN_OFFSET_COMMIT", r"answer\.topics 1 of them -> [02]", ORDER),
    Listed("WRITE_TXN_MARKERS", r"answer\.markers \d of them -> \d", BROKERS),
    Listed("WRITE_TXN_MARKERS", r"\S*error_code (0|47) -> 42", BROKERS),
    Listed("ALTER_CONFIGS", r"\S*error_code 40 -> (42|3)", GROUPS),
    Listed("INCREMENTAL_ALTER_CONFIGS", r"\S*error_code 40 -> 42", GROUPS),
    Listed("DESCRIBE_CONFIGS", r"\S*error_code 0 -> 42", GROUPS),
    Listed("DESCRIBE_TOPIC_PARTITIONS", r'\S*next_cursor \{.*"partition_index": -.*', OVERFLOW),
)
_OF_CONTROLLERS = {"CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS"}
_TIMED_OUT = 7


def why_other(api: str, kafka: Any) -> str | None:
    """Return why a whole answer of Kafka's is none that kgw could give; None where it is one."""
    text = json.dumps(kafka)
    if isinstance(kafka, str) or '"error_code": -1' in text:
        return FAILS
    if api in _OF_CONTROLLERS and f'"error_code": {_TIMED_OUT}' in text:
        return CONTROLLER
    return None


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
