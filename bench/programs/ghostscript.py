"""Ghostscript: PostScript to PDF, and PDF to images."""

from __future__ import annotations

from .harness import SHARED, Program, Run

BATCH = ("gs", "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE")


def run_ghostscript(run: Run) -> None:
    run.command(*BATCH, "-sDEVICE=pdfwrite", "-sOutputFile=pages.pdf", SHARED / "pages.ps")
    # With bands, several threads render.
    devices = {
        "png16m": ("-r100", "-dTextAlphaBits=4", "-dGraphicsAlphaBits=4"),
        "faxg4": ("-r150",),
        "ppmraw": ("-r100", "-dNumRenderingThreads=4", "-dMaxBitmap=100000", "-dBandHeight=100"),
    }
    for device, options in devices.items():
        run.command(*BATCH, f"-sDEVICE={device}", *options, f"-sOutputFile={device}-%d", "pages.pdf")
    images = sorted(p for device in devices for p in run.folder.glob(f"{device}-*"))
    run.record("images", len(images))
    for image in images:
        run.record_digest(image.name, image)


PROGRAMS = (
    Program(
        "gs",
        "ghostscript: PostScript to PDF to images, one and four threads; images compared",
        packages=("ghostscript",),
        probe=("gs", "--version"),
        run=run_ghostscript,
        quick=True,
    ),
)
