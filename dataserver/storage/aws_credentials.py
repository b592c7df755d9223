"""Credentials for S3, from wherever AWS's own tools take them, over a run longer than any of them lives.

botocore looks them up (environment, shared files and profiles, single sign-on, web identity, container,
instance) and renews those that end a quarter of an hour before they do, keeping the old ones while a
renewal fails. It is asked every one to two minutes, at random, so that many processes do not ask as one.
"""

import random
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import botocore.session
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError

from dataserver.storage.retrying import DeniedError

if TYPE_CHECKING:  # a type without a run-time form
    from obstore.store import S3Credential

# The library that signs asks again when credentials have less than five minutes to live.
_SIGNER_MARGIN_S = 300.0
_SHORTEST_S, _LONGEST_S = 60.0, 120.0


class AwsCredentials:
    """What the signing library calls for credentials. Safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._source: Credentials | None = None
        self._last: S3Credential | None = None

    def __call__(self) -> "S3Credential":
        """Keys, and until when they are taken as valid."""
        with self._lock:
            keys = self._look_up()
        lifetime = _SIGNER_MARGIN_S + random.uniform(_SHORTEST_S, _LONGEST_S)  # noqa: S311
        return {**keys, "expires_at": datetime.now(UTC) + timedelta(seconds=lifetime)}

    def _look_up(self) -> "S3Credential":
        try:
            if self._source is None:
                self._source = botocore.session.Session().get_credentials()
            if self._source is None:
                raise DeniedError("no AWS credentials in the environment, in files or from this machine")
            frozen = self._source.get_frozen_credentials()
        except BotoCoreError as error:
            if self._last is None:
                raise DeniedError(f"AWS credentials could not be looked up: {type(error).__name__}") from error
            # A failed renewal ends nothing by itself: the storage says when the old ones are over.
            return self._last
        self._last = {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": None,
        }
        return self._last
