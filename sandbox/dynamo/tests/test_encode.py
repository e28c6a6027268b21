"""Dynamo's own split of encoding: the real runtime carries pictures to an encode worker, and who may not use what comes back says so."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import tempfile
import urllib.error
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import QWEN
from serving import Served, ask, free_port, serving, wait
from test_disaggregated import LIBFABRIC, counter, nixl, node

from engine import pictures
from engine.embeddings import Receiver, Sender

PIXELS = 640, 480
TOKENS = 20 * 15  # of 32 x 32 pixels
QUESTION = "What is 17 + 25? Answer with the number only."


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def url(data: bytes, media: str = "image/png") -> str:
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


PICTURE = url(png(*PIXELS))


def chat(served: Served, *pictures: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": picture}} for picture in pictures]
    return ask(f"{served.url}/v1/chat/completions", {"model": QWEN, "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": QUESTION}]}]})  # type: ignore[no-any-return]


def refused(served: Served, *pictures: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as error:
        chat(served, *pictures)
    return error.value.code, error.value.read().decode()


def worker(served: Served, name: str, model: Path, *flags: str, **env: str) -> Any:
    one = ["--tensor-parallel-size", "1", "--dyn-reasoning-parser", "qwen3", "--enable-multimodal", "--limit-mm-per-prompt", '{"image":2}']
    return served.worker(name, model, *one, *flags, **env)


def taken(served: Served, name: str = "dynamo_component_requests_total") -> float:
    return served.metric("encode", name, 'dynamo_component="encode"')


@pytest.fixture(scope="module")
def e_pd(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("e_pd"), QWEN) as made:
        node(made.work / "root")
        worker(made, "encode", qwen, "--disaggregation-mode", "encode", SANDBOX_EFA_DEVICES="2")
        worker(made, "worker", qwen, "--route-to-encoder", "--enable-mm-embeds", SANDBOX_EFA_DEVICES="2")
        made.frontend()
        made.listed()
        yield made


def test_the_encode_worker_takes_the_pictures_and_nothing_else(e_pd: Served) -> None:
    text = chat(e_pd)
    assert text["choices"][0]["message"]["content"] == "42" and taken(e_pd) == 0
    before = taken(e_pd, "dynamo_component_request_bytes_total")
    done = chat(e_pd, PICTURE)
    assert done["choices"][0]["message"]["content"] == "42"
    assert taken(e_pd) == 1 and taken(e_pd, "dynamo_component_request_bytes_total") - before > len(PICTURE)
    # Where one picture's place is, as many tokens are as the picture has; the frame of two more.
    assert done["usage"]["prompt_tokens"] - text["usage"]["prompt_tokens"] == TOKENS + 2
    assert chat(e_pd, PICTURE, PICTURE)["usage"]["prompt_tokens"] - text["usage"]["prompt_tokens"] == 2 * (TOKENS + 2)
    assert taken(e_pd) == 2, "one request: there is one encode worker"
    assert counter(e_pd, "rx_bytes") == counter(e_pd, "tx_bytes") == 0, "NIXL without a named backend is UCX"


def test_pictures_that_cannot_be_taken(e_pd: Served) -> None:
    before = taken(e_pd)
    for picture, why in [("http://169.254.169.254/latest/meta-data/", "http"), ("file:///etc/passwd", "local file access is not allowed"),
                         (url(png(*PIXELS)[:-30]), "Invalid or truncated image data"), (url(b"BM1234"), "Unsupported image format")]:  # fmt: skip
        code, body = refused(e_pd, picture)
        assert code >= 400 and (why in body or why in e_pd.log.read_text()), (picture, body)
    assert taken(e_pd) > before, "it is the encode worker that fetches"
    assert "At most 2 image(s) may be provided in one prompt." in refused(e_pd, PICTURE, PICTURE, PICTURE)[1] + e_pd.log.read_text()


def test_encode_prefill_and_decode_apart(qwen: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "e_p_d", QWEN) as made:
        node(made.work / "root")
        env = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()), "SANDBOX_EFA_DEVICES": "2"}
        worker(made, "encode", qwen, "--disaggregation-mode", "encode", **env)
        worker(made, "prefill", qwen, "--disaggregation-mode", "prefill", "--route-to-encoder", "--enable-mm-embeds", *nixl("kv_producer", **LIBFABRIC), **env)
        worker(made, "decode", qwen, "--disaggregation-mode", "decode", "--enable-mm-embeds", *nixl("kv_consumer", **LIBFABRIC), **env)
        made.frontend()
        made.listed()
        done = chat(made, PICTURE)
        assert done["choices"][0]["message"]["content"] == "42" and taken(made) == 1
        assert done["usage"]["prompt_tokens"] > TOKENS
        moved = done["usage"]["prompt_tokens"] * 36 * 2 * 8 * 128 * 2
        assert made.metric("decode", "vllm:nixl_bytes_transferred_sum") == counter(made, "rdma_read_bytes") == moved, "the picture's keys and values too"


@pytest.mark.parametrize(("encode", "pd", "why"), [
    ([], ["--route-to-encoder"], "You must set `--enable-mm-embeds` to input `image_embeds`"),
    (["--embedding-transfer-mode", "local"], ["--route-to-encoder", "--enable-mm-embeds"], "1 validation error for NixlTransferRequest"),
    (["--embedding-transfer-mode", "nixl-read"], ["--route-to-encoder", "--enable-mm-embeds"], "Invalid JSON: sent by nixl-read"),
])  # fmt: skip
def test_what_does_not_go_together_fails_the_request(qwen: Path, tmp_path: Path, encode: list[str], pd: list[str], why: str) -> None:
    with serving(tmp_path / "wrong", QWEN) as made:
        worker(made, "encode", qwen, "--disaggregation-mode", "encode", *encode)
        worker(made, "worker", qwen, *pd)
        made.frontend()
        made.listed()
        code, body = refused(made, PICTURE)
        assert code >= 400 and why in body + made.log.read_text(), body
        assert chat(made)["choices"][0]["message"]["content"] == "42", "text goes on"


def test_without_routing_the_worker_encodes_itself(qwen: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "alone", QWEN) as made:
        worker(made, "encode", qwen, "--disaggregation-mode", "encode")
        worker(made, "worker", qwen)
        made.frontend()
        made.listed()
        assert chat(made, PICTURE)["usage"]["prompt_tokens"] > TOKENS
        assert taken(made) == 0, "an encode worker that nobody asks"


def test_a_worker_waits_for_an_encode_worker(qwen: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "waits", QWEN) as made:
        worker(made, "worker", qwen, "--route-to-encoder", "--enable-mm-embeds")
        made.frontend()
        wait("it waits", made.processes, made.log, 60, lambda: "Waiting for Encoder Worker Instances" in made.log.read_text())
        assert ask(f"{made.url}/v1/models")["data"] == [] and "is registered" not in made.log.read_text()


def test_a_model_that_the_encode_worker_does_not_know(model: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "unknown") as made:
        assert made.worker("encode", model, "--disaggregation-mode", "encode", "--enable-multimodal").wait(60) == 1
        text = made.log.read_text()
        assert f"NotImplementedError: Model not supported: {model}" in text
        assert "Loading weights took" in text, "it loads it first"


def test_another_pods_file_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent = Sender("local").send(TOKENS, 16384)
    assert asyncio.run(Receiver("local").receive(sent)) == TOKENS * 16384 * 2
    Path(sent["serialized_request"]).unlink()
    with pytest.raises(FileNotFoundError):
        asyncio.run(Receiver("local").receive(sent))


def test_models_are_known_by_their_class_or_else_by_their_name(qwen: Path, model: Path) -> None:
    read = lambda path: json.loads((path / "config.json").read_text())  # noqa: E731
    assert pictures.qwen(str(qwen), read(qwen)) and not pictures.qwen(str(model), read(model))
    assert pictures.qwen("/shared/Qwen/Qwen2.5-VL-7B-Instruct", {}) and not pictures.qwen("/shared/nvidia/Cosmos-Reason2-8B", {})


@pytest.mark.parametrize(("width", "height", "tokens"), [(640, 480, 300), (32, 32, 64), (8000, 6000, 147 * 110), (100, 4000, 3 * 125)])
def test_a_pictures_tokens(qwen: Path, width: int, height: int, tokens: int) -> None:
    assert pictures.grid(width, height, pictures.processor(str(qwen))).tokens == tokens


def test_the_size_of_a_jpeg() -> None:
    start = b"\xff\xd8\xff\xe0\x00\x10JFIF\0" + bytes(9) + b"\xff\xc0\x00\x11\x08\x01\xe0\x02\x80\x03" + bytes(9)
    assert pictures.size(start) == (640, 480)
