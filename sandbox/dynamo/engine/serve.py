"""`vllm serve` in the sandbox: the flags and checks of vLLM 0.31.0's parser, an OpenAI server, and an engine that knows some answers.

For engines that Dynamo knows nothing of: encoders alone, and those that read what these have encoded.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from tokenizers import Tokenizer

from . import flags

flags.install()  # Dynamo's part of the generator names types of vLLM's

from . import efa, encoder_cache, startup, transfer  # noqa: E402
from .counters import Counters, visible  # noqa: E402
from .generate import Generator  # noqa: E402
from .metrics import Engine, Nixl  # noqa: E402

LARGEST = 512 * 2**20  # of a request's body; vLLM itself has no limit


def parse(words: list[str]) -> Any:
    if not words or words[0] != "serve":
        print("usage: vllm [-h] [-v] {serve} ...", file=sys.stderr)
        sys.exit(2)
    parser = flags.FlexibleArgumentParser(prog="vllm serve", allow_abbrev=True)
    parser.add_argument("model_tag", nargs="?")
    flags.AsyncEngineArgs.add_cli_args(parser)
    flags.add_server_args(parser)
    found = parser.parse_args(words[1:])
    if found.enable_auto_tool_choice and not found.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
    found.model = found.model_tag or found.model
    return flags.AsyncEngineArgs.from_cli_args(found)


def prepare(args: Any) -> dict[str, Any]:
    """All that can be wrong before weights are read, in the order in which the engine meets it."""
    flags.refuse_unknown_names(args)
    found = startup.check_model(args.model, bool(args.trust_remote_code))
    transfer.refuse(args, found)
    encoder_cache.refuse(args, found)
    startup.check_devices(args)
    return found


def failure(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": kind, "param": None, "code": status}}, status=status)


class Server:
    def __init__(self, args: Any, found: dict[str, Any], counters: Counters) -> None:
        self.args, self.name = args, (args.served_model_name or [args.model])[0]
        self.tokenizer = Tokenizer.from_file(str(Path(args.model) / "tokenizer.json"))
        self.metrics = Engine(self.name, CollectorRegistry())
        self.moving = transfer.Transfer(args, found, Nixl(self.metrics), efa.Efa(efa.given())) if transfer.connector(args) else None
        self.encoder, self.alone = encoder_cache.Encoder(args, args.model), encoder_cache.encodes_alone(args)
        ends = found.get("eos_token_id", 1)
        most = int({**found, **found.get("llm_config", {})}.get("max_position_embeddings", 32768))
        self.most = most if args.max_model_len in (None, -1) else min(most, int(args.max_model_len))
        self.generator = Generator(self.tokenizer, {ends} if isinstance(ends, int) else set(ends), self.most, counters.step, self.metrics, self.moving)
        self.limit = int((args.limit_mm_per_prompt or {}).get("image", 999))

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST)
        app.add_routes([
            web.get("/health", self.health), web.get("/v1/models", self.models), web.get("/metrics", self.shown), web.get("/version", self.version),
            web.post("/v1/completions", self.completions), web.post("/v1/chat/completions", self.chat),
        ])  # fmt: skip
        return app

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": flags.VERSION})

    async def models(self, _: web.Request) -> web.Response:
        one = {"id": self.name, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": self.args.model, "max_model_len": self.most}
        return web.json_response({"object": "list", "data": [one]})

    async def shown(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.metrics.registry), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await self.answered(request, body, str(body["prompt"]), [], chat=False)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt, found = "", []
        try:
            for message in body["messages"]:
                text, more = encoder_cache.of(message.get("content"), self.args.allowed_media_domains)
                found += more
                prompt += f"<|im_start|>{message['role']}\n{text}<|im_end|>\n"
            if len(found) > self.limit:
                raise encoder_cache.Wrong(f"At most {self.limit} image(s) may be provided in one prompt.")
            thinks = (body.get("chat_template_kwargs") or {}).get("enable_thinking", True)
            prompt += "<|im_start|>assistant\n" + ("<think>\n" if thinks else "<think></think>")
            return await self.answered(request, body, prompt.replace("<image>", "<image>" * encoder_cache.TOKENS), found, chat=True)
        except encoder_cache.Wrong as wrong:
            return failure(400, "BadRequestError", str(wrong))

    async def answered(self, request: web.Request, body: dict[str, Any], prompt: str, found: list[bytes], *, chat: bool) -> web.StreamResponse:
        if body.get("model") not in (None, self.name):
            return failure(404, "NotFoundError", f"The model `{body['model']}` does not exist.")
        given = body.get("kv_transfer_params") or {}
        ids = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        one = f"{'chatcmpl' if chat else 'cmpl'}-{request.headers.get('X-Request-Id') or uuid.uuid4().hex}"
        # Who got keys and values that were made from pictures encodes none.
        fetched = bool(given.get("do_remote_prefill")) and bool(self.moving) and await self._fetched(given)
        seen = [(self.encoder.hash(p), encoder_cache.colour(p)) for p in found] if fetched else [await asyncio.to_thread(self.encoder.see, p) for p in found]
        if self.alone:
            items = {name: {"item_indices": [n], "metadata": {}} for n, (name, _) in enumerate(seen)}
            self.metrics.finished("stop")
            return self.whole(one, chat, "", "", "stop", len(ids), 0, {"ec_transfer_params": items or None})
        asked = {
            "token_ids": ids, "seen": seen[-1][1] if seen else None, "fetched": fetched, "sampling_options": {"seed": body.get("seed")},
            "stop_conditions": {"max_tokens": body.get("max_completion_tokens") or body.get("max_tokens") or (None if chat else 16), "ignore_eos": body.get("ignore_eos")},
        }  # fmt: skip
        holds = {}
        if given.get("do_remote_decode") and self.moving:
            holds = {"kv_transfer_params": self.moving.hold(one, len(ids))}
        parts = self.parts(asked, chat, thinking=prompt.endswith("<think>\n"))
        if body.get("stream"):
            return await self.streamed(request, body, one, chat, parts, len(ids))
        thought, said, count, reason = "", "", 0, "stop"
        async for more, of_answer, reason in parts:
            thought, said, count = thought + ("" if of_answer else more), said + (more if of_answer else ""), count + 1
        if reason.startswith("error"):
            return failure(500, "InternalServerError", reason)
        return self.whole(one, chat, thought, said, reason, len(ids), count, holds)

    async def _fetched(self, given: dict[str, Any]) -> bool:
        assert self.moving is not None
        try:
            return await self.moving.read(given)
        except transfer.Failed as why:
            raise web.HTTPInternalServerError(text=json.dumps({"error": {"message": str(why), "type": "InternalServerError", "code": 500}}), content_type="application/json") from why

    async def parts(self, asked: dict[str, Any], chat: bool, thinking: bool) -> Any:
        """Text as it comes, whether it is of the answer, and why it ended so far."""
        parsed, ids, shown = bool(self.args.reasoning_parser) and chat, [], ""
        answers = not (parsed and thinking)
        async for step in self.generator.generate(asked, None):
            ids += [token for token in step["token_ids"] if token not in self.generator.stops]
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
            more, shown = text[len(shown) :], text
            reason = step.get("finish_reason") or "stop"
            if step.get("finish_reason"):
                self.metrics.finished(reason)
            if not answers and "</think>" in text:
                answers, more = True, text.split("</think>", 1)[1]
            yield more, answers, reason

    def whole(self, one: str, chat: bool, thought: str, said: str, reason: str, asked: int, count: int, more: dict[str, Any]) -> web.Response:
        usage = {"prompt_tokens": asked, "completion_tokens": count, "total_tokens": asked + count}
        message = {"role": "assistant", "content": said or None, "reasoning": thought or None, "tool_calls": []}
        choice = {"index": 0, "finish_reason": reason, **({"message": message} if chat else {"text": said})}
        kind = "chat.completion" if chat else "text_completion"
        return web.json_response({"id": one, "object": kind, "created": int(time.time()), "model": self.name, "choices": [choice], "usage": usage, **more})

    async def streamed(self, request: web.Request, body: dict[str, Any], one: str, chat: bool, parts: Any, asked: int) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        base = {"id": one, "object": "chat.completion.chunk" if chat else "text_completion", "created": int(time.time()), "model": self.name}

        async def send(part: dict[str, Any]) -> None:
            await answer.write(f"data: {json.dumps({**base, **part})}\n\n".encode())

        if chat:
            await send({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        count, reason = 0, "stop"
        async for more, of_answer, reason in parts:
            count += 1
            delta = {"content" if of_answer else "reasoning": more}
            await send({"choices": [{"index": 0, "finish_reason": None, **({"delta": delta} if chat else {"text": more})}]})
        await send({"choices": [{"index": 0, "finish_reason": reason, **({"delta": {}} if chat else {"text": ""})}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            await send({"choices": [], "usage": {"prompt_tokens": asked, "completion_tokens": count, "total_tokens": asked + count}})
        await answer.write(b"data: [DONE]\n\n")
        return answer


async def run(args: Any, found: dict[str, Any]) -> None:
    with Counters(visible(), args.gpu_memory_utilization or 0.9) as counters:
        await asyncio.to_thread(startup.load, args.model, encoder_cache.encodes_alone(args))
        server = Server(args, found, counters)
        if server.moving:
            await server.moving.open()
        runner = web.AppRunner(server.app(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, args.host, args.port).start()
        startup.log(f"Starting vLLM server on http://{args.host or '0.0.0.0'}:{args.port}", "api_server.py:598")
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, stopped.set)
        await stopped.wait()
        await runner.cleanup()


def main() -> None:
    args = parse(sys.argv[1:])
    asyncio.run(run(args, prepare(args)))


if __name__ == "__main__":
    main()
