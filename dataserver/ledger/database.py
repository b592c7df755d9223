"""The ledger's database: opened, with the ledger's tables in it."""

from dataserver import database
from dataserver.ledger import schema


def open_database(url: str) -> database.Database:
    """Connect to `url` and see to the ledger's tables. Raises `InvalidConfigError`, `UnavailableError`."""
    return database.open_database(url, what="ledger", prepare=schema.prepare)
