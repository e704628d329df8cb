"""What people are told when data is missing, and that a download ends up where it is looked for."""

import io
from pathlib import Path

import pytest

from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.fetching import Source, locate
from goal.data.images import DataSettings
from goal.data.sets import cifar100, cub, imagenet100, load_dataset, tinyimagenet
from tests.data.helpers import write_text

from .test_download import md5, tar

ARCHIVES = [cifar100.SOURCE, tinyimagenet.SOURCE, cub.SOURCE]
CONTENT = tar({"toy/one": b"1", "toy/two": b"2"})
TOY = Source("Toy", "toy", ("one", "two"), "https://example.org/toy.tgz", md5(CONTENT))


@pytest.mark.parametrize("name", ["cifar100", "tinyimagenet", "cub", "imagenet100"])
def test_directions_for_missing_data(tmp_path: Path, name: str) -> None:
    source: Source = {
        "cifar100": cifar100.SOURCE,
        "tinyimagenet": tinyimagenet.SOURCE,
        "cub": cub.SOURCE,
        "imagenet100": imagenet100.SOURCE,
    }[name]
    with pytest.raises(GoalError) as caught:
        load_dataset(DataSettings(name=name, root=str(tmp_path)))
    text = str(caught.value)
    assert f"{tmp_path / source.folder / source.files[0]} is missing" in text
    assert source.url in text
    assert str(tmp_path / source.folder) in text
    assert all(file in text for file in source.files)
    wanted = "--download cannot fetch it" if name == "imagenet100" else "add --download"
    assert wanted in text


@pytest.mark.parametrize("source", ARCHIVES, ids=lambda source: source.folder)
def test_public_archives_are_https_with_a_checksum(source: Source) -> None:
    kind, _, digest = source.checksum.partition(":")
    assert source.url.startswith("https://")
    assert kind == "md5"
    assert len(bytes.fromhex(digest)) == 16


def test_imagenet_cannot_be_downloaded(tmp_path: Path) -> None:
    settings = DataSettings(name="imagenet100", root=str(tmp_path), download=True)
    with pytest.raises(GoalError, match="account, so --download cannot fetch it"):
        load_dataset(settings)


def test_download_happens_once_and_only_when_asked(tmp_path: Path) -> None:
    opened: list[str] = []

    def opener(url: str) -> io.BytesIO:
        opened.append(url)
        return io.BytesIO(CONTENT)

    root = tmp_path / "root"
    with pytest.raises(GoalError, match="add --download"):
        locate(TOY, DataSettings(root=str(root)), Reporter(), opener=opener)
    assert opened == []
    wanted = DataSettings(root=str(root), download=True)
    assert locate(TOY, wanted, Reporter(), opener=opener) == root / "toy"
    assert locate(TOY, wanted, Reporter(), opener=opener) == root / "toy"
    assert opened == [TOY.url]
    assert (root / "toy" / "two").read_bytes() == b"2"


def test_the_root_may_be_the_folder_itself(tmp_path: Path) -> None:
    write_text(tmp_path / "toy" / "one")
    write_text(tmp_path / "toy" / "two")
    assert locate(TOY, DataSettings(root=str(tmp_path / "toy")), Reporter()) == tmp_path / "toy"


def test_the_missing_file_is_told_where_most_of_the_data_is(tmp_path: Path) -> None:
    write_text(tmp_path / "one")
    with pytest.raises(GoalError, match=f"{tmp_path / 'two'} is missing"):
        locate(TOY, DataSettings(root=str(tmp_path)), Reporter())


def test_an_incomplete_folder_is_not_overwritten(tmp_path: Path) -> None:
    write_text(tmp_path / "toy" / "one", "mine")
    with pytest.raises(GoalError, match=f"two is missing.*Move {tmp_path / 'toy'} away"):
        locate(TOY, DataSettings(root=str(tmp_path), download=True), Reporter())
    assert (tmp_path / "toy" / "one").read_text() == "mine\n"


def test_an_archive_without_the_promised_files(tmp_path: Path) -> None:
    content = tar({"toy/one": b"1"})
    source = Source("Toy", "toy", ("one", "two"), TOY.url, md5(content))
    settings = DataSettings(root=str(tmp_path), download=True)
    with pytest.raises(GoalError, match="two is missing"):
        locate(source, settings, Reporter(), opener=lambda url: io.BytesIO(content))
