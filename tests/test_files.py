import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
import zstandard

from dcnn import files
from dcnn.config import read_toml
from dcnn.errors import ConfigError, DataError, StorageError, UserError
from dcnn.files import (
    bare_suffix,
    file_lock,
    open_bytes,
    standard_output,
    write_atomically,
    write_folder_atomically,
)

CONTENT = bytes(range(256)) * 2000
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_every_compression_reads_the_same(tmp_path, suffix):
    path = tmp_path / f"data.csv{suffix}"
    path.write_bytes(COMPRESS[suffix](CONTENT))
    with open_bytes(path) as stream:
        assert stream.read() == CONTENT
    assert bare_suffix(path) == ".csv"


def test_a_zip_with_one_file_is_read_and_with_two_refused(tmp_path):
    path = tmp_path / "data.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.csv", CONTENT)
    with open_bytes(path) as stream:
        assert stream.read() == CONTENT
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other.csv", b"")
    with pytest.raises(DataError, match="holds 2 files where one is expected"), open_bytes(path):
        pass


def test_several_zstandard_frames_are_one_file(tmp_path):
    path = tmp_path / "data.zst"
    path.write_bytes(zstandard.compress(CONTENT) + zstandard.compress(b"end"))
    with open_bytes(path) as stream:
        assert stream.read() == CONTENT + b"end"


def test_xz_streams_with_padding_are_one_file(tmp_path):
    path = tmp_path / "data.xz"
    path.write_bytes(lzma.compress(CONTENT) + bytes(8) + lzma.compress(b"end") + bytes(1024))
    with open_bytes(path) as stream:
        assert stream.read() == CONTENT + b"end"


def test_an_xz_file_cannot_ask_for_any_memory(tmp_path):
    packed = bytearray(lzma.compress(CONTENT))
    header = slice(12, 20)  # of the first block; the byte 16 is the size of its dictionary
    packed[16] = 40  # 4 GiB
    packed[20:24] = zlib.crc32(packed[header]).to_bytes(4, "little")
    path = tmp_path / "data.xz"
    path.write_bytes(packed)
    message = "takes more than 256 MiB of memory; compress it again with xz -9"
    with pytest.raises(DataError, match=message), open_bytes(path) as stream:
        stream.read()


def test_a_zip_file_cannot_ask_for_any_memory(tmp_path):
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data", CONTENT)
    with pytest.raises(DataError, match=r"data\.zip is compressed with LZMA"), open_bytes(path):
        pass


# A flipped bit in .zst may go unseen: its frames need not carry a checksum.
@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *((suffix, "cut") for suffix in (".gz", ".bz2", ".xz", ".zst", ".zip")),
        *((suffix, "flipped") for suffix in (".gz", ".bz2", ".xz", ".zip")),
    ],
)
def test_damaged_data_is_never_taken_for_complete(tmp_path, suffix, damage):
    if suffix == ".zip":
        path = tmp_path / "whole.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("data", CONTENT)
        packed = path.read_bytes()
    else:
        packed = COMPRESS[suffix](CONTENT)
    middle = len(packed) // 2
    broken = (
        packed[:middle]
        if damage == "cut"
        else packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :]
    )
    path = tmp_path / f"data{suffix}"
    path.write_bytes(broken)
    with pytest.raises(DataError, match="damaged or cut short"), open_bytes(path) as stream:
        stream.read()


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(DataError, match="gone: no such file"), open_bytes(tmp_path / "gone"):
        pass
    with pytest.raises(DataError, match="is a folder"), open_bytes(tmp_path):
        pass


def test_what_may_never_end_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with (
            pytest.raises(DataError, match=f"{name} is a pipe or a device; name a file"),
            open_bytes(tmp_path / name),
        ):
            pass
    with pytest.raises(ConfigError, match="is a pipe or a device"):
        read_toml(tmp_path / "pipe.csv")


@pytest.mark.parametrize("frames", [1, 20_000])
def test_a_small_zstandard_file_is_expanded_in_small_steps(tmp_path, frames):
    path, size = tmp_path / "data.zst", 100 << 20
    path.write_bytes(frames * zstandard.compress(bytes(size // frames)))
    tracemalloc.start()
    started = time.perf_counter()
    with open_bytes(path) as stream:
        assert sum(map(len, iter(lambda: stream.read(1 << 13), b""))) == size // frames * frames
    assert time.perf_counter() - started < 10
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail_after(_: int) -> None:
    raise RuntimeError


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), write_atomically(path) as stream:
        fail_after(stream.write(b"half"))
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["out"])
    with write_atomically(path) as stream:
        stream.write(b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"new", ["out"])


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "out"
    with write_folder_atomically(path) as folder:
        (folder / "a").write_text("1")
    with pytest.raises(RuntimeError), write_folder_atomically(path) as folder:
        fail_after((folder / "b").write_text("2"))
    assert (names(path), names(path.parent)) == (["a"], ["out"])
    with write_folder_atomically(path) as folder:
        (folder / "c").write_text("3")
    assert (names(path), names(path.parent)) == (["c"], ["out"])


def test_a_folder_survives_an_interrupt_between_the_renames(tmp_path, monkeypatch):
    path = tmp_path / "out"
    with write_folder_atomically(path) as folder:
        (folder / "old").write_text("1")
    rename = Path.replace

    def interrupted(self, target):
        rename(self, target)
        if self == path:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), write_folder_atomically(path) as folder:
        (folder / "new").write_text("2")
    assert (names(path), names(tmp_path)) == (["old"], ["out"])


