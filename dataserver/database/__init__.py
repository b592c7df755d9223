"""A database of ours, SQLite or PostgreSQL: opened so that what is written stays, whoever keeps tables in it.

engine          opened and set up for durability
transactions    begun, retried, their faults as ours
tables          which tables a part of ours has there, in which version
boot_clock      the time in an SQLite file, which nobody sets
faults          what each fault of a database means for whoever meets it
log_room        of an SQLite file's log, so that commits wait for their own bytes only
filesystem, same_file    where an SQLite file may lie, and that it stays the one that was opened
"""

from dataserver.database.engine import open_database
from dataserver.database.tables import Tables
from dataserver.database.transactions import Database

__all__ = ["Database", "Tables", "open_database"]
