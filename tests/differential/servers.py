"""A server as the differential test asks it: what is prepared, asked, and told in a common form."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Protocol

from kgw.completion import until_done
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.context import Later
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.schema import Struct
from tests.differential.values import BY_KIND, FIRST_MS, Known
from tests.handlers.support import batch, request_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.gateway import InProcessGateway
    from kgw.types import Buffer
    from tests.differential.requests import Case

CLOSED = "closed"
SILENT = "silent"
UNANSWERED = "unanswered"
"""No answer is due, and the next request has its own."""
_RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""A real broker says so for a moment, as it opens what it keeps."""
_CHANGES_TOPICS = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
}
_METADATA_VERSION = 12
_NEXT = 2
"""The correlation id of what is sent behind a request without an answer."""


class Transport(Protocol):
    """What carries a frame to a server and its answer back."""

    async def exchange(self, frame: bytes, api: ApiKey, version: int) -> bytes | str:
        """Return the answer's frame without its length; CLOSED or SILENT where there is none."""

    async def send(self, frame: bytes) -> str:
        """Send what has no answer. Return UNANSWERED, or CLOSED where that ends the connection."""

    async def settle(self) -> None:
        """Wait until what a request has changed of topics is to be seen everywhere."""


class Server:
    """One of the two, with the ids that it has given."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[tuple[str, str], Any] = {}
        self._names: dict[Any, str] = {}

    # --- asking ----------------------------------------------------------------------------------

    async def ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Return the response; a text where there is none."""
        message = request_of(api, **self._resolved(fields))
        for _ in range(200):
            frame = b"".join(request_frame(message, version, 1, "differential"))
            if api is ApiKey.PRODUCE and fields["acks"] == 0:
                return await self._transport.send(frame)
            answer = await self._transport.exchange(frame, api, version)
            if isinstance(answer, str):
                return answer
            _, response = decode_response(answer, api, version)
            if _RETRIED.isdisjoint(_codes(response)):
                break
            await self._transport.settle()
        if api in _CHANGES_TOPICS:
            await self._transport.settle()
        return response

    async def answer(self, case: Case) -> Any:
        """Return the answer to a case in the common form: what JSON can hold.

        Of topics, groups and transactions that others have made nothing is left.
        """
        response = await self.ask(case.api, case.version, **case.fields)
        if isinstance(response, str):
            return response
        told = json.dumps(self._told(response, case.version, case.tag))
        return json.loads(told.replace(case.tag, "T"))

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Known):
            return self._known[value.kind, value.name]
        if isinstance(value, dict):
            return {name: self._resolved(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._resolved(one) for one in value]
        return value

    # --- the common form -------------------------------------------------------------------------

    def _told(self, value: Any, version: int, tag: str, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {
                key: self._told(getattr(value, key), version, tag, key)
                for key, field in type(value).field_table.items()
                if field.present(version) and key not in _LEFT_OUT
            }
        if isinstance(value, (list, tuple)):
            told = [self._told(one, version, tag, name) for one in value]
            if name == "api_keys":
                told = [one["max_version"] for one in told if one["api_key"] in HANDLERS]
            if name in _OF_MANY:
                told = [one for one in told if _is_of(tag, one)]
            return sorted(told, key=str)
        if name in _FORMS and value is not None:
            return _FORMS[name](value)
        if name == "producer_id" and value >= 0:
            return "<producer>"
        if not isinstance(value, int) and value in self._names:
            return self._names[value]
        if name == "topic_id" and value not in BY_KIND["uuid"]:
            return "<id>"
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).hex()
        return value

    def know(self, kind: str, name: str, value: Any) -> None:
        """Keep an id that the server has given; in answers it has its name."""
        self._known[kind, name] = value
        if kind != "epoch":
            self._names[value] = f"<{kind} {name}>"

    # --- what must be there ----------------------------------------------------------------------

    async def prepare(self, tag: str, needs: frozenset[str]) -> None:
        """Make what requests of a tag find.

        `topic`: one of two partitions with three records in the first; `commit`: a group with an
        offset and no member; `nameless`: one whose name is empty; `member`: a group with one;
        `transaction`: a transactional id; `open`: a transaction with a partition and a group in it.
        """
        if "topic" in needs:
            await self._make_topic(f"{tag}-a")
        if "commit" in needs:
            await self._commit(f"{tag}-g", f"{tag}-a")
        if "nameless" in needs:
            await self._commit("", f"{tag}-a")
        if "member" in needs:
            await self._join(f"{tag}-m")
        if "transaction" in needs:
            await self._make_producer(f"{tag}-t")
        if "open" in needs:
            await self._open_transaction(f"{tag}-t", f"{tag}-a", f"{tag}-g")

    async def meet(self) -> None:
        """Learn what the cluster is called, and have it make what coordinators keep.

        Kafka makes it when a coordinator is asked for, kgw when a topic of it is.
        """
        for key_type in (0, 1):
            await self.ask(ApiKey.FIND_COORDINATOR, 3, key="first", key_type=key_type)
        internal = [{"name": "__consumer_offsets"}, {"name": "__transaction_state"}]
        answer = await self.ask(ApiKey.METADATA, _METADATA_VERSION, topics=internal)
        self.know("cluster", "", answer.cluster_id)

    async def _make_topic(self, name: str) -> None:
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
        await self.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=10_000)
        for _ in range(500):
            answer = await self.ask(ApiKey.METADATA, _METADATA_VERSION, topics=[{"name": name}])
            (found,) = answer.topics
            if len(found.partitions) == 2 and all(one.leader_id == 1 for one in found.partitions):
                break
            await self._transport.settle()
        else:
            raise AssertionError(f"there is no topic {name}: {found}")
        self.know("topic", name, found.topic_id)
        for number in range(3):
            time_ms = FIRST_MS + number * 1_000
            records = bytes(batch(f"value {number}".encode(), timestamps_ms=[time_ms]))
            data = {"name": name, "partition_data": [{"index": 0, "records": records}]}
            produced = await self.ask(
                ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=[data]
            )
            _must(produced.responses[0].partition_responses[0].error_code)

    async def _commit(self, group_id: str, topic: str) -> None:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "first"}
        topics = [{"name": topic, "partitions": [partition]}]
        answer = await self.ask(ApiKey.OFFSET_COMMIT, 8, group_id=group_id, topics=topics)
        _must(answer.topics[0].partitions[0].error_code)

    async def _join(self, group_id: str) -> None:
        joined = await self.ask(
            ApiKey.JOIN_GROUP,
            3,
            group_id=group_id,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
        )
        _must(joined.error_code)
        self.know("member", group_id, joined.member_id)
        assignments = [{"member_id": joined.member_id, "assignment": b"mine"}]
        synced = await self.ask(
            ApiKey.SYNC_GROUP,
            3,
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=assignments,
        )
        _must(synced.error_code)

    async def _make_producer(self, name: str) -> None:
        answer = await self.ask(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=900_000
        )
        _must(answer.error_code)
        self.know("producer", name, answer.producer_id)
        self.know("epoch", name, answer.producer_epoch)

    async def _open_transaction(self, name: str, topic: str, group_id: str) -> None:
        producer = {
            "producer_id": Known("producer", name),
            "producer_epoch": Known("epoch", name),
        }
        added = await self.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            **{f"v3_and_below_{key}": value for key, value in producer.items()},
            v3_and_below_transactional_id=name,
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        _must(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        offsets = await self.ask(
            ApiKey.ADD_OFFSETS_TO_TXN, 3, **producer, transactional_id=name, group_id=group_id
        )
        _must(offsets.error_code)


_LEFT_OUT = {
    *("throttle_time_ms", "host", "port", "rack", "client_host"),
    # Each server's own words.
    *("error_message", "batch_index_error_message", "documentation"),
    # What there is of a cluster beyond one node and one version.
    *("supported_features", "finalized_features", "finalized_features_epoch"),
    # Which settings there are, and their defaults: docs/reference/configuration.md.
    "configs",
}
"""Fields that are not compared."""

_OF_MANY = {"topics", "groups", "transaction_states"}
_NAMES = ("name", "topic", "group_id", "transactional_id")
_TAG = re.compile(r"z?d\d+-\d+(-\d+)?-")
_MADE_OF_A_NAME = re.compile(r".*-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)


def _is_of(tag: str, told: Any) -> bool:
    """Whether something was asked for, and is not another request's or the server's own."""
    if not isinstance(told, dict):
        return True
    name = str(next((told[key] for key in _NAMES if key in told), ""))
    if name.startswith("__") or name == "first":
        return False
    if not name and told.keys() <= {"group_id", "protocol_type", "group_state", "group_type"}:
        return False  # in a list of all groups
    return name.startswith(f"{tag}-") or not _TAG.match(name)


def _member(value: str) -> str:
    return "<member>" if _MADE_OF_A_NAME.fullmatch(value) else value


def _time(value: int) -> Any:
    return "<now>" if value > 1_750_000_000_000 and value < 1 << 62 else value


def _session(value: int) -> Any:
    return value if value == 0 else "<session>"


def _records(value: Any) -> str:
    """Return batches in hexadecimal without the leader epoch, which each server sets."""
    data = bytearray(value)
    position = 0
    while len(data) >= position + 17:
        if data[position + 16] == 2:
            data[position + 12 : position + 16] = bytes(4)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return data.hex()


_FORMS: dict[str, Callable[[Any], Any]] = {
    "log_append_time_ms": _time,
    "leader": _member,
    "member_id": _member,
    "records": _records,
    "session_id": _session,
    "transaction_start_time_ms": _time,
}


def _must(code: int) -> None:
    assert ErrorCode.NONE == code, ErrorCode(code).name


def _codes(value: Any) -> set[int]:
    """Return all error codes in a response."""
    if isinstance(value, Struct):
        found: set[int] = set()
        for name in type(value).field_table:
            one = getattr(value, name)
            if name.endswith("error_code"):
                found.add(one)
            elif isinstance(one, (Struct, list)):
                found |= _codes(one)
        return found
    if isinstance(value, list):
        return set().union(*map(_codes, value)) if value and isinstance(value[0], Struct) else set()
    return set()


class InProcess:
    """A gateway in this process."""

    def __init__(self, gateway: InProcessGateway) -> None:
        self._gateway = gateway

    async def exchange(self, frame: bytes, api: ApiKey, version: int) -> bytes | str:
        try:
            answer = await self._answer(frame)
        except ProtocolError:
            return CLOSED
        return SILENT if answer is None else b"".join(answer)[4:]

    async def send(self, frame: bytes) -> str:
        try:
            assert await self._answer(frame) is None
        except ProtocolError:
            return CLOSED
        return UNANSWERED

    async def _answer(self, frame: bytes) -> list[Buffer] | None:
        dispatcher = self._gateway.dispatcher
        answer = dispatcher.start(memoryview(bytearray(frame))[4:], self._gateway.session)
        if isinstance(answer, Later):
            await until_done(answer.due)
            return dispatcher.encode(answer)
        return answer

    async def settle(self) -> None:
        """Nothing has to be waited for."""


class Tcp:
    """A server at a port."""

    def __init__(self, port: int, settle_s: float = 0, silence_s: float = 4) -> None:
        self._port = port
        self._settle_s = settle_s
        self._silence_s = silence_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, frame: bytes, api: ApiKey, version: int) -> bytes | str:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(frame)
        try:
            async with asyncio.timeout(self._silence_s):
                size = int.from_bytes(await reader.readexactly(4), "big")
                return await reader.readexactly(size)
        except TimeoutError:
            answer = SILENT
        except (asyncio.IncompleteReadError, ConnectionError):
            answer = CLOSED
        await self.aclose()
        return answer

    async def send(self, frame: bytes) -> str:
        # What comes first is the answer to what comes second.
        next_one = b"".join(request_frame(request_of(ApiKey.API_VERSIONS), 0, _NEXT, ""))
        answer = await self.exchange(frame + next_one, ApiKey.API_VERSIONS, 0)
        if isinstance(answer, str):
            return answer
        assert int.from_bytes(answer[:4], "big") == _NEXT
        return UNANSWERED

    async def settle(self) -> None:
        # Kafka tells its brokers of topics behind the answer, and nobody when they know.
        await asyncio.sleep(self._settle_s)

    async def aclose(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
