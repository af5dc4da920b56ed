"""What this machine allows a test to do, and what to install or allow where it does not."""

from __future__ import annotations

import shutil
import subprocess


def why_not_traced() -> str:
    """Return why system calls cannot be traced here; empty if they can."""
    if shutil.which("strace") is None:
        return "strace is missing: apt-get install strace"
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        return "this machine lets nobody trace: run the container with --cap-add=SYS_PTRACE"
    return ""


WHY_NOT_TRACED = why_not_traced()


def why_not_mounted() -> str:
    """Return why nobody can mount here, in a namespace of their own; empty if that works."""
    if shutil.which("unshare") is None:
        return "unshare is missing: apt-get install util-linux"
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        return (
            "this machine lets nobody mount (unshare -Urm is refused): allow user namespaces (user.max_user_namespaces)"
        )
    return ""


WHY_NOT_MOUNTED = why_not_mounted()
