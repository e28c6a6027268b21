"""The sandbox's CA and what it signs, by openssl; made once for each sandbox's folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .paths import Wrong

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
API_NAMES = [
    "IP:127.0.0.1", "IP:10.0.0.1", "IP:10.0.0.3", "IP:10.100.0.1", "DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc", "DNS:kubernetes.default.svc.cluster.local",
]  # fmt: skip
SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def openssl(*words: str, stdin: str = "") -> None:
    done = subprocess.run(["openssl", *words], input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise Wrong(f"openssl {words[0]} failed: {done.stderr.strip()}")


def make(folder: Path, name: str) -> None:
    """CA, API server, admin, service accounts; and the machine's bundle with the CA added, which the world sees in its place."""
    if not (folder / "sa.key").exists():
        ca = folder / "ca"
        openssl("req", "-x509", *CURVE, "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN=sandbox {name}", "-days", "3650")
        sign(folder, "api", "/CN=kube-apiserver", "subjectAltName=" + ",".join(API_NAMES))
        sign(folder, "admin", "/O=system:masters/CN=admin", "basicConstraints=CA:FALSE")
        openssl("genrsa", "-out", str(folder / "sa.key"), "2048")
    if not SYSTEM_BUNDLE.exists():
        raise Wrong(f"{SYSTEM_BUNDLE} is missing: run scripts/setup (package ca-certificates)")
    (folder / "bundle.crt").write_bytes(SYSTEM_BUNDLE.read_bytes() + b"\n" + (folder / "ca.crt").read_bytes())


def sign(folder: Path, name: str, subject: str, extension: str) -> None:
    path, extensions = folder / name, folder / f"{name}.ext"
    extensions.write_text(extension + "\n")
    openssl("req", *CURVE, "-keyout", f"{path}.key", "-out", f"{path}.csr", "-subj", subject)
    openssl(
        "x509", "-req", "-in", f"{path}.csr", "-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key"), "-CAcreateserial",
        "-out", f"{path}.crt", "-days", "3650", "-extfile", str(extensions),
    )  # fmt: skip
    extensions.unlink()
    (folder / f"{name}.csr").unlink()


def kubeconfig(folder: str, server: str) -> dict[str, object]:
    """The admin's; `folder` is where the files lie for whoever reads it."""
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": server, "certificate-authority": f"{folder}/ca.crt"}}],
        "users": [{"name": "admin", "user": {"client-certificate": f"{folder}/admin.crt", "client-key": f"{folder}/admin.key"}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
    }  # fmt: skip


def webhook(server: str) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "signin", "clusters": [{"name": "signin", "cluster": {"server": server}}],
        "users": [{"name": "signin", "user": {}}], "contexts": [{"name": "signin", "context": {"cluster": "signin", "user": "signin"}}],
    }  # fmt: skip
