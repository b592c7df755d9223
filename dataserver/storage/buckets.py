"""Which options the object storages take, and how each is reached.

Options say where: endpoint, region, account. Who asks, and with which secret, comes from the
environment in the way of each storage's own tools, and never from a configuration file.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import obstore.store

from dataserver.errors import InvalidConfigError
from dataserver.storage.object_store import ObjectStorage
from dataserver.storage.options import refuse_options
from dataserver.storage.retrying import ReadPolicy

if TYPE_CHECKING:  # types without a run-time form
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, ObjectStore, RetryConfig, S3Config

    from dataserver.storage.aws_credentials import AwsCredentials

OPTIONS = {
    "s3": ("anonymous", "endpoint", "region", "virtual_hosted_style"),
    "gs": ("anonymous", "endpoint"),
    "az": ("account", "anonymous", "endpoint"),
}

# Names that obstore gives to options that mean the same for every storage.
_RENAMED = {
    "anonymous": "skip_signature",
    "account": "account_name",
    "virtual_hosted_style": "virtual_hosted_style_request",
}
_ENDPOINT = re.compile(r"https?://[^/@?#\s]+(/[^@?#\s]*)?")
_FLAGS = {"anonymous", "virtual_hosted_style"}


def open_bucket(url: str, options: Mapping[str, str], policy: ReadPolicy) -> ObjectStorage:
    """The storage at an `s3://`, `gs://` or `az://` URL: bucket or container, then a prefix."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise InvalidConfigError(f"'{url}' names no bucket: write {scheme}://BUCKET/PREFIX.")
    refuse_options(url, options, OPTIONS[scheme])
    settings = {_RENAMED.get(name, name): _value(url, name, text) for name, text in options.items()}
    if scheme == "gs" and "endpoint" in settings:
        settings["base_url"] = settings.pop("endpoint")

    credentials = _credentials_of(scheme, settings)

    def connect(client: "ClientConfig", retry: "RetryConfig") -> "ObjectStore":
        common: dict[str, Any] = {"prefix": prefix or None, "client_options": client, "retry_config": retry}
        if scheme == "gs":
            return obstore.store.GCSStore(bucket, config=cast("GCSConfig", settings), **common)
        if scheme == "az":
            return obstore.store.AzureStore(bucket, config=cast("AzureConfig", settings), **common)
        return obstore.store.S3Store(
            bucket, config=cast("S3Config", settings), credential_provider=credentials(), **common
        )

    return ObjectStorage(url, connect, policy)


def _credentials_of(scheme: str, settings: Mapping[str, str | bool]) -> "Callable[[], AwsCredentials | None]":
    """What makes a source of credentials, where the library itself is none that suits."""
    if scheme != "s3" or settings.get("skip_signature"):
        return lambda: None
    from dataserver.storage.aws_credentials import AwsCredentials  # noqa: PLC0415

    return AwsCredentials


def _value(url: str, name: str, text: str) -> str | bool:
    if name == "endpoint" and not _ENDPOINT.fullmatch(text):
        raise InvalidConfigError(f"'{url}': option endpoint is no URL like https://HOST:PORT")
    if name not in _FLAGS:
        return text
    if text.lower() not in {"true", "false"}:
        raise InvalidConfigError(f"'{url}': option {name} is true or false, not {text!r}")
    return text.lower() == "true"
