"""Read pickle files that hold plain data, without giving the file a way to run code.

Python's own unpickler calls whatever functions a file names. This one calls none: it steps through
the instructions itself, knows four names of numpy by heart, and builds the arrays on its own from
a checked type, a checked shape and raw bytes. What comes out is made of arrays of numbers, lists,
dicts, strings, bytes and numbers; anything else is refused.
"""

import math
import pickletools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from goal.common.errors import GoalError

RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
SCALAR = ("numpy.core.multiarray scalar", "numpy._core.multiarray scalar")
NDARRAY = "numpy ndarray"
DTYPE = "numpy dtype"
ALLOWED = frozenset({*RECONSTRUCT, *SCALAR, NDARRAY, DTYPE})
NUMBER_TYPE = re.compile(r"b1|[iu][1248]|f[248]|c(8|16)")
RESULT_TYPES = (np.ndarray, np.generic, list, dict, str, bytes, int, float, type(None))
KEY_TYPES = (str, bytes, int)


def load_arrays(path: Path) -> Any:
    """Read the pickle file at `path`.

    Strings that Python 2 wrote come back as bytes, arrays are read-only.

    Raises:
        GoalError: The file is unreadable, damaged, or names something that is not allowed.
    """
    try:
        return _Machine().run(path.read_bytes())
    except _RefusedError as refusal:
        raise GoalError(
            f"Refused to read {path}: {refusal}. Official dataset files hold nothing of the kind: "
            "fetch the file again from its publisher."
        ) from None
    except OSError as error:
        raise GoalError(f"Cannot read {path}: {error}.") from error
    except (ValueError, TypeError, LookupError, OverflowError, MemoryError) as error:
        raise GoalError(
            f"{path} is not a complete pickle file ({error}). Remove it and fetch it again."
        ) from error


class _RefusedError(Exception):
    """The file asks for something that plain data does not need."""


