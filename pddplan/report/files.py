"""Output files: written whole or not at all, never over another file unless asked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pddplan.errors import InputError, Problem


def check_target(path: str | Path, force: bool = False) -> Path:
    """``path`` if a file may be written there; raises InputError before any work is done for it: a folder, or an existing file without
    ``force``."""
    target = Path(path)
    if target.is_dir():
        raise InputError(Problem(str(path), "is a folder", "name a file"))
    if target.is_file() and not force:
        raise InputError(Problem(str(path), "exists already", "name another file, or add --force to overwrite it"))
    if not target.parent.is_dir():
        raise InputError(Problem(str(path), f"there is no folder {target.parent}", "name a file in a folder that exists"))
    if not target.exists() and not os.access(target.parent, os.W_OK):
        raise InputError(Problem(str(path), f"permission denied in folder {target.parent}", "name a file in a folder you can write to"))
    return target


def check_folder(path: str | Path) -> Path:
    """``path`` as a folder for output files, made if it is not there. Raises InputError when it cannot be made."""
    target = Path(path)
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        found = "is a file" if target.exists() else f"cannot be made ({error.strerror or error})"
        raise InputError(Problem(str(path), found, "name a new folder, or one that exists")) from None
    return target


def write_atomically(path: str | Path, data: bytes | str, force: bool = False) -> Path:
    """Write ``data`` (text as UTF-8) to a temporary file beside ``path`` and move it there.

    A device or pipe (``/dev/null``, ``/dev/stdout``) is written into: it must not be replaced by a file.
    Raises InputError: the file exists and ``force`` is False, its folder is missing, or the system refuses (permission, full disk).
    """
    target = check_target(path, force)
    content = data.encode() if isinstance(data, str) else data
    special = target.exists() and not target.is_file()
    temporary = ""
    try:
        if special:
            target.write_bytes(content)
            return target
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        found = f"cannot be written ({error.strerror or error})"
        raise InputError(Problem(str(path), found, "name a file in a folder you can write to")) from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
