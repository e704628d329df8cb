"""Run folders written by hand, for tables and pages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from goal.common.progress import Reporter
from goal.data.images import ArrayImages
from goal.evaluation.metrics import StageScore, summarise
from goal.evaluation.snapshot import gallery_images, mean_cosines, project, write_thumbnails
from goal.settings.recipes import assemble


def write_run(
    folder: Path,
    accuracy: list[float],
    dataset: str = "cifar100",
    method: str = "goal",
    seed: int = 0,
    assignments: tuple[str, ...] = (),
) -> Path:
    """A finished run whose All is given; base is 10 above it, novel 20 below, and so on."""
    stages = [f"protocol.stages={len(accuracy) - 1}"]
    settings = assemble(None, dataset, method, {"seed": seed}, [*stages, *assignments])
    scores = [
        StageScore(
            stage=index,
            all=value,
            base=value + 10 if index else value,
            novel=value - 20 if index else None,
            seen=value + 5 if index else value,
            unseen=value - 30 if index else None,
            base_identity=value,
            nmi=50.0,
            ari=40.0,
            num_test=100,
        )
        for index, value in enumerate(accuracy)
    ]
    summary: dict[str, Any] = {
        "dataset": dataset,
        "method": method,
        "backbone": settings.backbone.name,
        "seed": seed,
        "selection": "last",
        **summarise(scores),
        "wall_seconds": 1.0,
        "settings_hash": settings.hash(),
        "versions": {"goal": "0"},
    }
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings.plain()))
    (folder / "summary.json").write_text(json.dumps(summary))
    records = [vars(score) | {"num_train": 10} for score in scores]
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "history.jsonl").write_text("")
    return folder


def write_pictures(folder: Path, strange_name: str = "five") -> Path:
    """Give a run of 4 base classes and 2 new ones at stage 1 what pages show of it."""
    rng = np.random.default_rng(3)
    names = ["0", "1", "2", "3", strange_name, "6"]
    (folder / "classes.json").write_text(json.dumps({"names": names}))
    stages = [(0, 4), (4, 2)]
    path = folder / "results.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record, (known, new) in zip(records, stages, strict=True):
        record |= {"num_known": known, "num_new": new, "nc1": 0.5, "confident_size": 3}
        _write_stage(folder / "stages", record["stage"], known + new, rng)
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    losses = [{"stage": s, "epoch": e, "contrast": 1.0 / e} for s in (0, 1) for e in (1, 2, 3)]
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in losses))
    return folder


def _write_stage(folder: Path, index: int, classes: int, rng: np.random.Generator) -> None:
    """A stage of random predictions, the owner of each a permutation, written as runs do."""
    truth = np.repeat(np.arange(classes), 20)
    predictions = np.where(rng.random(len(truth)) < 0.7, truth, rng.permutation(truth))
    points = rng.normal(size=(len(truth), 3))
    flat, vertices, explained = project(points, points[:classes])
    cosines = mean_cosines(points, truth, np.arange(classes))
    arrays = {
        "test_ids": np.arange(len(truth)),
        "predictions": predictions,
        "truth": truth,
        "owner": np.arange(classes),
        "confidence": rng.random(len(truth)),
        "map_images": np.arange(len(truth)),
        "map_features": flat,
        "map_features_explained": explained,
        "map_embeddings": flat,
        "map_embeddings_explained": explained,
        "map_vertices": vertices,
        "cosine_classes": np.arange(classes),
        "cosines_features": cosines,
        "cosines_embeddings": cosines,
    }
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"stage-{index}.npz", allow_pickle=False, **arrays)
    pixels = rng.integers(0, 256, (len(truth), 8, 8, 3), dtype=np.uint8)
    chosen = gallery_images(arrays, num_base=4)
    images = ArrayImages(pixels, truth)
    archive = folder / f"thumbnails-{index}.zip"
    write_thumbnails(archive, images, arrays["test_ids"], chosen, Reporter())
