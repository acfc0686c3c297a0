from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.completion import Completion
from kgw.errors import ProtocolError
from kgw.protocol.framing import GROWTH
from kgw.server.connection import FRAMES_PER_TURN, TURN_BYTES
from kgw.server.limits import Limits
from kgw.server.sending import WRITE_BYTES
from tests.server.fakes import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    FakeDispatcher,
    FakeServer,
    Peer,
    request,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def at_once(*correlation_ids: int) -> bytes:
    """Return requests that are answered without a wait."""
    return b"".join(request(API_VERSIONS, one) for one in correlation_ids)


class TestFrames:
    async def test_answers_of_one_read_leave_together(self) -> None:
        """Requests that arrive together cost one write, also behind one that has to wait."""
        peer = Peer()
        peer.send(at_once(1, 2, 3))
        assert 1 == peer.transport.writes
        peer.send(request(METADATA, 4) + at_once(5, 6))
        peer.finish(4)
        await settle()
        assert [1, 2, 3, 4, 5, 6] == peer.transport.answers()
        assert 2 == peer.transport.writes

    async def test_large_answers_do_not_wait_for_others(self) -> None:
        """What a run keeps back is bounded, and a client that takes nothing stops it."""
        peer = Peer()
        peer.dispatcher.answer_bytes = WRITE_BYTES // 2
        peer.send(at_once(1, 2, 3, 4, 5))
        assert [1, 2, 3, 4, 5] == peer.transport.answers()
        assert 3 == peer.transport.writes

    @given(
        sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=12),
        cuts=st.lists(st.integers(0, 40_000), max_size=20),
    )
    async def test_any_cuts(self, sizes: Sequence[int], cuts: Sequence[int]) -> None:
        """However a stream is cut, every request arrives whole and in order."""
        stream = b"".join(
            request(API_VERSIONS, index, bytes([index]) * size) for index, size in enumerate(sizes)
        )
        peer = Peer()
        places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
        for begin, end in pairwise(places):
            assert end - begin == peer.send(stream[begin:end])
        assert list(range(len(sizes))) == peer.transport.answers()
        assert [
            bytes([index]) * size for index, size in enumerate(sizes)
        ] == peer.dispatcher.payloads

    async def test_large_frame(self) -> None:
        """A frame larger than the shared buffer is received into one of its own."""
        peer = Peer()
        payload = bytes(range(256)) * 5000
        peer.send(request(API_VERSIONS, 1, payload))
        await settle()
        assert [payload] == peer.dispatcher.payloads
        assert 0 == peer.server.memory.used_bytes

    async def test_frames_do_not_share_bytes(self) -> None:
        """What a request holds is not overwritten by the next read."""
        peer = Peer()
        peer.send(request(API_VERSIONS, 1, b"first"))
        peer.send(request(API_VERSIONS, 2, b"other"))
        assert b"first" == bytes(peer.dispatcher.frames[0][8:])

    async def test_claims_cost_nothing(self) -> None:
        """A frame that announces 100 MB takes a few times what it has sent."""
        peer = Peer()
        frame = (100 << 20).to_bytes(4, "big") + b"\0\3\0\0" + bytes(996)
        peer.send(frame)
        assert GROWTH * 1000 == peer.server.memory.used_bytes
        peer.send(bytes(3000))
        assert GROWTH * 4000 == peer.server.memory.used_bytes

    async def test_idle_connection_owns_no_buffer(self) -> None:
        """Between frames, reads go to the buffer that all connections share."""
        peer = Peer()
        peer.send(request(API_VERSIONS, 1))
        assert peer.connection.get_buffer(-1) is peer.server.receive_buffer

    @pytest.mark.parametrize(
        "start",
        [
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"\0\0\0\7",
            b"\r\n\r\n",
            (101 << 20).to_bytes(4, "big"),
            b"\0\0\1\0\x13\x88",
        ],
    )
    async def test_garbage_is_closed(self, start: bytes) -> None:
        """HTTP, TLS, lengths that cannot be and keys that do not exist close the connection."""
        peer = Peer()
        peer.send(start)
        assert peer.transport.is_closing()
        assert ["protocol"] == peer.server.drops
        assert [] == peer.dispatcher.started
        peer.lose()
        assert 0 == peer.server.memory.used_bytes

    async def test_answers_what_came_before_garbage(self) -> None:
        """Requests before a broken one are answered before the connection closes."""
        peer = Peer()
        peer.send(request(METADATA, 1) + b"GET / HTTP/1.1")
        assert not peer.transport.is_closing()
        peer.finish(1)
        await settle()
        assert [1] == peer.transport.answers()
        assert peer.transport.is_closing()

    async def test_ignores_what_follows_garbage(self) -> None:
        """Nothing behind a broken frame is started."""
        peer = Peer()
        peer.send(at_once(1) + request(API_VERSIONS, -1) + at_once(2))
        assert [1] == peer.dispatcher.started
        peer.connection.buffer_updated(100)
        assert [1] == peer.dispatcher.started


