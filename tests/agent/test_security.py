"""TLS, users and access rules at the agent's listener, with a client of gRPC."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from cryptography import x509
from grpc import StatusCode

from kgw.agent.clients import host_of
from kgw.backend.seaweedmq.protos.mq_agent_pb2 import DESCRIPTOR
from kgw.errors import ErrorCode
from kgw.security.sasl.scram import ScramMechanism
from kgw.server.listener_security import LOOK_EVERY_S
from tests import patience
from tests.admin.asking import basic
from tests.agent.conftest import serving_agent
from tests.agent.smq_client import AgentClient, Publisher, ended, field_of, turns
from tests.handlers.logins import add_user
from tests.security.acls.writing import rule
from tests.security.tls.handshakes import PASSWORD as KEY_PASSWORD
from tests.security.tls.handshakes import pki

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.testing.certificates import IssuedCertificate
    from tests.agent.conftest import Agent

PASSWORD = "canary-2284"
SERVICE = DESCRIPTOR.services_by_name["SeaweedMessagingAgent"]
METHODS = [one.name for one in SERVICE.methods]
WRITE = "ALLOW User:alice WRITE TOPIC orders"
READ = "ALLOW User:alice READ TOPIC orders"
JOIN = "ALLOW User:alice READ GROUP g"


def metadata(user: str, password: str = PASSWORD) -> tuple[tuple[str, str], ...]:
    """Return what a client sends to log in."""
    return (("authorization", basic(user, password)),)


@asynccontextmanager
async def with_users(**settings: Any) -> AsyncIterator[Agent]:
    """Serve an agent whose clients log in; the client is Alice."""
    given = {"smq_agent_login": True, "connection_failed_authentication_delay_ms": 0, **settings}
    async with serving_agent(metadata=metadata("alice"), **given) as agent:
        for user in ("alice", "bob"):
            await add_user(agent.gateway, user, PASSWORD)
        yield agent


@asynccontextmanager
async def with_rules(*rules: str, **settings: Any) -> AsyncIterator[Agent]:
    """Serve an agent with access rules, and a topic."""
    async with with_users(super_users="User:admin", **settings) as agent:
        await agent.create("orders")
        await permit(agent, *rules)
        yield agent


async def permit(agent: Agent, *rules: str) -> None:
    """Add rules."""
    access = agent.gateway.gateway.access
    assert access is not None
    await access.add([*map(rule, rules)])


async def forbid(agent: Agent, *rules: str) -> None:
    """Remove rules."""
    access = agent.gateway.gateway.access
    assert access is not None
    await access.remove([*map(rule, rules)])


async def status_of(client: AgentClient, method: str) -> StatusCode:
    """Return the status of a call with an empty message."""
    # Sent as one: gRPC's client reports an error of its own if a call ends while it writes.
    call = client.channel.unary_stream(f"/messaging_pb.SeaweedMessagingAgent/{method}")
    return await ended(call(b"", metadata=client.metadata))


class TestLogins:
    @pytest.mark.parametrize("method", METHODS)
    async def test_every_method(self, method: str) -> None:
        """No method is served without a login, nor with one that is almost right."""
        async with with_users() as agent:
            right = basic("alice", PASSWORD)
            for given in (
                (),
                (("authorization", basic("alice", "wrong")),),
                (("authorization", basic("nobody", PASSWORD)),),
                (("authorization", right[:-2]),),
                (("authorization", right.removeprefix("Basic ")),),
                (("authorization", f"Bearer {PASSWORD}"),),
                (("authorization", right), ("authorization", right)),
                (("x-authorization", right),),
            ):
                async with AgentClient(agent.port, metadata=given) as client:
                    assert StatusCode.UNAUTHENTICATED is await status_of(client, method)
            assert StatusCode.UNAUTHENTICATED is not await status_of(agent.client, method)
            assert 8 == agent.gateway.metrics.smq_agent_refusals["UNAUTHENTICATED"]

    async def test_a_user(self, caplog: pytest.LogCaptureFixture) -> None:
        """A user publishes and subscribes; the password is hashed once, and told nowhere."""
        async with with_users() as agent:
            publisher = await agent.client.publisher(partition_count=1)
            await publisher.send(b"k", v=1)
            assert 0 == await publisher.offset()
            subscriber = await agent.client.subscribe("orders")
            assert 1 == field_of((await subscriber.next()).value)
            async with AgentClient(agent.port, metadata=metadata("alice", "canary-x")) as other:
                await status_of(other, "ClosePublishSession")
            assert {"done": 1, "failed": 1} == agent.gateway.metrics.logins
        assert "alice" in str([vars(one) for one in caplog.records])
        assert "canary" not in str([vars(one) for one in caplog.records])

    async def test_many_failures(self) -> None:
        """After ten a name has to wait at its address, with what is right, too."""
        async with with_users() as agent:
            async with AgentClient(agent.port, metadata=metadata("alice", "wrong")) as wrong:
                statuses = [await status_of(wrong, "ClosePublishSession") for _ in range(11)]
            expected = [*[StatusCode.UNAUTHENTICATED] * 10, StatusCode.RESOURCE_EXHAUSTED]
            assert expected == statuses
            refused = await status_of(agent.client, "ClosePublishSession")
            assert StatusCode.RESOURCE_EXHAUSTED is refused
            agent.clock.advance(60)
            assert StatusCode.OK is await status_of(agent.client, "ClosePublishSession")

    async def test_a_deleted_user(self) -> None:
        """The next call knows it."""
        async with with_users() as agent:
            assert StatusCode.OK is await status_of(agent.client, "ClosePublishSession")
            credentials = await agent.gateway.gateway.load_credentials()
            await credentials.change({(one, "alice"): None for one in ScramMechanism})
            refused = await status_of(agent.client, "ClosePublishSession")
            assert StatusCode.UNAUTHENTICATED is refused

    async def test_the_login_ends(self) -> None:
        """With connections.max.reauth.ms a stream ends, and the client begins another one."""
        async with with_users(connections_max_reauth_ms=60_000) as agent:
            publisher = await agent.client.publisher(partition_count=1)
            await publisher.send(b"k", v=1)
            assert 0 == await publisher.offset()
            agent.clock.advance(59.9)
            await publisher.send(b"k", v=2)
            assert 1 == await publisher.offset()
            agent.clock.advance(0.1)
            assert StatusCode.UNAUTHENTICATED is await ended(publisher.stream)
            again = await agent.client.publisher()
            await again.send(b"k", v=3)
            assert 2 == await again.offset()

    async def test_sessions_of_others(self) -> None:
        """A session that another user has opened is none: not to publish with, nor to close."""
        async with with_users() as agent:
            started = await agent.client.start_session()
            async with AgentClient(agent.port, metadata=metadata("bob")) as bob:
                await bob.close_session(started.session_id)
                stolen = Publisher(bob.publish(), started.session_id)
                await stolen.send(b"k", v=1)
                assert StatusCode.NOT_FOUND is await ended(stolen.stream)
            publisher = Publisher(agent.client.publish(), started.session_id)
            await publisher.send(b"k", v=1)
            assert 0 == await publisher.offset()


class TestRules:
    @pytest.mark.parametrize("topic", ["orders", "none"])
    async def test_publishing(self, topic: str) -> None:
        """WRITE on the topic, before it is told whether there is one; DENY wins."""
        async with with_rules("ALLOW User:alice CREATE TOPIC *") as agent:
            for rules in (
                (),
                ("ALLOW User:alice ALL TOPIC *", f"DENY User:alice WRITE TOPIC {topic}"),
            ):
                await permit(agent, *rules)
                refused = await agent.client.start_session(topic)
                assert refused.error.startswith("TOPIC_AUTHORIZATION_FAILED: ")
                assert 0 == refused.session_id
            assert None is agent.gateway.catalog.get("none")
            assert {("Write", "Topic"): 2} == agent.gateway.metrics.access_denials

    async def test_allowed_publishing(self) -> None:
        """A publisher with the right is answered."""
        async with with_rules(WRITE) as agent:
            publisher = await agent.client.publisher()
            await publisher.send(b"k", v=1)
            assert 0 == await publisher.offset()

    async def test_created_topics(self) -> None:
        """A missing topic needs CREATE, on the topic or on the cluster."""
        rules = "ALLOW User:alice WRITE TOPIC *"
        async with with_rules(rules) as agent:
            refused = await agent.client.start_session("new")
            assert refused.error.startswith("TOPIC_AUTHORIZATION_FAILED: ")
            assert None is agent.gateway.catalog.get("new")
            await permit(agent, "ALLOW User:alice CREATE TOPIC new")
            assert "" == (await agent.client.start_session("new")).error
            await permit(agent, "ALLOW User:alice CREATE CLUSTER kafka-cluster")
            assert "" == (await agent.client.start_session("newer")).error

    async def test_record_types(self) -> None:
        """Another record type is a setting of the topic, and needs ALTER_CONFIGS."""
        async with with_rules(WRITE) as agent:
            record_type = {"fields": [{"name": "v"}]}
            refused = await agent.client.start_session(record_type=record_type)
            assert refused.error.startswith("TOPIC_AUTHORIZATION_FAILED: ")
            assert "" == agent.topic().config.values["kgw.smq.record.type"]
            await permit(agent, "ALLOW User:alice ALTER_CONFIGS TOPIC orders")
            assert "" == (await agent.client.start_session(record_type=record_type)).error
            await forbid(agent, "ALLOW User:alice ALTER_CONFIGS TOPIC orders")
            assert "" == (await agent.client.start_session(record_type=record_type)).error

    async def test_publishing_after_the_session(self) -> None:
        """The right is asked for again when the stream of a session begins."""
        async with with_rules(WRITE) as agent:
            started = await agent.client.start_session()
            await forbid(agent, WRITE)
            publisher = Publisher(agent.client.publish(), started.session_id)
            await publisher.send(b"k", v=1)
            assert StatusCode.PERMISSION_DENIED is await ended(publisher.stream)
            assert 0 == agent.topic().partitions[0].log.end_offset

    @pytest.mark.parametrize(
        ("rules", "group", "is_served"),
        [
            ((), "", False),
            ((READ,), "", True),
            ((JOIN,), "g", False),
            ((READ,), "g", False),
            ((READ, JOIN), "g", True),
            ((READ, JOIN), "h", False),
            ((READ, JOIN, "DENY User:* READ GROUP g"), "g", False),
            ((READ, JOIN, "DENY User:alice READ TOPIC *"), "g", False),
            (("ALLOW User:bob READ TOPIC orders",), "", False),
            (("ALLOW User:alice WRITE TOPIC orders",), "", False),
            ((f"{READ} @127.0.0.1",), "", True),
            ((f"{READ} @10.0.0.9",), "", False),
        ],
    )
    async def test_subscribing(self, rules: tuple[str, ...], group: str, is_served: bool) -> None:
        """READ on the topic, and on the group if there is one."""
        async with with_rules(WRITE, *rules) as agent:
            publisher = await agent.client.publisher()
            await publisher.send(b"k", v=1)
            await publisher.offset()
            subscriber = await agent.client.subscribe(consumer_group=group)
            if is_served:
                assert b"k" == (await subscriber.next()).key
            else:
                assert StatusCode.PERMISSION_DENIED is await ended(subscriber.stream)
                assert () == agent.members(group)

    async def test_names_are_not_told(self) -> None:
        """A subscriber without the right learns nothing of a topic, nor of what it has."""
        async with with_rules() as agent:
            found = []
            for topic in ("orders", "none"):
                subscriber = await agent.client.subscribe(topic)
                status = await ended(subscriber.stream)
                found.append((status, await subscriber.stream.details()))
            assert found[0] == found[1]
            assert StatusCode.PERMISSION_DENIED is found[0][0]

    async def test_a_rule_that_changes(self) -> None:
        """It holds for streams that are open: what is published or read then is refused."""
        async with with_rules(WRITE, READ, JOIN) as agent:
            publisher = await agent.client.publisher()
            await publisher.send(b"k", v=1)
            assert 0 == await publisher.offset()
            alone = await agent.client.subscribe()
            member = await agent.client.subscribe(consumer_group="g")
            assert [b"k", b"k"] == [(await one.next()).key for one in (alone, member)]
            await permit(agent, "DENY User:alice READ GROUP g")
            assert StatusCode.PERMISSION_DENIED is await ended(member.stream)
            await turns(lambda: not agent.members("g"))
            await publisher.send(b"l", v=2)
            assert b"l" == (await alone.next()).key
            await forbid(agent, READ)
            assert StatusCode.PERMISSION_DENIED is await ended(alone.stream)
            await publisher.send(b"m", v=3)
            assert [1, 2] == [await publisher.offset(), await publisher.offset()]
            await forbid(agent, WRITE)
            assert StatusCode.PERMISSION_DENIED is await ended(publisher.stream)
            denied = agent.gateway.metrics.smq_agent_refusals
            assert 3 == denied["PERMISSION_DENIED"]

    async def test_a_super_user(self) -> None:
        """Super users may do everything."""
        async with with_rules() as agent:
            await add_user(agent.gateway, "admin", PASSWORD)
            async with AgentClient(agent.port, metadata=metadata("admin")) as client:
                assert "" == (await client.start_session("new")).error


def channel_credentials(
    certificate: IssuedCertificate | None = None,
) -> grpc.ChannelCredentials:
    """Return the credentials of a client that trusts the authority of the tests."""
    trusted = pki().authority.truststore_pem.encode()
    if certificate is None:
        return grpc.ssl_channel_credentials(trusted)
    return grpc.ssl_channel_credentials(
        trusted, certificate.key_pem().encode(), certificate.chain_pem.encode()
    )


def write(file: Path, certificate: IssuedCertificate, password: str | None = None) -> str:
    """Put a certificate in place of the old one."""
    new = file.with_suffix(".new")
    new.write_text(certificate.keystore_pem(password))
    new.chmod(0o600)
    new.replace(file)
    return str(file)


def serial_number(port: int) -> int:
    """Return the number of the certificate that a new connection sees."""
    found = ssl.get_server_certificate(("localhost", port))
    return x509.load_pem_x509_certificate(found.encode()).serial_number


HTTPS: dict[str, Any] = {"smq_agent_listener": "https://127.0.0.1:0"}


class TestTls:
    @pytest.mark.parametrize("password", [None, KEY_PASSWORD])
    async def test_calls(self, tmp_path: Path, password: str | None) -> None:
        """Calls are served over TLS, and not in plain text; the key may be encrypted."""
        file = write(tmp_path / "server.pem", pki().server, password)
        settings: dict[str, Any] = {
            "ssl_keystore_location": file,
            "ssl_key_password": password or "",
            **HTTPS,
        }
        async with serving_agent(credentials=channel_credentials(), **settings) as agent:
            publisher = await agent.client.publisher(partition_count=1)
            await publisher.send(b"k", v=1)
            assert 0 == await publisher.offset()
            async with AgentClient(agent.port) as plain:
                assert StatusCode.UNAVAILABLE is await status_of(plain, "ClosePublishSession")

    async def test_changed_certificates(self, tmp_path: Path) -> None:
        """New connections get a renewed certificate, and open ones stay."""
        file = tmp_path / "server.pem"
        settings: dict[str, Any] = {"ssl_keystore_location": write(file, pki().server), **HTTPS}
        async with serving_agent(credentials=channel_credentials(), **settings) as agent:
            publisher = await agent.client.publisher(partition_count=1)
            await publisher.send(b"k", v=1)
            assert 0 == await publisher.offset()
            await asyncio.to_thread(write, file, pki().other_server)
            agent.clock.advance(LOOK_EVERY_S)
            wanted = pki().other_server.certificate.serial_number
            limit = patience.Limit(10)
            while await asyncio.to_thread(serial_number, agent.port) != wanted:
                assert not limit.is_over
            await publisher.send(b"k", v=2)
            assert 1 == await publisher.offset()

    async def test_certificates_of_clients(self, tmp_path: Path) -> None:
        """With access rules a client is who its certificate says; without one it is not served."""
        settings: dict[str, Any] = {
            "ssl_keystore_location": write(tmp_path / "server.pem", pki().server),
            "ssl_client_auth": "required",
            "ssl_truststore_certificates": pki().authority.truststore_pem,
            "ssl_principal_mapping_rules": "DEFAULT",
            "super_users": "User:CN=alice,OU=users",
            **HTTPS,
        }
        credentials = channel_credentials(pki().client)
        async with serving_agent(credentials=credentials, **settings) as agent:
            assert "" == (await agent.client.start_session()).error
            for certificate in (None, pki().stranger):
                refused = channel_credentials(certificate)
                async with AgentClient(agent.port, credentials=refused) as client:
                    status = await status_of(client, "ClosePublishSession")
                    assert StatusCode.UNAVAILABLE is status
            second = pki().authority.issue_client([("CN", "bob")])
            async with AgentClient(agent.port, credentials=channel_credentials(second)) as bob:
                refused_session = await bob.start_session()
                assert ErrorCode.TOPIC_AUTHORIZATION_FAILED.name in refused_session.error

    async def test_a_certificate_without_a_principal(self, tmp_path: Path) -> None:
        """A certificate that gives nobody a name is no way in, although it is trusted."""
        settings: dict[str, Any] = {
            "ssl_keystore_location": write(tmp_path / "server.pem", pki().server),
            "ssl_client_auth": "required",
            "ssl_truststore_certificates": pki().authority.truststore_pem,
            "ssl_principal_mapping_rules": "RULE:^CN=bob$/bob/",
            **HTTPS,
        }
        credentials = channel_credentials(pki().client)
        async with serving_agent(credentials=credentials, **settings) as agent:
            for method in METHODS:
                assert StatusCode.UNAUTHENTICATED is await status_of(agent.client, method)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("ipv4:127.0.0.1:40000", "127.0.0.1"),
        ("ipv6:[::1]:40000", "::1"),
        ("ipv6:%5B::1%5D:40000", "::1"),
        ("ipv6:%5B::ffff:10.0.0.9%5D:40000", "10.0.0.9"),
    ],
)
def test_hosts(peer: str, expected: str) -> None:
    """The address of a client is read from each form that gRPC gives it."""
    assert expected == host_of(peer)
