"""Frames of producers that are fenced, or of transactions that are over, arrive once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.handlers.context import Session
from tests.campaigns.transaction_clients import code_of_add, code_of_offsets, code_of_produce
from tests.campaigns.transaction_world import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tests.campaigns.transaction_clients import Producer
    from tests.campaigns.transaction_world import Frame, World

KINDS = {
    "end": (0, 5),
    "batch": (3, 12),
    "offsets": (0, 5),
    "add": (0, 3),
    "group": (0, 4),
}
"""What is sent again, in any of these versions: who is late may be of either."""
_KIP_588 = {"end": 2, "add": 2, "group": 2}
"""Since when a producer is told that it is fenced; Produce and TxnOffsetCommit never say so."""


async def send_stale(
    world: World, current: Sequence[Producer], count: int, *, when: str, is_held: bool = False
) -> None:
    """Send stale frames: all must be refused with Kafka's codes, and change nothing.

    `is_held` says that markers wait: a batch of the transaction that they end is not late yet.
    """
    for _ in range(count):
        producer = world.random.choice(current)
        stale = [
            one
            for one in world.frames.get(producer.transactional_id, ())
            if one.producer != producer.producer
            and not (is_held and _has_just_ended(one, producer))
        ]
        kinds = sorted({one.kind for one in stale})
        if not kinds:
            continue
        kind = world.random.choice(kinds)
        frame = world.random.choice([one for one in stale if one.kind == kind])
        await _send(world, producer, frame, when=when, is_held=is_held)


def _has_just_ended(frame: Frame, producer: Producer) -> bool:
    is_last = producer.ended is not None and frame.producer == producer.ended[0]
    return is_last and frame.kind != "end"


async def _send(
    world: World, producer: Producer, frame: Frame, *, when: str, is_held: bool
) -> None:
    report = world.report
    version = world.random.randint(*KINDS[frame.kind])
    # An older client with the same frame: what only the newer says, a codec leaves out.
    is_old = frame.life == world.life and world.random.random() < 0.6
    before = await _picture(world, producer)
    answer = await world.ask(frame.request, version, frame.session if is_old else Session())
    after = await _picture(world, producer)
    code = _code_of(frame.kind, answer)
    what = f"{frame.kind} v{version} of {frame.producer} {when}, now {producer.producer}"
    expected = _expected(producer, frame, version, is_held=is_held)
    is_repeat = not expected.isdisjoint({ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS})
    told = (answer.producer_id, answer.producer_epoch) if is_repeat and not code else None
    for wrong in judge(what, code, expected, told, producer.producer):
        report.fail(wrong)
    if before != after:
        report.fail(f"CHANGED by {what}: {before} became {after}")
    if is_repeat:
        report.count("ends_repeated")
        return
    report.count("stale_frames")
    report.count(f"stale: {frame.kind}")
    report.count(f"stale {when}")
    report.count(f"stale in {'its own' if version == frame.version else 'another'} version")
    report.count(f"stale on {'an old' if is_old else 'a new'} connection")
    report.count("stale from before the restart", frame.life != world.life)
    report.count(f"refused with {code.name}")


def judge(
    what: str,
    code: ErrorCode,
    expected: Collection[ErrorCode],
    told: tuple[int, int] | None,
    current: tuple[int, int],
) -> Iterator[str]:
    """Yield what is wrong with the answer to a frame.

    `told` is who the client is from now on, where it is answered so: it must be who it is.
    """
    if code is ErrorCode.NONE and code not in expected:
        yield f"ACCEPTED: {what}"
    elif code not in expected:
        names = " or ".join(sorted(one.name for one in expected))
        yield f"{code.name} and not {names} for {what}"
    elif told is not None and told != current:
        yield f"{what} is answered with {told}"


def _expected(
    producer: Producer, frame: Frame, version: int, *, is_held: bool
) -> frozenset[ErrorCode]:
    """Return what Kafka answers."""
    is_commit = getattr(frame.request, "committed", None)
    if frame.kind == "end" and version >= 5 and producer.ended is not None:
        who, was_commit = producer.ended
        if frame.producer == who:
            if is_commit != was_commit:
                return frozenset({ErrorCode.INVALID_TXN_STATE})
            return frozenset({ErrorCode.CONCURRENT_TRANSACTIONS if is_held else ErrorCode.NONE})
    is_told = version >= _KIP_588.get(frame.kind, 1 << 15)
    fenced = ErrorCode.PRODUCER_FENCED if is_told else ErrorCode.INVALID_PRODUCER_EPOCH
    if frame.producer[0] == producer.producer[0]:
        return frozenset({fenced})
    # While markers are written the id before is still that of the transaction.
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return frozenset({unknown, fenced} if is_held else {unknown})


def _code_of(kind: str, answer: Any) -> ErrorCode:
    read = {"add": code_of_add, "batch": code_of_produce, "offsets": code_of_offsets}.get(kind)
    return ErrorCode(answer.error_code if read is None else read(answer))


async def _picture(world: World, producer: Producer) -> object:
    """Return all that can be seen of a transactional id, the partitions and the group."""
    gateway = world.gateway.gateway
    topic = gateway.catalog.topics[TOPIC]
    producers = [list(topic.partitions[one].describe_producers()) for one in range(PARTITIONS)]
    return (
        gateway.placement.ownerships[0].transactions.describe(producer.transactional_id),
        await world.ends(0),
        await world.ends(1),
        await world.offsets(producer.group),
        producers,
    )