class TestOrder:
    async def test_produce_overlaps(self) -> None:
        """Successive Produce requests are started at once and answered in their order."""
        peer = Peer()
        peer.send(b"".join(request(PRODUCE, one) for one in (1, 2, 3)))
        assert [1, 2, 3] == peer.dispatcher.started
        peer.finish(3)
        peer.finish(2)
        await settle()
        assert [] == peer.transport.answers()
        peer.finish(1)
        await settle()
        assert [1, 2, 3] == peer.transport.answers()
        assert 1 == peer.transport.writes

    async def test_produce_waits_for_one_that_is_submitted_in_turns(self) -> None:
        """It starts when that has submitted everything, before either is answered."""
        peer = Peer()
        submission: Completion[None] = Completion()
        peer.dispatcher.submissions[2] = submission
        peer.send(b"".join(request(PRODUCE, one) for one in (1, 2, 3, 4)))
        assert [1, 2] == peer.dispatcher.started
        peer.finish(1)
        await settle()
        assert [1, 2] == peer.dispatcher.started
        submission.set_result(None)
        assert [1, 2, 3, 4] == peer.dispatcher.started
        for one in (4, 3, 2):
            peer.finish(one)
        await settle()
        assert [1, 2, 3, 4] == peer.transport.answers()

    async def test_a_submission_that_outlives_its_connection(self) -> None:
        """What waited behind it is not started."""
        peer = Peer()
        submission: Completion[None] = Completion()
        peer.dispatcher.submissions[1] = submission
        peer.send(request(PRODUCE, 1) + request(PRODUCE, 2))
        peer.connection.connection_lost(None)
        submission.set_result(None)
        assert [1] == peer.dispatcher.started

    async def test_others_wait_for_their_turn(self) -> None:
        """A request that does not overlap starts when everything before it is answered."""
        peer = Peer()
        peer.send(request(PRODUCE, 1) + request(METADATA, 2) + request(PRODUCE, 3))
        assert [1] == peer.dispatcher.started
        peer.finish(1)
        await settle()
        assert [1, 2] == peer.dispatcher.started
        peer.finish(2)
        await settle()
        assert [1, 2, 3] == peer.dispatcher.started

    async def test_produce_waits_for_a_long_poll(self) -> None:
        """Produce behind a Fetch waits for it."""
        peer = Peer()
        peer.send(request(FETCH, 1) + request(PRODUCE, 2) + request(PRODUCE, 3))
        assert [1] == peer.dispatcher.started
        peer.finish(1)
        await settle()
        assert [1, 2, 3] == peer.dispatcher.started

    async def test_large_requests_take_turns(self) -> None:
        """A large request waits for its turn, and what follows on its connection with it."""
        peer = Peer()
        peer.server.gives_turns = False
        large = bytes(TURN_BYTES)
        peer.send(request(PRODUCE, 1) + request(PRODUCE, 2, large) + request(PRODUCE, 3))
        assert [1] == peer.dispatcher.started
        assert [peer.connection] == peer.server.turns
        peer.connection.take_turn()
        assert [1, 2, 3] == peer.dispatcher.started

    async def test_a_fetch_takes_turns_where_much_was_sent(self) -> None:
        """What follows on its connection waits with it, other connections do not."""
        peer = Peer()
        peer.server.gives_turns = False
        peer.server.has_sent_much = True
        peer.send(request(METADATA, 1) + request(FETCH, 2) + request(METADATA, 3))
        peer.finish(1)
        await settle()
        Peer(peer.server).send(request(PRODUCE, 4))
        assert [1, 4] == peer.dispatcher.started
        assert [peer.connection] == peer.server.turns
        assert 1 == peer.server.fetch_turns
        peer.connection.take_turn()
        assert [1, 4, 2] == peer.dispatcher.started
        peer.finish(2)
        await settle()
        assert [1, 4, 2, 3] == peer.dispatcher.started

    async def test_each_fetch_takes_a_turn_where_much_was_sent(self) -> None:
        """Of several of one connection, too."""
        peer = Peer()
        peer.server.gives_turns = False
        peer.server.has_sent_much = True
        peer.dispatcher.immediate |= {1, 2}
        peer.send(request(FETCH, 1) + request(FETCH, 2))
        peer.connection.take_turn()
        assert [1] == peer.dispatcher.started
        peer.connection.take_turn()
        assert [1, 2] == peer.dispatcher.started

    async def test_a_fetch_does_not_wait_for_a_large_answer(self) -> None:
        """Its turn is enough: it is no large request."""
        peer = Peer()
        peer.server.gives_turns = False
        peer.server.has_sent_much = peer.dispatcher.has_large_work = True
        peer.send(request(FETCH, 1))
        peer.connection.take_turn()
        assert [1] == peer.dispatcher.started
        assert [] == peer.server.held

    async def test_large_answers_are_counted(self) -> None:
        """What decides whether a Fetch takes turns."""
        peer = Peer()
        for size in (WRITE_BYTES - 9, WRITE_BYTES - 8):
            peer.dispatcher.answer_bytes = size
            peer.send(at_once(1))
        assert [WRITE_BYTES] == peer.server.sent

    async def test_turn_for_a_connection_that_has_gone(self) -> None:
        """A turn that comes too late starts nothing."""
        peer = Peer()
        peer.server.gives_turns = False
        peer.send(request(PRODUCE, 1, bytes(TURN_BYTES)))
        peer.lose()
        peer.connection.take_turn()
        assert [] == peer.dispatcher.started
        assert 0 == peer.server.memory.used_bytes

    async def test_requests_without_an_answer(self) -> None:
        """acks=0 leaves no gap and no answer."""
        peer = Peer()
        silent = bytearray(request(PRODUCE, 1))
        silent[7] = 9
        peer.send(bytes(silent) + at_once(2))
        assert [1, 2] == peer.dispatcher.started
        assert [2] == peer.transport.answers()

    async def test_failed_answer_ends_the_connection(self) -> None:
        """Behind an answer that never comes, none is written; those before it are."""
        peer = Peer()
        peer.send(b"".join(request(PRODUCE, one) for one in (1, 2, 3)))
        peer.finish(1)
        peer.dispatcher.waiting[2].finish(RuntimeError("bug"))
        peer.finish(3)
        await settle()
        assert [1] == peer.transport.answers()
        assert peer.transport.is_closing()
        assert ["bug"] == peer.server.drops
        assert 1 == len(peer.server.bugs)
        assert 0 == peer.server.memory.used_bytes

    async def test_bug_in_the_dispatcher(self) -> None:
        """An error that nobody expected closes its connection and is reported."""
        peer = Peer()
        peer.dispatcher.bug = ZeroDivisionError()
        peer.send(at_once(1))
        assert peer.transport.is_closing()
        assert [peer.dispatcher.bug] == peer.server.bugs