class _Name:
    """One of the allowed names, as a mere label: nothing is imported or looked up."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Type:
    """A numpy type in the making: a code such as ``u1``, then a byte order."""

    def __init__(self, code: Any) -> None:
        text = _text(code)
        if text.lstrip("|<>=").startswith("O"):
            raise _RefusedError("it holds an array of Python objects")
        if not NUMBER_TYPE.fullmatch(text):
            raise _RefusedError(f"it holds an array of type {text!r} where numbers are expected")
        self.dtype = np.dtype(text)

    def build(self, state: Any) -> "_Type":
        """Take over the byte order; sub-arrays, named fields and the like are refused."""
        if len(state) != 8 or any(part is not None for part in state[2:5]):
            raise _RefusedError("it holds an array whose elements are not plain numbers")
        self.dtype = self.dtype.newbyteorder(_byte_order(_text(state[1])))
        return self


class _Array:
    """An array in the making: announced by REDUCE, filled by BUILD."""

    def __init__(self) -> None:
        self.array: npt.NDArray[Any] | None = None

    def build(self, state: Any) -> npt.NDArray[Any]:
        """Lay the bytes of `state` out as an array."""
        _, shape, kind, fortran, data = state
        if not isinstance(kind, _Type) or not isinstance(data, bytes):
            raise _RefusedError("it holds an array that is not made of bytes")
        if not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError("an array has a bad shape")
        if math.prod(shape) * kind.dtype.itemsize != len(data):
            raise ValueError("an array's bytes do not fit its shape")
        order: Literal["F", "C"] = "F" if fortran else "C"
        self.array = np.ndarray(shape, kind.dtype, buffer=data, order=order)
        return self.array


class _Machine:
    """A stack, a memo, and one small method for each group of instructions."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """Follow the instructions up to STOP and return the value they leave behind."""
        for opcode, argument, _ in pickletools.genops(data):
            step = STEPS.get(opcode.name)
            if step is None:
                raise _RefusedError(f"it uses the instruction {opcode.name} ({argument!r})")
            step(self, argument)
        return _result(self.stack.pop())

    def push(self, value: Any) -> None:
        """Constants: numbers, strings, None."""
        self.stack.append(value)

    def push_old_string(self, value: str) -> None:
        """Strings of Python 2 are bytes; the instruction decoder has read them as Latin-1."""
        self.stack.append(value.encode("latin-1"))

    def mark(self, _: Any) -> None:
        """Remember the height of the stack."""
        self.marks.append(len(self.stack))

    def items(self) -> list[Any]:
        """Take everything above the last mark."""
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def tuple_of(self, count: int) -> None:
        """Join the last `count` values; tuples are only ever arguments, never results."""
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        parts = tuple(self.stack[-count:])
        self.stack[-count:] = [parts]

    def extend(self, values: list[Any]) -> None:
        """Append to the list on top."""
        _top(self.stack, list).extend(_result(value) for value in values)

    def update(self, pairs: list[Any]) -> None:
        """Set keys of the dict on top."""
        table = _top(self.stack, dict)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, KEY_TYPES):
                raise _RefusedError(f"it holds a dict with a key of type {_kind(key)}")
            table[key] = _result(value)

    def new_dict(self, _: Any) -> None:
        """Make a dict of everything above the last mark."""
        pairs = self.items()
        self.stack.append({})
        self.update(pairs)

    def put(self, index: int) -> None:
        """Keep the top of the stack for later."""
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        """Push what was kept; an array that has been filled since comes as the array."""
        value = self.memo[index]
        filled = value.array if isinstance(value, _Array) else None
        self.stack.append(value if filled is None else filled)

    def name(self, text: str) -> None:
        """Push the label of an allowed name."""
        if text not in ALLOWED:
            raise _RefusedError(f"it names {text.replace(' ', '.')!r}, which could run code")
        self.stack.append(_Name(text))

    def stack_name(self, _: Any) -> None:
        """Like `name`, with module and name taken from the stack."""
        name, module = self.stack.pop(), self.stack.pop()
        self.name(f"{_text(module)} {_text(name)}")

    def reduce(self, _: Any) -> None:
        """Begin an array or a type, or make a scalar: the only three calls there are."""
        arguments, function = self.stack.pop(), self.stack.pop()
        called = function.text if isinstance(function, _Name) else _kind(function)
        if called in RECONSTRUCT:
            if getattr(arguments[0], "text", None) != NDARRAY:
                raise _RefusedError("it reconstructs something that is not an array")
            self.stack.append(_Array())
        elif called == DTYPE:
            self.stack.append(_Type(arguments[0]))
        elif called in SCALAR:
            kind, data = arguments
            self.stack.append(_Array().build((1, (), kind, False, data))[()])
        else:
            raise _RefusedError(f"it calls {called.replace(' ', '.')!r}")

    def build(self, _: Any) -> None:
        """Finish an array or a type."""
        state, target = self.stack.pop(), self.stack.pop()
        if not isinstance(target, _Array | _Type):
            raise _RefusedError(f"it sets the state of a {_kind(target)}")
        self.stack.append(target.build(state))


def _result(value: Any) -> Any:
    """Return `value` if it may be part of the result; names and half-made arrays may not."""
    if not isinstance(value, RESULT_TYPES):
        raise _RefusedError(f"its data holds a bare {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    """Name the type of `value` for people."""
    return type(value).__name__.lstrip("_").lower()


def _top(stack: list[Any], kind: type) -> Any:
    if not isinstance(stack[-1], kind):
        raise ValueError(f"expected a {kind.__name__}")
    return stack[-1]


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise ValueError("expected a string")
    return value if isinstance(value, str) else value.decode("latin-1")


def _byte_order(text: str) -> Any:
    if text not in ("<", ">", "|", "="):
        raise ValueError("an array has an unknown byte order")
    return text


def _nothing(machine: _Machine, argument: Any) -> None:
    """PROTO, FRAME and STOP need no action: the instruction decoder has dealt with them."""


STEPS: Mapping[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2"), _Machine.push),
    **dict.fromkeys(("LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"), _Machine.push),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Machine.push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _Machine.push),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _Machine.push_old_string),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "MARK": _Machine.mark,
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.items())),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "LIST": lambda machine, _: machine.push([_result(value) for value in machine.items()]),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.items()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "DICT": _Machine.new_dict,
    "SETITEM": lambda machine, _: machine.update([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _: machine.update(machine.items()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
