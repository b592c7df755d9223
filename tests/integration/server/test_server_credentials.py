"""Who may call: TLS, the token, and what stays open."""

import ssl
import subprocess
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from dataserver.errors import InvalidConfigError, UnauthenticatedError
from dataserver.testing import RunningServer
from dataserver.v1 import batch_service_pb2, run_service_pb2
from dataserver.v1.batch_service_pb2_grpc import BatchServiceStub
from dataserver.v1.run_service_pb2_grpc import RunServiceStub
from dataserver.wire.status import error_of

TOKEN = "correct-horse-battery-staple"  # noqa: S105
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def pem(certified: Path) -> Path:
    (certified / "token").write_text(TOKEN + "\n")
    return certified


@pytest.fixture
def guarded(serve, pem: Path) -> RunningServer:
    return serve(tls={"certificate": pem / "certificate.pem", "key": pem / "key.pem"}, token_file=pem / "token")


def secure_channel(server: RunningServer, pem: Path) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials((pem / "certificate.pem").read_bytes())
    return grpc.secure_channel(server.endpoint, credentials)


def list_runs(channel: grpc.Channel, metadata: tuple = ()) -> None:
    RunServiceStub(channel).ListRuns(run_service_pb2.ListRunsRequest(), metadata=metadata, timeout=LIMIT_S)


def test_a_call_with_the_token_over_tls_is_served(guarded: RunningServer, pem: Path) -> None:
    with secure_channel(guarded, pem) as channel:
        list_runs(channel, (("authorization", f"Bearer {TOKEN}"),))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ((), "wants a token"),
        ((("authorization", "Bearer something-else"),), "not this server's"),
        ((("authorization", TOKEN),), "not this server's"),
        ((("authorization", f"Bearer {TOKEN} "),), "not this server's"),
    ],
)
def test_a_call_without_the_token_is_refused(guarded: RunningServer, pem: Path, metadata: tuple, message: str) -> None:
    with secure_channel(guarded, pem) as channel:
        calls = [
            lambda: list_runs(channel, metadata),
            lambda: next(
                BatchServiceStub(channel).StreamMicroBatches(
                    iter([batch_service_pb2.StreamMicroBatchesRequest()]), metadata=metadata, timeout=LIMIT_S
                )
            ),
            lambda: next(
                reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
                    iter([reflection_pb2.ServerReflectionRequest(list_services="")]), metadata=metadata, timeout=LIMIT_S
                )
            ),
        ]
        for call in calls:
            with pytest.raises(grpc.RpcError) as raised:
                call()
            error = error_of(raised.value)
            assert isinstance(error, UnauthenticatedError), raised.value
            assert message in error.message
            assert TOKEN not in error.message


def test_health_needs_no_token(guarded: RunningServer, pem: Path) -> None:
    with secure_channel(guarded, pem) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=LIMIT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_list_of_what_is_served_needs_a_token(guarded: RunningServer, pem: Path) -> None:
    with secure_channel(guarded, pem) as channel, pytest.raises(grpc.RpcError) as raised:
        health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=LIMIT_S)
    assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_plain_text_is_not_answered_where_tls_is_set(guarded: RunningServer) -> None:
    with grpc.insecure_channel(guarded.endpoint) as channel, pytest.raises(grpc.RpcError) as raised:
        list_runs(channel, (("authorization", f"Bearer {TOKEN}"),))
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_client_that_does_not_know_the_certificate_refuses_the_server(guarded: RunningServer) -> None:
    host, port = guarded.endpoint.split(":")
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.get_server_certificate((host, int(port)), ca_certs=ssl.get_default_verify_paths().cafile, timeout=LIMIT_S)


@pytest.mark.parametrize(
    ("content", "message"), [("", "at least 16"), ("short", "at least 16"), ("a token with spaces in it", "without")]
)
def test_a_poor_token_is_refused(serve, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(InvalidConfigError, match=message):
        serve(token_file=tmp_path / "token")


def test_files_that_are_no_pem_are_refused(serve, tmp_path: Path) -> None:
    (tmp_path / "nothing.pem").write_text("hello")
    with pytest.raises(InvalidConfigError, match="no PEM file"):
        serve(tls={"certificate": tmp_path / "nothing.pem", "key": tmp_path / "nothing.pem"})


def test_a_key_of_another_certificate_is_refused_by_both_names(serve, pem: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", tmp_path / "k"],
        check=True,
        capture_output=True,
    )
    with pytest.raises(InvalidConfigError, match=rf"{tmp_path}/k is not the key of .*certificate\.pem"):
        serve(tls={"certificate": pem / "certificate.pem", "key": tmp_path / "k"})


def test_a_missing_token_file_is_named(serve, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="absent"):
        serve(token_file=tmp_path / "absent")


def test_beyond_loopback_only_with_tls_and_token_or_intent(serve, pem: Path) -> None:
    with pytest.raises(InvalidConfigError, match="tls and token_file are not set"):
        serve(listen="0.0.0.0:0")
    with pytest.raises(InvalidConfigError, match="but tls is not set"):
        serve(listen="0.0.0.0:0", token_file=pem / "token")
    assert serve(listen="0.0.0.0:0", insecure=True).endpoint.startswith("0.0.0.0:")
