"""`kgw serve`: run the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.shared.settings import (
    assignments_option,
    config_file_option,
    json_option,
    load,
    print_config,
)
from kgw.config import ConfigError, parse_listener

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@click.command(short_help="Serve Kafka clients.")
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT",
    help="Where to listen; may be given several times, also as NAME://HOST:PORT. "
    "Port 0 takes any free port.  [default: 127.0.0.1:9092]",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Where records and metadata are kept; created if missing.  [default: kgw-data]",
)
@click.option(
    "--advertise",
    multiple=True,
    metavar="HOST:PORT",
    help="The address that clients are told to connect to, for each --listen in order. "
    "Needed behind address translation or in a container.",
)
@click.option("--node-id", type=int, metavar="N", help="Id of this node.  [default: 0]")
@click.option(
    "--backend",
    metavar="URL",
    help="Where records live, if not in a data directory: seaweedmq://FILER:PORT/NAMESPACE.",
)
@click.option(
    "--take-over",
    "takes_over",
    is_flag=True,
    help="Lead now, in place of another server of the same backend, instead of standing by "
    "until it has let go.",
)
@click.option(
    "--smq-agent",
    metavar="HOST:PORT",
    help="Where to serve the agent's API of SeaweedMQ too, over gRPC.",
)
@config_file_option
@assignments_option
@click.option(
    "--print-config", "is_print", is_flag=True, help="Print every setting with its origin and exit."
)
@json_option("Print the ready line, or the configuration, as JSON.")
def serve(
    *,
    listen: Sequence[str],
    data_dir: str | None,
    advertise: Sequence[str],
    node_id: int | None,
    backend: str | None,
    takes_over: bool,
    smq_agent: str | None,
    config_file: str | None,
    assignments: Sequence[str],
    is_print: bool,
    is_json: bool,
) -> None:
    """Serve Kafka clients until SIGTERM or Ctrl-C, then finish requests in flight and exit with 0.

    One line beginning with `ready` goes to standard output as soon as clients can connect; logs go
    to standard error, readable on a terminal and as JSON elsewhere.

    A setting comes from --config, then from the environment (num.partitions is KGW_NUM_PARTITIONS),
    then from the flags; the last one wins.
    """
    flags = _flags(listen, data_dir, advertise, node_id, backend, smq_agent)
    config = load(config_file, assignments, flags)
    if is_print:
        print_config(config, is_json=is_json)
        return
    from kgw.app import run

    run(config, is_json=is_json, takes_over=takes_over)


def _flags(
    listen: Sequence[str],
    data_dir: str | None,
    advertise: Sequence[str],
    node_id: int | None,
    backend: str | None,
    smq_agent: str | None,
) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that the flags of the command set."""
    listened = _name_listeners(listen, "--listen")
    if listen:
        yield "listeners", listened, "--listen"
    if data_dir is not None:
        yield "log.dirs", data_dir, "--data-dir"
    if advertise:
        names = [text.partition("://")[0] for text in listened.split(",") if text]
        advertised = _name_listeners(advertise, "--advertise", names)
        yield "advertised.listeners", advertised, "--advertise"
    if node_id is not None:
        yield "node.id", str(node_id), "--node-id"
    if backend is not None:
        yield "kgw.backend", backend, "--backend"
    if smq_agent is not None:
        yield "kgw.smq.agent.listener", smq_agent, "--smq-agent"


def _name_listeners(texts: Sequence[str], flag: str, names: Sequence[str] = ()) -> str:
    """Return the listeners as one list.

    A listener without a name gets the name at its place in `names`. If there is none, it is
    PLAINTEXT, and those after the first are numbered.
    """
    named = []
    nameless = 0
    for place, text in enumerate(texts):
        try:
            listener = parse_listener(text)
        except ValueError as error:
            raise ConfigError(f"{flag}: {error}") from None
        if "://" not in text:
            nameless += 1
            if place < len(names):
                listener = listener._replace(name=names[place])
            elif nameless > 1:
                listener = listener._replace(name=f"PLAINTEXT_{nameless}")
        named.append(str(listener))
    return ",".join(named)
