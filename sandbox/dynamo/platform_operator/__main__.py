"""`/manager` of the operator image: `crd-apply` applies the CRDs and ends; without it, a pod that is alive and Ready.

It does not reconcile yet: a DynamoGraphDeployment stays as it is written.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import crds

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Api:
    """The API server as a pod's service account reaches it."""

    def __init__(self) -> None:
        self.url = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
        self.tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/apply-patch+yaml"}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=30) as answer:
                return json.load(answer)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as refused:
            raise SystemExit(f"{method} {path}: {refused.code} {refused.read().decode(errors='replace')[:500]}") from None


def apply_crds() -> None:
    api, namespace = Api(), (ACCOUNT / "namespace").read_text()
    base = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
    for crd in crds.all_of_them(namespace):
        name = crd["metadata"]["name"]
        api.ask("PATCH", f"{base}{name}?fieldManager=dynamo-operator-crd-apply&force=true", crd)
        deadline = time.monotonic() + 30
        while not _established(api.ask("GET", base + name)):
            if time.monotonic() > deadline:
                raise SystemExit(f"{name} is not established after 30 s")
            time.sleep(0.1)
        print(f"applied {name}", flush=True)


def _established(crd: dict[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []  # both are null for a moment
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


class Probe(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path in ("/healthz", "/readyz")
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b"ok" if known else b"404 page not found")

    def log_message(self, format: str, *args: object) -> None:
        """Probes are not worth a line."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="manager")
    parser.add_argument("command", nargs="?", choices=["crd-apply"])
    parser.add_argument("--health-probe-bind-address", default=":8081")
    for flag in ("--metrics-bind-address", "--config", "--operator-version"):
        parser.add_argument(flag)
    args = parser.parse_args(sys.argv[1:])
    if args.command:
        return apply_crds()
    host, _, port = args.health_probe_bind_address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Probe)
    # As a container's first process it has to take the signal itself.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print("starting manager (applies CRDs, does not reconcile)", flush=True)
    server.serve_forever()


main()
