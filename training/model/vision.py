"""How a vision-language model reads the pictures of a row (training/types.py): each picture of a pass goes through the
vision tower once, with gradient, and its tokens take the place of embeddings.

SmolVLM and Idefics3 read every picture at one size. Qwen2.5-VL and Qwen3-VL keep its proportions (`Grids`), tell tokens
apart by time, row and column (M-RoPE; Qwen2-VL, arXiv 2409.12191), and Qwen3-VL adds what lower layers of the tower saw
to the first layers of the text model (DeepStack, arXiv 2406.04334).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.pictures import HELD
from training.types import PICTURE_TOKENS

ONE_SIZE = {"smolvlm", "idefics3"}  # model types whose tower and connector `features` knows
PROPORTIONS = {"qwen2_5_vl", "qwen3_vl"}  # those that `cut` knows
FAMILIES = ONE_SIZE | PROPORTIONS
DONE = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
    "resample": 3,
}  # bicubic
KNOWN = "SmolVLM, Idefics3, Qwen2.5-VL, Qwen3-VL"


@dataclass(frozen=True)
class Grids:
    """How a model that keeps the proportions of pictures cuts them up: both sides become multiples of patch x merge
    pixels, and a square of that side is a token.

    patch, merge  pixels of the side of a patch, and patches of the side of a token
    frames        of how many equal frames a patch is: towers read films in pairs
    least, most   pixels that a picture may have; smaller and larger ones are resized
    mean, std     of the three colours, in [0, 1], which become 0 and 1
    """

    patch: int
    merge: int
    frames: int
    least: int
    most: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def of(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tokens of a picture of this size, as `smart_resize` of transformers' processors computes
        it. Raises ValueError for one that is over 200 times as long as wide."""
        if max(height, width) > 200 * min(height, width):
            raise ValueError(
                f"a picture of {height} x {width} pixels is over 200 times as long as wide, which this model does not read: cut it"
            )
        cell = self.patch * self.merge
        most = min(self.most, PICTURE_TOKENS * cell**2)
        rows, columns = round(height / cell), round(width / cell)
        if rows * columns * cell**2 > most:
            shrink = math.sqrt(height * width / most)
            rows, columns = (max(1, math.floor(side / shrink / cell)) for side in (height, width))
        elif rows * columns * cell**2 < self.least:
            grow = math.sqrt(self.least / (height * width))
            rows, columns = (math.ceil(side * grow / cell) for side in (height, width))
        return rows, columns

    def held(self, key: int) -> tuple[int, int]:
        """Those of a picture that this process holds. Raises LookupError for another."""
        return self.of(*HELD[key].shape[:2])


