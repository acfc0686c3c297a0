"""A Fetch that waits, a kept poll and a fetch session obey a rule that changes."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.handlers.context import Session
from kgw.protocol.api_keys import ApiKey
from kgw.security.principal import Principal
from tests.handlers.access_requests import HOST, TOPIC, Guarded, codes_inside, permit
from tests.handlers.support import batch, call, produce, request_of
from tests.security.acls.writing import rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.testing.gateway import PendingResponse

READ = "ALLOW User:alice READ TOPIC orders"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
WAIT_MS = 10_000


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A gateway in which Alice may read the topic "orders"."""
    async with Guarded() as running:
        await permit(running, READ)
        yield running
        assert {} == running.gateway.internal_errors


async def forbid(guarded: Guarded) -> None:
    """Take the right away."""
    await guarded.access.remove([rule(READ)])


def fetch(guarded: Guarded, version: int, *, partitions: int = 1, **fields: Any) -> Any:
    """Return a Fetch that waits for records at the end of partitions."""
    wanted = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        for index in range(partitions)
    ]
    named = {"topic": TOPIC, "topic_id": guarded.names.topic_id, "partitions": wanted}
    sized: dict[str, Any] = {"max_bytes": 1 << 20} if version >= 3 else {}
    return request_of(
        ApiKey.FETCH,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        topics=[named],
        **sized,
        **fields,
    )


async def refused_in(pending: PendingResponse, version: int) -> None:
    """Check that a request is answered, and refuses its partitions."""
    response = await pending.response()
    assert response is not None
    assert {DENIED} == set(codes_inside(response, version))
    assert not any(records_in(response))


def records_in(response: Any) -> list[Any]:
    """Return the records of each partition in a response."""
    return [one.records or b"" for topic in response.responses for one in topic.partitions]


@pytest.mark.parametrize("version", [0, 3, 4, 11, 12, 13, 18])
async def test_a_waiting_fetch_is_refused_at_once(guarded: Guarded, version: int) -> None:
    """Without a session; the answer comes when the rule goes, not when the wait would end."""
    pending = guarded.start(fetch(guarded, version), version)
    assert not pending.done
    await forbid(guarded)
    await refused_in(pending, version)


