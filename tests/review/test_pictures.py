"""Pictures of the page: by digest, never by path; made once; what is not the image is not shown."""

import io
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from goal.models.model import Model
from goal.review.originals import Originals
from goal.review.server import make_desk
from tests.review.conftest import HERE, Opened, open_page


def keys_of(opened: Opened) -> list[str]:
    return [digest.hex() for digest in opened.desk.view().listing.digests]


def size_of(content: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(content)) as image:
        return image.size


def test_each_image_is_drawn_once_and_kept_by_its_digest(opened: Opened) -> None:
    key = keys_of(opened)[0]
    first = opened.client.get(f"/thumb/{key}")
    assert first.status_code == 200 and first.headers["content-type"] == "image/webp"
    kept = opened.model.store.folder / "thumbnails" / key[:2] / f"{key}.webp"
    assert kept.read_bytes() == first.content
    written = kept.stat().st_mtime_ns
    again = open_page(opened.model.store.folder).client.get(f"/thumb/{key}")
    assert again.content == first.content and kept.stat().st_mtime_ns == written
    assert len(list(kept.parent.parent.rglob("*.webp"))) == 1


@pytest.mark.parametrize(
    "key",
    ["0" * 32, "..%2f..%2fetc%2fpasswd", "../../pyproject.toml", "%00", "zz", "A" * 5000, "é"],
)
def test_only_digests_of_learned_images_are_answered(opened: Opened, key: str) -> None:
    assert opened.client.get(f"/thumb/{key}").status_code == 404
    assert opened.client.get(f"/image/{key}").status_code == 404
    assert not (opened.model.store.folder / "thumbnails").exists()


