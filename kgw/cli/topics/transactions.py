"""`kgw transactions`: list, describe, abort, find-hanging."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.groups.group_offsets import by_topic, chosen_places
from kgw.cli.shared.client import (
    Bootstrap,
    client_options,
    confirm,
    topics_option,
    with_client,
    yes_option,
)
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.formats import format_duration, format_time
from kgw.cli.shared.output import note, print_json, print_result, print_rows
from kgw.cli.shared.settings import duration_option
from kgw.client import ServerRefusedError, TransactionClient
from kgw.client.transactions import ALL
from kgw.errors import ErrorCode
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.client import AsyncClient, PartitionProducer, TransactionDetails

_WHAT_HELPS = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has a newer epoch there",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer coordinator has ended a transaction there",
}


_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")


class PartitionTransaction(NamedTuple):
    """A transaction that is open in one partition."""

    topic: str
    partition: int
    producer: PartitionProducer
    transactional_id: str | None
    """None if no coordinator knows the producer."""

    def as_json(self, now_ms: int) -> dict[str, Any]:
        last_ms = self.producer.last_timestamp_ms
        return {
            "topic": self.topic,
            "partition": self.partition,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
            "coordinator_epoch": self.producer.coordinator_epoch,
            "start_offset": self.producer.transaction_start_offset,
            "last_timestamp_ms": last_ms,
            "age_ms": max(0, now_ms - last_ms),
            "transactional_id": self.transactional_id,
        }


@click.group(short_help="Look at transactions, and end those that hang.")
def transactions() -> None:
    """Look at transactions, find those that nobody will end, and abort them."""


@transactions.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only in this state, as Ongoing or CompleteAbort; may be given several times.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="ID",
    help="Only of this producer; may be given several times.",
)
@duration_option(
    "--longer-than",
    "longer_than_ms",
    help="Only those that have been under way for longer, as PT15M; with --state, those in that "
    "state that began longer ago.",
)
@click.option(
    "--pattern", metavar="REGEX", help="Only those whose whole id a regular expression matches."
)
@client_options
def list_transactions(
    *,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    pattern: str | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """List transactional ids with the state of their transactions."""
    found = with_client(
        bootstrap,
        lambda client: TransactionClient(client).transactions(
            # Leave out finished transactions, which a server's filter by age also returns.
            states=states or (_UNDER_WAY if longer_than_ms is not None else ()),
            producer_ids=producer_ids,
            longer_than_ms=ALL if longer_than_ms is None else longer_than_ms,
            pattern=pattern,
        ),
    )
    print_result(
        [one._asdict() for one in found],
        "id=transactional_id state producer=producer_id coordinator",
        is_json=is_json,
        nothing="There are no such transactions.",
    )


@transactions.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@client_options
def describe(ids: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """Show transactional ids: state, producer, age, partitions."""

    async def action(client: AsyncClient) -> list[TransactionDetails]:
        return [await TransactionClient(client).describe(one) for one in ids]

    now_ms = _now_ms()
    described = [_as_json(one, now_ms) for one in with_client(bootstrap, action)]
    if is_json:
        print_json(described)
        return
    for number, one in enumerate(described):
        if number:
            click.echo()
        began = (
            f"under way for {format_duration(one['age_ms'])}, since {format_time(one['start_ms'])}"
            if one["start_ms"] is not None
            else "none under way"
        )
        click.echo(f"{printable(one['transactional_id'])}  {one['state']}  {began}")
        click.echo(
            f"producer {one['producer_id']}, epoch {one['producer_epoch']}; {_says_time(one)}; "
            f"coordinated by node {one['coordinator']}"
        )
        if one["partitions"]:
            print_rows(one["partitions"], "topic partition")


@transactions.command()
@click.argument("topic")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    required=True,
    metavar="N",
    help="The partition in which it is open.",
)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    required=True,
    metavar="OFFSET",
    help="Where it begins there, as find-hanging and kgw producers show it.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Also where its coordinator is about to end it, or cannot be asked: then it may be "
    "committed in its other partitions.",
)
@yes_option
@client_options
def abort(
    *,
    topic: str,
    partition: int,
    start_offset: int,
    force: bool,
    yes: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Abort a hanging transaction in one partition of TOPIC.

    For transactions that no coordinator will end, as find-hanging lists them: readers of committed
    records wait for their end. The partition gets a marker, as from a coordinator.
    """
    place = f"{topic}-{partition}"
    look = f"`kgw producers {printable(topic)} -p {partition}`"

    async def find(client: AsyncClient) -> PartitionProducer:
        asked = TransactionClient(client)
        known = (await asked.producers(topic, [partition]))[partition]
        begins = {one.transaction_start_offset: one for one in known if _is_open(one)}
        if start_offset not in begins:
            others = ", ".join(map(str, sorted(begins)))
            raise CommandError(
                f"no open transaction of {place} begins at offset {start_offset}"
                + (f"; those that are open begin at {others}" if begins else "; none is open there")
            )
        producer = begins[start_offset]
        owner = (
            None
            if force
            else (await _owners(asked, [producer.producer_id])).get(producer.producer_id)
        )
        if owner is not None and (topic, partition) in owner.partitions:
            raise CommandError(
                f"the transaction belongs to {owner.transactional_id}, which is {owner.state}: its "
                f"coordinator ends it when its producer does, or "
                f"{format_duration(owner.timeout_ms)} after its beginning; --force aborts it in "
                f"{place} alone"
            )
        return producer

    producer = with_client(bootstrap, find)
    confirm(
        f"the transaction of producer {producer.producer_id}, open in {place} from offset "
        f"{start_offset} on",
        yes=yes,
        verb="Abort",
    )

    async def end(client: AsyncClient) -> None:
        try:
            await TransactionClient(client).abort(topic, partition, producer)
        except ServerRefusedError as error:
            if error.code not in _WHAT_HELPS:
                raise
            raise CommandError(
                f"{error}: {_WHAT_HELPS[error.code]}; {look} shows what is open now",
                kafka_error=error.code.name,
            ) from None

    with_client(bootstrap, end)
    if is_json:
        found = PartitionTransaction(topic, partition, producer, None).as_json(_now_ms())
        told = ("topic", "partition", "producer_id", "producer_epoch", "start_offset")
        print_json({**{name: found[name] for name in told}, "aborted": True})
    else:
        click.echo(f"Aborted the transaction of producer {producer.producer_id} in {place}.")


