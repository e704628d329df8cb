"""The same pass over images on many machines: Ray Data, with actors that hold the backbone.

An actor that dies is started again and its images are done again; features are those of one
process, for an image's feature depends on nothing but the image.
"""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from goal.backbone.features import Embedder, load_embedder
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.own_images import ImageSet
from goal.features.embed import BATCH, Part, embed_parts
from goal.features.store import FeatureStore


def embed_parts_on_ray(
    given: ImageSet,
    store: FeatureStore | None,
    embedder: Embedder,
    reporter: Reporter,
    lost: dict[int, str],
    workers: int,
) -> Iterator[Part]:
    """Features of the readable images, part by part, in whatever order they are done.

    Args:
        given: The images; every machine must reach them by the same names.
        store: Features that need not be computed again.
        embedder: The backbone, which every actor loads by its name.
        reporter: Told how far it has come.
        lost: Where images that prove unreadable are entered, by position, with the reason.
        workers: Actors.
    """
    digests = given.contents(lost)
    rows = np.full(len(given), -1) if store is None else _found(store, digests)
    known = np.flatnonzero(rows >= 0)
    if len(known):
        assert store is not None
        some = [digests[position] for position in known]
        yield Part(known.tolist(), some, store.features(rows[known]))
    missing = [at for at in np.flatnonzero(rows < 0).tolist() if at not in lost]
    if missing:
        yield from _computed(given, missing, embedder, reporter, lost, workers)


def _found(store: FeatureStore, digests: list[bytes]) -> IntArray:
    """Row of each digest; -1 for unreadable images, whose digest is empty."""
    readable = [at for at, digest in enumerate(digests) if digest]
    rows = np.full(len(digests), -1)
    rows[readable] = store.find([digests[at] for at in readable])
    return rows


def _computed(
    given: ImageSet,
    missing: list[int],
    embedder: Embedder,
    reporter: Reporter,
    lost: dict[int, str],
    workers: int,
) -> Iterator[Part]:
    ray = _started()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    blocks = -(-len(missing) // BATCH)
    rows = ray.data.from_numpy(
        [np.array(missing[start : start + BATCH]) for start in range(0, len(missing), BATCH)]
    )
    done = rows.map_batches(
        _Actor,
        fn_constructor_args=(embedder.name, embedder.fingerprint(), ray.put(given)),
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_gpus=1 if embedder.mean.is_cuda else 0,
    )
    batches = done.iter_batches(batch_size=None, batch_format="numpy")
    for batch in reporter.track(batches, blocks, "Computing features"):
        found = [row for row, reason in enumerate(batch["reason"]) if not reason]
        for row, reason in enumerate(batch["reason"]):
            if reason:
                lost[int(batch["position"][row])] = str(reason)
        if found:
            yield Part(
                [int(batch["position"][row]) for row in found],
                [bytes.fromhex(batch["digest"][row]) for row in found],
                np.stack([batch["feature"][row] for row in found]).astype(np.float16),
            )


class _Actor:
    """Holds the backbone, and embeds the images at given positions."""

    def __init__(self, backbone: str, fingerprint: str, given: Any) -> None:
        import ray

        self._embedder = load_embedder(backbone)
        if self._embedder.fingerprint() != fingerprint:
            raise GoalError(f"The backbone {backbone} differs from machine to machine.")
        self._given: ImageSet = ray.get(given) if isinstance(given, ray.ObjectRef) else given

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed one batch of positions."""
        positions = [int(position) for position in batch["data"]]
        lost: dict[int, str] = {}
        width = self._embedder.width
        digests = [""] * len(positions)
        features = np.zeros((len(positions), width), np.float16)
        some = self._given.chosen(positions)
        for part in embed_parts(some, None, self._embedder, Reporter(), lost):
            features[part.positions] = part.features
            for row, digest in zip(part.positions, part.digests, strict=True):
                digests[row] = digest.hex()
        return {
            "position": np.array(positions),
            "digest": np.array(digests),
            "reason": np.array([lost.get(row, "") for row in range(len(positions))]),
            "feature": features,
        }


def _started() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise GoalError("--engine ray needs Ray: pip install 'goal-cgcd[ray]'.") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of every step
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    return ray
