"""The server's configuration: sources, refusals, what is shown."""

from pathlib import Path

import pytest

from dataserver.config import (
    ServerConfig,
    describe_config,
    hide_password,
    load_config,
    parse_config,
)
from dataserver.errors import InvalidConfigError
from dataserver.listening import join_address, split_address


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('workers = 2\nlease_s = 5\nledger = "sqlite:///file.db"\n')
    environment = {"DATASERVER_WORKERS": "3", "DATASERVER_LEDGER": "sqlite:///environment.db", "HOME": "/x"}
    config = load_config(tmp_path / "server.toml", environment, {"workers": 4})
    assert (config.workers, config.ledger, config.lease_s) == (4, "sqlite:///environment.db", 5.0)
    assert config.max_steps_ahead == ServerConfig().max_steps_ahead


def test_a_table_in_the_environment_is_refused_with_where_to_write_it() -> None:
    with pytest.raises(InvalidConfigError, match=r"DATASERVER_STORES is set, but \[stores\] is a table"):
        load_config(None, {"DATASERVER_STORES": "chat=/data"}, {})


def test_stores_of_flags_join_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('[stores.a]\npath = "a"\n[stores.b]\npath = "b"\nloss_mask = "all"\n')
    config = load_config(tmp_path / "server.toml", {}, {"stores": {"b": {"path": "other"}, "c": {"path": "c"}}})
    assert {name: str(store.path) for name, store in config.stores.items()} == {"a": "a", "b": "other", "c": "c"}
    assert config.stores["b"].loss_mask == "column"


@pytest.mark.parametrize("text", ['stores = "chat"', '[[stores]]\nname = "chat"\npath = "a"'])
def test_stores_without_names_are_refused_with_how_to_write_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.toml").write_text(text)
    with pytest.raises(InvalidConfigError, match=r"server\.toml: stores is no table.*\[stores\.chat\]"):
        load_config(tmp_path / "server.toml", {}, {"stores": {"b": {"path": "b"}}})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"wrokers": 2}, "wrokers: there is no such field"),
        ({"workers": 0}, "workers"),
        ({"lease_s": 0}, "lease_s"),
        ({"listen": "50051"}, "listen"),
        ({"listen": "127.0.0.1:99999"}, "listen"),
        ({"metrics_listen": "here"}, "metrics_listen"),
        ({"stores": {"a": {}}}, "stores.a.path"),
        ({"stores": {"a": {"path": "a", "loss_mask": "some"}}}, "stores.a.loss_mask"),
        ({"max_message_bytes": 2**31}, "max_message_bytes"),
        ({"max_steps_ahead": -1}, "max_steps_ahead"),
        ({"listen": "10.0.0.1:50051"}, "tls and token_file"),
        ({"listen": "[::]:50051"}, "tls and token_file"),
        ({"metrics_listen": "0.0.0.0:9464"}, "neither TLS nor a token"),
        ({"log_format": "xml"}, "log_format"),
        ({"pacing_wait_s": float("inf")}, "pacing_wait_s: .*finite"),
        ({"drain_s": "inf"}, "drain_s: .*finite"),
        ({"lease_s": float("nan")}, "lease_s: .*finite"),
        ({"keepalive_s": 1e9}, "keepalive_s: .*86400"),
        ({"keepalive_timeout_s": 1e9}, "keepalive_timeout_s: .*86400"),
        ({"stores": {"a": {"path": ""}}}, "stores.a.path: is empty"),
        ({"stores": {"a": {"path": 1}}}, "stores.a.path: 1 is neither a path nor a URL"),
        ({"index_dir": ""}, "index_dir: is empty"),
    ],
)
def test_a_setting_that_is_wrong_is_named(settings: dict, named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        parse_config(settings)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:50051", "[::1]:50051"])
def test_loopback_needs_no_credentials(listen: str) -> None:
    assert parse_config({"listen": listen}).listen == listen


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:50051", "host.example:1"])
def test_an_address_is_read_and_written_alike(address: str) -> None:
    assert join_address(*split_address(address)) == address


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("workers == 2")
    with pytest.raises(InvalidConfigError, match=r"server\.toml is no TOML"):
        load_config(tmp_path / "server.toml", {}, {})


def test_every_setting_is_shown_but_no_password() -> None:
    config = parse_config({"ledger": "postgresql://me:hunter2@host/db", "stores": {"a": {"path": "/a"}}})
    lines = describe_config(config)
    assert {line.split(" = ")[0].split(".")[0] for line in lines} == set(ServerConfig.model_fields)
    assert 'ledger = "postgresql://me:***@host/db"' in lines
    assert not any("hunter2" in line for line in lines)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("postgresql+psycopg://host/db", "postgresql+psycopg://host/db"),
        ("postgresql://u:p@ss@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:p/w@host/db", "postgresql://u:***@host/db"),
        (
            "postgresql://host/db?user=u&password=p/w&sslmode=require",
            "postgresql://host/db?user=u&password=***&sslmode=require",
        ),
    ],
)
def test_only_a_password_is_hidden(url: str, shown: str) -> None:
    assert hide_password(url) == shown


def test_every_setting_is_documented() -> None:
    assert all(field.description for field in ServerConfig.model_fields.values())
