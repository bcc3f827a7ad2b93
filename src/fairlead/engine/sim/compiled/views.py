"""Typed views into the memory of a compiled run, and the machine instructions that Python lacks.

A run's state is many arrays of its own sizes. Compiled code gets the address `h` of a small table with the address and
the length of each (`layout` numbers them) and opens the few that it needs. A view is a bare pointer: it owns nothing,
so that opening one costs a load and passing one costs nothing. One compiled program thus serves every size of
scenario, and thousands of runs at once are thousands of tables.

The optimiser is told that the table never changes, and that whole and real numbers never share a place. Where numba
checks bounds (NUMBA_BOUNDSCHECK=1), every access to a view is checked against the length of its own array.
"""

import operator
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # type: ignore[attr-defined,unused-ignore]
from numba.core import cgutils
from numba.core import config as _config
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model
from numpy.typing import NDArray

from fairlead.engine.sim.compiled.layout import COLUMN

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
config: Any = _config
F = TypeVar("F", bound=Callable[..., object])


def _source() -> str:
    """What tells this source from any other, of all files of the package: code of one holds code of the others.

    By content, as in numba: copies of a file, such as those of an image, have other times.
    """
    source = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source.update(path.read_bytes())
    return source.hexdigest()


_SOURCE = _source()


def _keep_on_disk(dispatcher: Any) -> Any:
    """Let the machine code on disk be outdated by a change in any file of the package, not only in its own."""
    kept = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if kept is not None:
        kept._source_stamp = (kept._source_stamp, _SOURCE, bool(config.BOUNDSCHECK))
    return dispatcher


if TYPE_CHECKING:

    def compiled(function: F) -> F:
        """The same function as machine code, made part of the code that calls it."""
        return function

    def kept(*signatures: object) -> Callable[[F], F]:
        """As above for what Python calls: compiled, or loaded from disk, at once. It keeps the GIL for calls back."""
        return lambda function: function

else:
    compiled = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")

    def kept(*signatures):  # noqa: D103
        def decorate(function):
            dispatcher = _keep_on_disk(njit(cache=True, error_model="numpy")(function))
            for one in signatures:
                dispatcher.compile(one)
            dispatcher.disable_compile()
            return dispatcher

        return decorate


class View(types.Type):
    """A stretch of memory that holds numbers of one type."""

    def __init__(self, dtype: Any, width: int) -> None:
        self.dtype = dtype
        self.width = width  # of the record that each number lies in, in words
        super().__init__(name=f"View({dtype}, {width})")


@register_model(View)
class _ViewModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("data", types.CPointer(kind.dtype)), ("length", types.int64)])


_WORD = ir.IntType(64)


def _never_changes(builder: Any, load: Any) -> Any:
    load.set_metadata("invariant.load", builder.module.add_metadata([]))
    return load


def _tag(builder: Any, access: Any, dtype: Any) -> Any:
    """Say what kind of number an access is to; kinds never share a place."""
    module = builder.module
    root = module.add_metadata(["fairlead"])
    kind = module.add_metadata([str(dtype), root, ir.Constant(_WORD, 0)])
    access.set_metadata("tbaa", module.add_metadata([kind, kind, ir.Constant(_WORD, 0)]))
    return access


def _open(context: Any, builder: Any, kind: View, field_type: Any, h: Any, field: Any) -> Any:
    table = builder.inttoptr(h, _WORD.as_pointer())
    if isinstance(field_type, types.IntegerLiteral):
        field = ir.Constant(_WORD, field_type.literal_value)
    entry = builder.mul(field, ir.Constant(_WORD, 2))
    view = cgutils.create_struct_proxy(kind)(context, builder)
    address = _never_changes(builder, builder.load(builder.gep(table, [entry])))
    view.data = builder.inttoptr(address, context.get_value_type(types.CPointer(kind.dtype)))
    length = builder.gep(table, [builder.add(entry, ir.Constant(_WORD, 1))])
    view.length = _never_changes(builder, builder.load(length))
    return view._getvalue()


