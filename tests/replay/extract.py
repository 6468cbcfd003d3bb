"""extract.py TRACE TO: writes what trace_plan reads of the largest process of a trace file. For ctest, by any Python
that has zstandard."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from masu import trace  # noqa: E402

found = trace.read(Path(sys.argv[1]))
found.extract(found.main(), Path(sys.argv[2]))
