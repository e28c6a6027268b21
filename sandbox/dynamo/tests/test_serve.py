"""`vllm serve`: encoders alone, engines that read what they leave, and llm-d's sidecar (../../router) that has them asked first."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import MODEL
from serving import HERE, QUESTION, Served, ask, free_port, serving, wait

from engine import encoder_cache
from engine.serve import parse

ASKED = "Which colour has this picture? Answer with one word."
ROUTER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nemo" / "bin" / "picture-router"
NIXL = {"kv_connector": "NixlConnector", "kv_connector_extra_config": {"backends": ["LIBFABRIC"]}}


def png(colour: tuple[int, int, int], mark: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    rows = b"".join(b"\0" + bytes([mark if row == 0 else colour[0], *colour[1:]]) * 8 for row in range(8))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def shown(*found: bytes, text: str = ASKED) -> list[dict[str, Any]]:
    urls = [f"data:image/png;base64,{base64.b64encode(picture).decode()}" for picture in found]
    return [{"role": "user", "content": [*({"type": "image_url", "image_url": {"url": url}} for url in urls), {"type": "text", "text": text}]}]


class Split(Served):
    """Engines by name, each at its own port, and routers before them."""

    ports: dict[str, int]

    def start(self, name: str, words: list[str], **env: str) -> None:
        with self.log.open("a") as log:
            self.processes.append(subprocess.Popen(words, env={**self.env, **env}, stdout=log, stderr=log))

    def engine(self, name: str, model: Path, *flags: str, ec: str = "", **env: str) -> None:
        self.ports[name] = free_port()
        transfer = {"ec_connector": "ECExampleConnector", "ec_role": ec, "ec_connector_extra_config": {"shared_storage_path": str(self.work / "encoded")}}
        words = [str(HERE / "programs" / "dynamo-runtime"), "vllm", "serve", str(model), "--served-model-name", MODEL, "--port", str(self.ports[name])]
        words += ["--trust-remote-code", "--host", "127.0.0.1", "--reasoning-parser", "nemotron_v3", *(["--ec-transfer-config", json.dumps(transfer)] if ec else []), *flags]
        self.start(name, words, NVIDIA_VISIBLE_DEVICES="0", SANDBOX_EFA_DEVICES="0", **env)

    def router(self, name: str, engine: str) -> None:
        self.ports[name] = free_port()
        flags = [f"--port={self.ports[name]}", f"--vllm-port={self.ports[engine]}", "--kv-connector=nixlv2", "--ec-connector=ec-example", "--secure-proxy=false"]
        self.start(name, [str(ROUTER), *flags])

    def at(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def ready(self, *names: str) -> None:
        for name in names:
            wait(f"{name} is ready", self.processes, self.log, 60, lambda name=name: urllib.request.urlopen(f"{self.at(name)}/health", timeout=5).status == 200)

    def count(self, name: str, metric: str = "vllm:request_success_total") -> float:
        text = urllib.request.urlopen(f"{self.at(name)}/metrics", timeout=5).read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(metric + "{"))

    def asked(self, name: str, messages: list[dict[str, Any]], encoders: tuple[str, ...] = ("encode",), prefill: str = "", **more: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        headers |= {"x-encoder-hosts-ports": ",".join(f"127.0.0.1:{self.ports[encoder]}" for encoder in encoders)} if encoders else {}
        headers |= {"x-prefiller-host-port": f"127.0.0.1:{self.ports[prefill]}"} if prefill else {}
        body = {"model": MODEL, "messages": messages, **more}
        with urllib.request.urlopen(urllib.request.Request(f"{self.at(name)}/v1/chat/completions", json.dumps(body).encode(), headers), timeout=60) as answer:
            text = answer.read().decode()
        return text if more.get("stream") else json.loads(text)


@pytest.fixture(scope="module")
def split(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Split]:
    with serving(tmp_path_factory.mktemp("split")) as made:
        made.__class__, made.ports = Split, {}
        assert isinstance(made, Split)
        made.engine("encode", model, "--mm-encoder-only", "--no-enable-prefix-caching", "--enforce-eager", ec="ec_producer")
        made.engine("pd", model, "--allowed-media-domains", "nothing.invalid", ec="ec_consumer")
        side = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        made.engine("prefill", model, "--kv-transfer-config", json.dumps({**NIXL, "kv_role": "kv_producer"}), ec="ec_consumer", **side)
        made.engine("decode", model, "--kv-transfer-config", json.dumps({**NIXL, "kv_role": "kv_consumer"}), **side)
        made.router("router", "pd")
        made.router("decode-router", "decode")
        made.ready("encode", "pd", "prefill", "decode", "router", "decode-router")
        yield made


def said(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"]).strip()


def files(split: Split) -> int:
    return len(list((split.work / "encoded").glob("*/encoder_cache.safetensors")))


def test_a_picture_is_encoded_by_the_encoder_and_read_by_the_engine_that_answers(split: Split) -> None:
    before, known = split.count("encode"), files(split)
    answer = split.asked("router", shown(png((0, 0, 255))))
    assert said(answer) == "blue" and answer["choices"][0]["message"]["reasoning"]
    assert (split.count("encode") - before, files(split) - known) == (1, 1)
    assert split.log.read_text().count("Success load encoder cache for hash") == 1


def test_pictures_of_one_request_go_to_the_encoders_at_once_and_each_address_once(split: Split) -> None:
    before = split.count("encode")
    one, other = png((0, 255, 0), 1), png((255, 0, 0), 2)
    assert said(split.asked("router", shown(one, one, other))) == "red"
    assert split.count("encode") - before == 2


def test_an_engine_that_finds_nothing_encodes_itself(split: Split) -> None:
    before = split.count("encode")
    assert said(split.asked("router", shown(png((0, 255, 0), 3)), encoders=())) == "green"
    assert split.count("encode") == before


def test_a_request_without_pictures_asks_no_encoder_and_is_streamed(split: Split) -> None:
    before = split.count("encode")
    text = split.asked("router", QUESTION, stream=True, stream_options={"include_usage": True})
    parts = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert text.rstrip().endswith("data: [DONE]") and len(parts) > 5
    assert "42" in "".join(choice["delta"].get("content") or "" for part in parts for choice in part["choices"])
    assert parts[-1]["usage"]["completion_tokens"] > 5 and split.count("encode") == before


def test_prompt_answer_and_picture_by_three_engines(split: Split) -> None:
    before = {name: split.count(name) for name in ("encode", "prefill", "decode")}
    moved = split.count("decode", "vllm:nixl_bytes_transferred_sum")
    answer = split.asked("decode-router", shown(png((255, 255, 255), 4)), prefill="prefill")
    assert said(answer) == "white"
    assert {name: split.count(name) - was for name, was in before.items()} == {"encode": 1, "prefill": 1, "decode": 1}
    assert split.count("decode", "vllm:nixl_bytes_transferred_sum") - moved > 256 * 2


def test_what_the_router_does_not_know_goes_to_the_engine_beside_it(split: Split) -> None:
    assert ask(f"{split.at('router')}/v1/models")["data"][0]["id"] == MODEL
    assert "vllm:request_success_total" in urllib.request.urlopen(f"{split.at('router')}/metrics", timeout=5).read().decode()


def test_an_encoder_that_is_not_there_is_an_error_and_nothing_is_answered(split: Split) -> None:
    split.ports["nobody"] = free_port()
    before = split.count("pd")
    with pytest.raises(urllib.error.HTTPError) as refused:
        split.asked("router", shown(png((0, 0, 0), 5)), encoders=("nobody",))
    assert refused.value.code == 502 and split.count("pd") == before


def test_pictures_from_elsewhere_are_refused_where_no_host_is_named(split: Split) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}]}]
    with pytest.raises(urllib.error.HTTPError) as refused:
        split.asked("router", messages, encoders=())
    assert refused.value.code == 400
    assert "The URL must be from one of the allowed domains: ['nothing.invalid']. Input URL domain: 169.254.169.254" in refused.value.read().decode()


CONFIG = {"num_image_token": 256, "llm_config": {"n_routed_experts": 8}}
PRODUCER = {"ec_connector": "ECExampleConnector", "ec_role": "ec_producer"}


@pytest.mark.parametrize(
    ("transfer", "flags", "config", "words"),
    [
        ({"ec_connector": "ECFileConnector", "ec_role": "ec_producer"}, [], CONFIG, "unknown|Unsupported connector type: ECFileConnector"),
        ({"ec_connector": "ECMooncakeConnector", "ec_role": "ec_producer"}, [], CONFIG, "No module named 'mooncake'"),
        ({"ec_connector": "ECExampleConnector"}, [], CONFIG, "Please specify ec_role when ec_connector is set"),
        (PRODUCER, ["--data-parallel-size", "8"], CONFIG, "An encoder-only instance does not support DP."),
        (PRODUCER, [], {"llm_config": {}}, "An EC producer-only instance requires a multimodal model."),
    ],
)
def test_what_vllm_refuses_at_its_start(transfer: dict[str, str], flags: list[str], config: dict[str, Any], words: str) -> None:
    args = parse(["serve", "m", "--ec-transfer-config", json.dumps(transfer), *flags])
    with pytest.raises((ValueError, AssertionError, ModuleNotFoundError), match=words):
        encoder_cache.refuse(args, config)


def test_flags_of_dynamo_are_none_of_vllms(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["serve", "m", "--disaggregation-mode", "encode"], ["serve", "m", "--enable-multimodal"], ["m"]):
        with pytest.raises(SystemExit):
            parse(words)
    assert "unrecognized arguments: --enable-multimodal" in capsys.readouterr().err
    with pytest.raises(TypeError, match="--enable-auto-tool-choice requires --tool-call-parser"):
        parse(["serve", "m", "--enable-auto-tool-choice"])
    assert not encoder_cache.encodes_alone(SimpleNamespace(mm_encoder_only=False, ec_transfer_config=None))
