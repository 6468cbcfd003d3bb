"""Files in the format of pprof: read and written, plain and gzipped.

The format is described with https://github.com/google/pprof, as profile.proto. The classes of its
messages are made from the table below; Curve is masu's own (src/observe/pprof.h). Texts are bytes: names of files and
threads need not be UTF-8."""

from __future__ import annotations

import functools
import gzip
import os
import zlib
from pathlib import Path

MESSAGES = {
    "Profile": {
        "sample_type": (1, "ValueType*"), "sample": (2, "Sample*"), "mapping": (3, "Mapping*"), "location": (4, "Location*"),
        "function": (5, "Function*"), "string_table": (6, "bytes*"), "drop_frames": (7, "int64"), "keep_frames": (8, "int64"),
        "time_nanos": (9, "int64"), "duration_nanos": (10, "int64"), "period_type": (11, "ValueType"), "period": (12, "int64"),
        "comment": (13, "int64*"), "default_sample_type": (14, "int64"), "curve": (1000, "Curve"),
    },
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Sample": {"location_id": (1, "uint64*"), "value": (2, "int64*"), "label": (3, "Label*")},
    "Label": {"key": (1, "int64"), "str": (2, "int64"), "num": (3, "int64"), "num_unit": (4, "int64")},
    "Mapping": {
        "id": (1, "uint64"), "memory_start": (2, "uint64"), "memory_limit": (3, "uint64"), "file_offset": (4, "uint64"),
        "filename": (5, "int64"), "build_id": (6, "int64"), "has_functions": (7, "bool"), "has_filenames": (8, "bool"),
        "has_line_numbers": (9, "bool"), "has_inline_frames": (10, "bool"),
    },
    "Location": {
        "id": (1, "uint64"), "mapping_id": (2, "uint64"), "address": (3, "uint64"), "line": (4, "Line*"), "is_folded": (5, "bool"),
    },
    "Line": {"function_id": (1, "uint64"), "line": (2, "int64"), "column": (3, "int64")},
    "Function": {
        "id": (1, "uint64"), "name": (2, "int64"), "system_name": (3, "int64"), "filename": (4, "int64"), "start_line": (5, "int64"),
    },
    "Curve": {"step": (1, "int64"), "in_use": (2, "int64*"), "held": (3, "int64*")},
}  # fmt: skip
"""Each field's number and type; a star: any number of them."""


class BadProfile(Exception):
    """A file that holds no profile, in words for the user."""


@functools.cache
def message(name: str):
    """The class of messages of that name."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"masu.pprof.{name}"))


@functools.cache
def _pool():
    from google.protobuf import descriptor_pb2, descriptor_pool

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="masu/pprof", package="masu.pprof", syntax="proto3")
    for name, fields in MESSAGES.items():
        made = file.message_type.add(name=name)
        for field, (number, type_) in fields.items():
            one = made.field.add(name=field, number=number)
            one.label = kinds.LABEL_REPEATED if type_.endswith("*") else kinds.LABEL_OPTIONAL
            type_ = type_.rstrip("*")
            if type_ in MESSAGES:
                one.type, one.type_name = kinds.TYPE_MESSAGE, f".masu.pprof.{type_}"
            else:
                one.type = getattr(kinds, f"TYPE_{type_.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def read(path: Path):
    """The Profile in the file; OSError or BadProfile."""
    from google.protobuf.message import DecodeError

    data = path.read_bytes()
    if not data:
        raise BadProfile("is empty")
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise BadProfile("is cut off") from None
        except (OSError, zlib.error):
            raise BadProfile("is damaged") from None
    try:
        found = message("Profile").FromString(data)
    except DecodeError:
        raise BadProfile("is no profile, or is cut off") from None
    _check(found)
    return found


def _check(p) -> None:
    """What is referred to is there, so that nobody has to ask again."""
    strings, types = len(p.string_table), len(p.sample_type)
    if not types or not strings or p.string_table[0]:
        raise BadProfile("is no profile")
    mappings, functions = {m.id for m in p.mapping} | {0}, {f.id for f in p.function}
    locations = {l.id for l in p.location}
    texts = [t for v in p.sample_type for t in (v.type, v.unit)]
    texts += [t for m in p.mapping for t in (m.filename, m.build_id)]
    texts += [t for f in p.function for t in (f.name, f.system_name, f.filename)]
    texts += [t for s in p.sample for label in s.label for t in (label.key, label.str)]
    texts += p.comment
    whole = (
        all(0 <= t < strings for t in texts)
        and all(l.mapping_id in mappings and all(line.function_id in functions for line in l.line) for l in p.location)
        and all(len(s.value) == types and locations.issuperset(s.location_id) for s in p.sample)
        and len(p.curve.in_use) == len(p.curve.held)
        and (p.curve.step > 0 or not p.curve.in_use)
    )
    if not whole:
        raise BadProfile("is damaged or cut off: it refers to what is not there")


def write(path: Path, profile) -> None:
    """Gzipped, as all that read the format expect."""
    # Without a name or time in it, the same profile is the same file.
    put(path, gzip.compress(profile.SerializeToString(), mtime=0))


def put(path: Path, data: bytes) -> None:
    """Whole or not at all. A link stays one, and so does a device, which just gets it."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    real = Path(os.path.realpath(path))
    partial = real.with_name(f"{real.name}.part")
    try:
        partial.write_bytes(data)
        os.replace(partial, real)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


class Strings:
    """The texts of a profile, to which some can be added."""

    def __init__(self, profile):
        self.table = profile.string_table
        self.places = {text: i for i, text in enumerate(self.table)}

    def __getitem__(self, place: int) -> str:
        return os.fsdecode(self.table[place])

    def shown(self, place: int) -> str:
        r"""What isn't UTF-8 as \xNN: it can be written anywhere."""
        return self.table[place].decode(errors="backslashreplace")

    def place(self, text: str) -> int:
        data = os.fsencode(text)
        if data not in self.places:
            self.places[data] = len(self.table)
            self.table.append(data)
        return self.places[data]
