"""A shard in a file, and back into any engine.

Read in this order:
    backup_file   the layout of the file; distinguishes truncated and damaged files from whole ones
    taking        what is copied, and as of when
    restoring     what is derived again: indexes, counts, pointers; leases are released

A backup holds what cannot be derived: tenants' own data, items, dead letters, payloads, retained ids, handlers and
periods. So a backup of one engine can be restored into another, and the parts of a large one may be read one after the
other.
"""

from fairlead.zones.maintenance.backup.backup_file import BackupInfo
from fairlead.zones.maintenance.backup.restoring import restore
from fairlead.zones.maintenance.backup.taking import backup

__all__ = ["backup", "restore", "BackupInfo"]
