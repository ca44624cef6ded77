"""How a vision-language model reads the pictures of a row (training/types.py): each picture of a pass goes through the
vision tower once, with gradient, and its tokens take the place of embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.pictures import HELD
from training.types import PICTURE_TOKENS

FAMILIES = {"smolvlm", "idefics3"}  # model types whose vision tower and connector `features` knows


def tokens_of(config: Mapping[str, Any]) -> int:
    """How many tokens a picture has for the model of this config.json; 0 for a model that reads text alone."""
    vision = config.get("vision_config")
    if not vision or config.get("model_type") not in FAMILIES:
        return 0
    side = int(vision.get("image_size", 224)) // int(vision.get("patch_size", 32))
    return (side // int(config.get("scale_factor", 2))) ** 2


def sees(model: nn.Module) -> bool:
    """Whether a model reads pictures."""
    body: Any = model.base_model
    return getattr(getattr(body, "config", None), "model_type", "") in FAMILIES


def shown(keys: Iterable[int], size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """[P, 3, size, size] in [-1, 1]: the pictures of these keys, those of another size resized (bilinear, smoothed;
    sides are not kept in proportion). Raises LookupError for a picture that is not held."""
    out = []
    for key in keys:
        x = torch.from_numpy(HELD[key].copy()).to(device).permute(2, 0, 1)[None].to(torch.float32)
        if x.shape[-2:] != (size, size):
            x = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
        out.append(x / 127.5 - 1)
    return torch.cat(out).to(dtype)


def features(body: Any, pixels: Tensor) -> Tensor:
    """What the text model reads of pictures [P, 3, S, S]: [P, tokens, d]. The tower and the connector are called
    themselves: transformers' `get_image_features` drops a picture whose values are all zero as padding."""
    side = pixels.shape[-1] // body.config.vision_config.patch_size
    whole = torch.ones(len(pixels), side, side, dtype=torch.bool, device=pixels.device)
    seen = body.vision_model(pixel_values=pixels, patch_attention_mask=whole, return_dict=True)
    return body.connector(seen.last_hidden_state)


def embedded(body: Any, ids: Tensor) -> Tensor:
    """The input embeddings [..., d] of ids [...] of text and pictures. Raises LookupError for a picture that the model
    was not given."""
    words = body.get_input_embeddings()(ids.clamp_min(0))
    at = ids < 0
    if not bool(at.any()):
        return words
    codes = -1 - ids[at]
    keys, which = torch.unique(codes // PICTURE_TOKENS, return_inverse=True)
    size, tower = body.config.vision_config.image_size, next(body.vision_model.parameters())
    seen = features(body, shown(keys.tolist(), size, tower.device, tower.dtype))
    place = codes % PICTURE_TOKENS
    if int(place.max()) >= seen.shape[1]:
        raise ValueError(
            f"a row gives a picture {int(place.max()) + 1} tokens, and this model reads {seen.shape[1]} of each: the row was made for another model"
        )
    return words.masked_scatter(at[..., None].expand_as(words), seen[which, place].to(words.dtype))
