"""Read pickle files that hold plain data, without giving the file a way to run code.

Python's unpickler does the reading, in bounds: the file may not be huge, its instructions are
gone through beforehand and must be few and of known kinds, and the only names that it may use are
four of numpy's. Those stand for small classes of this module, which build arrays from a checked
type, a checked shape and raw bytes; nothing of numpy is called on the file's behalf. What comes
out is made of arrays of numbers, lists, dicts, strings, bytes and numbers; all else is refused.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from goal.common.errors import GoalError
from goal.storage.files import read_bytes

RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
SCALAR = ("numpy.core.multiarray scalar", "numpy._core.multiarray scalar")
NDARRAY = "numpy ndarray"
DTYPE = "numpy dtype"
ALLOWED = frozenset({*RECONSTRUCT, *SCALAR, NDARRAY, DTYPE})
NUMBER_TYPE = re.compile(r"b1|[iu][1248]|f[248]|c(8|16)")
RESULT_TYPES = (np.ndarray, np.generic, list, dict, str, bytes, int, float, type(None))
KEY_TYPES = (str, bytes, int)

MAX_BYTES = 1 << 30
MAX_INSTRUCTIONS = 2_000_000  # an image takes about four: name, number of the name, two labels
MAX_TUPLES = 1_000  # hashing a tuple goes as deep into the C stack as tuples are nested
MAX_SIDES = 32

TEXTS = frozenset(
    {
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    }
)
SHARED = TEXTS | {"EMPTY_LIST", "LIST", "EMPTY_DICT", "DICT", "GLOBAL", "STACK_GLOBAL", "REDUCE"}
TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
INSTRUCTIONS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("NONE", "NEWTRUE", "NEWFALSE", "MARK", "EMPTY_TUPLE", "APPEND", "APPENDS"),
        *("SETITEM", "SETITEMS", "MEMOIZE", "BUILD", "PROTO", "FRAME", "STOP"),
        *(SHARED | TUPLES | PUTS | GETS),
    }
)


def load_arrays(path: Path) -> Any:
    """Read the pickle file at `path`.

    Strings that Python 2 wrote come back as bytes, arrays are read-only.

    Raises:
        GoalError: The file is unreadable, damaged, too large, or asks for what is not allowed.
    """
    try:
        data = read_bytes(path, MAX_BYTES, given=True)
        _inspect(data)
        return _plain(_Reader(io.BytesIO(data), encoding="bytes").load())
    except _RefusedError as refusal:
        raise GoalError(
            f"Refused to read {path}: {refusal}. Official dataset files hold nothing of the kind: "
            "fetch the file again from its publisher."
        ) from None
    except (
        *(pickle.UnpicklingError, ValueError, TypeError, LookupError, AttributeError),
        *(EOFError, OverflowError, MemoryError),
    ) as error:
        raise GoalError(
            f"{path} is not a complete pickle file ({error}). Remove it and fetch it again."
        ) from error


class _RefusedError(Exception):
    """The file asks for something that plain data does not need."""


def _inspect(data: bytes) -> None:
    """Go through the instructions without following them, and refuse what could do harm.

    The unpickler makes room for every number up to the highest that a value is kept under, and
    tuples that are used twice can be nested so that hashing one never ends: so values are numbered
    in order, and a tuple that was kept is not used again.
    """
    steps: Iterator[tuple[Any, Any, Any]] = pickletools.genops(data)
    kept: dict[int, str] = {}
    tuples, before = 0, ""
    for count, (opcode, argument, _) in enumerate(steps):
        name = opcode.name
        if name not in INSTRUCTIONS:
            raise _RefusedError(f"it uses the instruction {name} ({argument!r})")
        if name == "GLOBAL":
            _require_allowed(str(argument))
        tuples += name in TUPLES
        if count >= MAX_INSTRUCTIONS or tuples > MAX_TUPLES:
            raise _RefusedError("it has more instructions than any file of arrays needs")
        if name in PUTS or name == "MEMOIZE":
            number = len(kept) if name == "MEMOIZE" else argument
            if number > count:
                raise _RefusedError(f"it keeps a value under the number {number}, out of order")
            kept[number] = before
        elif name in GETS and kept[argument] not in SHARED:
            raise _RefusedError("it uses a value twice that is neither data nor an array")
        before = before if name == "FRAME" else name


def _require_allowed(name: str) -> None:
    if name not in ALLOWED:
        raise _RefusedError(f"it names {name.replace(' ', '.')!r}, which could run code")


class _Reader(pickle.Unpickler):
    """Python's unpickler, which finds nothing but the allowed names, and those as mere labels."""

    def find_class(self, module: str, name: str) -> "_Name":
        """Return the label of an allowed name; nothing is imported or looked up."""
        _require_allowed(f"{module} {name}")
        return _Name(f"{module} {name}")


