"""What a person says of images and classes of a model, and what it learns from that."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.process import cpu_threads
from goal.common.wording import counted
from goal.data.own_images import ImageSet
from goal.features.bank import FeatureBank
from goal.features.store import FeatureStore, is_store
from goal.methods.parts.goal_plus_settings import GoalPlusSettings
from goal.models.classes import Roster, class_name
from goal.models.facts import Facts, facts_of
from goal.models.finding import find_images
from goal.models.history import Action
from goal.models.opened import OpenModel
from goal.models.piles import Learned, learned_images
from goal.models.records import StageRecord
from goal.models.rows import NONE
from goal.models.splitting import LEAST, parts_of
from goal.models.table import Table, table_of
from goal.models.teaching import frozen_memory

Images = Sequence[str | Path]


class Correcting(OpenModel):
    """A model folder, opened, that takes corrections. Each method returns what was noted."""

    _tabled: tuple[str, Table] | None = None

    def table(self) -> Table:
        """Every image that was learned or taught, under today's decisions."""
        records, history = self.records, self.store.history()
        roster = Roster(records, history.judgement)
        key = f"{self.store.decided()} {roster.judgement.model_dump_json()}"
        if self._tabled is None or self._tabled[0] != key:
            held = [action.id for action in history.teaching]
            learner = self._opened()[1] if self.learns and _needed(records, held) else None
            facts = facts_of(history.teaching)
            with cpu_threads(self.settings.threads):
                found = table_of(
                    self.store, records, roster, self._rows(records), facts, held, learner
                )
            self._tabled = (key, found)
        return self._tabled[1]

    @property
    def learns(self) -> bool:
        """Whether corrections teach it: its features never change, and it keeps them."""
        method = self.settings.method
        return isinstance(method, GoalPlusSettings) and method.frozen

    # -- images -----------------------------------------------------------------------------------

    def move(self, images: Images, to: str) -> Action:
        """Say that images are of a class.

        Args:
            images: Names as the tables list them, paths, or digests in hexadecimal digits.
            to: The class.
        """
        with self.changing():
            roster, table = self.roster, self.table()
            rows, target = find_images(table, images), roster.owner[roster.find(to)]
            said = f"the moving of {_named(table, rows)} to {roster.names[target]}"
            said += _merged(roster, to) + self._instead(table, rows, target, roster)
            noted = Action(kind="move", said=said, ids=[target])
            return self._act(_about(noted, table, rows, [target] * len(rows)))

    def reject(self, images: Images, source: str | None = None) -> Action:
        """Say that images are not of a class, by default of that which each is in now."""
        with self.changing():
            roster, table = self.roster, self.table()
            rows = find_images(table, images)
            if source is None:
                none = rows[table.class_id[rows] == NONE]
                if len(none):
                    raise GoalError(f"{_named(table, none)} is of no class already.")
                targets = table.class_id[rows].tolist()
            else:
                targets = [roster.owner[roster.find(source)]] * len(rows)
            names = ", ".join(roster.names[id] for id in sorted(set(targets)))
            said = f"the rejecting of {_named(table, rows)} from {names}"
            facts = self._facts()
            again = sum(
                facts.classes.get(table.digests[row]) == id
                for row, id in zip(rows.tolist(), targets, strict=True)
            )
            said += f" ({again} of them had been said to be of it)" if again else ""
            ids = sorted(set(targets))
            noted = Action(kind="reject", said=said, ids=ids)
            return self._act(_about(noted, table, rows, targets))

    def confirm(self, name: str, images: Images = ()) -> Action:
        """Say that a class is right, or that some images of it are."""
        if len(images):
            with self.changing():
                roster, table = self.roster, self.table()
                rows, target = find_images(table, images), roster.owner[roster.find(name)]
                said = f"the confirming of {_named(table, rows)} as {roster.names[target]}"
                said += self._instead(table, rows, target, roster)
                noted = Action(kind="confirm", said=said, ids=[target])
                return self._act(_about(noted, table, rows, [target] * len(rows)))
        with self.changing():
            roster = self.roster
            id = roster.owner[roster.find(name)]
            junk = " (it had been said to be junk)" if id in roster.judgement.junk else ""
            said = f"the confirming of {roster.names[id]}{junk}"
            return self._act(Action(kind="confirm", said=said, ids=[id]))

    def teach(self, given: ImageSet, labels: Sequence[str]) -> Action:
        """Say of which class images are, seen before or not; new names make new classes.

        Args:
            given: The images.
            labels: Name of the class of each.
        """
        if not self.learns:
            raise GoalError(
                f"A model of the method {self.settings.method.name} does not learn from a few "
                "labelled images: only goal-plus does, in its frozen forms. Fit a new model to "
                "all labelled images."
            )
        with self.changing(), cpu_threads(self.settings.threads):
            given, digests, wanted = self._taken(given, labels)
            roster = self.roster
            targets, made = _targets(roster, wanted)
            said = f"the teaching of {counted(len(digests), 'image')} of "
            said += ", ".join(dict.fromkeys(wanted))
            said += self._instead_of(digests, targets, roster)
            return self._act(
                Action(
                    kind="teach",
                    said=said,
                    ids=sorted(set(targets)),
                    made={str(id): name for name, id in made.items()},
                    images=[digest.hex() for digest in digests],
                    files=given.names,
                    targets=targets,
                )
            )

    # -- classes ----------------------------------------------------------------------------------

    def split(self, name: str, into: int | str = "auto") -> Action:
        """Say that a class is several; the largest of them keeps its id and its name.

        Args:
            name: The class, one that was discovered.
            into: How many, or ``auto``.
        """
        with self.changing(), cpu_threads(self.settings.threads):
            roster, table = self.roster, self.table()
            id = roster.find(name)
            self._require_divisible(roster, id)
            rows = table.members(id)
            count = _parts_wanted(into, len(rows), name)
            features, have = self._features_of([table.digests[row] for row in rows.tolist()])
            rows = rows[have]
            method = frozen_memory(self._opened()[1])
            assert method is not None
            points = method.memory.looking(method.deciding(features)[0]).double()
            seeds = parts_of(points, count, self.settings.seed)
            ids = [id, *range(roster.next_id, roster.next_id + len(seeds) - 1)]
            fresh = roster.fresh_names(len(seeds) - 1)
            chosen = np.concatenate([rows[seed] for seed in seeds])
            targets = [one for one, seed in zip(ids, seeds, strict=True) for _ in seed]
            said = f"the splitting of {name} into {name}, {', '.join(fresh)}"
            made = {str(one): label for one, label in zip(ids[1:], fresh, strict=True)}
            noted = Action(kind="split", said=said, ids=[id], made=made)
            return self._act(_about(noted, table, chosen, targets))

    def junk(self, name: str) -> Action:
        """Say that a class is none: what is like it is of no class from now on."""
        with self.changing():
            roster = self.roster
            id = roster.owner[roster.find(name)]
            if roster.ids() == [id]:
                raise GoalError(f"{name} is the only class of the model: it cannot be junk.")
            if id in roster.judgement.junk:
                raise GoalError(f"{name} has been said to be junk already.")
            held = counted(len(self.table().members(id)), "image")
            said = f"the calling of {roster.names[id]} junk ({held})"
            right = " (it had been confirmed)" if id in roster.judgement.confirmed else ""
            return self._act(Action(kind="junk", said=said + right, ids=[id]))

    # -- inside -----------------------------------------------------------------------------------

    def _act(self, action: Action) -> Action:
        noted = self.store.act(action)
        if not self.learns and action.images:
            self.reporter.say(
                f"The method {self.settings.method.name} does not learn from corrections: the "
                "tables follow them, predictions do not."
            )
        return noted

    def _learned_before(self, records: Sequence[StageRecord]) -> dict[bytes, Learned]:
        """Images that teach nothing again: what was learned or taught, under today's decisions."""
        found = learned_images(self.store, records)
        if not self.store.history().teaching:
            return found
        table = self.table()
        columns = (table.stage, table.class_id, table.confidence, table.second_id)
        less = (table.confidence - table.margin).tolist()
        rows = zip(table.digests, *(column.tolist() for column in columns), less, strict=True)
        for digest, stage, *row in rows:
            if digest in found or row[0] != NONE:
                found[digest] = Learned(max(stage, 0), *row)
        return found

    def _settle(self) -> None:
        """Count the images of each class under what was decided."""
        if self.store.records() and self.store.history().teaching and self.store.sizes() is None:
            self.store.note_sizes(self.table().sizes())

    def _facts(self) -> Facts:
        return facts_of(self.store.history().teaching)

    def _instead(self, table: Table, rows: IntArray, target: int, roster: Roster) -> str:
        digests = [table.digests[row] for row in rows.tolist()]
        return self._instead_of(digests, [target] * len(rows), roster)

    def _instead_of(self, digests: Sequence[bytes], targets: Sequence[int], roster: Roster) -> str:
        """What was said of images before and holds no more, in words."""
        facts = self._facts()
        pairs = list(zip(digests, targets, strict=True))
        others = [facts.classes.get(digest) for digest, _ in pairs]
        before = sorted(
            {
                roster.names[roster.owner[old]]
                for old, (_, new) in zip(others, pairs, strict=True)
                if old is not None and old < len(roster.owner) and roster.owner[old] != new
            }
        )
        said = f" (before, some were said to be {', '.join(before)})" if before else ""
        barred = sum(target in facts.barred.get(digest, ()) for digest, target in pairs)
        return said + (f" (before, {barred} were said not to be)" if barred else "")

    def _taken(
        self, given: ImageSet, labels: Sequence[str]
    ) -> tuple[ImageSet, list[bytes], list[str]]:
        """Images that can be read, with features kept, their digests, and tidied names."""
        if len(labels) != len(given):
            raise GoalError(f"{len(given)} images need as many names; given: {len(labels)}.")
        learner, lost = self._opened()[1], dict[int, str]()
        learner.tokens(given.images, np.arange(len(given)), 0, lost)
        kept = given.without(lost)
        self.skipped = kept.skipped
        if isinstance(learner.bank, FeatureBank):
            learner.bank.keep(kept)
        names = [class_name(one) for at, one in enumerate(labels) if at not in lost]
        wanted: dict[bytes, tuple[int, str]] = {}
        for at, digest in enumerate(kept.contents({})):
            if wanted.setdefault(digest, (at, names[at]))[1] != names[at]:
                raise GoalError(
                    f"{kept.names[at]} is given as {names[at]} and as {wanted[digest][1]}. Leave "
                    "one of them out."
                )
        if not wanted:
            raise GoalError(f"There is no image to learn from ({len(kept.skipped)} skipped).")
        chosen = [at for at, _ in wanted.values()]
        return kept.chosen(chosen), list(wanted), [names[at] for at in chosen]

    def _features_of(self, digests: Sequence[bytes]) -> tuple[Tensor, IntArray]:
        """Features of images, and which of the images they are of."""
        store = FeatureStore(self.store.features)
        places = store.find(digests)
        have = np.flatnonzero(places >= 0)
        found = store.features(places[have]).astype(np.float32)
        return torch.from_numpy(found), have

    def _require_divisible(self, roster: Roster, id: int) -> None:
        name = roster.names[id]
        if not self.learns or not is_store(self.store.features):
            raise GoalError(
                f"A model of the method {self.settings.method.name} keeps no features of its "
                "images, so it cannot split a class. goal-plus does, in its frozen forms."
            )
        if roster.owner[id] != id:
            other = roster.names[roster.owner[id]]
            raise GoalError(f"{name} is merged into {other}. `goal unmerge` first.")
        if roster.known(id).merged:
            others = ", ".join(roster.names[one] for one in roster.known(id).merged)
            raise GoalError(f"{others} counts as {name}. `goal unmerge` first.")
        if id in roster.judgement.junk:
            raise GoalError(f"{name} is junk. `goal confirm` first.")
        if id < self.records[0].num_seen:
            raise GoalError(
                f"{name} was learned from labels and stays as it is. Teach its parts instead: "
                "`goal teach` with a few images of each under new names."
            )


