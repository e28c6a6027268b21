"""Command lines of `python3 -m dynamo.vllm` (1.6.1 with vLLM 0.31.0): what its parsers take and what they refuse, and how."""

from __future__ import annotations

import pytest
from dynamo.vllm.args import parse_args

from engine import flags

KV = '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_connector_extra_config":{"backends":["LIBFABRIC"],"kv_lease_duration":300}}'
TAKEN = [
    "--tensor-parallel-size 8 --trust-remote-code --max-model-len 262144 --gpu-memory-utilization 0.9",
    "--served-model-name nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16 --dyn-reasoning-parser nemotron3 --dyn-tool-call-parser qwen3_coder",
    '--reasoning-parser nemotron_v3 --enable-multimodal --limit-mm-per-prompt {"image":8}',
    "--mamba-ssm-cache-dtype float32 --mamba-cache-mode align --enable-prefix-caching --kv-cache-dtype fp8",
    "--no-enable-prefix-caching --max-num-seqs 16 --max-num-batched-tokens 32768 --async-scheduling",
    "--max-model-len 1M --mamba_cache_mode align -tp 8",
    "--tensor-parallel-siz 8",  # vLLM's parser takes abbreviations
    '--speculative-config {"method":"mtp","num_speculative_tokens":5}',
    f"--disaggregation-mode prefill --kv-transfer-config {KV}",
    "--kv-transfer-config.kv_connector NixlConnector --kv-transfer-config.kv_role kv_consumer",
    "--nnodes 2 --node-rank 1 --master-addr a --master-port 29500 --headless",
    "--router-mode kv",
    '--load-format runai_streamer --hf-overrides {"architectures":["NemotronH_Super_Omni_Reasoning_V3"]}',
]
REFUSED = {  # usage errors: exit 2, the last line on stderr
    "--tool-call-parser qwen3_coder": "unrecognized arguments: --tool-call-parser qwen3_coder",
    "--enable-auto-tool-choice": "unrecognized arguments: --enable-auto-tool-choice",
    "--dyn-tool-call-parser qwen3_xml": "argument --dyn-tool-call-parser: invalid choice: 'qwen3_xml'",
    "--dyn-reasoning-parser nope": "argument --dyn-reasoning-parser: invalid choice: 'nope'",
    "--dyn-reasoning-parse nemotron3": "unrecognized arguments: --dyn-reasoning-parse nemotron3",  # Dynamo's own takes no abbreviations
    "--is-prefill-worker": "unrecognized arguments: --is-prefill-worker",
    "--multimodal-encode-worker": "unrecognized arguments: --multimodal-encode-worker",
    "--http-port 8000": "unrecognized arguments: --http-port 8000",
    "--limit-mm-per-prompt image=8": "argument --limit-mm-per-prompt: Value image=8 cannot be converted",
    "--tensor-parallel-size eight": "argument --tensor-parallel-size/-tp: invalid int value: 'eight'",
    "--tensor-parallel-size": "argument --tensor-parallel-size/-tp: expected one argument",
    "--kv-cache-dtype fp7": "argument --kv-cache-dtype: invalid choice: 'fp7'",
    "/model": "unrecognized arguments: /model",
    "--disaggregation-mode both": "argument --disaggregation-mode: invalid choice: 'both'",
}
FAILED = {  # the parser takes them, the checks after it do not: a traceback, exit 1
    "--connector nixl": "--connector is no longer supported for the vLLM backend",
    "--disaggregation-mode prefill": "you must explicitly provide --kv-transfer-config",
    '--kv-transfer-config {"kv_connector":"NixlConnector","backends":["UCX"]}': "Unexpected keyword argument",
}
LATER = ["--reasoning-parser nemotron_v9", "--attention-backend NOPE", "--load-format mx9", '--kv-transfer-config {"kv_connector":"nope"}']


@pytest.mark.parametrize("line", TAKEN)
def test_taken(line: str) -> None:
    config = parse_args(["--model", "/model", *line.split(" ")])
    flags.refuse_unknown_names(config.engine_args)
    assert config.model == "/model"


@pytest.mark.parametrize(("line", "why"), REFUSED.items())
def test_refused_as_a_usage_error(line: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_args(["--model", "/model", *line.split(" ")])
    assert end.value.code == 2
    assert why in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("line", "why"), FAILED.items())
def test_refused_by_the_checks_after_parsing(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_args(["--model", "/model", *line.split(" ")])


@pytest.mark.parametrize("line", LATER)
def test_names_that_only_the_engine_refuses(line: str) -> None:
    config = parse_args(["--model", "/model", *line.split(" ")])
    with pytest.raises(ValueError, match="unknown name"):
        flags.refuse_unknown_names(config.engine_args)


def test_values_have_their_types() -> None:
    args = parse_args("--model /model -tp 8 --max-model-len 256k --gpu-memory-utilization 0.95 --no-enable-prefix-caching".split()).engine_args
    assert (args.tensor_parallel_size, args.max_model_len, args.gpu_memory_utilization) == (8, 256_000, 0.95)
    assert args.enable_prefix_caching is False
    assert parse_args("--model /model --max-model-len 1M".split()).engine_args.max_model_len == 1_048_576


def test_dynamo_turns_prefix_caching_on() -> None:
    assert parse_args(["--model", "/model"]).engine_args.enable_prefix_caching is True
