"""Unlabelled text: the archive of reviews by sentences, files by lines, Treebank tokens."""

import io
import lzma
import tarfile

import pytest

from dcnn.data.corpora.registry import find_corpus
from dcnn.data.corpora.sst import read_trees
from dcnn.data.corpora.unlabelled import count_unlabelled, iterate_unlabelled, treebank_tokens
from dcnn.errors import DataError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's \"great\", isn't it?", "It 's `` great '' , is n't it ?"),
        (
            "I can't say (really)... 10,000 times; didn't.",
            "I ca n't say ( really ) ... 10,000 times ; did n't .",
        ),
        ("the U.S. version costs $5.50, or 3:1!", "the U.S. version costs $ 5.50 , or 3:1 !"),
        ("The characters' lives -- don't ask --", "The characters ' lives -- do n't ask --"),
        ("an 'odd' film, 'til now", "an ` odd ' film , 'til now"),
        ('He said "no."', "He said `` no . ''"),
        ("I CANNOT and WON'T", "I CAN NOT and WO N'T"),
        ("1,2 and 1, 2, a,b 5:a b:5", "1,2 and 1 , 2 , a , b 5 : a b : 5"),
        (
            "he'sn't, they'LL \u2018n't\u2019 rock'n'roll",
            "he 's n't , they 'LL ` n't ' rock'n'roll",
        ),
        ("Mr. X. a.b (the end.) a..b\u2014c", "Mr. X. a.b ( the end . ) a ... b -- c"),
        ("", ""),
    ],
)
def test_text_is_split_as_in_the_treebank(text, tokens):
    assert " ".join(treebank_tokens(text)) == tokens


def test_treebank_tokens_stay_as_they_are():
    for line in ("It 's `` great '' , is n't it ?", "He did n't -- no ... ( 10,000 ) ."):
        assert " ".join(treebank_tokens(line)) == line


@pytest.mark.corpora
def test_the_words_of_the_trees_are_mostly_kept(corpora):
    sentences = [tree[0].words for tree in read_trees(find_corpus("sst", corpora)["dev"].path)]
    same = [tuple(treebank_tokens(" ".join(words))) == words for words in sentences]
    assert sum(same) / len(same) > 0.9


def write_archive(path, texts):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def test_reviews_are_read_sentence_by_sentence(tmp_path):
    path = write_archive(
        tmp_path / "aclImdb_v1.tar.gz",
        {
            "aclImdb/README": "not a review at all, of course.",
            "aclImdb/train/unsup/0_0.txt": "It is a film.<br />I saw it twice.Then I left it.",
            "aclImdb/test/neg/7_2.txt": "Bad. " + "long " * 50,
        },
    )
    assert list(iterate_unlabelled(path)) == [
        "It is a film.", "I saw it twice.", "Then I left it.",
    ]  # fmt: skip
    assert count_unlabelled(path) == 2


def test_a_damaged_archive_is_named(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"a.tar.gz cannot be read .* download it again"):
        list(iterate_unlabelled(tmp_path / "a.tar.gz"))


def test_lines_of_a_compressed_file(tmp_path):
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"who?\nwhy?\n"))
    assert list(iterate_unlabelled(tmp_path / "a.txt.xz")) == ["who?", "why?"]
