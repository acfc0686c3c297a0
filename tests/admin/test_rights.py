"""What each endpoint asks of the access rules, once allowed and once denied."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.admin.answers import Status
from kgw.admin.endpoints import ALL_ENDPOINTS, Endpoint
from kgw.admin.parameters import TOPIC
from kgw.admin.rights import CLUSTER, NAMED_GROUP, NAMED_TOPIC
from kgw.admin.token import TokenFile
from tests.admin.asking import Admin, Answered, basic
from tests.groups.wire import WireMember
from tests.handlers.access_requests import Guarded, permit
from tests.handlers.logins import add_user
from tests.handlers.support import batch, fetch_request, produce

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PASSWORD = "canary-9035"
ALICE = (basic("alice", PASSWORD),)
ON_CLUSTER = "User:alice DESCRIBE CLUSTER kafka-cluster"
ON_TOPIC = "User:alice DESCRIBE TOPIC orders"
ON_GROUP = "User:alice DESCRIBE GROUP slow"


class Asked(NamedTuple):
    """A request, and the rules that it needs."""

    target: str
    needs: tuple[str, ...]

    @property
    def path(self) -> str:
        """The path of the request."""
        return self.target.partition("?")[0]


REQUESTS = (
    Asked("/health/live", (ON_CLUSTER,)),
    Asked("/health/ready", (ON_CLUSTER,)),
    Asked("/metrics", (ON_CLUSTER,)),
    Asked("/api/v1", (ON_CLUSTER,)),
    Asked("/api/v1/server", (ON_CLUSTER,)),
    Asked("/api/v1/metrics", (ON_CLUSTER,)),
    Asked("/api/v1/loop", (ON_CLUSTER,)),
    Asked("/api/v1/offsets?topic=orders", (ON_TOPIC,)),
    Asked("/api/v1/offsets/seek?topic=orders&to=earliest", (ON_TOPIC,)),
    Asked("/api/v1/offsets/seek?topic=orders&to=resume&group=slow", (ON_TOPIC, ON_GROUP)),
    Asked("/api/v1/groups/members?group=slow", (ON_GROUP,)),
    Asked("/api/v1/lag?group=slow", (ON_GROUP,)),
    Asked("/api/v1/lag/partitions?group=slow", (ON_GROUP,)),
    Asked("/api/v1/lag/partitions?group=slow&topic=orders", (ON_GROUP, ON_TOPIC)),
    Asked("/api/v1/lag/at-risk?group=slow&topic=orders", (ON_GROUP, ON_TOPIC)),
    Asked("/api/v1/lag/anomalies?group=slow&topic=orders", (ON_GROUP, ON_TOPIC)),
    Asked("/api/v1/lag/clients?topic=orders", (ON_TOPIC,)),
    Asked("/api/v1/lag/history?group=slow", (ON_GROUP,)),
    Asked("/api/v1/lag/history?group=slow&topic=orders", (ON_GROUP, ON_TOPIC)),
)
"""Requests for every path, in every form that asks for other rights."""

LISTS = {
    "/api/v1/offsets": ("partitions", "orders"),
    "/api/v1/lag": ("groups", "slow"),
    "/api/v1/lag/at-risk": ("at_risk", "slow"),
    "/api/v1/lag/anomalies": ("lasting", "slow"),
    "/api/v1/lag/clients": ("clients", "orders"),
}
"""The paths that list what the client may see: the list, and a name that is in it."""

NAMED = [asked for asked in REQUESTS if not asked.path.startswith("/health/")]
MISSING = [(asked, needed) for asked in NAMED for needed in asked.needs]


@pytest.fixture
async def gateway() -> AsyncIterator[Guarded]:
    """A gateway with access rules, whose topic, group and client are in every kind of list."""
    settings = {"admin_login": True, "connection_failed_authentication_delay_ms": 0}
    async with Guarded(**settings) as running:
        await add_user(running, "alice", PASSWORD)
        running.session = running.admin
        await running.topic_manager.create("short", 1, {"kgw.retention.offset": "2"})
        for name in ("orders", "short"):
            for _ in range(3):
                await produce(running, batch(), name=name)
        await running.request(fetch_request(1), 12)
        member = WireMember("slow", running.request)
        await member.join()
        await member.sync()
        await member.commit("short", {0: 1})
        await member.commit("orders", {0: 99})
        running.session = running.alice
        await running.lag.sample()
        yield running
        assert {} == running.internal_errors


@pytest.fixture
def admin(gateway: Guarded) -> Admin:
    """The application over that gateway."""
    return Admin(gateway.gateway)


async def ask(admin: Admin, target: str) -> Answered:
    """Ask as Alice."""
    return await admin.get(target, authorizations=ALICE)


def is_denied(answer: Answered) -> bool:
    """Return whether a right is missing."""
    return 403 == answer.status and "may not" in answer.value["error"]


def test_every_path_is_asked() -> None:
    """A new endpoint needs its requests here, once allowed and once denied."""
    assert {one.path for one in ALL_ENDPOINTS} == {one.path for one in REQUESTS}
    with_lists = {
        one.path for one in ALL_ENDPOINTS if not any(each.is_required for each in one.parameters)
    }
    assert {one for one in with_lists if one.startswith("/api/v1/")} - set(LISTS) == {
        "/api/v1/server",
        "/api/v1/metrics",
        "/api/v1/loop",
    }


async def serve(*_: object) -> Status:
    """Answer nothing."""
    return Status(200, {})


@pytest.mark.parametrize("rights", [(), (NAMED_GROUP,), (CLUSTER, NAMED_GROUP)])
def test_no_endpoint_without_rights(rights: tuple[object, ...]) -> None:
    """An endpoint that asks for nothing, or for a name that no query has, cannot be made."""
    with pytest.raises(TypeError, match="does not say which rights"):
        Endpoint("/new", "New.", rights, serve, (TOPIC,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required"):
        Endpoint("/new", "New.", serve)  # type: ignore[call-arg, arg-type]
    Endpoint("/new", "New.", (NAMED_TOPIC,), serve, (TOPIC,))


@pytest.mark.parametrize("asked", NAMED, ids=lambda one: one.target)
async def test_allowed(admin: Admin, gateway: Guarded, asked: Asked) -> None:
    """With the rights that the table names a request is answered."""
    await permit(gateway, *(f"ALLOW {one}" for one in asked.needs))
    assert 200 == (await ask(admin, asked.target)).status
    assert {} == gateway.metrics.access_denials


@pytest.mark.parametrize(("asked", "needed"), MISSING, ids=lambda one: getattr(one, "target", one))
async def test_denied(admin: Admin, gateway: Guarded, asked: Asked, needed: str) -> None:
    """With every right but one it is refused, which is counted."""
    rights = {ON_CLUSTER, ON_TOPIC, ON_GROUP} - {needed}
    await permit(gateway, *(f"ALLOW {one}" for one in rights))
    assert is_denied(await ask(admin, asked.target))
    assert 1 == sum(gateway.metrics.access_denials.values())


@pytest.mark.parametrize(("asked", "needed"), MISSING, ids=lambda one: getattr(one, "target", one))
async def test_denied_by_a_rule(admin: Admin, gateway: Guarded, asked: Asked, needed: str) -> None:
    """A rule that denies wins over rules that allow everything."""
    await permit(
        gateway,
        "ALLOW User:alice ALL CLUSTER kafka-cluster",
        "ALLOW User:alice ALL TOPIC *",
        "ALLOW User:alice ALL GROUP *",
        f"DENY {needed}",
    )
    assert is_denied(await ask(admin, asked.target))


@pytest.mark.parametrize("path", LISTS)
async def test_lists(admin: Admin, gateway: Guarded, path: str) -> None:
    """A list has what the client may see, and no trace of anything else."""
    name, shown = LISTS[path]
    hidden = await ask(admin, path)
    assert (200, []) == (hidden.status, hidden.value[name])
    for each in (b"orders", b"short", b"slow", b"in-process"):
        assert each not in hidden.body
    assert {} == gateway.metrics.access_denials
    await permit(gateway, "ALLOW User:alice DESCRIBE TOPIC *", f"ALLOW {ON_GROUP}")
    assert shown.encode() in (await ask(admin, path)).body
    await permit(gateway, "DENY User:alice DESCRIBE TOPIC *", f"DENY {ON_GROUP}")
    assert [] == (await ask(admin, path)).value[name]


async def test_rows_of_other_topics(admin: Admin, gateway: Guarded) -> None:
    """Who may see a group sees its places in those topics alone that are allowed, too."""
    await permit(gateway, f"ALLOW {ON_GROUP}")
    target = "/api/v1/lag/partitions?group=slow"
    assert [] == (await ask(admin, target)).value["partitions"]
    (group,) = (await ask(admin, "/api/v1/lag")).value["groups"]
    assert ([], 0) == (group["topics"], group["topic_count"])
    for path in ("/api/v1/lag/at-risk", "/api/v1/lag/anomalies"):
        assert b"orders" not in (await ask(admin, path)).body
    await permit(gateway, f"ALLOW {ON_TOPIC}")
    rows = (await ask(admin, target)).value["partitions"]
    assert {"orders"} == {one["topic"] for one in rows}
    (group,) = (await ask(admin, "/api/v1/lag")).value["groups"]
    assert ["orders"] == [one["topic"] for one in group["topics"]]
    assert b"short" not in (await ask(admin, "/api/v1/lag/at-risk")).body
    (client, *_) = (await ask(admin, "/api/v1/lag/clients")).value["clients"]
    assert ["slow"] == client["groups"]
    await permit(gateway, f"DENY {ON_GROUP}")
    (client, *_) = (await ask(admin, "/api/v1/lag/clients")).value["clients"]
    assert [] == client["groups"]


async def test_counts_of_the_whole_server(admin: Admin, gateway: Guarded) -> None:
    """They are unknown to a client who may not describe the cluster."""
    lag = (await ask(admin, "/api/v1/lag")).value
    assert (None, None, None) == (lag["anomalies"], lag["at_risk"], lag["clients"])
    assert None is (await ask(admin, "/api/v1/lag/anomalies")).value["counted"]
    assert 0 == (await ask(admin, "/api/v1/lag/at-risk")).value["count"]
    await permit(gateway, f"ALLOW {ON_CLUSTER}")
    lag = (await ask(admin, "/api/v1/lag")).value
    assert lag["anomalies"] > 0
    assert lag["at_risk"] > 0
    assert lag["clients"] > 0
    assert (await ask(admin, "/api/v1/lag/anomalies")).value["counted"]


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/offsets?topic=",
        "/api/v1/offsets/seek?to=earliest&topic=",
        "/api/v1/groups/members?group=",
        "/api/v1/lag?group=",
        "/api/v1/lag/partitions?group=",
        "/api/v1/lag/at-risk?group=",
        "/api/v1/lag/at-risk?topic=",
    ],
)
async def test_names_are_not_told(admin: Admin, target: str) -> None:
    """What exists and what does not gets the same answer without the right."""
    name = "orders" if target.endswith("topic=") else "slow"
    assert await ask(admin, target + name) == await ask(admin, target + "none")


async def test_probes(admin: Admin, gateway: Guarded) -> None:
    """Health is a status and a field to everybody, and more to who may describe the cluster."""
    assert {"ready": True} == (await admin.get("/health/ready")).value
    assert {"ready": True} == (await ask(admin, "/health/ready")).value
    assert {} == gateway.metrics.access_denials
    await permit(gateway, f"ALLOW {ON_CLUSTER}")
    assert "problems" in (await ask(admin, "/health/ready")).value
    assert {"ready": True} == (await admin.get("/health/ready")).value
    await permit(gateway, f"DENY {ON_CLUSTER}")
    assert {"ready": True} == (await ask(admin, "/health/ready")).value


@pytest.fixture
def token(tmp_path: Path) -> TokenFile:
    """A token beside the users."""
    file = tmp_path / "token"
    file.write_text("correct-horse-battery")
    file.chmod(0o600)
    return TokenFile(str(file))


async def test_the_token(gateway: Guarded, token: TokenFile) -> None:
    """Who has the token may see everything, whatever rules say; no user has its principal."""
    async with Guarded(admin_token_file="token") as running:
        admin = Admin(running.gateway, token)
        await permit(running, "DENY User:* ALL CLUSTER kafka-cluster")
        bearer = ("Bearer correct-horse-battery",)
        for asked in REQUESTS:
            answer = await admin.get(asked.target, authorizations=bearer)
            assert answer.status in {200, 404}
    # Without the setting it is no super user.
    refused = await Admin(gateway.gateway, token).get("/metrics", authorizations=bearer)
    assert 403 == refused.status


async def test_nobody_at_an_open_listener() -> None:
    """On a listener that asks for no login a client is anonymous, and rules may be about it."""
    async with Guarded() as gateway:
        admin = Admin(gateway.gateway)
        refused = await admin.get("/metrics")
        assert 403 == refused.status
        assert "User:ANONYMOUS may not Describe this cluster" == refused.value["error"]
        await permit(gateway, "ALLOW User:ANONYMOUS DESCRIBE CLUSTER kafka-cluster")
        assert 200 == (await admin.get("/metrics")).status


async def test_hosts(admin: Admin, gateway: Guarded) -> None:
    """A rule for an address is about the client's; an IPv4 address may come as IPv6."""
    await permit(gateway, f"ALLOW {ON_CLUSTER} @10.0.0.9")
    for client, status in (("10.0.0.8", 403), ("10.0.0.9", 200), ("::ffff:10.0.0.9", 200)):
        answer = await admin.get("/metrics", authorizations=ALICE, client=client)
        assert status == answer.status


