"""Locks between processes, which the system lets go of when a process ends; file systems without them are named."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from typing import IO

WITHOUT = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_named: set[int] = set()  # devices


def lock(file: IO[str] | int, path: object, *, wait: bool) -> None:
    """Lock an open file for this process. BlockingIOError where another one holds it and `wait` is False.

    On a file system without flock (some network mounts) nothing is locked, and a sentence on stderr says so, once.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in WITHOUT:
            raise
        _name_once(file if isinstance(file, int) else file.fileno(), path)


def _name_once(handle: int, path: object) -> None:
    device = os.fstat(handle).st_dev
    if device not in _named:
        _named.add(device)
        print(
            f"{path}: this file system has no locks (flock), so two processes at work there at once are not noticed: "
            "run one at a time, or choose a folder on another disk.",
            file=sys.stderr,
        )
