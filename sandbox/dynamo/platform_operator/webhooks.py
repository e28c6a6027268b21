"""The TLS listener behind the webhook configurations and the CRDs' conversion; its certificate is the operator's own."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import tempfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from . import admission, conversion
from .api import APPLY, MERGE, Api, Refused, collection
from .facts import Thing

SECRET, SERVICE = "webhook-server-cert", "webhook-service"
CRDS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "apis/admissionregistration.k8s.io/v1"


def certificate(api: Api) -> dict[str, str]:
    """PEM by name, from the Secret; made there if it is not."""
    where = f"{collection('Secret', api.namespace)}/{SECRET}"
    found = api.find(where)
    if found is None:
        data = {name: base64.b64encode(text.encode()).decode() for name, text in make(f"{SERVICE}.{api.namespace}.svc").items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": api.namespace}, "type": "kubernetes.io/tls", "data": data}
        found = api.ask("PATCH", f"{where}?fieldManager=dynamo-operator&force=true", secret, APPLY)
    return {name: base64.b64decode(text).decode() for name, text in found["data"].items()}


def make(name: str) -> dict[str, str]:
    """One certificate that is its own authority, good for the Service's name."""
    with tempfile.TemporaryDirectory() as folder:
        key, crt = Path(folder) / "key", Path(folder) / "crt"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"]
        words = ["openssl", "req", "-x509", *curve, "-keyout", str(key), "-out", str(crt), "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
        done = subprocess.run(words, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "HOME": folder, "RANDFILE": f"{folder}/rnd"})
        if done.returncode:
            raise SystemExit(f"openssl: {done.stderr.strip()}")
        return {"tls.key": key.read_text(), "tls.crt": crt.read_text(), "ca.crt": crt.read_text()}


def announce(api: Api, authority: str) -> None:
    """Tells the API server by which authority it may trust the listener."""
    bundle = base64.b64encode(authority.encode()).decode()
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for one in api.ask("GET", f"{HOOKS}/{kind}?labelSelector=app.kubernetes.io%2Fname%3Ddynamo-operator")["items"]:
            for hook in one["webhooks"]:
                hook["clientConfig"]["caBundle"] = bundle
            api.ask("PATCH", f"{HOOKS}/{kind}/{one['metadata']['name']}", {"webhooks": one["webhooks"]}, MERGE)
    for name in ("dynamographdeployments", "dynamocomponentdeployments", "dynamographdeploymentrequests"):
        patch = {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}}
        try:
            api.ask("PATCH", f"{CRDS}/{name}.nvidia.com", patch, MERGE)
        except Refused as refused:
            if refused.status != 404:  # upgradeCRD is off and nobody has brought them
                raise


def server(pem: dict[str, str], version: str, world: admission.World, address: tuple[str, int] = ("", 9443)) -> ThreadingHTTPServer:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tls.key", "tls.crt"):
            (Path(folder) / name).write_text(pem[name])
        context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")
    made = ThreadingHTTPServer(address, handler(lambda path, asked: answer(path, asked, version, world)))
    # The handshake belongs to the connection's own thread, or one silent client would hold up all others.
    made.socket = context.wrap_socket(made.socket, server_side=True, do_handshake_on_connect=False)
    return made


def answer(path: str, asked: Thing, version: str, world: admission.World) -> Thing:
    if path.startswith("/convert"):
        return conversion.review(asked)
    made = admission.review(asked, path, version, world)
    if patch := made["response"].get("patch"):
        made["response"]["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return made


def handler(reply: Callable[[str, Thing], Thing]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(reply(self.path.partition("?")[0], asked)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """The API server's log has the refusals."""

    return Handler
