"""Views of real numbers of single precision, which networks are fed with, and fetching memory ahead of its use."""

from typing import TYPE_CHECKING

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fairlead.engine.sim.compiled.views import View, _open, reals

if TYPE_CHECKING:
    floats = reals

    def address(h: int, field: int) -> int:
        """Where a field lies."""
        raise NotImplementedError

    def fetch(at: int) -> None:
        """Begin to bring the cache line at an address near."""

else:
    _WHOLE, _SINGLE = View(types.int64, 1), View(types.float32, 1)
    _BYTE, _NUMBER = ir.IntType(8), ir.IntType(32)

    @intrinsic
    def address(typing_context, h, field):  # noqa: D103
        def generate(context, builder, sig, arguments):
            view = _open(context, builder, _WHOLE, types.int64, *arguments)
            data = cgutils.create_struct_proxy(_WHOLE)(context, builder, view).data
            return builder.ptrtoint(data, ir.IntType(64))

        return types.int64(types.int64, types.int64), generate

    @intrinsic
    def fetch(typing_context, at):  # noqa: D103
        def generate(context, builder, sig, arguments):
            kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _NUMBER, _NUMBER, _NUMBER])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            how = [ir.Constant(_NUMBER, value) for value in (0, 3, 1)]  # to read, to keep, data
            builder.call(function, [builder.inttoptr(arguments[0], _BYTE.as_pointer()), *how])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    @intrinsic
    def floats(typing_context, h, field):
        """A field of real numbers of single precision."""

        def generate(context, builder, sig, arguments):
            return _open(context, builder, _SINGLE, types.int64, *arguments)

        return _SINGLE(types.int64, types.int64), generate
