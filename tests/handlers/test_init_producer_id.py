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
        await gateway.gateway.start()
        pending = [gateway.start(request(), 4) for _ in range(50)]
        for one in pending:
            response = await one.response()
            assert isinstance(response, InitProducerIdResponse)
            given.append(response.producer_id)
        if ends_in_a_crash:
            await backend.crash()
        else:
            await gateway.gateway.aclose()
    assert 150 == len(set(given))


async def test_transactional_ids_are_refused(gateway: InProcessGateway) -> None:
    """Until transactions are served, with a code that clients do not retry."""
    response = await gateway.ask(request("t"), 4, InitProducerIdResponse)
    code = ErrorCode(response.error_code)
    assert ErrorCode.UNSUPPORTED_VERSION is code
    assert not code.retriable
    assert (-1, -1) == (response.producer_id, response.producer_epoch)
    response = await gateway.ask(request(""), 4, InitProducerIdResponse)
    assert ErrorCode.INVALID_REQUEST == response.error_code


async def test_block_that_cannot_be_claimed(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that is not durably claimed is not handed out; the next request tries again."""

    async def fail(*_: object) -> None:
        raise StorageError("broken")

    with monkeypatch.context() as broken:
        broken.setattr(gateway.gateway.backend.state, "apply", fail)
        response = await gateway.ask(request(), 4, InitProducerIdResponse)
        assert ErrorCode.KAFKA_STORAGE_ERROR == response.error_code
    response = await gateway.ask(request(), 4, InitProducerIdResponse)
    assert ErrorCode.NONE == response.error_code
