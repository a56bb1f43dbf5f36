import gzip
import lzma
import zipfile

import pytest

from dcnn.data.corpora.sentiment140 import read_sentiment140
from dcnn.errors import DataError

ORIGINAL = (
    b'"4","3","Mon May 11 03:17:40 UTC 2009","kindle2","tpryan","caf\xe9, &lt;3 you"\n'
    b'"2","4","Mon May 11 03:18:03 UTC 2009","""a b""","vcu451","so so"\n'
    b'"0","5","Mon May 11 03:18:54 UTC 2009","NO_QUERY","chadfu","""bad"" R&amp;R"\n'
)
TWO_COLUMNS = '1,"café, &lt;3 you"\n0,"""bad"" R&amp;R"\n'.encode()
TWEETS = (["café, <3 you", '"bad" R&R'], [1, 0])


def tweets(path, member=""):
    read = read_sentiment140(path, member)
    return read.texts, read.targets.tolist()


@pytest.mark.parametrize("content", [ORIGINAL, TWO_COLUMNS], ids=["original", "two columns"])
def test_both_forms_give_the_same_tweets(tmp_path, content):
    path = tmp_path / "tweets.csv"
    path.write_bytes(content)
    assert tweets(path) == TWEETS


@pytest.mark.parametrize("content", [ORIGINAL, TWO_COLUMNS], ids=["original", "two columns"])
def test_compressed_files_are_read_as_they_are(tmp_path, content):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(content))
    (tmp_path / "t.csv.xz").write_bytes(lzma.compress(content))
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("t.csv", content)
    for suffix in ("gz", "xz", "zip"):
        assert tweets(tmp_path / f"t.csv.{suffix}") == TWEETS


def test_a_file_is_chosen_inside_an_archive_of_several(tmp_path):
    path = tmp_path / "trainingandtestdata.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("test.csv", b"1,fine\n")
        archive.writestr("train.csv", ORIGINAL)
    assert tweets(path, "train.csv") == TWEETS
    with pytest.raises(DataError, match=r"data\.zip holds no file 'dev\.csv'"):
        tweets(path, "dev.csv")
    with pytest.raises(DataError, match=r"data\.zip holds 2 files"):
        tweets(path)


def test_a_tweet_may_hold_line_breaks(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'0,"one\ntwo\rthree"\r\n1,four')
    assert tweets(path) == (["one\ntwo\rthree", "four"], [0, 1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"line 1: '' is not the first line of a file of labelled tweets; expected six"),
        (b"label,text\n0,a\n", r"line 1: 'label,text\\n' is not the first line"),
        (b"2,neutral\n", r"line 1: '2,neutral\\n' is not the first line"),
        (b"0,a\n1,b\n3,c\n", r"line 3: expected 2 columns .* one of 0, 1; got 2 starting with '3'"),
        (b"0,a\n1\n", r"line 2: .* got 1 starting with '1'"),
        (ORIGINAL + b'"0","1"\n', r"line 4: expected 6 columns .* 0, 2, 4; got 2 starting with"),
        (b'0,a\n1,"never closed\n', r"line 2: not valid CSV"),
        (b"0,a\n1,\xff\n", r"line 2 or later: not valid utf-8"),
        (b"0,\xff\n", r"line 1: not valid utf-8"),
    ],
)
def test_an_error_names_the_line(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.csv, " + message):
        tweets(path)


@pytest.mark.corpora
def test_the_test_set_has_the_two_classes_of_the_paper(corpora):
    texts, targets = tweets(corpora / "twitter" / "testdata.manual.2009.06.14.csv")
    assert (len(texts), sum(targets)) == (359, 182)
