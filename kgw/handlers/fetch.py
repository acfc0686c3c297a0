"""Fetch, key 1, versions 0 to 18: read record batches, and wait for them.

Behaviour:
- the answer has whole batches as they were stored, beginning with the batch that contains the fetch
  offset; the client skips the records before this offset;
- partitions are read in the request's order up to `max_bytes`, which is limited by
  `fetch.max.bytes`, by 8 MB, and further if clients do not read their answers. The first batch is
  always sent, whatever its size (KIP-74). An answer has at most 4,000 batches, at most 1,000 from
  one partition; the client fetches further batches with its next request;
- if there are fewer than `min_bytes`, the request waits for appends to its partitions.
  `max_wait_ms` limits the sum of all waits of the request. Batches that are not in memory are read
  from the storage for a few partitions at a time. If a partition's batches have not been read in
  this time, it is answered without records; the read continues, so that a later request finds the
  batches. With a `max_wait_ms` of 0 the request waits for the read up to 5 s; then the partition
  gets KAFKA_STORAGE_ERROR, as "no records" would be wrong;
- fetch sessions (KIP-227): requests and answers have only partitions that have changed. If there is
  no room for a session, the answer has session id 0, and the client continues with complete
  requests;
- NOT_LEADER_OR_FOLLOWER for a partition of another node; from v16 on the answer names that node
  (KIP-951);
- a process that is not confirmed as leader serves records, but never says that there are no more: a
  partition without records gets NOT_LEADER_OR_FOLLOWER, and there are no sessions;
- leader epochs are checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; KIP-320), and a diverging
  log is reported from v12 on (KIP-595);
- compaction can leave batches without records: a read continues after them. An answer consists of
  such batches alone only at the end of a partition, as kafka-go starts again at offset 0 after such
  an answer;
- damaged batches are never sent: a Fetch at the damage gets CORRUPT_MESSAGE, which the application
  sees and can seek past. If the disk fails, the partition gets KAFKA_STORAGE_ERROR, after which
  clients retry;
- below v10 a topic with compression.type=zstd is UNSUPPORTED_COMPRESSION_TYPE (KIP-110); zstd
  batches of other topics are sent unchanged, as in Kafka, but batches that kgw.cold.compression has
  compressed with zstd are decompressed;
- `kgw.partitions.view` decides which records an isolation level sees, and which were aborted; an
  unknown isolation level is INVALID_REQUEST, where Kafka fails with UNKNOWN_SERVER_ERROR;
- before v4 batches are converted to message sets of format 0 (v0, v1) or 1 (v2, v3), as Kafka did
  up to 3.9: a compressed batch becomes one compressed message of the same codec (several if it has
  more than 8 MB uncompressed). Any other batch becomes one message for each record from the fetch
  offset on. Headers and control batches are left out. The answer has as many whole messages as fit,
  at least one. zstd, which only format 2 has, is UNSUPPORTED_COMPRESSION_TYPE, and an unreadable
  batch is CORRUPT_MESSAGE;
- before v6 KAFKA_STORAGE_ERROR, which clients did not know, is NOT_LEADER_OR_FOLLOWER;
- a partition that is named twice is read once, from the last offset; a topic without partitions is
  not answered;
- the replica id in the request is ignored, but with access rules a client that sends one needs
  CLUSTER_ACTION on the cluster instead of READ on the topics. Without its right each partition is
  TOPIC_AUTHORIZATION_FAILED; a request that waits is answered with it when the rules change.

v1: throttle time. v2: format 1 (KIP-32). v3: a limit for the whole answer (KIP-74). v4: format 2,
isolation (KIP-98). v5: log start offset (KIP-107). v6: KAFKA_STORAGE_ERROR (KIP-112). v7: sessions,
an error code for the whole answer (KIP-227). v9: leader epoch (KIP-320). v10: zstd batches
(KIP-110). v11: rack (KIP-392). v12: flexible, last fetched epoch (KIP-482, KIP-595). v13: topic ids
(KIP-516). v15: replica state (KIP-903). v16: endpoints of new leaders (KIP-951). v17: directory ids
(KIP-853). v18: high watermark of followers (KIP-1166).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.lease import LeaseStatus
from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import Later
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.leaders import name_leader
from kgw.handlers.parts import Api
from kgw.handlers.rights import Rights
from kgw.metrics import count
from kgw.partitions.read.answer_room import AnswerBudget
from kgw.partitions.read.fetch_parts import PartitionRead, SessionParts
from kgw.partitions.read.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    AnsweredPartition,
    RequestedPartition,
)
from kgw.partitions.read.reading import PARTS_PER_TURN, FetchRead, fetch_times
from kgw.partitions.view import Isolation, check_isolation
from kgw.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from kgw.records.batch import Compression
from kgw.records.limits import DecompressionLimits
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.turns import at_once, finish
from kgw.types import NO_OFFSET, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.read.fetch_sessions import FetchSession, TopicKey
    from kgw.partitions.read.reading import FetchTimes
    from kgw.partitions.view import PartitionView
    from kgw.protocol.framing import EncodedBody
    from kgw.protocol.messages.fetch import FetchPartition, FetchRequest
    from kgw.protocol.schema import Response
    from kgw.turns import Turns

# An enum's attribute is slow to look up.
_NONE = ErrorCode.NONE
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_UNCONFIRMED = LeaseStatus.UNCONFIRMED

_FORMAT_1 = 2
_BATCHES = 4
_STORAGE_ERRORS = 6
_SESSIONS = 7
_ZSTD = 10
_BY_TOPIC_ID = 13
_REPLICA_STATE = 15
_NEW_LEADERS = 16
_NOTE_INTERVAL_S = 1.0
# The interval at which the positions of all partitions in a session are recorded, including idle
# ones.
_NOTE_ALL_INTERVAL_S = 10.0
# The most positions that are recorded for one connection in a second.
_NOTES_PER_S = 100
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Fetch(Api):
    response_type = FetchResponse
    rights = Rights(
        topic=AclOperation.READ, others=((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),)
    )
    parts = {"responses": "topics", "partitions": "partitions"}
    refused_values = {"high_watermark": NO_OFFSET, "records": b""}
    refuses_every_part = True

    _makes_session = False
    _rules_version = 0
    """The version of the access rules by which the client was asked for its rights."""
    _may_replicate: bool | None = None
    """Whether the client, which says that it is a broker, may be one; None for a consumer."""

    @classmethod
    def refuse(
        cls, request: FetchRequest, code: ErrorCode, message: str | None, context: RequestContext
    ) -> Response | None:
        if code in _SESSION_ERRORS:
            # The partitions of the request are not known.
            return FetchResponse(error_code=code)
        return super().refuse(request, code, message, context)

    def check_rights(self) -> None:
        request, access = self.request, self.gateway.access
        if access is not None:
            self._rules_version = access.version
        replica_id = request.replica_id
        if self.version >= _REPLICA_STATE:
            replica_id = request.replica_state.replica_id
        if replica_id >= 0:
            # As in Kafka, no right on topics is asked for then.
            self._may_replicate = self.may_on_cluster(AclOperation.CLUSTER_ACTION)

    def _is_denied(self, topic: TopicKey, known: PartitionView | None = None) -> bool:
        """Return whether the client may not read a topic. Not asked for an unknown topic id."""
        if self._may_replicate is not None:
            return not self._may_replicate
        if known is not None:
            return not self.may_use_topic(known.topic.name)
        if isinstance(topic, str):
            return not self.may_use_topic(topic)
        found = self.gateway.catalog.by_id(topic)
        return found is not None and not self.may_use_topic(found.name)

    def _ask_again(self, parts: Iterable[PartitionRead]) -> None:
        """Deny partitions on which the client has lost the right since they were looked up."""
        access = self.gateway.access
        if access is not None and access.version != self._rules_version:
            denied: dict[str, bool] = {}
            for part in parts:
                if part.view is None:
                    continue
                name = part.view.topic.name
                if name not in denied:
                    denied[name] = self._is_denied(name, part.view)
                if denied[name]:
                    part.denied_code = _DENIED

    def answer(self) -> Answer:
        request = self.request
        if self.version < _BATCHES:
            return self._answer_with_messages()
        check_isolation(request.isolation_level)
        is_confirmed = self.gateway.node.status is not _UNCONFIRMED
        if request.session_epoch not in {FINAL_EPOCH, INITIAL_EPOCH}:
            if is_confirmed:
                return self._answer_in_session()
            # In a session, a partition without new records is left out: clients take that for "no
            # more".
            self.gateway.fetch_sessions.close(request.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_id:
            self.gateway.fetch_sessions.close(request.session_id)
        self._makes_session = (
            request.session_epoch == INITIAL_EPOCH and self.version >= _SESSIONS and is_confirmed
        )
        return self._answer_complete()

    def _limits(self) -> tuple[AnswerBudget, FetchTimes]:
        """Return the limit on the answer's size, and its deadlines."""
        request, room = self.request, self.gateway.answer_room
        max_bytes = min(request.max_bytes, self.gateway.config.fetch_max_bytes, room.next_bytes)
        budget = AnswerBudget(max_bytes, request.min_bytes, room)
        return budget, fetch_times(self.context.received_s, request.max_wait_ms)

    # --- requests that name all of their partitions ----------------------------------------------

    def _answer_complete(self) -> Answer:
        request, session, gateway = self.request, self.context.session, self.gateway
        limits = self._limits()
        size = 0
        for topic in request.topics:
            size += len(topic.partitions)
        if size > PARTS_PER_TURN:
            return self._answer_many(limits)
        kept_read = session.fetch_decoder.wait_again(request, *limits, self._rules_version)
        self.read = kept_read or FetchRead(
            [*self._look_up(self._topics_once())],
            *limits,
            gateway.fetch_deadlines,
            gateway.cold_reads,
        )
        if self.context.received_s >= session.note_due_s:
            self._note_next(len(self.read.parts))
            self._note(self.read.parts)
        if self.read.is_done:
            return self._respond(self.read.parts)
        if gateway.access is not None:
            self.read.look_again = self._ask_again
        return Later(self.read, self._respond_after_wait, self.read.stop)

    def _look_up(self, topics: Iterable[FetchTopic]) -> Iterator[PartitionRead]:
        """Yield the partitions of the request."""
        by_id = self.version >= _BY_TOPIC_ID
        for named in topics:
            topic = named.topic_id if by_id else named.topic
            for asked in named.partitions:
                view, gone_code = self.find_view(topic, asked.partition)
                yield PartitionRead(
                    view,
                    asked.fetch_offset,
                    asked.partition_max_bytes,
                    asked.current_leader_epoch,
                    asked.last_fetched_epoch,
                    gone_code,
                )

    def find_view(
        self, topic: TopicKey, index: int, known: PartitionView | None = None
    ) -> tuple[PartitionView | None, ErrorCode]:
        """Return the view of a partition for this request; if it is None, the error for it.

        Every partition of a Fetch is looked up here before it is read: partitions in the request,
        and partitions of the session, whose view is `known` from an earlier request. Partitions of
        a kept poll (`kgw.handlers.kept_polls`) have been looked up, too; the poll is dropped when
        something happens to them.

        The right on the topic is asked for each time, also for a known view. When an access rule
        changes, `Partition.end_waits` is called: it ends the waits, and sessions look the partition
        up again. `_partition_data` asks again for a partition that was looked up before the change.
        """
        if self.gateway.access is not None and self._is_denied(topic, known):
            return None, _DENIED
        isolation = self.request.isolation_level
        if known is not None and known.presence.gone_code is None and known.isolation == isolation:
            return known, _NONE
        partition, gone_code = self.gateway.catalog.find(topic, index)
        if partition is None:
            return None, gone_code
        if self.version >= _ZSTD:
            return partition.view(isolation), gone_code
        return partition.view_without_zstd(isolation), gone_code

    def _topics_once(self) -> Sequence[FetchTopic]:
        """Return the topics with each partition once: in its first position, with its last values.

        A topic may still occur again after others: Java's consumer does this to get its partitions
        in its own order. Topics without partitions are left out.
        """
        request, by_id = self.request, self.version >= _BY_TOPIC_ID
        if _names_once(request, by_id=by_id):
            topics: Sequence[FetchTopic] = request.topics
            return topics
        places: dict[tuple[TopicKey, int], tuple[FetchTopic, FetchPartition]] = {}
        for topic in request.topics:
            key = topic.topic_id if by_id else topic.topic
            for asked in topic.partitions:
                places[key, asked.partition] = topic, asked
        once: list[FetchTopic] = []
        last: TopicKey | None = None
        for (key, _), (topic, asked) in places.items():
            if key != last:
                once.append(FetchTopic(topic=topic.topic, topic_id=topic.topic_id))
                last = key
            once[-1].partitions.append(asked)
        request.topics = once
        return once

    def _respond_after_wait(self) -> Response | EncodedBody:
        """Return the answer after a wait; keep the answer if it is empty."""
        kept = self._kept_answer()
        if kept is not None:
            return kept
        self.read.read_latest()
        return self._keep(self._respond(self.read.parts))

    def _kept_answer(self) -> EncodedBody | None:
        """Return the answer of the previous poll if this poll has ended with the same result."""
        if self._makes_session or self.gateway.node.status is _UNCONFIRMED:
            return None
        return self.context.session.fetch_decoder.answer_again(self.request, self.read)

    def _keep(self, response: FetchResponse) -> Response | EncodedBody:
        decoder = self.context.session.fetch_decoder
        return decoder.keep(self.request, self.read, response, self.version)

    def _respond(self, parts: Sequence[PartitionRead]) -> FetchResponse:
        response = FetchResponse()
        if self._makes_session:
            response.session_id = _id_of(at_once(self._create_session(parts)))
        left = iter(parts)
        for topic in self.request.topics:
            answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            for asked in topic.partitions:
                part = next(left)
                answer.partitions.append(
                    self._partition_data(topic, asked.partition, part, response)
                )
            response.responses.append(answer)
        return response

    # --- requests of thousands of partitions, and those of old versions --------------------------

    async def _answer_many(self, limits: tuple[AnswerBudget, FetchTimes]) -> Response | EncodedBody:
        # Not before this coroutine begins: the request may be given up before that.
        gateway = self.gateway
        decoder = self.context.session.fetch_decoder
        kept_read = decoder.wait_again(self.request, *limits, self._rules_version)
        self.read = kept_read or FetchRead(
            await self._look_up_in_turns(), *limits, gateway.fetch_deadlines, gateway.cold_reads
        )
        if gateway.access is not None:
            self.read.look_again = self._ask_again
        try:
            await self._note_in_turns(self.read.parts)
            await self.read
            kept = self._kept_answer()
            if kept is not None:
                return kept
            self.read.read_latest()
            return self._keep(await self._respond_in_turns(self.read.parts))
        except BaseException:
            self.read.stop()
            raise

    async def _answer_with_messages(self) -> Response:
        """Answer a request of a version before record batches."""
        # Imported here, as few clients send such requests.
        from kgw.partitions.read.down_conversion import OldFetch, read_messages

        gateway = self.gateway
        count(gateway.metrics.converted_requests, "FETCH")
        budget, times = self._limits()
        parts = await self._look_up_in_turns()
        await self._note_in_turns(parts)
        await read_messages(
            parts,
            OldFetch(
                magic=0 if self.version < _FORMAT_1 else 1,
                budget=budget,
                times=times,
                deadlines=gateway.fetch_deadlines,
                cold_reads=gateway.cold_reads,
                thread=gateway.catalog.check_thread,
                limits=DecompressionLimits(
                    gateway.config.decompressed_bytes_max, gateway.config.decompression_ratio_max
                ),
            ),
        )
        if len(parts) <= PARTS_PER_TURN:
            return self._respond(parts)
        return await self._respond_in_turns(parts)

    async def _look_up_in_turns(self) -> list[PartitionRead]:
        parts: list[PartitionRead] = []
        async for some in self.slices(self._look_up(self._topics_once()), 2 * PARTS_PER_TURN):
            parts += some
        return parts

    async def _note_in_turns(self, parts: Sequence[PartitionRead]) -> None:
        if self.context.received_s >= self.context.session.note_due_s:
            self._note_next(len(parts))
            async for some in self.slices(parts, 2 * PARTS_PER_TURN):
                self._note(some)

    async def _respond_in_turns(self, parts: Sequence[PartitionRead]) -> FetchResponse:
        """Make and encode the answer for each partition, in turns of the event loop."""
        response = FetchResponse()
        if self._makes_session:
            creating = self._create_session(parts)
            response.session_id = _id_of(await finish(creating, self.gateway.answer_turns))
        left = iter(parts)

        def partitions(topic: FetchTopic) -> Iterator[PartitionData]:
            for asked in topic.partitions:
                yield self._partition_data(topic, asked.partition, next(left), response)

        topics = (
            Inner(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id),
                "partitions",
                partitions(topic),
            )
            for topic in self.request.topics
        )
        response.responses = await self.encoded(topics, PARTS_PER_TURN)
        return response

    # --- one partition of an answer --------------------------------------------------------------

    def _partition_data(
        self,
        topic: FetchTopic | FetchableTopicResponse,
        index: int,
        part: PartitionRead,
        response: FetchResponse,
    ) -> PartitionData:
        """Return the answer for a partition. Adds the leaders on other nodes to `response`."""
        gateway, version = self.gateway, self.version
        access, view = gateway.access, part.view
        if (
            access is not None
            and access.version != self._rules_version
            and view is not None
            and self._is_denied(view.topic.name, view)
        ):
            part.fail(_DENIED)
        if version < _ZSTD and part.error_code is _NONE:
            named = gateway.catalog.get(topic.topic)
            if named is not None and named.config.batches.compression is Compression.ZSTD:
                part.fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if gateway.node.status is _UNCONFIRMED and not part.buffers and part.error_code is _NONE:
            part.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        bounds = part.bounds
        aborted = None
        if self.request.isolation_level == Isolation.READ_COMMITTED:
            aborted = [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in part.aborted()
            ]
        elif part.view is None:  # null only for a partition that exists, as in Kafka
            aborted = []
        answer = PartitionData(
            partition_index=index,
            error_code=part.error_code,
            high_watermark=bounds.high_watermark,
            last_stable_offset=bounds.last_stable_offset,
            log_start_offset=bounds.log_start_offset,
            aborted_transactions=aborted,
            records=part.buffers or b"",
        )
        if part.buffers:
            gateway.metrics.fetched_bytes += sum(map(len, part.buffers))
            counts = gateway.catalog.counts
            if counts is not None and part.view is not None:
                key = PartitionKey(part.view.topic.topic_id, index)
                counts.fetched(key, part.buffers, are_batches=version >= _BATCHES)
        if part.diverging is not None:
            answer.diverging_epoch = EpochEndOffset(
                epoch=part.diverging.leader_epoch, end_offset=part.diverging.end_offset
            )
        if part.error_code is not _NONE:
            self._explain(topic, answer, response)
        return answer

    def _explain(
        self,
        topic: FetchTopic | FetchableTopicResponse,
        answer: PartitionData,
        response: FetchResponse,
    ) -> None:
        """Change a partition's error to one that the request's version has; add the new leader."""
        code, version = answer.error_code, self.version
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _NEW_LEADERS:
            found = self.gateway.catalog.by_id(topic.topic_id)
            if found is not None:
                endpoints = response.node_endpoints
                index = answer.partition_index
                name_leader(found, index, answer, endpoints, NodeEndpoint, self.context)
        elif code == ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERRORS:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- fetch sessions --------------------------------------------------------------------------

    def _answer_in_session(self) -> Answer:
        """Answer an incremental request: it names only partitions that have changed."""
        request, context, gateway = self.request, self.context, self.gateway
        sessions = gateway.fetch_sessions
        by_id = self.version >= _BY_TOPIC_ID
        session = sessions.go_on(request.session_id, request.session_epoch, uses_topic_ids=by_id)
        forgotten = (
            (topic.topic_id if by_id else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        )
        if not sessions.update(session, self._asked(), forgotten, context.received_s):
            # The session has no partitions left: as in Kafka the request is handled without a
            # session.
            return self._answer_complete()

        parts = SessionParts(session, self.find_view)
        limits = self._limits()
        read = FetchRead([], *limits, gateway.fetch_deadlines, gateway.cold_reads, parts)
        if context.received_s >= context.session.note_due_s:
            self._note_next(len(read.parts))
            self._note(read.parts)
        if context.received_s >= session.noted_s + _NOTE_ALL_INTERVAL_S:
            self._note_session(session)

        def make() -> FetchResponse:
            read.read_latest()
            read.stop()
            return self._changes(parts)

        return make() if read.is_done else Later(read, make, read.stop)

    def _changes(self, parts: SessionParts) -> FetchResponse:
        """Return the answer to an incremental request: the changes since the last answer."""
        session = parts.session
        if not parts.is_answerable:
            return FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id
            )
        response = FetchResponse(session_id=session.id)
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        for entry, part in zip(parts.entries, parts.parts, strict=True):
            if not part.is_examined:
                continue  # an earlier partition waits for the disk: the next request reads this
            is_news = entry.tell(
                part.bounds.high_watermark,
                part.bounds.log_start_offset,
                has_records=bool(part.buffers),
                has_error=part.error_code is not _NONE,
                diverges=part.diverging is not None,
            )
            if is_news:
                answer = topics.get(entry.topic)
                if answer is None:
                    answer = topics[entry.topic] = FetchableTopicResponse()
                    if isinstance(entry.topic, str):
                        answer.topic = entry.topic
                    else:
                        answer.topic_id = entry.topic
                answer.partitions.append(self._partition_data(answer, entry.index, part, response))
        response.responses = [*topics.values()]
        return response

    def _asked(self) -> Iterator[RequestedPartition]:
        by_id = self.version >= _BY_TOPIC_ID
        for topic in self.request.topics:
            key = topic.topic_id if by_id else topic.topic
            for asked in topic.partitions:
                yield RequestedPartition(
                    key,
                    asked.partition,
                    asked.fetch_offset,
                    asked.partition_max_bytes,
                    asked.current_leader_epoch,
                    asked.last_fetched_epoch,
                )

    def _create_session(self, parts: Sequence[PartitionRead]) -> Turns[FetchSession | None]:
        """Return a session with the partitions of the answer; None if there is no room for it."""
        return self.gateway.fetch_sessions.create(
            (
                AnsweredPartition(
                    asked,
                    part.bounds.high_watermark,
                    part.bounds.log_start_offset,
                    has_records=bool(part.buffers),
                    has_error=part.error_code is not _NONE,
                )
                for asked, part in zip(self._asked(), parts, strict=True)
            ),
            len(parts),
            uses_topic_ids=self.version >= _BY_TOPIC_ID,
            now_s=self.context.received_s,
        )

    # --- where clients read ----------------------------------------------------------------------

    def _note_next(self, size: int) -> None:
        """Set the time at which the connection's positions are recorded next.

        Recording them at every request would be a tenth of the cost of a connection with thousands
        of requests a second.
        """
        interval_s = max(_NOTE_INTERVAL_S, size / _NOTES_PER_S)
        self.context.session.note_due_s = self.context.received_s + interval_s

    def _note(self, parts: Iterable[PartitionRead]) -> None:
        """Record the client's positions, for clients that commit no offsets."""
        for part in parts:
            self._note_position(part.view, part.offset)

    def _note_session(self, session: FetchSession) -> None:
        """Record the positions in all partitions of a session, as requests leave idle ones out."""
        session.noted_s = self.context.received_s
        for one in session.partitions():
            self._note_position(one.view, one.offset)

    def _note_position(self, view: PartitionView | None, offset: int) -> None:
        if view is not None:
            self.gateway.positions.note(
                self.context.session.client_id,
                view.topic.topic_id,
                view.index,
                offset,
                self.context.received_s,
                is_committed=view.isolation is Isolation.READ_COMMITTED,
            )


def _id_of(session: FetchSession | None) -> int:
    return NO_SESSION if session is None else session.id


def _names_once(request: FetchRequest, *, by_id: bool) -> bool:
    """Return whether no topic and no partition is repeated, and no topic is empty."""
    topics = request.topics
    for topic in topics:
        places = topic.partitions
        if len(places) != 1 and (
            not places or len({place.partition for place in places}) < len(places)
        ):
            return False
    return len(topics) < 2 or len(topics) == len(
        {topic.topic_id for topic in topics} if by_id else {topic.topic for topic in topics}
    )
