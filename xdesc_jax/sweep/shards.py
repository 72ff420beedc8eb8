"""Who trains which members of a sweep at this moment.

In: a sweep's folder, which all shards share, and a shard. Out: the shard's lock, unless another process trains any of
its members, be it as the same shard or as one of another division.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from xdesc_jax.files.claim import SUFFIX, InUse, claimed, holder, inside
from xdesc_jax.sweep.config import Member
from xdesc_jax.sweep.plan import shard_of

WORK = "xdesc sweep"
_LOCK = re.compile(rf"\.shard-(\d+)-of-(\d+)\{SUFFIX}")


@contextlib.contextmanager
def claimed_shard(
    workdir: Path, members: Sequence[Member], index: int, count: int, overwrite: bool
) -> Iterator[contextlib.ExitStack]:
    """Only this process trains the members of a shard while the body runs.

    Args:
        workdir: the sweep's folder.
        members: of the whole sweep.
        index, count: the shard.
        overwrite: the folder is to be cleared, so nobody else may train any member.

    Yields:
        What keeps other shards from starting, to be closed once the sweep's settings are in the folder.

    Raises:
        InUse: another process trains some of its members.
    """
    mine = {member.name for member in shard_of(members, index, count)}
    with contextlib.ExitStack() as shard, contextlib.ExitStack() as start:
        start.enter_context(claimed(inside(workdir, "start"), WORK, workdir, wait=True))
        for i, n, lock in _locks(workdir):
            found = None if (i, n) == (index, count) else holder(lock)
            shared = mine & {member.name for member in shard_of(members, i, n)}
            if found is not None and (overwrite or shared):
                what = "to be overwritten" if overwrite else f"which has {len(shared)} members of shard {index}/{count}"
                raise InUse(f"{workdir}: another process works on its shard {i}/{n}, {what}: {found}")
        lock = inside(workdir, f"shard-{index}-of-{count}")
        shard.enter_context(claimed(lock, f"{WORK} --shard {index}/{count}", workdir))
        yield start


def _locks(workdir: Path) -> list[tuple[int, int, Path]]:
    """Number, division and lock of the shards that have one."""
    found = [(_LOCK.fullmatch(path.name), path) for path in workdir.glob(f".shard-*{SUFFIX}")]
    return [(int(match[1]), int(match[2]), path) for match, path in found if match]
