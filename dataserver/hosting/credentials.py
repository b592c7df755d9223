"""Who may call: TLS for the connection, a bearer token for every call."""

import hmac
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from dataserver.errors import InvalidConfigError, UnauthenticatedError
from dataserver.hosting.call import Call
from dataserver.listening import TlsConfig
from dataserver.wire.status import status_of

# Probes carry no token. These say whether the server serves, and a store or service whose name the caller knows; a
# list of the names is for those with a token.
OPEN_METHODS = ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch")

SHORTEST_TOKEN = 16


def read_token(path: Path) -> str:
    """The token in `path`, surrounding space aside. Raises `InvalidConfigError`."""
    token = _read(path, "token_file").decode("ascii", "replace").strip()
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or "�" in token or " " in token:
        raise InvalidConfigError(
            f"token_file {path}: a token is at least {SHORTEST_TOKEN} printable ASCII characters without spaces; "
            "make one with: openssl rand -hex 32"
        )
    return token


def server_credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """Raises `InvalidConfigError` for files that cannot be read or are no PEM."""
    key, certificate = _read(tls.key, "tls.key"), _read(tls.certificate, "tls.certificate")
    for name, path, data, mark in (
        ("tls.key", tls.key, key, b"PRIVATE KEY"),
        ("tls.certificate", tls.certificate, certificate, b"CERTIFICATE"),
    ):
        if b"-----BEGIN " not in data or mark not in data:
            raise InvalidConfigError(f"{name} {path} is no PEM file with a {mark.decode().lower()}")
    _refuse_misfit(tls)
    return grpc.ssl_server_credentials([(key, certificate)])


def _refuse_misfit(tls: TlsConfig) -> None:
    """Raise `InvalidConfigError` where key and certificate do not go together: gRPC only says that it got no port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")  # how strong a key has to be is gRPC's to say
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")  # asks nobody on the terminal
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise InvalidConfigError(
            f"tls.key {tls.key} is not the key of tls.certificate {tls.certificate}, or is encrypted, or one of both "
            f"is damaged ({why}): give the certificate's own key, without a passphrase"
        ) from error


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Lets calls through that carry `authorization: Bearer TOKEN`, and `OPEN_METHODS`."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the method's handler, or one that refuses."""
        objection = _objection(handler_call_details, self._token)
        return _refusal(objection) if objection else await continuation(handler_call_details)


class ThreadedTokenCheck(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """The same for a server in threads, whose methods take and give one message."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "grpc.RpcMethodHandler[Any, Any] | None"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the method's handler, or one that refuses."""
        objection = _objection(handler_call_details, self._token)
        if not objection:
            return continuation(handler_call_details)

        def refuse(_request: object, call: grpc.ServicerContext) -> None:
            code, details, trailing = status_of(UnauthenticatedError(objection))
            call.set_trailing_metadata(trailing)
            call.abort(code, details)

        return grpc.unary_unary_rpc_method_handler(refuse)


def _objection(details: grpc.HandlerCallDetails, token: str) -> str:
    """Why a call is not let through; "" where it is."""
    if details.method in OPEN_METHODS:
        return ""
    given = dict(details.invocation_metadata or ()).get("authorization")
    if given is None:
        return "this server wants a token: send metadata `authorization: Bearer TOKEN`"
    if not hmac.compare_digest(given.encode() if isinstance(given, str) else given, f"Bearer {token}".encode()):
        return "the token is not this server's"
    return ""


def _refusal(message: str) -> "grpc.RpcMethodHandler[Any, Any]":
    async def refuse(_requests: object, call: Call) -> None:
        await call.abort(*status_of(UnauthenticatedError(message)))

    # A streaming handler begins before any request arrives, so it refuses calls of every kind at once.
    return grpc.stream_stream_rpc_method_handler(refuse)


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidConfigError(f"{setting}: cannot read {path}: {error.strerror}") from error
