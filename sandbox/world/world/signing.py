"""Signature version 4, for the one call that the nodes' role makes: a token for ECR."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import urllib.request
from datetime import UTC, datetime

from .parts import ADDRESS
from .paths import NODE_KEY, NODE_SECRET, REGION


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def ecr_password() -> str:
    body, now = b"{}", datetime.now(UTC)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {
        "content-type": "application/x-amz-json-1.1", "host": f"{ADDRESS}:5005", "x-amz-date": stamp,
        "x-amz-target": "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
    }  # fmt: skip
    signed, scope = ";".join(sorted(headers)), f"{day}/{REGION}/ecr/aws4_request"
    canonical = "\n".join(["POST", "/", "", *(f"{key}:{headers[key]}" for key in sorted(headers)), "", signed, hashlib.sha256(body).hexdigest()])
    key = f"AWS4{NODE_SECRET}".encode()
    for step in (day, REGION, "ecr", "aws4_request"):
        key = _mac(key, step)
    signature = _mac(key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}").hex()
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={NODE_KEY}/{scope}, SignedHeaders={signed}, Signature={signature}"
    ask = urllib.request.Request(f"http://{ADDRESS}:5005/", body, headers)
    with urllib.request.urlopen(ask, timeout=20) as answer:
        token = json.load(answer)["authorizationData"][0]["authorizationToken"]
    return base64.b64decode(token).decode().partition(":")[2]
