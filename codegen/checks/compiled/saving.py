"""Save compiled programs, in a worker process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def save(files: str, contents: Mapping[str, bytes]) -> None:
    """Write the contents of each suffix to `FILES.SUFFIX`, atomically."""
    for ending, content in contents.items():
        path = Path(f"{files}.{ending}")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(content)
        os.replace(temporary, path)


def lines_of(fields: Mapping[str, Any]) -> str:
    """Return a JSON object with one field per line, and each object of a list on its own line."""
    return (
        "{\n" + ",\n".join(f"  {json.dumps(k)}: {_value(v)}" for k, v in fields.items()) + "\n}\n"
    )


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {json.dumps(item)}" for item in value) + "\n  ]"
    return json.dumps(value)
