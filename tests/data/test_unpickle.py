"""The unpickler reads what the official files hold and nothing that could run code."""

import collections
import copyreg
import functools
import os
import pickle
import struct
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goal.common.errors import GoalError
from goal.data import unpickle
from goal.data.unpickle import load_arrays

MARKER = "goal-was-here"


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def read(tmp_path: Path, data: bytes) -> Any:
    path = tmp_path / "file"
    path.write_bytes(data)
    return load_arrays(path)


def dumps(value: Any, protocol: int = 4) -> bytes:
    return pickle.dumps(value, protocol)


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every payload tries to make this file in the working folder."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.array([1.5, -2.0], dtype=">f4"),
        np.array([True, False]),
        np.zeros((0, 3), np.float64),
        np.array(7, np.int16),
        np.array([1 + 2j]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back_as_they_were(
    tmp_path: Path, array: npt.NDArray[Any], protocol: int
) -> None:
    found = read(tmp_path, dumps(array, protocol))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_plain_data_comes_back_as_it_was(tmp_path: Path) -> None:
    array = np.arange(3)
    value = {
        "list": [1, -(2**70), 300, 70000, 1.5, None, True, False, "text", "é" * 300],
        b"bytes": [b"x", b"y" * 300],
        3: {"nested": [[], {}, [[0]]]},
        "array twice": [array, array],
    }
    found = read(tmp_path, dumps(value))
    first, second = found.pop("array twice")
    value.pop("array twice")
    assert found == value
    assert first is second
    np.testing.assert_array_equal(first, array)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_all_protocols_of_plain_lists_and_dicts(tmp_path: Path, protocol: int) -> None:
    value = {"a": [1, 2.5, "b", None, True], "c": {}, "d": [[]]}
    assert read(tmp_path, dumps(value, protocol)) == value


def test_scalars(tmp_path: Path) -> None:
    found = read(tmp_path, dumps([np.float32(1.5), np.int64(-3)]))
    assert found == [1.5, -3]
    assert found[0].dtype == np.float32


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_python_2_files_like_the_official_ones(tmp_path: Path, module: bytes) -> None:
    """Written by hand: Python 2 spelled text as (SHORT_)BINSTRING, and numpy's module varies."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    state = b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R" + state
    pixels = b"T" + struct.pack("<i", 4) + b"\x00\x7f\x80\xff"
    array = b"c" + module + b"\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01K\x02K\x02\x86" + dtype + b"\x89" + pixels + b"tb"
    found = read(tmp_path, b"\x80\x02}(" + text(b"data") + array + text(b"n") + b"K\x05u.")
    assert found[b"n"] == 5
    np.testing.assert_array_equal(found[b"data"], np.array([[0, 127], [128, 255]], np.uint8))


def object_array(payload: Any) -> npt.NDArray[np.object_]:
    array = np.empty(1, dtype=object)
    array[0] = payload
    return array


SHELL = f"touch {MARKER}"
HOSTILE = {
    "os.system": (Call(os.system, SHELL), "system"),
    "eval": (Call(eval, f"open('{MARKER}','w')"), r"\.eval"),
    "exec": (Call(exec, f"open('{MARKER}','w')"), r"\.exec"),
    "getattr": (Call(getattr, "x", "upper"), r"\.getattr"),
    "subprocess": (Call(subprocess.call, ["touch", MARKER]), r"\.call"),
    "nested": ([{"a": Call(list, Call(os.system, SHELL))}], r"\.list"),
    "partial": (functools.partial(os.system, SHELL), "functools.partial"),
    "copyreg": (Call(copyreg.add_extension, "os", "system", 77), r"copy_?reg\.add_extension"),
    "ordered dict": (collections.OrderedDict(a=1), "collections.OrderedDict"),
    "numpy.load": (Call(np.load, "x.npy", None, True), "numpy.*load"),
    "numpy.memmap": (Call(np.memmap, MARKER, "u1", "w+", 0, (1,)), "numpy.*memmap"),
    "argument": (Call(np.dtype, Call(os.system, SHELL)), "system"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_forbidden_names_are_refused_and_told(tmp_path: Path, name: str, protocol: int) -> None:
    payload, told = HOSTILE[name]
    with pytest.raises(GoalError, match=f"Refused to read .*file: it names '.*({told})"):
        read(tmp_path, dumps(payload, protocol))


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n"
RAW = {  # instructions, and the reason that the error gives
    "dotted name": (
        b"\x80\x04\x8c\x05numpy\x8c\x14multiarray.os.system\x93.",
        r"names 'numpy\.multiarray\.os\.system'",
    ),
    "dotted name, old module": (
        b"\x80\x04\x8c\x15numpy.core.multiarray\x8c\x09os.system\x93.",
        r"names 'numpy\.core\.multiarray\.os\.system'",
    ),
    "dotted name, new module": (
        b"\x80\x04\x8c\x16numpy._core.multiarray\x8c\x18_reconstruct.__globals__\x93.",
        r"names '.*_reconstruct\.__globals__'",
    ),
    "split elsewhere": (
        b"\x80\x04\x8c\x0bnumpy._core\x8c\x17multiarray._reconstruct\x93.",
        "names 'numpy",
    ),
    "old global": (b"cos\nsystem\n(S'touch goal-was-here'\ntR.", r"names 'os\.system'"),
    "instance": (b"(S'touch goal-was-here'\nios\nsystem\n.", r"INST \('os system'\)"),
    "object": (b"(cos\nsystem\nS'touch goal-was-here'\no.", r"names 'os\.system'"),
    "new object": (b"\x80\x02cnumpy\nndarray\nK\x01\x85\x81.", "NEWOBJ"),
    "extension": (b"\x80\x02\x82\x01.", "EXT1"),
    "persistent id": (b"Pid\n.", "PERSID"),
    "setitem on a type": (
        b"\x80\x02cnumpy\nndarray\nU\x01aK\x01s.",
        "not support item assign",
    ),
    "build on a type": (b"\x80\x02cnumpy\nndarray\n}U\x01aK\x01sb.", "state of a name"),
    "build on a function": (b"\x80\x02" + ARRAY + b"N}U\x01aK\x01s\x86b.", "state of a name"),
    "call of a class": (b"\x80\x02cnumpy\nndarray\nK\x01\x85\x85R.", r"calls 'numpy\.ndarray'"),
    "call of a string": (b"\x80\x02U\x01aK\x01\x85R.", "'bytes' object is not callable"),
    "reconstructed type": (
        b"\x80\x02" + ARRAY + b"cnumpy\ndtype\nK\x00\x85U\x01b\x87R.",
        "something that is not an array",
    ),
    "a bare name": (b"\x80\x02cnumpy\nndarray\n.", "a bare name"),
    "a half-made array": (
        b"\x80\x02]" + ARRAY + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87Ra.",
        "a bare array",
    ),
    "a bare type": (b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R.", "a bare type"),
    "a key that nests": (b"\x80\x02}K\x01\x85K\x02s.", "key of type tuple"),
}


@pytest.mark.parametrize("name", sorted(RAW))
def test_crafted_instructions_are_refused(tmp_path: Path, name: str) -> None:
    data, reason = RAW[name]
    with pytest.raises(GoalError, match=reason):
        read(tmp_path, data)


@pytest.mark.parametrize("payload", [Call(os.system, SHELL), "harmless"])
def test_object_arrays_are_refused(tmp_path: Path, payload: Any) -> None:
    with pytest.raises(GoalError, match="array of Python objects"):
        read(tmp_path, dumps(object_array(payload)))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, dtype=[("a", "u1"), ("b", "O")]),
        np.zeros(2, dtype=[("a", "u1")]),
        np.zeros(2, dtype="V8"),
        np.array(["text"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_only_arrays_of_numbers(tmp_path: Path, array: npt.NDArray[Any]) -> None:
    with pytest.raises(GoalError, match="numbers are expected"):
        read(tmp_path, dumps(array))


def test_a_number_type_cannot_be_given_fields_of_objects(tmp_path: Path) -> None:
    """The state of a type could make raw bytes pass for pointers to objects."""
    honest = dumps(np.zeros(8, np.uint8), 3)
    assert honest.count(b"NNN") == 1
    for state in (b"K\x01NN", b"NX\x01\x00\x00\x00a\x85N", b"NN}"):
        with pytest.raises(GoalError, match="not plain numbers"):
            read(tmp_path, honest.replace(b"NNN", state))


@pytest.mark.parametrize(
    "shape",
    [b"K\x05\x85", b"K\x02\x85", b"J\xff\xff\xff\xff\x85", b"\x88\x85", b"K\x02K\x02\x86", b"N"],
)
def test_shapes_that_do_not_fit_the_bytes(tmp_path: Path, shape: bytes) -> None:
    honest = dumps(np.zeros(3, np.uint8), 3)
    assert honest.count(b"K\x03\x85") == 1
    with pytest.raises(GoalError, match="not a complete pickle"):
        read(tmp_path, honest.replace(b"K\x03\x85", shape))


def huge_array(shape: bytes) -> bytes:
    return dumps(np.zeros(3, np.uint8), 3).replace(b"K\x03\x85", shape)


SIDE = b"\x8a\x08" + struct.pack("<q", 1 << 40)
BOMBS = {  # instructions that announce far more than they bring, and the reason of the error
    "memo": (b"\x80\x02]r\xff\xff\xff\x7f.", "number 2147483647, out of order"),
    "memo in text": (b"]p99999999999\n.", "number 99999999999, out of order"),
    "memo, then one more": (b"\x80\x04]r\xff\xff\xff\x7f\x94.", "out of order"),
    "bytes": (b"\x80\x03B\xff\xff\xff\xff.", "not a complete"),
    "bytes, 8": (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".", "not a complete"),
    "text": (b"\x80\x03X\xff\xff\xff\xff.", "not a complete"),
    "text, 8": (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b".", "not a complete"),
    "old string": (b"\x80\x02T\xff\xff\xff\x7f.", "not a complete"),
    "long": (b"\x80\x02\x8b\xff\xff\xff\x7f.", "not a complete"),
    "long in text": (b"L" + b"9" * 100_000 + b"L\n.", "not a complete"),
    "frame": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"].", "not a complete"),
    "mutable bytes": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", "not a complete"),
    "shape": (huge_array(SIDE + b"\x85"), "do not fit its shape"),
    "shape of many sides": (huge_array(b"(" + SIDE * 1000 + b"t"), "a bad shape"),
    "shape that wraps": (huge_array(b"(" + SIDE * 8 + b"t"), "do not fit its shape"),
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_what_is_announced_costs_nothing(tmp_path: Path, name: str) -> None:
    """Python's unpickler alone would reserve room for two thousand million entries at the first."""
    data, reason = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(GoalError, match=reason):
            read(tmp_path, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def key(value: bytes) -> bytes:
    return b"\x80\x02}" + value + b"K\x01s."


@pytest.mark.parametrize("between", [b"", b"(e", b"(u", b"Nb", b"q\x01", b"\x80\x02"])
def test_tuples_cannot_double_without_end(tmp_path: Path, between: bytes) -> None:
    """Hashing this key would take two to the power of a hundred steps."""
    doubled = b")" + (between + b"q\x00h\x00\x86") * 100
    with pytest.raises(GoalError, match="uses a value twice"):
        read(tmp_path, key(doubled))


def test_tuples_cannot_nest_without_end(tmp_path: Path) -> None:
    """Hashing a key of a million levels would break the C stack."""
    with pytest.raises(GoalError, match="more instructions than"):
        read(tmp_path, key(b")" + b"\x85" * 1_000_000))
    with pytest.raises(GoalError, match="key of type tuple"):
        read(tmp_path, key(b")" + b"\x85" * unpickle.MAX_TUPLES))


def test_lists_may_nest_deeply(tmp_path: Path) -> None:
    found, depth = read(tmp_path, b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."), 0
    while found:
        (found,), depth = found, depth + 1
    assert depth == 99_999


def test_a_list_may_hold_itself(tmp_path: Path) -> None:
    found = read(tmp_path, b"\x80\x02]q\x00h\x00a.")
    assert found[0] is found


def test_the_work_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\x80\x02(" + b"]" * 95 + b"l."
    monkeypatch.setattr(unpickle, "MAX_INSTRUCTIONS", 99)
    assert len(read(tmp_path, data)) == 95
    monkeypatch.setattr(unpickle, "MAX_INSTRUCTIONS", 98)
    with pytest.raises(GoalError, match="more instructions than any file of arrays needs"):
        read(tmp_path, data)
    monkeypatch.setattr(unpickle, "MAX_BYTES", len(data) - 1)
    with pytest.raises(GoalError, match=r"Refused to read .*: it is larger than 99 bytes"):
        read(tmp_path, data)


@pytest.mark.parametrize("state", [b"N", b"}", b"}U\x01aK\x01s", b"N}U\x01aK\x01s\x86"])
@pytest.mark.parametrize("target", [b"]", b"}", b"U\x01a", b"K\x01"])
def test_plain_data_has_no_state_to_set(tmp_path: Path, target: bytes, state: bytes) -> None:
    try:
        found = read(tmp_path, b"\x80\x02" + target + state + b"b.")
    except GoalError:
        return
    assert found in ([], {}, b"a", 1)


@pytest.mark.parametrize("data", [b"", b".", b"\x80", b"hello", b"\x80\x04]", b"\x80\x02h\x05."])
def test_garbage(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(GoalError, match="not a complete pickle"):
        read(tmp_path, data)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = dumps({"data": np.arange(4, dtype=np.uint8), "labels": [1, 2, 3]}, 3)
    for end in range(len(whole)):
        with pytest.raises(GoalError):
            read(tmp_path, whole[:end])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(GoalError, match=r"Cannot read .*nowhere"):
        load_arrays(tmp_path / "nowhere")


VALID = [
    dumps({"data": np.arange(4, dtype=np.uint8).reshape(2, 2), "labels": [0, 1]}, protocol)
    for protocol in (2, 3, 4)
]
HOSTILE_BYTES = [dumps(payload, protocol) for payload, _ in HOSTILE.values() for protocol in (0, 4)]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A pickle, honest or hostile, with some bytes replaced, put in, or cut out."""
    data = bytearray(draw(st.sampled_from(VALID + HOSTILE_BYTES)))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.integers(0, 4)))
        data[start:stop] = draw(st.binary(max_size=4))
    return bytes(data)


def assert_plain(value: Any, seen: set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray | np.generic):
        assert value.dtype.kind in "biufc"
        assert value.dtype.fields is None
        return
    assert type(value) in (list, dict, str, bytes, int, float, bool, type(None))
    for part in [*value, *value.values()] if isinstance(value, dict) else []:
        assert_plain(part, seen)
    for part in value if isinstance(value, list) else []:
        assert_plain(part, seen)


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=60) | mutated())
def test_any_bytes_give_plain_data_or_an_error(tmp_path: Path, data: bytes) -> None:
    try:
        found = read(tmp_path, data)
    except GoalError:
        found = None
    assert_plain(found, set())
    assert not (tmp_path / MARKER).exists()


def test_the_allowed_names_are_these_six() -> None:
    assert {
        "numpy ndarray",
        "numpy dtype",
        "numpy.core.multiarray _reconstruct",
        "numpy._core.multiarray _reconstruct",
        "numpy.core.multiarray scalar",
        "numpy._core.multiarray scalar",
    } == unpickle.ALLOWED
