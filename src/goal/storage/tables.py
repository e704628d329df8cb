"""Parquet files, whose sizes are looked at before anything of them is unpacked.

A few bytes can stand for as many rows as one likes, and for texts of any length repeated in each.
What a table would take in memory may be a few times what its file takes on disk, and no more.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.storage.files import opened

ALLOWED_BYTES = 512 << 20
ALLOWED_TIMES = 20
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_OF_A_TEXT = 16  # bytes of the bookkeeping of a text, whose letters are counted when it is there


def allowance(size: int) -> int:
    """Bytes that a file of `size` bytes may take when it is unpacked."""
    return ALLOWED_BYTES + ALLOWED_TIMES * size


def column_names(path: Path, *, given: bool = False) -> list[str]:
    """Names of a table's columns; `given` as in `goal.storage.files.opened`."""
    with _parquet(path, given) as (_, table):
        return list(table.schema_arrow.names)


def read_columns(path: Path, names: Sequence[str], *, given: bool = False) -> dict[str, Any]:
    """Read some columns of a table as arrays of pyarrow.

    Args:
        path: The file.
        names: The columns.
        given: The person named this very file, so it may be a link to anywhere.

    Raises:
        GoalError: The file is damaged, lacks a column, or would unpack to far more than it is.
    """
    with _parquet(path, given) as (stream, table):
        listed = list(table.schema_arrow.names)
        if wrong := [name for name in names if listed.count(name) != 1]:
            raise GoalError(f"{file_name(path)} does not have one column {wrong[0]}.")
        most = allowance(os.fstat(stream.fileno()).st_size)
        if (size := _values_bytes(table, names)) > most:
            raise _too_large(path, size, most)
        found = {}
        for name in names:
            _require_simple(table.schema_arrow.field(name))
            found[name] = table.read(columns=[name]).column(name).combine_chunks()
            if (size := size + _letters(found[name])) > most:
                raise _too_large(path, size, most)
        return found


@contextmanager
def _parquet(path: Path, given: bool) -> Iterator[tuple[BufferedReader, Any]]:
    import pyarrow
    import pyarrow.parquet

    with opened(path, given=given) as stream:
        try:
            schema = pyarrow.parquet.read_schema(stream)
            texts = [field.name for field in schema if _is_text(field.type)]
            stream.seek(0)
            # Texts stay in dictionaries, where repetitions take no room, until they are measured.
            yield stream, pyarrow.parquet.ParquetFile(stream, read_dictionary=texts)
        except (OSError, KeyError, ValueError, pyarrow.ArrowException) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise GoalError(f"Cannot read {file_name(path)} as a table: {text}.") from error


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    plain = types.is_string(kind) or types.is_binary(kind)
    return bool(plain or types.is_large_string(kind) or types.is_large_binary(kind))


def _require_simple(field: Any) -> None:
    """Refuse columns of texts within lists and the like, which nothing here measures."""
    from pyarrow import types

    kind = field.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        simple = types.is_primitive(kind.value_type)
    elif types.is_dictionary(kind):
        simple = types.is_primitive(kind.value_type) or _is_text(kind.value_type)
    else:
        simple = types.is_primitive(kind) or types.is_fixed_size_binary(kind) or _is_text(kind)
    if not simple:
        raise ValueError(f"the column {visible(field.name)} holds {visible(str(kind))}")


def _values_bytes(table: Any, names: Sequence[str]) -> int:
    """Bytes of the columns' values, less the letters of texts, by what the file says of itself."""
    chosen, total, about = set(names), 0, table.metadata
    for group in map(about.row_group, range(about.num_row_groups)):
        for number in range(group.num_columns):
            chunk = group.column(number)
            if chunk.path_in_schema.split(".")[0] in chosen:
                fixed = table.schema.column(number).length or _OF_A_TEXT
                width = _WIDTHS.get(chunk.physical_type, fixed)
                count = max(chunk.num_values, group.num_rows)
                total += max(count * width, chunk.total_uncompressed_size)
    return total


def _letters(column: Any) -> int:
    """Bytes of all letters of a column of texts, when each stands by itself."""
    import numpy as np
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return 0
    lengths = compute.binary_length(column.dictionary).fill_null(0).to_numpy()
    rows = column.indices.drop_null().to_numpy()
    counts = np.bincount(rows, minlength=len(lengths)).astype(np.float64)
    return int(counts @ lengths)  # as floats, which large sums do not overflow


def _too_large(path: Path, size: int, most: int) -> GoalError:
    return GoalError(
        f"Refused to read {file_name(path)}: it unpacks to {size:,} bytes or more; a file of its "
        f"size may take {most:,}."
    )
