"""Every numeric setting at the edges of what is accepted, in all that calculates with it."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import pytest
import uvloop
from hypothesis import Phase, example, given, reject, settings
from hypothesis import strategies as st

from kgw.backend.base import LogSettings, Segmented
from kgw.backend.embedded.read.lookups import find_by_time
from kgw.client import AdminClient, AsyncClient, NewRecord, Producer
from kgw.client.values import LATEST
from kgw.clock import SystemClock
from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, Config, ConfigError, Setting, SettingType
from kgw.config.setting import INT_MAX, LONG_MAX
from kgw.protocol.api_keys import ApiKey
from kgw.records.batch import CRC_START, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.crc import crc32c
from kgw.records.reader import read_records
from kgw.testing.batches import make_batch
from kgw.testing.gateway import InProcessGateway
from kgw.testing.process import GatewayProcess
from tests.backend.embedded.compact.test_compaction import FAR, compact, records
from tests.backend.embedded.driver import Driver, flush_group
from tests.handlers.support import START_MS, call, create_topic, produce, request_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kgw.config import Value
    from kgw.partitions.topics.topic import Topic

NUMBERS: Final = {SettingType.INT, SettingType.LONG, SettingType.DOUBLE}
HEADER_TIMES: Final = Struct(">qq")
HEADER_TIMES_POSITION: Final = 27
CRC: Final = Struct(">I")
CRC_POSITION: Final = 17
PHASES: Final = (Phase.explicit, Phase.reuse, Phase.generate)
"""To make a failure smaller takes longer than a test may."""
DAY_S: Final = 86_400.0
TIMES_MS: Final = (-1, 0, 1, START_MS, INT_MAX, LONG_MAX - 1, LONG_MAX)


def edges(setting: Setting) -> list[Value]:
    """Return what a setting accepts at its edges, and next to them."""
    assert setting.minimum is not None, f"{setting.name} has no smallest value"
    low, high = setting.minimum, setting.maximum
    if setting.type is SettingType.DOUBLE:
        values: set[float] = {low, low + 1e-9, high if high is not None else 1.7e308}
    else:
        assert high is not None
        values = {low, low + 1, -1, 0, 1, INT_MAX, high - 1, high}
    found: list[Value] = [setting.default]
    for value in sorted(values):
        converted = float(value) if setting.type is SettingType.DOUBLE else int(value)
        try:
            found.append(setting.validate(converted))
        except ConfigError:
            continue
    return list(dict.fromkeys(found))


TOPIC_NUMBERS: Final = [
    one for one in TOPIC_SETTINGS.values() if one.type in NUMBERS and not one.allowed
]
SERVER_NUMBERS: Final = [
    one for one in SERVER_SETTINGS.values() if one.type in NUMBERS and not one.allowed
]


def some_of(table: list[Setting]) -> st.SearchStrategy[dict[str, Value]]:
    """Return some settings of a table, each at one of its edges."""
    return st.fixed_dictionaries(
        {}, optional={one.name: st.sampled_from(edges(one)) for one in table}
    )


@pytest.mark.parametrize("setting", TOPIC_NUMBERS + SERVER_NUMBERS, ids=lambda one: one.name)
def test_every_number_has_edges(setting: Setting) -> None:
    """What lies beyond them, or is no number at all, is refused."""
    texts = ["nan", "inf", "-inf"] if setting.type is SettingType.DOUBLE else []
    if setting.maximum is not None:
        texts.append(str(int(setting.maximum) + 1))
    assert setting.minimum is not None
    texts.append(str(int(setting.minimum) - 1))
    for text in texts:
        with pytest.raises(ConfigError, match=setting.name):
            setting.parse(text)
    for value in edges(setting):
        assert value == setting.parse(setting.format(value))


async def write(gateway: InProcessGateway, timestamps_ms: list[int]) -> int:
    """Produce deletion markers and records of two keys; returns how many were accepted."""
    accepted = 0
    for number, timestamp_ms in enumerate(timestamps_ms * 3):
        builder = BatchBuilder()
        builder.add(key=b"gone", value=None, timestamp_ms=timestamp_ms)
        builder.add(key=b"%d" % (number % 2), value=b"v" * 100, timestamp_ms=timestamp_ms)
        answer = await produce(gateway, builder.build())
        # MESSAGE_TOO_LARGE and INVALID_TIMESTAMP are what such a limit is for.
        assert answer.error_code in {0, 10, 32}, answer.error_message
        accepted += not answer.error_code
    return accepted


async def look_after(gateway: InProcessGateway, topic: Topic) -> None:
    """Do all that a server does by itself; nothing of it may fail."""
    log_manager = gateway.log_manager
    (partition,) = topic.partitions.values()
    await log_manager.retain()
    await log_manager.compact()
    if isinstance(partition.log, Segmented):
        await partition.log.roll()
    await log_manager.retain()
    await log_manager.compact()
    now_ms = gateway.clock.wall_ms()
    for at_ms in (now_ms, now_ms + LONG_MAX):
        assert await log_manager.forecast(partition.log.key, at_ms) >= 0
    metrics = gateway.metrics
    assert () == tuple(log_manager.problems)
    assert 0 == metrics.internal_errors
    assert 0 == metrics.retention_failures
    assert "failed" not in metrics.compactions


async def stored(topic: Topic) -> dict[int, bool]:
    """Return which records are left, and which of them are deletion markers."""
    (partition,) = topic.partitions.values()
    log = partition.log
    found: dict[int, bool] = {}
    offset = log.log_start_offset
    while offset < log.high_watermark:
        result = await log.read(offset, 1 << 20, log.high_watermark)
        batches = split_batches(b"".join(bytes(one) for one in result.buffers))
        assert all(before.next_offset == after.base_offset for before, after in pairwise(batches))
        for batch in batches:
            horizon_ms = batch.delete_horizon_ms
            assert horizon_ms is None or 0 <= horizon_ms <= LONG_MAX
            found |= {one.offset: one.value is None for one in read_records(batch)}
        offset = result.next_offset
    return found


@pytest.mark.slow
@settings(max_examples=150, phases=PHASES)
@given(
    own=some_of(TOPIC_NUMBERS),
    timestamps_ms=st.lists(st.sampled_from(TIMES_MS), min_size=1, max_size=6),
    policy=st.sampled_from(("compact", "delete", "compact,delete")),
    time=st.sampled_from(("CreateTime", "LogAppendTime")),
)
@example({"delete.retention.ms": LONG_MAX}, [START_MS, 0, -1], "compact", "CreateTime")
@example(
    {"delete.retention.ms": LONG_MAX, "message.timestamp.after.max.ms": LONG_MAX},
    [LONG_MAX, -1],
    "compact",
    "CreateTime",
)
def test_a_topic_works_at_every_edge(
    own: Mapping[str, Value], timestamps_ms: list[int], policy: str, time: str
) -> None:
    """Retention, compaction and reads do; no limit that is never reached removes anything."""

    async def run() -> None:
        async with InProcessGateway() as gateway:
            configs = {name: str(value) for name, value in own.items()}
            configs.setdefault("segment.bytes", "1024")
            configs |= {"cleanup.policy": policy, "message.timestamp.type": time}
            own_texts = {name.replace(".", "_"): text for name, text in configs.items()}
            topic = await create_topic(gateway, "orders", 1, **own_texts)
            accepted = await write(gateway, timestamps_ms)
            markers: set[int] = set()
            for wait_s in (0.0, 2 * DAY_S, 3650 * DAY_S):
                gateway.manual_clock.advance(wait_s)
                await look_after(gateway, topic)
                found = await stored(topic)
                values = topic.config.values
                removes = "delete" in policy and (
                    0 <= int(str(values["retention.ms"])) < LONG_MAX - 1
                    or 0 <= int(str(values["retention.bytes"])) < INT_MAX
                    or int(str(values["kgw.retention.offset"])) > 0
                )
                if removes or not accepted:
                    continue
                if "compact" not in policy:
                    assert list(range(2 * accepted)) == sorted(found)
                    continue
                assert 2 * accepted - 1 in found
                now = {offset for offset, is_marker in found.items() if is_marker}
                if int(str(values["delete.retention.ms"])) >= LONG_MAX - 1:
                    # A newer marker of its key may take its place; none goes by its age.
                    assert max(markers, default=0) <= max(now, default=0)
                    assert now
                markers = now

    asyncio.run(run())


@pytest.mark.parametrize(
    ("retention_ms", "is_kept"),
    [(0, False), (1, False), (LONG_MAX - START_MS, True), (LONG_MAX - 1, True), (LONG_MAX, True)],
)
async def test_a_time_that_never_comes_keeps_deletion_markers(
    retention_ms: int, is_kept: bool
) -> None:
    """Their batch says so with the last time that there is."""
    async with InProcessGateway() as gateway:
        topic = await create_topic(
            gateway,
            cleanup_policy="compact",
            segment_bytes="1024",
            delete_retention_ms=str(retention_ms),
        )
        assert 9 == await write(gateway, [START_MS, 0, -1])
        (partition,) = topic.partitions.values()
        log = partition.log
        assert isinstance(log, Segmented)
        await log.roll()
        log_manager = gateway.log_manager
        await log_manager.compact()
        assert {"complete": 1} == gateway.metrics.compactions
        assert [16] == [offset for offset, is_marker in (await stored(topic)).items() if is_marker]
        result = await log.read(0, 1 << 20, partition.log.high_watermark)
        batches = split_batches(b"".join(bytes(one) for one in result.buffers))
        expected_ms = min(START_MS + retention_ms, LONG_MAX)
        assert expected_ms == batches[-1].delete_horizon_ms
        *_, newest = read_records(batches[-1])
        assert (17, -1) == (newest.offset, newest.timestamp_ms)
        gateway.manual_clock.advance(1.0)
        # Something else that waits for compaction; the marker's key is left alone.
        builder = BatchBuilder()
        builder.add(key=b"other", value=b"v" * 500, timestamp_ms=START_MS)
        for _ in range(3):
            await produce(gateway, builder.build())
        await log.roll()
        await log_manager.compact()
        assert is_kept == (16 in await stored(topic))


@pytest.mark.parametrize("delta_ms", [1, 5, LONG_MAX])
async def test_a_time_beyond_the_last_one_wraps(delta_ms: int) -> None:
    """As it does in every client that adds it up; compaction and look-ups go on."""
    async with InProcessGateway() as gateway:
        topic = await create_topic(
            gateway,
            cleanup_policy="compact",
            segment_bytes="1024",
            message_timestamp_type="LogAppendTime",
        )
        (partition,) = topic.partitions.values()
        for _ in range(3):
            batch = make_batch([b"v" * 300, None], keys=[b"a", b"b"], timestamps_ms=[0, delta_ms])
            # The times of the records count again once the topic has another timestamp type.
            HEADER_TIMES.pack_into(batch.buffer, HEADER_TIMES_POSITION, LONG_MAX, LONG_MAX)
            CRC.pack_into(batch.buffer, CRC_POSITION, crc32c(batch.buffer[CRC_START:]))
            await partition.log.append([read_batch(batch.buffer)])
        await partition.log.roll()  # type: ignore[attr-defined]
        await gateway.log_manager.compact()
        assert () == tuple(gateway.log_manager.problems)
        result = await partition.log.read(0, 1 << 20, partition.log.high_watermark)
        batches = split_batches(b"".join(bytes(one) for one in result.buffers))
        times_ms = [record.timestamp_ms for one in batches for record in read_records(one)]
        assert [LONG_MAX, delta_ms - 1 - LONG_MAX - 1] == times_ms
        assert LONG_MAX == batches[-1].max_timestamp_ms


async def use_group(gateway: InProcessGateway, config: Config) -> None:
    """Join a group for as short and as long a session as there may be, and commit in it."""
    sessions_ms = (config.group_min_session_timeout_ms, config.group_max_session_timeout_ms)
    for version, session_ms in zip((4, 2), sessions_ms, strict=True):
        request = request_of(
            ApiKey.JOIN_GROUP,
            group_id=f"group-{version}",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=INT_MAX,
            protocol_type="workers",
            protocols=[{"name": "fair", "metadata": b"me"}],
        )
        pending = gateway.start(request, version)
        gateway.manual_clock.advance(0.02)
        await asyncio.sleep(0)
        # The first rebalance may have a delay of weeks.
        if pending.done:
            joined: Any = await pending.response()
            # REBALANCE_IN_PROGRESS for a session that is over before it has begun, and full groups.
            assert joined.error_code in {0, 27, 79, 81}, joined
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    answer = await call(
        gateway,
        ApiKey.OFFSET_COMMIT,
        4,
        group_id="other",
        generation_id_or_member_epoch=-1,
        retention_time_ms=LONG_MAX,
        topics=[{"name": "orders", "partitions": [partition]}],
    )
    # COORDINATOR_NOT_AVAILABLE where there may be no further group.
    assert answer.topics[0].partitions[0].error_code in {0, 15}


@pytest.mark.slow
@settings(max_examples=40, phases=PHASES)
@given(
    given_settings=some_of(SERVER_NUMBERS),
    timestamps_ms=st.lists(st.sampled_from(TIMES_MS), min_size=1, max_size=3),
    policy=st.sampled_from(("compact", "delete")),
)
def test_a_server_works_at_every_edge(
    given_settings: Mapping[str, Value], timestamps_ms: list[int], policy: str
) -> None:
    """The log manager, groups, lag and look-ups do, and are there again after some time."""
    attributes = {SERVER_SETTINGS[name].attribute: one for name, one in given_settings.items()}
    try:
        config = Config.of(**attributes, log_cleanup_policy=(policy,))
    except ConfigError as error:
        # A contradiction, which is told before anything is served.
        assert "group.min.session" in str(error) or "replication" in str(error)  # noqa: PT017
        reject()

    async def run() -> None:
        async with InProcessGateway(config) as gateway:
            topic = await create_topic(gateway)
            for _ in range(2):
                await write(gateway, timestamps_ms)
                await look_after(gateway, topic)
                await stored(topic)
                await use_group(gateway, config)
                sample = await gateway.lag.sample()
                assert sample is not None
                gateway.manual_clock.advance(0.05)
            broker = {"resource_type": 4, "resource_name": "0"}
            response = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[broker])
            assert not response.results[0].error_code or config.node_id
            assert 0 == gateway.metrics.internal_errors

    asyncio.run(run())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_takes_every_time_that_a_setting_can_mean(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A timer that never comes neither fails nor comes at once."""

    async def run() -> None:
        clock = SystemClock()
        come: list[float] = []
        for seconds in (INT_MAX / 1000, INT_MAX * 60.0, LONG_MAX / 1000):
            due_s = clock.monotonic_s() + seconds
            timer = clock.call_at(due_s, partial(come.append, seconds))
            sleeper = asyncio.ensure_future(clock.sleep_until(due_s))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not sleeper.done()
            sleeper.cancel()
            timer.cancel()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            async with asyncio.timeout(seconds):
                await asyncio.sleep(0)
        assert [] == come

    loop = new_loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


