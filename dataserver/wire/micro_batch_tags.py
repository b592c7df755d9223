"""Fields of the hot message: number << 3 | wire type, where 0 is a number, 1 is 64 bits and 2 has a length.

`micro_batch_loops` has these values in its machine code, which Numba keeps until that file itself changes.
"""

from typing import Final

MICRO_BATCH: Final = 3 << 3 | 2
"""Of a `StreamMicroBatchesResponse`; all others are a micro-batch's."""

CHECKSUM: Final = 1 << 3 | 1
STEP: Final = 2 << 3
ROUND: Final = 3 << 3
SYNC_WEIGHTS: Final = 4 << 3
TOKEN_BYTES: Final = 5 << 3
ALIGNMENT: Final = 6 << 3
TARGET_COUNT: Final = 7 << 3
PADDING: Final = 8 << 3
LENGTHS: Final = 9 << 3 | 2
LOSS_MASK: Final = 10 << 3 | 2
LOSS_WEIGHT: Final = 11 << 3 | 2
IMAGES: Final = 12 << 3 | 2
FILL: Final = 14 << 3 | 2
TOKENS: Final = 15 << 3 | 2

CHECKSUM_BYTES: Final = 9
"""The field, its tag included."""
