"""MemberTable: what it counts as members come, change and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgw.groups.members import Member, MemberTable
from kgw.groups.requests import JoinRequest, MemberProtocol

IDS = ("a", "b", "c")
PROTOCOLS = st.lists(
    st.builds(MemberProtocol, st.sampled_from(("fair", "range", "sticky")), st.binary(max_size=3)),
    min_size=1,
    max_size=3,
    unique_by=lambda protocol: protocol.name,
).map(tuple)


def request(member_id: str, protocols: tuple[MemberProtocol, ...]) -> JoinRequest:
    """Return what a member says of itself."""
    return JoinRequest(
        member_id, None, "client", "/host", 10_000, 30_000, "workers", protocols, member_id
    )


@given(st.lists(st.tuples(st.sampled_from(IDS), st.none() | PROTOCOLS), max_size=12))
def test_members_that_change_count_as_if_they_had_come_so(
    steps: list[tuple[str, tuple[MemberProtocol, ...] | None]],
) -> None:
    """However members came to be what they are, size and common protocols are those of now."""
    table = MemberTable()
    now: dict[str, tuple[MemberProtocol, ...]] = {}
    for member_id, protocols in steps:
        member = table.get(member_id)
        if protocols is None:
            now.pop(member_id, None)
            if member is not None:
                table.remove(member)
            continue
        now[member_id] = protocols
        if member is None:
            table.add(Member(member_id, request(member_id, protocols)))
        else:
            table.update(member, request(member_id, protocols))
    fresh = MemberTable()
    for member_id, protocols in now.items():
        fresh.add(Member(member_id, request(member_id, protocols)))
    assert fresh.size_bytes == table.size_bytes
    for member_id in (*IDS, "new"):
        for name in ("fair", "range", "sticky", "other"):
            asked = request(member_id, (MemberProtocol(name, b"12345"),))
            assert fresh.can_take(asked, "workers") == table.can_take(asked, "workers")
            assert fresh.size_bytes_with(asked) == table.size_bytes_with(asked)
