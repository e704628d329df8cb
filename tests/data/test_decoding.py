"""Every odd kind of image file has a defined outcome."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data import decoding
from goal.data.decoding import UnreadableImage, decode
from goal.data.images import FileImages, content_digest
from goal.data.screening import screen

LEFT_RED = np.zeros((4, 6, 3), np.uint8)
LEFT_RED[:, :3, 0] = 255


def pixels(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    image = decode(path)
    assert image.mode == "RGB"
    return np.asarray(image)


def test_palette_cmyk_and_grey_keep_their_colours(tmp_path: Path) -> None:
    red = Image.fromarray(LEFT_RED)
    red.quantize(4).save(tmp_path / "palette.png")
    np.testing.assert_array_equal(pixels(tmp_path / "palette.png"), LEFT_RED)
    red.convert("CMYK").save(tmp_path / "cmyk.tif")
    np.testing.assert_array_equal(pixels(tmp_path / "cmyk.tif"), LEFT_RED)
    red.convert("L").save(tmp_path / "grey.png")
    assert set(np.unique(pixels(tmp_path / "grey.png"))) == {0, 76}  # 0.299 x 255


@pytest.mark.parametrize("name", ["deep.png", "deep.tif", "deep.pgm"])
def test_sixteen_bits_are_scaled_not_cut(tmp_path: Path, name: str) -> None:
    deep = np.array([[0, 128, 257], [32896, 65407, 65535]], np.uint16)
    if name.endswith("pgm"):
        head = b"P5 3 2 65535\n"
        (tmp_path / name).write_bytes(head + deep.astype(">u2").tobytes())
    else:
        Image.fromarray(deep).save(tmp_path / name)
    expected = [[0, 0, 1], [128, 255, 255]]
    np.testing.assert_array_equal(pixels(tmp_path / name)[..., 1], expected)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_an_agreed_white_are_refused(tmp_path: Path, mode: str) -> None:
    Image.fromarray(np.full((2, 2), 1 << 20, np.int32)).convert(mode).save(tmp_path / "a.tif")
    with pytest.raises(UnreadableImage, match=r"a\.tif: 32-bit pixels from .* no agreed white"):
        decode(tmp_path / "a.tif")


def test_a_turned_photograph_comes_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # stored on its side: turn it clockwise by 90 degrees
    Image.fromarray(LEFT_RED).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(pixels(tmp_path / "a.png"), np.rot90(LEFT_RED, k=-1))


def test_the_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    for name in ("a.gif", "a.webp", "a.png"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
        assert (pixels(tmp_path / name) == (255, 0, 0)).all(), name


def test_transparency_shows_white(tmp_path: Path) -> None:
    clear = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.putpixel((1, 0), (0, 255, 0, 255))
    clear.save(tmp_path / "rgba.png")
    clear.quantize(4).save(tmp_path / "palette.png")
    for name in ("rgba.png", "palette.png"):
        assert pixels(tmp_path / name).tolist() == [[[255, 255, 255], [0, 255, 0]]], name


def test_damage_is_named_and_explained(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    contents = {"empty.jpg": b"", "text.png": b"no image", "cut.jpg": whole[: len(whole) // 2]}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableImage, match=name) as caught:
            decode(tmp_path / name)
        assert caught.value.reason
    with pytest.raises(UnreadableImage, match="No such file"):
        decode(tmp_path / "gone.jpg")


def test_an_enormous_image_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(LEFT_RED).save(tmp_path / "a.png")
    monkeypatch.setattr(decoding, "MOST_PIXELS", 23)
    with pytest.raises(UnreadableImage, match="6 x 4 pixels are more than 23"):
        decode(tmp_path / "a.png")
    monkeypatch.setattr(decoding, "MOST_PIXELS", 24)
    assert decode(tmp_path / "a.png").size == (6, 4)


def test_random_damage_never_raises_anything_else(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    image = Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))
    for kind in ("png", "jpg", "gif", "tif", "webp", "bmp"):
        path = tmp_path / f"a.{kind}"
        image.save(path)
        whole = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(40):
            damaged = whole.copy()
            damaged[rng.integers(0, len(whole), 6)] = rng.integers(0, 256, 6)
            path.write_bytes(damaged.tobytes())
            try:
                assert decode(path).mode == "RGB"
            except UnreadableImage as error:
                assert error.reason


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"


def test_postscript_never_reaches_ghostscript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *a, **k: pytest.fail("started"))
    path = tmp_path / "cat.png"
    path.write_bytes(POSTSCRIPT)
    with pytest.raises(UnreadableImage, match=r"cat\.png: none of the image formats BMP, GIF"):
        decode(path)
    assert screen([path], Reporter()).paths == []


def test_a_lack_of_memory_names_the_file_and_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve(image: object) -> None:
        raise MemoryError

    Image.fromarray(LEFT_RED).save(tmp_path / "a.png")
    monkeypatch.setattr(decoding, "upright_rgb", starve)
    with pytest.raises(GoalError, match=r"not enough memory to decode .*a\.png") as caught:
        decode(tmp_path / "a.png")
    assert not isinstance(caught.value, UnreadableImage)


def test_names_that_are_no_text_can_be_printed(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    path.write_bytes(b"nothing")
    with pytest.raises(UnreadableImage) as caught:
        decode(path)
    assert "\\udcff.png" in str(caught.value) and str(caught.value).encode()


def test_what_is_decoded_at_once_stays_within_the_budget() -> None:
    budget, lock = decoding.Budget(100), threading.Lock()
    held: list[int] = []
    sums: list[int] = []

    def work(amount: int) -> None:
        with budget.holding(amount):
            with lock:
                held.append(amount)
                sums.append(sum(held))
            threading.Event().wait(0.002)
            with lock:
                held.remove(amount)

    amounts = [60, 50, 40, 30, 250, 20, 10, 70] * 3
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, amounts))
    assert len(sums) == len(amounts) and max(sums) == 250  # which was alone
    assert all(total <= 100 or total == 250 for total in sums) and max(set(sums) - {250}) > 70


def test_large_images_are_decoded_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(LEFT_RED).save(tmp_path / "a.png")
    at_once, most, lock = 0, 0, threading.Lock()

    def slow(image: Image.Image) -> Image.Image:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        threading.Event().wait(0.005)
        with lock:
            at_once -= 1
        return image

    monkeypatch.setattr(decoding, "upright_rgb", slow)
    monkeypatch.setattr(decoding, "_BUDGET", decoding.Budget(2 * 4 * 6 * 12))  # two such images
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(decode, [tmp_path / "a.png"] * 12))
    assert most == 2


def test_a_pipe_or_device_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "endless.png"):
        images = FileImages([tmp_path / name], np.zeros(1, np.int64))
        with pytest.raises(UnreadableImage, match="not a regular file"):
            images.image(0)
        with pytest.raises(UnreadableImage, match="not a regular file"):
            content_digest(images, 0)
    with pytest.raises(UnreadableImage, match="No such file"):
        decode(tmp_path / "gone.png")