def as_read(config: Mapping[str, Any], processor: Mapping[str, Any] | None = None) -> int | Grids:
    """How many tokens a picture has for the model of this config.json: as many for each, or by its size; 0 for a model
    that reads text alone. processor: what preprocessor_config.json (transformers 5: processor_config.json) says of
    sizes and colours; `save_model` keeps it in config.json (`pictures`). Raises ValueError where neither does, and where it asks for
    what is not done here or does not fit the model."""
    vision, kind = config.get("vision_config"), config.get("model_type")
    if not vision or kind not in FAMILIES:
        return 0
    if kind in ONE_SIZE:
        for key in ("image_mean", "image_std"):
            if any(abs(x - 0.5) > 1e-6 for x in (processor or {}).get(key) or ()):
                raise ValueError(
                    f"preprocessor_config.json of a {kind} has {key} {(processor or {})[key]}, and here it is 0.5 (`shown`)"
                )
        side = int(vision.get("image_size", 224)) // int(vision.get("patch_size", 32))
        return (side // int(config.get("scale_factor", 2))) ** 2
    told = config.get("pictures") or processor
    if not told:
        raise ValueError(
            f"a {kind} resizes pictures as preprocessor_config.json says, and there is none beside config.json: copy it from "
            "the model that it comes from"
        )
    size = told.get("size") or {}
    least = told.get("min_pixels") or size.get("shortest_edge")
    most = told.get("max_pixels") or size.get("longest_edge")
    if not (least and most and told.get("image_mean") and told.get("image_std")):
        raise ValueError(
            f"preprocessor_config.json of a {kind} says no size or no colours (min_pixels and max_pixels, or size with shortest_edge and "
            "longest_edge; image_mean, image_std): copy it from the model that it comes from"
        )
    grids = Grids(
        patch=int(vision["patch_size"]),
        merge=int(vision["spatial_merge_size"]),
        frames=int(vision["temporal_patch_size"]),
        least=int(least),
        most=int(most),
        mean=tuple(map(float, told["image_mean"])),
        std=tuple(map(float, told["image_std"])),
    )
    cuts = {"patch_size": grids.patch, "merge_size": grids.merge, "temporal_patch_size": grids.frames}
    for key, here in {**cuts, **DONE}.items():
        given = told.get(key)
        if given is not None and abs(float(given) - here) > 1e-6:
            raise ValueError(
                f"preprocessor_config.json of a {kind} has {key} {given}, and here it is {here:.6g}: copy the file from the model that it "
                "comes from"
            )
    return grids


def told_of(grids: Grids) -> dict[str, Any]:
    """What config.json keeps of preprocessor_config.json, in its words."""
    return {
        "size": {"shortest_edge": grids.least, "longest_edge": grids.most},
        "image_mean": list(grids.mean),
        "image_std": list(grids.std),
    }


def family(model: nn.Module) -> str:
    """The model type of a model that reads pictures; "" for one of text."""
    kind = getattr(getattr(model.base_model, "config", None), "model_type", "")
    return kind if kind in FAMILIES else ""


def sees(model: nn.Module) -> bool:
    """Whether a model reads pictures."""
    return bool(family(model))


def _pixels(key: int, size: tuple[int, int] | None, mode: str, device: torch.device) -> Tensor:
    """[1, 3, H, W] in [0, 255], float32: a picture, resized (smoothed) if it has another size. Raises LookupError for one
    that is not held."""
    x = torch.from_numpy(HELD[key].copy()).to(device).permute(2, 0, 1)[None].to(torch.float32)
    return x if size is None or x.shape[-2:] == size else F.interpolate(x, size, mode=mode, antialias=True)


def shown(keys: Iterable[int], size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """[P, 3, size, size] in [-1, 1]: the pictures of these keys, those of another size resized (bilinear; sides are not
    kept in proportion). Raises LookupError for a picture that is not held."""
    return torch.cat([_pixels(key, (size, size), "bilinear", device) / 127.5 - 1 for key in keys]).to(dtype)


def features(body: Any, pixels: Tensor) -> Tensor:
    """What the text model reads of pictures [P, 3, S, S]: [P, tokens, d]. The tower and the connector are called
    themselves: transformers' `get_image_features` drops a picture whose values are all zero as padding."""
    side = pixels.shape[-1] // body.config.vision_config.patch_size
    whole = torch.ones(len(pixels), side, side, dtype=torch.bool, device=pixels.device)
    seen = body.vision_model(pixel_values=pixels, patch_attention_mask=whole, return_dict=True)
    return body.connector(seen.last_hidden_state)


def cut(grids: Grids, keys: Iterable[int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """[patches, 3 x frames x patch x patch]: the patches of these pictures, resized (bicubic, to whole numbers as
    processors do), those of a token one after the other. Raises LookupError for a picture that is not held."""
    m, p = grids.merge, grids.patch
    mean, std = (torch.tensor(x, device=device)[:, None, None] for x in (grids.mean, grids.std))
    out = []
    for key in keys:
        rows, columns = grids.held(key)
        x = _pixels(key, (rows * m * p, columns * m * p), "bicubic", device)[0].round().clamp(0, 255)
        x = ((x / 255 - mean) / std).view(3, rows, m, p, columns, m, p).permute(1, 4, 2, 5, 0, 3, 6)
        x = x[:, :, :, :, :, None].expand(-1, -1, -1, -1, -1, grids.frames, -1, -1)
        out.append(x.reshape(rows * columns * m * m, -1))
    return torch.cat(out).to(dtype)


def text_inputs(model: nn.Module, ids: Tensor, position: Tensor, rows: Any) -> tuple[nn.Module, dict[str, Any]]:
    """The text model of a vision-language model, and what it is called with for ids and positions [B, n] of text and
    pictures. rows: their layout. Raises LookupError for a picture that the process does not hold."""
    body: Any = model.base_model
    words = body.get_input_embeddings()(ids.clamp_min(0))
    at = ids < 0
    keys, which, place = _asked(ids, at)
    if family(model) in ONE_SIZE:
        if keys:
            size, tower = body.config.vision_config.image_size, next(body.vision_model.parameters())
            seen = features(body, shown(keys, size, tower.device, tower.dtype))
            _fit(place, torch.full_like(place, seen.shape[1]))
            words = words.masked_scatter(at[..., None].expand_as(words), seen[which, place].to(words.dtype))
        return body.text_model, {"inputs_embeds": words, "position_ids": position}
    c = body.config
    grids = as_read(
        {"model_type": c.model_type, "vision_config": vars(c.vision_config), "pictures": getattr(c, "pictures", None)}
    )
    assert isinstance(grids, Grids)
    sides = torch.tensor([grids.held(key) for key in keys], dtype=torch.long, device=ids.device).view(-1, 2)
    more: dict[str, Any] = {}
    if keys:
        m, tower = grids.merge, next(body.visual.parameters())
        grid = torch.cat([torch.ones_like(sides[:, :1]), sides * m], 1)
        seen = body.visual(cut(grids, keys, tower.device, tower.dtype), grid_thw=grid, return_dict=True)
        tokens = sides.prod(1)
        _fit(place, tokens[which])
        index = (tokens.cumsum(0) - tokens)[which] + place
        words = words.masked_scatter(at[..., None].expand_as(words), seen.pooler_output[index].to(words.dtype))
        if deep := getattr(seen, "deepstack_features", None):
            more = {"visual_pos_masks": at, "deepstack_visual_embeds": [x[index] for x in deep]}
    return body.language_model, {
        "inputs_embeds": words,
        "position_ids": _placed(sides, at, which, place, position, rows),
        **more,
    }


def _asked(ids: Tensor, at: Tensor) -> tuple[list[int], Tensor, Tensor]:
    """The keys of the pictures in ids [B, n], and of each token of one [N] which it belongs to and which place it has."""
    codes = -1 - ids[at]
    keys, which = torch.unique(codes // PICTURE_TOKENS, return_inverse=True)
    return keys.tolist(), which, codes % PICTURE_TOKENS


def _fit(place: Tensor, tokens: Tensor) -> None:
    """Raises ValueError where a row gives a picture more tokens than the model reads of it."""
    if bool((beyond := place >= tokens).any()):
        i = int(beyond.nonzero()[0])
        raise ValueError(
            f"a row gives a picture {int(place.max()) + 1} tokens, and this model reads {int(tokens[i])} of each: the row was made for another model"
        )


def _placed(sides: Tensor, at: Tensor, which: Tensor, place: Tensor, position: Tensor, rows: Any) -> Tensor:
    """[3, B, n]: the time, row and column of each token, for positions [B, n] that count every token. A picture of r x c
    tokens stands at one time and takes max(r, c) of it, so what follows it in its row begins r c - max(r, c) sooner."""
    sooner, inside = (
        torch.zeros_like(position),
        torch.zeros(3, *position.shape, dtype=torch.long, device=position.device),
    )
    if len(which):
        height, width = sides[which].unbind(1)
        last = place == height * width - 1
        sooner[at] = torch.where(last, height * width - torch.maximum(height, width), 0)
        inside[0][at], inside[1][at], inside[2][at] = -place, place // width - place, place % width - place
    return position - rows.sum_before(sooner) + inside