async def test_a_session_that_waits_is_refused_at_once(guarded: Guarded) -> None:
    """And each request of the session after that, until the right is back."""
    await produce_as_admin(guarded)
    opened = await call(guarded, ApiKey.FETCH, 12, **fields_of(guarded, session_epoch=0))
    session_id = opened.session_id
    assert session_id
    told = request_of(
        ApiKey.FETCH,
        max_bytes=1 << 20,
        topics=[
            {
                "topic": TOPIC,
                "partitions": [{"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}],
            }
        ],
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        session_id=session_id,
        session_epoch=1,
    )
    pending = guarded.start(told, 12)
    assert not pending.done
    await forbid(guarded)
    await refused_in(pending, 12)

    def go_on(epoch: int) -> PendingResponse:
        request = request_of(
            ApiKey.FETCH,
            max_bytes=1 << 20,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
        )
        return guarded.start(request, 12)

    await refused_in(go_on(2), 12)
    await refused_in(go_on(3), 12)
    await permit(guarded, READ)
    pending = go_on(4)
    await produce_as_admin(guarded)
    response: Any = await pending.response()
    assert [0] == codes_inside(response, 12)


async def test_an_idle_session_is_refused_by_its_next_request(guarded: Guarded) -> None:
    """Though nothing has happened to its partitions, so that none of them is looked at."""
    opened = await call(
        guarded, ApiKey.FETCH, 13, **fields_of(guarded, session_epoch=0, max_wait_ms=0)
    )
    session_id = opened.session_id

    def go_on(epoch: int) -> PendingResponse:
        fields = {"max_bytes": 1 << 20, "max_wait_ms": 0, "min_bytes": 1}
        request = request_of(ApiKey.FETCH, session_id=session_id, session_epoch=epoch, **fields)
        return guarded.start(request, 13)

    response: Any = await go_on(1).response()
    assert [] == response.responses
    await forbid(guarded)
    await refused_in(go_on(2), 13)


async def test_a_session_is_not_another_clients(guarded: Guarded) -> None:
    """Whoever knows its id may use it, and is asked for the own rights each time."""
    fields = fields_of(guarded, session_epoch=0, max_wait_ms=0)
    session_id = (await call(guarded, ApiKey.FETCH, 12, **fields)).session_id
    going_on = {"max_bytes": 1 << 20, "session_id": session_id}
    await call(guarded, ApiKey.FETCH, 12, **going_on, session_epoch=1)
    await produce_as_admin(guarded)
    guarded.session = Session(client_host=HOST, principal=Principal("User", "mallory"))
    request = request_of(ApiKey.FETCH, **going_on, session_epoch=2)
    await refused_in(guarded.start(request, 12), 12)


@pytest.mark.parametrize("partitions", [1, 30, 500])
async def test_a_kept_poll_is_refused(guarded: Guarded, partitions: int) -> None:
    """A poll that its client repeats is not kept longer than the rules."""
    if partitions > 1:
        guarded.session = guarded.admin
        wanted = [{"name": TOPIC, "count": partitions, "assignments": None}]
        await call(guarded, ApiKey.CREATE_PARTITIONS, 3, topics=wanted)
        guarded.session = guarded.alice
    poll = fetch(guarded, 11, partitions=partitions)
    for _ in range(3):
        pending = guarded.start(poll, 11)
        await settled()
        guarded.manual_clock.advance(WAIT_MS / 1000 + 1)
        response = await pending.response()
        assert response is not None
        assert {0} == set(codes_inside(response, 11))
    await forbid(guarded)
    await refused_in(guarded.start(poll, 11), 11)
    await permit(guarded, READ)
    pending = guarded.start(poll, 11)
    await settled()
    assert not pending.done
    await forbid(guarded)
    await refused_in(pending, 11)


async def test_a_kept_poll_is_refused_before_its_wait_is_ended(guarded: Guarded) -> None:
    """The waits of many partitions end in several turns of the loop: none reads on meanwhile."""
    poll = fetch(guarded, 11)
    for _ in range(2):
        pending = guarded.start(poll, 11)
        guarded.manual_clock.advance(WAIT_MS / 1000 + 1)
        await pending.response()
    waiting = guarded.start(
        poll, 11, session=Session(client_host=HOST, principal=guarded.alice.principal)
    )
    guarded.access.when_changed.clear()
    await forbid(guarded)
    await refused_in(guarded.start(poll, 11), 11)
    # Records that come in between reach nobody.
    await produce_as_admin(guarded)
    await refused_in(waiting, 11)


async def test_a_wait_goes_on_if_the_right_stays(guarded: Guarded) -> None:
    """Another rule has changed: the client is answered with what there is, and asks again."""
    pending = guarded.start(fetch(guarded, 12), 12)
    await permit(guarded, "ALLOW User:bob READ TOPIC other")
    response = await pending.response()
    assert response is not None
    assert [0] == codes_inside(response, 12)


async def test_a_deny_rule_ends_waits(guarded: Guarded) -> None:
    """A rule that is added takes effect as one that is removed."""
    pending = guarded.start(fetch(guarded, 12), 12)
    await permit(guarded, "DENY User:* READ TOPIC ord~")
    await refused_in(pending, 12)


async def test_other_topics_of_the_fetch_are_answered(guarded: Guarded) -> None:
    """Only the partitions without the right are refused."""
    guarded.session = guarded.admin
    await call(
        guarded,
        ApiKey.CREATE_TOPICS,
        7,
        topics=[{"name": "free", "num_partitions": 1, "replication_factor": 1}],
    )
    await produce(guarded, batch(b"one"), name="free")
    guarded.session = guarded.alice
    await permit(guarded, "ALLOW User:alice READ TOPIC free")
    await forbid(guarded)
    wanted = [{"partition": 0, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": name, "partitions": wanted} for name in (TOPIC, "free")]
    response = await call(guarded, ApiKey.FETCH, 11, max_bytes=1 << 20, topics=topics)
    assert [DENIED, 0] == codes_inside(response, 11)
    assert [False, True] == [bool(one) for one in records_in(response)]


def fields_of(guarded: Guarded, **fields: Any) -> dict[str, Any]:
    """Return the fields of a complete Fetch, as `call` takes them."""
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    named = {"topic": TOPIC, "topic_id": guarded.names.topic_id, "partitions": wanted}
    return {"max_bytes": 1 << 20, "topics": [named], **fields}


async def produce_as_admin(guarded: Guarded) -> None:
    """Append a record."""
    session, guarded.session = guarded.session, guarded.admin
    assert 0 == (await produce(guarded, batch(b"value"))).error_code
    guarded.session = session


async def settled() -> None:
    """Let a Fetch of many partitions look at all of them."""
    for _ in range(50):
        await sleep(0)
