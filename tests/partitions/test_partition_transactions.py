"""What enters a partition in a transaction, in which order, and who hears of its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.append import Append, refused_append
from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.completion import Completion
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.append.transactions import TransactionMarker
from kgw.partitions.partition import ProducerDescription
from kgw.partitions.topics.manager import TopicManager
from kgw.partitions.view import AbortedRange, Isolation
from kgw.testing.clock import ManualClock
from tests.partitions.committed import committed_records
from tests.partitions.producers import produced
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition
    from kgw.records.batch import RecordBatch


class Coordinator:
    """Says of each batch what it is told to, at once or when it is told to."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.asked: list[Completion[ErrorCode]] = []
        self.is_slow = False

    def verify(self, _: RecordBatch) -> Completion[ErrorCode]:
        completion: Completion[ErrorCode] = Completion()
        self.asked.append(completion)
        if not self.is_slow:
            completion.set_result(self.code)
        return completion


class Heard:
    """A listener that notes what it hears."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.fired = 0

    def advanced(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)

    def fire(self) -> None:
        self.fired += 1


@pytest.fixture
def backend() -> MemoryBackend:
    """A backend that is not open yet."""
    return MemoryBackend()


@pytest.fixture
async def partition(backend: MemoryBackend) -> Partition:
    """An empty partition."""
    return await created(backend)


@pytest.fixture
def coordinator() -> Coordinator:
    """One that lets everything in."""
    return Coordinator()


async def created(backend: MemoryBackend, **configs: str) -> Partition:
    """Return an empty partition of a topic with these settings."""
    await backend.open()
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return (
        await TopicManager(backend, Config.of(), ManualClock()).create("orders", 1, named)
    ).partitions[0]


async def reopened(backend: MemoryBackend, *, after_s: float = 0) -> Partition:
    """Return the partition of another process."""
    await backend.crash()
    await backend.open()
    clock = ManualClock()
    clock.advance(after_s)
    manager = TopicManager(backend, Config.of(), clock)
    await manager.open()
    topic = manager.catalog.get("orders")
    assert topic is not None
    return topic.partitions[0]


def send(
    partition: Partition,
    coordinator: Coordinator | None,
    sequence: int,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    is_transactional: bool = True,
) -> Append:
    """Submit a batch of one record, whose value is the sequence."""
    result = partition.admission.append(
        produced(
            b"%d" % sequence,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        ),
        verify=None if coordinator is None else coordinator.verify,
    ).result
    assert result is not None
    return result


def marker(
    *,
    producer_id: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    is_commit: bool = True,
    version: int = 0,
) -> TransactionMarker:
    """Return what ends a transaction of producer 7."""
    return TransactionMarker(producer_id, epoch, coordinator_epoch, is_commit, version)


def stable(partition: Partition) -> tuple[int, int]:
    """Return the last stable offset and the high watermark, as both isolation levels say."""
    bounds = [partition.view(isolation).bounds() for isolation in Isolation]
    assert bounds[0][:3] == bounds[1][:3]
    assert bounds[1].end_offset == bounds[1].last_stable_offset
    return bounds[1].last_stable_offset, bounds[1].high_watermark


def refusal(call: object) -> ErrorCode:
    """Return why something was refused."""
    with pytest.raises(KafkaError) as refused:
        call()  # type: ignore[operator]
    return refused.value.code


# --- entering ---------------------------------------------------------------------------------


async def test_the_first_batch_alone_is_verified(
    partition: Partition, coordinator: Coordinator
) -> None:
    """What comes into an open transaction asks nobody; after its end the next one is asked for."""
    for sequence in range(3):
        assert sequence == (await send(partition, coordinator, sequence)).base_offset
    assert 1 == len(coordinator.asked)
    await partition.admission.append_marker(marker())
    await send(partition, coordinator, 3)
    assert 2 == len(coordinator.asked)


async def test_no_turn_is_lost_when_the_coordinator_answers_at_once(
    partition: Partition, coordinator: Coordinator
) -> None:
    """The batch has an offset when `append` returns."""
    send(partition, coordinator, 0)
    assert 1 == partition.log.end_offset


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS]
)
@pytest.mark.parametrize("is_slow", [True, False])
async def test_what_the_coordinator_refuses_does_not_enter(
    partition: Partition, coordinator: Coordinator, code: ErrorCode, *, is_slow: bool
) -> None:
    """Its code is the answer. What was sent after it does not overtake it."""
    coordinator.code, coordinator.is_slow = code, is_slow
    if is_slow:
        first, second = (send(partition, coordinator, sequence) for sequence in (5, 6))
        coordinator.asked[0].set_result(code)
        coordinator.asked[1].set_result(ErrorCode.NONE)
        await turns()
        errors = [first.error, second.error]
        assert [code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] == [
            error.code for error in errors if isinstance(error, KafkaError)
        ]
        coordinator.is_slow = False
    else:
        assert code is refusal(lambda: send(partition, coordinator, 5))
    coordinator.code = ErrorCode.NONE
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is refusal(
        lambda: send(partition, coordinator, 6)
    )
    assert (0, 0) == stable(partition)
    assert 0 == (await send(partition, coordinator, 5)).base_offset


@pytest.mark.parametrize("coordinator_is_first", [True, False])
async def test_what_is_compressed_anew_waits_for_its_coordinator_too(
    backend: MemoryBackend, coordinator: Coordinator, *, coordinator_is_first: bool
) -> None:
    """Whichever is ready first: once for all its retries, before its marker, in its order."""
    partition = await created(
        backend, compression_type="zstd", message_timestamp_type="LogAppendTime"
    )
    coordinator.is_slow = True
    sent = [
        produced(
            b"%d" % sequence * 5_000,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        for sequence in (0, 1)
    ]
    appends = [
        partition.admission.append(bytearray(one), verify=coordinator.verify).result
        for one in (sent[0], sent[0], sent[1], sent[0])
    ]
    ended = partition.admission.append_marker(marker())

    def answer() -> None:
        for one in coordinator.asked:
            one.set_result(ErrorCode.NONE)

    if coordinator_is_first:
        answer()
    else:
        # The thread has nothing left to do then.
        await partition._check_thread.run(lambda: None)  # noqa: SLF001 - nobody else has it
        await turns()
        assert 0 == partition.log.end_offset
        answer()
    assert all(append is not None for append in appends)
    assert [0, 0, 1, 0] == [(await append).base_offset for append in appends if append is not None]
    assert 2 == (await ended).base_offset
    assert (3, 3) == stable(partition)
    assert [(0, b"0" * 5_000), (1, b"1" * 5_000)] == await committed_records(partition, 1 << 20)


async def test_nothing_is_remembered_of_who_has_no_transaction(
    partition: Partition, coordinator: Coordinator
) -> None:
    """However many such ids are made up, the producers that are known stay."""
    coordinator.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.code is refusal(lambda: send(partition, coordinator, 5))
    assert [] == partition.producers.ids()


async def test_what_fails_at_the_coordinator_fails_the_batch(
    partition: Partition, coordinator: Coordinator
) -> None:
    """Whatever it is: whoever waits for the answer deals with it."""
    coordinator.is_slow = True
    result = send(partition, coordinator, 0)
    coordinator.asked[0].error = StorageError("no store")
    coordinator.asked[0].finish()
    await turns()
    assert isinstance(result.error, StorageError)


async def test_a_transactional_batch_needs_a_transaction(partition: Partition) -> None:
    """One that nobody can vouch for is refused."""
    assert ErrorCode.INVALID_TXN_STATE is refusal(lambda: send(partition, None, 0))


async def test_nothing_else_of_the_producer_enters_an_open_transaction(
    partition: Partition, coordinator: Coordinator
) -> None:
    """In flight or stored; a retry of what came before is recognised all the same."""
    await send(partition, coordinator, 0, is_transactional=False)
    opened = send(partition, coordinator, 1)
    for _ in range(2):
        assert ErrorCode.INVALID_TXN_STATE is refusal(
            lambda: send(partition, coordinator, 2, is_transactional=False)
        )
        await opened
    again = produced(b"0", producer_id=7, base_sequence=0)
    assert (None, 0) == partition.admission.append(again)[:2]
    await partition.admission.append_marker(marker())
    assert 3 == (await send(partition, coordinator, 2, is_transactional=False)).base_offset


async def test_what_comes_while_a_batch_is_verified_waits_behind_it(
    partition: Partition, coordinator: Coordinator
) -> None:
    """Other batches, whosever they are, and markers: each in its order."""
    coordinator.is_slow = True
    first = send(partition, coordinator, 0)
    plain = partition.admission.append(produced(b"plain"))
    second = send(partition, coordinator, 1)
    end = partition.admission.append_marker(marker())
    await turns()
    assert (True, 0) == (plain.is_undecided, partition.log.end_offset)
    for completion in coordinator.asked:
        completion.set_result(ErrorCode.NONE)
    assert plain.result is not None
    offsets = [(await one).base_offset for one in (first, plain.result, second, end)]
    assert [0, 1, 2, 3] == offsets
    assert (4, 4) == stable(partition)


async def test_a_batch_behind_a_marker_that_waits_is_verified(
    partition: Partition, coordinator: Coordinator
) -> None:
    """The transaction that is open when it comes will not be when it enters."""
    await send(partition, coordinator, 0)
    coordinator.is_slow = True
    other = send(partition, coordinator, 0, producer_id=8)
    end = partition.admission.append_marker(marker())
    late = send(partition, coordinator, 1)
    coordinator.asked[-2].set_result(ErrorCode.NONE)
    coordinator.asked[-1].set_result(ErrorCode.INVALID_TXN_STATE)
    await other
    await end
    await turns()
    assert isinstance(late.error, KafkaError)
    assert ErrorCode.INVALID_TXN_STATE is late.error.code


# --- markers ----------------------------------------------------------------------------------


async def test_a_marker_fences_older_epochs(partition: Partition, coordinator: Coordinator) -> None:
    """Also where no transaction is open (KIP-890); the new epoch begins at sequence 0."""
    await send(partition, coordinator, 0)
    await partition.admission.append_marker(marker(epoch=1))
    await partition.admission.append_marker(marker(producer_id=9, epoch=1))
    for producer_id in (7, 9):
        assert ErrorCode.INVALID_PRODUCER_EPOCH is refusal(
            lambda producer_id=producer_id: send(partition, coordinator, 1, producer_id=producer_id)
        )
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is refusal(
        lambda: send(partition, coordinator, 1, epoch=1)
    )
    assert 3 == (await send(partition, coordinator, 0, epoch=1)).base_offset


async def test_late_markers_are_refused(partition: Partition, coordinator: Coordinator) -> None:
    """Of an older epoch, of an older coordinator, and of the transaction before the open one."""
    await send(partition, coordinator, 0, epoch=2)
    assert ErrorCode.INVALID_PRODUCER_EPOCH is refusal(
        lambda: partition.admission.append_marker(marker(epoch=1))
    )
    assert ErrorCode.INVALID_PRODUCER_EPOCH is refusal(
        lambda: partition.admission.append_marker(marker(epoch=2, version=2))
    )
    await partition.admission.append_marker(marker(epoch=3, coordinator_epoch=5, version=2))
    assert ErrorCode.TRANSACTION_COORDINATOR_FENCED is refusal(
        lambda: partition.admission.append_marker(marker(epoch=3, coordinator_epoch=4))
    )
    assert (2, 2) == stable(partition)


async def test_a_replaced_coordinator_does_not_end_the_next_transaction(
    partition: Partition, coordinator: Coordinator
) -> None:
    """It stays fenced when the producer goes on with a new epoch."""
    await send(partition, coordinator, 0)
    await partition.admission.append_marker(marker(coordinator_epoch=5))
    await send(partition, coordinator, 0, epoch=1)
    assert ErrorCode.TRANSACTION_COORDINATOR_FENCED is refusal(
        lambda: partition.admission.append_marker(
            marker(epoch=1, coordinator_epoch=4, is_commit=False)
        )
    )
    await partition.admission.append_marker(marker(epoch=1, coordinator_epoch=5))
    assert [(0, b"0"), (2, b"0")] == await committed_records(partition, 1 << 20)


async def test_a_marker_twice_is_harmless(partition: Partition, coordinator: Coordinator) -> None:
    """Nothing more is aborted than once, and what follows is not touched."""
    await send(partition, coordinator, 0)
    for _ in range(2):
        await partition.admission.append_marker(marker(epoch=1, is_commit=False, version=2))
    await send(partition, coordinator, 0, epoch=1)
    await partition.admission.append_marker(marker(epoch=2, version=2))
    view = partition.view(Isolation.READ_COMMITTED)
    assert [AbortedRange(7, 0)] == [*view.aborted(0, 9)]
    assert [(3, b"0")] == await committed_records(partition, 1 << 20)


async def test_an_aborted_batch_is_no_duplicate(
    partition: Partition, coordinator: Coordinator
) -> None:
    """Its sequence with another record is refused, not swallowed; the next one goes on."""
    await send(partition, coordinator, 0)
    await send(partition, coordinator, 1)
    await partition.admission.append_marker(marker(is_commit=False))
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is refusal(
        lambda: send(partition, coordinator, 1)
    )
    for sequence in range(2, 9):
        await send(partition, coordinator, sequence)
        assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is refusal(
            lambda: send(partition, coordinator, 99)
        )


async def test_a_marker_in_a_relaxed_log_is_durable(
    backend: MemoryBackend, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see its effect at once; it is done when no power loss can undo it, or fails."""
    partition = await created(backend, kgw_durability="relaxed")
    synced: list[int] = []
    may_sync = asyncio.Event()

    async def make_durable(_: MemoryPartitionLog, end_offset: int) -> None:
        synced.append(end_offset)
        await may_sync.wait()
        if len(synced) > 1:
            raise StorageError("no disk")

    monkeypatch.setattr(MemoryPartitionLog, "make_durable", make_durable)
    await send(partition, coordinator, 0)
    end = partition.admission.append_marker(marker())
    await turns()
    assert ([2], False, (2, 2)) == (synced, end.is_done, stable(partition))
    may_sync.set()
    assert 1 == (await end).base_offset
    with pytest.raises(StorageError):
        await partition.admission.append_marker(marker())
    backend.fail_next_append()
    with pytest.raises(StorageError):
        await partition.admission.append_marker(marker())
    assert 2 == len(synced)