@transactions.command("find-hanging")
@topics_option()
@duration_option(
    "--older-than",
    "older_than_ms",
    default="PT15M",
    help="Only those to which nothing was added for longer: at least the longest time-out that a "
    "transaction may have.",
)
@client_options
def find_hanging(
    topics: tuple[str, ...], older_than_ms: int, bootstrap: Bootstrap, is_json: bool
) -> ExitCode:
    """Find open transactions that no coordinator will end.

    Looks at every topic unless some are given. Exits with 1 when there are any; `kgw transactions
    abort` ends them.
    """
    now_ms = _now_ms()

    async def action(client: AsyncClient) -> list[PartitionTransaction]:
        asked = TransactionClient(client)
        candidates = [
            (topic, partition, producer)
            for topic, partitions in (await _searched(client, topics)).items()
            for partition, producers in (await asked.producers(topic, partitions)).items()
            for producer in producers
            if _is_open(producer) and now_ms - producer.last_timestamp_ms > older_than_ms
        ]
        owners = await _owners(asked, sorted({one.producer_id for _, _, one in candidates}))
        found = []
        for topic, partition, producer in candidates:
            owner = owners.get(producer.producer_id)
            # The coordinator will write markers to the partitions of its transaction.
            if owner is None or (topic, partition) not in owner.partitions:
                transactional_id = None if owner is None else owner.transactional_id
                found.append(PartitionTransaction(topic, partition, producer, transactional_id))
        return found

    found = [one.as_json(now_ms) for one in with_client(bootstrap, action)]
    print_result(
        found,
        "topic partition start=start_offset producer=producer_id epoch=producer_epoch last=age_ms "
        "id=transactional_id",
        is_json=is_json,
        nothing="No transaction hangs.",
        age_ms=lambda age_ms: f"{format_duration(age_ms)} ago",
    )
    if found:
        first = found[0]
        note(
            f"End one with: kgw transactions abort {printable(first['topic'])} "
            f"-p {first['partition']} --start-offset {first['start_offset']}"
        )
    return ExitCode.FAILED if found else ExitCode.OK


async def _searched(client: AsyncClient, topics: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the partitions to search by topic: the given ones, or all with a leader."""
    if not topics:
        return {
            topic.name: [one.partition for one in topic.partitions if one.leader_id >= 0]
            for topic in await client.topics()
        }
    return by_topic(await chosen_places(client, "", topics, all_topics=False))


async def _owners(
    asked: TransactionClient, producer_ids: Sequence[int]
) -> dict[int, TransactionDetails]:
    """Return the details of the producers' transactions from their coordinators, by producer id."""
    owners: dict[int, TransactionDetails] = {}
    listed = await asked.transactions(producer_ids=producer_ids) if producer_ids else ()
    for one in listed:
        try:
            details = await asked.describe(one.transactional_id)
        except ServerRefusedError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # the transaction was gone after it had been listed
        owners[details.producer_id] = details
    return owners


def _is_open(producer: PartitionProducer) -> bool:
    return producer.transaction_start_offset >= 0


def _as_json(one: TransactionDetails, now_ms: int) -> dict[str, Any]:
    start_ms = one.start_ms if one.start_ms >= 0 else None
    return {
        **one._asdict(),
        "start_ms": start_ms,
        "age_ms": None if start_ms is None else max(0, now_ms - start_ms),
        "partitions": [
            {"topic": topic, "partition": partition} for topic, partition in one.partitions
        ],
    }


def _says_time(one: dict[str, Any]) -> str:
    """Return a text about the timeout of a transactional id in its present state."""
    timeout_ms = one["timeout_ms"]
    if one["state"] == "Ongoing":
        left_ms = timeout_ms - one["age_ms"]
        if left_ms <= 0:
            return f"is aborted now, as its time of {format_duration(timeout_ms)} is over"
        return f"is aborted by itself in {format_duration(left_ms)}"
    if one["start_ms"] is not None:
        return "its end is decided, and is being written"
    return f"a transaction may take {format_duration(timeout_ms)}"


def _now_ms() -> int:
    return int(time.time() * 1000)
