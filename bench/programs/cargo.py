"""cargo builds a crate with dependencies (Debian's rustc: others bring an allocator of their own)."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

from masu.messages import Problem

from .harness import FILES, Program, Run, digest, download, unpack

CARGO = "/usr/bin/cargo"
ENVIRONMENT = {"RUSTC": "/usr/bin/rustc", "RUSTFLAGS": "", "CARGO_TERM_COLOR": "never"}
SOURCE = "https://static.crates.io/crates/{name}/{name}-{version}.crate"
VENDORED = """
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "vendor"
"""


def prepare(folder: Path) -> None:
    """Downloads what Cargo.lock names, file by file: cargo of that age would clone the whole index."""
    crate = folder / "crate"
    shutil.copytree(FILES / "crate", crate)
    (crate / ".cargo").mkdir()
    (crate / ".cargo/config.toml").write_text(VENDORED)
    for package in tomllib.loads((crate / "Cargo.lock").read_text())["package"]:
        if "checksum" in package:
            vendor(package, crate / "vendor")


def vendor(package: dict[str, str], into: Path) -> None:
    data = download(SOURCE.format(**package))
    if digest(data) != package["checksum"]:
        raise Problem(f"{package['name']} {package['version']}: wrong checksum")
    unpack(data, into)
    place = into / "{name}-{version}".format(**package)
    (place / ".cargo-checksum.json").write_text(json.dumps({"files": {}, "package": package["checksum"]}))


def run_build(run: Run) -> None:
    shutil.copytree(run.prepared / "crate", run.folder, dirs_exist_ok=True)
    environment = {**ENVIRONMENT, "CARGO_HOME": str(run.folder / "home")}
    run.command(CARGO, "build", "--offline", "--locked", "--jobs=2", environment=environment, timeout=1200)
    program = run.folder / "target/debug/words"
    run.record_digest("the program that was built", program)
    run.record_digest("its output", run.command(program).output)


PROGRAMS = (
    Program(
        "cargo",
        "cargo build of a crate with dependencies (serde_json, regex)",
        packages=("cargo", "rustc"),
        probe=("/usr/bin/rustc", "--version"),
        prepare=prepare,
        run=run_build,
    ),
)
