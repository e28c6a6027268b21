"""`/manager` of the operator image: `crd-apply` applies the CRDs and ends; without it, the manager.

`crd-print FILE…` is the sandbox's own: the CRDs as JSON, from the API server's OpenAPI documents (`kubectl get --raw /openapi/v3/api/v1`, …/apis/autoscaling/v2).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import admission, crds, webhooks
from .api import APPLY, Api, Refused
from .controller import Controller
from .core_types import DOCUMENTS, Core

CRDS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LATE = 3.0  # seconds from Ready until webhooks are answered: the real one too is Ready before its listener (ai-dynamo/dynamo PR 12255, 12712)


def apply_crds() -> None:
    api = Api()
    core = Core(*(api.ask("GET", f"openapi/v3/{document}") for document in DOCUMENTS))
    for crd in crds.all_of_them(api.namespace, core):
        name = crd["metadata"]["name"]
        try:
            api.ask("PATCH", f"{CRDS}/{name}?fieldManager=dynamo-operator-crd-apply&force=true", crd, APPLY)
        except Refused as refused:
            raise SystemExit(str(refused)) from None
        deadline = time.monotonic() + 30
        while not _established(api.ask("GET", f"{CRDS}/{name}")):
            if time.monotonic() > deadline:
                raise SystemExit(f"{name} is not established after 30 s")
            time.sleep(0.1)
        print(f"applied {name}", flush=True)


def print_crds(files: list[str], namespace: str) -> None:
    core = Core(*(json.loads(Path(file).read_text()) for file in files))
    json.dump({"apiVersion": "v1", "kind": "List", "items": crds.all_of_them(namespace, core)}, sys.stdout)


def _established(crd: dict[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []  # both are null for a moment
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


class Probe(BaseHTTPRequestHandler):
    asked = threading.Event()  # whether it is ready

    def do_GET(self) -> None:
        known = self.path in ("/healthz", "/readyz")
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b"ok" if known else b"404 page not found")
        if self.path == "/readyz":
            self.asked.set()

    def log_message(self, format: str, *args: object) -> None:
        """Probes are not worth a line."""


def manage(version: str, address: tuple[str, int], grove: bool) -> None:
    probes = ThreadingHTTPServer(address, Probe)
    threading.Thread(target=probes.serve_forever, daemon=True).start()
    api = Api()
    groups = {group["name"] for group in api.ask("GET", "apis")["groups"]}
    if grove:
        raise SystemExit("sandbox: Grove's own path is not there" if "grove.io" in groups else "Grove is enabled, but the API group grove.io is not served")
    controller = Controller(api, groups)
    # As a container's first process it has to take the signal itself.
    signal.signal(signal.SIGTERM, lambda *_: (Probe.asked.set(), controller.stop()))
    pem = webhooks.certificate(api)
    webhooks.announce(api, pem["ca.crt"])
    print(f"starting manager {version}, multinode by LeaderWorkerSet: {controller.multinode}", flush=True)
    Probe.asked.wait()
    controller.done.wait(LATE)
    listener = webhooks.server(pem, version, admission.World(frozenset(groups), (api.user(),)))
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    print("webhooks are answered", flush=True)
    controller.run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="manager")
    parser.add_argument("command", nargs="?", choices=["crd-apply", "crd-print"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--namespace", default="dynamo-system")
    parser.add_argument("--health-probe-bind-address", default=":8081")
    parser.add_argument("--operator-version", default="1.6.1")
    for flag in ("--metrics-bind-address", "--config"):
        parser.add_argument(flag)
    args = parser.parse_args(sys.argv[1:])
    if args.command == "crd-apply":
        return apply_crds()
    if args.command == "crd-print":
        return print_crds(args.files, args.namespace)
    host, _, port = args.health_probe_bind_address.rpartition(":")
    manage(args.operator_version, (host, int(port)), os.environ.get("GROVE_ENABLED") == "true")


main()
