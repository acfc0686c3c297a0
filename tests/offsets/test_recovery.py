from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.offsets.recovery import (
    AnomalyKind,
    Checkpoint,
    Recovered,
    RecoveryFacts,
    RecoveryPlan,
    ScanResult,
    ScanStart,
    SegmentFacts,
    conclude_recovery,
    plan_recovery,
)
from kgw.types import TopicId

TOPIC_ID = TopicId(b"t" * 16)
OTHER_ID = TopicId(b"o" * 16)


def checkpoint(
    next_offset: int = 500,
    *,
    base: int = 400,
    position: int = 9_000,
    start: int = 0,
    clean: bool = False,
    topic_id: TopicId = TOPIC_ID,
    partition: int = 3,
) -> Checkpoint:
    """Return a checkpoint in epoch 5."""
    return Checkpoint(topic_id, partition, start, next_offset, 5, base, position, clean)


def facts(
    *segments: tuple[int, int], clean: bool = False, start: int = 0, epoch: int = 5
) -> RecoveryFacts:
    """Return what a log of these segments (base offset, bytes) shows."""
    return RecoveryFacts(
        TOPIC_ID, 3, [SegmentFacts(*segment) for segment in segments], clean, start, epoch
    )


def kinds(outcome: RecoveryPlan | Recovered) -> list[AnomalyKind]:
    """Return which anomalies were found."""
    assert all(anomaly.detail for anomaly in outcome.anomalies)
    return [anomaly.kind for anomaly in outcome.anomalies]


def test_a_new_log_begins_at_zero() -> None:
    """No checkpoint and no segment are no anomaly; the first epoch is 0."""
    plan = plan_recovery(None, facts(epoch=-1))

    assert plan.scan is None
    assert Recovered(0, 0, 0, 0, ()) == conclude_recovery(plan)


def test_a_clean_stop_is_trusted_without_reading() -> None:
    """The checkpoint says where to go on, in the same epoch (rule 5)."""
    plan = plan_recovery(checkpoint(clean=True, start=7), facts((0, 10), (400, 9_000), clean=True))

    assert plan.scan is None
    assert Recovered(7, 500, 500, 5, ()) == conclude_recovery(plan)


@pytest.mark.parametrize("known", [checkpoint(), checkpoint(clean=True), None])
def test_an_unclean_stop_goes_on_above_what_was_reserved(known: Checkpoint | None) -> None:
    """Offsets that may have been answered are left out, and that is announced (rule 2)."""
    log = facts((400, 12_000))._replace(reserved_end=900)
    recovered = conclude_recovery(plan_recovery(known, log), ScanResult(620, 5))

    assert (620, 900, 6) == (
        recovered.log_end_offset,
        recovered.next_offset,
        recovered.leader_epoch,
    )
    assert AnomalyKind.GAP_ANNOUNCED in kinds(recovered)
    assert "620 to 899" in recovered.anomalies[-1].detail


@pytest.mark.parametrize(("known", "begin"), [(checkpoint(), 900), (None, 0)])
def test_a_log_that_lost_its_segments_begins_above_what_was_reserved(
    known: Checkpoint | None, begin: int
) -> None:
    """There is nothing to be read below; one that never had a segment has answered nothing."""
    recovered = conclude_recovery(plan_recovery(known, facts()._replace(reserved_end=900)))

    assert (begin, begin) == (recovered.log_start_offset, recovered.next_offset)


@pytest.mark.parametrize(
    ("segments", "scanned"), [([], None), ([(400, 9_000)], ScanResult(620, 5))]
)
def test_no_offset_below_the_log_start_is_given_again(
    segments: list[tuple[int, int]], scanned: ScanResult | None
) -> None:
    """The log began there when its last records were deleted, after the checkpoint (rule 2)."""
    plan = plan_recovery(checkpoint(500), facts(*segments, start=700))
    recovered = conclude_recovery(plan, scanned)

    assert (700, 700) == (recovered.log_start_offset, recovered.next_offset)


