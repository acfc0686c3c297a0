"""TxnOffsetCommit through the codec, with OffsetFetch that asks for stable offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.completion import Completion
from kgw.errors import ErrorCode, StorageError
from kgw.handlers.txn_offset_commit import TxnOffsetCommit
from kgw.ownership.ownership import Ownership
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import call, call_in_turns, create_topic, request_of
from tests.handlers.test_group_offsets import commit, fetch

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend
    from kgw.transactions.requests import AddRequest

NONE = ErrorCode.NONE
VERSIONS = range(7)
PRODUCER, EPOCH = 4000, 3


class ScriptedTransactions:
    """Says of every transaction what it is told to say, at once or later."""

    def __init__(self) -> None:
        self.code = NONE
        self.is_slow = False
        self.asked: list[tuple[str, str, int, int, str]] = []
        self.waiting: list[Completion[ErrorCode]] = []

    def ask(self, transactional_id: str, request: AddRequest) -> Completion[ErrorCode]:
        kind = "verify" if request.verify_only else "add"
        (group_id,) = request.groups
        self.asked.append((kind, transactional_id, *request.producer, group_id))
        answer: Completion[ErrorCode] = Completion()
        if self.is_slow:
            self.waiting.append(answer)
        else:
            answer.set_result(self.code)
        return answer


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> ScriptedTransactions:
    """What the handler asks whether a transaction goes on."""
    scripted = ScriptedTransactions()
    monkeypatch.setattr(Ownership, "transactions", scripted)
    return scripted


def txn_commit(
    offsets: dict[int, int],
    *,
    name: str = "orders",
    topic_id: bytes = bytes(16),
    metadata: str | None = "note",
    group_id: str = "group",
    **fields: Any,
) -> Any:
    """Return a TxnOffsetCommit of one topic."""
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
        for index, offset in offsets.items()
    ]
    return request_of(
        ApiKey.TXN_OFFSET_COMMIT,
        transactional_id="copier",
        group_id=group_id,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        topics=[{"name": name, "topic_id": topic_id, "partitions": partitions}],
        **fields,
    )


async def commit_in_transaction(
    gateway: InProcessGateway, offsets: dict[int, int], version: int = 5, **fields: Any
) -> list[int]:
    """Commit offsets of one topic in a transaction, and return the codes."""
    topic = gateway.catalog.get(fields.get("name", "orders"))
    if topic is not None:
        fields["topic_id"] = topic.topic_id
    response: Any = await gateway.request(txn_commit(offsets, **fields), version)
    return [one.error_code for one in response.topics[0].partitions]


async def fetch_stable(gateway: InProcessGateway, *indexes: int, version: int = 8) -> list[Any]:
    """Return what the group has committed, with an error where that is about to change."""
    topics: Any = [{"name": "orders", "partition_indexes": [*indexes]}] if indexes else None
    asked: Any = {"group_id": "group", "topics": topics}
    fields = {"groups": [asked]} if version >= 8 else asked
    response = await call(gateway, ApiKey.OFFSET_FETCH, version, require_stable=True, **fields)
    group = response.groups[0] if version >= 8 else response
    return [one for topic in group.topics for one in topic.partitions]


async def end(gateway: InProcessGateway, *, is_commit: bool = True) -> None:
    """Tell the group that the transaction has ended."""
    groups = gateway.groups
    assert NONE is await groups.end_transaction("group", PRODUCER, EPOCH, is_commit=is_commit)


@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_are_the_groups_when_the_transaction_is_committed(
    gateway: InProcessGateway, transactions: ScriptedTransactions, version: int
) -> None:
    """In every version; from v5 on the group is added, below it is asked whether it was."""
    await create_topic(gateway, partitions=2)
    assert [0, 0] == await commit_in_transaction(gateway, {0: 5, 1: 6}, version)
    kind = "add" if version >= 5 else "verify"
    assert [(kind, "copier", PRODUCER, EPOCH, "group")] == transactions.asked
    assert [-1, -1] == [one.committed_offset for one in await fetch(gateway, [0, 1])]
    await end(gateway)
    found = await fetch(gateway, [0, 1])
    assert [(5, "note"), (6, "note")] == [(one.committed_offset, one.metadata) for one in found]


@pytest.mark.parametrize("version", [7, 8, 9])
async def test_who_wants_stable_offsets_is_told_of_transactions(
    gateway: InProcessGateway, transactions: ScriptedTransactions, version: int
) -> None:
    """KIP-447: UNSTABLE_OFFSET_COMMIT for the places that are open, and no other."""
    await create_topic(gateway, partitions=3)
    assert [0, 0, 0] == await commit(gateway, {0: 1, 1: 2, 2: 3})
    assert [0] == await commit_in_transaction(gateway, {1: 7})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    for indexes in ((0, 1, 2), ()):
        found = await fetch_stable(gateway, *indexes, version=version)
        assert [0, unstable, 0] == [one.error_code for one in found]
        assert [1, -1, 3] == [one.committed_offset for one in found]
    # Who does not mind is told what was before.
    assert [1, 2, 3] == [one.committed_offset for one in await fetch(gateway, [0, 1, 2])]
    await end(gateway)
    found = await fetch_stable(gateway, 0, 1, 2, version=version)
    assert [(1, 0), (7, 0), (3, 0)] == [(one.committed_offset, one.error_code) for one in found]


async def test_unstable_places_of_topic_ids(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """The newest version names topics by their ids."""
    topic = await create_topic(gateway, partitions=2)
    assert [0] == await commit_in_transaction(gateway, {1: 7})
    asked = {
        "group_id": "group",
        "topics": [{"topic_id": topic.topic_id, "partition_indexes": [0, 1]}],
    }
    response = await call(gateway, ApiKey.OFFSET_FETCH, 10, require_stable=True, groups=[asked])
    (found,) = response.groups[0].topics
    codes = [one.error_code for one in found.partitions]
    assert [NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT] == codes


async def test_an_aborted_transaction_leaves_nothing(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """The group stands where it stood, and the place is stable."""
    await create_topic(gateway)
    assert [0] == await commit(gateway, {0: 1})
    assert [0] == await commit_in_transaction(gateway, {0: 7})
    await end(gateway, is_commit=False)
    (found,) = await fetch_stable(gateway, 0)
    assert (1, 0) == (found.committed_offset, found.error_code)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, dict.fromkeys(VERSIONS, ErrorCode.INVALID_PRODUCER_EPOCH)),
        (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            dict.fromkeys(VERSIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            dict.fromkeys(VERSIONS, ErrorCode.TRANSACTION_ABORTABLE)
            | dict.fromkeys(range(4), ErrorCode.INVALID_TXN_STATE),
        ),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            dict.fromkeys(VERSIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            | dict.fromkeys(range(2), ErrorCode.COORDINATOR_NOT_AVAILABLE)
            | dict.fromkeys((5, 6), ErrorCode.CONCURRENT_TRANSACTIONS),
        ),
        (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            dict.fromkeys(VERSIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            | dict.fromkeys(range(2), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ),
    ],
)
async def test_a_transaction_that_does_not_go_on_takes_nothing(
    gateway: InProcessGateway,
    transactions: ScriptedTransactions,
    version: int,
    code: ErrorCode,
    told: dict[int, ErrorCode],
) -> None:
    """What the producer hears is what its version knows."""
    await create_topic(gateway, partitions=2)
    transactions.code = code
    codes = await commit_in_transaction(gateway, {0: 1, 2: 1}, version)
    assert [told[version], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == codes
    assert [] == gateway.groups.ids()


async def test_a_transaction_is_seen_to_go_on_first(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """The offsets are submitted in the turn of that answer: an end comes after them."""
    await create_topic(gateway)
    transactions.is_slow = True
    asked = gateway.start(txn_commit({0: 5}), 5)
    assert not asked.done
    transactions.waiting[0].set_result(NONE)
    await end(gateway)
    response: Any = await asked.response()
    assert NONE == response.topics[0].partitions[0].error_code
    (found,) = await fetch_stable(gateway, 0)
    assert (5, 0) == (found.committed_offset, found.error_code)


async def test_a_topic_that_goes_while_its_transaction_is_asked(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """Nothing of the request is stored, and the producer asks again for what is left."""
    await create_topic(gateway)
    transactions.is_slow = True
    asked = gateway.start(txn_commit({0: 5}), 5)
    await gateway.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
    transactions.waiting[0].set_result(NONE)
    response: Any = await asked.response()
    code = response.topics[0].partitions[0].error_code
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == code
    assert [] == gateway.groups.ids()


async def test_a_store_that_fails_for_the_transaction_is_told(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """Every partition hears it, and the producer asks again."""
    await create_topic(gateway)
    transactions.is_slow = True
    asked = gateway.start(txn_commit({0: 5}), 5)
    transactions.waiting[0].error = StorageError("the disk is gone")
    transactions.waiting[0].finish()
    response: Any = await asked.response()
    assert StorageError.code == response.topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", [2, 3, 5])
async def test_members_are_checked_where_they_are_named(
    gateway: InProcessGateway, transactions: ScriptedTransactions, version: int
) -> None:
    """KIP-447, from v3 on; before, nobody says for whom it is."""
    await create_topic(gateway)
    joined = await call(
        gateway,
        ApiKey.JOIN_GROUP,
        0,
        group_id="group",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    if version < 3:
        assert [0] == await commit_in_transaction(gateway, {0: 1}, version)
        return
    assert [0] == await commit_in_transaction(gateway, {0: 1}, version, **member)
    for wrong, code in (
        ({"generation_id_or_member_epoch": 9}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "no group"}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ):
        asked: dict[str, Any] = member | wrong
        assert [code] == await commit_in_transaction(gateway, {0: 2}, version, **asked)


async def test_each_partition_has_its_own_error(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """What is right of a request is stored; where nothing is, no transaction is asked."""
    await create_topic(gateway)
    large = "x" * 5000
    too_large, unknown = (
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert [unknown] == await commit_in_transaction(gateway, {0: 1}, name="nothing")
    by_id = await commit_in_transaction(gateway, {0: 1}, 6, name="nothing")
    assert [ErrorCode.UNKNOWN_TOPIC_ID] == by_id
    assert [] == transactions.asked
    assert [too_large] == await commit_in_transaction(gateway, {0: 1}, metadata=large)
    transactions.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    mapping = await commit_in_transaction(gateway, {0: 1}, metadata=large)
    assert [ErrorCode.INVALID_PRODUCER_ID_MAPPING] == mapping
    transactions.code = NONE
    assert [0, unknown] == await commit_in_transaction(gateway, {0: 1, 7: 1})
    assert [ErrorCode.UNSTABLE_OFFSET_COMMIT] == [
        one.error_code for one in await fetch_stable(gateway, 0)
    ]


async def test_many_offsets_are_taken_in_turns(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """Others come between; all of them are committed together."""
    count = 3 * TxnOffsetCommit.per_turn
    await create_topic(gateway, partitions=count)
    request = txn_commit(dict.fromkeys(range(count), 5))
    fields = {name: getattr(request, name) for name in request.field_table}
    response = await call_in_turns(gateway, ApiKey.TXN_OFFSET_COMMIT, 5, least=2, **fields)
    assert {0} == {one.error_code for one in response.topics[0].partitions}
    await end(gateway)
    assert [5] * count == [one.committed_offset for one in await fetch(gateway, [*range(count)])]


async def test_a_topic_that_goes_meanwhile_takes_its_offsets_along(
    gateway: InProcessGateway, transactions: ScriptedTransactions
) -> None:
    """Nothing is pending for a topic that is gone."""
    count = 3 * TxnOffsetCommit.per_turn
    await create_topic(gateway, partitions=count)
    asked = gateway.start(txn_commit(dict.fromkeys(range(count), 5)), 5)
    assert not asked.done
    await gateway.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
    response: Any = await asked.response()
    codes = {one.error_code for one in response.topics[0].partitions}
    assert {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == codes
    assert [] == gateway.groups.ids()


async def test_what_is_pending_survives_a_restart(
    backend: MemoryBackend, transactions: ScriptedTransactions
) -> None:
    """A start finds the groups that have nothing else."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway)
        assert [0] == await commit_in_transaction(gateway, {0: 5})
    async with InProcessGateway(backend=backend) as gateway:
        codes = [one.error_code for one in await fetch_stable(gateway, 0)]
        assert [ErrorCode.UNSTABLE_OFFSET_COMMIT] == codes
        await end(gateway)
        assert [5] == [one.committed_offset for one in await fetch(gateway, [0])]
