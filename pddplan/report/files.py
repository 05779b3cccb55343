"""Output files: written beside their place and moved there whole, never over another without being told."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pddplan.errors import InputError, Problem


def write_atomically(path: Path, data: bytes | str, force: bool) -> None:
    """Write ``data`` (text as UTF-8) to ``path``: a reader sees the old file or the whole new one.

    Raises InputError: the file exists and ``force`` is not set; or it cannot be written.
    """
    if path.exists() and not force:
        raise InputError(Problem(str(path), "the file exists", "another name, or --force to replace it"))
    content = data.encode("utf-8") if isinstance(data, str) else data
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise InputError(Problem(str(path), f"cannot be written: {reason}", "a file name in an existing folder")) from error