def _kind(field: Any, dtype: Any) -> View:
    """The type of a field's view. Fields that lie in records must be named outright, not by a variable."""
    group, _ = COLUMN.get(field.literal_value, ((field,), 0)) if isinstance(field, types.IntegerLiteral) else ((0,), 0)
    return View(dtype, len(group))


if TYPE_CHECKING:

    def ints(h: int, field: int) -> Ints:
        """A field of whole numbers."""
        raise NotImplementedError

    def reals(h: int, field: int) -> Reals:
        """A field of real numbers."""
        raise NotImplementedError

else:

    @intrinsic(prefer_literal=True)
    def ints(typing_context, h, field):  # noqa: D103
        kind = _kind(field, types.int64)

        def generate(context, builder, sig, arguments):
            return _open(context, builder, kind, sig.args[1], *arguments)

        return kind(types.int64, field), generate

    @intrinsic(prefer_literal=True)
    def reals(typing_context, h, field):  # noqa: D103
        kind = _kind(field, types.float64)

        def generate(context, builder, sig, arguments):
            return _open(context, builder, kind, sig.args[1], *arguments)

        return kind(types.int64, field), generate


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    def generic(self, arguments: Any, keywords: Any) -> Any:
        if isinstance(arguments[0], View) and isinstance(arguments[1], types.Integer):
            return signature(arguments[0].dtype, arguments[0], types.int64)
        return None


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, arguments: Any, keywords: Any) -> Any:
        view = arguments[0]
        if isinstance(view, View) and isinstance(arguments[1], types.Integer):
            return signature(types.none, view, types.int64, view.dtype)
        return None


@infer_global(len)
class _Length(AbstractTemplate):
    def generic(self, arguments: Any, keywords: Any) -> Any:
        return signature(types.int64, *arguments) if isinstance(arguments[0], View) else None


def _place(context: Any, builder: Any, kind: Any, value: Any, at: Any) -> Any:
    view = cgutils.create_struct_proxy(kind)(context, builder, value)
    if config.BOUNDSCHECK:
        is_inside = builder.icmp_unsigned("<", at, view.length)
        with builder.if_then(builder.not_(is_inside), likely=False):
            context.call_conv.return_user_exc(builder, IndexError, ("index is out of bounds",))
    return builder.gep(view.data, [builder.mul(at, ir.Constant(_WORD, kind.width))])


@lower_builtin(operator.getitem, View, types.int64)
def _get(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    kind = sig.args[0]
    return _tag(builder, builder.load(_place(context, builder, kind, arguments[0], arguments[1])), kind.dtype)


@lower_builtin(operator.setitem, View, types.int64, types.Any)
def _set(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    kind = sig.args[0]
    _tag(builder, builder.store(arguments[2], _place(context, builder, kind, arguments[0], arguments[1])), kind.dtype)
    return context.get_dummy_value()


@lower_builtin(len, View)
def _length(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    return cgutils.create_struct_proxy(sig.args[0])(context, builder, arguments[0]).length


if TYPE_CHECKING:

    def trailing_zeros(word: int) -> int:
        """Position of the lowest set bit of a word that is not 0."""
        raise NotImplementedError

    def _pointer(view: Ints) -> Any:
        raise NotImplementedError

else:

    @intrinsic
    def trailing_zeros(typing_context, word):  # noqa: D103
        def generate(context, builder, sig, arguments):
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.int64), generate

    @intrinsic
    def _pointer(typing_context, view):
        def generate(context, builder, sig, arguments):
            return cgutils.create_struct_proxy(view)(context, builder, arguments[0]).data

        return types.CPointer(view.dtype)(view), generate


@compiled
def row(values: Ints, number: int, width: int) -> Ints:
    """One row of a field that holds rows, as an array that other code understands."""
    return carray(_pointer(values), (number + 1) * width)[number * width :]
