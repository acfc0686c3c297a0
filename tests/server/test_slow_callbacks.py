from __future__ import annotations

import asyncio
import logging
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from kgw.completion import Completion
from kgw.handlers.context import Later, RequestContext
from kgw.handlers.describe_cluster import DescribeCluster
from kgw.handlers.metadata import Metadata
from kgw.logs import LOG_INTERVAL_S
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.describe_cluster import DescribeClusterRequest
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.server.slow_callbacks import (
    SlowCallbacks,
    StackWatch,
    WatchedDispatcher,
    describe_answer,
    describe_request,
    name_of,
    watched_loop,
)
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_S = 0.005


class Watched:
    """Slow callbacks over a clock that moves when told, and what they have said."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = ManualClock()
        self.slow_callbacks = SlowCallbacks(self.clock, SLOW_S)
        self._caplog = caplog

    def work(self, milliseconds: float) -> None:
        """Use processor time."""
        self.clock.used_cpu_s += milliseconds / 1000

    async def work_in_a_task(self, milliseconds: float) -> None:
        """Use processor time in the second turn of a task."""
        await asyncio.sleep(0)
        self.work(milliseconds)

    @property
    def said(self) -> list[tuple[str, Any]]:
        """The events that were logged, and their fields."""
        return [
            (
                record.getMessage().removesuffix(" held the event loop"),
                record.__dict__["kgw_fields"],
            )
            for record in self._caplog.records
            if record.name == "kgw.server.slow_callbacks"
        ]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Iterator[Watched]:
    """Slow callbacks that count from 5 ms on."""
    with caplog.at_level(logging.WARNING):
        yield Watched(caplog)


def test_callbacks_are_reported_by_name(watched: Watched) -> None:
    """One that takes as long as the limit is; one that takes less is not."""
    watched.slow_callbacks.run(partial(watched.work, 4.9))
    watched.slow_callbacks.run(watched.work, 5.1)
    expected = {"cpu_ms": 5.1, "name": "tests.server.test_slow_callbacks.Watched.work"}
    assert [("a callback", expected)] == watched.said


def test_a_flood_is_kept_back(watched: Watched) -> None:
    """The same offender leaves one line in ten seconds, which counts the others."""
    for _ in range(3):
        watched.slow_callbacks.run(watched.work, 6)
    watched.clock.advance(LOG_INTERVAL_S)
    watched.slow_callbacks.run(watched.work, 6)
    assert [None, 2] == [fields.get("and_before_it") for _, fields in watched.said]


def test_the_outer_is_charged_with_the_rest(watched: Watched) -> None:
    """What was reported inside of something is not its fault as well."""

    def outer() -> None:
        watched.work(1)
        watched.slow_callbacks.run(watched.work, 20)
        watched.slow_callbacks.run(watched.work, 3)

    watched.slow_callbacks.run(outer)
    assert ["tests.server.test_slow_callbacks.Watched.work"] == [
        one["name"] for _, one in watched.said
    ]


def test_the_place_is_noted_once_half_the_limit_is_used(watched: Watched) -> None:
    """A look from beside says where the innermost running thing is, and nothing of short ones."""
    looks = iter(["early", "late", "later"])

    def slow() -> None:
        for milliseconds in (2, 2, 3):
            watched.work(milliseconds)
            watched.slow_callbacks.look(watched.clock.used_cpu_s, lambda: next(looks))

    watched.slow_callbacks.look(1.0, lambda: "nothing runs")
    watched.slow_callbacks.run(slow)
    ((_, fields),) = watched.said
    assert fields["place"] == "early"
    assert next(looks) == "late"


def test_garbage_collections_are_told_apart(watched: Watched) -> None:
    """Whoever happens to allocate when the collector's time has come is not to blame."""

    def allocate() -> None:
        watched.work(1)
        watched.slow_callbacks.collected("start", {"generation": 2})
        watched.work(8)
        watched.slow_callbacks.collected("stop", {"generation": 2})

    watched.slow_callbacks.run(allocate)
    assert [("a garbage collection", {"cpu_ms": 8, "name": "generation 2"})] == watched.said
    elsewhere = Thread(target=watched.slow_callbacks.collected, args=("stop", {}))
    elsewhere.start()
    elsewhere.join()


def test_the_stack_is_that_of_the_thread_that_made_the_watch(watched: Watched) -> None:
    """Another thread sees the lines in which the loop's thread is, the innermost first."""
    watch = StackWatch(watched.slow_callbacks)
    seen: list[str] = []
    other = Thread(target=lambda: seen.append(watch.stack()))
    other.start()
    other.join()
    assert "test_slow_callbacks.test_the_stack_is_that_of_the_thread_that_made_the_watch" in seen[0]