class _Large:
    """Something of a request."""


async def test_what_a_failed_request_held_is_given_back_at_once() -> None:
    """Its error is kept with the answer, which may wait long for the garbage collector."""
    peer = Peer()
    peer.send(request(METADATA, 1))
    failed = peer.dispatcher.waiting[1]
    held: list[weakref.ref[_Large]] = []

    def fail() -> None:
        large = _Large()
        held.append(weakref.ref(large))
        raise ProtocolError("broken")

    gc.disable()
    try:
        try:
            fail()
        except ProtocolError as error:
            failed.finish(error)
        peer.connection.write_answers()
        assert peer.transport.is_closing()
        assert [None] == [one() for one in held]
    finally:
        gc.enable()


def any_requests(random: Random, dispatcher: FakeDispatcher) -> tuple[bytes, list[int]]:
    """Return requests of any kind and their ids; some are answered at once, or submitted late."""
    stream, asked = b"", []
    for _ in range(random.randrange(30)):
        correlation_id = random.randrange(1 << 31)
        api_key = random.choice([PRODUCE, PRODUCE, FETCH, METADATA, API_VERSIONS])
        size = random.choice([0, 0, 200, TURN_BYTES])
        stream += request(api_key, correlation_id, bytes(size))
        asked.append(correlation_id)
        if random.random() < 0.6:
            dispatcher.immediate.add(correlation_id)
        elif api_key == PRODUCE and random.random() < 0.3:
            dispatcher.submissions[correlation_id] = Completion()
    return stream, asked


