"""Index space: from a position of an epoch to a row of a source, without state."""
