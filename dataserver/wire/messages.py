"""Cursors and specs as messages, and back.

Reading validates: no legal spec raises `InvalidSpecError` with the field, no legal cursor `InvalidRequestError`.
"""

from enum import StrEnum
from typing import Any, TypeVar

from pydantic import ValidationError

from dataserver.cursor import Cursor, Deal, Window
from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.run_spec import BatchSpec, LongRows, OrderSpec, PackingPolicy, RunSpec, Shuffle, Spec
from dataserver.v1 import cursor_pb2, run_spec_pb2
from dataserver.weighting import Stopping, WeightUnit
from dataserver.wire.build import built

NamedT = TypeVar("NamedT", bound=StrEnum)
SpecT = TypeVar("SpecT", bound=Spec)

_SHUFFLES = {
    Shuffle.SEQUENTIAL: run_spec_pb2.SHUFFLE_SEQUENTIAL,
    Shuffle.FULL: run_spec_pb2.SHUFFLE_FULL,
    Shuffle.BLOCK: run_spec_pb2.SHUFFLE_BLOCK,
    Shuffle.CUSTOM: run_spec_pb2.SHUFFLE_CUSTOM,
}
_WEIGHT_UNITS = {
    WeightUnit.SAMPLES: run_spec_pb2.WEIGHT_UNIT_SAMPLES,
    WeightUnit.TOKENS: run_spec_pb2.WEIGHT_UNIT_TOKENS,
}
_STOPPINGS = {
    Stopping.FIRST_EXHAUSTED: run_spec_pb2.STOPPING_FIRST_EXHAUSTED,
    Stopping.ALL_EXHAUSTED: run_spec_pb2.STOPPING_ALL_EXHAUSTED,
    Stopping.ALL_EXHAUSTED_WITHOUT_REPLACEMENT: run_spec_pb2.STOPPING_ALL_EXHAUSTED_WITHOUT_REPLACEMENT,
    Stopping.WITH_REPLACEMENT: run_spec_pb2.STOPPING_WITH_REPLACEMENT,
}
_LONG_ROWS = {
    LongRows.TRUNCATE: run_spec_pb2.LONG_ROWS_TRUNCATE,
    LongRows.DROP: run_spec_pb2.LONG_ROWS_DROP,
    LongRows.REFUSE: run_spec_pb2.LONG_ROWS_REFUSE,
    LongRows.SPLIT: run_spec_pb2.LONG_ROWS_SPLIT,
}
_POLICIES = {
    PackingPolicy.BALANCED: run_spec_pb2.PACKING_POLICY_BALANCED,
    PackingPolicy.FIRST_FIT: run_spec_pb2.PACKING_POLICY_FIRST_FIT,
    PackingPolicy.COST_BALANCED: run_spec_pb2.PACKING_POLICY_COST_BALANCED,
    PackingPolicy.SEQUENTIAL: run_spec_pb2.PACKING_POLICY_SEQUENTIAL,
    PackingPolicy.NONE: run_spec_pb2.PACKING_POLICY_NONE,
}


def cursor_to_proto(cursor: Cursor) -> cursor_pb2.Cursor:
    """Write a cursor as its message."""
    message = built(
        cursor_pb2.Cursor,
        order_fingerprint=cursor.order_fingerprint,
        stage=cursor.stage,
        step=cursor.step,
        epoch=cursor.epoch,
        position=cursor.position,
        source_positions=cursor.source_positions,
    )
    if cursor.window is not None:
        window, deal = cursor.window, cursor.window.deal
        message.window.CopyFrom(
            cursor_pb2.Window(
                steps=window.steps,
                steps_done=window.steps_done,
                samples=window.samples,
                deal=cursor_pb2.Deal(
                    dp_world_size=deal.dp_world_size,
                    micro_batch_tokens=deal.micro_batch_tokens,
                    alignment=deal.alignment,
                    cost_linear=deal.cost_linear,
                    cost_quadratic=deal.cost_quadratic,
                    policy=deal.policy,
                    planner_version=deal.planner_version,
                ),
            )
        )
    return message


def cursor_from_proto(message: cursor_pb2.Cursor) -> Cursor:
    """Read a cursor; a negative number or an impossible window raises `InvalidRequestError`."""
    numbers = [message.stage, message.step, message.epoch, message.position, *message.source_positions]
    if min(numbers) < 0:
        raise InvalidRequestError(f"cursor holds a negative number: {_one_line(message)}")
    if not message.order_fingerprint:
        raise InvalidRequestError(f"cursor has no order_fingerprint: {_one_line(message)}")
    return Cursor(
        order_fingerprint=message.order_fingerprint,
        stage=message.stage,
        step=message.step,
        epoch=message.epoch,
        position=message.position,
        source_positions=tuple(message.source_positions),
        window=_window_from_proto(message.window) if message.HasField("window") else None,
    )


def _window_from_proto(message: cursor_pb2.Window) -> Window:
    deal = message.deal
    positive = [message.steps_done, message.samples, deal.dp_world_size, deal.micro_batch_tokens, deal.alignment]
    if min(positive) < 1 or message.steps_done >= message.steps or min(deal.cost_linear, deal.cost_quadratic) < 0:
        raise InvalidRequestError(f"cursor has an impossible window: {_one_line(message)}")
    return Window(
        steps=message.steps,
        steps_done=message.steps_done,
        samples=message.samples,
        deal=Deal(
            dp_world_size=deal.dp_world_size,
            micro_batch_tokens=deal.micro_batch_tokens,
            alignment=deal.alignment,
            cost_linear=deal.cost_linear,
            cost_quadratic=deal.cost_quadratic,
            policy=deal.policy,
            planner_version=deal.planner_version,
        ),
    )