@pytest.mark.parametrize("seed", range(20))
async def test_every_answer_comes_once_in_order_and_reading_goes_on(seed: int) -> None:
    """However requests, answers, turns and clients that take nothing follow each other.

    In the end nothing is in hand, and nothing counts as memory.
    """
    random = Random(seed)
    limits = Limits(
        inflight_requests=random.choice([1, 2, 5, 100]),
        inflight_bytes=random.choice([50, 1_000, 100_000]),
        request_memory_bytes=random.choice([3_000, 20_000, 1 << 30]),
    )
    server = FakeServer(limits)
    dispatcher = server.dispatcher
    peer = Peer(server)
    stream, asked = any_requests(random, dispatcher)
    # A pause that ends sets everything going again, and may hide what has stopped.
    pauses = random.choice([0, 200])
    is_paused = False
    for step in range(1_000):
        event = random.randrange(4)
        if event == 0:
            stream = stream[peer.send(stream[: random.choice([1, 7, 50, 50_000])]) :]
        elif event == 1 and dispatcher.waiting:
            correlation_id = random.choice(list(dispatcher.waiting))
            submission = dispatcher.submissions.pop(correlation_id, None)
            if submission is not None:
                submission.set_result(None)
            else:
                dispatcher.finish(correlation_id, bytes(random.choice([0, WRITE_BYTES])))
        elif event == 2 and (is_paused or step < pauses):
            is_paused = not is_paused
            (peer.connection.pause_writing if is_paused else peer.connection.resume_writing)()
        elif event == 3:
            server.has_sent_much = not server.has_sent_much
        await settle(random.randrange(3))
    assert asked == peer.transport.answers()
    assert peer.transport.is_reading()
    assert 0 == server.memory.used_bytes
    assert [] == server.drops
    assert [] == server.bugs


