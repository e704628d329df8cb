"""What ``gallery.json`` of a step holds: pictures of its classes, with captions."""

import binascii
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from goal.common.escaping import file_name
from goal.common.section import Section
from goal.models.history import Id
from goal.storage import files

Row = Literal["most", "least"]
_Key = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
_Shown = Annotated[list[str], Field(min_length=2, max_length=2)]  # position and caption


class Gallery(Section):
    """Pictures of a step's classes.

    `classes` has, for each class by its id and each row, the position of every image among those
    of the step, and its caption; `thumbnails` has the pictures in base64, by position.
    """

    classes: dict[Id, dict[Row, list[_Shown]]] = Field(default_factory=dict)
    thumbnails: dict[_Key, str] = Field(default_factory=dict)

    def thumbnail(self, key: str) -> bytes | None:
        """A picture as a file has it; None if there is none that could be read."""
        try:
            return binascii.a2b_base64(self.thumbnails[key])
        except (KeyError, ValueError):
            return None


def read_gallery(folder: Path) -> Gallery:
    """Read the pictures of a step, or raise an error that says what is wrong with them."""
    path = folder / "gallery.json"
    content = files.read_json(path)
    return Gallery.parse(content, f"content of {file_name(path)}")
