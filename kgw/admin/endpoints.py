"""The table of all endpoints, with their handlers and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kgw.admin import groups, health, lag, offsets, process, seeks
from kgw.admin.parameters import AFTER, GROUP, LIMIT, PARTITION, TOPIC, Parameter
from kgw.admin.rights import CLUSTER, NAMED_GROUP, NAMED_TOPIC, Right

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.admin.answers import Answer
    from kgw.admin.parameters import QueryParameters
    from kgw.admin.rights import Viewer
    from kgw.gateway import Gateway

    Serve: TypeAlias = Callable[[Gateway, QueryParameters, Viewer], Awaitable[Answer]]

_REQUIRED_GROUP = GROUP._replace(help="The group.", is_required=True)


@dataclass(frozen=True)
class Endpoint:
    """One path of the admin listener. Raises TypeError without rights that it asks for."""

    path: str
    help: str
    rights: tuple[Right, ...]
    """Asked for before each answer, if there are access rules."""
    serve: Serve
    parameters: tuple[Parameter, ...] = ()
    is_early: bool = False
    """Whether the path is served while the server is on standby."""
    for_everybody: tuple[str, ...] = ()
    """The fields that everybody gets, besides the status, so that probes need no login. If it is
    empty, requests are refused that lack a login, or the rights."""

    @property
    def name(self) -> str:
        """The name of the endpoint in the audit log."""
        return f"GET {self.path}"

    def __post_init__(self) -> None:
        names = {one.name for one in self.parameters}
        if not self.rights or any(one.parameter not in {"", *names} for one in self.rights):
            raise TypeError(f"{self.path} does not say which rights it asks for")


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "/health/live",
        "Whether the process answers: 200 as long as it does.",
        (CLUSTER,),
        health.live,
        is_early=True,
        for_everybody=("live",),
    ),
    Endpoint(
        "/health/ready",
        "Whether clients are served: 200, or 503 while the storage takes no writes or has lately "
        "refused a batch for want of room, or the process stands by for another one, has been "
        "replaced by one, or is stopping; `leadership` is `standby`, `leading`, `unconfirmed` or "
        "`lost`; `reasons` and `problems` say what is wrong, also where it does no harm.",
        (CLUSTER,),
        health.ready,
        is_early=True,
        for_everybody=("ready",),
    ),
    Endpoint(
        "/metrics",
        "Every metric as Prometheus reads it.",
        (CLUSTER,),
        health.metrics,
        is_early=True,
    ),
    Endpoint(
        "/api/v1/server",
        "Version, node, process, for how long it has run, processor time, memory, and what "
        "`/health/ready` says; null for what is not known, as on a server that stands by.",
        (CLUSTER,),
        process.server,
        is_early=True,
    ),
    Endpoint(
        "/api/v1/metrics",
        "Every metric as JSON: numbers by the values of their labels; of a histogram how often in "
        "each bucket, what is longer than the last one's end at last.",
        (CLUSTER,),
        process.metrics,
        is_early=True,
    ),
    Endpoint(
        "/api/v1/loop",
        "How late the event loop was at the looks that are due four times a second: how often in "
        "each bucket, and at most since start.",
        (CLUSTER,),
        health.loop,
    ),
    Endpoint(
        "/api/v1/offsets",
        "Offsets of partitions: log start, high watermark, last stable offset, end, leader epoch, "
        "bytes; and how long ago the last checkpoint was.",
        (NAMED_TOPIC,),
        offsets.offsets,
        (TOPIC, PARTITION, LIMIT, AFTER),
    ),
    Endpoint(
        "/api/v1/offsets/seek",
        "Where a seek would lead in each partition of a topic, or why nowhere; with the offsets "
        "that there are, and the time of the record where it is sought by time.",
        (NAMED_TOPIC, NAMED_GROUP),
        seeks.seek,
        (seeks.SOUGHT_TOPIC, seeks.TO, seeks.RESUMED_GROUP, PARTITION, LIMIT, AFTER),
    ),
    Endpoint(
        "/api/v1/groups/members",
        "The members of a group with their states: `pending` was given an id and has yet to join, "
        "`joining` takes part in a generation that forms or has yet to fetch its assignment, "
        "`stable` has its assignment, `leaving` was asked to join again and has not.",
        (NAMED_GROUP,),
        groups.members,
        (_REQUIRED_GROUP, groups.MEMBER, LIMIT, AFTER),
    ),
    Endpoint(
        "/api/v1/lag",
        "Groups with their lag, in all and by topic, from a sample no older than five seconds; "
        "and counts of anomalies, of partitions at risk, of clients.",
        (NAMED_GROUP,),
        lag.groups,
        (GROUP, LIMIT, AFTER),
    ),
    Endpoint(
        "/api/v1/lag/partitions",
        "Where a group stands now, partition by partition.",
        (NAMED_GROUP, NAMED_TOPIC),
        lag.partitions,
        (_REQUIRED_GROUP, TOPIC, LIMIT, AFTER),
    ),
    Endpoint(
        "/api/v1/lag/at-risk",
        "What retention will remove within kgw.lag.risk.ms before its group has read it; a "
        "thousand places are known at most, and `is_complete` is false when there are more.",
        (NAMED_GROUP, NAMED_TOPIC),
        lag.at_risk,
        (GROUP, TOPIC, LIMIT),
    ),
    Endpoint(
        "/api/v1/lag/anomalies",
        "Anomalies that are there now, and the latest of those that were over at once. `partition` "
        "is null where a group stands or falls behind in a topic. `is_complete` is false when "
        "there are more than are remembered, or watched.",
        (NAMED_GROUP, NAMED_TOPIC),
        lag.anomalies,
        (GROUP, TOPIC, LIMIT),
    ),
    Endpoint(
        "/api/v1/lag/clients",
        "The last fetch offset by client id and partition, for consumers that commit nothing.",
        (NAMED_TOPIC,),
        lag.clients,
        (lag.CLIENT, TOPIC, LIMIT),
    ),
    Endpoint(
        "/api/v1/lag/history",
        "Samples of lag over time, the oldest first: of a group; of one of its topics; of one "
        "partition, where it was among the greatest lags.",
        (NAMED_GROUP, NAMED_TOPIC),
        lag.history,
        (
            _REQUIRED_GROUP,
            TOPIC,
            PARTITION,
            lag.SINCE,
            lag.UNTIL,
            LIMIT,
        ),
    ),
)


async def index(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    """Return the list of endpoints."""
    return {
        "endpoints": [
            {
                "path": one.path,
                "help": one.help,
                "parameters": {each.name: each.help for each in one.parameters},
            }
            for one in ALL_ENDPOINTS
        ]
    }


ALL_ENDPOINTS: tuple[Endpoint, ...] = (
    *ENDPOINTS,
    Endpoint("/api/v1", "This list.", (CLUSTER,), index, is_early=True),
)

PATHS_FOR_EVERYBODY = frozenset(one.path for one in ALL_ENDPOINTS if one.for_everybody)
"""The paths that can be requested without a login."""
