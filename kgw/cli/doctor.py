"""`kgw doctor`: connect as a client would, and say what is wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.client import DEFAULT_PORT, parse_bootstrap
from kgw.cli.errors import ExitCode
from kgw.cli.output import print_json, print_table
from kgw.cli.settings import json_option
from kgw.client import AsyncClient, ClientError, Connection
from kgw.config.listeners import format_address

if TYPE_CHECKING:
    from kgw.client import ApiSupport, Broker, ClusterDescription, TopicDescription

_CONNECT_TIMEOUT_S = 5.0
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Without these no client can do anything.
_ESSENTIAL = ("Produce", "Fetch", "ListOffsets", "Metadata")


class Reach(NamedTuple):
    """An advertised address, and what happened when it was tried (None: it answered)."""

    broker: Broker
    failure: str | None


class Examination(NamedTuple):
    """Everything found out about a server."""

    address: str
    cluster: ClusterDescription
    apis: list[ApiSupport]
    reaches: list[Reach]
    topics: list[TopicDescription]


def _parse_address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    """Return the one address to examine: the first, where the environment names several."""
    return parse_bootstrap(ctx, param, value)[0]


@click.command(short_help="Connect as a client would, and say what is wrong.")
@click.argument(
    "address",
    metavar="[HOST:PORT]",
    envvar="KGW_BOOTSTRAP",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    callback=_parse_address,
)
@json_option()
@click.pass_context
def doctor(ctx: click.Context, address: tuple[str, int], is_json: bool) -> None:
    """Connect as a client would: listeners, versions, what each API settles on, and what is wrong.

    HOST:PORT is that of KGW_BOOTSTRAP, or 127.0.0.1:9092, unless given. Exits with 1 when something
    would keep clients from working, with 3 when nothing that speaks Kafka answers there.
    """
    host, port = address
    examination = asyncio.run(_examine(host, port))
    problems = find_problems(examination, host)
    if is_json:
        print_json(_as_json(examination, problems))
    else:
        _print_examination(examination, problems)
    ctx.exit(ExitCode.FAILED if problems else ExitCode.OK)


async def _examine(host: str, port: int) -> Examination:
    client = AsyncClient(
        [(host, port)], client_id="kgw-doctor", connect_timeout_s=_CONNECT_TIMEOUT_S, retry_s=0
    )
    async with client:
        connection = await client.any_connection()
        apis = connection.api_support()
        cluster = await client.cluster()
        topics = await client.topics()
    reaches = await asyncio.gather(*(_reach(broker) for broker in cluster.brokers))
    return Examination(format_address(host, port), cluster, apis, list(reaches), topics)


async def _reach(broker: Broker) -> Reach:
    """Try an advertised address, as every client does after its first Metadata."""
    try:
        connection = await Connection.open(
            broker.host, broker.port, client_id="kgw-doctor", timeout_s=_CONNECT_TIMEOUT_S
        )
    except ClientError as error:
        return Reach(broker, str(error))
    await connection.aclose()
    return Reach(broker, None)


def find_problems(examination: Examination, host: str) -> list[str]:
    """Return what keeps clients from working, when the server was reached as `host`."""
    problems = []
    if not examination.cluster.brokers:
        problems.append("the server advertises no broker: clients have nowhere to go")
    for broker, failure in examination.reaches:
        place = format_address(broker.host, broker.port)
        if broker.host in _EVERY_ADDRESS:
            problems.append(
                f"node {broker.node_id} advertises {place}, which is no address to connect to: "
                "start the server with --advertise HOST:PORT"
            )
        elif failure is not None:
            problems.append(
                f"node {broker.node_id} advertises {place}, which cannot be used from here: "
                f"{failure}; start the server with --advertise and an address that clients reach"
            )
        elif broker.host in _LOOPBACK and host not in _LOOPBACK:
            problems.append(
                f"node {broker.node_id} advertises {place}: clients on other machines would "
                "connect to themselves; start the server with --advertise HOST:PORT"
            )
    known = {api.name: api for api in examination.apis}
    problems += [f"the server does not serve {name}" for name in _ESSENTIAL if name not in known]
    problems += [
        f"no version of {api.name} is known on both sides"
        for api in examination.apis
        if api.client_min is not None and api.spoken is None
    ]
    problems += [
        f"topic {topic.name} partition {one.partition} has no leader"
        for topic in examination.topics
        for one in topic.partitions
        if one.leader_id < 0
    ]
    return problems


def _as_json(examination: Examination, problems: list[str]) -> dict[str, Any]:
    return {
        "address": examination.address,
        "cluster_id": examination.cluster.cluster_id,
        "controller_id": examination.cluster.controller_id,
        "brokers": [
            {
                "node_id": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "reachable": failure is None,
                "failure": failure,
            }
            for broker, failure in examination.reaches
        ],
        "topics": len(examination.topics),
        "partitions": sum(len(topic.partitions) for topic in examination.topics),
        "apis": [
            {
                "api_key": api.api_key,
                "name": api.name,
                "server_min": api.server_min,
                "server_max": api.server_max,
                "client_min": api.client_min,
                "client_max": api.client_max,
                "spoken": api.spoken,
            }
            for api in examination.apis
        ],
        "client": _own_versions(),
        "problems": problems,
    }


def _print_examination(examination: Examination, problems: list[str]) -> None:
    cluster = examination.cluster
    click.echo(f"Connected to {examination.address} and spoke Kafka's protocol.")
    click.echo(f"Cluster id {cluster.cluster_id}, controller is node {cluster.controller_id}.")
    topics = len(examination.topics)
    partitions = sum(len(topic.partitions) for topic in examination.topics)
    click.echo(
        f"{topics} topic{'s' * (topics != 1)} with {partitions} partition{'s' * (partitions != 1)}."
    )
    click.echo(", ".join(f"{name} {version}" for name, version in _own_versions().items()) + ".")
    click.echo("\nAdvertised listeners:")
    for broker, failure in examination.reaches:
        place = format_address(broker.host, broker.port)
        click.echo(f"  node {broker.node_id} at {place}: {failure or 'answers'}")
    click.echo("\nAPIs:")
    print_table(
        ("key", "name", "server", "client", "spoken"),
        [
            (
                api.api_key,
                api.name,
                f"{api.server_min}-{api.server_max}",
                "-" if api.client_min is None else f"{api.client_min}-{api.client_max}",
                "-" if api.spoken is None else api.spoken,
            )
            for api in examination.apis
        ],
    )
    click.echo()
    for problem in problems:
        click.echo(f"{click.style('problem:', fg='red')} {problem}")
    if not problems:
        click.echo("No problems found.")


def _own_versions() -> dict[str, str]:
    """Return the versions of what this command runs on; on the server's machine, the server's."""
    import platform
    import sqlite3

    from kgw import __version__

    return {
        "kgw": __version__,
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
    }
