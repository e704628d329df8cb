"""What a method is: a module that answers a few questions about each stage.

A method sees tokens and, at stage 0 only, labels. It never sees files, datasets, metrics, or the
label of an unlabelled image: `Batch` and `Stage` have no place for one.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goal.backbone.tail import Tail
from goal.backbone.tokens import Tokens, TokenSource, device_of
from goal.common.section import Section
from goal.distributed import Split


@dataclass(frozen=True)
class Stage:
    """An unlabelled stage as a method sees it.

    Attributes:
        index: 0 for the labelled stage, then 1, 2, ...
        num_known: Classes known before the stage.
        num_new: Classes to add.
        epochs: Epochs of gradient training planned for it.
        tokens: Its images.
    """

    index: int
    num_known: int
    num_new: int
    epochs: int
    tokens: TokenSource

    @property
    def num_seen(self) -> int:
        """Classes known after the stage."""
        return self.num_known + self.num_new


class Person(Protocol):
    """Somebody who can be asked about a stage's images, so many times."""

    @property
    def left(self) -> int:
        """Questions that may still be asked."""

    def says(self, position: int) -> int:
        """The name, as a number, that the image at a position goes by; base classes' are theirs."""


@dataclass(frozen=True)
class AskedStage(Stage):
    """An unlabelled stage in which a method may ask a person."""

    person: Person


@dataclass(frozen=True)
class LabelledStage(Stage):
    """Stage 0: the same, with a label for every image."""

    labels: Tensor


@dataclass(frozen=True)
class Batch:
    """Two views of some images of a stage, and their positions in it."""

    first: Tokens
    second: Tokens
    positions: Tensor

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class LabelledBatch(Batch):
    """A batch of stage 0."""

    labels: Tensor


@dataclass(frozen=True)
class Outputs:
    """What a method computes of images.

    Attributes:
        features: Unit-length features, (N, D).
        scores: One score per known class, (N, K); None for methods that score nothing.
        embeddings: Unit-length projector outputs, (N, E), for methods that have them.
    """

    features: Tensor
    scores: Tensor | None = None
    embeddings: Tensor | None = None

    @classmethod
    def cat(cls, parts: list[Self]) -> Self:
        """Join the outputs of batches."""

        def join(pieces: list[Tensor | None]) -> Tensor | None:
            whole = [piece for piece in pieces if piece is not None]
            return torch.cat(whole) if whole else None

        return cls(
            torch.cat([part.features for part in parts]),
            join([part.scores for part in parts]),
            join([part.embeddings for part in parts]),
        )

    def over(self, function: Callable[[Tensor], Tensor]) -> "Outputs":
        """Apply a function to each of them."""
        scores, embeddings = (
            None if one is None else function(one) for one in (self.scores, self.embeddings)
        )
        return Outputs(function(self.features), scores, embeddings)


@dataclass(frozen=True)
class ConfidentSet:
    """Samples a method trusted in the current stage, and the class it trusted each to be."""

    positions: Tensor
    classes: Tensor


class MethodSettings(Section):
    """Base of every method's settings: the name it is listed under."""

    name: str

    @property
    def frozen(self) -> bool:
        """Whether the frozen feature of an image is all that the method needs."""
        return False


