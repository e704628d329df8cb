"""Point 11: k-means of scikit-learn, its mini-batches, and faiss, as discovery uses it.

All three start from the same k-means++ centres, on one thread.
"""

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans, MiniBatchKMeans, kmeans_plusplus
from threadpoolctl import threadpool_limits

from benchmarks.speed.timing import rounds

Points = npt.NDArray[np.float32]
_ROUNDS = 100


def points(count: int, clusters: int, width: int = 96, seed: int = 0) -> Points:
    """Points about as many centres as there are clusters; neighbours overlap."""
    rng = np.random.default_rng(seed)
    centres = 6 * rng.normal(size=(clusters, width)) / width**0.5
    drawn = centres[np.arange(count) % clusters] + rng.normal(size=(count, width))
    return np.asarray(drawn, dtype=np.float32)


def _faiss(given: Points, start: Points) -> Points:
    import faiss

    faiss.omp_set_num_threads(1)
    found = faiss.Kmeans(
        given.shape[1], len(start), niter=_ROUNDS, max_points_per_centroid=len(given)
    )
    found.train(given, init_centroids=start)
    return np.asarray(found.centroids)


def _scikit(kind: Any, given: Points, start: Points) -> Points:
    model = kind(n_clusters=len(start), init=start, n_init=1, max_iter=_ROUNDS, random_state=0)
    return np.asarray(model.fit(given).cluster_centers_)


def distortion(given: Points, centres: Points) -> float:
    """Mean squared distance to the nearest centre."""
    lengths, total = (centres.astype(np.float64) ** 2).sum(axis=1), 0.0
    for part in np.array_split(given.astype(np.float64), max(1, len(given) // 5000)):
        away = (part**2).sum(axis=1)[:, None] - 2 * part @ centres.T + lengths
        total += float(away.min(axis=1).sum())
    return total / len(given)


def measure(count: int, clusters: int, repeats: int) -> list[str]:
    """Rows: seconds and distortion of each way, in turn."""
    given = points(count, clusters)
    start, _ = kmeans_plusplus(given, clusters, random_state=0)
    ways: dict[str, Any] = {
        "scikit-learn KMeans": lambda: _scikit(KMeans, given, start),
        "scikit-learn MiniBatchKMeans": lambda: _scikit(MiniBatchKMeans, given, start),
    }
    if importlib.util.find_spec("faiss"):
        ways["faiss-cpu"] = lambda: _faiss(given, start)
    found: dict[str, Points] = {}

    def kept(name: str) -> Any:
        return lambda: found.__setitem__(name, ways[name]())

    with threadpool_limits(limits=1):
        seconds = rounds({name: kept(name) for name in ways}, repeats)
    return [
        f"| {count:,} | {clusters} | {name} | {float(np.median(seconds[name])):.2f} | "
        f"{distortion(given, found[name]):.3f} |"
        for name in ways
    ]


HEAD = ["| points | clusters | by | seconds | mean squared distance |", "|---|---:|---|---:|---:|"]
