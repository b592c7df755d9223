"""The values of one sync: what is moved, where it is met, what rank 0 tells the others."""

from dataclasses import dataclass

from dataserver.weight_sync import PolicyVersion


class TransferError(Exception):
    """A transfer came to nothing; the message says why. It never leaves this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One transfer of a run's policy version. Its id, 32 hexadecimal digits, names it wherever it is spoken of.

    `attempt`: that of the trainer who sends it; the version may be an earlier one's.
    """

    sync_id: str
    run: str
    attempt: int
    version: PolicyVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where trainer and engines meet: HOST:PORT of the group that rank 0 hosts, or a directory."""

    rendezvous: str = ""
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The engines wait. `group_size`: rank 0 and every engine's workers. `send_s`: until when all must be sent."""

    sync: Sync
    group_size: int
    send_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """The transfer does not take place. `refused`: the orchestrator began nothing, so there is nothing to abort.

    `never`: nor will another, as both sides are configured for different transports.
    """

    detail: str
    refused: bool
    never: bool = False
