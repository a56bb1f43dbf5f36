import hashlib
import zipfile
from io import BytesIO

import pytest

from dcnn.data.corpora.download import fetch_corpus
from dcnn.data.corpora.registry import Corpus, Download, KnownFile, Part
from dcnn.errors import FetchError, StorageError
from file_server import serving

CONTENT = bytes(range(256)) * 1000
HALF = len(CONTENT) // 2


def known(name, content):
    return KnownFile(name, len(content), hashlib.sha256(content).hexdigest())


def make_corpus(url, content=CONTENT, members=()):
    name = url.rsplit("/", 1)[1]
    unpack = {f"inside/{file.name}": file for file in members}
    files = members or [known(name, content)]
    return Corpus(
        name="toy",
        title="Toy corpus",
        folder="toys",
        forms=(tuple(Part(file.name, file, 1) for file in files),),
        downloads=(Download(url, known(name, content), unpack),),
        unit="bytes",
        count=lambda path, _: path.stat().st_size,
        citation="nobody",
    )


@pytest.fixture
def server():
    with serving() as server:
        server.files["/a.txt"] = CONTENT
        yield server


@pytest.fixture
def corpus(server):
    return make_corpus(server.url("/a.txt"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "toys"


def fetch(corpus, folder, progress=lambda *_: None):
    return fetch_corpus(corpus, folder.parent, progress, timeout=5)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_complete_and_its_progress_is_reported(corpus, folder):
    reported = []
    assert fetch(corpus, folder, lambda *values: reported.append(values)) == [folder / "a.txt"]
    assert (folder / "a.txt").read_bytes() == CONTENT
    assert names(folder) == ["a.txt"]
    assert reported[-1] == ("a.txt", len(CONTENT))
    assert reported == sorted(reported)


def test_a_file_that_is_there_is_not_requested(corpus, folder, server):
    fetch(corpus, folder)
    fetch(corpus, folder)
    assert len(server.asked) == 1


def test_a_damaged_file_is_replaced(corpus, folder):
    folder.mkdir()
    (folder / "a.txt").write_bytes(CONTENT[:-1])
    fetch(corpus, folder)
    assert (folder / "a.txt").read_bytes() == CONTENT


def test_a_cut_connection_is_taken_up_again(corpus, folder, server):
    server.cut_after, server.cuts = 100_000, 2
    fetch(corpus, folder)
    assert (folder / "a.txt").read_bytes() == CONTENT
    starts = [None, "bytes=100000-", "bytes=200000-"]
    assert [wanted for _, wanted in server.asked] == starts


def test_a_later_attempt_continues_where_the_first_was_cut(corpus, folder, server):
    folder.mkdir()
    (folder / "a.txt.part").write_bytes(CONTENT[:HALF])
    server.cut_after = 0
    with pytest.raises(FetchError, match=rf"cut after {HALF:,} of {len(CONTENT):,} bytes"):
        fetch(corpus, folder)
    assert names(folder) == ["a.txt.part"]
    server.cut_after = None
    fetch(corpus, folder)
    assert (folder / "a.txt").read_bytes() == CONTENT
    assert server.asked[-1] == ("/a.txt", f"bytes={HALF}-")
    assert names(folder) == ["a.txt"]


def test_a_complete_download_that_was_not_installed_needs_no_server(corpus, folder, server):
    folder.mkdir()
    (folder / "a.txt.part").write_bytes(CONTENT)
    fetch(corpus, folder)
    assert ((folder / "a.txt").read_bytes(), server.asked) == (CONTENT, [])


def test_a_server_that_ignores_ranges_starts_again(corpus, folder, server):
    server.ranges = False
    folder.mkdir()
    (folder / "a.txt.part").write_bytes(b"x" * HALF)
    fetch(corpus, folder)
    assert (folder / "a.txt").read_bytes() == CONTENT


def test_too_long_a_beginning_is_thrown_away(corpus, folder, server):
    folder.mkdir()
    (folder / "a.txt.part").write_bytes(CONTENT + b"more")
    fetch(corpus, folder)
    assert (folder / "a.txt").read_bytes() == CONTENT
    assert server.asked == [("/a.txt", None)]


@pytest.mark.parametrize("start", [0, HALF], ids=["whole", "rest"])
@pytest.mark.parametrize("content", [CONTENT + b"more", CONTENT[: HALF + 9], CONTENT[:9]])
def test_a_server_whose_file_has_another_size_is_refused(corpus, folder, server, content, start):
    server.files["/a.txt"] = content
    folder.mkdir()
    (folder / "a.txt.part").write_bytes(CONTENT[:start])
    with pytest.raises(FetchError, match=rf"it has {len(content):,} bytes now where 256,000"):
        fetch(corpus, folder)
    assert "a.txt" not in names(folder)


def test_a_wrong_checksum_installs_nothing_and_keeps_nothing(corpus, folder, server):
    server.files["/a.txt"] = CONTENT[:-1] + b"!"
    with pytest.raises(FetchError) as raised:
        fetch(corpus, folder)
    assert f"{server.url('/a.txt')} could not be downloaded: its SHA-256 is " in str(raised.value)
    assert f"put a.txt into {folder} by hand" in str(raised.value)
    assert names(folder) == []


def test_a_wrong_beginning_is_found_out_and_not_kept(corpus, folder):
    folder.mkdir()
    (folder / "a.txt.part").write_bytes(b"x" * HALF)
    with pytest.raises(FetchError, match="its SHA-256 is"):
        fetch(corpus, folder)
    assert names(folder) == []
    fetch(corpus, folder)
    assert (folder / "a.txt").read_bytes() == CONTENT


def test_an_answer_of_the_server_is_passed_on(server, folder):
    with pytest.raises(FetchError, match="the server answered 404 Not Found"):
        fetch(make_corpus(server.url("/gone.txt")), folder)


def test_without_a_server_the_address_and_the_place_are_named(folder):
    with serving() as server:
        corpus = make_corpus(server.url("/a.txt"))
    with pytest.raises(FetchError) as raised:
        fetch(corpus, folder)
    assert str(raised.value).startswith(
        f"{corpus.downloads[0].url} could not be downloaded: the serv"
    )
    assert f"put a.txt into {folder} by hand" in str(raised.value)


def test_a_folder_that_cannot_be_made_is_named(corpus, folder):
    folder.write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="toys cannot be created"):
        fetch(corpus, folder)


def test_a_file_that_cannot_be_written_is_named(corpus, folder):
    (folder / "a.txt.part").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"a\.txt\.part cannot be written"):
        fetch(corpus, folder)