class Method(nn.Module):
    """Base of all methods. All state is parameters and buffers: the state dict is the checkpoint.

    The life of a stage is `begin_stage`, then for each epoch `begin_epoch` and `losses` per
    batch, then `end_stage`; afterwards `infer` and `predict` on any images. A method that learns
    without gradient steps says so by `trains`; one whose update is not "sum the terms and step"
    overrides `fit_stage`.
    """

    Settings: ClassVar[type[MethodSettings]]

    # Methods of one family train the same base model at stage 0 and share it; `base_keys` are the
    # settings it depends on (None: all of them).
    base_family: ClassVar[str] = ""
    base_keys: ClassVar[frozenset[str] | None] = None

    # Whether an epoch leaves out the images that do not fill a batch, unless it has no other.
    only_full_batches: bool = False

    # Whether a class cannot be without a vertex, in methods that have vertices.
    needs_vertices: bool = True

    def __init__(self, tail: Tail) -> None:
        super().__init__()
        self.tail = tail

    @classmethod
    @abstractmethod
    def build(
        cls, settings: MethodSettings, tail: Tail, capacity: int, rng: torch.Generator
    ) -> "Method":
        """Construct the method for at most `capacity` classes, unless its settings say more."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Classes the method can predict now."""

    def trains(self, index: int) -> bool:
        """Whether a stage needs gradient steps, and so random views of its images."""
        return True

    def begin_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Prepare: grow heads, keep a copy of the previous model, and so on."""

    def begin_epoch(self, stage: Stage, epoch: int, rng: torch.Generator) -> None:
        """Refresh whatever is refreshed between epochs."""

    def losses(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """Return the weighted terms of the objective by name; their sum is minimised."""
        raise TypeError(f"{type(self).__name__} takes no gradient steps at this stage")

    def end_stage(self, stage: Stage, rng: torch.Generator) -> None:
        """Conclude: measure prototypes, fit memories, and so on."""

    def fit_stage(self, stage: Stage, run_epochs: Callable[[], None]) -> None:
        """Learn the stage; `run_epochs` is the ordinary loop."""
        run_epochs()

    @abstractmethod
    def infer(self, tokens: Tokens) -> Outputs:
        """Compute features and scores of images; one image's result depends on no other."""

    def predict(self, outputs: Outputs) -> Tensor:
        """Class of each image, (N,): the highest score, unless a method clusters instead."""
        assert outputs.scores is not None
        return outputs.scores.argmax(dim=1)

    def class_scores(self, outputs: Outputs) -> Tensor:
        """One score per class, (N, K), for each image by itself, whatever `predict` does."""
        assert outputs.scores is not None
        return outputs.scores

    def probabilities(self, scores: Tensor) -> Tensor:
        """Class probabilities of scores, (N, K): cosines, at the usual temperature."""
        return (scores / 0.1).softmax(dim=1)

    def strangeness(self, scores: Tensor) -> Tensor | None:
        """Share of known images that are as far from all classes as each image, or farther, (N,).

        `scores` are those of `class_scores`. None from methods that cannot tell.
        """
        return None

    @property
    def usual_gap(self) -> float:
        """How far apart different images usually are (`numerics.copies`); 0 if not measured."""
        return 0.0

    @classmethod
    def carried_over(cls, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """A saved state as this version names its tensors; states of older versions are renamed."""
        return state

    def weights(self) -> Tensor | None:
        """Classifier weights in feature space, (K, D), for diagnostics."""
        return None

    def directions(self) -> Tensor | None:
        """Fixed target direction of each class in embedding space, (K, E), for diagnostics."""
        return None

    def confident_set(self) -> ConfidentSet | None:
        """Samples trusted in the current stage, for diagnostics."""
        return None


class CosineClassifier(nn.Module):
    """One weight per class; scores are cosines. Starts without classes and grows by rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, width))

    def forward(self, features: Tensor) -> Tensor:
        """Cosine of each feature with each class weight, (N, K)."""
        return F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).T

    def grow(self, new_rows: Tensor) -> None:
        """Append classes; the scores of the existing ones stay as they are."""
        rows = torch.cat([self.weight.detach(), new_rows.to(self.weight)])
        self.weight = nn.Parameter(rows)


class Projector(nn.Sequential):
    """The three-layer MLP between feature and embedding."""

    def __init__(self, width: int, hidden: int, out: int, rng: torch.Generator) -> None:
        layers = [nn.Linear(width, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, out)]
        super().__init__(layers[0], nn.GELU(), layers[1], nn.GELU(), layers[2])
        self.draw(rng)

    @torch.no_grad()
    def draw(self, rng: torch.Generator) -> None:
        """Start again from random weights."""
        for layer in self:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(std=layer.in_features**-0.5, generator=rng)
                layer.bias.zero_()


@torch.no_grad()
def infer_all(method: Method, tokens: TokenSource, batch_size: int = 512) -> Outputs:
    """Run `method.infer` over the clean views of all images; ranks share the work."""
    device = device_of(method)
    split = Split(len(tokens))
    parts = split.mine.split(batch_size)
    own = Outputs.cat([method.infer(tokens.clean(part).to(device)) for part in parts])
    return own.over(split.gather)


@torch.no_grad()
def classes_of(method: Method, tokens: TokenSource, batch_size: int = 512) -> Tensor:
    """Best class of each image, by itself; of many images nothing else is held. Ranks share it."""
    device = device_of(method)
    split = Split(len(tokens))
    parts = split.mine.split(batch_size)
    scores = (method.class_scores(method.infer(tokens.clean(part).to(device))) for part in parts)
    return split.gather(torch.cat([score.argmax(dim=1) for score in scores]))


def restore(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Load a state dict whose tensors may have other shapes than the module's (grown heads)."""
    expected = set(module.state_dict())
    for name, tensor in state.items():
        owner_name, _, leaf = name.rpartition(".")
        owner = module.get_submodule(owner_name)
        if leaf in owner._parameters:
            old = owner._parameters[leaf]
            flag = old.requires_grad if old is not None else True
            owner._parameters[leaf] = nn.Parameter(tensor.clone(), requires_grad=flag)
        elif leaf in owner._buffers:
            owner._buffers[leaf] = tensor.clone()
        else:
            raise ValueError(f"the saved state has {name}, which {type(module).__name__} lacks")
    if missing := expected - state.keys():
        raise ValueError(f"the saved state lacks {sorted(missing)}")
