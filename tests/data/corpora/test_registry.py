import hashlib
import shutil
import sys
from pathlib import Path

import pytest

from dcnn.data.corpora.registry import (
    CORPORA,
    Corpus,
    Download,
    KnownFile,
    Part,
    Source,
    cache_folder,
    check_file,
    count_vectors,
    data_folder,
    find_corpus,
)
from dcnn.errors import DataError, UserError

TRAIN, TEST, PACKED = b"train " * 50, b"test " * 10, b"packed"


def known(name, content):
    return KnownFile(name, len(content), hashlib.sha256(content).hexdigest())


TOY = Corpus(
    name="toy",
    title="Toy corpus",
    folder="toys",
    forms=(
        (
            Part("train", known("toy.zip", PACKED), 1, member="train.txt"),
            Part("test", known("toy.zip", PACKED), 1, member="test.txt"),
        ),
        (
            Part("train", known("train.txt", TRAIN), 1),
            Part("test", known("test.txt", TEST), 1),
        ),
        (Part("train", KnownFile("big.csv", 9), 1), Part("test", known("test.txt", TEST), 1)),
    ),
    downloads=(Download("https://toys.example/toy.zip", known("toy.zip", PACKED)),),
    unit="words",
    count=lambda path, _: len(path.read_bytes().split()),
    citation="nobody",
)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "toys"
    folder.mkdir()
    (folder / "train.txt").write_bytes(TRAIN)
    (folder / "test.txt").write_bytes(TEST)
    return folder


def find(folder, **options):
    return find_corpus("toy", folder.parent, corpora={"toy": TOY}, **options)


def test_every_part_is_found_by_its_role(folder):
    assert find(folder) == {
        "train": Source(folder / "train.txt"),
        "test": Source(folder / "test.txt"),
    }


def test_an_archive_is_read_by_its_members(folder):
    (folder / "toy.zip").write_bytes(PACKED)
    assert find(folder) == {
        "train": Source(folder / "toy.zip", "train.txt"),
        "test": Source(folder / "toy.zip", "test.txt"),
    }


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(UserError, match=r"'tweeter' is not a corpus; .* did you mean 'twitter'\?"):
        find_corpus("tweeter", tmp_path)


def test_a_missing_corpus_says_what_belongs_where_and_how_to_get_it(tmp_path):
    with pytest.raises(DataError) as raised:
        find(tmp_path / "toys")
    message = str(raised.value)
    for part in (
        f"{tmp_path / 'toys'} lacks toy.zip",
        f"dcnn data fetch toy --data {tmp_path}",
        "by hand from https://toys.example/toy.zip",
    ):
        assert part in message


def test_of_a_form_that_is_half_there_the_other_half_is_missing(folder):
    (folder / "test.txt").unlink()
    with pytest.raises(DataError, match=r"toys lacks test\.txt; run"):
        find(folder)


def test_an_incomplete_download_is_mentioned(folder):
    (folder / "test.txt").rename(folder / "test.txt.part")
    with pytest.raises(
        DataError, match=r"lacks test\.txt \(test\.txt\.part is an incomplete download\)"
    ):
        find(folder)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (TRAIN[:-1], r"has 299 bytes where 300 are expected: it was cut short"),
        (TRAIN + b"!", r"has 301 bytes where 300 are expected: it was altered"),
        (b"", r"has 0 bytes where 300 are expected: it was cut short"),
        (TRAIN.replace(b"t", b"T", 1), r"has the SHA-256 \w{64} where \w{64} is expected"),
        (TEST, r"is test\.txt under another name"),
        (PACKED, r"is toy\.zip under another name"),
    ],
)
def test_a_file_that_is_not_the_right_one_is_refused(folder, content, fault):
    (folder / "train.txt").write_bytes(content)
    remedy = r".*; delete it and run: dcnn data fetch toy"
    with pytest.raises(DataError, match=rf"train\.txt {fault}{remedy}"):
        find(folder)
    assert find(folder, check=False)["train"].path == folder / "train.txt"


def test_a_file_that_cannot_be_downloaded_has_another_remedy(tmp_path):
    questions = CORPORA["questions"]
    (part,) = questions.forms[0]
    path = tmp_path / part.file.name
    path.write_bytes(b"What is a question?")
    with pytest.raises(DataError, match=r"put the right one there; dcnn experiment --sample takes"):
        check_file(questions, path, part.file)


def test_a_file_without_a_known_checksum_is_held_to_its_size(folder):
    (folder / "train.txt").unlink()
    (folder / "big.csv").write_bytes(b"123456789")
    assert find(folder)["train"].path == folder / "big.csv"
    (folder / "big.csv").write_bytes(b"12345678")
    with pytest.raises(DataError, match=r"has 8 bytes where 9 are expected: it was cut short"):
        find(folder)


DOWNLOADED = {name: corpus for name, corpus in CORPORA.items() if corpus.downloads}


@pytest.mark.parametrize("corpus", DOWNLOADED.values(), ids=DOWNLOADED)
def test_the_downloads_make_the_first_form(corpus):
    made = [
        file
        for download in corpus.downloads
        for file in (download.unpack.values() or [download.file])
    ]
    assert set(made) == {part.file for part in corpus.forms[0]}
    for download in corpus.downloads:
        assert len(download.file.sha256) == 64
        assert download.url.endswith(f"/{download.file.name}")


def test_vectors_are_counted_and_a_broken_line_is_named(tmp_path):
    path = tmp_path / "v.txt"
    line = "word" + " 0.5" * 100 + "\n"
    path.write_text(line * 3)
    assert count_vectors(path) == 3
    path.write_text(line + "word 0.5\n")
    with pytest.raises(DataError, match=r"v\.txt, line 2: expected a word and 100 numbers"):
        count_vectors(path)


@pytest.mark.parametrize(
    ("folder", "variable", "xdg"),
    [
        (data_folder, "DCNN_DATA", "XDG_DATA_HOME"),
        (cache_folder, "DCNN_CACHE", "XDG_CACHE_HOME"),
    ],
    ids=["data", "cache"],
)
def test_a_given_folder_comes_before_the_environment_and_the_platform(
    monkeypatch, folder, variable, xdg
):
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(xdg, "/xdg")
    assert folder() == Path("/xdg/dcnn") or sys.platform != "linux"
    monkeypatch.setenv(variable, "~/chosen")
    assert folder() == Path.home() / "chosen"
    assert folder(Path("given")) == Path("given")


def test_a_folder_is_the_chosen_one_or_that_of_the_variable_or_of_the_platform(monkeypatch):
    monkeypatch.delenv("DCNN_DATA", raising=False)
    assert data_folder().name == "dcnn"
    monkeypatch.setenv("DCNN_DATA", "variable")
    assert data_folder() == Path("variable")
    assert data_folder(Path("given")) == Path("given")


@pytest.mark.corpora
@pytest.mark.parametrize("name", CORPORA)
def test_the_real_corpora_are_the_known_ones(corpora, name):
    assert all(source.path.is_file() for source in find_corpus(name, corpora).values())


@pytest.mark.corpora
def test_a_real_file_under_another_name_is_recognised(corpora, tmp_path):
    (tmp_path / "sst").mkdir()
    for name, source in (("train", "train"), ("dev", "dev"), ("test", "dev")):
        shutil.copyfile(corpora / "sst" / f"{source}.txt", tmp_path / "sst" / f"{name}.txt")
    with pytest.raises(DataError, match=r"test\.txt is dev\.txt under another name"):
        find_corpus("sst", tmp_path)