def test_a_large_picture_is_bounded_and_encoded_anew(tmp_path: Path) -> None:
    """A photograph of 3000 pixels comes at a screen's size, without what its file carried."""
    source = tmp_path / "photo.jpg"
    picture = Image.effect_noise((3000, 1500), 60).convert("RGB")
    picture.save(source, exif=_exif("secret place"))
    place, digest = str(source), _digest(source)
    from goal.models.store import Store
    from goal.review.thumbnails import LARGE_SIDE, SIDE, Thumbnails

    drawn = Thumbnails(Store(tmp_path / "model"), Originals(), keep=False)
    small, large = drawn.small("photo.jpg", place, digest, []), drawn.large(place, digest)
    assert small is not None and large is not None
    assert size_of(small) == (SIDE, SIDE // 2) and size_of(large) == (LARGE_SIDE, LARGE_SIDE // 2)
    assert b"secret place" in source.read_bytes() and b"secret place" not in small + large


def _exif(text: str) -> Image.Exif:
    exif = Image.Exif()
    exif[0x010E] = text
    return exif


def _digest(path: Path) -> bytes:
    import hashlib

    return hashlib.sha256(path.read_bytes()).digest()[:16]


def test_a_file_that_was_exchanged_is_not_shown(grown: Path, folder: Path, tmp_path: Path) -> None:
    images = Path(shutil.copytree(grown / "week", tmp_path / "week"))
    victim = sorted(images.iterdir())[0]
    digest = _digest(victim)
    found = Originals([images])
    assert found.read(victim.name, digest) == victim.read_bytes()
    Image.new("RGB", (8, 8), "red").save(victim)
    assert found.read(victim.name, digest) is None
    assert found.read(str(victim), digest) is None


def test_images_are_found_where_they_were_moved(grown: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(grown / "week", tmp_path / "elsewhere" / "deep"))
    one = sorted(moved.iterdir())[3]
    digest = _digest(one)
    assert Originals().read(f"nowhere/{one.name}", digest) is None
    for folder in (moved, moved.parent):
        assert Originals([folder]).read(f"/gone/week/{one.name}", digest) == one.read_bytes()
    one.rename(one.with_name("another name.png"))
    assert Originals([moved]).read(f"/gone/week/{one.name}", digest) is None


def test_no_link_is_followed_out_of_a_folder_and_nothing_but_files_is_read(
    grown: Path, tmp_path: Path
) -> None:
    outside = sorted((grown / "week").iterdir())[0]
    digest, images = _digest(outside), tmp_path / "images"
    images.mkdir()
    (images / "link.png").symlink_to(outside)
    os.mkfifo(images / "pipe.png")
    found = Originals([images])
    for name in ("link.png", "pipe.png", "/dev/zero", f"../{grown.name}/week/{outside.name}"):
        assert found.read(name, digest) is None, name


def test_planted_thumbnails_are_not_followed_and_must_be_small_pictures(
    opened: Opened, tmp_path: Path
) -> None:
    key, folder = keys_of(opened)[0], opened.model.store.folder
    secret = tmp_path / "secret.webp"
    secret.write_bytes(b"RIFF0000WEBP secret")
    place = folder / "thumbnails" / key[:2] / f"{key}.webp"
    place.parent.mkdir(parents=True)
    place.symlink_to(secret)
    assert b"secret" not in opened.client.get(f"/thumb/{key}").content
    assert secret.read_bytes() == b"RIFF0000WEBP secret"  # nothing was written through it
    for content in (b"<script>alert(1)</script>", b"RIFF0000WEBP" + bytes(1 << 20)):
        place.unlink()
        place.write_bytes(content)
        answer = open_page(folder).client.get(f"/thumb/{key}")
        assert answer.content != content and size_of(answer.content)[0] <= 192


def test_a_linked_folder_of_thumbnails_is_left_alone(opened: Opened, tmp_path: Path) -> None:
    key, outside = keys_of(opened)[0], tmp_path / "outside"
    outside.mkdir()
    (opened.model.store.folder / "thumbnails").symlink_to(outside)
    assert opened.client.get(f"/thumb/{key}").status_code == 200
    assert list(outside.iterdir()) == []


def test_images_that_are_gone_are_shown_as_the_stages_kept_them(
    grown: Path, folder: Path, tmp_path: Path
) -> None:
    images = [grown / "labelled", grown / "week"]
    for place in images:
        place.rename(place.with_name(f"{place.name}-away"))
    try:
        page = open_page(folder)
        found = [page.client.get(f"/thumb/{key}") for key in keys_of(page)]
        assert {answer.status_code for answer in found} == {200, 404}
        assert not (folder / "thumbnails").exists()
        assert page.client.get(f"/image/{keys_of(page)[0]}").status_code == 404
    finally:
        for place in images:
            place.with_name(f"{place.name}-away").rename(place)


def bomb(side: int) -> bytes:
    """A PNG of few bytes that claims side x side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1 << 20), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_search_by_a_picture_finds_the_picture_itself(grown: Path, opened: Opened) -> None:
    path = sorted((grown / "week").iterdir())[7]
    answer = opened.client.post("/api/search", content=path.read_bytes(), headers={"origin": HERE})
    rows = answer.json()["rows"]
    assert rows[0]["id"] == _digest(path).hex() and rows[0]["cosine"] > 0.999
    near = opened.client.get("/api/similar", params={"image": rows[0]["id"]}).json()["rows"]
    assert [row["id"] for row in near[:20]] == [row["id"] for row in rows[:20]]


@pytest.mark.parametrize(
    "content",
    [bomb(60_000), b"", b"not a picture", b"%!PS-Adobe-3.0 EPSF-3.0\n", bomb(9)[:40]],
    ids=["bomb", "empty", "text", "postscript", "cut"],
)
def test_what_is_no_harmless_picture_is_refused_by_search(opened: Opened, content: bytes) -> None:
    answer = opened.client.post("/api/search", content=content, headers={"origin": HERE})
    assert answer.status_code == 400 and "Cannot read the image" in answer.json()["error"]


def test_too_large_a_picture_is_not_read_to_its_end(opened: Opened) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(65):
            yield bytes(1 << 20)

    answer = opened.client.post("/api/search", content=endless(), headers={"origin": HERE})
    assert answer.status_code == 413


def test_a_model_without_features_explains_what_it_lacks(folder: Path) -> None:
    shutil.rmtree(folder / "features")
    page = open_page(folder)
    key = keys_of(page)[0]
    answer = page.client.get("/api/similar", params={"image": key})
    assert answer.status_code == 400 and "keeps no features" in answer.json()["error"]
    assert page.client.get("/api/map").json() == {}
    assert page.client.get("/api/images", params={"class": "3"}).json()["total"] > 10


def test_the_desk_of_a_model_knows_where_its_images_were(grown: Path) -> None:
    desk = make_desk(Model(grown / "model"), read_only=True)
    listing = desk.view().listing
    assert all(Path(listing.place(row)).is_file() for row in range(len(listing)))