@pytest.fixture
def archive(server):
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("one.txt", "two.txt", "unwanted.txt"):
            archive.writestr(f"inside/{name}", name.encode() * 1000)
    server.files["/a.zip"] = packed.getvalue()
    return packed.getvalue()


def test_an_archive_is_unpacked_and_not_kept(server, archive, folder):
    members = [known(name, name.encode() * 1000) for name in ("one.txt", "two.txt")]
    fetch(make_corpus(server.url("/a.zip"), archive, members), folder)
    assert names(folder) == ["one.txt", "two.txt"]
    assert (folder / "two.txt").read_bytes() == b"two.txt" * 1000


def test_an_archive_that_is_there_is_only_unpacked(server, archive, folder):
    members = [known("one.txt", b"one.txt" * 1000)]
    folder.mkdir()
    (folder / "a.zip").write_bytes(archive)
    fetch(make_corpus(server.url("/a.zip"), archive, members), folder)
    assert (names(folder), server.asked) == (["one.txt"], [])


def test_a_member_that_is_not_the_known_one_is_not_installed(server, archive, folder):
    members = [known("one.txt", b"one.txt" * 1000), known("two.txt", b"another")]
    with pytest.raises(FetchError, match=r"the SHA-256 of inside/two\.txt in it is"):
        fetch(make_corpus(server.url("/a.zip"), archive, members), folder)
    assert "two.txt" not in names(folder)
