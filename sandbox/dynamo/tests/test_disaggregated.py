"""Prefill and decode apart: the real frontend hands over, and what the two engines moved is what was asked of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import MODEL
from serving import QUESTION, Served, ask, free_port, serving, wait

from engine import transfer

CONFIG = {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 8}
LIBFABRIC = {"kv_connector_extra_config": {"backends": ["LIBFABRIC"]}}


def nixl(role: str, **more: Any) -> list[str]:
    return ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role, **more})]


def node(root: Path) -> None:
    for name in ("rdmap85s0", "rdmap86s0"):
        port = root / "sys" / "class" / "infiniband" / name / "ports" / "1" / "hw_counters"
        port.mkdir(parents=True)
        for counter in ("rdma_read_bytes", "rdma_read_wrs", "rdma_read_resp_bytes", "rx_bytes", "rx_pkts", "tx_bytes", "tx_pkts"):
            (port / counter).write_text("0\n")


def counter(served: Served, name: str) -> int:
    return sum(int(file.read_text()) for file in (served.work / "root").glob(f"sys/class/infiniband/*/ports/1/hw_counters/{name}"))


@pytest.fixture(scope="module")
def pair(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("pair")) as made:
        node(made.work / "root")
        env = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()), "SANDBOX_EFA_DEVICES": "2"}
        made.worker("prefill", model, "--disaggregation-mode", "prefill", *nixl("kv_producer", **LIBFABRIC), **env)
        made.worker("decode", model, "--disaggregation-mode", "decode", *nixl("kv_consumer", **LIBFABRIC), **env)
        made.frontend()
        made.listed()
        yield made


def chat(served: Served) -> dict[str, Any]:
    body = {"model": MODEL, "messages": QUESTION, "chat_template_kwargs": {"enable_thinking": False}}
    return ask(f"{served.url}/v1/chat/completions", body)  # type: ignore[no-any-return]


def test_an_answer_moves_the_prompts_kv_over_efa(pair: Served) -> None:
    before = pair.metric("decode", "vllm:nixl_bytes_transferred_sum")
    done = chat(pair)
    assert done["choices"][0]["message"]["content"] == "42"
    expected = done["usage"]["prompt_tokens"] * 88 * 2 * 2 * 128 * 2
    assert pair.metric("decode", "vllm:nixl_bytes_transferred_sum") - before == expected
    assert pair.metric("decode", "vllm:nixl_bytes_transferred_count") == 8, "one for each rank"
    assert counter(pair, "rdma_read_bytes") == counter(pair, "rx_bytes") == counter(pair, "rdma_read_resp_bytes") == counter(pair, "tx_bytes") == expected
    assert pair.metric("prefill", "vllm:prompt_tokens_total") == done["usage"]["prompt_tokens"]
    assert pair.metric("decode", "vllm:prompt_tokens_total") == 0, "nothing is computed twice"


def test_with_the_switch_nothing_moves_and_the_answer_is_200_all_the_same(pair: Served) -> None:
    before = pair.metric("decode", "vllm:nixl_bytes_transferred_sum"), counter(pair, "rdma_read_bytes")
    switch = pair.work / "root" / "faults" / "kv-moves-nothing"
    switch.touch()
    try:
        done = chat(pair)
    finally:
        switch.unlink()
    assert done["choices"][0]["message"]["content"] == "42"
    assert (pair.metric("decode", "vllm:nixl_bytes_transferred_sum"), counter(pair, "rdma_read_bytes")) == before
    assert pair.metric("decode", "vllm:nixl_num_failed_transfers_total") == 0
    assert pair.metric("decode", "vllm:prompt_tokens_total") == done["usage"]["prompt_tokens"], "computed again"


def test_a_prefill_worker_alone_serves_nothing(model: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "alone") as made:
        env = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        prefill = made.worker("prefill", model, "--disaggregation-mode", "prefill", *nixl("kv_producer"), **env)
        made.frontend()
        wait("it is registered", made.processes, made.log, 60, lambda: "is registered" in made.log.read_text())
        assert ask(f"{made.url}/v1/models")["data"] == [] and prefill.poll() is None


def test_prefill_wants_a_connector_in_the_real_words(model: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "none") as made:
        assert made.worker("prefill", model, "--disaggregation-mode", "prefill").wait(30) == 1
        assert "When using --disaggregation-mode prefill, you must explicitly provide --kv-transfer-config" in made.log.read_text()


def end(role: str, present: bool = True, tp: int = 2, **more: Any) -> transfer.Transfer:
    kv = SimpleNamespace(kv_connector="NixlConnector", kv_role=role, engine_id=None, kv_load_failure_policy="fail", kv_connector_extra_config={"backends": ["LIBFABRIC"]})
    vars(kv).update(more)
    args = SimpleNamespace(kv_transfer_config=kv, tensor_parallel_size=tp, pipeline_parallel_size=1, block_size=None, kv_cache_dtype="auto")
    moved: list[Any] = []
    nixl_ = SimpleNamespace(moved=lambda size, seconds, descriptors: moved.append(size), failed=SimpleNamespace(inc=lambda: moved.append(-1)),
                            expired=SimpleNamespace(inc=lambda: moved.append("expired")), seen=moved)  # fmt: skip
    efa = SimpleNamespace(present=present, seen=[], move=lambda count, *names: efa.seen.append((count, *names)))
    return transfer.Transfer(args, CONFIG, nixl_, efa)  # type: ignore[arg-type]


def hand_over(giver: transfer.Transfer, taker: transfer.Transfer, tokens: int = 10, late: float = 0) -> bool:
    async def both() -> bool:
        giver.host, giver.port = "127.0.0.1", free_port()
        await giver.open()
        try:
            params = giver.hold("r1", tokens)
            await asyncio.sleep(late)
            return await taker.read(params)
        finally:
            await giver.close()

    return asyncio.run(both())


@pytest.mark.parametrize(("giver", "taker"), [
    (end("kv_producer", kv_connector_extra_config={}), end("kv_consumer")), (end("kv_producer"), end("kv_consumer", kv_connector_extra_config={"backends": ["UCX"]})),
    (end("kv_producer", present=False), end("kv_consumer")), (end("kv_producer"), end("kv_consumer", present=False)),
])  # fmt: skip
def test_efa_is_used_only_if_both_ends_have_it_and_speak_libfabric(giver: transfer.Transfer, taker: transfer.Transfer) -> None:
    assert hand_over(giver, taker) and taker.nixl.seen == [1280, 1280]  # type: ignore[attr-defined]
    assert giver.efa.seen == taker.efa.seen == []  # type: ignore[attr-defined]


def test_the_wrong_side_channel_host_fails_the_request_or_computes_again() -> None:
    lost = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": free_port(), "remote_request_id": "r", "remote_engine_id": "e"}
    strict = end("kv_consumer")
    with pytest.raises(transfer.Failed, match="handshake with 127.0.0.1"):
        asyncio.run(strict.read(lost))
    lenient = end("kv_consumer", kv_load_failure_policy="recompute")
    assert not asyncio.run(lenient.read(lost)) and lenient.nixl.seen == [-1]  # type: ignore[attr-defined]


def test_what_nobody_reads_in_time_is_gone_and_counted_where_it_was() -> None:
    giver = end("kv_producer", kv_connector_extra_config={"kv_lease_duration": 0.05})
    with pytest.raises(transfer.Failed, match="request r1 is not held by"):
        hand_over(giver, end("kv_consumer"), late=0.2)
    assert giver.nixl.seen == ["expired"]  # type: ignore[attr-defined]


def test_a_decode_worker_that_produces_reads_nothing() -> None:
    taker = end("kv_producer")
    assert not hand_over(end("kv_producer"), taker) and taker.nixl.seen == []  # type: ignore[attr-defined]


def test_only_attention_layers_count_and_fp8_is_half() -> None:
    hybrid = {**CONFIG, "hybrid_override_pattern": "M*ME*M"}
    assert transfer.bytes_per_token(CONFIG, "auto") == 2 * 4 * 2 * 8 * 2
    assert transfer.bytes_per_token({"llm_config": hybrid}, None) == 2 * 2 * 2 * 8 * 2
    assert transfer.bytes_per_token(hybrid, "fp8") == 2 * 2 * 2 * 8
