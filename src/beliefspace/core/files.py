"""Files that are whole or absent: written beside their place, synced, then renamed into it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from beliefspace.core.errors import CorruptFile, InvalidInput, NoSpace

__all__ = [
    "SCHEMA",
    "check_schema",
    "read_bytes",
    "read_json",
    "remove_temporaries",
    "sha256",
    "temporary_beside",
    "write_atomic",
    "writing",
]

SCHEMA = 1
"""The version of a run's files that is written."""

READABLE_SCHEMAS = (1,)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_atomic(path: str | Path, data: bytes | str, described_by: Path | None = None) -> None:
    """Write a file so that a reader, or a crash at any moment, finds the old content or the new.

    Args:
        path: the file; its directory must exist.
        data: the whole content; text is written as UTF-8.
        described_by: a file about the old content; removed just before the new one is there.

    Raises:
        NoSpace: the disk or quota is full; the old content is intact.
        InvalidInput: the path is a directory or a device, which a rename would replace.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path} is not a regular file; give the path of a file to write")
    content = data.encode() if isinstance(data, str) else data
    temporary = temporary_beside(path)
    with writing(path, len(content)):
        try:
            _write_synced(temporary, content)
            if described_by is not None:
                described_by.unlink(missing_ok=True)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise
        _sync_directory(path.parent)


@contextlib.contextmanager
def writing(path: Path, size: int) -> Iterator[None]:
    """Turn "no space left" into :class:`NoSpace`, and let any other error name the file meant.

    Args:
        path: what is being written, for the message.
        size: bytes it needs.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            # Not the temporary file beside it, which nobody asked for.
            error.filename = str(path)
            raise
        raise NoSpace(
            f"cannot write {path}: it needs {size:,} bytes and the disk or quota is full; "
            "free some space and try again"
        ) from error


def temporary_beside(path: Path) -> Path:
    """Return a new hidden name beside a path; a long name is cut, for names have a limit."""
    return path.with_name(f".{path.name[:50]}.{secrets.token_hex(6)}.tmp")


def remove_temporaries(directory: Path, name: str) -> None:
    """Remove what a killed :func:`write_atomic` left; only for the one process that may write.

    Args:
        directory: where the file lives.
        name: the file's name, or a pattern for several.
    """
    for temporary in directory.glob(f".{name}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Args:
        path: the file.

    Raises:
        CorruptFile: it is missing, or a directory.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CorruptFile(f"{path} is missing") from None
    except IsADirectoryError:
        raise CorruptFile(f"{path} is a directory: expected a file") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: the file.

    Raises:
        CorruptFile: the file is missing, or is not one JSON object in UTF-8.
    """
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise CorruptFile(f"{path} holds a {type(content).__name__}: expected a JSON object")
    return content


def check_schema(path: Path, content: Mapping[str, Any]) -> None:
    """Check that the "schema" of a file's content is one that this version reads.

    Args:
        path: the file, for the message.
        content: what :func:`read_json` gave.

    Raises:
        CorruptFile: it is another one, or absent; the versions that are read are named.
    """
    schema = content.get("schema")
    if type(schema) is not int or schema not in READABLE_SCHEMAS:
        read = ", ".join(map(str, READABLE_SCHEMAS))
        raise CorruptFile(
            f"{path} has schema version {schema!r}; this version of beliefspace reads {read}"
        )


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _write_synced(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    # Without this a power failure may undo the rename.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
