"""Pictures of a request, and what the encoder makes of them: here, the colour that a picture has. It goes from engine to engine as vLLM's ECExampleConnector
has it go: a file in a folder under the hash of the picture."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy
from safetensors.numpy import load_file, save_file

from .startup import log

TOKENS = 256  # of a tile
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}
PACKAGES = {"ECMooncakeConnector": "mooncake"}


class Wrong(Exception):
    """The client's mistake."""


def refuse(args: Any, config: dict[str, Any]) -> None:
    """What vLLM's start refuses, in its words."""
    transfer = args.ec_transfer_config
    if transfer is None:
        return
    sees = "vision_config" in config or "num_image_token" in config
    if transfer.ec_connector is not None and transfer.ec_role is None:
        raise ValueError("Please specify ec_role when ec_connector is set, supported roles are ('ec_producer', 'ec_both', 'ec_consumer', 'ec_both')")
    if transfer.ec_connector not in ("ECExampleConnector", "ECCPUConnector", *PACKAGES):
        raise ValueError(f"Unsupported connector type: {transfer.ec_connector}")
    if transfer.ec_connector in PACKAGES:
        raise ModuleNotFoundError(f"No module named '{PACKAGES[transfer.ec_connector]}'")
    if transfer.ec_connector == "ECCPUConnector" and not (transfer.ec_connector_extra_config or {}).get("ec_cpu_bytes"):
        raise ValueError("ec_cpu_bytes must be specified in ec_connector_extra_config")
    if encodes_alone(args) and not sees:
        raise ValueError("An EC producer-only instance requires a multimodal model.")
    if encodes_alone(args) and args.data_parallel_size > 1 and "n_routed_experts" in {**config, **config.get("llm_config", {})}:
        raise AssertionError("An encoder-only instance does not support DP.")


def encodes_alone(args: Any) -> bool:
    """An engine without a language model: asked for, or a producer that is no consumer."""
    transfer = args.ec_transfer_config
    return bool(args.mm_encoder_only) or (transfer is not None and transfer.ec_role == "ec_producer")


def of(content: Any, allowed: list[str] | None) -> tuple[str, list[bytes]]:
    """The text of a message with `<image>` where a picture stands, and the pictures."""
    if isinstance(content, str) or content is None:
        return content or "", []
    text, found = "", []
    for part in content:
        if part.get("type") == "text":
            text += part["text"]
        elif part.get("type") == "image_url":
            text += "<image>"
            found.append(_fetched(part["image_url"]["url"], allowed))
        else:
            raise Wrong(f"sandbox: no part of type {part.get('type')!r} is known here")
    return text, found


def _fetched(url: str, allowed: list[str] | None) -> bytes:
    if url[:5].lower() == "data:":
        try:
            return base64.b64decode(url.partition(",")[2], validate=True)
        except ValueError as error:
            raise Wrong(f"Failed to load image: {error}") from error
    host = urlsplit(url).hostname
    if allowed and host not in allowed:
        raise Wrong(f"The URL must be from one of the allowed domains: {allowed}. Input URL domain: {host}")
    raise Wrong(f"Failed to load image: {host} cannot be reached")  # there is no internet here


def colour(png: bytes) -> str:
    """Of the middle of a PNG with eight bits of red, green and blue."""
    try:
        width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
        if not png.startswith(b"\x89PNG\r\n\x1a\n") or (depth, kind) != (8, 2):
            raise ValueError("no PNG of 8 bits RGB")
        at, data = 8, b""
        while at < len(png):
            length, name = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
            if zlib.crc32(png[at + 4 : at + 8 + length]) != int.from_bytes(png[at + 8 + length : at + 12 + length], "big"):
                raise ValueError(f"bad checksum of {name!r}")
            data += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
            at += 12 + length
        rows = zlib.decompress(data)
    except (ValueError, struct.error, zlib.error) as error:
        raise Wrong(f"cannot identify image file: {error}") from error
    middle = (height // 2) * (width * 3 + 1) + 1 + (width // 2) * 3
    seen = rows[middle : middle + 3]
    return min(COLOURS, key=lambda name: sum((a - b) ** 2 for a, b in zip(COLOURS[name], seen, strict=True)))


class Encoder:
    """The encoder of one engine, with what it has encoded or read, and the connector if it has one."""

    def __init__(self, args: Any, model: str) -> None:
        transfer = args.ec_transfer_config
        self.model, self.known = model, {}
        self.role = transfer.ec_role if transfer else None
        self.storage = Path((transfer.ec_connector_extra_config or {}).get("shared_storage_path", "/tmp")) if transfer else None

    def hash(self, picture: bytes) -> str:
        return hashlib.sha256(self.model.encode() + picture).hexdigest()

    def see(self, picture: bytes) -> tuple[str, str]:
        """Hash and colour; by the file of an encode worker where this engine looks for one and finds it."""
        name = self.hash(picture)
        if name not in self.known:
            self.known[name] = self._read(name) or self._encode(name, picture)
        return name, self.known[name]

    def _file(self, name: str) -> Path:
        assert self.storage is not None
        folder = self.storage / name
        folder.mkdir(parents=True, exist_ok=True)  # as the real one does, also where it only looks
        return folder / "encoder_cache.safetensors"

    def _read(self, name: str) -> str | None:
        if self.role not in ("ec_consumer", "ec_both") or not self._file(name).exists():
            return None
        means = load_file(self._file(name))["ec_cache"].astype("float32").mean(axis=0)[:3]
        log(f"Success load encoder cache for hash {name}", "example_connector.py:108")
        return min(COLOURS, key=lambda c: sum((a - b) ** 2 for a, b in zip(COLOURS[c], means, strict=True)))

    def _encode(self, name: str, picture: bytes) -> str:
        found = colour(picture)
        if self.role in ("ec_producer", "ec_both"):
            numbers = numpy.tile(numpy.array(COLOURS[found], dtype="float16"), (TOKENS, 1))
            save_file({"ec_cache": numbers}, self._file(name))
            log(f"Save cache successful for mm_hash {name}", "example_connector.py:132")
        return found
