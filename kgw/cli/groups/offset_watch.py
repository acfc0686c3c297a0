"""The options of `kgw offsets lag` that need the admin listener: clients, anomalies, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.shared.admin_http import get
from kgw.cli.shared.formats import format_duration, format_time
from kgw.cli.shared.output import note, print_json, print_result, print_rows

if TYPE_CHECKING:
    from kgw.cli.shared.admin_http import Address


def _one_at_most(names: tuple[str, ...], option: str) -> str | None:
    if len(names) > 1:
        raise click.UsageError(f"{option} may be given once here")
    return names[0] if names else None


def _note_left_out(count: int) -> None:
    if count:
        note(f"{count} more are not shown.")


def print_clients(
    admin: Address, groups: tuple[str, ...], topics: tuple[str, ...], *, is_json: bool
) -> None:
    """Show the latest fetches of clients. Raises UsageError, CommandError."""
    if groups:
        raise click.UsageError("--clients takes no --group: it is for those that commit nothing")
    topic = _one_at_most(topics, "--topic")
    answer = get(admin, "/api/v1/lag/clients", topic=topic, limit=1_000)
    rows = answer["clients"]
    _note_left_out(answer["count"] - len(rows))
    print_result(
        rows,
        "client topic partition fetches_at=fetch_offset lag seen_before=seen_ms_ago groups",
        is_json=is_json,
        nothing="No client has fetched lately.",
        seen_ms_ago=format_duration,
        groups=", ".join,
    )


def print_anomalies(
    admin: Address, groups: tuple[str, ...], topics: tuple[str, ...], *, is_json: bool
) -> None:
    """Show lasting anomalies, the latest other anomalies, and counts.

    Raises UsageError, CommandError.
    """
    group, topic = _one_at_most(groups, "--group"), _one_at_most(topics, "--topic")
    answer = get(admin, "/api/v1/lag/anomalies", group=group, topic=topic, limit=1_000)
    _note_left_out(answer["lasting_count"] - len(answer["lasting"]))
    if is_json:
        print_json(answer)
        return
    lasting = [{"detail": "lasts", "at_ms": one["since_ms"], **one} for one in answer["lasting"]]
    rows = [*lasting, *answer["events"]]
    if rows:
        columns = "kind group topic partition since=at_ms detail"
        print_rows(
            rows,
            columns,
            at_ms=format_time,
            group=lambda name: name or "-",
            partition=lambda number: "-" if number is None else number,
        )
    elif group or topic:
        note("None are known.")
    if group or topic or answer["counted"] is None:
        return  # kgw counts anomalies for all groups together, and tells only some users
    counted = [f"{number} {kind}" for kind, number in answer["counted"].items() if number]
    click.echo(f"since the start: {', '.join(counted) or 'none'}")


def print_history(
    admin: Address, groups: tuple[str, ...], topics: tuple[str, ...], *, is_json: bool
) -> None:
    """Show the lag of a group, or of one of its topics, over time.

    Raises UsageError, CommandError.
    """
    if len(groups) != 1:
        raise click.UsageError("--history needs one --group")
    topic = _one_at_most(topics, "--topic")
    answer = get(admin, "/api/v1/lag/history", group=groups[0], topic=topic, limit=1_000)
    if is_json:
        print_json(answer)
        return
    print_result(
        answer["samples"],
        "time=at_ms lag time_lag=time_lag_ms",
        is_json=False,
        nothing="There are no samples yet.",
        at_ms=format_time,
        time_lag_ms=format_duration,
    )