class TestBackPressure:
    async def test_requests_in_flight(self) -> None:
        """Reading pauses at the limit of requests, and goes on below it."""
        peer = Peer(limits=Limits(inflight_requests=4))
        requests = [request(METADATA, one) for one in range(10)]
        peer.send(b"".join(requests[:4]))
        assert not peer.transport.is_reading()
        assert 0 == peer.send(requests[4])
        peer.finish(0)
        await settle()
        assert peer.transport.is_reading()
        assert [0, 1] == peer.dispatcher.started

    async def test_one_read_with_too_many(self) -> None:
        """What a read brought beyond the limit waits as bytes, and is taken up in order."""
        peer = Peer(limits=Limits(inflight_requests=4))
        peer.send(b"".join(request(METADATA, one) for one in range(50)))
        assert not peer.transport.is_reading()
        assert "parked=3 started=1" in repr(peer.connection)
        for one in range(50):
            peer.finish(one)
            await settle()
        assert list(range(50)) == peer.transport.answers()
        assert peer.transport.is_reading()
        assert 0 == peer.server.memory.used_bytes

    @pytest.mark.parametrize(
        ("limits", "requests"),
        [
            (Limits(inflight_bytes=1_000), request(API_VERSIONS, 1, bytes(TURN_BYTES))),
            (Limits(inflight_requests=2), request(FETCH, 1) + request(FETCH, 2)),
        ],
        ids=["a large request", "fetches"],
    )
    async def test_reads_on_after_what_a_turn_has_answered(
        self, limits: Limits, requests: bytes
    ) -> None:
        """Where reading stopped for requests that wait for a turn, and nothing else is due."""
        peer = Peer(limits=limits)
        peer.server.has_sent_much = True
        peer.dispatcher.immediate |= {1, 2}
        peer.send(requests)
        assert not peer.transport.is_reading()
        await settle()
        assert 1 in peer.transport.answers()
        assert peer.transport.is_reading()

    async def test_bytes_in_flight(self) -> None:
        """Reading pauses at the limit of bytes."""
        peer = Peer(limits=Limits(inflight_bytes=10_000))
        peer.send(request(PRODUCE, 1, bytes(9000)))
        assert peer.transport.is_reading()
        peer.send(request(PRODUCE, 2, bytes(9000)))
        assert not peer.transport.is_reading()
        peer.finish(1)
        await settle()
        assert peer.transport.is_reading()

    async def test_many_small_requests_take_turns(self) -> None:
        """A read full of requests that need no wait is answered a turn of the loop at a time."""
        peer = Peer()
        count = 3 * FRAMES_PER_TURN
        peer.send(at_once(*range(count)))
        assert FRAMES_PER_TURN == len(peer.transport.answers())
        assert not peer.transport.is_reading()
        await settle(1)
        assert 2 * FRAMES_PER_TURN == len(peer.transport.answers())
        await settle()
        assert list(range(count)) == peer.transport.answers()
        assert peer.transport.is_reading()
        assert 0 == peer.server.memory.used_bytes

    async def test_a_turn_ends_within_a_frame(self) -> None:
        """The rest of a read may end with part of a frame."""
        peer = Peer()
        stream = at_once(*range(FRAMES_PER_TURN + 3)) + request(API_VERSIONS, 99, bytes(1000))
        peer.send(stream[:-10])
        await settle()
        peer.send(stream[-10:])
        assert 99 == peer.transport.answers()[-1]

    async def test_unsent_answers(self) -> None:
        """Nothing is started for a client that does not take its answers; later, in order."""
        peer = Peer(limits=Limits(inflight_requests=3))
        assert (4 << 20, 8 << 20) == peer.transport.limits
        peer.connection.pause_writing()
        peer.send(at_once(1, 2))
        assert [] == peer.dispatcher.started
        peer.send(at_once(3, 4, 5))
        assert not peer.transport.is_reading()
        peer.connection.resume_writing()
        await settle()
        assert [1, 2, 3, 4, 5] == peer.transport.answers()
        assert peer.transport.is_reading()

    async def test_memory_of_all_connections(self) -> None:
        """When the common budget is spent, who holds requests stops reading until some is back."""
        server = FakeServer(Limits(request_memory_bytes=10_000))
        first, second, idle = Peer(server), Peer(server), Peer(server)
        first.send(request(METADATA, 1, bytes(9_992)))
        second.send(request(METADATA, 2, bytes(9_992)))
        assert not second.transport.is_reading()
        idle.send(at_once(3))
        assert [3] == idle.transport.answers()
        first.finish(1)
        await settle()
        assert not second.transport.is_reading()
        second.finish(2)
        await settle()
        assert second.transport.is_reading()

    async def test_memory_in_unfinished_frames(self) -> None:
        """When unfinished frames have eaten the budget, they are finished one at a time."""
        server = FakeServer(Limits(request_memory_bytes=10_000))
        peers = [Peer(server) for _ in range(4)]
        payload = bytes(20_000)
        sent = [peer.send(request(API_VERSIONS, 1, payload)[:2_000]) for peer in peers]
        while len(server.dispatcher.started) < len(peers):
            progress = 0
            for index, peer in enumerate(peers):
                more = peer.send(request(API_VERSIONS, 1, payload)[sent[index] :])
                sent[index] += more
                progress += more
            assert progress
            assert server.memory.used_bytes < 4 * 8_000 + 2 * len(payload)
            await settle()
        assert [1, 1, 1, 1] == server.dispatcher.started
        assert 0 == server.memory.used_bytes
        assert all(peer.transport.is_reading() for peer in peers)

    @pytest.mark.parametrize(("api_key", "payload"), [(METADATA, 1), (FETCH, 6_000)])
    async def test_who_has_gone_holds_nobody_up(self, api_key: int, payload: int) -> None:
        """Who may go on although the budget is spent, and goes, leaves that to the next one.

        Also where its request runs on behind it, and where it is chosen as it gives back its bytes.
        """
        server = FakeServer(Limits(request_memory_bytes=10_000))
        first, gone, last = Peer(server), Peer(server), Peer(server)
        first.send(request(API_VERSIONS, 1, bytes(40_000))[:3_000])
        gone.send(request(api_key, 2, bytes(payload)))
        last.send(request(API_VERSIONS, 3, bytes(40_000))[:3_000])
        first.lose()
        assert not last.transport.is_reading()
        gone.lose()
        assert last.transport.is_reading()

    async def test_what_goes_on_behind_its_connection_counts(self) -> None:
        """A client cannot have more in memory by closing: others wait until its request has ended.

        What is given up, what was answered and what had not been started are no longer counted.
        """
        server = FakeServer(Limits(request_memory_bytes=10_000))
        fetching, gone, other = Peer(server), Peer(server), Peer(server)
        fetching.send(request(FETCH, 1, bytes(5_000)))
        large = request(PRODUCE, 2, bytes(9_992))
        gone.send(large + request(PRODUCE, 3, bytes(100)) + request(METADATA, 4, bytes(1_000)))
        gone.finish(3)
        other.send(request(METADATA, 5))
        assert not other.transport.is_reading()
        for peer in (fetching, gone):
            peer.lose()
        assert len(large) - 4 + 8 == server.memory.used_bytes
        assert not other.transport.is_reading()
        gone.finish(2)
        assert 8 == server.memory.used_bytes
        assert other.transport.is_reading()
        await settle()
        assert [] == gone.transport.answers()


