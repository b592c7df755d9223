"""Endpoints, tokens and channels."""

import subprocess
import sys

import pytest

from dataserver.client import DataClient
from dataserver.client.connection import ConnectionSettings, parse_endpoints
from dataserver.errors import InvalidConfigError, InvalidRequestError

BEARER = "abc123"


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("node:50051", ("node:50051",)),
        ("a:1, b.example.org:65535", ("a:1", "b.example.org:65535")),
        ("[::1]:50051,10.0.0.1:1", ("[::1]:50051", "10.0.0.1:1")),
    ],
)
def test_endpoints_are_read(text, endpoints):
    assert parse_endpoints(text) == endpoints


@pytest.mark.parametrize(
    "text", ["", "node", ":50051", "node:", "node:0", "node:65536", "node:x", "a:1,,b:1", "::1:50051", "http://a:1"]
)
def test_what_is_no_endpoint_is_refused_by_name(text):
    with pytest.raises(InvalidConfigError, match="is not HOST:PORT"):
        parse_endpoints(text)


def test_an_endpoint_named_twice_is_refused():
    with pytest.raises(InvalidConfigError, match="twice"):
        parse_endpoints("a:1,a:1")


@pytest.mark.parametrize("endpoint", ["10.1.2.3:1", "node:1", "[2001:db8::1]:1", "localhost.evil.example:1"])
def test_a_token_does_not_travel_in_the_clear_to_another_host(endpoint):
    with pytest.raises(InvalidConfigError, match="in the clear to " + endpoint.replace("[", r"\[")):
        DataClient(f"127.0.0.1:1,{endpoint}", token=BEARER)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:1", "127.8.8.8:1", "localhost:1", "[::1]:1"])
def test_a_token_may_stay_on_the_machine_in_the_clear(endpoint):
    settings = ConnectionSettings(endpoints=(endpoint,), token=BEARER, ca=None)
    assert settings.metadata == (("authorization", "Bearer abc123"),)


@pytest.mark.parametrize("token", ["", "two words", "line\n", "ümlaut"])
def test_a_token_that_no_header_may_hold_is_refused_without_showing_it(token):
    with pytest.raises(InvalidConfigError) as caught:
        DataClient("localhost:1", token=token)
    assert not token or token not in str(caught.value)


def test_a_missing_ca_file_is_named(tmp_path):
    with (
        DataClient("node:1", token=BEARER, ca=tmp_path / "ca.pem") as client,
        pytest.raises(InvalidConfigError, match=r"ca\.pem"),
    ):
        client.list_runs()


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n", b"\xff"]
)
def test_a_ca_file_without_a_certificate_is_refused_at_once(tmp_path, content):
    (tmp_path / "ca.pem").write_bytes(content)
    with (
        DataClient("node:1", ca=tmp_path / "ca.pem") as client,
        pytest.raises(InvalidConfigError, match=r"ca\.pem is no PEM file with a certificate"),
    ):
        client.list_runs()


def test_a_closed_client_says_so():
    client = DataClient("localhost:1")
    client.close()
    client.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        client.list_runs()


def test_a_client_refuses_to_work_in_a_fork_of_its_process():
    program = """if True:
        import os, sys
        from dataserver.client import DataClient
        from dataserver.errors import InvalidRequestError
        client = DataClient("localhost:1")
        if os.fork() == 0:
            try:
                client.list_runs()
            except InvalidRequestError as error:
                print(error, flush=True)
            client.close()
            os._exit(0)
        os.wait()
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "gRPC does not survive a fork" in result.stdout
