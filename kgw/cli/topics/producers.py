"""`kgw producers`: the producers that a topic's partitions know, and their open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgw.cli.shared.client import Bootstrap, client_options, numbers_option, with_client
from kgw.cli.shared.formats import format_time
from kgw.cli.shared.output import print_result
from kgw.client import TransactionClient

if TYPE_CHECKING:
    from kgw.client import AsyncClient


@click.command(short_help="Show who writes to a topic with a producer id.")
@click.argument("topic")
@numbers_option(help="Only this one; may be given several times.  [default: all]")
@click.option("--open", "is_open", is_flag=True, help="Only those with an open transaction.")
@client_options
def producers(
    *, topic: str, partitions: tuple[int, ...], is_open: bool, bootstrap: Bootstrap, is_json: bool
) -> None:
    """Show the idempotent producers that the partitions of TOPIC know, and their transactions.

    A transaction is open from an offset on: readers of committed records get no further.
    """

    async def action(client: AsyncClient) -> list[dict[str, Any]]:
        known = [one.partition for one in (await client.topic(topic)).partitions]
        found = await TransactionClient(client).producers(topic, partitions or known)
        return [
            {"topic": topic, "partition": partition}
            | {name: value if value >= 0 else None for name, value in one._asdict().items()}
            for partition, ones in found.items()
            for one in ones
            if not is_open or one.transaction_start_offset >= 0
        ]

    print_result(
        with_client(bootstrap, action),
        "partition producer=producer_id epoch=producer_epoch sequence=last_sequence "
        "written=last_timestamp_ms coordinator_epoch open=transaction_start_offset",
        is_json=is_json,
        nothing="There are no such producers.",
        last_timestamp_ms=lambda ms: None if ms is None else format_time(ms),
    )