LOG_SETTINGS: Final = st.builds(
    LogSettings,
    segment_bytes=st.sampled_from((1024, 1025, INT_MAX)),
    segment_index_bytes=st.sampled_from((4, 5, 8, 16, INT_MAX)),
    index_interval_bytes=st.sampled_from((0, 1, 100, INT_MAX)),
    delete_delay_ms=st.sampled_from((0, 1, LONG_MAX)),
    is_relaxed=st.booleans(),
    flush_interval_ms=st.sampled_from((0, 1, LONG_MAX)),
    flush_interval_messages=st.sampled_from((1, 2, LONG_MAX)),
)


@pytest.mark.slow
@settings(max_examples=60, phases=PHASES)
@given(
    log_settings=LOG_SETTINGS,
    timestamps_ms=st.lists(st.sampled_from(TIMES_MS), min_size=1, max_size=12),
    now_ms=st.sampled_from((0, START_MS, LONG_MAX)),
    delete_retention_ms=st.sampled_from((0, 1, LONG_MAX)),
)
def test_segments_and_indexes_hold_every_number(
    log_settings: LogSettings, timestamps_ms: list[int], now_ms: int, delete_retention_ms: int
) -> None:
    """They are rolled, indexed, compacted, checked and read again as they were written."""
    driver = Driver(settings=log_settings)
    log = driver.log()
    for timestamp_ms in timestamps_ms * 2:
        batch = make_batch([None, b"v" * 150], keys=[b"a", b"b"], timestamps_ms=[timestamp_ms] * 2)
        driver.store.writes.submit(log, [batch])
        flush_group(driver.store.writes)
    if log_settings.is_relaxed:
        driver.flush()
    driver.store.roll(log)
    cleaning = compact(driver, now_ms=now_ms, delete_retention_ms=delete_retention_ms)
    assert cleaning.is_complete
    driver.append(b"the last", timestamp_ms=timestamps_ms[0])
    for end in (driver.stop, driver.kill, driver.stop):
        end()
        assert [] == driver.problems()
        offsets = list(records(driver.log()))
        assert [2 * len(timestamps_ms * 2) - 1, 2 * len(timestamps_ms * 2)] == offsets[-2:]
        found = find_by_time(driver.log(), timestamps_ms[0], 0, FAR, lambda batch: batch)
        # That of the last record.
        assert found is not None
    assert [] == driver.store.directory.problems


