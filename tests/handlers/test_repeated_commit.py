"""OffsetCommits that repeat an earlier one are answered as if each were the first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode, StorageError
from kgw.handlers import known_heads, repeated_commit
from kgw.handlers.repeated_commit import KnownCommits
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import create_topic
from tests.handlers.test_repeated_produce import (
    PlainDispatcher,
    Side,
    damage,
    damaged,
    start_side,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.offsets.committed import CommittedOffset
    from kgw.state.base import Change

VERSIONS = range(repeated_commit.FIRST_VERSION, 11)


def commit(
    side: Side,
    offset: int,
    *,
    version: int = 9,
    group: str = "group",
    index: int = 0,
    epoch: int = -1,
    metadata: str | None = "",
    member: str = "",
    generation: int = -1,
    retention_ms: int = -1,
    topics: int = 1,
) -> bytes:
    """Return a frame."""
    side.correlation_id += 1
    partition = OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )
    topic = OffsetCommitRequestTopic(
        name="orders", topic_id=side.topic.topic_id, partitions=[partition]
    )
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        retention_time_ms=retention_ms,
        topics=[topic] * topics,
    )
    return b"".join(request_frame(request, version, side.correlation_id, "client"))[4:]


async def code_of(side: Side, frame: bytes, version: int = 9) -> int:
    """Send a frame and return what it is answered with."""
    answer = await side.send(frame)
    assert isinstance(answer, bytes)
    response = decode_response(answer[4:], ApiKey.OFFSET_COMMIT, version)[1]
    assert isinstance(response, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def stored(side: Side, group: str = "group") -> dict[int, CommittedOffset]:
    """Return what a group has committed."""
    table = side.gateway.gateway.groups.offsets(group)
    return {} if table is None else dict(table.of_topic(side.topic.topic_id))


def known(side: Side) -> int:
    """Return how many commits are remembered."""
    commits = side.dispatcher._repeated.get(ApiKey.OFFSET_COMMIT)
    return 0 if commits is None else len(commits)


usual = st.fixed_dictionaries(
    {
        "offset": st.integers(-2, 1000) | st.integers(1 << 40, (1 << 63) - 1),
        "group": st.sampled_from(["group", "other", "`abcdefg"]),
    },
    optional={
        "index": st.integers(-1, 2),
        "epoch": st.integers(-1, 1),
        "metadata": st.sampled_from([None, "", "note", "`abcdefg", "x" * 300, "y" * 5000]),
        "generation": st.sampled_from([-1, 0]),
        "member": st.sampled_from(["", "m"]),
        "retention_ms": st.sampled_from([-1, 5]),
        "topics": st.integers(1, 2),
    },
)


@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(usual, st.integers(1, 3), damage), max_size=6),
)
def test_both_ways_answer_and_store_the_same(
    version: int, requests: list[tuple[dict[str, Any], int, tuple[str, int, int] | None]]
) -> None:
    """Whatever is sent, however often and damaged: the plain twin says and stores the same."""

    async def compare() -> None:
        async with InProcessGateway() as one, InProcessGateway() as other:
            # The same topic id: what is damaged within it, or read as a length, shows in answers.
            with patch("kgw.partitions.topic.urandom", return_value=bytes(range(16))):
                fast = await start_side(one)
                plain = await start_side(other, PlainDispatcher)
            for options, times, harm in requests:
                for repetition in range(times):
                    offset = options["offset"] + repetition
                    wanted = {**options, "offset": min(offset, (1 << 63) - 1)}
                    answers = []
                    for side in (fast, plain):
                        frame = commit(side, version=version, **wanted)
                        if harm is not None and repetition == times - 1:
                            frame = damaged(frame, *harm)
                        answers.append(await side.send(frame))
                    assert answers[1] == answers[0]
            for group in ("group", "other", "`abcdefg"):
                assert stored(plain, group) == stored(fast, group)

    asyncio.run(compare())


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_repeated_is_not_decoded_again(
    version: int, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second commit of a consumer of one partition is known by the first."""
    side = await start_side(gateway)
    assert 0 == await code_of(side, commit(side, 5, version=version), version)
    assert 1 == known(side)
    monkeypatch.delattr(side.dispatcher.__class__, "_decode")
    assert 0 == await code_of(side, commit(side, 6, version=version), version)
    assert 6 == stored(side)[0].offset


async def test_a_commit_that_cannot_be_stored_is_refused(gateway: InProcessGateway) -> None:
    """The answer of one that was known says so as well."""
    side = await start_side(gateway)
    assert 0 == await code_of(side, commit(side, 5))
    state = gateway.gateway.groups._state

    async def fail(changes: Sequence[Change]) -> None:
        raise StorageError("broken")

    before, state.apply = state.apply, fail  # type: ignore[method-assign]
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == await code_of(side, commit(side, 6))
    state.apply = before  # type: ignore[method-assign]
    assert 5 == stored(side)[0].offset


async def test_a_topic_that_is_made_again_is_another(gateway: InProcessGateway) -> None:
    """What was known of a deleted topic is forgotten."""
    side = await start_side(gateway)
    assert 0 == await code_of(side, commit(side, 5))
    await gateway.gateway.catalog.delete(side.topic)
    assert 0 == known(side)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == await code_of(side, commit(side, 6))
    side.topic = await create_topic(gateway)
    assert 0 == await code_of(side, commit(side, 7))
    assert 7 == stored(side)[0].offset


async def test_a_topic_that_nobody_told_of_is_gone_as_well(gateway: InProcessGateway) -> None:
    """A deletion that the state store has not confirmed ends it, though it may come back."""
    side = await start_side(gateway)
    assert 0 == await code_of(side, commit(side, 5))
    gateway.gateway.catalog._remove(side.topic)
    assert 1 == known(side)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == await code_of(side, commit(side, 6))


async def test_no_more_than_so_many_are_remembered(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many consumers there are; once full, few new ones take the place of old ones."""
    monkeypatch.setattr(known_heads, "MAX_KNOWN", 4)
    side = await start_side(gateway)
    for number in range(4 + 16):
        assert 0 == await code_of(side, commit(side, 5, group=f"group-{number}"))
    assert 4 == known(side)
    commits = side.dispatcher._repeated[ApiKey.OFFSET_COMMIT]
    assert isinstance(commits, KnownCommits)
    (of_version,) = commits.by_version.values()
    groups = [one.request.group_id for one in of_version.values()]
    assert ["group-1", "group-2", "group-3", "group-19"] == groups
