"""The tables of a part of ours in a database, and the version of them that is there."""

from dataclasses import dataclass

from sqlalchemy import Connection, MetaData, Table, insert, inspect, select

from dataserver.errors import InvalidConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Tables that belong together. `versions` has one column, `version`, and one row: that with which they were made.

    `reader`: who reads this version. `way_out`: what to do about another one.
    """

    metadata: MetaData
    versions: Table
    version: int
    reader: str
    way_out: str

    def prepare(self, connection: Connection, name: str) -> None:
        """Create the tables where there are none; raise `InvalidConfigError` where others are.

        `name` names the database in messages.
        """
        if inspect(connection).has_table(self.versions.name):
            found = connection.execute(select(self.versions.c.version)).scalars().all()
            if found != [self.version]:
                raise InvalidConfigError(
                    f"{name} has schema {', '.join(map(str, found)) or 'none'}, {self.reader} reads schema "
                    f"{self.version}: {self.way_out}",
                    found=",".join(map(str, found)),
                    expected=self.version,
                )
            return
        self.metadata.create_all(connection)
        connection.execute(insert(self.versions).values(version=self.version))
