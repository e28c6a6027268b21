"""What the servers say: the AWS emulator's admin paths, pods as the API server sees them, its audit log."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from .path import Interval

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo"
RUN = CACHE / "sandbox" / os.environ.get("SANDBOX_NAME", "default")  # the folder of the sandbox that this runs in
AWS = "http://aws.sandbox:5005"


def aws(method: str, path: str, body: Any = None, timeout: float = 30) -> Any:
    """One of the emulator's admin paths."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{AWS}/_sandbox{path}", data=data, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def aws_writes(since: int) -> dict[str, int]:
    """The client's own writes after a number of the journal, by operation."""
    return dict(aws("GET", f"/calls?since={since}&via=")["writes_by_operation"])


def speed() -> float:
    return float(aws("GET", "/clock")["factor"])


def last_call() -> int:
    return int(aws("GET", "/calls?since=1000000000")["last"])


def kube_writes(log: Path, offset: int = 0) -> tuple[dict[str, int], int]:
    """Writes of people (not of the cluster's own parts) in the audit log from a byte offset on, and where it ends now."""
    found: dict[str, int] = {}
    with log.open("rb") as handle:
        handle.seek(offset)
        for line in handle:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            event = json.loads(line)
            if is_write(event):
                what = event["objectRef"]
                name = "/".join(part for part in (what.get("resource"), what.get("subresource")) if part)
                key = f"{event['verb']} {name} {what.get('namespace', '')}/{what.get('name', '')}"
                found[key] = found.get(key, 0) + 1
    return found, offset


def is_write(event: dict[str, Any]) -> bool:
    resource = event.get("objectRef", {}).get("resource", "")
    by_us = str(event.get("user", {}).get("username", "")).startswith("arn:aws:")
    return by_us and event["verb"] not in ("get", "list", "watch") and bool(resource) and not resource.endswith("reviews")


# ---- pods ---------------------------------------------------------------------------------------------------------------------


class Pods:
    """Watches every pod from now on and notes, by this machine's clock, when it started and when it was Ready or over."""

    path = "/api/v1/pods"

    def __init__(self, server: str) -> None:
        self.server, self._stop = server, threading.Event()
        self.seen: dict[str, dict[str, Any]] = {}

    def start(self) -> Pods:
        threading.Thread(target=self._run, daemon=True, name="pods").start()
        return self

    def _open(self) -> Any:
        context = ssl.create_default_context(cafile=str(RUN / "ca.crt"))
        context.load_cert_chain(RUN / "admin.crt", RUN / "admin.key")
        return urllib.request.urlopen(f"{self.server}{self.path}?watch=1&timeoutSeconds=3600", context=context, timeout=3600)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._open() as stream:
                    for line in stream:
                        event = json.loads(line)
                        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                            self.note(event["object"], time.time())
                        if self._stop.is_set():
                            return
            except (OSError, ValueError):
                self._stop.wait(0.2)  # the control plane is not there yet, or not there any more

    def note(self, pod: dict[str, Any], now: float) -> None:
        row = self.seen.setdefault(pod["metadata"]["uid"], {"pod": pod, "started": None, "done": None})
        row["pod"], status = pod, pod.get("status", {})
        if row["started"] is None and status.get("startTime"):
            row["started"] = now
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
        over = status.get("phase") in ("Succeeded", "Failed")
        if row["done"] is None and (over or (ready and not in_job(pod))):
            row["done"] = now

    def stop(self) -> None:
        self._stop.set()

    def intervals(self) -> list[Interval]:
        found = []
        for row in self.seen.values():
            part = part_of_pod(row["pod"])
            if part and row["started"] and row["done"]:
                meta = row["pod"]["metadata"]
                found.append(Interval(part, f"{meta['namespace']}/{meta['name']}", row["started"], row["done"]))
        return found


class Graphs(Pods):
    """The same of DynamoGraphDeployments: from when one was made until its operator said that all of it is Ready."""

    path = "/apis/nvidia.com/v1beta1/dynamographdeployments"

    def note(self, graph: dict[str, Any], now: float) -> None:
        row = self.seen.setdefault(graph["metadata"]["uid"], {"graph": graph, "started": now, "done": None})
        said = [one for one in graph.get("status", {}).get("conditions", []) if one["type"] == "Ready" and one["status"] == "True"]
        if row["done"] is None and said and said[0].get("observedGeneration") == graph["metadata"]["generation"]:
            row["done"] = now

    def intervals(self) -> list[Interval]:
        rows = [row for row in self.seen.values() if row["done"]]
        return [Interval("pods serve", f"graph {row['graph']['metadata']['name']}", row["started"], row["done"]) for row in rows]


def in_job(pod: dict[str, Any]) -> bool:
    return any(owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", []))


def part_of_pod(pod: dict[str, Any]) -> str | None:
    """Which part a pod belongs to, by the label that `nemo` gives what it applies, else by where it is."""
    meta = pod["metadata"]
    labels, namespace = meta.get("labels") or {}, meta["namespace"]
    step = labels.get("nemo.dev/step") or labels.get("nemo/step") or ""
    if not step:
        words = f"{meta['name']} {labels.get('app.kubernetes.io/component', '')} {labels.get('app.kubernetes.io/name', '')}"
        step = next((known for known in ("weights", "bench", "test") if known in words), "")
        step = "serve" if "nvidia.com/dynamo-component-type" in labels else step
    if namespace == "kube-system" and step not in ("weights", "serve", "test", "bench"):
        return "pods platform" if "plugin" in meta["name"] or in_job(pod) else None  # EKS's own are in their add-ons
    return f"pods {step}" if step in ("weights", "serve", "test", "bench") else "pods platform"
