"""What each path answers, and what it refuses."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from kgw import __version__
from kgw.admin.endpoints import ALL_ENDPOINTS
from kgw.errors import ErrorCode, StorageError
from kgw.metrics import METRICS
from kgw.testing.gateway import InProcessGateway
from tests.admin.asking import Admin
from tests.groups.wire import WireMember
from tests.handlers.support import START_MS, batch, create_topic, fetch_request, produce
from tests.lag.test_monitor import commit
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.admin.endpoints import Endpoint

NASTY = 'a/b?c=d&e "\n\x1b[31m<script>é'


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway with two topics, ten records in the first partition of one."""
    async with InProcessGateway() as running:
        await create_topic(running, partitions=3)
        await create_topic(running, "aside")
        for _ in range(10):
            await produce(running, batch(timestamps_ms=[START_MS]))
        await turns(20)
        yield running


@pytest.fixture
def admin(gateway: InProcessGateway) -> Admin:
    """The application over that gateway."""
    return Admin(gateway.gateway)


class TestHealth:
    async def test_ready(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Ready while writes are taken; not any more once the process is stopping."""
        expected = {
            "ready": True,
            "leadership": "leading",
            "reasons": [],
            "problems": [],
            "problem_count": 0,
        }
        assert expected == await admin.value("/health/ready")
        gateway.begin_to_stop()
        answer = await admin.get("/health/ready")
        assert 503 == answer.status
        assert ["the process is stopping"] == answer.value["problems"]

    async def test_not_ready_without_a_disk(self, admin: Admin, gateway: InProcessGateway) -> None:
        """A backend that takes no writes makes it not ready, and still alive."""
        await gateway.backend.aclose()
        assert 503 == (await admin.get("/health/ready")).status
        assert 200 == (await admin.get("/health/live")).status

    async def test_metrics(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Prometheus' text, with a lag that is no older than a few seconds."""
        await commit(gateway, 4)
        answer = await admin.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert b'kgw_group_lag_records{group="group"} 6.0' in answer.body
        assert b'kgw_offset_anomalies_total{kind="committed-ahead"} 0.0' in answer.body

    async def test_metrics_of_what_is_served(self, admin: Admin, gateway: InProcessGateway) -> None:
        """How large it is, what was appended, and how long each API took, as of now."""
        text = (await admin.get("/metrics")).body.decode()
        assert "\nkgw_ready 1.0\n" in text
        assert f'kgw_build_info{{commit="checkout",python="{platform.python_version()}",' in text
        assert "\nkgw_topics 2.0\n" in text
        assert "\nkgw_partitions 4.0\n" in text
        appended = gateway.catalog.appended
        assert f"\nkgw_appended_records_total {appended.records:.1f}\n" in text
        sizes = [log.size_bytes for log in gateway.backend.partitions.values()]
        assert f"\nkgw_log_bytes {sum(sizes):.1f}\n" in text
        assert 'kgw_request_seconds_count{api="PRODUCE"}' in text


class TestServer:
    async def test_server(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Which process this is, for how long, what it takes, and whether it serves."""
        gateway.manual_clock.advance(5.0)
        value = await admin.value("/api/v1/server")
        assert (__version__, True, 0, os.getpid(), 5_000, True, "leading", []) == (
            value["version"],
            value["started"],
            value["node_id"],
            value["pid"],
            value["uptime_ms"],
            value["ready"],
            value["leadership"],
            value["problems"],
        )
        assert gateway.placement.cluster_id == value["cluster_id"]
        assert value["resident_bytes"] > 1_000_000
        assert value["processor_ms"] > 0

    async def test_a_server_that_has_not_started(self) -> None:
        """It has no node yet, and answers all the same; so do its metrics."""
        asleep = Admin(InProcessGateway().gateway)
        value = await asleep.value("/api/v1/server")
        assert (False, None, False) == (value["started"], value["node_id"], value["ready"])
        metrics = (await asleep.value("/api/v1/metrics"))["metrics"]
        assert [{"labels": {}, "value": 0}] == metrics["kgw_connections_open"]

    @pytest.mark.parametrize("endpoint", ALL_ENDPOINTS, ids=lambda one: one.path)
    async def test_asked_before_the_start(self, endpoint: Endpoint) -> None:
        """What needs what is kept says that there is nothing yet; nothing fails."""
        gateway = InProcessGateway().gateway
        answer = await Admin(gateway).get(endpoint.path)
        serves = endpoint.is_early and endpoint.path != "/health/ready"
        assert (200 if serves else 503, {}) == (answer.status, gateway.internal_errors)
        if not endpoint.is_early:
            assert {"error": "the server is starting, or standing by"} == answer.value

    async def test_metrics(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Every metric with its labels; histograms by bucket; lag as fresh as in /metrics."""
        await commit(gateway, 4)
        gateway.metrics.loop_lag.observe(20.0)
        value = await admin.value("/api/v1/metrics")
        assert {one.name for one in METRICS} == set(value["metrics"])
        assert {"labels": {"group": "group"}, "value": 6} in value["metrics"][
            "kgw_group_lag_records"
        ]
        (lag,) = value["metrics"]["kgw_loop_lag_seconds"]
        assert (20.0, 1, len(value["bucket_ends_s"]) + 1) == (
            lag["sum_s"],
            lag["counts"][-1],
            len(lag["counts"]),
        )


class TestOffsets:
    async def test_partitions(self, admin: Admin) -> None:
        """Every mark of every partition, by topic."""
        value = await admin.value("/api/v1/offsets")
        assert [("aside", 0), ("orders", 0), ("orders", 1), ("orders", 2)] == [
            (one["topic"], one["partition"]) for one in value["partitions"]
        ]
        full = value["partitions"][1]
        assert (0, 10, 10, 10) == (
            full["log_start_offset"],
            full["high_watermark"],
            full["last_stable_offset"],
            full["end_offset"],
        )
        assert full["size_bytes"] > 0
        assert None is value["next"]
        assert 0 == value["checkpoint_age_ms"]

    async def test_pages(self, admin: Admin) -> None:
        """Each page says where the next one goes on; together they are everything, once."""
        found = []
        target = "/api/v1/offsets?limit=1"
        while True:
            value = await admin.value(target)
            found += [(one["topic"], one["partition"]) for one in value["partitions"]]
            if value["next"] is None:
                break
            target = f"/api/v1/offsets?limit=1&after={quote(value['next'])}"
        assert [("aside", 0), ("orders", 0), ("orders", 1), ("orders", 2)] == found

    async def test_filters(self, admin: Admin) -> None:
        """One topic, one partition; a topic that does not exist is said to."""
        value = await admin.value("/api/v1/offsets?topic=orders&partition=2")
        assert [("orders", 2)] == [(one["topic"], one["partition"]) for one in value["partitions"]]
        answer = await admin.get("/api/v1/offsets?topic=none")
        assert (404, {"error": "there is no topic 'none'"}) == (answer.status, answer.value)


class TestSeeks:
    async def test_by_offset_and_time(self, admin: Admin) -> None:
        """Each partition's offset, its range, and the time of the record that was found."""
        value = await admin.value(f"/api/v1/offsets/seek?topic=orders&to=@{START_MS}&limit=2")
        assert ("orders", "exact-ts-ns", "1") == (value["topic"], value["kind"], value["next"])
        found = {
            "offset": 0,
            "earliest": 0,
            "latest": 10,
            "timestamp_ms": START_MS,
            "error": None,
            "kafka_error": None,
        }
        empty = found | {"latest": 0, "timestamp_ms": None}
        assert [{"partition": 0} | found, {"partition": 1} | empty] == value["partitions"]
        target = "/api/v1/offsets/seek?topic=orders&to=7&after=1"
        (row,) = (await admin.value(target))["partitions"]
        assert (2, None, "OFFSET_OUT_OF_RANGE") == (
            row["partition"],
            row["offset"],
            row["kafka_error"],
        )
        assert "it goes from 0 to 0" in row["error"]

    async def test_where_a_group_stands(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Its position; where it has none, the end that is named."""
        await commit(gateway, 4)
        target = "/api/v1/offsets/seek?topic=orders&to=resume&group="
        value = await admin.value(target + "group")
        assert [4, 0, 0] == [one["offset"] for one in value["partitions"]]
        value = await admin.value(target + "unknown")
        assert [0, 0, 0] == [one["offset"] for one in value["partitions"]]

    async def test_what_is_refused(self, admin: Admin) -> None:
        """What is not there, and what is no place."""
        target = "/api/v1/offsets/seek?topic=orders&to="
        for rest, status, text in (
            ("7&partition=3", 404, "has no partition 3"),
            ("soon", 400, "neither earliest"),
            ("resume", 400, "group is needed"),
            ("7&after=x", 400, "after is a partition"),
        ):
            answer = await admin.get(target + rest)
            assert status == answer.status
            assert text in answer.value["error"]
        assert 404 == (await admin.get("/api/v1/offsets/seek?topic=none&to=7")).status


class TestGroups:
    async def test_members(self, admin: Admin, gateway: InProcessGateway) -> None:
        """With their states, page by page; one that the group does not have is unknown."""
        member = WireMember("group", gateway.request)
        assert (ErrorCode.NONE, ErrorCode.NONE) == (await member.join(), await member.sync())
        waiting: Any = await gateway.request(WireMember("group", gateway.request).join_request(), 5)
        target = "/api/v1/groups/members?group=group"
        value = await admin.value(target)
        expected = {member.member_id: "stable", waiting.member_id: "pending"}
        assert expected == {one["member_id"]: one["state"] for one in value["members"]}
        assert ("group", "Stable", 1) == (value["group"], value["state"], value["generation"])
        named = {one["member_id"]: one["client_id"] for one in value["members"]}
        assert {member.member_id: "in-process", waiting.member_id: None} == named
        page = await admin.value(f"{target}&limit=1")
        rest = await admin.value(f"{target}&limit=1&after={page['next']}")
        assert value["members"] == page["members"] + rest["members"]
        assert None is rest["next"]
        for member_id, state in (*expected.items(), ("nobody", "unknown")):
            (one,) = (await admin.value(f"{target}&member={member_id}"))["members"]
            assert (member_id, state) == (one["member_id"], one["state"])


class TestLag:
    async def test_groups(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Sums by group and topic."""
        await commit(gateway, 4)
        await commit(gateway, 10, group_id="done")
        await commit(gateway, 0, name="aside", group_id="done")
        gateway.manual_clock.advance(2)
        value = await admin.value("/api/v1/lag")
        done, group = value["groups"]
        assert ("done", 0, 0) == (done["group"], done["lag"], done["time_lag_ms"])
        assert ((10, 2), (4, 1)) == (
            (done["committed"], done["partitions"]),
            (group["committed"], group["partitions"]),
        )
        assert ("group", 6, 2_000) == (group["group"], group["lag"], group["time_lag_ms"])
        assert [("orders", 6)] == [(one["topic"], one["lag"]) for one in group["topics"]]
        assert START_MS + 2_000 == value["sampled_ms"]
        assert ["group"] == [
            one["group"] for one in (await admin.value("/api/v1/lag?group=group"))["groups"]
        ]
        page = await admin.value("/api/v1/lag?limit=1")
        assert "done" == page["next"]
        page = await admin.value("/api/v1/lag?limit=1&after=done")
        assert (["group"], None) == ([one["group"] for one in page["groups"]], page["next"])

    async def test_partitions(self, admin: Admin, gateway: InProcessGateway) -> None:
        """A group's places, with what is wrong about them."""
        await commit(gateway, 99)
        await commit(gateway, 0, index=1)
        value = await admin.value("/api/v1/lag/partitions?group=group")
        first, second = value["partitions"]
        assert (99, -89, "committed-ahead") == (
            first["committed_offset"],
            first["lag"],
            first["anomaly"],
        )
        assert (0, 0, None) == (second["lag"], second["time_lag_ms"], second["anomaly"])
        page = await admin.value("/api/v1/lag/partitions?group=group&limit=1")
        assert "orders:0" == page["next"]
        page = await admin.value("/api/v1/lag/partitions?group=group&limit=1&after=orders:0")
        assert [1] == [one["partition"] for one in page["partitions"]]

    async def test_names_are_any_text(self, admin: Admin, gateway: InProcessGateway) -> None:
        """A group's id may hold anything; it comes out of JSON as it went in, and ASCII."""
        await commit(gateway, 1, group_id=NASTY)
        answer = await admin.get(f"/api/v1/lag/partitions?group={quote(NASTY, safe='')}")
        assert 1 == len(answer.value["partitions"])
        answer = await admin.get("/api/v1/lag")
        assert [NASTY] == [one["group"] for one in answer.value["groups"]]
        assert answer.body.isascii()
        assert b"\x1b" not in answer.body

    async def test_at_risk(self, gateway: InProcessGateway) -> None:
        """What retention will take, before it does."""
        await gateway.topic_manager.create("short", 1, {"kgw.retention.offset": "2"})
        for _ in range(3):
            await produce(gateway, batch(), name="short")
        topic = gateway.catalog.topics["short"]
        member = WireMember("slow", gateway.request)
        await member.join()
        await member.sync()
        await member.commit("short", {0: 1})
        value = await Admin(gateway.gateway).value("/api/v1/lag/at-risk")
        (one,) = value["at_risk"]
        assert ("slow", "short", 0) == (one["group"], one["topic"], one["partition"])
        assert (1, 2, 1) == (one["committed_offset"], one["next_log_start_offset"], one["lost"])
        assert (1, True, 3_600_000) == (value["count"], value["is_complete"], value["risk_ms"])
        assert 0 == topic.partitions[0].log.log_start_offset
        value = await Admin(gateway.gateway).value("/api/v1/lag/at-risk?topic=orders")
        assert ([], 0) == (value["at_risk"], value["count"])

    async def test_anomalies(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Those that last, those that happened, and how many there have been."""
        await commit(gateway, 99)
        await gateway.lag.sample()
        topic_id = gateway.catalog.topics["orders"].topic_id
        gateway.lag.committed_back("group", (topic_id, 1), 2, 3)
        value = await admin.value("/api/v1/lag/anomalies")
        (lasting,) = value["lasting"]
        assert ("committed-ahead", "group", "orders", 0, START_MS) == tuple(lasting.values())
        (event,) = value["events"]
        assert ("committed-back", "committed 2 after 3") == (event["kind"], event["detail"])
        assert 1 == value["counted"]["committed-back"]
        assert value["is_complete"]
        value = await admin.value("/api/v1/lag/anomalies?topic=aside")
        assert ([], []) == (value["lasting"], value["events"])

    async def test_clients(self, admin: Admin, gateway: InProcessGateway) -> None:
        """Where a client that commits nothing was last seen to fetch."""
        await gateway.request(fetch_request(3), 12)
        gateway.manual_clock.advance(2)
        (one,) = (await admin.value("/api/v1/lag/clients"))["clients"]
        assert ("in-process", "orders", 0, 3, 7, 2_000, []) == tuple(one.values())
        assert 0 == (await admin.value("/api/v1/lag/clients?client=nobody"))["count"]
        member = WireMember("group", gateway.request)
        await member.join()
        (one,) = (await admin.value("/api/v1/lag/clients?topic=orders"))["clients"]
        assert ["group"] == one["groups"]

    async def test_history(self, admin: Admin, gateway: InProcessGateway) -> None:
        """A series for a group, one of its topics, or a partition, within two times."""
        await commit(gateway, 4)
        for _ in range(3):
            gateway.manual_clock.advance(60)
            await turns(20)
        value = await admin.value("/api/v1/lag/history?group=group")
        assert [6, 6, 6] == [one["lag"] for one in value["samples"]]
        assert 120_000 == value["samples"][2]["at_ms"] - value["samples"][0]["at_ms"]
        since_ms = START_MS + 120_000
        target = f"/api/v1/lag/history?group=group&topic=orders&since_ms={since_ms}"
        assert 2 == len((await admin.value(target))["samples"])
        target += f"&partition=0&until_ms={since_ms + 1}"
        assert 1 == len((await admin.value(target))["samples"])


class TestRefusals:
    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ("/api/v1/offsets?limit=0", "limit is a number from 1 to 1000"),
            ("/api/v1/offsets?limit=1001", "limit is a number"),
            ("/api/v1/offsets?limit=1_0", "limit is a number"),
            ("/api/v1/offsets?limit=%D9%A1", "limit is a number"),
            ("/api/v1/offsets?limit=", "limit is a number"),
            ("/api/v1/offsets?partition=-1", "partition is a number"),
            ("/api/v1/offsets?partition=99999999999999999999999", "partition is a number"),
            ("/api/v1/offsets?topik=orders", "there is no parameter 'topik' here"),
            ("/api/v1/offsets?topic=a&topic=b", "topic was given twice"),
            ("/api/v1/offsets?topic=" + "x" * 1_001, "longer than 1000 characters"),
            ("/api/v1/offsets?topic=%ff", "not a query"),
            ("/api/v1/offsets?topic", "not a query"),
            ("/api/v1/offsets?" + "&".join(["a=1"] * 21), "not a query"),
            ("/api/v1/offsets?after=orders", "after is TOPIC:PARTITION"),
            ("/api/v1/offsets?after=orders:-1", "after is TOPIC:PARTITION"),
            ("/api/v1/lag/partitions", "group is needed"),
            ("/api/v1/groups/members", "group is needed"),
            ("/api/v1/lag/history?group=x&since_ms=now", "since_ms is a number"),
            ("/api/v1/lag/history?group=x&partition=0", "a partition needs a topic"),
            ("/health/live?verbose=1", "no parameters"),
        ],
    )
    async def test_queries(self, admin: Admin, target: str, reason: str) -> None:
        """What an endpoint does not take is refused with the reason, not answered otherwise."""
        answer = await admin.get(target)
        assert 400 == answer.status
        assert reason in answer.value["error"]

    @pytest.mark.parametrize(
        ("target", "name"),
        [
            ("/api/v1/lag?group=none", "none"),
            ("/api/v1/lag/partitions?group=no%1bne", "no\\x1bne"),
            ("/api/v1/lag/at-risk?group=none", "none"),
            ("/api/v1/groups/members?group=none", "none"),
            ("/api/v1/groups/members?group=none&member=m", "none"),
            ("/api/v1/offsets?topic=orders&partition=3", "no partition 3"),
        ],
    )
    async def test_unknown_names(self, admin: Admin, target: str, name: str) -> None:
        """What does not exist is no group with a lag of zero, and no empty list."""
        answer = await admin.get(target)
        assert 404 == answer.status
        assert name in answer.value["error"]

    @pytest.mark.parametrize(
        "path", ["/", "/api", "/api/v1/", "/metrics/", "//metrics", "/health/../metrics", "/%00"]
    )
    async def test_paths(self, admin: Admin, path: str) -> None:
        """A path is served as it is written in the table, or not at all."""
        answer = await admin.get(path)
        assert 404 == answer.status
        assert "/api/v1" in answer.value["error"]

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "FOO"])
    async def test_methods(self, admin: Admin, method: str) -> None:
        """Nothing can be changed; no other site is allowed to ask either."""
        answer = await admin.get("/api/v1/lag", method=method)
        assert 405 == answer.status
        assert {"error": "only GET is served"} == answer.value
        assert not [name for name in answer.headers if name.startswith("access-control")]

    @pytest.mark.parametrize(
        "hosts",
        [
            ("kgw.example",),
            ("kgw.example:9644",),
            ("127.0.0.1.kgw.example",),
            ("localhost.kgw.example",),
            ("10.0.0.1",),
            ("0.0.0.0",),
            ("127.0.0.1@kgw.example",),
            ("127.0.0.1:x",),
            ("\xe9",),
            ("",),
            (),
            ("127.0.0.1", "kgw.example"),
        ],
    )
    async def test_other_hosts(self, admin: Admin, hosts: tuple[str, ...]) -> None:
        """A name that is not this machine's, as after DNS rebinding, reads nothing."""
        answer = await admin.get("/api/v1/lag", hosts=hosts)
        assert 421 == answer.status
        assert ["error"] == list(answer.value)

    @pytest.mark.parametrize(
        "host", ["localhost", "LocalHost:1", "127.0.0.1", "127.8.8.8:80", "[::1]", "[::1]:9644"]
    )
    async def test_this_machine(self, admin: Admin, host: str) -> None:
        """Every way to say this machine is good."""
        assert 200 == (await admin.get("/health/live", hosts=(host,))).status

    async def test_failures(
        self, admin: Admin, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A failing disk is 503 with its reason; a bug is 500 with none, and counted."""

        async def fail(*_: object, **__: object) -> None:
            raise StorageError("the disk is gone")

        history = gateway.backend.state.lag_history
        monkeypatch.setattr(history, "load", fail)
        answer = await admin.get("/api/v1/lag/history?group=group")
        assert (503, {"error": "the disk is gone"}) == (answer.status, answer.value)
        monkeypatch.setattr(history, "load", None)
        answer = await admin.get("/api/v1/lag/history?group=group")
        assert 500 == answer.status
        assert "bug" in answer.value["error"]
        assert {"GET /api/v1/lag/history": 1} == gateway.internal_errors


async def test_headers(admin: Admin) -> None:
    """Nothing is kept by caches, framed, sniffed or run."""
    for target in ("/api/v1", "/metrics", "/none"):
        headers = (await admin.get(target)).headers
        assert "no-store" == headers["cache-control"]
        assert "nosniff" == headers["x-content-type-options"]
        assert headers["content-security-policy"].startswith("default-src 'none'")


async def test_the_list_of_endpoints(admin: Admin) -> None:
    """Everything that is served is listed, with its parameters."""
    value = await admin.value("/api/v1")
    assert [one.path for one in ALL_ENDPOINTS] == [one["path"] for one in value["endpoints"]]
    by_path = {one["path"]: one for one in value["endpoints"]}
    assert {"topic", "partition", "limit", "after"} == set(by_path["/api/v1/offsets"]["parameters"])


async def test_loop(admin: Admin, gateway: InProcessGateway) -> None:
    """Looks by how late they were, and what was later than every bucket."""
    metrics = gateway.metrics
    for lag_s in (0.0, 0.002, 20.0):
        metrics.loop_lag.observe(lag_s)
    metrics.loop_lag_max_s = 20.0
    answer = await admin.value("/api/v1/loop")
    assert (3, 20_000, 1) == (answer["looks"], answer["lag_max_ms"], answer["later"])
    assert [{"up_to_ms": 1, "looks": 1}, {"up_to_ms": 2.5, "looks": 1}] == answer["buckets"][:2]
