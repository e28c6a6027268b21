"""A picture of a request: fetched as Dynamo fetches it, and what it becomes for a model of the Qwen-VL family.

Dynamo's own rules about addresses run unchanged (`dynamo.common.http`). Of the picture its size is read, and whether a PNG is whole; what is seen in a PNG is its colour.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dynamo.common.http import fetch_bytes
from dynamo.common.http.media_reference import max_media_bytes
from dynamo.common.http.url_validator import UrlValidationPolicy, validate_media_url

from . import encoder_cache

TIMEOUT = 30.0  # seconds, of Dynamo's image loader
# The models of which Dynamo's encode worker takes pictures, by architectures in config.json, else by a part of the name; LLaVA-1.5 too, which is not modelled
# here (dynamo/vllm/multimodal_utils/model.py, 1.4.0 to 1.6.1).
ARCHITECTURES = {
    "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
}  # fmt: skip
NAMES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3.5")


class Grid(NamedTuple):
    """A picture in patches, and in tokens of the prompt."""

    height: int
    width: int
    tokens: int

    @property
    def thw(self) -> list[int]:
        return [1, self.height, self.width]


def qwen(path: str, config: dict[str, Any]) -> bool:
    """Does Dynamo take the model for one of the Qwen-VL family?"""
    return any(a in ARCHITECTURES for a in config.get("architectures") or []) or any(name in path.lower() for name in NAMES)


def processor(path: str) -> dict[str, Any]:
    """The image processor's configuration, without which neither encode worker nor engine starts."""
    file = Path(path) / "preprocessor_config.json"
    if not file.is_file():
        raise OSError(f"Can't load image processor for '{path}'. Make sure '{path}' is the correct path to a directory containing a preprocessor_config.json file")
    return dict(json.loads(file.read_text()))


def embedding_width(config: dict[str, Any]) -> int:
    """Values of one token's embedding: what the encoder says at its end and at the layers that DeepStack takes."""
    vision = config["vision_config"]
    return int(vision.get("out_hidden_size") or vision["hidden_size"]) * (1 + len(vision.get("deepstack_visual_indexes") or []))


async def load(url: str, policy: UrlValidationPolicy) -> tuple[int, int]:
    """Width and height. Words and order are those of Dynamo's image loader."""
    if urlsplit(url).scheme in ("", "file"):
        raise ValueError("Invalid image source scheme: local file access is not allowed")
    url = await validate_media_url(url, policy)
    parsed = urlsplit(url)
    if parsed.scheme in ("http", "https"):
        return size(await fetch_bytes(url, TIMEOUT, policy=policy, max_bytes=max_media_bytes()))
    if parsed.scheme != "data":
        raise ValueError(f"Invalid image source scheme: {parsed.scheme}")
    media, _, data = parsed.path.partition(",")
    if not media.startswith("image/") or ";base64" not in media:
        raise ValueError("Failed to decoding image: Data URL must be an image type and base64 encoded")
    try:
        return size(base64.b64decode(data, validate=True))
    except binascii.Error as wrong:
        raise ValueError(f"Failed to decoding image: Invalid base64 encoding: {wrong}") from wrong


def colour(url: str) -> str | None:
    """Of a PNG with eight bits of red, green and blue within the address; of another picture nothing is seen."""
    media, _, data = url.partition(",")
    if media != "data:image/png;base64":
        return None
    try:
        return encoder_cache.colour(base64.b64decode(data))
    except encoder_cache.Wrong:
        return None


def size(data: bytes) -> tuple[int, int]:
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _png(data)
    if data[:2] == b"\xff\xd8":
        return _jpeg(data)
    raise ValueError("Unsupported image format")  # the real one reads WebP too


def _png(data: bytes) -> tuple[int, int]:
    at, pixels, found = 8, b"", (0, 0)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if zlib.crc32(kind + body) != int.from_bytes(data[at + 8 + length : at + 12 + length], "big"):
            break
        if kind == b"IHDR":
            found = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big")
        if kind == b"IDAT":
            pixels += body
        if kind == b"IEND" and all(found):
            try:
                zlib.decompress(pixels)
                return found
            except zlib.error:
                break
        at += 12 + length
    raise ValueError("Invalid or truncated image data")


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    raise ValueError("Invalid or truncated image data")


def grid(width: int, height: int, processor: dict[str, Any]) -> Grid:
    """As the processors of Qwen-VL make it: sides in whole patches of a token, area between two bounds."""
    if max(width, height) > 200 * min(width, height):
        raise ValueError(f"absolute aspect ratio must be smaller than 200, got {max(width, height) / min(width, height)}")
    patch, merge = int(processor["patch_size"]), int(processor["merge_size"])
    side, bounds = patch * merge, processor.get("size", {})
    least, most = int(bounds.get("shortest_edge", side)), int(bounds.get("longest_edge", side * side * 1280))
    rows, columns = max(1, round(height / side)), max(1, round(width / side))
    if rows * columns * side * side > most:
        scale = math.sqrt(height * width / most)
        rows, columns = max(1, math.floor(height / scale / side)), max(1, math.floor(width / scale / side))
    elif rows * columns * side * side < least:
        scale = math.sqrt(least / (height * width))
        rows, columns = math.ceil(height * scale / side), math.ceil(width * scale / side)
    return Grid(rows * merge, columns * merge, rows * columns)
