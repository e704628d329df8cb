"""Rehearsal: choose settings without looking at test images or novel classes.

A smaller experiment is cut out of stage 0's labelled images alone: some of the base classes play
the novel ones, and every fifth image of each class plays the test set.
"""

from goal.common.errors import GoalError
from goal.data.images import Dataset, Subset, position_in_class
from goal.protocol.stages import ProtocolSettings, build_stages, class_order, targets

TEST_EVERY = 5


def rehearse(dataset: Dataset, settings: ProtocolSettings) -> tuple[Dataset, ProtocolSettings]:
    """Return the rehearsal's dataset and protocol: `settings.rehearsal` stages of base classes.

    Raises:
        GoalError: If there are too few base classes for so many stages.
    """
    classes = len(dataset.class_names)
    order = class_order(classes, settings)
    stages = build_stages(dataset.train.labels, dataset.test.labels, classes, settings)
    new = stages[1].num_new if settings.stages else 1
    base = settings.base_classes - settings.rehearsal * new
    if base < 1:
        raise GoalError(
            f"{settings.rehearsal} rehearsal stages of {new} classes leave no base class out of "
            f"{settings.base_classes}. Lower protocol.rehearsal."
        )
    ids = stages[0].train_ids
    labels = targets(dataset.train.labels, order)[ids]
    test = position_in_class(labels) % TEST_EVERY == TEST_EVERY - 1
    names = tuple(dataset.class_names[label] for label in order[: settings.base_classes])
    cut = Dataset(
        dataset.name,
        names,
        train=Subset(dataset.train, ids[~test], labels[~test]),
        test=Subset(dataset.train, ids[test], labels[test]),
    )
    smaller = {"base_classes": base, "stages": settings.rehearsal, "new_per_stage": new}
    dropped = {"base_list": None, "train_per_class": None, "test_per_class": None, "rehearsal": 0}
    return cut, settings.model_copy(update=smaller | dropped)
