"""Images with layers of their own, by way of ECR, as the product's agent is one."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import tarfile
from pathlib import Path

import boto3
import pytest
from conftest import pod

REGISTRY = "123456789012.dkr.ecr.us-east-2.amazonaws.com"


@pytest.fixture(scope="module")
def image(kube, tmp_path_factory) -> str:
    """A shell with its loader and C library, nothing else."""
    layer = tmp_path_factory.mktemp("image") / "layer.tar"
    libraries = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout)
    with tarfile.open(layer, "w") as tar:
        tar.add(os.path.realpath("/bin/sh"), "agent/sh")
        for library in libraries:
            tar.add(os.path.realpath(library), library.lstrip("/"))
    ecr = boto3.client("ecr")
    ecr.create_repository(repositoryName="agent")
    token = base64.b64decode(ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]).decode()
    tool = os.path.realpath(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo" / "tools" / "kubectl")
    reference = f"{REGISTRY}/agent:1"
    made = [tool, "image", "-ref", reference, "-layer", str(layer), "-creds", token, "-entrypoint", "/agent/sh", "-env", "FROM=image"]
    done = subprocess.run(made, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return reference


def test_layers_are_the_root(kube, image):
    kube.apply(pod("layered", image=image, container={"args": ["-c", 'echo "from=$FROM"; echo /agent/*; echo /usr/*; while :; do read x < /dev/null; done & wait']}))
    kube.ready("layered")
    assert kube.wait(lambda: kube("logs", "layered")).split() == ["from=image", "/agent/sh", "/usr/*"], "nothing of the machine is there"
    kube("delete", "pod", "layered", "--wait=false")


def test_ecr_lists_what_was_pushed(kube, image):
    (detail,) = boto3.client("ecr").describe_images(repositoryName="agent")["imageDetails"]
    assert detail["imageTags"] == ["1"] and detail["imageSizeInBytes"] > 100_000


def test_an_image_of_another_architecture(kube):
    kube.apply(pod("arm", image="nvcr.io/test/arm64-only:1"))
    kube.wait(lambda: "no match for platform" in kube.events("arm"))
    kube("delete", "pod", "arm", "--wait=false")


def test_a_private_image_wants_its_secret(kube):
    kube("create", "secret", "docker-registry", "ngc", "--docker-server=nvcr.io", "--docker-username=$oauthtoken", "--docker-password=sandbox-ngc-key")
    private = "nvcr.io/closed/private-image:1"
    kube.apply(pod("denied", image=private), pod("allowed", image=private, imagePullSecrets=[{"name": "ngc"}]))
    kube.ready("allowed")
    kube.wait(lambda: "pull access denied" in kube.events("denied"))
    kube("delete", "pod", "denied", "allowed", "--wait=false")