class TestDeadlines:
    async def test_idle(self) -> None:
        """A connection without traffic is closed after the idle time, not before."""
        peer = Peer(limits=Limits(idle_timeout_s=600))
        peer.at(0)
        peer.at(599)
        assert not peer.transport.is_aborted()
        peer.at(600)
        assert peer.transport.is_aborted()
        assert ["idle"] == peer.server.drops

    async def test_traffic_puts_idle_off(self) -> None:
        """Each read starts the idle time anew."""
        peer = Peer()
        peer.at(599)
        peer.send(at_once(1))
        peer.at(1198)
        assert not peer.transport.is_aborted()
        peer.at(1199)
        assert peer.transport.is_aborted()

    async def test_no_idle_limit(self) -> None:
        """Without the limit, an idle connection stays."""
        peer = Peer(limits=Limits(idle_timeout_s=None))
        peer.at(0)
        peer.at(10**9)
        assert not peer.transport.is_aborted()

    async def test_waiting_is_not_idle(self) -> None:
        """A request that waits keeps its connection alive."""
        peer = Peer()
        peer.send(request(METADATA, 1))
        peer.at(601)
        assert not peer.transport.is_aborted()
        peer.finish(1)
        await settle()
        peer.at(1202)
        assert peer.transport.is_aborted()

    @pytest.mark.parametrize("arrived", [1, 4, 9, 50])
    async def test_slow_frame(self, arrived: int) -> None:
        """A frame that has begun must be complete in time, however many bytes keep dripping."""
        peer = Peer(limits=Limits(frame_timeout_s=30))
        stream = request(API_VERSIONS, 1, bytes(100))
        peer.send(stream[:arrived])
        peer.at(29)
        if arrived > 4:
            peer.send(stream[arrived : arrived + 1])
        peer.at(30)
        assert not peer.transport.is_aborted()
        peer.at(31)
        assert peer.transport.is_aborted()
        assert ["slow_frame"] == peer.server.drops

    async def test_frame_deadline_ends_with_the_frame(self) -> None:
        """A frame that was completed has no deadline any more."""
        peer = Peer()
        stream = request(API_VERSIONS, 1, bytes(100))
        peer.send(stream[:50])
        peer.send(stream[50:])
        peer.at(31)
        assert not peer.transport.is_aborted()

    async def test_unsent_without_progress(self) -> None:
        """A client that takes none of its answers is dropped; one that takes some is not."""
        peer = Peer(limits=Limits(unsent_timeout_s=60))
        peer.dispatcher.answer_bytes = 992
        peer.send(at_once(*range(10)))
        peer.transport.unsent = 8_000
        for now_s in (1, 30, 60):
            peer.at(now_s)
        assert not peer.transport.is_aborted()
        peer.transport.unsent = 7_000
        peer.at(61)
        peer.at(120)
        assert not peer.transport.is_aborted()
        peer.at(121)
        assert peer.transport.is_aborted()
        assert ["unsent"] == peer.server.drops

    async def test_unsent_after_a_turn(self) -> None:
        """Also an answer that a turn has brought, a sweep behind its request, must be taken."""
        peer = Peer(limits=Limits(unsent_timeout_s=60))
        peer.server.gives_turns = False
        peer.send(request(API_VERSIONS, 1, bytes(TURN_BYTES)))
        peer.at(1)
        peer.connection.take_turn()
        assert [1] == peer.transport.answers()
        peer.transport.unsent = 8_000
        for now_s in (2, 30, 62):
            peer.at(now_s)
        assert ["unsent"] == peer.server.drops

    async def test_unsent_bytes_are_counted(self) -> None:
        """When a large answer leaves, at the next request and each sweep, until the client goes."""
        peer = Peer()
        peer.dispatcher.answer_bytes = 100_000
        peer.transport.unsent = 60_000
        peer.send(at_once(1))
        assert 60_000 == peer.server.metrics.unsent_bytes
        peer.transport.unsent = 7_000
        peer.at(1)
        assert 7_000 == peer.server.metrics.unsent_bytes
        peer.transport.unsent = 3_000
        peer.dispatcher.answer_bytes = 100
        peer.send(at_once(2))
        assert 3_000 == peer.server.metrics.unsent_bytes
        peer.connection.connection_lost(None)
        assert 0 == peer.server.metrics.unsent_bytes

    async def test_sent_in_the_end(self) -> None:
        """Answers that were taken leave no deadline behind."""
        peer = Peer()
        peer.send(at_once(1))
        peer.transport.unsent = 10
        peer.at(1)
        peer.transport.unsent = 0
        peer.at(59)
        peer.at(100)
        assert not peer.transport.is_aborted()


