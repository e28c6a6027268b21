"""Charts: from folders to archives and OCI artifacts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from .blobs import gzip_stored, tar

OWN = Path(__file__).resolve().parents[2] / "charts"
# Keys whose content Kubernetes checks: anything may be below them.
FREE = {"affinity", "annotations", "capabilities", "containerSecurityContext", "nodeSelector", "podSecurityContext", "resources", "securityContext", "updateStrategy"}


def archive(item: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """What a chart says of itself, and its .tgz. The same bytes each time: no dates, no compression level."""
    folder = _module(item) if "go_module" in item else OWN / item["folder"]
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    for path, pairs in item.get("replace", {}).items():
        for old, new in pairs:
            if old.encode() not in files[path]:
                raise SystemExit(f"{item['ref']}: {path} has no {old!r} to replace: the chart changed, look at images.toml")
            files[path] = files[path].replace(old.encode(), new.encode())
    facts = {k: v.strip("\"'") for k, v in re.findall(r"^(\w+): *([^#\n]+?) *$", files["Chart.yaml"].decode(), re.M)}
    if not re.search(rf"[-:]{re.escape(facts['version'])}(\.tgz)?$", item["ref"]):
        raise SystemExit(f"{item['ref']}: its Chart.yaml says version {facts['version']}")
    if "go_module" not in item:
        values = yaml.safe_load(files["values.yaml"])
        files["values.schema.json"] = json.dumps(schema(values), indent=1).encode()
    order = sorted(files, key=lambda p: (p != "Chart.yaml", p))  # helm wants to meet Chart.yaml first
    return facts, b"".join(gzip_stored(tar({f"{facts['name']}/{p}": files[p] for p in order})))


def _module(item: dict[str, Any]) -> Path:
    """A folder of a Go module, fetched by the go command and held to the sum that the list pins."""
    ask = ["go", "mod", "download", "-json", item["go_module"]]
    got = subprocess.run(ask, capture_output=True, text=True, cwd="/")
    facts = json.loads(got.stdout or "{}")
    if got.returncode or facts.get("Sum") != item["sum"]:
        why = facts.get("Error") or got.stderr or f"its sum is {facts.get('Sum')}, not {item['sum']}"
        raise SystemExit(f"{item['ref']}: cannot get Go module {item['go_module']}: {why}")
    return Path(facts["Dir"]) / item["folder"]


def schema(values: Any, name: str = "") -> dict[str, Any]:
    """Refuses keys that the chart's values do not have: helm takes them without a word, and then nothing happens."""
    if not isinstance(values, dict) or not values or name in FREE:
        return {}
    known = {key: schema(value, key) for key, value in values.items()}
    return {"type": "object", "properties": known, "additionalProperties": False}
