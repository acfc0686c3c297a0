"""Error codes in answers are counted by API and code, wherever in the answer they stand."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.encoding_turns import encode_in_turns
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class, response_class
from kgw.protocol.messages.heartbeat import HeartbeatResponse
from kgw.protocol.schema import EncodedItems, Struct
from kgw.turns import StepBudget, finish
from tests.handlers.support import batch, call, create_topic, produce
from tests.protocol.kio_codec import entity, places_of_type
from tests.protocol.random_messages import random_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.table import Handler
    from kgw.protocol.schema import Response
    from kgw.testing.gateway import InProcessGateway

SERVED = [pytest.param(handler, id=handler.label) for handler in HANDLERS.values()]


def versions(handler: Handler) -> range:
    """Return the versions of an API that are served."""
    return range(handler.min_version, handler.max_version + 1)


def is_code(name: str) -> bool:
    """Whether a field of this name is an error code: all but one that Kafka does not count."""
    return "error_code" in name and name != "topic_config_error_code"


def places_of_codes(item: type[Struct], version: int) -> list[tuple[str, ...]]:
    """Return the way to each error code of a response in a version."""
    places: list[tuple[str, ...]] = []
    for name, field in item.field_table.items():
        if not field.present(version):
            continue
        if is_code(name):
            places.append((name,))
        elif isinstance(field.item, type):
            places += [(name, *rest) for rest in places_of_codes(field.item, version)]
    return places


def planted(item: type[Struct], place: tuple[str, ...], code: ErrorCode) -> Any:
    """Return a structure with a code at one place: last of two where there is an array."""
    name, *rest = place
    if not rest:
        return item(**{name: int(code)})
    field: Any = item.field_table[name]
    inner = planted(field.item, tuple(rest), code)
    return item(**{name: [field.item(), inner] if field.kind == "array" else inner})


def codes_in(struct: Any) -> Iterator[int]:
    """Yield every code but NONE of a message, by a look at all that it holds."""
    for name in struct.field_table:
        value = getattr(struct, name)
        if is_code(name) and value:
            yield value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Struct):
                yield from codes_in(one)


async def answered(gateway: InProcessGateway, handler: Any, version: int, answer: Response) -> None:
    """Have a request of an API answered so, through the whole pipeline."""
    request = random_message(request_class(handler.api_key), version, Random(1))
    own = handler.api

    class Planted:
        refuse = own.refuse

        def __init__(self, request: Any, context: Any) -> None:
            """Answer what the test says, whatever the request."""

        def answer(self) -> Response:
            return answer

    handler.api = Planted
    try:
        await gateway.request(request, version)
    finally:
        handler.api = own


@pytest.mark.parametrize("handler", SERVED)
async def test_planted_code_is_counted(gateway: InProcessGateway, handler: Handler) -> None:
    """Each error code field of each served response, in each version, is counted by itself."""
    response, errors = response_class(handler.api_key), gateway.metrics.answer_errors
    for version in versions(handler):
        places = places_of_codes(response, version)
        assert places
        for place in places:
            errors.clear()
            answer = planted(response, place, ErrorCode.REASSIGNMENT_IN_PROGRESS)
            await answered(gateway, handler, version, answer)
            assert {(handler.label, "REASSIGNMENT_IN_PROGRESS"): 1} == errors, (version, place)


@pytest.mark.parametrize("handler", SERVED)
async def test_all_codes_of_an_answer_are_counted(
    gateway: InProcessGateway, handler: Handler
) -> None:
    """Many codes in many parts are counted as often as they are said; NONE is not."""
    response, errors = response_class(handler.api_key), gateway.metrics.answer_errors
    for version in versions(handler):
        errors.clear()
        answer = random_message(response, version, Random(version), max_items=5)
        await answered(gateway, handler, version, answer)
        expected = Counter((handler.label, ErrorCode(code).name) for code in codes_in(answer))
        assert expected == errors, version


@pytest.mark.parametrize("handler", SERVED)
async def test_codes_of_encoded_parts_are_kept(handler: Handler) -> None:
    """Parts that are encoded before the answer, a turn at a time, keep their codes."""
    response = response_class(handler.api_key)
    for version in versions(handler):
        for name, field in response.field_table.items():
            if not field.may_be_encoded or not field.present(version):
                continue
            answer: Any = random_message(response, version, Random(version), max_items=7)
            items = getattr(answer, name) or []
            expected = sorted(code for one in items for code in codes_in(one))
            encoded = await finish(encode_in_turns(response, items, version, StepBudget(2)))
            assert isinstance(encoded, EncodedItems)
            assert expected == sorted(encoded.error_codes), (version, name)


@pytest.mark.parametrize("handler", SERVED)
def test_places_of_codes_are_those_of_another_codec(handler: Handler) -> None:
    """What an independent codec types as an error code is what is counted, and nothing else."""
    response = response_class(handler.api_key)
    for version in versions(handler):
        theirs = entity(response, version)
        if theirs is None:
            continue  # it lacks the newest versions
        expected = sorted(places_of_type(theirs, "error_code"))
        assert expected == sorted(places_of_codes(response, version)), version


async def test_answer_without_errors_counts_nothing(gateway: InProcessGateway) -> None:
    """NONE is not counted: how many requests there are is told by themselves."""
    await create_topic(gateway)
    await produce(gateway, batch())
    await call(gateway, ApiKey.METADATA, 9, topics=[{"name": "orders"}])
    assert {} == gateway.metrics.answer_errors


async def test_single_codes_of_groups(gateway: InProcessGateway) -> None:
    """A refusal that a group's machine answers, without an error raised, is counted."""
    member = {"group_id": "billing", "member_id": "gone", "generation_id": 1}
    await call(gateway, ApiKey.HEARTBEAT, 4, **member)
    await call(gateway, ApiKey.SYNC_GROUP, 4, **member)
    metrics = gateway.metrics
    assert {
        ("HEARTBEAT", "UNKNOWN_MEMBER_ID"): 1,
        ("SYNC_GROUP", "UNKNOWN_MEMBER_ID"): 1,
    } == metrics.answer_errors
    assert {} == metrics.request_errors


