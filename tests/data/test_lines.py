import pytest

from reading import Write, message, pairs


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_invalid_byte_is_located(write: Write, name: str) -> None:
    first = b'{"text": "\xc3\xa9"}\n' if name == "a.jsonl" else b"text\n"
    path = write(name, first + b"\n\xc3\xa9t\xe9\n")
    found = message(path, labels=False)
    assert "line 3, character 3: the byte 0xe9 is not valid utf-8" in found
    assert "--encoding latin-1" in found


def test_invalid_byte_of_another_encoding_suggests_utf_8(write: Write) -> None:
    found = message(write("a.csv", "text,label\nété,x\n"), encoding="ascii")
    assert "line 2, character 1: the byte 0xc3 is not valid ascii" in found
    assert "--encoding utf-8" in found


def test_invalid_byte_far_into_a_file_is_located(write: Write) -> None:
    path = write("a.csv", b"text,label\n" + b"some words,x\n" * 50_000 + b"caf\xe9,x\n")
    assert "line 50002, character 4: the byte 0xe9" in message(path)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_are_read(write: Write, encoding: str) -> None:
    path = write("a.csv", "text,label\r\nété,x\r\n".encode(encoding))
    assert pairs(path, encoding=encoding) == [("été", "x")]


@pytest.mark.parametrize("encoding", ["no-such", "hex", "", "a\0b"])
def test_unknown_encoding(write: Write, encoding: str) -> None:
    found = message(write("a.csv", "text,label\na,b\n"), encoding=encoding)
    assert f"--encoding {encoding!r} is not a text encoding" in found


@pytest.mark.parametrize("mark", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_recognised(write: Write, mark: str) -> None:
    path = write("a.csv", "\ufefftext,label\na,b\n".encode(mark))
    found = message(path)
    assert "looks like UTF-16" in found
    assert "--encoding utf-16" in found
    assert pairs(path, encoding="utf-16") == [("a", "b")]


def test_broken_utf_16_is_a_data_error(write: Write) -> None:
    path = write("a.csv", "text,label\na,b\n".encode("utf-16")[:-1])
    assert "not valid utf-16 at line" in message(path, encoding="utf-16")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", '"text",label\na,b\n'), ("a.jsonl", '{"text": "a", "label": "b"}\n')],
)
def test_utf_8_mark_is_dropped(write: Write, name: str, content: str) -> None:
    assert pairs(write(name, "\ufeff" + content)) == [("a", "b")]


def test_nul_is_located(write: Write) -> None:
    found = message(write("a.csv", "text,label\na,b\nno\0pe,c\n"))
    assert "line 3, character 3: a NUL byte" in found
    without_mark = write("b.csv", "text,label\na,b\n".encode("utf-16-le"))
    assert "--encoding utf-16" in message(without_mark)
