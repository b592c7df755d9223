"""Mutations of valid requests: of their bytes, and of their fields by reflection."""

import random
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 1023, 1024, 1025, 65535, 65536, 65537, 2**20, 2**28, 2**28 + 1, 2**31 - 1, 2**31,
           -(2**31), 2**32 - 1, 2**40, 2**53, 2**62, 2**63 - 1, -(2**63))  # fmt: skip
TEXTS = ("", "a", "\x00", "../../etc/passwd", "name with spaces", "\u4e2d" * 700, "x" * 5000, "'; DROP TABLE runs; --",
         "\U0001f4a5", "-1", "%s%n", "rows")  # fmt: skip

INT32 = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_SINT32}
INT64 = {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64}


class Mutator:
    """Makes damaged requests out of valid ones; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def mutate(self, valid: Message) -> bytes:
        """The bytes of `valid` after one to three mutations of its fields or of its bytes, mostly one."""
        message = type(valid)()
        message.CopyFrom(valid)
        if self._random.random() < 0.6:
            for _ in range(self._few()):
                self._random.choice(FIELD_MUTATIONS)(self, message)
            return message.SerializeToString()
        data = bytearray(message.SerializeToString())
        for _ in range(self._few()):
            self._random.choice(BYTE_MUTATIONS)(self, data)
        return bytes(data)

    def _few(self) -> int:
        return self._random.choice((1, 1, 1, 2, 3))

    def choose(self, items: list[Any]) -> Any:
        return self._random.choice(items)

    def shuffled(self, items: list[Any]) -> list[Any]:
        """Some of `items`, some of them twice, in any order."""
        return self._random.choices(items, k=self._random.randint(1, 2 * len(items)))

    # -- fields -------------------------------------------------------------------------------

    def set_field(self, message: Message) -> None:
        """Give one field, at any depth, another value."""
        holder = self._some_message(message)
        fields = list(holder.DESCRIPTOR.fields)
        if not fields:
            return
        field = self._random.choice(fields)
        if field.message_type is not None:
            target = getattr(holder, field.name)
            target.add() if field.is_repeated else target.SetInParent()
        elif field.is_repeated:
            getattr(holder, field.name).append(self._value(field))
        else:
            setattr(holder, field.name, self._value(field))

    def clear_field(self, message: Message) -> None:
        """Leave one field out."""
        holder = self._some_message(message)
        if present := [field.name for field, _ in holder.ListFields()]:
            holder.ClearField(self._random.choice(present))

    def swap_fields(self, message: Message) -> None:
        """Exchange the values of two fields of one type."""
        holder = self._some_message(message)
        scalars = [field for field in holder.DESCRIPTOR.fields if field.message_type is None and not field.is_repeated]
        one, other = self._random.choice(scalars or [None]), self._random.choice(scalars or [None])
        if one is not None and one.type == other.type:
            values = getattr(holder, one.name), getattr(holder, other.name)
            setattr(holder, one.name, values[1])
            setattr(holder, other.name, values[0])

    def _some_message(self, message: Message) -> Message:
        """`message`, or one of those inside it."""
        nested = [message]
        for found in nested:
            for field, value in found.ListFields():
                if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                    nested.extend(value if field.is_repeated else [value])
        return self._random.choice(nested)

    def _value(self, field: FieldDescriptor) -> Any:
        if field.type == FieldDescriptor.TYPE_STRING:
            return self._random.choice(TEXTS)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self._random.random() < 0.5
        number = self._random.choice((*NUMBERS, self._random.getrandbits(31)))
        bits = 31 if field.type in INT32 else 63 if field.type in INT64 else 32
        return max(-(2**bits) if bits != 32 else 0, min(number, 2**bits - 1))

    # -- bytes --------------------------------------------------------------------------------

    def flip(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def truncate(self, data: bytearray) -> None:
        del data[self._random.randint(0, len(data)) :]

    def insert(self, data: bytearray) -> None:
        at = self._random.randint(0, len(data))
        data[at:at] = self._random.randbytes(self._random.choice((1, 2, 8, 64)))

    def repeat(self, data: bytearray) -> None:
        begin = self._random.randint(0, len(data))
        data += data[begin : begin + self._random.randint(0, 32)]

    def remove(self, data: bytearray) -> None:
        begin = self._random.randint(0, len(data))
        del data[begin : begin + self._random.randint(1, 8)]


FIELD_MUTATIONS: tuple[Callable[[Mutator, Message], None], ...] = (
    Mutator.set_field, Mutator.set_field, Mutator.clear_field, Mutator.swap_fields,
)  # fmt: skip
BYTE_MUTATIONS: tuple[Callable[[Mutator, bytearray], None], ...] = (
    Mutator.flip, Mutator.truncate, Mutator.insert, Mutator.repeat, Mutator.remove,
)  # fmt: skip
