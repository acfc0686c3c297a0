"""The fault campaigns in their short forms, and in full size for scripts/campaigns."""

from __future__ import annotations

import os

import pytest

from tests.campaigns import (
    backups,
    bit_rot,
    churn,
    clock_jumps,
    crash_states,
    derived_files,
    disk_full,
    exactly_once,
    failing_calls,
    group_kills,
    group_model,
    group_scale,
    kill_loop,
    mixed,
    nth_call,
    offset_rot,
    old_data,
    power_loss,
    rebalance_time,
    retries,
    seaweedmq_faults,
    seaweedmq_late,
    seaweedmq_outages,
    seaweedmq_takeovers,
    slow_disk,
    torn_tail,
    transaction_kills,
    zombies,
)
from tests.campaigns.client_process import have_clients
from tests.campaigns.traces import have_strace
from tests.seaweedfs.binary import NoWeedError, weed

SEED = 20_261


def have_seaweedfs() -> bool:
    """Whether the program is there."""
    try:
        weed()
    except NoWeedError:
        return False
    return True


# In continuous integration it is there, or the tests fail.
needs_strace = pytest.mark.skipif(
    not os.environ.get("CI") and not have_strace(), reason="needs strace to record system calls"
)
needs_seaweedfs = pytest.mark.skipif(
    not os.environ.get("CI") and not have_seaweedfs(), reason="needs SeaweedFS"
)
needs_clients = pytest.mark.skipif(
    os.environ.get("INTEROP_CLIENTS") != "required" and not have_clients(churn.EAGER),
    reason="no environments for the client libraries; scripts/test makes them",
)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.timeout(300)
class TestShort:
    """Every campaign but `failing_calls`, in its short form."""

    @pytest.mark.damages_storage("disks are as crashes left them")
    def test_crash_states(self) -> None:
        """No power loss after any file operation loses, moves or changes what was answered."""
        crash_states.run(SEED, full=False).conclude()

    @pytest.mark.damages_storage("segments are torn")
    def test_torn_tail(self) -> None:
        """However the last segment is torn, exactly the intact prefix is served."""
        torn_tail.run(SEED, full=False).conclude()

    @pytest.mark.damages_storage("bits are flipped")
    def test_bit_rot(self) -> None:
        """One flipped bit is found, never served, and costs no intact batch."""
        bit_rot.run(SEED, full=False).conclude()

    def test_offset_rot(self) -> None:
        """Whatever rots beside the records, no wrong offset is served and somebody says so."""
        offset_rot.run(SEED, full=False).conclude()

    @pytest.mark.damages_storage("disks fail")
    def test_nth_call(self) -> None:
        """Whichever file call fails, no false answer is given and reads go on."""
        nth_call.run(SEED, full=False).conclude()

    @pytest.mark.damages_storage("files are garbled")
    def test_derived_files(self) -> None:
        """Whatever is derived can be lost without anything that is served changing."""
        derived_files.run(SEED, full=False).conclude()

    def test_clock_jumps(self) -> None:
        """However the wall clock jumps, no record is removed and no member is put out."""
        clock_jumps.run(SEED, full=False).conclude()

    def test_kill_loop(self) -> None:
        """A process that is killed under real producers loses nothing and starts unattended."""
        kill_loop.run(SEED, full=False).conclude()

    def test_backups(self) -> None:
        """A backup that is finished is whole, whatever is killed beside it."""
        backups.run(SEED, full=False).conclude()

    @needs_strace
    def test_power_loss(self) -> None:
        """Whatever a power loss leaves of a real process's files, all that it answered is there."""
        power_loss.run(SEED, full=False).conclude()

    @pytest.mark.skipif(not disk_full.may_mount(), reason="needs the right to mount a tmpfs")
    def test_disk_full(self) -> None:
        """A full disk is refused clearly, read from, and written again once it is freed."""
        disk_full.run(SEED, full=False).conclude()

    def test_old_data(self) -> None:
        """What older revisions left is opened and served, after an interrupted open, too."""
        old_data.run(SEED, full=False).conclude()

    def test_slow_disk(self) -> None:
        """However long a sync takes, nothing is answered before it and nobody else waits for it."""
        slow_disk.run(SEED, full=False).conclude()

    @pytest.mark.damages_storage("disks are as crashes left them")
    def test_retries(self) -> None:
        """What is sent again after a crash is stored once, and answered with its own offset."""
        retries.run(SEED, full=False).conclude()

    @pytest.mark.damages_storage("disks are as crashes left them")
    def test_transaction_kills(self) -> None:
        """Wherever a transaction is struck, readers see all of it or nothing, as it was told."""
        transaction_kills.run(SEED, full=False).conclude()

    def test_zombies(self) -> None:
        """Whoever is no member of a generation any more is refused and changes nothing."""
        zombies.run(SEED, full=False).conclude()

    def test_group_model(self) -> None:
        """In random histories of a group its invariants hold after every step."""
        group_model.run(SEED, full=False).conclude()

    def test_rebalance_time(self) -> None:
        """Groups that rebalance again and again are told the truth each time."""
        rebalance_time.run(SEED, full=False).conclude()

    def test_group_scale(self) -> None:
        """Consumers that stay are left alone, and their heartbeats cost no memory."""
        group_scale.run(SEED, full=False).conclude()

    def test_group_kills(self) -> None:
        """A kill in any state of a group loses no commit and disturbs no member."""
        group_kills.run(SEED, full=False).conclude()

    @needs_seaweedfs
    def test_seaweedmq_faults(self) -> None:
        """Whatever is killed, and however the network lies, SeaweedFS has what was answered."""
        seaweedmq_faults.run(SEED, full=False).conclude()

    @pytest.mark.interop
    @needs_clients
    def test_churn(self) -> None:
        """Members come, go, are killed and paused: no group is stuck, no record is skipped."""
        churn.run(SEED, full=False).conclude()

    @pytest.mark.interop
    @needs_clients
    def test_mixed(self) -> None:
        """Faults of all kinds at once leave every transaction whole and nobody stuck."""
        mixed.run(SEED, full=False).conclude()