def run_spec_to_proto(spec: RunSpec) -> run_spec_pb2.RunSpec:
    """Write a run spec as its message."""
    return run_spec_pb2.RunSpec(
        order=order_spec_to_proto(spec.order),
        batch=batch_spec_to_proto(spec.batch),
        vocab_size=spec.vocab_size or 0,
        images=spec.images,
    )


def run_spec_from_proto(message: run_spec_pb2.RunSpec) -> RunSpec:
    """Read a run spec."""
    for part in ("order", "batch"):
        if not message.HasField(part):
            raise InvalidSpecError(f"run spec has no {part} spec", field=part)
    fields = {
        "order": order_spec_from_proto(message.order),
        "batch": batch_spec_from_proto(message.batch),
        "vocab_size": message.vocab_size or None,
        "images": message.images,
    }
    return _validated(RunSpec, fields)


def order_spec_to_proto(order: OrderSpec) -> run_spec_pb2.OrderSpec:
    """Write an order spec as its message."""
    return run_spec_pb2.OrderSpec(
        sources=[run_spec_pb2.Source(**source.model_dump(exclude_none=True)) for source in order.sources],
        seed=order.seed,
        shuffle=_SHUFFLES[order.shuffle],
        max_length=order.max_length,
        long_rows=_LONG_ROWS[order.long_rows],
        block_window=order.block_window if order.shuffle is Shuffle.BLOCK else 0,
        sampler=order.sampler,
        weight_unit=_WEIGHT_UNITS[order.weight_unit] if order.weighted else run_spec_pb2.WEIGHT_UNIT_UNSPECIFIED,
        stopping=_STOPPINGS[order.stopping] if order.weighted else run_spec_pb2.STOPPING_UNSPECIFIED,
    )


def order_spec_from_proto(message: run_spec_pb2.OrderSpec) -> OrderSpec:
    """Read an order spec."""
    fields = {
        "sources": tuple(
            {
                "store": source.store,
                "weight": source.weight if source.HasField("weight") else None,
                "loss_weight": source.loss_weight if source.HasField("loss_weight") else None,
            }
            for source in message.sources
        ),
        "seed": message.seed,
        "shuffle": _named(_SHUFFLES, message.shuffle, "shuffle"),
        "max_length": message.max_length,
        "long_rows": _named(_LONG_ROWS, message.long_rows, "long_rows"),
        "sampler": message.sampler,
    }
    if message.block_window:
        fields["block_window"] = message.block_window
    if message.weight_unit:
        fields["weight_unit"] = _named(_WEIGHT_UNITS, message.weight_unit, "weight_unit")
    if message.stopping:
        fields["stopping"] = _named(_STOPPINGS, message.stopping, "stopping")
    return _validated(OrderSpec, fields)


def batch_spec_to_proto(batch: BatchSpec) -> run_spec_pb2.BatchSpec:
    """Write a batch spec as its message."""
    return run_spec_pb2.BatchSpec(
        step_tokens=batch.step_tokens,
        step_samples=batch.step_samples,
        step_rounds=batch.step_rounds,
        micro_batch_tokens=batch.micro_batch_tokens,
        policy=_POLICIES[batch.policy],
        alignment=batch.alignment,
        pad_to=batch.pad_to,
        lookahead_steps=batch.lookahead_steps,
        max_steps=batch.max_steps or 0,
        max_epochs=batch.max_epochs or 0,
        cost_linear=batch.cost_linear,
        cost_quadratic=batch.cost_quadratic,
    )


def batch_spec_from_proto(message: run_spec_pb2.BatchSpec) -> BatchSpec:
    """Read a batch spec."""
    fields = {
        "step_tokens": message.step_tokens if message.HasField("step_tokens") else None,
        "step_samples": message.step_samples if message.HasField("step_samples") else None,
        "step_rounds": message.step_rounds if message.HasField("step_rounds") else None,
        "micro_batch_tokens": message.micro_batch_tokens,
        "policy": _named(_POLICIES, message.policy, "policy"),
        "alignment": message.alignment,
        "pad_to": message.pad_to,
        "lookahead_steps": message.lookahead_steps,
        "max_steps": message.max_steps or None,
        "max_epochs": message.max_epochs or None,
        "cost_linear": message.cost_linear,
        "cost_quadratic": message.cost_quadratic,
    }
    return _validated(BatchSpec, fields)


def _named(values: dict[NamedT, Any], number: int, field: str) -> NamedT:
    for value, its_number in values.items():
        if its_number == number:
            return value
    raise InvalidSpecError(f"{field}: {number} is none of {', '.join(map(str, values))}", field=field)


def _validated(spec: type[SpecT], fields: dict[str, Any]) -> SpecT:
    try:
        return spec(**fields)
    except ValidationError as error:
        raise spec_error(error) from error


def spec_error(error: ValidationError) -> InvalidSpecError:
    """Say in one line, for each field, what pydantic found wrong with a spec."""
    faults = [
        f"{'.'.join(map(str, fault['loc'])) or 'spec'}: {fault['msg']} (got {str(fault['input'])[:80]!r})"
        for fault in error.errors(include_url=False)
    ]
    first = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
    return InvalidSpecError("; ".join(faults), field=first)


def _one_line(message: object) -> str:
    return " ".join(str(message).split())[:300]
