"""A read-only docker-registry and the token service on loopback, as a sandbox starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from images import __main__ as cli
from images import store

HERE = Path(__file__).resolve().parents[1]
ACCEPT = ", ".join(
    ["application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
     "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json"]
)  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    state, at = tmp_path_factory.mktemp("tokens"), store.make(cli.CACHE, HERE / "images.toml")
    ask = [sys.executable, "-m", "images.token_server", "images.toml", "--state", str(state), "--port", "0"]
    tokens = subprocess.Popen(ask, cwd=HERE, stdout=subprocess.PIPE, text=True)
    address = tokens.stdout.readline().split()[1]  # type: ignore[union-attr]
    port = store._free_port()
    env = {
        "REGISTRY_HTTP_ADDR": f"127.0.0.1:{port}",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(at / "registry"),
        "REGISTRY_AUTH_TOKEN_ROOTCERTBUNDLE": str(state / "token.crt"),
        "OTEL_TRACES_EXPORTER": "none",
    }
    log = (state / "registry.log").open("w")
    registry = subprocess.Popen(["docker-registry", "serve", "upstream.yml"], cwd=HERE, env={**os.environ, **env}, stderr=log)
    store._wait(f"http://127.0.0.1:{port}/v2/", registry, state / "registry.log")
    yield f"http://127.0.0.1:{port}", address
    for process in (registry, tokens):
        process.terminate()
        process.wait()


def _token(address: str, repository: str, actions: str = "pull", auth: tuple[str, str] | None = None) -> dict[str, str]:
    query = {"service": "sandbox-registry", "scope": f"repository:{repository}:{actions}"}
    return {"Authorization": "Bearer " + httpx.get(address, params=query, auth=auth).json()["token"], "Accept": ACCEPT}


def test_the_challenge_sends_clients_to_the_host_they_asked(servers: tuple[str, str]) -> None:
    headers = {"Host": "nvcr.io", "X-Forwarded-Proto": "https"}
    answer = httpx.get(f"{servers[0]}/v2/nvidia/k8s-device-plugin/manifests/v0.17.4", headers=headers)
    assert answer.status_code == 401
    assert 'realm="https://nvcr.io/auth/token"' in answer.headers["WWW-Authenticate"]


def test_index_manifest_config_and_a_layer_are_served(servers: tuple[str, str]) -> None:
    base, tokens = servers
    name = "nvidia/ai-dynamo/vllm-runtime"
    auth = _token(tokens, name)
    index = httpx.get(f"{base}/v2/{name}/manifests/1.6.1-efa", headers=auth).json()
    assert [m["platform"]["architecture"] for m in index["manifests"]] == ["amd64", "arm64"]
    manifest = httpx.get(f"{base}/v2/{name}/manifests/{index['manifests'][0]['digest']}", headers=auth).json()
    config = httpx.get(f"{base}/v2/{name}/blobs/{manifest['config']['digest']}", headers=auth).json()
    assert config["architecture"] == "amd64" and config["config"]["User"] == "1000"
    layer = manifest["layers"][-1]
    assert len(httpx.get(f"{base}/v2/{name}/blobs/{layer['digest']}", headers=auth).content) == layer["size"]


def test_a_chart_is_an_oci_artifact(servers: tuple[str, str]) -> None:
    base, tokens = servers
    manifest = httpx.get(f"{base}/v2/lws/charts/lws/manifests/0.9.0", headers=_token(tokens, "lws/charts/lws")).json()
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"


def test_a_private_image_wants_the_right_key(servers: tuple[str, str]) -> None:
    base, tokens = servers
    url = f"{base}/v2/closed/private-image/manifests/1"
    assert httpx.get(url, headers=_token(tokens, "closed/private-image")).status_code == 401
    assert httpx.get(url, headers=_token(tokens, "closed/private-image", auth=("$oauthtoken", "sandbox-ngc-key"))).status_code == 200
    query = {"service": "sandbox-registry", "scope": "repository:closed/private-image:pull"}
    assert httpx.get(tokens, params=query, auth=("$oauthtoken", "wrong")).status_code == 401


def test_nothing_can_be_pushed_upstream(servers: tuple[str, str]) -> None:
    base, tokens = servers
    auth = _token(tokens, "nvidia/x", "pull,push", ("pusher", "sandbox-push"))
    assert httpx.post(f"{base}/v2/nvidia/x/blobs/uploads/", headers=auth).status_code == 405
