"""Disks that are full, read-only, closed to us or broken, told in a sentence."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from platformdirs import user_cache_path

from ghar.errors import BadInput

FULL = (errno.ENOSPC, errno.EDQUOT)
ELSEWHERE = "name another run_dir or data.cache"
REASONS = {
    errno.ENOSPC: "cannot be written, its disk is full: make room and start the same command again.",
    errno.EDQUOT: "cannot be written, the quota of its disk is used up: make room and start the same command again.",
    errno.EROFS: f"cannot be written, its disk is read-only: {ELSEWHERE}.",
    errno.EACCES: f"may not be opened by this user: change its permissions, or {ELSEWHERE}.",
    errno.EPERM: f"may not be changed by this user: change its permissions, or {ELSEWHERE}.",
    errno.EIO: f"cannot be read or written, its disk reports a failure: {ELSEWHERE} on another disk.",
    errno.ESTALE: "has gone from its network disk: mount it again and start the same command again.",
    errno.EEXIST: f"is a file where a folder is needed: {ELSEWHERE}.",
    errno.ENOTDIR: f"cannot be made, a part of its path is a file and no folder: {ELSEWHERE}.",
    errno.EISDIR: f"is a folder where a file is needed: {ELSEWHERE}.",
    errno.ENOENT: f"is in a folder that does not exist: make the folder, or {ELSEWHERE}.",
    errno.ENAMETOOLONG: f"has too long a name for its disk: {ELSEWHERE}.",
    errno.ELOOP: f"is a link that leads back to itself: {ELSEWHERE}.",
    errno.ENXIO: f"is no file or folder: {ELSEWHERE}.",
    errno.EBUSY: f"is in use by another program: end that, or {ELSEWHERE}.",
    errno.ETIMEDOUT: "does not answer, its network disk is away: mount it again and start the same command again.",
    errno.EMFILE: "cannot be opened beside so many other files: raise the limit (ulimit -n).",
}
UNNAMED = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.EMFILE}
# safetensors says it in its own exception's text; torch.save, given a path, only notices that bytes are missing
FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "unexpected pos")


CACHE = "GHAR_CACHE"  # environment variable: the folder for what can be made again

ABANDONED = 3600.0  # seconds; no file is in the making for longer


def user_cache() -> Path:
    """Folder for what can be made again, which no one else may read: GHAR_CACHE, else ghar in the user's cache folder
    (XDG_CACHE_HOME or ~/.cache on Linux)."""
    given = os.environ.get(CACHE)
    folder = Path(given).absolute() if given else user_cache_path("ghar")
    with suppress(OSError):  # whoever writes there reports it
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder with its parents, or leave it as it is. BadInput where its file system makes none, as /proc."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    except FileNotFoundError:  # there is a parent that takes no folder
        raise BadInput(f"{path} cannot be made, its file system takes no folders: {ELSEWHERE}.") from None


def stamp(path: Path) -> tuple[int, int, int]:
    """Size and times of a file, for the name of a cache: another content has another one, also where whoever wrote it
    put the time of change back, or the clock was; no one can put back the last of the three."""
    about = path.stat()
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns


def cache_of(folder: str | None) -> Path:
    """The folder that is named, else `user_cache`."""
    return user_cache() if folder is None else Path(folder)


def sweep(path: Path) -> None:
    """Remove what killed writers of `path` left beside it (.NAME.PID.tmp).

    What may still be in the making stays: what is young, as its writer may be on another machine, and what is of a
    process that lives here, whatever a clock that jumped says.
    """
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with suppress(FileNotFoundError, ValueError):  # gone by now, or of someone else
            if is_old(left) and not psutil.pid_exists(int(left.name.split(".")[-2])):
                left.unlink()


def is_old(path: Path) -> bool:
    """Whether a file's time says that no one writes it any more; a clock was set back where it is in the future."""
    return abs(time.time() - path.stat().st_mtime) > ABANDONED


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write in place of `path`, which takes its name at the end: a reader sees the old file or the new one,
    never a part. Nothing is left where the writing fails."""
    make_folder(path.parent)
    sweep(path)
    half = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield half
        os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)


@contextmanager
def report_full_disk(
    folder: Path, then: str = "start the same command again, it goes on from its newest checkpoint."
) -> Iterator[None]:
    """Turn the error of a full disk under `folder`, whichever library met it, into BadInput; others pass through.

    then: what to do once there is room.
    """
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise
        free = shutil.disk_usage(folder).free / 1e6
        raise BadInput(
            f"The disk of {folder} is full ({free:.0f} MB are free), so the last write was given up: make room and "
            f"{then}"
        ) from error


def explain_disk_error(error: BaseException) -> str | None:
    """A sentence for an error that a disk is to blame for, or one that it followed from; None for any other."""
    if isinstance(error, OSError) and error.errno in REASONS and not isinstance(error, ConnectionError):
        named = error.filename2 or error.filename
        if named is None and error.errno not in UNNAMED:
            return None  # of a socket, or a library's own use of a number
        if error.errno == errno.ENOENT and Path(str(named)).parent.is_dir():
            return None  # a name that the program has wrong: no disk is to blame
        where = f"{named!s}" if named is not None else "A file"
        return f"{where} {REASONS[error.errno]}"
    before = error.__cause__ or error.__context__
    sentence = None if before is None else explain_disk_error(before)
    if sentence is None and is_full(error):
        return f"A disk is full ({error}): make room and start the same command again."
    return sentence


def is_full(error: BaseException) -> bool:
    """Whether an error, or one it followed from, says that the disk is full."""
    has_full_errno = isinstance(error, OSError) and error.errno in FULL
    before = error.__cause__ or error.__context__
    return has_full_errno or any(text in str(error) for text in FULL_TEXTS) or (before is not None and is_full(before))
