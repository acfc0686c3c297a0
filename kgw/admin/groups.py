"""The members of groups, with their states, as JSON."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from kgw.admin.answers import NotFoundError, page
from kgw.admin.parameters import AFTER, GROUP, Parameter

if TYPE_CHECKING:
    from kgw.admin.answers import Answer
    from kgw.admin.parameters import QueryParameters
    from kgw.admin.rights import Viewer
    from kgw.gateway import Gateway

MEMBER = Parameter(
    "member", "Only this member id; its `state` is `unknown` where the group does not have it."
)


async def members(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    name = query.text(GROUP) or ""
    found = gateway.groups.members(name, query.text(MEMBER))
    described = gateway.groups.describe(name)
    if found is None or described is None:
        raise NotFoundError(f"there is no group {name!r}")
    after = query.text(AFTER)
    rows = sorted(
        (one for one in found if after is None or one["member_id"] > after),
        key=itemgetter("member_id"),
    )[: query.limit + 1]
    return {
        "group": name,
        "state": described.state,
        "generation": described.generation,
        **page("members", rows, query.limit, itemgetter("member_id")),
    }
