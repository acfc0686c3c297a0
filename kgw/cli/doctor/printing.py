"""Prints the facts about a server, and its problems, for `kgw doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kgw.cli.doctor.examination import HARMLESS
from kgw.cli.shared.output import print_rows
from kgw.config.listeners import format_address
from kgw.types import printable

if TYPE_CHECKING:
    from kgw.cli.doctor.examination import Examination, Validation

VALIDATION: Final = "kgw.validation"
_READ: Final = {
    "headers": "only its header is read",
    "records": "its header and every record are read",
}
_TOPICS_NAMED: Final = 10


def as_json(examination: Examination, problems: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the document that --json prints."""
    return {
        "address": examination.address,
        "cluster_id": examination.cluster.cluster_id,
        "controller_id": examination.cluster.controller_id,
        "brokers": [
            one.broker._asdict() | {"reachable": one.failure is None, "failure": one.failure}
            for one in examination.reaches
        ],
        "topics": len(examination.topics),
        "partitions": sum(len(topic.partitions) for topic in examination.topics),
        "apis": [api._asdict() for api in examination.apis],
        "validation": examination.validation and examination.validation._asdict(),
        "read": [{"topic": one.topic, "records": one.records} for one in examination.read],
        "client": _own_versions(),
        "told": [{"reason": reason, "text": text} for reason, text in examination.told],
        "notes": notes,
        "problems": problems,
    }


def print_examination(examination: Examination, problems: list[str], notes: list[str]) -> None:
    """Print the facts about a server, and its problems."""
    cluster = examination.cluster
    click.echo(f"Connected to {examination.address} and spoke Kafka's protocol.")
    click.echo(f"Cluster id {cluster.cluster_id}, controller is node {cluster.controller_id}.")
    topics = len(examination.topics)
    partitions = sum(len(topic.partitions) for topic in examination.topics)
    click.echo(
        f"{topics} topic{'s' * (topics != 1)} with {partitions} partition{'s' * (partitions != 1)}."
    )
    click.echo(", ".join(f"{name} {version}" for name, version in _own_versions().items()) + ".")
    if examination.validation is not None:
        click.echo(_say_validation(examination.validation))
    for read in examination.read:
        click.echo(printable(f"Records read of topic {read.topic}: {read.records}."))
    click.echo("\nAdvertised listeners:")
    for one in examination.reaches:
        place = format_address(one.broker.host, one.broker.port)
        click.echo(f"  node {one.broker.node_id} at {place}: {one.failure or 'answers'}")
    click.echo("\nAPIs:")
    print_rows(
        [
            {
                **api._asdict(),
                "server": f"{api.server_min}-{api.server_max}",
                "client": None if api.client_min is None else f"{api.client_min}-{api.client_max}",
            }
            for api in examination.apis
        ],
        "key=api_key name server client spoken",
    )
    click.echo()
    for reason, text in examination.told:
        if reason in HARMLESS:
            click.echo(printable(f"note: the server says ({reason}): {text}"))
    for note in notes:
        click.echo(printable(f"note: {note}"))
    print_problems(problems)
    if not problems:
        click.echo("No problems found.")


def print_problems(problems: list[str]) -> None:
    """Print problems, one a line."""
    for problem in problems:
        click.echo(f"{click.style('problem:', fg='red')} {printable(problem)}")


def _say_validation(validation: Validation) -> str:
    """Return a line about the part of each batch that is checked before it is stored."""
    said = (
        f"Before a batch is stored, {_READ.get(validation.default, 'it is unknown what is read')}"
    )
    said += f" ({VALIDATION}={validation.default})"
    if validation.default == "headers":
        said += ". Readers stop at a batch whose records are not what it says; "
        said += "--read TOPIC finds them"
    if validation.topics:
        others = sorted(f"{topic}={value}" for topic, value in validation.topics.items())
        said += f". Other topics: {', '.join(others[:_TOPICS_NAMED])}"
        if len(others) > _TOPICS_NAMED:
            said += f" and {len(others) - _TOPICS_NAMED} more topics"
    return printable(said + ".")


def _own_versions() -> dict[str, str]:
    """Return this machine's versions of kgw, Python and SQLite, which are also a local server's."""
    import platform
    import sqlite3

    from kgw import __version__

    return {
        "kgw": __version__,
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
    }
