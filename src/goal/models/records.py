"""What a step of a model says of itself."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from goal.common.section import Section
from goal.features.origin import Origin
from goal.models.history import FORMAT, Action, Id

PAGE = "report.html"


class Estimate(Section):
    """An estimated number of new classes, the next likely one, and how far apart they are.

    `confidence` is the share by which the closest measurement may be wrong before the number
    changes (`goal.counting.estimators.Count`).
    """

    count: int = Field(ge=0)
    runner_up: int | None = None
    confidence: float = Field(ge=0, le=1)

    def text(self) -> str:
        """It in words: the number, and how sure it is."""
        classes = "1 new class" if self.count == 1 else f"{self.count} new classes"
        if self.runner_up is None:
            return f"Estimated {classes}."
        return (
            f"Estimated {classes} ({self.runner_up} is the runner-up: it would be that if one "
            f"measurement differed by {100 * self.confidence:.0f}%)."
        )


class StageRecord(Section):
    """A finished step, as in its ``stage.json``.

    `kind` says what it was: ``fit`` with labels, ``discover`` without, or ``extend``, which only
    adds vertices. `index` counts fits and discoveries; `names` and `vertices` belong to the
    classes it brought, whose ids go on from `num_known`; `sizes` counts its images by class id;
    `capacity` and `free` count vertices, where the method has any; `key` identifies its input.
    `seen` counts images that an earlier step had learned, `repeated` further copies of an image;
    `estimate` says how the number of new classes was found; `blank` names images without content;
    `unsure` counts images of no class, which wait for the next stage, and `waited` those that had
    waited and took part in this one; `source` is the folder of its images, if they came from one;
    `minded` are the decisions that held when it was learned;
    `numbers` says that labels are whole numbers; `before` is the seal of the step before; `trunk`
    is the fingerprint of what computed the features, and `origin` says more of it where the frozen
    feature is all that the method needs.
    """

    format: int = FORMAT
    kind: Literal["fit", "discover", "extend"]
    step: int = Field(ge=0)
    index: int = Field(ge=0)
    created: str
    version: str
    key: str
    requested: int | str | None = None
    num_known: int = Field(ge=0)
    names: list[str] = Field(default_factory=list)
    vertices: list[int | None] = Field(default_factory=list)
    sizes: dict[Id, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    images: int = Field(default=0, ge=0)
    skipped: int = Field(default=0, ge=0)
    seen: int = Field(default=0, ge=0)
    repeated: int = Field(default=0, ge=0)
    unsure: int = Field(default=0, ge=0)
    waited: int = Field(default=0, ge=0)
    source: str | None = None
    minded: list[int] = Field(default_factory=list)
    blank: list[str] = Field(default_factory=list)
    estimate: Estimate | None = None
    numbers: bool = False
    before: str | None = None
    capacity: int | None = None
    free: int | None = None
    trunk: str
    origin: Origin | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.vertices) not in (0, len(self.names)):
            raise ValueError(f"{len(self.vertices)} vertices for {len(self.names)} classes")
        if any(int(id) >= self.num_seen for id in self.sizes):
            raise ValueError("sizes counts images of classes that are not there")
        return self

    @property
    def num_seen(self) -> int:
        """Classes after the step."""
        return self.num_known + len(self.names)


def made_step(record: StageRecord, seal: str) -> Action:
    """The action that made a step."""
    found = len(record.names)
    classes = "1 new class" if found == 1 else f"{found} new classes"
    said = {
        "fit": "the labelled stage",
        "discover": f"stage {record.index} ({record.images:,} images, {classes})",
        "extend": f"the added vertices ({record.capacity} in all)",
    }[record.kind]
    return Action(time=record.created, kind=record.kind, said=said, step=record.step, seal=seal)
