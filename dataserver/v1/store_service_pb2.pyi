from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListStoresRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListStoresResponse(_message.Message):
    __slots__ = ("stores", "next_page_token")
    STORES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    stores: _containers.RepeatedCompositeFieldContainer[Store]
    next_page_token: str
    def __init__(self, stores: _Optional[_Iterable[_Union[Store, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetStoreRequest(_message.Message):
    __slots__ = ("store", "max_length")
    STORE_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    store: str
    max_length: int
    def __init__(self, store: _Optional[str] = ..., max_length: _Optional[int] = ...) -> None: ...

class GetStoreResponse(_message.Message):
    __slots__ = ("store",)
    STORE_FIELD_NUMBER: _ClassVar[int]
    store: Store
    def __init__(self, store: _Optional[_Union[Store, _Mapping]] = ...) -> None: ...

class Store(_message.Message):
    __slots__ = ("name", "fingerprint", "format", "rows", "tokens", "longest_row", "max_token", "token_bytes", "columns", "shards", "ignored", "dropped", "kept_rows", "kept_tokens", "cut_tokens", "length_histogram", "links", "max_token_row", "loss_mask", "max_length", "padding", "read_amplification", "images", "admission", "checked_rows", "state", "rendering", "fault")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_ROW_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    KEPT_ROWS_FIELD_NUMBER: _ClassVar[int]
    KEPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKEN_ROW_FIELD_NUMBER: _ClassVar[int]
    LOSS_MASK_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    READ_AMPLIFICATION_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    CHECKED_ROWS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RENDERING_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    fingerprint: str
    format: str
    rows: int
    tokens: int
    longest_row: int
    max_token: int
    token_bytes: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    ignored: _containers.RepeatedCompositeFieldContainer[IgnoredPath]
    dropped: _containers.ScalarMap[str, int]
    kept_rows: int
    kept_tokens: int
    cut_tokens: int
    length_histogram: _containers.RepeatedCompositeFieldContainer[LengthBucket]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    max_token_row: int
    loss_mask: str
    max_length: int
    padding: _containers.RepeatedCompositeFieldContainer[Padding]
    read_amplification: ReadAmplification
    images: StoreImages
    admission: str
    checked_rows: int
    state: str
    rendering: Rendering
    fault: str
    def __init__(self, name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., format: _Optional[str] = ..., rows: _Optional[int] = ..., tokens: _Optional[int] = ..., longest_row: _Optional[int] = ..., max_token: _Optional[int] = ..., token_bytes: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., ignored: _Optional[_Iterable[_Union[IgnoredPath, _Mapping]]] = ..., dropped: _Optional[_Mapping[str, int]] = ..., kept_rows: _Optional[int] = ..., kept_tokens: _Optional[int] = ..., cut_tokens: _Optional[int] = ..., length_histogram: _Optional[_Iterable[_Union[LengthBucket, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., max_token_row: _Optional[int] = ..., loss_mask: _Optional[str] = ..., max_length: _Optional[int] = ..., padding: _Optional[_Iterable[_Union[Padding, _Mapping]]] = ..., read_amplification: _Optional[_Union[ReadAmplification, _Mapping]] = ..., images: _Optional[_Union[StoreImages, _Mapping]] = ..., admission: _Optional[str] = ..., checked_rows: _Optional[int] = ..., state: _Optional[str] = ..., rendering: _Optional[_Union[Rendering, _Mapping]] = ..., fault: _Optional[str] = ...) -> None: ...

class Rendering(_message.Message):
    __slots__ = ("stage", "done", "total", "rows", "tokens", "rows_per_s", "tokens_per_s", "left_s")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    stage: str
    done: int
    total: int
    rows: int
    tokens: int
    rows_per_s: float
    tokens_per_s: float
    left_s: float
    def __init__(self, stage: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., rows: _Optional[int] = ..., tokens: _Optional[int] = ..., rows_per_s: _Optional[float] = ..., tokens_per_s: _Optional[float] = ..., left_s: _Optional[float] = ...) -> None: ...

class StoreImages(_message.Message):
    __slots__ = ("rows", "first_row", "images", "patches", "patch_values", "pixel_bytes", "bytes_per_token", "densest_row")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    PATCHES_FIELD_NUMBER: _ClassVar[int]
    PATCH_VALUES_FIELD_NUMBER: _ClassVar[int]
    PIXEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DENSEST_ROW_FIELD_NUMBER: _ClassVar[int]
    rows: int
    first_row: int
    images: int
    patches: int
    patch_values: int
    pixel_bytes: int
    bytes_per_token: int
    densest_row: int
    def __init__(self, rows: _Optional[int] = ..., first_row: _Optional[int] = ..., images: _Optional[int] = ..., patches: _Optional[int] = ..., patch_values: _Optional[int] = ..., pixel_bytes: _Optional[int] = ..., bytes_per_token: _Optional[int] = ..., densest_row: _Optional[int] = ...) -> None: ...

class Padding(_message.Message):
    __slots__ = ("micro_batch_tokens", "rows", "unpacked", "packed")
    MICRO_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    UNPACKED_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    micro_batch_tokens: int
    rows: int
    unpacked: float
    packed: float
    def __init__(self, micro_batch_tokens: _Optional[int] = ..., rows: _Optional[int] = ..., unpacked: _Optional[float] = ..., packed: _Optional[float] = ...) -> None: ...

class ReadAmplification(_message.Message):
    __slots__ = ("blocks", "decoded_bytes", "cache_bytes", "rows_per_row")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DECODED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_ROW_FIELD_NUMBER: _ClassVar[int]
    blocks: int
    decoded_bytes: int
    cache_bytes: int
    rows_per_row: float
    def __init__(self, blocks: _Optional[int] = ..., decoded_bytes: _Optional[int] = ..., cache_bytes: _Optional[int] = ..., rows_per_row: _Optional[float] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("path", "size", "rows", "digest")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    rows: int
    digest: str
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., rows: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class IgnoredPath(_message.Message):
    __slots__ = ("path", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    reason: str
    def __init__(self, path: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("path", "target")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    path: str
    target: str
    def __init__(self, path: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class LengthBucket(_message.Message):
    __slots__ = ("begin", "end", "rows")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    rows: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ListSamplesRequest(_message.Message):
    __slots__ = ("store", "begin_row", "end_row", "max_length")
    STORE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_ROW_FIELD_NUMBER: _ClassVar[int]
    END_ROW_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    store: str
    begin_row: int
    end_row: int
    max_length: int
    def __init__(self, store: _Optional[str] = ..., begin_row: _Optional[int] = ..., end_row: _Optional[int] = ..., max_length: _Optional[int] = ...) -> None: ...

class ListSamplesResponse(_message.Message):
    __slots__ = ("samples",)
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    def __init__(self, samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("row", "kept", "reason", "input_ids", "loss_mask", "loss_weight", "images", "patches")
    ROW_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_MASK_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    PATCHES_FIELD_NUMBER: _ClassVar[int]
    row: int
    kept: bool
    reason: str
    input_ids: _containers.RepeatedScalarFieldContainer[int]
    loss_mask: _containers.RepeatedScalarFieldContainer[bool]
    loss_weight: _containers.RepeatedScalarFieldContainer[float]
    images: int
    patches: int
    def __init__(self, row: _Optional[int] = ..., kept: _Optional[bool] = ..., reason: _Optional[str] = ..., input_ids: _Optional[_Iterable[int]] = ..., loss_mask: _Optional[_Iterable[bool]] = ..., loss_weight: _Optional[_Iterable[float]] = ..., images: _Optional[int] = ..., patches: _Optional[int] = ...) -> None: ...
