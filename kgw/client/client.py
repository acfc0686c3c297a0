"""AsyncClient: finds leaders, keeps a connection to each, and retries retriable errors."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from kgw.client.connection import Connection
from kgw.client.delays import ClientDelay, Delays
from kgw.client.errors import (
    CannotConnectError,
    ClientError,
    ServerRefusedError,
    TopicReplacedError,
    refuse,
)
from kgw.client.leader_requests import begin_produce, fetch_from, find_epochs, find_offsets
from kgw.client.values import (
    EARLIEST,
    LATEST,
    AdvertisedBroker,
    ClusterDescription,
    EpochRange,
    FetchedPartition,
    PartitionDescription,
    Produced,
    TopicDescription,
)
from kgw.clock import SystemClock
from kgw.errors import ErrorCode
from kgw.offsets.ranges import OffsetBounds
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kgw.protocol.schema import Response
from kgw.types import ZERO_TOPIC_ID, TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Collection,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )

    from kgw.client.security import ClientSecurity
    from kgw.offsets.reader import FoundRecord
    from kgw.protocol.messages.metadata import MetadataResponseTopic
    from kgw.protocol.schema import Request
    from kgw.types import Buffer

ResultT = TypeVar("ResultT")
_Fetched: TypeAlias = dict[int, FetchedPartition]

_BEING_CREATED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
"""The errors with which a server answers while it creates a topic."""
_NO_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})

_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 1.0
_CREATION_S = 3.0


class AsyncClient:
    """A client of one cluster.

    Every method raises ClientError, e.g. ServerRefusedError with the server's error code. Retriable
    errors are retried with fresh metadata for `retry_s` seconds; with 0 there is no retry.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str = "kgw",
        connect_timeout_s: float = 10.0,
        retry_s: float = 30.0,
        delays: Delays | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        """Store the bootstrap addresses; `open` connects to one of them.

        Failures that are retried, and slow requests, are reported to `delays`. `security` holds for
        every connection; None means plain text without a login.
        """
        self._security = security
        self._delays = delays or Delays()
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._retry_s = retry_s
        self._clock = SystemClock()
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._is_closed = False
        self._brokers: dict[int, AdvertisedBroker] = {}
        self._topics: dict[TopicName, TopicDescription] = {}
        self._cluster = ClusterDescription(None, -1, ())

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the first address that answers.

        If none does, raises the last error, without a retry.
        """
        self._is_closed = False
        await self.any_connection()

    async def aclose(self) -> None:
        """Close every connection, and refuse new ones until `open` is called."""
        self._is_closed = True
        connections, self._connections = self._connections, {}
        try:
            for connection in connections.values():
                await connection.aclose()
        finally:
            # Close them even after a cancellation: `aclose` can no longer find them.
            for connection in connections.values():
                connection.abort()

    # Cluster and topics

    async def cluster(self) -> ClusterDescription:
        """Request and return the cluster's id, controller and advertised brokers."""
        await self.retrying(lambda: self._load_metadata([]))
        return self._cluster

    async def topics(self) -> list[TopicDescription]:
        """Request and return all topics, sorted by name."""
        await self.retrying(lambda: self._load_metadata(None))
        return [self._topics[name] for name in sorted(self._topics)]

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicDescription:
        """Request and return one topic.

        With `auto_create` the server may create it, if its configuration allows that. Raises
        ServerRefusedError with UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
        """
        if not auto_create:
            return await self.retrying(
                lambda: self._load_topic(name, auto_create=False), is_undone=True
            )
        return await self.retrying(
            lambda: self._load_topic(name, auto_create=True),
            limit_s=_CREATION_S,
            expected=_BEING_CREATED,
        )

    async def find_topic(self, name: str) -> TopicDescription | None:
        """Request and return one topic; None if it does not exist or its name is invalid."""
        try:
            return await self.topic(name)
        except ServerRefusedError as error:
            if error.code in _NO_TOPIC:
                return None
            raise

    # Records

    async def init_producer_id(self) -> tuple[int, int]:
        """Return a new producer id and its epoch, for idempotent batches."""

        async def ask(connection: Connection) -> tuple[int, int]:
            answer = await connection.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                InitProducerIdResponse,
            )
            refuse(answer.error_code, "cannot get a producer id")
            return answer.producer_id, answer.producer_epoch

        return await self.at_any_node(ask, is_undone=False)

    async def produce(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: int = -1,
        retry: bool = True,
    ) -> Produced:
        """Append one batch, as bytes, to a partition.

        A retry after a lost response stores the batch twice unless it has a producer id and
        sequence: pass `retry=False` if that matters, or use `Producer`.
        """

        async def send() -> Produced:
            answer = await self.start_produce(topic, partition, records, acks=acks)
            return await answer

        return await (self.retrying(send) if retry else send())

    async def start_produce(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Coroutine[Any, Any, Produced]:
        """Send one batch and return an awaitable response; batches are sent in the calls' order."""
        description, connection = await self._leader(topic, partition)
        return await begin_produce(
            connection,
            description,
            partition,
            records,
            acks=acks,
            transactional_id=transactional_id,
        )

    async def fetch(
        self,
        topic: str,
        offsets: Mapping[int, int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        told: frozenset[ErrorCode] = frozenset(),
        read_committed: bool = False,
        topic_id: TopicId = ZERO_TOPIC_ID,
    ) -> list[FetchedPartition]:
        """Fetch from each partition at its offset; partitions without new records are left out.

        With `read_committed`, nothing is read beyond the last stable offset, and responses list the
        aborted transactions, but still include their batches. With a `topic_id`, raises
        TopicReplacedError if the topic of this name has another id. Raises ServerRefusedError, e.g.
        with OFFSET_OUT_OF_RANGE, for the first partition with an error. An error whose code is in
        `told` is not raised, but returned as the partition's result.
        """

        def ask(connection: Connection, part: Mapping[int, int]) -> Awaitable[_Fetched]:
            description = self._topics[TopicName(topic)]
            if ZERO_TOPIC_ID not in {topic_id, description.topic_id} and (
                topic_id != description.topic_id
            ):
                raise TopicReplacedError(topic)
            return fetch_from(
                connection,
                description,
                part,
                max_wait_ms=max_wait_ms,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                told=told,
                read_committed=read_committed,
            )

        return list((await self._ask_leaders(topic, offsets, ask)).values())

    async def list_offsets(
        self, topic: str, timestamps: Mapping[int, int], *, read_committed: bool = False
    ) -> dict[int, FoundRecord]:
        """Return each partition's first offset with its timestamp or a later one.

        A timestamp may also be LATEST, EARLIEST or MAX_TIMESTAMP. With `read_committed`, nothing
        beyond the last stable offset is found. Offset and time are -1 if all records are older.
        """
        find = partial(find_offsets, topic=topic, read_committed=read_committed)
        found = await self._ask_leaders(topic, timestamps, find)
        return {partition: found[partition] for partition in timestamps}

    async def bounds(
        self, topic: str, partitions: Collection[int], *, read_committed: bool = False
    ) -> dict[int, OffsetBounds]:
        """Return the first and end offsets of partitions, as `list_offsets` finds them."""
        earliest, latest = await asyncio.gather(
            self.list_offsets(topic, dict.fromkeys(partitions, EARLIEST)),
            self.list_offsets(
                topic, dict.fromkeys(partitions, LATEST), read_committed=read_committed
            ),
        )
        return {one: OffsetBounds(earliest[one].offset, latest[one].offset) for one in partitions}

    async def epoch_ends(
        self, topic: str, leader_epochs: Mapping[int, int]
    ) -> dict[int, EpochRange | None]:
        """Return for each partition the newest leader epoch up to the given one, and its end.

        The current epoch ends at the end of the log. None if there is no such epoch.
        """
        found = await self._ask_leaders(topic, leader_epochs, partial(find_epochs, topic=topic))
        return {partition: found[partition] for partition in leader_epochs}

    async def _ask_leaders(
        self,
        topic: str,
        asked: Mapping[int, int],
        ask: Callable[[Connection, Mapping[int, int]], Awaitable[dict[int, ResultT]]],
    ) -> dict[int, ResultT]:
        """Ask the leaders of the partitions concurrently; return the results by partition."""

        async def ask_all() -> dict[int, ResultT]:
            by_leader = await self.by_leader(topic, asked)
            answers = await asyncio.gather(*(ask(*one) for one in by_leader.items()))
            return {partition: one for answer in answers for partition, one in answer.items()}

        return await self.retrying(ask_all)

    # Connections

    async def request(self, message: Request, *, version: int | None = None) -> Response:
        """Send a request to any node, in the highest common version unless `version` is given."""
        connection = await self.any_connection()
        return await connection.ask(message, Response, version=version)

    async def any_connection(self) -> Connection:
        """Return an open connection, to a bootstrap address or a known broker."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        failure: ClientError | None = None
        known = [(broker.host, broker.port) for broker in self._brokers.values()]
        for host, port in (*self._bootstrap, *known):
            try:
                return await self.connection_to(host, port)
            except ClientError as error:
                failure = failure or error
        raise failure or CannotConnectError("no server address is known")

    async def connection_to(self, host: str, port: int) -> Connection:
        """Return an open connection to an address, e.g. to one that a server advertises."""
        address = (host, port)
        async with self._opening.setdefault(address, asyncio.Lock()):
            self._check_open()
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await Connection.open(
                    host,
                    port,
                    client_id=self._client_id,
                    timeout_s=self._connect_timeout_s,
                    delays=self._delays,
                    security=self._security,
                )
                try:
                    self._check_open()
                except ClientError:
                    # The client was closed meanwhile, so close this connection, too.
                    await connection.aclose()
                    raise
                self._connections[address] = connection
            return connection

    async def controller_connection(self) -> Connection:
        """Return a connection to the controller, which changes topics."""
        if self._cluster.controller_id not in self._brokers:
            await self._load_metadata([])
        broker = self._brokers.get(self._cluster.controller_id)
        if broker is None:
            return await self.any_connection()
        return await self.node_connection(broker.node_id, broker.host, broker.port)

    async def at_controller(self, ask: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        """Send a request to the controller; after a change of controller, to the new one.

        Retried as long as nothing was done.
        """

        async def attempt() -> ResultT:
            return await ask(await self.controller_connection())

        return await self.retrying(attempt, is_undone=True)

    async def at_any_node(
        self, ask: Callable[[Connection], Awaitable[ResultT]], *, is_undone: bool = True
    ) -> ResultT:
        """Send a request to any node; after a refusal, to the controller.

        Retried as long as nothing was done; without `is_undone`, after every retriable failure.
        """
        is_first = True

        async def attempt() -> ResultT:
            nonlocal is_first
            find = self.any_connection if is_first else self.controller_connection
            is_first = False
            return await ask(await find())

        return await self.retrying(attempt, is_undone=is_undone)

    async def retrying(
        self,
        action: Callable[[], Awaitable[ResultT]],
        *,
        limit_s: float | None = None,
        expected: frozenset[ErrorCode] = frozenset(),
        is_undone: bool = False,
    ) -> ResultT:
        """Return the result of `action`; call it again as long as it fails with a retriable error.

        Refusals with a code in `expected` are retried without a report to `delays`. With
        `is_undone`, retries only if nothing was done: for actions that must not be done twice.
        """
        patience_s = self._retry_s if limit_s is None else min(limit_s, self._retry_s)
        deadline_s = self._clock.monotonic_s() + patience_s
        backoff_s = _FIRST_BACKOFF_S
        while True:
            try:
                return await action()
            except ClientError as error:
                now_s = self._clock.monotonic_s()
                may_retry = error.is_undone if is_undone else error.retriable
                if not may_retry or now_s + backoff_s > deadline_s:
                    raise
                if not (isinstance(error, ServerRefusedError) and error.code in expected):
                    self._delays.take(ClientDelay(str(error), "trying again", deadline_s - now_s))
                self._topics.clear()
                # The controller may have changed: look it up again.
                self._cluster = self._cluster._replace(controller_id=-1)
                await self._clock.sleep_until(now_s + backoff_s)
                backoff_s = min(backoff_s * 2, _LAST_BACKOFF_S)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError("the client is closed")

    async def _leader(self, topic: str, partition: int) -> tuple[TopicDescription, Connection]:
        description = self._topics.get(TopicName(topic))
        if description is None:
            description = await self._load_topic(topic, auto_create=False)
        for one in description.partitions:
            if one.partition == partition:
                break
        else:
            count = len(description.partitions)
            raise ServerRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic} has no partition {partition}",
                f"it has {count}: 0 to {count - 1}",
            )
        broker = self._brokers.get(one.leader_id)
        if broker is None:
            self._topics.pop(TopicName(topic), None)
            raise ServerRefusedError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} partition {partition}"
            )
        return description, await self.node_connection(broker.node_id, broker.host, broker.port)

    async def by_leader(
        self, topic: str, asked: Mapping[int, int]
    ) -> dict[Connection, dict[int, int]]:
        """Group numbers for partitions by the connection to the partition's leader."""
        by_leader: dict[Connection, dict[int, int]] = {}
        for partition, number in asked.items():
            _, connection = await self._leader(topic, partition)
            by_leader.setdefault(connection, {})[partition] = number
        return by_leader

    async def node_connection(self, node_id: int, host: str, port: int) -> Connection:
        """Return a connection to a node at its advertised address."""
        try:
            return await self.connection_to(host, port)
        except CannotConnectError as error:
            raise CannotConnectError(
                f"{error} (the address that the server advertises for node {node_id})"
            ) from None

    # Metadata

    async def _load_topic(self, name: str, *, auto_create: bool) -> TopicDescription:
        await self._load_metadata([name], auto_create=auto_create)
        return self._topics[TopicName(name)]

    async def _load_metadata(
        self, names: Iterable[str] | None, *, auto_create: bool = False
    ) -> None:
        """Request some or all topics, and store the metadata."""
        connection = await self.any_connection()
        version = connection.spoken_version(MetadataRequest, 1)
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        # Before version 4, a request that names a topic always allowed its creation.
        allow = auto_create or version < 4
        answer = await connection.ask(
            MetadataRequest(topics=topics, allow_auto_topic_creation=allow),
            MetadataResponse,
            version=version,
        )
        refuse(answer.error_code, "cannot get metadata")
        brokers = tuple(
            AdvertisedBroker(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        )
        self._brokers = {broker.node_id: broker for broker in brokers}
        self._cluster = ClusterDescription(answer.cluster_id, answer.controller_id, brokers)
        if names is None:
            self._topics.clear()
        for topic in answer.topics:
            if topics is not None:
                missing = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refuse(
                    topic.error_code,
                    f"topic {topic.name}",
                    "there is no such topic" if missing else None,
                )
            if not topic.error_code and topic.name:
                self._topics[TopicName(topic.name)] = _describe_topic(topic)


def _describe_topic(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in sorted(topic.partitions, key=lambda one: one.partition_index)
    )
    return TopicDescription(
        TopicName(topic.name or ""), TopicId(topic.topic_id), topic.is_internal, partitions
    )
