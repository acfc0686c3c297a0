"""Asks a server about security for `kgw doctor`, and finds the problems in the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.cli.doctor.connecting import (
    ClientSetup,
    Listening,
    certificate_notes,
    clock_problems,
    connection_problems,
)
from kgw.cli.doctor.probe import certificate_of, is_worth_a_look, look
from kgw.cli.doctor.rights import ResourceRights, right_problems, super_user_problems
from kgw.client import AdminClient, ClientError
from kgw.client.rights import group_operations, topic_operations
from kgw.security.acls.terms import ResourceType
from kgw.security.principal import ANONYMOUS, USER_TYPE, Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.cli.shared.command_config import GivenFile
    from kgw.client import AsyncClient, ClientSecurity
    from kgw.clock import Clock

_WITH_PASSWORDS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


class Intention(NamedTuple):
    """The use that the client makes of topics and groups, as the options say."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    is_producer: bool = False
    is_consumer: bool = False


class SecurityAnswers(NamedTuple):
    """The answers of a server about security."""

    found: Listening
    principal: str
    wanted: Intention = Intention()
    clock_ahead_s: float | None = None
    """How far its clock is ahead of this machine's; None if it does not tell."""
    rights: tuple[ResourceRights, ...] = ()
    unknown_rights: tuple[str, ...] = ()
    """Why rights are not known."""
    super_users: str = ""
    users: frozenset[str] | None = None
    """The users who log in with a password; None if others can log in, or if that is not known."""


async def diagnose(
    host: str,
    port: int,
    security: ClientSecurity | None,
    file: GivenFile | None,
    failure: ClientError,
    timeout_s: float,
) -> Listening | None:
    """Return the facts about an address that cannot be used; None if nothing more is known."""
    if not is_worth_a_look(failure):
        return None
    found = await look(host, port, security, file, failure, timeout_s)
    return None if found.has_tls is None else found


async def ask_security(
    client: AsyncClient,
    address: str,
    controller_id: int,
    settings: Mapping[str, str | None],
    given: ClientSetup,
    own_name: str,
    wanted: Intention,
    clock: Clock,
) -> SecurityAnswers:
    """Ask about the clock, the client's rights and the super users."""
    connection = await client.any_connection()
    has_tls = connection.peer_certificate is not None
    found = Listening(address, connection.host, has_tls, certificate_of(connection))
    rights: list[ResourceRights] = []
    unknown: list[str] = []
    for topic in wanted.topics:
        try:
            operations = await topic_operations(client, topic)
            rights.append(ResourceRights(ResourceType.TOPIC, topic, operations))
        except ClientError as error:
            unknown.append(f"the rights on topic {topic} are not known: {error}")
    for group in wanted.groups:
        try:
            allowed = await group_operations(client, group)
            rights.append(ResourceRights(ResourceType.GROUP, group, allowed))
        except ClientError as error:
            unknown.append(f"the rights on group {group} are not known: {error}")
    return SecurityAnswers(
        found,
        principal_of(given, own_name),
        wanted,
        await _clock_ahead_s(client, controller_id, clock),
        tuple(rights),
        tuple(unknown),
        settings.get("super.users") or "",
        await _users(client, settings),
    )


def principal_of(given: ClientSetup, own_name: str) -> str:
    """Return who the client is to the server, if the server maps no names of certificates."""
    if given.user:
        return str(Principal(USER_TYPE, given.user))
    if given.mechanism:
        # The server knows whose token it is.
        return "PRINCIPAL"
    if own_name:
        return str(Principal(USER_TYPE, own_name))
    return str(ANONYMOUS)


def security_problems(answers: SecurityAnswers, given: ClientSetup, now_s: float) -> list[str]:
    """Return the problems of a server that can be used."""
    # The login has succeeded: only the certificate is left to look at.
    problems = connection_problems(answers.found._replace(mechanisms=None), given, now_s)
    problems += clock_problems(answers.found.address, answers.clock_ahead_s)
    problems += right_problems(
        answers.rights,
        answers.principal,
        answers.found.address,
        is_producer=answers.wanted.is_producer,
        is_consumer=answers.wanted.is_consumer,
    )
    problems += answers.unknown_rights
    if answers.users is not None:
        problems += super_user_problems(answers.super_users, answers.users, answers.found.address)
    return problems


def security_notes(answers: SecurityAnswers, now_s: float) -> list[str]:
    """Return sentences about problems that are near."""
    return certificate_notes(answers.found, now_s)


async def _clock_ahead_s(client: AsyncClient, controller_id: int, clock: Clock) -> float | None:
    before_ms = clock.wall_ms()
    try:
        server_ms = await AdminClient(client).clock_ms(controller_id)
    except ClientError:
        return None
    return None if server_ms is None else (server_ms - (before_ms + clock.wall_ms()) / 2) / 1000


async def _users(client: AsyncClient, settings: Mapping[str, str | None]) -> frozenset[str] | None:
    """Return the users with a password; None if a client can be somebody else, or may not ask."""
    mechanisms = {one for one in (settings.get("sasl.enabled.mechanisms") or "").split(",") if one}
    if not settings.get("super.users") or settings.get("ssl.client.auth") != "none":
        return None
    if not mechanisms <= _WITH_PASSWORDS:
        return None
    try:
        return frozenset(one.user for one in await AdminClient(client).scram_credentials())
    except ClientError:
        return None
