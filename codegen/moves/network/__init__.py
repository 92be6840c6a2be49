"""Price collectives and exchanges on a topology by the load of its links."""
