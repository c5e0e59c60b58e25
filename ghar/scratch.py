"""A temporary folder of each command's own, so that nothing of it or of a library is left in the system's.

TMPDIR of a command and of what it starts leads to a folder that it holds by a lock. The folder goes when the command
ends. One whose command was killed is removed by the next command of this user on this machine: a lock may be this
machine's own, also on a shared disk.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

PREFIX = "ghar-tmp-"
HOLDER = ".held"  # its file, locked as long as the process lives
TRIES, PAUSE = 20, 0.2  # of removing what other processes still write to; seconds

_own: list[Path] = []  # the folder of this process, once it has one


def use_own_folder() -> None:
    """Lead this process and those that it starts to a temporary folder of their own, once; forks share it."""
    if _own:
        return
    with suppress(OSError):  # a full or closed disk: whoever needs a file there reports it
        _own.append(hold_folder(system_folder()))
        os.environ["TMPDIR"] = tempfile.tempdir = str(_own[0])


def system_folder() -> Path:
    """The temporary folder that the user has, and not a command's own in it."""
    here = Path(tempfile.gettempdir())
    return here.parent if here.name.startswith(PREFIX) else here


def hold_folder(base: Path) -> Path:
    """Make a folder in `base` that is removed when this process ends, or by the next command after a kill."""
    sweep(base)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=base))
        holder = (folder / HOLDER).open("w")
        with suppress(OSError):  # a file system without locks: no sweep can take the lock either
            fcntl.flock(holder, fcntl.LOCK_EX)
        if (folder / HOLDER).exists():
            with suppress(OSError):  # systemd-tmpfiles takes what is old, but for a folder that is locked itself
                fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
            atexit.register(_end, folder, holder, os.getpid())
            return folder
        holder.close()  # another command swept it before it was locked


def is_abandoned(folder: Path) -> bool:
    """Whether a folder was a command's own and its command has ended."""
    if not folder.name.startswith(PREFIX):
        return False
    try:
        with (folder / HOLDER).open("r+") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return not folder.exists()
    except OSError:  # it is at work, or of another user, or on a file system without locks
        return False


def sweep(base: Path) -> None:
    """Remove the folders in `base` whose commands were killed."""
    for folder in base.glob(f"{_prefix()}*"):
        with suppress(OSError):
            if not _is_own(folder, stat.S_ISDIR) or not _is_own(folder / HOLDER, stat.S_ISREG):
                continue  # another user could lead both to files of ours
            with open(os.open(folder / HOLDER, os.O_RDWR | os.O_NOFOLLOW), "r+") as holder:
                fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)


def _prefix() -> str:
    """How the names of this machine's folders begin."""
    return f"{PREFIX}{re.sub(r'[^A-Za-z0-9]', '', socket.gethostname())[:12]}-"


def _is_own(path: Path, kind: Callable[[int], bool]) -> bool:
    """Whether a path, and not what a link leads to, is of this kind and this user's."""
    about = path.lstat()
    return kind(about.st_mode) and about.st_uid == os.getuid()


def _end(folder: Path, holder: IO[str], owner: int) -> None:
    """Remove the folder of this process; a fork of it leaves the folder alone."""
    if os.getpid() != owner:
        return
    for _ in range(TRIES):
        with suppress(OSError):
            if not folder.exists() or _remove(folder):
                break
        time.sleep(PAUSE)
    holder.close()


def _remove(folder: Path) -> bool:
    """Remove a folder, and its holder's file last, so that a half removed one is found again; whether it is gone."""
    for path in folder.iterdir():
        if path.name == HOLDER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if len(list(folder.iterdir())) > 1:
        return False
    (folder / HOLDER).unlink(missing_ok=True)
    with suppress(OSError):  # something came meanwhile
        folder.rmdir()
    return not folder.exists()