@pytest.mark.campaign
@pytest.mark.full
@pytest.mark.timeout(3_600)
class TestFull:
    """Every campaign in full size."""

    @pytest.mark.damages_storage("disks are as crashes left them")
    def test_crash_states(self) -> None:
        """50,000 states, 5,000 of them inside recovery."""
        crash_states.run(SEED, full=True).conclude()

    def test_kill_loop(self) -> None:
        """100 kills of a real process under real idempotent producers."""
        kill_loop.run(SEED, full=True).conclude()

    def test_backups(self) -> None:
        """104 kills of gateways and backups."""
        backups.run(SEED, full=True).conclude()

    def test_clock_jumps(self) -> None:
        """1,000 jumps of the wall clock, over five kills."""
        clock_jumps.run(SEED, full=True).conclude()

    @pytest.mark.damages_storage("segments are torn")
    def test_torn_tail(self) -> None:
        """5,000 cuts and fillers."""
        torn_tail.run(SEED, full=True).conclude()

    @pytest.mark.damages_storage("bits are flipped")
    def test_bit_rot(self) -> None:
        """10,000 flips over all files and the database."""
        bit_rot.run(SEED, full=True).conclude()

    def test_offset_rot(self) -> None:
        """10,000 flips and cuts in everything but the records."""
        offset_rot.run(SEED, full=True).conclude()

    @pytest.mark.damages_storage("disks fail")
    def test_nth_call(self) -> None:
        """Every n of two scripts, four errors, once and persistently."""
        nth_call.run(SEED, full=True).conclude()

    def test_power_loss(self) -> None:
        """200 images of what a power loss leaves, a gateway started on each."""
        power_loss.run(SEED, full=True).conclude()

    def test_failing_calls(self) -> None:
        """60 runs of a real process in which system calls fail."""
        failing_calls.run(SEED, full=True).conclude()

    def test_disk_full(self) -> None:
        """20 times full and free again."""
        disk_full.run(SEED, full=True).conclude()

    @pytest.mark.damages_storage("files are garbled")
    def test_derived_files(self) -> None:
        """64 subsets, ten times each."""
        derived_files.run(SEED, full=True).conclude()

    def test_group_model(self) -> None:
        """2,000 histories of 50 steps."""
        group_model.run(SEED, full=True).conclude()

    def test_rebalance_time(self) -> None:
        """100 groups of 10 members, and one of 1,000."""
        rebalance_time.run(SEED, full=True).conclude()

    def test_group_scale(self) -> None:
        """1,000 consumers in 100 groups for two minutes."""
        group_scale.run(SEED, full=True).conclude()

    def test_old_data(self) -> None:
        """All fixtures, each interrupted in many places, and killed while it is opened."""
        old_data.run(SEED, full=True).conclude()

    def test_slow_disk(self) -> None:
        """20 s each of syncs of 50 ms, 500 ms and 5 s, and a stall of 30 s."""
        slow_disk.run(SEED, full=True).conclude()

    @pytest.mark.damages_storage("disks are as crashes left them")
    def test_retries(self) -> None:
        """440 crashes in-process and 60 of a process."""
        retries.run(SEED, full=True).conclude()

    @pytest.mark.damages_storage("disks are as crashes left them")
    def test_transaction_kills(self) -> None:
        """20 kills at each of 12 steps, for commit and for abort, and stale frames."""
        transaction_kills.run(SEED, full=True).conclude()

    def test_zombies(self) -> None:
        """1,000 attempts in-process and 200 over sockets."""
        zombies.run(SEED, full=True).conclude()

    @needs_seaweedfs
    def test_seaweedmq_faults(self) -> None:
        """100 kills of gateways, 60 of SeaweedFS's processes, 5,000 faults between them."""
        seaweedmq_faults.run(SEED, full=True).conclude()

    @needs_seaweedfs
    def test_seaweedmq_late(self) -> None:
        """320 updates each that are late, lost or never answered, right before a kill."""
        seaweedmq_late.run(SEED, full=True).conclude()

    @needs_seaweedfs
    def test_seaweedmq_takeovers(self) -> None:
        """500 rolls while another takes over, 512 appends of gateways that wake too late."""
        seaweedmq_takeovers.run(SEED, full=True).conclude()

    @needs_seaweedfs
    def test_seaweedmq_outages(self) -> None:
        """A minute without a filer, volumes without room, chunks lost and altered."""
        seaweedmq_outages.run(SEED, full=True).conclude()

    def test_churn(self) -> None:
        """500 events among five groups of four client libraries."""
        churn.run(SEED, full=True).conclude()

    def test_exactly_once(self) -> None:
        """Pipelines of three client libraries for three minutes, and what they are worth."""
        exactly_once.run(SEED, full=True).conclude()

    def test_mixed(self) -> None:
        """Ten clients of four libraries for five minutes."""
        mixed.run(SEED, full=True).conclude()

    def test_group_kills(self) -> None:
        """20 kills in each of the five states of a group."""
        group_kills.run(SEED, full=True).conclude()
