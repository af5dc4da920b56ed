"""Files beside a store that several processes map.

Each is created with all its blocks. A page without a block would end its process (SIGBUS) on a full disk.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path


def make_file(path: Path, size: int) -> None:
    """Create a file of zeros with all its blocks, if it is missing.

    Raises:
      OSError: there is no space, or no permission.
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
