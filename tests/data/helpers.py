"""Small pictures and files for miniature copies of the datasets."""

from pathlib import Path

from PIL import Image

from goal.data.images import Dataset, FileImages, Images


def write_image(path: Path, colour: tuple[int, int, int] = (10, 20, 30), side: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = "PNG" if path.suffix.lower() == ".png" else "JPEG"
    Image.new("RGB", (side, side), colour).save(path, kind)
    return path


def write_text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def listing(images: Images) -> list[tuple[str, int]]:
    """File name and label of every image."""
    assert isinstance(images, FileImages)
    names = [path.name for path in images.paths]
    return list(zip(names, images.labels.tolist(), strict=True))


def readable(dataset: Dataset) -> bool:
    """Whether the first image of either side can be decoded."""
    return dataset.train.image(0).mode == "RGB" and dataset.test.image(0).mode == "RGB"
