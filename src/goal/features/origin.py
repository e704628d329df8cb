"""Where features come from: which backbone made them, and how."""

from pydantic import Field

from goal.common.errors import GoalError
from goal.common.section import Section

MOST_WIDTH = 65_536
MOST_SIDE = 8_192
GIVEN = "given features"


class Origin(Section):
    """Where features come from: only features of the same origin can be compared.

    Attributes:
        backbone: Name of the backbone, for people.
        fingerprint: Hash of its weights and of how images are prepared for it.
        reads: What of its output is the feature.
        width: Numbers per feature.
        image_size: Side of the square that the backbone looked at; None if nobody knows.
    """

    backbone: str
    fingerprint: str
    reads: str
    width: int = Field(gt=0, le=MOST_WIDTH)
    image_size: int | None = Field(default=None, gt=0, le=MOST_SIDE)


def require_origin(found: Origin, wanted: Origin, what: str) -> None:
    """Raise an error unless two origins are the same."""
    if found.width != wanted.width:
        raise GoalError(
            f"{what} have {found.width} numbers each ({found.backbone}); expected are "
            f"{wanted.width} ({wanted.backbone})."
        )
    if found.fingerprint != wanted.fingerprint:
        raise GoalError(
            f"{what} were made by {found.backbone}, those expected by {wanted.backbone}: features "
            "of different backbones cannot be compared. Make them anew with the right one: "
            "`goal embed IMAGES --backbone BACKBONE --out FOLDER`."
        )