# --- what is stable ---------------------------------------------------------------------------


async def test_nothing_is_stable_before_the_marker_is_visible(
    backend: MemoryBackend, partition: Partition, coordinator: Coordinator
) -> None:
    """From the submission of the first batch to the commit of the marker."""
    seen: list[tuple[int, int]] = []

    class Seen(Heard):
        def advanced(self, size_bytes: int) -> None:
            seen.append(stable(partition))

    partition.view().listen(Seen())
    plain = partition.admission.append(produced(b"plain")).result
    assert plain is not None
    await send(partition, coordinator, 0)
    await partition.admission.append(produced(b"plain")).result  # type: ignore[misc]
    backend.hold()
    end = partition.admission.append_marker(marker())
    await turns()
    assert (1, 3) == stable(partition)
    backend.release()
    await end
    assert [(1, 2), (1, 3), (1, 4)] == seen
    assert (4, 4) == stable(partition)


async def test_readers_of_committed_records_hear_what_becomes_stable(
    partition: Partition, coordinator: Coordinator
) -> None:
    """In bytes, when a transaction ends, up to the next open one; others hear of all at once."""
    every, committed = Heard(), Heard()
    partition.view(Isolation.READ_UNCOMMITTED).listen(every)
    partition.view(Isolation.READ_COMMITTED).listen(committed)
    sizes: list[int] = []

    async def store(result: Append) -> None:
        before = partition.log.size_bytes
        await result
        sizes.append(partition.log.size_bytes - before)

    await store(send(partition, coordinator, 0, producer_id=1))
    await store(send(partition, coordinator, 0, producer_id=2))
    await store(partition.admission.append(produced(b"plain")).result)  # type: ignore[arg-type]
    assert [0, 0, 0] == committed.sizes
    await store(partition.admission.append_marker(marker(producer_id=1)))
    assert [0, sizes[0]] == committed.sizes[3:]
    await store(partition.admission.append_marker(marker(producer_id=2, is_commit=False)))
    assert [0, sum(sizes[1:])] == committed.sizes[5:]
    await store(partition.admission.append(produced(b"plain")).result)  # type: ignore[arg-type]
    assert [sizes[-1]] == committed.sizes[7:]
    assert sizes == every.sizes
    await partition.delete_before(3)
    assert [1, 1] == [every.fired, committed.fired]