async def test_the_audit_log(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    """A denial has a line, with who asked for what, and from where."""
    caplog.set_level("INFO", "kgw.audit")
    await ask(admin, "/api/v1/groups/members?group=slow")
    (line,) = [one for one in caplog.records if one.name == "kgw.audit"]
    fields = line.kgw_fields  # type: ignore[attr-defined]
    assert "denied" == line.getMessage()
    expected = {
        "principal": "User:alice",
        "host": "127.0.0.1",
        "operation": "Describe",
        "resource_type": "Group",
        "resource": "slow",
        "request": "GET /api/v1/groups/members",
        "rule": "DefaultDeny",
    }
    assert expected == fields


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "get", "TRACE"])
@pytest.mark.parametrize(
    "path",
    [
        "//metrics",
        "/metrics/",
        "/metrics//",
        "/./metrics",
        "/x/../metrics",
        "/health/live/../../metrics",
        "/health/ready/../../metrics",
        "/health/live/metrics",
        "/%6Detrics",
        "/METRICS",
        "/metrics;x",
        "/metrics%00",
        "/metrics%2f",
        "/api/v1/",
        "/API/v1/server",
        "/api/v1/server/",
        "/api//v1/server",
        "/api/v1/health/../server",
        "http://localhost/metrics",
        "metrics",
        "*",
        "",
    ],
)
async def test_other_ways_to_say_a_path(admin: Admin, path: str, method: str) -> None:
    """No spelling leads to what the client has no right to see."""
    answer = await admin.get(path, method=method, authorizations=ALICE)
    assert answer.status in {403, 404, 405}
    assert b"kgw_" not in answer.body
    assert b"cluster_id" not in answer.body