def test_tasks_are_reported_by_their_coroutine(watched: Watched) -> None:
    """Each turn of a task is a callback of the loop, named by what runs in it."""
    loop = watched_loop(asyncio.SelectorEventLoop, watched.slow_callbacks)
    try:
        loop.run_until_complete(watched.work_in_a_task(7))
        loop.call_later(0, watched.work, 8)
        loop.call_soon_threadsafe(watched.work, 9)
        loop.run_until_complete(asyncio.sleep(0.01))
    finally:
        loop.close()
    line = Watched.work_in_a_task.__code__.co_firstlineno
    assert {
        f"Watched.work_in_a_task (test_slow_callbacks.py:{line})": 7,
        "tests.server.test_slow_callbacks.Watched.work": 9,
    } == {fields["name"]: fields["cpu_ms"] for _, fields in watched.said}


async def test_requests_are_described(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """API, version, client, and how much was asked for; the first turn and what follows."""

    def slow_answer(one: Metadata) -> Any:
        watched.work(12)
        return plain_answer(one)

    async def later_answer(api: DescribeCluster) -> Any:
        await watched.work_in_a_task(13)
        return plain_cluster(api)

    plain_answer, plain_cluster = Metadata.answer, DescribeCluster.answer
    monkeypatch.setattr(Metadata, "answer", slow_answer)
    monkeypatch.setattr(DescribeCluster, "answer", later_answer)
    async with InProcessGateway() as gateway:
        gateway.dispatcher = WatchedDispatcher(gateway.gateway, watched.slow_callbacks)
        topics = [MetadataRequestTopic(name=name) for name in "abc"]
        await gateway.request(MetadataRequest(topics=topics), 12)
        ((kind, fields),) = watched.said
        assert (kind, fields.pop("bytes") > 0) == ("a request", True)
        assert {
            "cpu_ms": 12,
            "name": "METADATA",
            "version": 12,
            "client_id": "in-process",
            "topics": 3,
        } == fields
        loop = asyncio.get_running_loop()
        plain_call_soon = loop.call_soon
        monkeypatch.setattr(
            loop,
            "call_soon",
            lambda callback, *args, context=None: plain_call_soon(
                watched.slow_callbacks.run, callback, *args, context=context
            ),
        )
        await gateway.request(DescribeClusterRequest(), 0)
    (_, (kind, fields)) = watched.said
    assert ("a callback", 13, "DESCRIBE_CLUSTER") == (
        kind,
        fields["cpu_ms"],
        fields["request_name"],
    )


async def test_answers_that_come_later_are_described(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making an answer counts for its request, and is named so."""
    plain_answer = DescribeCluster.answer

    def later_answer(api: DescribeCluster) -> Later:
        def make() -> Any:
            watched.work(14)
            return plain_answer(api)

        due: Completion[None] = Completion()
        asyncio.get_running_loop().call_soon(due.set_result, None)
        return Later(due, make)

    monkeypatch.setattr(DescribeCluster, "answer", later_answer)
    async with InProcessGateway() as gateway:
        gateway.dispatcher = WatchedDispatcher(gateway.gateway, watched.slow_callbacks)
        await gateway.request(DescribeClusterRequest(), 0)
    ((kind, fields),) = watched.said
    assert ("an answer", 14, "DESCRIBE_CLUSTER") == (kind, fields["cpu_ms"], fields["name"])


async def test_what_cannot_be_decoded_is_said_so() -> None:
    """A report never fails because of what a client has sent, in whichever turn that was seen."""
    async with InProcessGateway() as gateway:
        context = RequestContext(gateway.gateway, gateway.session, ApiKey.METADATA, 9, 1)
        assert "it cannot be decoded" == describe_answer(context)["detail"]
    assert {"bytes": 3, "detail": "it cannot be decoded"} == describe_request(memoryview(b"\0\3\0"))
    cut = memoryview(b"\0\3\0\1\0\0\0\7\0\1x\0\0\0\5")
    fields = describe_request(cut)
    assert ("METADATA", "x", "it cannot be decoded") == (
        fields["name"],
        fields["client_id"],
        fields["detail"],
    )


def test_names() -> None:
    """Functions, partials and objects that can be called all have one."""
    assert name_of(describe_request) == name_of(partial(describe_request))
    assert name_of(describe_request) == "kgw.server.slow_callbacks.describe_request"
    assert name_of([].append).endswith("list.append")
