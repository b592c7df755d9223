"""Messages from a caller's values, which a message's fields may not be able to hold."""

from typing import Any, TypeVar

from google.protobuf.message import Message

from dataserver.errors import InvalidRequestError

MessageT = TypeVar("MessageT", bound=Message)


def built(kind: type[MessageT], **fields: Any) -> MessageT:  # noqa: ANN401 - whatever the message has
    """A message of these fields; raises `InvalidRequestError` naming one that cannot hold its value."""
    try:
        return kind(**fields)
    except (ValueError, TypeError, OverflowError) as error:
        name = next((name for name, value in fields.items() if not _holds(kind, name, value)), "")
        raise InvalidRequestError(
            f"{kind.DESCRIPTOR.name}.{name} cannot be {fields.get(name)!r:.80}: {error}", field=name
        ) from error


def _holds(kind: type[Message], name: str, value: object) -> bool:
    try:
        kind(**{name: value})
    except (ValueError, TypeError, OverflowError):
        return False
    return True