def test_links_and_pipes_are_written_through(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with write_atomically(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    with write_atomically(Path("/dev/null")) as stream:
        stream.write(b"gone")
    assert Path("/dev/null").is_char_device()


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(StorageError, match=r"out could not be written .*nothing was changed"),
        write_folder_atomically(tmp_path / "file" / "out"),
    ):
        pass
    with (
        pytest.raises(StorageError, match="could not be written"),
        write_atomically(tmp_path / "no" / "out"),
    ):
        pass


def test_a_closed_standard_output_is_reported_with_a_remedy(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(UserError, match="standard output is closed; name a file"):
        standard_output("name a file")


def test_what_cannot_be_encoded_in_utf_8_is_replaced(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", errors="strict"))
    print("é \udcff", file=standard_output(""), end="", flush=True)
    assert written.getvalue() == "é ?".encode()


def test_the_second_of_two_writers_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PATIENCE", 0.1)
    file, folder = tmp_path / "file", tmp_path / "folder"
    with write_atomically(file) as stream, write_folder_atomically(folder) as written:
        refused = pytest.raises(StorageError, match=r"another process is writing .*; wait until")
        with refused, write_atomically(file):
            pass
        with refused, write_folder_atomically(folder):
            pass
        stream.write(b"first")
        (written / "a").write_text("first")
    assert file.read_bytes() == b"first"
    assert (folder / "a").read_text() == "first"
    assert names(tmp_path) == ["file", "folder"]
    with write_atomically(file) as stream:  # and afterwards nothing is in the way
        stream.write(b"second")
    assert file.read_bytes() == b"second"


def test_many_writers_of_one_file_take_turns(tmp_path):
    path, faults = tmp_path / "file", []

    def write(number):
        try:
            for _ in range(20):
                with write_atomically(path) as stream:
                    stream.write(b"%d" % number * 1000)
                    stream.write(b"%d" % number * 1000)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert (len(path.read_bytes()), len(set(path.read_bytes()))) == (2000, 1)
    assert names(tmp_path) == ["file"]


def test_without_locks_two_writers_have_files_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    path = tmp_path / "file"
    with write_atomically(path) as first, write_atomically(path) as second:
        second.write(b"2" * 9)
        first.write(b"1")
    assert path.read_bytes() == b"1"
    assert names(tmp_path) == ["file"]


def test_what_a_killed_writer_leaves_is_replaced(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from dcnn.files import write_atomically\n"
        "with write_atomically(Path(sys.argv[1])): print('open', flush=True); time.sleep(600)"
    )
    arguments = [sys.executable, "-c", code, tmp_path / "file"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        process.kill()
    assert names(tmp_path) == [".file.lock", ".file.tmp"]
    with write_atomically(tmp_path / "file") as stream:
        stream.write(b"new")
    assert names(tmp_path) == ["file"]


def test_a_lock_is_waited_for(tmp_path):
    events, started = [], threading.Event()

    def second():
        with file_lock(tmp_path / "lock", lambda: (events.append("waits"), started.set())):
            events.append("second")

    thread = threading.Thread(target=second)
    with file_lock(tmp_path / "lock", pytest.fail):
        thread.start()
        assert started.wait(30)
        events.append("first ends")
    thread.join(30)
    assert list(dict.fromkeys(events)) == ["waits", "first ends", "second"]


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from dcnn.files import file_lock\n"
        "with file_lock(Path(sys.argv[1]), print): print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "lock"], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(TimeoutError), file_lock(tmp_path / "lock", raise_timeout):
            pass
        process.kill()
    with file_lock(tmp_path / "lock", pytest.fail):
        pass


def raise_timeout():
    raise TimeoutError


def test_without_locks_nothing_is_held(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    for _ in range(2):
        with file_lock(tmp_path / "lock", pytest.fail), file_lock(tmp_path / "lock", pytest.fail):
            pass
