"""Verifies that a backup is unchanged and that a server could use a directory restored from it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.backup.copying import Copier, Part
from kgw.backend.embedded.backup.manifest import MANIFEST_NAME
from kgw.backend.embedded.backup.restoring import finish_state
from kgw.backend.embedded.backup.view import BackupView
from kgw.backend.embedded.offline.check import check_directory, check_topics
from kgw.backend.storage_problem import StorageProblem
from kgw.errors import CorruptionError, KgwError
from kgw.offsets.storage import CHECKPOINT_KIND, OffsetStorage
from kgw.state.base import DamagedRowsError
from kgw.state.sql.sqlite import SqliteStateStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.backend.embedded.backup.backup_directory import BackupDirectory
    from kgw.backend.embedded.backup.manifest import Manifest
    from kgw.backend.embedded.backup.taking import Tools


def verify_backup(
    backups: BackupDirectory,
    manifest: Manifest,
    rate: int,
    tools: Tools,
    known: dict[tuple[int, int], str],
) -> list[StorageProblem]:
    """Read every byte of a backup and return its problems. Raises OSError.

    Backups share files, so `known` has the checksums of verified files by device and inode. The
    checksums of newly read files are added to it.
    """
    path = backups.backup_path(manifest.name)
    problems = list(_check_files(path, manifest, rate, tools, known))
    if problems:
        # The damaged files already name their logs, so checking the contents would add nothing.
        return problems
    return [
        problem._replace(path=f"{path}{problem.path}")
        for problem in _check_contents(path, manifest)
    ]


def _check_files(
    path: str, manifest: Manifest, rate: int, tools: Tools, known: dict[tuple[int, int], str]
) -> Iterator[StorageProblem]:
    files = manifest.files()
    found = set(_names_below(path)) - {MANIFEST_NAME}
    for name in sorted(found - files.keys()):
        yield StorageProblem(f"{path}/{name}", "is not in the manifest")
    with tools.show(sum(one.size_bytes for one in files.values())) as advance:
        copier = Copier(advance, rate, tools.monotonic_s, tools.sleep)
        for name, file in files.items():
            if name not in found:
                yield StorageProblem(f"{path}/{name}", "is missing")
                continue
            status = os.stat(f"{path}/{name}")  # noqa: PTH116 - as in files/fs
            if status.st_size != file.size_bytes:
                yield StorageProblem(
                    f"{path}/{name}", f"has {status.st_size} bytes, and had {file.size_bytes}"
                )
                continue
            inode = status.st_dev, status.st_ino
            if inode in known:
                advance(file.size_bytes)
            else:
                try:
                    known[inode] = copier.hash(Part(f"{path}/{name}", 0, file.size_bytes))
                except CorruptionError as error:
                    yield StorageProblem(f"{path}/{name}", str(error))
                    continue
            if known[inode] != file.sha256:
                yield StorageProblem(f"{path}/{name}", "fails its checksum")


def _names_below(path: str) -> Iterator[str]:
    for directory, _, names in os.walk(path):
        for name in names:
            yield os.path.relpath(f"{directory}/{name}", path)


def _check_contents(path: str, manifest: Manifest) -> list[StorageProblem]:
    """Open the state and check the logs as `kgw log check` does."""
    with TemporaryDirectory(prefix="kgw-verify-") as temporary:
        # Opening a database writes to it.
        copy = Path(temporary) / layout.STATE_NAME
        copy.write_bytes((Path(path) / layout.STATE_NAME).read_bytes())
        try:
            return asyncio.run(_check_copy(str(copy), BackupView(path, manifest), manifest))
        except KgwError as error:
            return [StorageProblem(f"/{layout.STATE_NAME}", str(error))]


async def _check_copy(path: str, view: BackupView, manifest: Manifest) -> list[StorageProblem]:
    async with SqliteStateStore(path, quick_check=True) as store:
        loaded = await OffsetStorage(store).load()
        problems = [
            StorageProblem(f"/{layout.STATE_NAME}", f"the checkpoint of {key} is damaged")
            for key in sorted(loaded.damaged)
        ]
        problems += await _check_rows(store)
        problems += await check_topics("", view, store)
    if not problems:
        # A restore makes the same changes and would fail with the same error.
        await finish_state(path, manifest)
    problems += await asyncio.to_thread(check_directory, "", view, loaded.checkpoints)
    return problems


async def _check_rows(store: SqliteStateStore) -> list[StorageProblem]:
    problems = []
    for kind in await store.kinds():
        if kind == CHECKPOINT_KIND:
            continue  # reported already, by partition
        try:
            await store.load(kind)
        except DamagedRowsError as error:
            problems.append(StorageProblem(f"/{layout.STATE_NAME}", str(error)))
    return problems
