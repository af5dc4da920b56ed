"""A shard in a file, and back into any engine.

Read in this order:
    backup_file   how the file is laid out; truncated and damaged files are told from whole ones
    taking        what is copied, and as of when
    restoring     what is derived anew: indexes, counts, pointers; leases are released

A backup holds what cannot be derived: tenants' own data, items, buried items, payloads, ids that stay taken, handlers
and periods. So it does not matter of which engine it was taken, into which it is restored, or that the parts of a
large one were read one after the other.
"""

from fairlead.zones.maintenance.backup.backup_file import BackupInfo
from fairlead.zones.maintenance.backup.restoring import restore
from fairlead.zones.maintenance.backup.taking import backup

__all__ = ["backup", "restore", "BackupInfo"]
