import hashlib
import re

import pytest

from dcnn.cli import data
from dcnn.cli.data import fetch_corpora, list_corpora, verify_corpora
from dcnn.data.corpora.registry import Corpus, Download, KnownFile, Part
from dcnn.errors import DataError, FetchError, UserError
from file_server import serving

CONTENT = b"one\ntwo\n"


def make_corpora(address, count=2):
    """Two corpora of a file each."""
    file = KnownFile("lines.txt", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    return {
        name: Corpus(
            name=name,
            title=f"The {name} corpus",
            folder=f"folder of {name}",
            forms=((Part("train", file, count),),),
            downloads=(Download(f"{address}/lines.txt", file),),
            unit="lines",
            count=lambda path, _: len(path.read_bytes().splitlines()),
            citation=f"Cite {name}",
        )
        for name in ("first", "second")
    }


@pytest.fixture
def toys(monkeypatch):
    with serving() as server:
        server.files["/lines.txt"] = CONTENT
        corpora = make_corpora(server.address)
        monkeypatch.setattr(data, "CORPORA", corpora)
        yield corpora


def test_fetching_downloads_the_file_and_prints_the_citation(toys, tmp_path, capsys):
    fetch_corpora(["first"], tmp_path)
    assert (tmp_path / "folder of first" / "lines.txt").read_bytes() == CONTENT
    assert not (tmp_path / "folder of second").exists()
    assert "Cite first" in capsys.readouterr().err


def test_all_fetches_what_is_missing(toys, tmp_path, capsys):
    fetch_corpora(["first"], tmp_path)
    fetch_corpora(["all"], tmp_path)
    assert (tmp_path / "folder of second" / "lines.txt").read_bytes() == CONTENT
    assert f"first is in {tmp_path / 'folder of first'} already" in capsys.readouterr().err


def test_a_damaged_file_is_fetched_again(toys, tmp_path):
    fetch_corpora(["first"], tmp_path)
    (tmp_path / "folder of first" / "lines.txt").write_bytes(b"one\n")
    fetch_corpora(["first"], tmp_path)
    assert (tmp_path / "folder of first" / "lines.txt").read_bytes() == CONTENT


def test_the_list_shows_what_is_present(toys, tmp_path, capsys):
    fetch_corpora(["first"], tmp_path)
    list_corpora(tmp_path)
    out = capsys.readouterr().out
    assert f"Data folder: {tmp_path}" in out
    assert re.search(r"first .* present", out)
    assert re.search(r"second .* missing", out)


def test_verifying_counts_a_line_a_file(toys, tmp_path, capsys):
    fetch_corpora(["first"], tmp_path)
    verify_corpora([], tmp_path)
    assert capsys.readouterr().out == "OK      first train: lines.txt, 2 lines\n"


def test_a_wrong_file_is_named_and_the_others_are_verified_too(toys, tmp_path, capsys):
    fetch_corpora(["all"], tmp_path)
    (tmp_path / "folder of first" / "lines.txt").write_bytes(b"one\n")
    with pytest.raises(DataError, match=r"1 of the files in .* cannot be used"):
        verify_corpora([], tmp_path)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("FAILED ")
    assert "4 bytes where 8 are expected" in first
    assert second.startswith("OK ")


def test_a_corpus_that_is_named_must_be_there(toys, tmp_path, capsys):
    fetch_corpora(["first"], tmp_path)
    with pytest.raises(DataError, match="1 of the files"):
        verify_corpora(["second"], tmp_path)
    assert "lacks lines.txt" in capsys.readouterr().out


def test_a_wrong_count_is_a_fault(tmp_path, capsys, monkeypatch):
    with serving() as server:
        server.files["/lines.txt"] = CONTENT
        monkeypatch.setattr(data, "CORPORA", make_corpora(server.address, count=3))
        fetch_corpora(["first"], tmp_path)
    with pytest.raises(DataError, match="1 of the files"):
        verify_corpora(["first"], tmp_path)
    assert "holds 2 lines where 3 are expected" in capsys.readouterr().out


def test_an_unknown_corpus_is_refused_before_anything_is_fetched(toys, tmp_path):
    with pytest.raises(UserError, match=r"'fisrt' is not a corpus; .* did you mean 'first'\?"):
        fetch_corpora(["second", "fisrt"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_server_the_work_has_failed(tmp_path, monkeypatch):
    with serving() as server:
        monkeypatch.setattr(data, "CORPORA", make_corpora(server.address))
    with pytest.raises(FetchError, match="the server cannot be reached"):
        fetch_corpora(["first"], tmp_path)


@pytest.mark.parametrize("command", ["list", "fetch", "verify"])
def test_every_help_has_an_example(dcnn, command):
    done = dcnn("data", command, "--help")
    assert done.code == 0
    assert f"dcnn data {command} " in done.out.split("Usage")[1].split("\n", 1)[1]


def test_no_arguments_show_the_commands(dcnn):
    done = dcnn("data")
    for command in ("list", "fetch", "verify"):
        assert command in done.out + done.err


def test_the_folder_comes_from_the_option_or_the_environment(dcnn, tmp_path):
    assert f"Data folder: {tmp_path / 'a'}" in dcnn("data", "list", DCNN_DATA=f"{tmp_path}/a").out
    assert "Data folder: b" in dcnn("data", "list", "--data", "b", DCNN_DATA=f"{tmp_path}/a").out


def test_wrong_data_and_wrong_names_are_exit_code_2(dcnn):
    done = dcnn("data", "verify", "--data", "nowhere")
    assert (done.code, "nowhere holds none of the corpora" in done.err) == (2, True)
    done = dcnn("data", "verify", "trec", "--data", "nowhere")
    assert (done.code, "1 of the files in nowhere cannot be used" in done.err) == (2, True)
    done = dcnn("data", "fetch", "tweeter")
    assert (done.code, "did you mean 'twitter'?" in done.err) == (2, True)


@pytest.mark.corpora
def test_the_real_corpora_hold(corpora, dcnn):
    done = dcnn("data", "verify", "sst", "trec", "glove", "--data", corpora)
    assert done.code == 0, done.out
    assert "OK      sst train: train.txt, 8,544 trees" in done.out
