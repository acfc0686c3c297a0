"""kgw.loading: one producer writes, the others wait; batches may keep their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.append.loading import Loading
from kgw.partitions.topic_config import TopicConfig
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.fetch import FetchResponse
from kgw.records.batch import Compression, read_batch
from kgw.testing.batches import make_batch, make_sparse_batch, read_stored
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    START_MS,
    batch,
    call,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    produced,
    topic_of,
)
from tests.records.message_sets import message

if TYPE_CHECKING:
    from kgw.protocol.messages.produce import PartitionProduceResponse

LOADING: dict[str, Any] = {"kgw.loading": "job-"}
ORIGINAL: dict[str, Any] = {**LOADING, "kgw.loading.offsets": "original"}
MAX_OFFSET = (1 << 63) - 1


async def load(gateway: InProcessGateway, records: bytes | bytearray) -> PartitionProduceResponse:
    """Produce as the job that loads."""
    request = produce_request(records, transactional_id="job-0")
    return await produced(gateway.start(request, 9))


async def alter(gateway: InProcessGateway, **settings: str | None) -> tuple[int, str | None]:
    """Change settings of the topic; return error code and message."""
    resource = {
        "resource_type": 2,
        "resource_name": "orders",
        "configs": [
            {
                "name": name.replace("_", "."),
                "config_operation": 1 if value is None else 0,
                "value": value,
            }
            for name, value in settings.items()
        ],
    }
    answer = await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    return answer.responses[0].error_code, answer.responses[0].error_message


async def stored(gateway: InProcessGateway, offset: int) -> list[tuple[int, bytes]]:
    """Return the records that a Fetch from an offset answers with."""
    response = await gateway.ask(fetch_request(offset), 12, FetchResponse)
    records = response.responses[0].partitions[0].records
    assert isinstance(records, bytes | bytearray | memoryview)
    return [(one.offset, one.value) for one in read_stored([records])]


def ends(gateway: InProcessGateway) -> tuple[int, int]:
    """Return where the partition begins and ends."""
    log = topic_of(gateway).partitions[0].log
    return log.log_start_offset, log.end_offset


async def test_only_who_loads_writes() -> None:
    """Others are told to try again, and are stored when the setting has gone."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **LOADING)
        for transactional_id in (None, "another", "job"):
            request = produce_request(batch(), transactional_id=transactional_id)
            answer = await produced(gateway.start(request, 9))
            assert ErrorCode.NOT_ENOUGH_REPLICAS == answer.error_code
            assert "kgw.loading=job-" in (answer.error_message or "")
        assert 0 == (await load(gateway, batch(b"a"))).base_offset
        assert (0, 1) == ends(gateway)
        assert (0, None) == await alter(gateway, kgw_loading=None)
        answer = await produce(gateway, batch(b"b"))
        assert (0, 1) == (answer.error_code, answer.base_offset)
        assert [(0, b"a"), (1, b"b")] == await stored(gateway, 0)


async def test_a_batch_that_waits_for_its_check_does_not_enter_later() -> None:
    """The topic may be loaded by the time that the check is over."""
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, kgw_validation="records")
        many = [b"v"] * 1000
        answer = gateway.start(produce_request(batch(*many, compression=Compression.GZIP)), 9)
        topic.config = TopicConfig({**topic.config.own, **LOADING}, Config.of())
        assert ErrorCode.NOT_ENOUGH_REPLICAS == (await produced(answer)).error_code
        assert (0, 0) == ends(gateway)


@pytest.mark.parametrize("checks", [{}, {"kgw.validation": "records"}], ids=["at once", "later"])
async def test_what_who_has_loaded_sends_late_is_refused(checks: dict[str, Any]) -> None:
    """Were it taken, it would be there twice: with an offset that anybody's batch could have."""
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, **ORIGINAL, **checks)
        values = dict.fromkeys(range(1000), b"v")
        late = [make_sparse_batch(0, 1000, values, timestamp_ms=START_MS) for _ in range(2)]
        request = produce_request(late.pop(), transactional_id="job-0")
        answer = gateway.start(request, 9)
        topic.config = TopicConfig({"kgw.loading.offsets": "original"}, Config.of())
        if checks:
            # It was in a thread when the topic was opened.
            assert ErrorCode.INVALID_RECORD == (await produced(answer)).error_code
        else:
            assert 0 == (await produced(answer)).error_code
        stored_end = ends(gateway)
        assert ErrorCode.INVALID_RECORD == (await load(gateway, late.pop())).error_code
        assert stored_end == ends(gateway)
        another = batch(producer_id=7, base_sequence=0)
        assert 0 == (await produce(gateway, another)).error_code


