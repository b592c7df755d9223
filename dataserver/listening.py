"""Where a server of ours listens, whom it lets in, and how it is called."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from dataserver.settings import GivenPath, Settings

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[V6]:PORT`; raise `ValueError` on anything else."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"address {address!r}: give HOST:PORT, for instance 127.0.0.1:50051 or [::1]:50051")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """`HOST:PORT`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_address(address: str) -> str:
    split_address(address)
    return address


def _check_optional_address(address: str) -> str:
    return _check_address(address) if address else address


Address = Annotated[str, AfterValidator(_check_address)]
OptionalAddress = Annotated[str, AfterValidator(_check_optional_address)]


class TlsConfig(Settings):
    """What the server shows to prove who it is."""

    certificate: GivenPath
    """PEM file with the certificate chain."""
    key: GivenPath
    """PEM file with the private key."""


class ExposedConfig(Settings):
    """Base of the configurations of whatever answers gRPC: each sets its own default address."""

    listen: Address
    """Address of the gRPC service. Port 0 takes a free one, which is printed."""
    tls: TlsConfig | None = None
    """Certificate and key. Absent: plain text."""
    token_file: GivenPath | None = None
    """File with the bearer token that every call must carry, but health's `Check` and `Watch`. Absent: no token."""
    insecure: bool = False
    """Listen beyond loopback without TLS or without a token."""

    @model_validator(mode="after")
    def _exposed_only_with_intent(self) -> Self:
        host, _ = split_address(self.listen)
        if host not in LOOPBACK_HOSTS and not self.insecure and (self.tls is None or self.token_file is None):
            missing = [name for name, given in (("tls", self.tls), ("token_file", self.token_file)) if given is None]
            raise ValueError(
                f"listen = {self.listen!r} is reachable from other machines, but {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not set: set tls and token_file, listen on 127.0.0.1, or say "
                "insecure"
            )
        return self


class CalleeConfig(Settings):
    """How a server of ours is called whose address is known."""

    token_file: GivenPath | None = None
    """File that holds its access token."""
    ca_file: GivenPath | None = None
    """PEM file of the certificate authority of its certificate; TLS is used where it is given."""


class ListeningConfig(ExposedConfig):
    """Base of the configurations of servers that are processes of their own."""

    metrics_listen: OptionalAddress
    """Address of Prometheus' `/metrics`. Empty: none."""
    log_format: Literal["text", "json"] = "text"
    """Log lines for people, or one JSON object a line."""

    @model_validator(mode="after")
    def _metrics_exposed_only_with_intent(self) -> Self:
        if self.metrics_listen and split_address(self.metrics_listen)[0] not in LOOPBACK_HOSTS and not self.insecure:
            raise ValueError(
                f"metrics_listen = {self.metrics_listen!r} is reachable from other machines, and /metrics knows "
                "neither TLS nor a token: listen on 127.0.0.1 and let an agent on this machine collect, or say insecure"
            )
        return self
