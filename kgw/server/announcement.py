"""The messages that a server is ready: for scripts, the log, people, and Kafka clients."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kgw.config.listeners import Listener, SecurityProtocol, format_address, http_address
from kgw.config.paths import absolute_path
from kgw.logs import EventLogger
from kgw.system import lacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.config import Config
    from kgw.gateway import Gateway

_log = EventLogger(__name__)

_BANNER = """
  Kafka clients connect to {address}; records are kept in {data}.
  Try it from another terminal:

    kgw topics create greetings -b {address}
    echo hello | kgw produce greetings -b {address}
    kgw consume greetings -b {address}

  Ctrl-C finishes what is in flight and stops.
"""


def announce(
    gateway: Gateway,
    bound: Sequence[Listener],
    admin: Sequence[Listener],
    agent: Listener | None,
    *,
    is_json: bool,
) -> None:
    """Write the ready line to standard output; for people, also commands to try next."""
    ready = _ready_json if is_json else _ready_line
    print(ready(gateway, bound, admin, agent), flush=True)  # noqa: T201 - scripts wait for it
    here = gateway.placement.here.listeners.values()
    _log.info(
        "ready",
        listeners=",".join(map(str, bound)),
        advertised=",".join(map(str, here)),
        data=gateway.config.backend_url,
        cluster_id=gateway.placement.cluster_id,
    )
    if lacking():
        _log.warning("kgw does without parts of Linux on this system", lacking=", ".join(lacking()))
    config = gateway.config
    plain = [one for one in here if config.protocol(one.name) is SecurityProtocol.PLAINTEXT]
    if sys.stderr.isatty() and plain:
        first = plain[0]
        address = format_address(first.host or "127.0.0.1", first.port)
        print(_BANNER.format(address=address, data=_data(gateway)), file=sys.stderr)  # noqa: T201


def advertised(config: Config, bound: Sequence[Listener]) -> dict[str, Listener]:
    """Return the addresses for Metadata by listener name: as configured, else as bound.

    An advertised port 0 means the bound port; an empty host means the address to which the client
    has connected.
    """
    configured = config.advertised
    listeners = {}
    for listener in bound:
        host, port = listener.host, 0
        if listener.name in configured:
            _, host, port = configured[listener.name]
        elif host in {"0.0.0.0", "::"}:  # noqa: S104 - told, not bound - recognised, not bound
            host = ""
        listeners[listener.name] = Listener(listener.name, host, port or listener.port)
    return listeners


def _data(gateway: Gateway) -> str:
    config = gateway.config
    return absolute_path(config.data_dir) if config.backend == "embedded" else config.backend


def _ready_line(
    gateway: Gateway,
    bound: Sequence[Listener],
    admin: Sequence[Listener],
    agent: Listener | None,
) -> str:
    addresses = ",".join(http_address(one, "") for one in admin)
    listeners = ",".join(format_address(one.host or "0.0.0.0", one.port) for one in bound)  # noqa: S104 - told, not bound
    agent_address = "" if agent is None else http_address(agent, "::")
    return (
        f"ready node_id={gateway.placement.here.node_id} listeners={listeners} "
        f"{f'admin={addresses} ' if admin else ''}"
        f"{f'smq_agent={agent_address} ' if agent else ''}"
        f"data_dir={_data(gateway)} pid={os.getpid()}"
    )


def _ready_json(
    gateway: Gateway,
    bound: Sequence[Listener],
    admin: Sequence[Listener],
    agent: Listener | None,
) -> str:
    from json import dumps

    return dumps(
        {
            "event": "ready",
            "node_id": gateway.placement.here.node_id,
            "cluster_id": gateway.placement.cluster_id,
            "listeners": [one._asdict() for one in bound],
            "advertised": [one._asdict() for one in gateway.placement.here.listeners.values()],
            "admin": [one._asdict() for one in admin],
            "smq_agent": None if agent is None else agent._asdict(),
            "data_dir": _data(gateway),
            "pid": os.getpid(),
        }
    )
