"""Eval specs as messages, and back."""

from pydantic import ValidationError

from dataserver.errors import InvalidSpecError
from dataserver.eval_spec import EvalSpec
from dataserver.run_spec import LongRows
from dataserver.v1 import run_spec_pb2
from dataserver.wire.messages import spec_error

_LONG_ROWS = {
    LongRows.TRUNCATE: run_spec_pb2.LONG_ROWS_TRUNCATE,
    LongRows.DROP: run_spec_pb2.LONG_ROWS_DROP,
    LongRows.REFUSE: run_spec_pb2.LONG_ROWS_REFUSE,
    LongRows.SPLIT: run_spec_pb2.LONG_ROWS_SPLIT,
}


def eval_spec_to_proto(spec: EvalSpec) -> run_spec_pb2.EvalSpec:
    """Write an eval spec as its message."""
    return run_spec_pb2.EvalSpec(
        store=spec.store,
        max_length=spec.max_length,
        long_rows=_LONG_ROWS[spec.long_rows],
        micro_batch_tokens=spec.micro_batch_tokens,
        alignment=spec.alignment,
        pad_to=spec.pad_to,
        max_samples=spec.max_samples or 0,
        vocab_size=spec.vocab_size or 0,
        images=spec.images,
    )


def eval_spec_from_proto(message: run_spec_pb2.EvalSpec) -> EvalSpec:
    """Read an eval spec; one that cannot be carried out raises `InvalidSpecError` with the field."""
    long_rows = next((value for value, number in _LONG_ROWS.items() if number == message.long_rows), None)
    if long_rows is None:
        raise InvalidSpecError(f"long_rows: {message.long_rows} is none of {', '.join(_LONG_ROWS)}", field="long_rows")
    try:
        return EvalSpec(
            store=message.store,
            max_length=message.max_length,
            long_rows=long_rows,
            micro_batch_tokens=message.micro_batch_tokens,
            alignment=message.alignment,
            pad_to=message.pad_to,
            max_samples=message.max_samples or None,
            vocab_size=message.vocab_size or None,
            images=message.images,
        )
    except ValidationError as error:
        raise spec_error(error) from error
