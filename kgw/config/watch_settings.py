"""Server settings of what watches over the server: lag, its history, the admin listener."""

from __future__ import annotations

from kgw.config.listeners import check_admin_listeners
from kgw.config.setting import Setting, SettingType, Value

LONG = SettingType.LONG


def _check_interval(value: Value) -> None:
    if isinstance(value, int) and 0 < value < 100:
        raise ValueError("0, or at least 100")


LAG_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "kgw.lag.interval.ms",
        60_000,
        "How often the lag of every group is looked at, for metrics, anomalies and the history; "
        "0 for never, otherwise 100 at least.",
        type_=LONG,
        check=_check_interval,
    ),
    Setting(
        "kgw.lag.risk.ms",
        3_600_000,
        "A group counts as at risk in a partition when retention will remove records within this "
        "time that the group has yet to read.",
        type_=LONG,
    ),
    Setting(
        "kgw.lag.metrics.groups",
        100,
        "Groups that have their own series in metrics; the others are counted together as `other`.",
        maximum=10_000,
    ),
    Setting(
        "kgw.lag.clients.max",
        10_000,
        "Positions that are remembered of clients that fetch, one for each client id and "
        "partition.",
        maximum=100_000,
    ),
    Setting(
        "kgw.lag.client.idle.ms",
        600_000,
        "How long the position of a client that no longer fetches is remembered.",
        type_=LONG,
        minimum=1,
    ),
    Setting(
        "kgw.lag.history.ms",
        86_400_000,
        "How long samples of lag are kept, for a console to draw; 0 keeps none.",
        type_=LONG,
    ),
    Setting(
        "kgw.lag.history.samples.max",
        100_000,
        "Samples of lag that are kept at most, of all groups together; about 100 bytes each.",
        minimum=1,
        maximum=10_000_000,
    ),
)

ADMIN_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "kgw.admin.listeners",
        (),
        "Where health, metrics and JSON are served over HTTP, as HOST:PORT; nowhere unless set. "
        "Only loopback addresses: there is no authentication yet.",
        check=check_admin_listeners,
    ),
    Setting(
        "kgw.admin.connections.max",
        32,
        "Connections to the admin listeners; a further one is closed at once.",
        minimum=1,
        maximum=1_000,
    ),
)