@pytest.mark.parametrize("reserved_end", [0, 400, 620])
def test_a_reservation_that_is_used_up_leaves_no_gap(reserved_end: int) -> None:
    """What the log holds above it was durable before it was answered."""
    log = facts((400, 12_000))._replace(reserved_end=reserved_end)
    recovered = conclude_recovery(plan_recovery(checkpoint(), log), ScanResult(620, 5))

    assert (620, []) == (recovered.next_offset, kinds(recovered))


def test_an_orderly_stop_leaves_no_gap() -> None:
    """Everything was durable then, whatever is reserved for later."""
    log = facts((0, 10), (400, 9_000), clean=True)._replace(reserved_end=10_000)

    recovered = conclude_recovery(plan_recovery(checkpoint(clean=True), log))

    assert Recovered(0, 500, 500, 5, ()) == recovered


@pytest.mark.parametrize(("marker", "clean"), [(True, False), (False, True), (False, False)])
def test_an_unclean_stop_is_scanned_from_the_checkpoint(marker: bool, clean: bool) -> None:
    """What the log holds above the checkpoint counts, under a new epoch."""
    plan = plan_recovery(
        checkpoint(clean=clean), facts((0, 10), (400, 12_000), (600, 50), clean=marker)
    )

    assert ScanStart(400, 9_000, 500) == plan.scan
    assert Recovered(0, 620, 620, 6, ()) == conclude_recovery(plan, ScanResult(620, 5))


def test_an_unclean_stop_with_nothing_above_is_scanned_all_the_same() -> None:
    """The last batch may be torn within the known bytes' neighbours; the epoch rises."""
    plan = plan_recovery(checkpoint(), facts((400, 9_000)))

    assert ScanStart(400, 9_000, 500) == plan.scan
    assert Recovered(400, 500, 500, 6, ()) == conclude_recovery(plan, ScanResult(500))


def test_a_log_that_goes_on_after_a_clean_stop_is_reported() -> None:
    """A checkpoint behind the log costs a scan and is told."""
    for segments in (((400, 9_001),), ((400, 9_000), (500, 80))):
        plan = plan_recovery(checkpoint(clean=True), facts(*segments, clean=True))

        assert [AnomalyKind.CHECKPOINT_BEHIND] == kinds(plan)
        assert ScanStart(400, 9_000, 500) == plan.scan
        assert conclude_recovery(plan, ScanResult(510)).next_offset == 510


@pytest.mark.parametrize("clean", [True, False])
def test_a_checkpoint_ahead_of_the_log_leaves_a_hole(clean: bool) -> None:
    """Offsets that were handed out and are gone do not come back with other records (rule 2)."""
    plan = plan_recovery(checkpoint(clean=clean), facts((0, 10), (400, 8_999), clean=clean))
    assert ScanStart(400, 0, 400) == plan.scan

    recovered = conclude_recovery(plan, ScanResult(490, 5))

    assert [AnomalyKind.CHECKPOINT_AHEAD] == kinds(recovered)
    assert (500, 490, 6) == (
        recovered.next_offset,
        recovered.log_end_offset,
        recovered.leader_epoch,
    )


def test_a_missing_last_segment_is_a_checkpoint_ahead() -> None:
    """The segment before it is read again."""
    plan = plan_recovery(checkpoint(), facts((0, 10), (300, 70)))

    assert ScanStart(300, 0, 300) == plan.scan
    assert [AnomalyKind.CHECKPOINT_AHEAD] == kinds(plan)
    assert conclude_recovery(plan, ScanResult(400)).next_offset == 500


def test_a_log_that_begins_after_the_checkpoint_is_read_from_its_beginning() -> None:
    """A checkpoint so old that its segment is gone saves no time and is told."""
    plan = plan_recovery(checkpoint(), facts((700, 10), (800, 70)))

    assert ScanStart(700, 0, 700) == plan.scan
    assert [AnomalyKind.CHECKPOINT_BEHIND] == kinds(plan)
    assert Recovered(700, 900, 900, 6, plan.anomalies) == conclude_recovery(plan, ScanResult(900))