@pytest.mark.slow
@pytest.mark.parametrize("edge", [0, -1], ids=["smallest", "largest"])
async def test_a_process_works_with_all_settings_at_an_edge(tmp_path: Path, edge: int) -> None:
    """Records and commits get through it, over two starts, as far as it takes any at all."""
    shut = {
        "log.message.timestamp.before.max.ms",
        "message.max.bytes",
        "socket.request.max.bytes",
    }
    chosen: dict[str, Value] = {}
    for one in SERVER_NUMBERS:
        values = sorted(edges(one), key=lambda value: float(str(value)))
        chosen[one.name] = values[edge]
    if edge == 0:
        # Where the smallest value is to let nobody, or nothing, in.
        for name in shut:
            del chosen[name]
        chosen["connections.max.idle.ms"] = -1
    chosen |= {"kgw.lag.interval.ms": 100, "default.replication.factor": 1}
    # A disk that is never free enough takes no record, and memory is the machine's affair.
    chosen |= {"kgw.min.free.bytes": 0, "node.id": chosen["node.id"]}
    given_settings = [f"{name}={value}" for name, value in chosen.items()]
    gateway = GatewayProcess(tmp_path / "data", *given_settings)
    for start in range(2):
        await asyncio.to_thread(gateway.start)
        try:
            async with AsyncClient([("127.0.0.1", gateway.port)]) as client:
                if not start:
                    await AdminClient(client).create_topic("orders", partitions=1)
                async with Producer(client) as producer:
                    await producer.send("orders", 0, [NewRecord(b"key", b"v" * 50, START_MS)])
                found = await client.list_offsets("orders", {0: LATEST})
                assert start + 1 == found[0].offset
        finally:
            if start:
                status = await asyncio.to_thread(gateway.stop)
                assert 0 == status
            else:
                await asyncio.to_thread(gateway.kill)
    said = await asyncio.to_thread(gateway.log)
    assert "Traceback" not in said
    assert "bug" not in said