class _Name:
    """One of the allowed names. Calling it is the only call that a file can make."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, *arguments: Any) -> "_Array | _Type":
        """Begin an array or a type, or make a scalar: the only three calls there are."""
        if self.text in RECONSTRUCT:
            if getattr(arguments[0], "text", None) != NDARRAY:
                raise _RefusedError("it reconstructs something that is not an array")
            return _Array()
        if self.text == DTYPE:
            return _Type(arguments[0])
        if self.text in SCALAR:
            return _scalar(*arguments)
        raise _RefusedError(f"it calls {self.text.replace(' ', '.')!r}")

    def __setstate__(self, state: Any) -> None:
        raise _RefusedError("it sets the state of a name")


class _Type:
    """A numpy type in the making: a code such as ``u1``, then a byte order."""

    def __init__(self, code: Any) -> None:
        text = _text(code)
        if text.lstrip("|<>=").startswith("O"):
            raise _RefusedError("it holds an array of Python objects")
        if not NUMBER_TYPE.fullmatch(text):
            raise _RefusedError(f"it holds an array of type {text!r} where numbers are expected")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        """Take over the byte order; sub-arrays, named fields and the like are refused."""
        if len(state) != 8 or any(part is not None for part in state[2:5]):
            raise _RefusedError("it holds an array whose elements are not plain numbers")
        self.dtype = self.dtype.newbyteorder(_byte_order(_text(state[1])))


class _Array:
    """An array in the making: announced by a call, filled when its state is set."""

    def __init__(self) -> None:
        self.value: npt.NDArray[Any] | np.generic | None = None

    def __setstate__(self, state: Any) -> None:
        """Lay the bytes of `state` out as an array."""
        _, shape, kind, fortran, data = state
        self.value = _laid_out(shape, kind, "F" if fortran else "C", data)


def _scalar(kind: Any, data: Any) -> _Array:
    made = _Array()
    made.value = _laid_out((), kind, "C", data)[()]
    return made


def _laid_out(shape: Any, kind: Any, order: Literal["F", "C"], data: Any) -> npt.NDArray[Any]:
    if not isinstance(kind, _Type) or not isinstance(data, bytes):
        raise _RefusedError("it holds an array that is not made of bytes")
    if len(shape) > MAX_SIDES or not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("an array has a bad shape")
    if math.prod(shape) * kind.dtype.itemsize != len(data):
        raise ValueError("an array's bytes do not fit its shape")
    return np.ndarray(shape, kind.dtype, buffer=data, order=order)


def _plain(value: Any) -> Any:
    """Check everything that `value` holds, and put each array in the place of its maker."""
    outermost = [value]
    waiting: list[Any] = [outermost]
    seen: set[int] = set()
    while waiting:
        holder = waiting.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        for key, part in list(_entries(holder)):
            holder[key] = _result(part)
            if isinstance(part, list | dict):
                waiting.append(part)
    return outermost[0]


def _entries(holder: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(holder, list):
        yield from enumerate(holder)
        return
    for key, value in holder.items():
        if not isinstance(key, KEY_TYPES):
            raise _RefusedError(f"it holds a dict with a key of type {_kind(key)}")
        yield key, value


def _result(value: Any) -> Any:
    """Return `value` if it may be part of the result; names and half-made arrays may not."""
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if not isinstance(value, RESULT_TYPES):
        raise _RefusedError(f"its data holds a bare {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    """Name the type of `value` for people."""
    return type(value).__name__.lstrip("_").lower()


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise ValueError("expected a string")
    return value if isinstance(value, str) else value.decode("latin-1")


def _byte_order(text: str) -> Any:
    if text not in ("<", ">", "|", "="):
        raise ValueError("an array has an unknown byte order")
    return text
