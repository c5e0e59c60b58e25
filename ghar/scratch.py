"""A temporary folder of each command's own, so that nothing of it or of a library is left in the system's.

TMPDIR of a command and of what it starts leads to a folder that it holds by a lock. The folder goes when the command
ends. One whose command was killed is removed by the next command of this user.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from ghar.lock import lock

PREFIX = "ghar-tmp-"
HOLDER = ".held"  # its file, locked as long as the process lives
TRIES, PAUSE = 5, 0.2  # of removing what other processes still write to; seconds

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
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        holder = (folder / HOLDER).open("w")
        lock(holder, folder, wait=True)
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
    for path in base.glob(f"{PREFIX}*/{HOLDER}"):
        with suppress(OSError), path.open("r+") as holder:
            if os.fstat(holder.fileno()).st_uid == os.getuid() and not path.parent.is_symlink():
                fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path.parent)


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