async def test_a_message_set_of_an_old_client_waits() -> None:
    """Its request has no place for a transactional id."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **LOADING)
        answer = await produce(gateway, message(1, b"v"), version=2)
        assert ErrorCode.NOT_ENOUGH_REPLICAS == answer.error_code
        await alter(gateway, kgw_loading=None)
        assert 0 == (await produce(gateway, message(1, b"v"), version=2)).error_code


async def test_what_an_idempotent_producer_sent_later_does_not_overtake() -> None:
    """The topic is opened between two of its batches: the first one comes first all the same."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **LOADING)
        first, second = (batch(producer_id=7, base_sequence=one) for one in (0, 1))
        assert ErrorCode.NOT_ENOUGH_REPLICAS == (await produce(gateway, first)).error_code
        await alter(gateway, kgw_loading=None)
        answer = await produce(gateway, second)
        assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == answer.error_code
        first, second = (batch(producer_id=7, base_sequence=one) for one in (0, 1))
        assert [0, 1] == [(await produce(gateway, one)).base_offset for one in (first, second)]


async def test_what_follows_a_batch_in_its_check_is_refused_behind_it() -> None:
    """The first of the two that is refused is the one that has to come first later on."""
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, kgw_validation="records")

        def start(sequence: int, count: int) -> Any:
            records = batch(
                *[b"v"] * count,
                compression=Compression.GZIP,
                producer_id=7,
                base_sequence=sequence,
            )
            return gateway.start(produce_request(records), 9)

        first = start(0, 1000)
        topic.config = TopicConfig({**topic.config.own, **LOADING}, Config.of())
        answers = [await produced(one) for one in (first, start(1000, 1))]
        assert [ErrorCode.NOT_ENOUGH_REPLICAS] * 2 == [one.error_code for one in answers]
        assert 2 == gateway.metrics.loading_refusals
        topic.config = TopicConfig({"kgw.validation": "records"}, Config.of())
        answer = await produced(start(1000, 1))
        assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == answer.error_code
        answers = [await produced(one) for one in (start(0, 1000), start(1000, 1))]
        assert [0, 1000] == [one.base_offset for one in answers]


async def test_batches_keep_their_offsets() -> None:
    """Gaps before, between and behind records, and of a batch without any."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL)
        for one in (
            make_sparse_batch(0, 100, {}),
            make_sparse_batch(100, 110, {103: b"a", 105: b"b"}),
            make_sparse_batch(110, 112, {110: b"c", 111: b"d"}, compression=Compression.ZSTD),
            make_sparse_batch(112, 120, {}),
        ):
            base_offset = read_batch(bytes(one)).base_offset
            answer = await load(gateway, one)
            assert (0, base_offset) == (answer.error_code, answer.base_offset)
        assert (0, 120) == ends(gateway)
        expected = [(103, b"a"), (105, b"b"), (110, b"c"), (111, b"d")]
        assert expected == await stored(gateway, 0)
        places = [{"partition_index": 0, "offset": 103}]
        wanted = [{"name": "orders", "partitions": places}]
        await call(gateway, ApiKey.DELETE_RECORDS, 2, topics=wanted, timeout_ms=1000)
        assert (103, 120) == ends(gateway)
        await alter(gateway, kgw_loading=None, kgw_loading_offsets=None)
        assert 120 == (await produce(gateway, batch(b"live"))).base_offset
        assert [*expected, (120, b"live")] == await stored(gateway, 103)


async def test_a_compacted_topic_begins_where_its_records_do() -> None:
    """DeleteRecords is for that alone: afterwards only compaction removes records."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL, cleanup_policy="compact")
        assert 0 == (await load(gateway, make_sparse_batch(0, 100, {}))).error_code
        places = [{"partition_index": 0, "offset": 100}]
        wanted = [{"name": "orders", "partitions": places}]
        await call(gateway, ApiKey.DELETE_RECORDS, 2, topics=wanted, timeout_ms=1000)
        assert (100, 100) == ends(gateway)
        await alter(gateway, kgw_loading=None)
        answer = await call(gateway, ApiKey.DELETE_RECORDS, 2, topics=wanted, timeout_ms=1000)
        code = answer.topics[0].partitions[0].error_code
        assert ErrorCode.POLICY_VIOLATION == code


