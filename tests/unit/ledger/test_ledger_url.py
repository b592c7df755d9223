"""A ledger's URL may hold a password, which no message shows."""

import pytest

from dataserver.errors import DataServerError
from dataserver.ledger import open_ledger


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:hunter2@host/runs",
        "postgresql//user:hunter2@host/runs",
        "sqlite://user:hunter2@/:memory:",
    ],
)
def test_a_refused_url_is_told_without_its_password(url):
    with pytest.raises(DataServerError) as refusal:
        open_ledger(url, lease_s=30)
    told, error = "", refusal.value
    while error is not None:
        told += f"{error!r} {error}"
        error = error.__cause__
    assert "hunter2" not in told
    assert "ledger" in told
