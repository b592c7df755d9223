from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WeightUnit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEIGHT_UNIT_UNSPECIFIED: _ClassVar[WeightUnit]
    WEIGHT_UNIT_SAMPLES: _ClassVar[WeightUnit]
    WEIGHT_UNIT_TOKENS: _ClassVar[WeightUnit]

class Stopping(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOPPING_UNSPECIFIED: _ClassVar[Stopping]
    STOPPING_FIRST_EXHAUSTED: _ClassVar[Stopping]
    STOPPING_ALL_EXHAUSTED: _ClassVar[Stopping]
    STOPPING_ALL_EXHAUSTED_WITHOUT_REPLACEMENT: _ClassVar[Stopping]
    STOPPING_WITH_REPLACEMENT: _ClassVar[Stopping]

class Shuffle(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHUFFLE_UNSPECIFIED: _ClassVar[Shuffle]
    SHUFFLE_SEQUENTIAL: _ClassVar[Shuffle]
    SHUFFLE_FULL: _ClassVar[Shuffle]
    SHUFFLE_BLOCK: _ClassVar[Shuffle]
    SHUFFLE_CUSTOM: _ClassVar[Shuffle]

class LongRows(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LONG_ROWS_UNSPECIFIED: _ClassVar[LongRows]
    LONG_ROWS_TRUNCATE: _ClassVar[LongRows]
    LONG_ROWS_DROP: _ClassVar[LongRows]
    LONG_ROWS_REFUSE: _ClassVar[LongRows]
    LONG_ROWS_SPLIT: _ClassVar[LongRows]

class PackingPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PACKING_POLICY_UNSPECIFIED: _ClassVar[PackingPolicy]
    PACKING_POLICY_BALANCED: _ClassVar[PackingPolicy]
    PACKING_POLICY_FIRST_FIT: _ClassVar[PackingPolicy]
    PACKING_POLICY_COST_BALANCED: _ClassVar[PackingPolicy]
    PACKING_POLICY_SEQUENTIAL: _ClassVar[PackingPolicy]
    PACKING_POLICY_NONE: _ClassVar[PackingPolicy]
WEIGHT_UNIT_UNSPECIFIED: WeightUnit
WEIGHT_UNIT_SAMPLES: WeightUnit
WEIGHT_UNIT_TOKENS: WeightUnit
STOPPING_UNSPECIFIED: Stopping
STOPPING_FIRST_EXHAUSTED: Stopping
STOPPING_ALL_EXHAUSTED: Stopping
STOPPING_ALL_EXHAUSTED_WITHOUT_REPLACEMENT: Stopping
STOPPING_WITH_REPLACEMENT: Stopping
SHUFFLE_UNSPECIFIED: Shuffle
SHUFFLE_SEQUENTIAL: Shuffle
SHUFFLE_FULL: Shuffle
SHUFFLE_BLOCK: Shuffle
SHUFFLE_CUSTOM: Shuffle
LONG_ROWS_UNSPECIFIED: LongRows
LONG_ROWS_TRUNCATE: LongRows
LONG_ROWS_DROP: LongRows
LONG_ROWS_REFUSE: LongRows
LONG_ROWS_SPLIT: LongRows
PACKING_POLICY_UNSPECIFIED: PackingPolicy
PACKING_POLICY_BALANCED: PackingPolicy
PACKING_POLICY_FIRST_FIT: PackingPolicy
PACKING_POLICY_COST_BALANCED: PackingPolicy
PACKING_POLICY_SEQUENTIAL: PackingPolicy
PACKING_POLICY_NONE: PackingPolicy

class RunSpec(_message.Message):
    __slots__ = ("order", "batch", "vocab_size", "images")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    order: OrderSpec
    batch: BatchSpec
    vocab_size: int
    images: bool
    def __init__(self, order: _Optional[_Union[OrderSpec, _Mapping]] = ..., batch: _Optional[_Union[BatchSpec, _Mapping]] = ..., vocab_size: _Optional[int] = ..., images: _Optional[bool] = ...) -> None: ...

class OrderSpec(_message.Message):
    __slots__ = ("sources", "seed", "shuffle", "max_length", "long_rows", "block_window", "sampler", "weight_unit", "stopping")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LONG_ROWS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_WINDOW_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_UNIT_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    seed: int
    shuffle: Shuffle
    max_length: int
    long_rows: LongRows
    block_window: int
    sampler: str
    weight_unit: WeightUnit
    stopping: Stopping
    def __init__(self, sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., seed: _Optional[int] = ..., shuffle: _Optional[_Union[Shuffle, str]] = ..., max_length: _Optional[int] = ..., long_rows: _Optional[_Union[LongRows, str]] = ..., block_window: _Optional[int] = ..., sampler: _Optional[str] = ..., weight_unit: _Optional[_Union[WeightUnit, str]] = ..., stopping: _Optional[_Union[Stopping, str]] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("store", "weight", "loss_weight")
    STORE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    store: str
    weight: float
    loss_weight: bool
    def __init__(self, store: _Optional[str] = ..., weight: _Optional[float] = ..., loss_weight: _Optional[bool] = ...) -> None: ...

class BatchSpec(_message.Message):
    __slots__ = ("step_tokens", "step_samples", "step_rounds", "micro_batch_tokens", "policy", "alignment", "lookahead_steps", "max_steps", "max_epochs", "cost_linear", "cost_quadratic", "pad_to")
    STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEP_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    STEP_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    COST_LINEAR_FIELD_NUMBER: _ClassVar[int]
    COST_QUADRATIC_FIELD_NUMBER: _ClassVar[int]
    PAD_TO_FIELD_NUMBER: _ClassVar[int]
    step_tokens: int
    step_samples: int
    step_rounds: int
    micro_batch_tokens: int
    policy: PackingPolicy
    alignment: int
    lookahead_steps: int
    max_steps: int
    max_epochs: int
    cost_linear: int
    cost_quadratic: int
    pad_to: int
    def __init__(self, step_tokens: _Optional[int] = ..., step_samples: _Optional[int] = ..., step_rounds: _Optional[int] = ..., micro_batch_tokens: _Optional[int] = ..., policy: _Optional[_Union[PackingPolicy, str]] = ..., alignment: _Optional[int] = ..., lookahead_steps: _Optional[int] = ..., max_steps: _Optional[int] = ..., max_epochs: _Optional[int] = ..., cost_linear: _Optional[int] = ..., cost_quadratic: _Optional[int] = ..., pad_to: _Optional[int] = ...) -> None: ...

class EvalSpec(_message.Message):
    __slots__ = ("store", "max_length", "long_rows", "micro_batch_tokens", "alignment", "pad_to", "max_samples", "vocab_size", "images")
    STORE_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LONG_ROWS_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    PAD_TO_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    store: str
    max_length: int
    long_rows: LongRows
    micro_batch_tokens: int
    alignment: int
    pad_to: int
    max_samples: int
    vocab_size: int
    images: bool
    def __init__(self, store: _Optional[str] = ..., max_length: _Optional[int] = ..., long_rows: _Optional[_Union[LongRows, str]] = ..., micro_batch_tokens: _Optional[int] = ..., alignment: _Optional[int] = ..., pad_to: _Optional[int] = ..., max_samples: _Optional[int] = ..., vocab_size: _Optional[int] = ..., images: _Optional[bool] = ...) -> None: ...
