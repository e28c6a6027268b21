"""Pictures of a request, on both sides of Dynamo's own split: the encode worker, and the worker that has it encode.

Messages between the two have the fields of dynamo/vllm/multimodal_utils/protocol.py and go over the real runtime, which counts them
(`dynamo_component_requests_total` and `dynamo_component_request_bytes_total` of the component `encode`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from dynamo.common.http.url_validator import UrlValidationPolicy
from dynamo.llm.exceptions import InvalidArgument
from dynamo.vllm.args import Config
from dynamo.vllm.constants import DisaggregationMode

from . import pictures
from .embeddings import Receiver, Sender
from .pictures import Grid
from .startup import TIMING

logger = logging.getLogger("dynamo.vllm")


class Encoder:
    """The encode worker's part of a request."""

    def __init__(self, path: str, config: dict[str, Any], sender: Sender, step: Callable[[], None]) -> None:
        self.processor, self.values = pictures.processor(path), pictures.embedding_width(config)
        self.sender, self.step, self.policy = sender, step, UrlValidationPolicy.from_env()

    async def encode(self, request: Any, context: Any) -> AsyncIterator[str]:
        asked = json.loads(request) if isinstance(request, str) else request
        try:
            groups = asked["multimodal_inputs"]
            sizes = await asyncio.gather(*(self._load(group.get("multimodal_input")) for group in groups))
            for group, (width, height) in zip(groups, sizes, strict=True):
                grid = pictures.grid(width, height, self.processor)
                await asyncio.sleep(TIMING["encode"]["picture_ms"] / 1000)
                self.step()
                group["multimodal_input"].update(image_url=None, image_decoded=None)
                group.update(image_grid_thw=[grid.thw], embeddings_shape=[1, grid.tokens, self.values], serialized_request=self.sender.send(grid.tokens, self.values))
        except Exception as error:
            logger.error("Error processing request %s: %s", asked.get("request_id"), error)
            raise
        yield json.dumps(asked)

    async def _load(self, item: dict[str, Any] | None) -> tuple[int, int]:
        if not item or not item.get("image_url"):
            raise ValueError("image_url or image_decoded is required for the encode worker.")
        return await pictures.load(item["image_url"], self.policy)


class Seen(NamedTuple):
    """A request's pictures as the engine has them."""

    grids: list[Grid]
    handed_over: dict[str, Any] | None = None  # what a decode worker needs to know of them

    @property
    def more(self) -> int:
        """Tokens that the prompt has beside those that the frontend counted: one for each picture was there."""
        return sum(grid.tokens for grid in self.grids) - len(self.grids)


class Pictures:
    """What a worker that reads prompts does with pictures: has them encoded by another, or does it itself."""

    def __init__(self, config: Config, found: dict[str, Any], client: Any = None) -> None:
        args = config.engine_args
        self.multimodal, self.client, self.receiver = bool(config.enable_multimodal), client, Receiver(config.embedding_transfer_mode.value)
        self.decodes = config.disaggregation_mode == DisaggregationMode.DECODE
        self.embeds, self.limit = bool(args.enable_mm_embeds), (args.limit_mm_per_prompt or {}).get("image", 999)
        # Of other models pictures count as one token each: how they are cut into tiles is not modelled.
        self.qwen = pictures.qwen(config.model, found)
        self.processor = pictures.processor(config.model) if self.qwen and self.multimodal else {}
        self.policy = UrlValidationPolicy.from_env()

    async def seen(self, request: dict[str, Any], context: Any) -> Seen:
        return self._decode(request) if self.decodes else await self._read(request, context)

    async def _read(self, request: dict[str, Any], context: Any) -> Seen:
        """The pictures of a prompt that is to be computed here."""
        urls = self._urls(request)
        if not urls:
            return Seen([])
        if self.client is not None:
            grids = await self._encoded(urls, context)
            self._as_embeddings()
        else:
            sizes = await asyncio.gather(*(pictures.load(url, self.policy) for url in urls))
            grids = [pictures.grid(*size, self.processor) for size in sizes] if self.qwen else []
        return Seen(grids, {"image_grid_thw": [grid.thw for grid in grids], "embeddings_shape": [sum(grid.tokens for grid in grids), 0]} if grids else None)

    def _decode(self, request: dict[str, Any]) -> Seen:
        """The pictures of a prompt that a prefill worker has computed: placeholders, which the engine takes for embeddings."""
        if not self._urls(request) or not self.qwen:
            return Seen([])
        prefill = request.get("prefill_result")
        params = ((prefill or {}).get("disaggregated_params") or {}).get("embedding_params")
        if params is None:
            without = "Decode worker received multimodal request without prefill result"
            raise RuntimeError(without if prefill is None else "Prefill did not produce required multimodal embedding metadata (image_grid_thw) for Qwen-VL decode")
        self._as_embeddings()
        merge = int(self.processor["merge_size"]) ** 2
        return Seen([Grid(height, width, height * width // merge) for _, height, width in params["image_grid_thw"]])

    def _urls(self, request: dict[str, Any]) -> list[str]:
        media = request.get("multi_modal_data")
        if media is None:
            return []
        if not self.multimodal:
            raise InvalidArgument("Received multimodal data but multimodal processing is not enabled. Use --enable-multimodal flag to enable multimodal processing.")
        urls = [item if isinstance(item, str) else item["Url"] for item in media.get("image_url") or []]
        if len(urls) > self.limit:
            raise ValueError(f"At most {self.limit} image(s) may be provided in one prompt.")
        return urls

    def colour(self, request: dict[str, Any]) -> str | None:
        """What is seen in the last picture, if it came within the request: of the engine that computes the prompt, of who encodes for it, and of whoever has its KV."""
        urls = self._urls(request)
        return pictures.colour(urls[-1]) if urls else None

    def _as_embeddings(self) -> None:
        if not self.embeds:
            raise ValueError("You must set `--enable-mm-embeds` to input `image_embeds`")

    async def _encoded(self, urls: list[str], context: Any) -> list[Grid]:
        workers = len(self.client.instance_ids())
        if workers == 0:
            raise RuntimeError("No encode workers available to process multimodal input")
        count, asked = max(1, len(urls) // workers), []
        for at in range(0, len(urls), count):
            groups = [{"multimodal_input": {"image_url": url, "video_url": None, "image_decoded": None}} for url in urls[at : at + count]]
            message = {"engine_prompt": {"prompt_token_ids": []}, "sampling_params": {}, "request_id": context.id(), "multimodal_inputs": groups}
            asked.append(await self.client.round_robin(json.dumps(message), context=context))
        groups = [group for stream in asked async for said in stream for group in json.loads(said.data())["multimodal_inputs"]]
        await asyncio.gather(*(self.receiver.receive(group["serialized_request"]) for group in groups))
        return [Grid(*group["image_grid_thw"][0][1:], group["embeddings_shape"][1]) for group in groups]