async def test_a_batch_begins_where_the_partition_ends() -> None:
    """Neither what is stored already nor what would leave a hole is stored."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL)
        assert 0 == (await load(gateway, make_sparse_batch(0, 5, {4: b"v"}))).error_code
        for first in (0, 4, 6):
            answer = await load(gateway, make_sparse_batch(first, first + 5, {first: b"v"}))
            assert ErrorCode.OFFSET_OUT_OF_RANGE == answer.error_code
            assert "ends at 5" in (answer.error_message or "")
        assert [(4, b"v")] == await stored(gateway, 0)


async def test_what_follows_a_batch_that_failed_is_refused() -> None:
    """Several are in flight, and one finds no room: nothing is stored behind the hole."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, **ORIGINAL)
        backend.hold()
        pending = [
            gateway.start(
                produce_request(
                    make_sparse_batch(one, one + 1, {one: b"v"}), transactional_id="job-0"
                ),
                9,
            )
            for one in range(3)
        ]
        backend.fail_next_append()
        backend.release()
        codes = {(await produced(one)).error_code for one in pending}
        assert {ErrorCode.KAFKA_STORAGE_ERROR} == codes
        late = await load(gateway, make_sparse_batch(3, 4, {3: b"v"}))
        assert ErrorCode.OFFSET_OUT_OF_RANGE == late.error_code
        assert 0 == (await load(gateway, make_sparse_batch(0, 1, {0: b"v"}))).error_code


@pytest.mark.parametrize(
    "records",
    [
        make_sparse_batch(0, 1, {0: b"a", 1: b"b"}),
        make_sparse_batch(MAX_OFFSET, MAX_OFFSET + 1, {MAX_OFFSET: b"a"}),
        make_sparse_batch(-5, 1, {0: b"a"}),
        make_sparse_batch(0, 0, {}),
        batch(producer_id=7, base_sequence=0),
    ],
    ids=["too many records", "past the last offset", "below 0", "no offset", "of a producer"],
)
async def test_offsets_that_cannot_be_are_refused(records: bytearray) -> None:
    """And nothing is stored."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL)
        assert ErrorCode.INVALID_RECORD == (await load(gateway, records)).error_code
        assert (0, 0) == ends(gateway)


async def test_records_are_walked_where_the_topic_wants_that() -> None:
    """With kgw.validation=records gaps are allowed, and offsets that do not rise are not."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL, kgw_validation="records", compression_type="lz4")
        assert 0 == (await load(gateway, make_sparse_batch(0, 3, {}))).error_code
        one = make_sparse_batch(3, 9, {4: b"a", 7: b"b"}, timestamp_ms=START_MS)
        assert 0 == (await load(gateway, one)).error_code
        one = make_sparse_batch(9, 19, {15: b"a", 12: b"b"}, timestamp_ms=START_MS)
        assert ErrorCode.INVALID_RECORD == (await load(gateway, one)).error_code
        assert [(4, b"a"), (7, b"b")] == await stored(gateway, 0)


async def test_outside_of_loading_nothing_has_changed() -> None:
    """A batch with an offset, a gap or no record is refused, whoever sends it."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **LOADING)
        for one in (make_sparse_batch(0, 2, {1: b"v"}), make_sparse_batch(0, 2, {})):
            assert ErrorCode.INVALID_RECORD == (await load(gateway, one)).error_code
        await alter(gateway, kgw_loading=None, kgw_loading_offsets="original")
        for one in (make_sparse_batch(0, 2, {1: b"v"}), make_sparse_batch(0, 2, {})):
            assert ErrorCode.INVALID_RECORD == (await load(gateway, one)).error_code
        assert (0, 0) == ends(gateway)


async def test_original_offsets_are_for_empty_topics() -> None:
    """Otherwise nobody could tell what was loaded from what was there."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, partitions=2)
        await produce(gateway, batch(), index=1)
        code, message = await alter(
            gateway, kgw_loading="job-", kgw_loading_offsets="original", retention_ms="1000"
        )
        assert ErrorCode.INVALID_CONFIG == code
        assert "partition 1 of orders ends at offset 1" in (message or "")
        assert "retention.ms" not in topic_of(gateway).config.own


