"""Files that hold a client's token."""

from argparse import Namespace

import pytest

from dataserver.cli.remote import connect
from dataserver.errors import InvalidConfigError
from trainer.config import DataConfig
from trainer.data import Endpoint


@pytest.mark.parametrize("content", [b"\xb0" * 32, b"short", b""])
def test_a_file_that_holds_no_token_is_named(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(InvalidConfigError, match=f"token_file {path}: a token is at least 16 printable"):
        Endpoint(addresses="127.0.0.1:1", config=DataConfig(token_file=path)).connect(1.0)
    with pytest.raises(InvalidConfigError, match=f"token_file {path}: a token is at least 16 printable"):
        connect(Namespace(endpoint="127.0.0.1:1", token_file=path, ca=None))