async def test_what_a_failed_batch_held_back_is_stable_again(
    backend: MemoryBackend, partition: Partition, coordinator: Coordinator
) -> None:
    """A transaction of which nothing is stored is none; one whose marker failed is open."""
    await send(partition, coordinator, 0, producer_id=1)
    committed = Heard()
    partition.view(Isolation.READ_COMMITTED).listen(committed)
    backend.fail_next_append()
    failed = send(partition, coordinator, 0, producer_id=2)
    end = partition.admission.append_marker(marker(producer_id=1))
    await turns()
    assert [True, True] == [isinstance(one.error, StorageError) for one in (failed, end)]
    assert (0, 1) == stable(partition)
    await partition.admission.append(produced(b"plain")).result  # type: ignore[misc]
    await partition.admission.append_marker(marker(producer_id=1))
    assert (3, 3) == stable(partition)
    assert [-1, -1] == [one.transaction_first_offset for one in partition.describe_producers()]


async def test_nothing_becomes_stable_while_the_log_is_read_again(
    backend: MemoryBackend,
    partition: Partition,
    coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the log holds is in doubt, and readers go by what was known until it is not."""
    await send(partition, coordinator, 0)
    busy = asyncio.Event()
    load = MemoryPartitionLog.load_snapshot

    async def load_slowly(log: MemoryPartitionLog) -> object:
        await busy.wait()
        return await load(log)

    monkeypatch.setattr(MemoryPartitionLog, "load_snapshot", load_slowly)
    backend.hold()
    plain = partition.admission.append(produced(b"plain")).result
    assert plain is not None
    with monkeypatch.context() as failing:
        refused = refused_append(StorageError("full"))
        failing.setattr(MemoryPartitionLog, "append", lambda *_: refused)
        send(partition, coordinator, 1)
    await turns()
    assert ErrorCode.KAFKA_STORAGE_ERROR is refusal(
        lambda: partition.admission.append_marker(marker())
    )
    backend.release()
    await plain
    assert (0, 2) == stable(partition)
    busy.set()
    await turns()
    assert (0, 2) == stable(partition)
    await partition.admission.append_marker(marker())
    assert (3, 3) == stable(partition)


@pytest.mark.parametrize("has_snapshot", [True, False])
async def test_an_open_transaction_survives_a_restart(
    backend: MemoryBackend, partition: Partition, coordinator: Coordinator, *, has_snapshot: bool
) -> None:
    """Where it began, what was aborted before, and that nothing but its own batches enter."""
    await send(partition, coordinator, 0)
    await partition.admission.append_marker(marker(epoch=1, coordinator_epoch=4, is_commit=False))
    await send(partition, coordinator, 0, epoch=1)
    if has_snapshot:
        backend.hold()
        end = partition.admission.append_marker(marker(epoch=2, coordinator_epoch=4))
        await partition.save_snapshot()
        assert not end.is_done
    partition = await reopened(backend)
    assert (2, 3) == stable(partition)
    assert [AbortedRange(7, 0)] == [*partition.view().aborted(0, 3)]
    assert [ProducerDescription(7, 1, 0, 0, 4, 2)] == [
        one._replace(written_ms=0) for one in partition.describe_producers()
    ]
    assert ErrorCode.INVALID_TXN_STATE is refusal(
        lambda: send(partition, None, 1, epoch=1, is_transactional=False)
    )
    committed = Heard()
    partition.view(Isolation.READ_COMMITTED).listen(committed)
    await send(partition, coordinator, 1, epoch=1)
    await partition.admission.append_marker(marker(epoch=2, coordinator_epoch=4))
    # How much it held back before the restart is not known: enough for whoever waits.
    assert committed.sizes[-1] > 1 << 40
    assert [(2, b"0"), (3, b"1")] == await committed_records(partition, 1)


async def test_a_start_does_not_make_what_hangs_look_young(
    backend: MemoryBackend, partition: Partition, coordinator: Coordinator
) -> None:
    """Of who has written long ago it is told so, although its expiry begins anew."""
    await send(partition, coordinator, 0)
    (before,) = partition.describe_producers()
    await partition.save_snapshot()
    partition = await reopened(backend, after_s=3_600)
    assert [before] == [*partition.describe_producers()]


async def test_an_open_transaction_never_expires(
    partition: Partition, coordinator: Coordinator
) -> None:
    """Nor one whose marker is on its way."""
    await send(partition, coordinator, 0)
    for _ in partition.expire_producers(-1):
        pass
    assert [7] == partition.producers.ids()
    end = partition.admission.append_marker(marker())
    for _ in partition.expire_producers(-1):
        pass
    assert [7] == partition.producers.ids()
    await end
    for _ in partition.expire_producers(-1):
        pass
    assert not partition.producers.ids()


async def test_the_log_start_may_pass_an_open_transaction(
    partition: Partition, coordinator: Coordinator
) -> None:
    """DeleteRecords does not ask for it: what is left of it stays invisible until it ends."""
    await send(partition, coordinator, 0)
    await send(partition, coordinator, 1)
    await partition.delete_before(1)
    assert (1, 2) == stable(partition)
    assert partition.view(Isolation.READ_COMMITTED).is_readable(
        1, partition.view(Isolation.READ_COMMITTED).bounds()
    )
    await partition.admission.append_marker(marker(is_commit=False))
    assert (3, 3) == stable(partition)
    assert [AbortedRange(7, 0)] == [*partition.view().aborted(1, 3)]
    await partition.delete_before(3)
    assert [] == [*partition.view().aborted(0, 3)]
    assert 3 == partition.view().aborted_from
