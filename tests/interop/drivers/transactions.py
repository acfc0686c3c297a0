"""Producers of kafka-python and confluent-kafka with transactional ids, kept between operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.loop import Operation


def operations(
    opened: Callable[[Operation], Any],
    sent: Callable[[Any, Operation], Operation],
    send_offsets: Callable[[Any, Any], None],
    close: Callable[[Any], None],
    members: dict[str, Any],
    others: dict[str, Callable[[Operation], Operation]],
) -> dict[str, Callable[[Operation], Operation]]:
    """The driver's other operations, and those on producers, each by a name of the test's own.

    `opened` gives a producer that has fenced the others, `sent` sends an operation's records and
    waits for them, `send_offsets` takes a producer and the member of the same name.
    """
    producers: dict[str, Any] = {}

    def open_producer(operation: Operation) -> Operation:
        name = operation["producer"]
        if operation["group"] is not None:
            others["open_member"]({**operation, "member": name, "instance": None})
        producers[name] = opened(operation)
        return {}

    def produce(operation: Operation) -> Operation:
        name = operation.get("producer")
        return others["produce"](operation) if name is None else sent(producers[name], operation)

    def begin(operation: Operation) -> Operation:
        producers[operation["producer"]].begin_transaction()
        return {}

    def offsets_sent(operation: Operation) -> Operation:
        name = operation["producer"]
        send_offsets(producers[name], members[name])
        return {}

    def end(operation: Operation) -> Operation:
        producer = producers[operation["producer"]]
        if operation["commit"]:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        return {}

    def close_producer(operation: Operation) -> Operation:
        name = operation["producer"]
        close(producers.pop(name))
        if name in members:
            others["close_member"]({"member": name})
        return {}

    return {
        **others,
        "open_producer": open_producer,
        "produce": produce,
        "begin": begin,
        "send_offsets": offsets_sent,
        "end": end,
        "close_producer": close_producer,
    }
