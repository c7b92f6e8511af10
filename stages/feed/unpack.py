"""Opens files that may be packed: gzip, bzip2, xz or zstd, as their first octets say, whatever they are called.

Owns nothing. Whatever is wrong with a file, wherever it turns out, is a `FileError` that names it.
"""

import bz2
import gzip
import io
import itertools
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}
ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)
LINE_OCTETS = 1 << 24
PACKED_OCTETS = 1 << 14  # read at once; unpacked they can be several thousand times as many


class FileError(ValueError):
    """A file that cannot be read, or holds something else; the text names it and the place."""


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading. Raises FileError."""
    try:
        with open(path, "rb") as file:
            first = file.read(6)
        packing = next((name for magic, name in PACKED.items() if first.startswith(magic)), "")
        opener = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open, "zstd": _open_zstd, "": open}[packing]
        return opener(path, "rb")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None


@contextmanager
def unpacking(path: Path, where: str):
    """Turn what goes wrong while a file is read into a FileError that says where."""
    try:
        yield
    except ERRORS as error:
        raise FileError(f"{path}: cannot be unpacked after {where}: {error}") from None


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Give the lines of a text file with their numbers. Raises FileError."""
    with open_file(path) as file:
        for number in itertools.count(1):
            with unpacking(path, f"line {number - 1}"):
                line = file.readline(LINE_OCTETS)
            if not line:
                return
            try:
                yield number, line.decode()
            except UnicodeDecodeError:
                raise FileError(f"{path}: line {number} is no text") from None


def _open_zstd(path: Path, mode: str) -> BinaryIO:
    try:
        import zstandard
    except ImportError:
        raise FileError(
            f"{path}: packed with zstd: install the package zstandard (headrace[feed] has it), or unpack it first"
        ) from None
    return io.BufferedReader(_Zstd(open(path, mode), zstandard))


class _Zstd(io.RawIOBase):
    """The octets of all frames of a file.

    The library's own reader stops after the first, and at a cut without a word.
    """

    def __init__(self, file: BinaryIO, library):
        self._file, self._error = file, library.ZstdError
        self._decompressor = library.ZstdDecompressor()
        self._frame = None  # that is being unpacked
        self._unpacked = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._unpacked:
            packed = self._file.read(PACKED_OCTETS)
            if not packed:
                if self._frame is not None:
                    raise EOFError("ends inside a frame")
                return 0
            try:
                self._unpacked = memoryview(b"".join(self._unpack(packed)))
            except self._error as error:
                raise OSError(str(error)) from None
        n = min(len(buffer), len(self._unpacked))
        buffer[:n] = self._unpacked[:n]
        self._unpacked = self._unpacked[n:]
        return n

    def _unpack(self, packed: bytes):
        while packed:
            self._frame = self._frame or self._decompressor.decompressobj()
            yield self._frame.decompress(packed)
            packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None

    def close(self) -> None:
        self._file.close()
        super().close()