async def test_nothing_is_loaded_where_a_power_loss_moves_the_end() -> None:
    """The setting may have come after the job has looked; when it has gone, the job goes on."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL)
        assert (0, None) == await alter(gateway, kgw_durability="relaxed")
        answer = await load(gateway, make_sparse_batch(0, 2, {1: b"v"}))
        assert ErrorCode.POLICY_VIOLATION == answer.error_code
        assert "kgw.durability=strict" in (answer.error_message or "")
        assert (0, None) == await alter(gateway, kgw_durability=None)
        assert 0 == (await load(gateway, make_sparse_batch(0, 2, {1: b"v"}))).error_code


async def test_original_offsets_outlast_other_changes_and_a_restart() -> None:
    """The job goes on; another one is refused, since it has not loaded what is there."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL)
        await load(gateway, make_sparse_batch(0, 5, {4: b"v"}))
        assert (0, None) == await alter(gateway, retention_ms="-1")
        backend = gateway.backend
    async with InProcessGateway(backend=backend) as gateway:
        assert ErrorCode.NOT_ENOUGH_REPLICAS == (await produce(gateway, batch())).error_code
        assert 5 == (await load(gateway, make_sparse_batch(5, 9, {8: b"w"}))).base_offset
        assert ErrorCode.INVALID_CONFIG == (await alter(gateway, kgw_loading="other"))[0]


@pytest.mark.parametrize("outcome", ["stored", "not stored", "in doubt"])
async def test_nobody_else_writes_while_the_setting_is_stored(
    monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """What came then would be taken for loaded; a setting that is not stored lets it in again."""
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, kgw_loading_offsets="original", retention_ms="5")
        state = gateway.backend.state
        apply = type(state).apply
        codes: list[int] = []

        async def apply_late(self: object, changes: list[Any]) -> None:
            codes.append((await produce(gateway, batch())).error_code)
            if outcome == "in doubt":
                patch.setattr(type(state), "failure", "no room")
            if outcome != "stored":
                raise StorageError("no room")
            await apply(state, changes)

        with monkeypatch.context() as patch:
            patch.setattr(type(state), "apply", apply_late)
            code, _ = await alter(gateway, kgw_loading="job-", retention_ms="6")
        is_stored, is_open = outcome == "stored", outcome == "not stored"
        assert [ErrorCode.NOT_ENOUGH_REPLICAS] == codes
        assert (ErrorCode.NONE if is_stored else ErrorCode.KAFKA_STORAGE_ERROR) == code
        assert (None if is_open else Loading("job-", keeps_offsets=True)) == topic.config.loading
        assert (6 if is_stored else 5) == topic.config.own["retention.ms"]
        assert is_open == ((await produce(gateway, batch())).error_code == 0)


async def test_only_one_job_loads() -> None:
    """One that asked before another began, and begins after it, would take its place."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **LOADING)
        for changes in ({"kgw_loading": "other"}, {"kgw_loading_offsets": "original"}):
            code, message = await alter(gateway, **changes)
            assert ErrorCode.INVALID_CONFIG == code
            assert "is being loaded: take kgw.loading=job- away first" in (message or "")
        assert (0, None) == await alter(gateway, kgw_loading="job-", retention_ms="5")
        assert 0 == (await load(gateway, batch(b"a"))).error_code


async def test_a_marker_takes_no_offset_of_those_that_are_loaded() -> None:
    """A transaction that could write nothing here ends; nothing of it is stored."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, **ORIGINAL)
        marker = {
            "producer_id": 7,
            "producer_epoch": 0,
            "transaction_result": True,
            "coordinator_epoch": 0,
            "topics": [{"name": "orders", "partition_indexes": [0]}],
        }
        answer = await call(gateway, ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        assert 0 == answer.markers[0].topics[0].partitions[0].error_code
        assert (0, 0) == ends(gateway)


def test_a_batch_of_a_transaction_has_no_offset_of_its_own() -> None:
    """Its marker would take one."""
    one = make_batch([b"v"], producer_id=7, producer_epoch=0, is_transactional=True)
    with pytest.raises(KafkaError, match="has no producer id"):
        Loading("job-", keeps_offsets=True).check_place(one, 0, is_relaxed=False)
    Loading("job-", keeps_offsets=False).check_place(one, 5, is_relaxed=True)
