"""What pyarrow raises for files that it cannot make sense of."""

import pyarrow as pa

PARSE_ERRORS = (
    pa.ArrowException,
    OSError,
    ValueError,  # also a column name that is no UTF-8, and numpy for a buffer that is too short
    MemoryError,  # a size that was damaged into petabytes
    SystemError,  # metadata that its binding cannot convert
)
