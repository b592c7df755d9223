"""Machine code of `instructions`. Imported with Numba, at the first call of a compiled function."""

# ruff: noqa: ANN401, ARG001, ARG005, PLW0108 - Numba passes types for values, and wants its parameters by their names

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from dataserver.compiled.instructions import BLOCK_BYTES, copy_block, copy_bytes, copy_from, fetch_ahead

_BYTE: Final = ir.IntType(8)
_VECTOR_BYTES: Final = 32
_VECTOR: Final = ir.VectorType(_BYTE, _VECTOR_BYTES)
_NUMBER: Final = ir.IntType(32)


def _write_memcpy(_: object, out: Any, at: Any, values: Any, begin: Any, count: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (_address(context, builder, signature, args, number) for number in (0, 2))
        byte = context.get_constant(types.int64, 1)
        cgutils.raw_memcpy(builder, target, source, args[4], byte)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(out, at, values, begin, types.int64), write


def _write_memcpy_from(_: object, out: Any, at: Any, address: Any, count: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = _address(context, builder, signature, args, 0), builder.inttoptr(args[2], _BYTE.as_pointer())
        byte = context.get_constant(types.int64, 1)
        cgutils.raw_memcpy(builder, target, source, args[3], byte)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(out, at, types.int64, types.int64), write


def _write_block_copy(_: object, out: Any, at: Any, values: Any, begin: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (_address(context, builder, signature, args, number) for number in (0, 2))
        shifts = [context.get_constant(types.intp, shift) for shift in range(0, BLOCK_BYTES, _VECTOR_BYTES)]
        loaded = [builder.load(_vector_at(builder, source, shift), align=1) for shift in shifts]
        for vector, shift in zip(loaded, shifts, strict=True):
            builder.store(vector, _vector_at(builder, target, shift), align=1)
        return context.get_dummy_value()

    return types.void(out, at, values, begin), write


def _write_prefetch(_: object, values: Any, at: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _NUMBER, _NUMBER, _NUMBER])
        name = "llvm.prefetch.p0i8"
        prefetch = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        # To be read, into the second-level cache, as data.
        how = [_NUMBER(0), _NUMBER(2), _NUMBER(1)]
        builder.call(prefetch, [_address(context, builder, signature, args, 0), *how])
        return context.get_dummy_value()

    return types.void(values, at), write


def _address(context: Any, builder: Any, signature: Any, args: Any, number: int) -> Any:
    """Of the element that argument `number`, an array, has at the index that the next argument is."""
    array = context.make_array(signature.args[number])(context, builder, args[number])
    return builder.gep(array.data, [args[number + 1]])


def _vector_at(builder: Any, address: Any, shift: Any) -> Any:
    return builder.bitcast(builder.gep(address, [shift]), _VECTOR.as_pointer())


_memcpy: Any = intrinsic(_write_memcpy)
_memcpy_from: Any = intrinsic(_write_memcpy_from)
_block_copy: Any = intrinsic(_write_block_copy)
_prefetch: Any = intrinsic(_write_prefetch)

overload(copy_bytes)(
    lambda out, at, values, begin, count: lambda out, at, values, begin, count: _memcpy(out, at, values, begin, count)
)
overload(copy_from)(
    lambda out, at, address, count: lambda out, at, address, count: _memcpy_from(out, at, address, count)
)
overload(copy_block)(lambda out, at, values, begin: lambda out, at, values, begin: _block_copy(out, at, values, begin))
overload(fetch_ahead)(lambda values, at: lambda values, at: _prefetch(values, at))
