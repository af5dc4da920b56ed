"""Files beside a store that processes map to give one another hints. Made whole, so that a full disk kills nobody."""

import os
import threading
from contextlib import suppress
from pathlib import Path


def make_file(path: Path, size: int) -> None:
    """Make a file of zeros with all its blocks if it is missing, as `lmdb_files` makes the lock file.

    Raises:
      OSError: there is no room, or no right.
    """
    if path.exists():
        return
    temporary_path = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary_path.write_bytes(bytes(size))
        with suppress(FileExistsError):
            os.link(temporary_path, path)
    finally:
        temporary_path.unlink(missing_ok=True)