@pytest.mark.parametrize("partitions", [3, 2_000])
async def test_partitions_of_large_and_small_requests(
    gateway: InProcessGateway, partitions: int
) -> None:
    """Each partition that is missing counts, whether its answer is encoded in turns or at once."""
    indexes = range(partitions)
    await call(
        gateway,
        ApiKey.FETCH,
        12,
        max_bytes=1000,
        topics=[{"topic": "gone", "partitions": [{"partition": one} for one in indexes]}],
    )
    await call(
        gateway,
        ApiKey.PRODUCE,
        9,
        acks=-1,
        topic_data=[{"name": "gone", "partition_data": [{"index": one} for one in indexes]}],
    )
    await call(
        gateway,
        ApiKey.OFFSET_COMMIT,
        8,
        group_id="billing",
        generation_id_or_member_epoch=-1,
        topics=[{"name": "gone", "partitions": [{"partition_index": one} for one in indexes]}],
    )
    await call(
        gateway,
        ApiKey.METADATA,
        9,
        topics=[{"name": f"gone-{one}"} for one in indexes],
        allow_auto_topic_creation=False,
    )
    assert {
        (api, "UNKNOWN_TOPIC_OR_PARTITION"): partitions
        for api in ("FETCH", "PRODUCE", "OFFSET_COMMIT", "METADATA")
    } == gateway.metrics.answer_errors


async def test_request_that_is_refused_as_a_whole(gateway: InProcessGateway) -> None:
    """It counts once as a request, and once for each code that its answer says."""
    await call(gateway, ApiKey.FIND_COORDINATOR, 4, key_type=7, coordinator_keys=["a", "b"])
    metrics = gateway.metrics
    assert {("FIND_COORDINATOR", "INVALID_REQUEST"): 1} == metrics.request_errors
    assert {("FIND_COORDINATOR", "INVALID_REQUEST"): 2} == metrics.answer_errors


async def test_version_that_is_not_served(gateway: InProcessGateway) -> None:
    """UNSUPPORTED_VERSION is counted, also for ApiVersions, whose answer is of version 0."""
    frame = bytes.fromhex("00120063000000010001610100")
    gateway.raw(frame)
    assert {("API_VERSIONS", "UNSUPPORTED_VERSION"): 1} == gateway.metrics.answer_errors


async def test_batch_that_nobody_is_told_of(gateway: InProcessGateway) -> None:
    """With acks=0 there is no answer: the code that closes the connection is counted, once."""
    with pytest.raises(ProtocolError, match="acks=0, UNKNOWN_TOPIC_OR_PARTITION"):
        await call(
            gateway,
            ApiKey.PRODUCE,
            9,
            acks=0,
            topic_data=[{"name": "gone", "partition_data": [{"index": 0, "records": batch()}]}],
        )
    assert {("PRODUCE", "UNKNOWN_TOPIC_OR_PARTITION"): 1} == gateway.metrics.answer_errors


async def test_answer_that_cannot_be_encoded(gateway: InProcessGateway) -> None:
    """What is sent in its place is counted, and nothing that the first answer would have said."""
    handler = HANDLERS[ApiKey.HEARTBEAT]
    await answered(gateway, handler, 4, HeartbeatResponse(error_code=70_000))
    assert {("HEARTBEAT", "UNKNOWN_SERVER_ERROR"): 1} == gateway.metrics.answer_errors
    gateway.internal_errors.clear()
