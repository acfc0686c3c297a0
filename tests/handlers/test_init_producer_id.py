from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode, StorageError
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kgw.testing.gateway import InProcessGateway

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend


def request(transactional_id: str | None = None) -> InitProducerIdRequest:
    """Return a request, of an idempotent producer unless told otherwise."""
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)


@pytest.mark.parametrize("version", range(6))
async def test_gives_a_new_id(gateway: InProcessGateway, version: int) -> None:
    """Every request gets an id of its own, with epoch 0."""
    first = await gateway.ask(request(), version, InitProducerIdResponse)
    second = await gateway.ask(request(), version, InitProducerIdResponse)
    assert (ErrorCode.NONE, 0) == (first.error_code, first.producer_epoch)
    assert first.producer_id != second.producer_id


async def test_ids_are_never_given_twice(backend: MemoryBackend) -> None:
    """Not by clients that ask together, not after a stop, not after a crash."""
    given: list[int] = []
    for ends_in_a_crash in (False, True, False):
        gateway = InProcessGateway(backend=backend)
        await gateway.open()
        pending = [gateway.start(request(), 4) for _ in range(50)]
        for one in pending:
            response = await one.response()
            assert isinstance(response, InitProducerIdResponse)
            given.append(response.producer_id)
        if ends_in_a_crash:
            await backend.crash()
        else:
            await gateway.aclose()
    assert 150 == len(set(given))


@pytest.mark.parametrize("version", range(6))
async def test_transactional_id(gateway: InProcessGateway, version: int) -> None:
    """It keeps its producer id; each producer that comes has the next epoch."""
    first = await gateway.ask(request("t"), version, InitProducerIdResponse)
    second = await gateway.ask(request("t"), version, InitProducerIdResponse)
    assert [ErrorCode.NONE] * 2 == [first.error_code, second.error_code]
    assert first.producer_id == second.producer_id
    assert [0, 1] == [first.producer_epoch, second.producer_epoch]
    response = await gateway.ask(request(""), version, InitProducerIdResponse)
    assert ErrorCode.INVALID_REQUEST == response.error_code
    assert (-1, -1) == (response.producer_id, response.producer_epoch)


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_producer_that_is_fenced(gateway: InProcessGateway, version: int) -> None:
    """Up to v3 its epoch is just invalid, which older clients know (KIP-588)."""
    first = await gateway.ask(request("t"), version, InitProducerIdResponse)
    await gateway.ask(request("t"), version, InitProducerIdResponse)
    stale = request("t")
    stale.producer_id, stale.producer_epoch = first.producer_id, first.producer_epoch
    response = await gateway.ask(stale, version, InitProducerIdResponse)
    expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert expected == response.error_code


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(1, -1), (-1, 1)])
@pytest.mark.parametrize("transactional_id", ["t", None])
async def test_half_of_a_producer(
    gateway: InProcessGateway, transactional_id: str | None, producer_id: int, producer_epoch: int
) -> None:
    """An id without an epoch, or the other way round, says nothing."""
    half = request(transactional_id)
    half.producer_id, half.producer_epoch = producer_id, producer_epoch
    response = await gateway.ask(half, 4, InitProducerIdResponse)
    assert ErrorCode.INVALID_REQUEST == response.error_code


async def test_block_that_cannot_be_claimed(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that is not durably claimed is not handed out; the next request tries again."""

    async def fail(*_: object) -> None:
        raise StorageError("broken")

    with monkeypatch.context() as broken:
        broken.setattr(gateway.backend.state, "apply", fail)
        response = await gateway.ask(request(), 4, InitProducerIdResponse)
        assert ErrorCode.KAFKA_STORAGE_ERROR == response.error_code
    response = await gateway.ask(request(), 4, InitProducerIdResponse)
    assert ErrorCode.NONE == response.error_code
