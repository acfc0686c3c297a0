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
).map(tuple)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(IDS),
        st.booleans(),
        st.sampled_from(("one", "three")),
        st.none() | PROTOCOLS,
    ),
    max_size=12,
)


def request(
    member_id: str,
    protocols: tuple[MemberProtocol, ...],
    group_instance_id: str | None = None,
    client_id: str = "client",
) -> JoinRequest:
    """Return what a member says of itself."""
    return JoinRequest(
        *(member_id, group_instance_id, client_id, "/host", 10_000, 30_000, "workers", protocols),
        member_id,
    )


@given(STEPS)
def test_members_that_change_count_as_if_they_had_come_so(
    steps: list[tuple[str, bool, str, tuple[MemberProtocol, ...] | None]],
) -> None:
    """However members came to be what they are, size and common protocols are those of now."""
    table = MemberTable()
    now: dict[str, tuple[MemberProtocol, ...]] = {}
    for member_id, names_instance, client_id, protocols in steps:
        member = table.get(member_id)
        if protocols is None:
            now.pop(member_id, None)
            if member is not None:
                table.remove(member)
            continue
        now[member_id] = protocols
        # One that was static when it came stays so, whether it says so again or not.
        instance = f"instance {member_id}" if names_instance else None
        said = request(member_id, protocols, instance, client_id)
        if member is None:
            table.add(Member(member_id, instance, said))
        else:
            table.update(member, said)
    fresh = MemberTable()
    size_bytes = 0
    for member_id, protocols_now in now.items():
        known = table.get(member_id)
        assert known is not None
        again = request(member_id, protocols_now, known.group_instance_id, known.said.client_id)
        fresh.add(Member(member_id, known.group_instance_id, again))
        size_bytes += len(known.said.client_id) + len(known.group_instance_id or "")
        size_bytes += sum(len(one.name) + len(one.metadata) for one in known.said.protocols)
    assert size_bytes == fresh.size_bytes == table.size_bytes
    for member_id in (*IDS, "new"):
        for name in ("fair", "range", "sticky", "other"):
            asked = request(member_id, (MemberProtocol(name, b"12345"),))
            own = (fresh.get(member_id), table.get(member_id))
            assert fresh.can_take(asked, own[0], "workers") == table.can_take(
                asked, own[1], "workers"
            )
            assert fresh.size_bytes_with(asked, own[0]) == table.size_bytes_with(asked, own[1])


def test_a_static_member_that_names_itself_no_more_is_counted_as_it_is_stored() -> None:
    """Else 32 KB of each would escape the limit, until a start counts them again."""
    table = MemberTable()
    protocols = (MemberProtocol("range", b"12"),)
    member = Member("a", "i" * 900, request("a", protocols, "i" * 900))
    table.add(member)
    counted = table.size_bytes
    assert counted == table.size_bytes_with(request("a", protocols), member)
    table.update(member, request("a", protocols))
    assert ("i" * 900, counted) == (member.group_instance_id, table.size_bytes)
