"""The last Fetch of a connection, and its poll, which the client sends again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.handlers.context import Session
from kgw.handlers.fetch import Fetch
from kgw.handlers.kept_polls import RepeatBudget
from kgw.partitions.read.answer_room import AnswerBudget
from kgw.partitions.read.reading import FetchTimes
from kgw.protocol.codec import codec
from kgw.protocol.messages.fetch import FetchRequest, FetchResponse
from kgw.protocol.messages.heartbeat import HeartbeatRequest
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import create_topic, fetch_request
from tests.protocol.request_frames import fetch, frame_of
from tests.turns import counted

if TYPE_CHECKING:
    import pytest

    from kgw.partitions.view import PartitionView
    from kgw.protocol.schema import Request


def decode(session: Session, frame: memoryview, version: int = 11) -> Request:
    """Decode a Fetch."""
    return session.fetch_decoder.decode(frame, codec(FetchRequest, version))


def decode_in_turns(session: Session, frame: memoryview) -> tuple[int, Request]:
    """Decode a large Fetch of version 11. Return the number of turns, and the request."""
    return counted(session.fetch_decoder.decode_in_turns(frame, codec(FetchRequest, 11)))


def test_the_same_fetch_is_the_same_object() -> None:
    """Whatever its correlation id; another one, or another version, is another."""
    session = Session()
    first = decode(session, frame_of(fetch(), 11, 1))
    assert fetch() == first
    assert first is decode(session, frame_of(fetch(), 11, 2))
    for request, version, client_id in [
        (fetch(offset=1), 11, "client"),
        (fetch(), 10, "client"),
        (fetch(), 11, "another"),
    ]:
        other = decode(session, frame_of(request, version, 3, client_id), version)
        assert request == other
        assert first is not other
        assert client_id == session.client_id
        again = decode(session, frame_of(fetch(), 11))
        assert first == again
        assert first is not again
        first = again
    # The same bytes in both versions.
    first = decode(session, frame_of(fetch(), 10), 10)
    assert first is not decode(session, frame_of(fetch(), 9), 9)


def test_other_requests_leave_the_fetch_alone() -> None:
    """Consumers send heartbeats in between; a known Fetch says whose it is, also after one."""
    session = Session()
    first = decode(session, frame_of(fetch(), 11))
    beat = frame_of(HeartbeatRequest(group_id="group"), 3, client_id="another")
    session.decoder.decode(beat, codec(HeartbeatRequest, 3))
    assert "another" == session.client_id
    assert first is decode(session, frame_of(fetch(), 11))
    assert "client" == session.client_id


def test_a_large_fetch_is_remembered_within_a_budget() -> None:
    """Also where it is decoded in turns; a closed session gives its bytes back."""
    budget = RepeatBudget()
    frame = frame_of(fetch(10_000), 11)
    sessions = [Session(repeat_budget=budget) for _ in range(5)]
    first = [decode_in_turns(session, frame)[1] for session in sessions]
    assert 3 * len(frame) == budget.used_bytes
    remembered = []
    for session, request in zip(sessions, first, strict=True):
        turns, again = decode_in_turns(session, frame)
        remembered.append((again is request, turns == 1))
    assert [(True, True)] * 3 + [(False, False)] * 2 == remembered
    for session in sessions:
        session.close()
    assert 0 == budget.used_bytes


async def end_empty(gateway: InProcessGateway, request: FetchRequest) -> FetchResponse:
    """Send a Fetch 12 that waits for a second, and let that second pass."""
    pending = gateway.start(request, 12)
    assert not pending.done
    gateway.manual_clock.advance(1.1)
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response


async def test_another_fetch_beside_a_repeated_poll(gateway: InProcessGateway) -> None:
    """Each gets its own answer, and only the last one is kept."""
    topic = await create_topic(gateway, partitions=2)
    polls = [fetch_request(index=index, max_wait_ms=1000) for index in range(2)]
    await end_empty(gateway, polls[0])
    pending = [gateway.start(poll, 12) for poll in polls]
    gateway.manual_clock.advance(1.1)
    for index in (1, 0):
        response = await pending[index].response()
        assert isinstance(response, FetchResponse)
        assert [index] == [one.partition_index for one in response.responses[0].partitions]
    assert [0, 1] == [len(topic.partitions[index].listeners) for index in range(2)]
    decoder, budget, times = gateway.session.fetch_decoder, AnswerBudget(1, 1), FetchTimes(9, 9)
    assert decoder.wait_again(polls[0], budget, times) is None


async def test_a_repeated_poll_asks_for_a_session_again() -> None:
    """The answer of the first one, for whose session there was no room, is not used again."""
    async with InProcessGateway(Config.of(fetch_session_partitions_max=1)) as gateway:
        await create_topic(gateway)
        poll = fetch_request(max_wait_ms=1000)
        poll.session_epoch = 0
        taken = await gateway.ask(
            FetchRequest(session_epoch=0, topics=poll.topics), 12, FetchResponse
        )
        assert 0 < taken.session_id
        assert [0, 0] == [(await end_empty(gateway, poll)).session_id for _ in range(2)]
        gateway.fetch_sessions.close(taken.session_id)
        assert 0 < (await end_empty(gateway, poll)).session_id


async def test_each_partition_of_a_fetch_is_looked_up_at_one_place(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What refuses a partition there refuses it in a request, a session and a kept poll."""
    topic = await create_topic(gateway)
    poll = fetch_request(max_wait_ms=1000)
    await end_empty(gateway, poll)
    opened = await gateway.ask(FetchRequest(session_epoch=0, topics=poll.topics), 12, FetchResponse)

    def refuse(
        _: Fetch, __: str, ___: int, ____: PartitionView | None = None
    ) -> tuple[None, ErrorCode]:
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED

    monkeypatch.setattr(Fetch, "find_view", refuse)
    topic.partitions[0].end_waits()
    incremental = FetchRequest(
        session_id=opened.session_id, session_epoch=1, max_wait_ms=1000, min_bytes=1
    )
    for request, session in ((poll, gateway.session), (incremental, Session()), (poll, Session())):
        response = await gateway.start(request, 12, session=session).response()
        assert isinstance(response, FetchResponse)
        (answer,) = response.responses[0].partitions
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED == answer.error_code