def test_segments_that_retention_removed_are_not_missed() -> None:
    """A checkpoint below the log start is old, not wrong."""
    plan = plan_recovery(checkpoint(), facts((700, 10), (800, 70), start=700))

    assert ScanStart(700, 0, 700) == plan.scan
    assert kinds(plan) == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_without_files_goes_on_after_what_was_handed_out(clean: bool) -> None:
    """Nothing is left to read, nothing below is assigned again, and clients see a new epoch."""
    plan = plan_recovery(checkpoint(clean=clean), facts(clean=clean, epoch=-1))

    assert [AnomalyKind.LOG_MISSING] == kinds(plan)
    assert Recovered(500, 500, 500, 6, plan.anomalies) == conclude_recovery(plan)


def test_an_empty_log_with_an_empty_checkpoint_is_whole() -> None:
    """A partition that nothing was ever written to needs no file."""
    plan = plan_recovery(checkpoint(0, base=0, position=0, clean=True), facts(clean=True))

    assert Recovered(0, 0, 0, 5, ()) == conclude_recovery(plan)


@pytest.mark.parametrize(
    ("damaged", "kind"),
    [(False, AnomalyKind.CHECKPOINT_MISSING), (True, AnomalyKind.CHECKPOINT_DAMAGED)],
)
@pytest.mark.parametrize("clean", [True, False])
def test_without_a_checkpoint_the_whole_log_is_read(
    damaged: bool, kind: AnomalyKind, clean: bool
) -> None:
    """Its loss is told, costs time, and raises the epoch even after a clean stop."""
    plan = plan_recovery(
        None, facts((100, 10), (400, 70), clean=clean, start=150), checkpoint_damaged=damaged
    )

    assert ScanStart(100, 0, 100) == plan.scan
    assert [kind] == kinds(plan)
    assert Recovered(150, 480, 480, 10, plan.anomalies) == conclude_recovery(
        plan, ScanResult(480, 9)
    )


def test_a_scan_that_ends_early_never_goes_below_a_segments_name() -> None:
    """A segment is named by an offset that was next once, whatever can be read of it."""
    plan = plan_recovery(None, facts((0, 100), (400, 0)))

    recovered = conclude_recovery(plan, ScanResult(350, 5))

    assert [AnomalyKind.CHECKPOINT_MISSING, AnomalyKind.RECORDS_MISSING] == kinds(recovered)
    assert (400, 350) == (recovered.next_offset, recovered.log_end_offset)


def test_empty_files_without_a_checkpoint_are_no_anomaly() -> None:
    """A crash right after creation leaves them."""
    plan = plan_recovery(None, facts((0, 0), epoch=-1))

    assert kinds(plan) == []
    assert conclude_recovery(plan, ScanResult(0)).next_offset == 0


@pytest.mark.parametrize("other", [{"topic_id": OTHER_ID}, {"partition": 4}])
def test_another_logs_checkpoint_is_not_used(other: dict[str, object]) -> None:
    """A topic that was made again under the same name shares nothing with the old one."""
    plan = plan_recovery(
        checkpoint(90_000, base=0, clean=True, **other),  # type: ignore[arg-type]
        facts((0, 9_000), clean=True),
    )

    assert [AnomalyKind.CHECKPOINT_FOREIGN] == kinds(plan)
    assert conclude_recovery(plan, ScanResult(10)).next_offset == 10


