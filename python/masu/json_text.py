"""Results as JSON that every reader takes: it has no infinity and nothing that is no number, so these are null."""

from __future__ import annotations

import json
import math


def json_text(content: object, **form) -> str:
    return json.dumps(_finite(content), allow_nan=False, **form)


def _finite(content: object) -> object:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