def _needed(records: Sequence[StageRecord], held: Sequence[int]) -> bool:
    """Whether the images of some stage were learned under other decisions."""
    return any(set(held) != set(record.minded) for record in records if record.kind == "discover")


def _about(action: Action, table: Table, rows: IntArray, targets: Sequence[int]) -> Action:
    """An action about images, with a class for each."""
    listed = rows.tolist()
    about = {
        "images": [table.digests[row].hex() for row in listed],
        "files": [table.files[row] for row in listed],
        "targets": list(targets),
    }
    return action.model_copy(update=about)


def _named(table: Table, rows: IntArray) -> str:
    """Some images in words."""
    if len(rows) == 1:
        return Path(table.files[int(rows[0])]).name
    return counted(len(rows), "image")


def _merged(roster: Roster, name: str) -> str:
    id = roster.find(name)
    return "" if roster.owner[id] == id else f" ({name} is merged into it)"


def _targets(roster: Roster, names: Sequence[str]) -> tuple[list[int], dict[str, int]]:
    """Class id of each name, and the ids of the new ones."""
    made: dict[str, int] = {}
    targets = []
    for name in names:
        if name in roster.every_name():
            targets.append(roster.owner[roster.find(name)])
        else:
            targets.append(made.setdefault(name, roster.next_id + len(made)))
    return targets, made


def _parts_wanted(into: int | str, images: int, name: str) -> int | None:
    """How many parts a class is to have; None if that is to be found."""
    whole = isinstance(into, int) and not isinstance(into, bool) and into >= 2
    if into != "auto" and not whole:
        raise GoalError(f"A class is split into 2 or more, or 'auto'; given: {into!r}.")
    wanted = 2 if into == "auto" else int(into)
    if images < LEAST * wanted:
        raise GoalError(
            f"{name} has {counted(images, 'image')}: {wanted} parts need {LEAST} each. Move them "
            "one by one: `goal move`, or `goal teach` under new names."
        )
    return None if into == "auto" else wanted
