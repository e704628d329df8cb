import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal.common.escaping import csv_cell, file_name, visible


def test_what_steers_a_terminal_is_spelt_out() -> None:
    assert visible("a\x1b[31mred\x07") == "a\\x1b[31mred\\x07"
    assert visible("cat\u202egnp.exe") == "cat\\u202egnp.exe"  # right-to-left override
    assert visible("a\nb\rc", keep="\n") == "a\nb\\rc"
    assert file_name("caf\udce9.png") == "caf\\udce9.png"  # a byte that is no UTF-8
    assert visible("\u2028") == "\\u2028"


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("tractor", "Löwe 3", "猫", "می‌خواهم", "👩‍🌾", "a/b"):
        assert visible(name) == name


@given(st.text())
def test_nothing_odd_is_left_and_every_text_can_be_encoded(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable() or set(shown) - {"\u200c", "\u200d"}
    shown.encode()
    assert visible(shown) == shown
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\t=1", " =1"])
def test_formulas_are_defused(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


def test_cells_survive_csv() -> None:
    buffer = io.StringIO()
    cells = [csv_cell(text) for text in ('a,"b"', "plain", "a=1", "new-1")]
    csv.writer(buffer).writerow(cells)
    assert next(csv.reader(io.StringIO(buffer.getvalue()))) == ['a,"b"', "plain", "a=1", "new-1"]