class TestEnd:
    async def test_refused(self) -> None:
        """A connection that is not admitted is closed and never counted out."""
        server = FakeServer()
        server.full = True
        peer = Peer(server)
        assert peer.transport.is_aborted()
        peer.lose()
        assert 0 == server.forgotten

    async def test_lost_connection_gives_everything_back(self) -> None:
        """Long polls are given up, other requests run to their end, memory is returned."""
        peer = Peer()
        peer.send(
            request(FETCH, 1) + request(METADATA, 2) + request(API_VERSIONS, 3, bytes(99))[:50]
        )
        fetch = peer.dispatcher.waiting[1]
        peer.lose()
        await settle()
        assert fetch.is_abandoned
        assert 0 == peer.server.memory.used_bytes
        assert 1 == peer.server.forgotten
        assert [1] == peer.dispatcher.started

    async def test_lost_connection_keeps_its_writes(self) -> None:
        """A Produce whose client has gone is still carried out."""
        peer = Peer()
        peer.send(request(PRODUCE, 1))
        peer.lose()
        peer.finish(1)
        await settle()
        assert [] == peer.transport.answers()

    async def test_drain_of_an_idle_connection(self) -> None:
        """An idle connection is shut at once and leaves the client to close it."""
        peer = Peer()
        peer.connection.finish()
        assert peer.transport.is_ended()
        assert "lingering" == peer.connection.state
        peer.send(at_once(1))
        assert [] == peer.dispatcher.started
        peer.at(1.5)
        assert not peer.transport.is_aborted()
        peer.at(2)
        assert peer.transport.is_aborted()

    async def test_drain_answers_what_was_started(self) -> None:
        """What was started is answered, what was not started is dropped, then our side is shut."""
        peer = Peer()
        peer.send(request(PRODUCE, 1) + request(PRODUCE, 2) + request(METADATA, 3))
        peer.connection.finish()
        assert not peer.transport.is_ended()
        peer.finish(1)
        peer.finish(2)
        await settle()
        assert [1, 2] == peer.transport.answers()
        assert [1, 2] == peer.dispatcher.started
        assert peer.transport.is_ended()

    async def test_drain_ends_long_polls(self) -> None:
        """A Fetch that waits for records does not hold a drain up."""
        peer = Peer()
        peer.send(request(FETCH, 1))
        peer.connection.finish()
        assert peer.dispatcher.waiting[1].is_abandoned
        assert peer.transport.is_ended()
        await settle()
        assert 0 == peer.server.memory.used_bytes

    async def test_drain_reads_on_after_the_end(self) -> None:
        """Bytes that the client still sends are taken and thrown away, so that no reset follows."""
        peer = Peer(limits=Limits(inflight_requests=1))
        peer.send(request(PRODUCE, 1))
        assert not peer.transport.is_reading()
        peer.connection.finish()
        peer.finish(1)
        await settle()
        assert peer.transport.is_reading()
        assert peer.transport.is_ended()

    async def test_drain_leaves_time_for_unsent_answers(self) -> None:
        """A client that is still taking its answers is not cut by the linger time."""
        peer = Peer()
        peer.transport.unsent = 5
        peer.connection.finish()
        peer.at(10)
        assert not peer.transport.is_aborted()
        peer.transport.unsent = 0
        peer.at(11)
        assert peer.transport.is_aborted()
