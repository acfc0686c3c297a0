"""What `kgw offsets lag` shows of the admin side instead of lag: clients, anomalies, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.admin_http import get
from kgw.cli.formats import format_duration, format_time
from kgw.cli.output import note, print_json, print_table

if TYPE_CHECKING:
    from kgw.cli.admin_http import Address


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
    """Show where clients were last seen to fetch. Raises UsageError, CommandError."""
    if groups:
        raise click.UsageError("--clients takes no --group: it is for those that commit nothing")
    topic = _one_at_most(topics, "--topic")
    answer = get(admin, "/api/v1/lag/clients", topic=topic, limit=1_000)
    rows = answer["clients"]
    _note_left_out(answer["count"] - len(rows))
    if is_json:
        print_json(rows)
    elif not rows:
        note("No client has fetched lately.")
    else:
        print_table(
            ("client", "topic", "partition", "fetches at", "lag", "seen before", "groups"),
            [
                (
                    one["client"],
                    one["topic"],
                    one["partition"],
                    one["fetch_offset"],
                    one["lag"],
                    format_duration(one["seen_ms_ago"]),
                    ", ".join(one["groups"]),
                )
                for one in rows
            ],
        )


def print_anomalies(
    admin: Address, groups: tuple[str, ...], topics: tuple[str, ...], *, is_json: bool
) -> None:
    """Show the anomalies that last, the latest others, and how many there were. Raises as above."""
    group, topic = _one_at_most(groups, "--group"), _one_at_most(topics, "--topic")
    answer = get(admin, "/api/v1/lag/anomalies", group=group, topic=topic, limit=1_000)
    _note_left_out(answer["lasting_count"] - len(answer["lasting"]))
    if is_json:
        print_json(answer)
        return
    rows = [
        (
            one["kind"],
            one["group"] or "-",
            one["topic"],
            one["partition"],
            format_time(one.get("since_ms", one.get("at_ms"))),
            one.get("detail", "lasts"),
        )
        for one in (*answer["lasting"], *answer["events"])
    ]
    if rows:
        print_table(("kind", "group", "topic", "partition", "since", "detail"), rows)
    elif group or topic:
        note("None are known.")
    if group or topic:
        return  # what was counted is everybody's
    counted = [f"{number} {kind}" for kind, number in answer["counted"].items() if number]
    click.echo(f"since the start: {', '.join(counted) or 'none'}")


def print_history(
    admin: Address, groups: tuple[str, ...], topics: tuple[str, ...], *, is_json: bool
) -> None:
    """Show the lag of a group, or of one of its topics, over time. Raises as above."""
    if len(groups) != 1:
        raise click.UsageError("--history needs one --group")
    topic = _one_at_most(topics, "--topic")
    answer = get(admin, "/api/v1/lag/history", group=groups[0], topic=topic, limit=1_000)
    if is_json:
        print_json(answer)
    elif not answer["samples"]:
        note("There are no samples yet.")
    else:
        print_table(
            ("time", "lag", "time lag"),
            [
                (format_time(one["at_ms"]), one["lag"], format_duration(one["time_lag_ms"]))
                for one in answer["samples"]
            ],
        )
