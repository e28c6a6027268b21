"""The API server as a pod's service account reaches it."""

from __future__ import annotations

import base64
import json
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MANAGER = "dynamo-operator"
GROUPS = {  # where a kind lives: its group's path and its plural
    "Deployment": ("apis/apps/v1", "deployments"), "LeaderWorkerSet": ("apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    "Service": ("api/v1", "services"), "ServiceAccount": ("api/v1", "serviceaccounts"), "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"), "Pod": ("api/v1", "pods"), "Event": ("api/v1", "events"), "Namespace": ("api/v1", "namespaces"), "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "Role": ("apis/rbac.authorization.k8s.io/v1", "roles"), "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "DynamoGraphDeployment": ("apis/nvidia.com/v1beta1", "dynamographdeployments"),
    "DynamoComponentDeployment": ("apis/nvidia.com/v1beta1", "dynamocomponentdeployments"),
}  # fmt: skip
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class Refused(Exception):
    """What the server answered instead."""

    def __init__(self, call: str, status: int, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(f"{call}: {status} {text[:500]}")


class Api:
    def __init__(self) -> None:
        self.url = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
        self.tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        self.namespace = (ACCOUNT / "namespace").read_text()

    def user(self) -> str:
        """As whom the server knows us: the subject of the token."""
        claims = (ACCOUNT / "token").read_text().split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])

    def open(self, method: str, path: str, body: Any = None, kind: str = "application/json", timeout: float = 30) -> Any:
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": kind, "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
        try:
            return urllib.request.urlopen(request, context=self.tls, timeout=timeout)
        except urllib.error.HTTPError as refused:
            text = refused.read().decode(errors="replace")
            try:
                text = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError):
                pass
            raise Refused(f"{method} {path}", refused.code, text) from None

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        with self.open(method, path, body, kind) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    def find(self, path: str) -> dict[str, Any] | None:
        try:
            return self.ask("GET", path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def apply(self, thing: dict[str, Any]) -> dict[str, Any]:
        return self.ask("PATCH", f"{place(thing)}?fieldManager={MANAGER}&force=true", thing, APPLY)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        try:
            self.ask("DELETE", f"{collection(kind, namespace)}/{name}", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
        except Refused as refused:
            if refused.status != 404:
                raise


def collection(kind: str, namespace: str | None = None) -> str:
    group, plural = GROUPS[kind]
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"


def place(thing: dict[str, Any]) -> str:
    meta = thing["metadata"]
    return f"{collection(thing['kind'], meta['namespace'])}/{meta['name']}"