@pytest.mark.parametrize(
    "nonsense",
    [
        checkpoint(5, start=6),
        checkpoint(5, base=6),
        checkpoint(position=-1),
        checkpoint(-1, base=-1, start=-1),
        checkpoint()._replace(leader_epoch=-2),
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_damaged(nonsense: Checkpoint) -> None:
    """A good checksum does not make sense of it."""
    plan = plan_recovery(nonsense, facts((400, 9_000), clean=True))

    assert [AnomalyKind.CHECKPOINT_DAMAGED] == kinds(plan)
    assert ScanStart(400, 0, 400) == plan.scan


def test_the_log_start_is_the_highest_that_anyone_knows() -> None:
    """Deleted records do not come back with an older checkpoint, nor with older files."""
    assert plan_recovery(checkpoint(start=410), facts((400, 9_000))).log_start_offset == 410
    assert plan_recovery(checkpoint(), facts((400, 9_000), start=420)).log_start_offset == 420
    assert plan_recovery(checkpoint(start=5), facts((400, 9_000))).log_start_offset == 400


def test_a_plan_and_its_scan_belong_together() -> None:
    """A scan that was not asked for, or is missing, is a mistake of the caller."""
    with pytest.raises(ValueError, match="scan"):
        conclude_recovery(plan_recovery(checkpoint(), facts((400, 9_000))))
    with pytest.raises(ValueError, match="scan"):
        conclude_recovery(plan_recovery(None, facts()), ScanResult(5))


checkpoints = st.none() | st.builds(
    Checkpoint,
    st.sampled_from([TOPIC_ID, OTHER_ID]),
    st.sampled_from([3, 4]),
    st.integers(-1, 60),
    st.integers(-1, 60),
    st.integers(-1, 9),
    st.sampled_from([0, 10, 20, 30, 45]),
    st.integers(-1, 300),
    st.booleans(),
)


@given(
    known=checkpoints,
    bases=st.sets(st.sampled_from([0, 10, 20, 30]), max_size=4),
    last_count=st.integers(0, 10),
    torn_bytes=st.integers(0, 9),
    clean_stop=st.booleans(),
    epoch=st.integers(-1, 9),
    damaged=st.booleans(),
)
def test_no_checkpoint_makes_an_offset_come_back(
    known: Checkpoint | None,
    bases: set[int],
    last_count: int,
    torn_bytes: int,
    clean_stop: bool,
    epoch: int,
    damaged: bool,
) -> None:
    """Whatever checkpoint meets whatever log: nothing in the log is assigned again.

    The log here has ten bytes a record and ten records a segment but the last.
    """
    ordered = sorted(bases)
    segments = [SegmentFacts(base, 100) for base in ordered]
    log_end = 0
    if ordered:
        segments[-1] = SegmentFacts(ordered[-1], last_count * 10 + torn_bytes)
        log_end = ordered[-1] + last_count
    log = RecoveryFacts(TOPIC_ID, 3, segments, clean_stop, 0, epoch)

    plan = plan_recovery(known, log, checkpoint_damaged=damaged and known is None)
    scanned = None
    if plan.scan is not None:
        assert plan.scan.segment_base_offset in ordered
        scanned = ScanResult(max(log_end, plan.scan.next_offset), epoch)
    recovered = conclude_recovery(plan, scanned)

    trusted = plan.scan is None and bool(segments)
    if not trusted:
        assert recovered.next_offset >= log_end
        if segments or recovered.anomalies:
            assert recovered.leader_epoch > epoch or recovered.leader_epoch == 0 == epoch + 1
    unused = {AnomalyKind.CHECKPOINT_FOREIGN, AnomalyKind.CHECKPOINT_DAMAGED}
    if known is not None and unused.isdisjoint(kinds(recovered)):
        assert recovered.next_offset >= known.next_offset
        assert recovered.log_start_offset >= known.log_start_offset
    assert 0 <= recovered.log_start_offset <= recovered.next_offset
    assert recovered.log_end_offset <= recovered.next_offset


def test_a_checkpoint_from_before_the_first_epoch_is_a_sound_one() -> None:
    """A log that never had an epoch says so; the first one is 0."""
    known = checkpoint(clean=True)._replace(leader_epoch=-1)
    plan = plan_recovery(known, facts((0, 10), (400, 9_000), clean=True, epoch=-1))

    assert ([], None) == (kinds(plan), plan.scan)
    assert Recovered(0, 500, 500, 0, ()) == conclude_recovery(plan)
