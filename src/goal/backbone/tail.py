"""The trained last block: a transformer's, computed for its CLS token only, or a convolutional one.

Of a transformer's last block only the CLS output is used, so with one query the keys and values of
the other tokens never need to be formed. For head h, query q_h, normalised token x_j, and LayerNorm
gain g and bias b:

    score_j   = q_h . W_k,h (g * x_j + b)        =  (W_k,h^T q_h * g) . x_j + constant
    context_h = sum_j a_j (W_v,h (g * x_j + b))  =  W_v,h (g * sum_j a_j x_j + b)

The constant (which also holds the key bias) cancels in the softmax. This equals the full block up
to rounding, at the cost of one token instead of all. The gain multiplies weights instead of tokens,
which are more.

Shapes: B images, n tokens, D width, H heads, C inner width per head.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goal.backbone.tokens import Tokens
from goal.common.errors import GoalError


class Tail(nn.Module):
    """What every tail is: a map from tokens to one feature of `width` numbers per image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    @abstractmethod
    def forward(self, *parts: Tokens) -> Tensor:
        """Map tokens to features, (B, width); the features of several parts are stacked."""


class ClsTail(Tail):
    """Attention with the CLS token as its only query, then the MLP on that token."""

    def __init__(
        self,
        *,
        width: int,
        inner: int,
        heads: int,
        mlp: nn.Module,
        final_norm: nn.Module,
        norm_eps: float = 1e-6,
        layer_scale: bool = False,
    ) -> None:
        super().__init__(width)
        self.heads = heads
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner, bias=False)
        self.value = nn.Linear(width, inner)
        self.out = nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width, eps=norm_eps)
        self.mlp = mlp
        self.scale1 = nn.Parameter(torch.ones(width)) if layer_scale else None
        self.scale2 = nn.Parameter(torch.ones(width)) if layer_scale else None
        self.final_norm = final_norm.requires_grad_(False)

    def forward(self, *parts: Tokens) -> Tensor:
        """Map tokens to the CLS feature, (B, D)."""
        stream = torch.cat([tokens.cls for tokens in parts])
        stream = stream + self._scaled(self._attend([p.normalised for p in parts]), self.scale1)
        stream = stream + self._scaled(self.mlp(self.norm2(stream)), self.scale2)
        return torch.as_tensor(self.final_norm(stream))

    def _attend(self, parts: list[Tensor]) -> Tensor:
        cls_BD = torch.cat([x_BnD[:, 0] for x_BnD in parts]).to(self.gain.dtype)
        query_BHC = self._split(self.query(self.gain * cls_BD + self.bias))
        gain = self.gain * query_BHC.shape[-1] ** -0.5
        key_HCD = (self.key.weight * gain).unflatten(0, (self.heads, -1))
        back_BHD = torch.einsum("bhc,hcd->bhd", query_BHC, key_HCD)
        mean_BHD = attention_pool(back_BHD, parts)
        value_HCD = (self.value.weight * self.gain).unflatten(0, (self.heads, -1))
        context_BHC = torch.einsum("bhd,hcd->bhc", mean_BHD, value_HCD)
        return torch.as_tensor(self.out(context_BHC.flatten(1) + self.value(self.bias)))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1)

    @staticmethod
    def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
        return x if scale is None else x * scale


class BlockTail(Tail):
    """The last block of a convolutional network, over its input map, then the mean of its output.

    The tokens are that map as it is, row by row, of a square image: no CLS token, no LayerNorm.
    """

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__(width)
        self.block = block.requires_grad_(True)

    def forward(self, *parts: Tokens) -> Tensor:
        """Map tokens to the pooled feature, (B, width)."""
        dtype = next(self.block.parameters()).dtype
        map_BnD = torch.cat([tokens.normalised for tokens in parts]).to(dtype)
        side = math.isqrt(map_BnD.shape[1])
        if side * side != map_BnD.shape[1]:
            raise GoalError(
                f"{map_BnD.shape[1]} tokens per image are no square map. A method that adds tokens "
                f"cannot train a convolutional last block: set backbone.tail=added for it."
            )
        map_BDhw = map_BnD.unflatten(1, (side, side)).permute(0, 3, 1, 2)
        return torch.as_tensor(self.block(map_BDhw)).mean(dim=(2, 3))


def attention_pool(back_BHD: Tensor, parts: list[Tensor]) -> Tensor:
    """Mean of each image's tokens, weighted by ``softmax(back . token)`` per head, (B, H, D).

    Args:
        back_BHD: What each head looks for, in the space of the tokens.
        parts: Tokens, (b, n, D) each, B images together, of any floating-point type: they are
            computed with in the type of `back_BHD`.
    """
    traced = torch.compiler.is_compiling()
    if traced or back_BHD.device.type != "cpu" or any(x.requires_grad for x in parts):
        x_BnD = torch.cat(parts).to(back_BHD.dtype)
        return (back_BHD @ x_BnD.mT).softmax(dim=-1) @ x_BnD
    pooled: Tensor = _CachedPool.apply(back_BHD, *parts)  # type: ignore[no-untyped-call]
    return pooled


class _CachedPool(torch.autograd.Function):
    """The same for CPUs: a few images at a time, whose tokens are converted and used in cache.

    Tokens are by far the largest thing in a step. Going through them image by image reads each
    once per direction, and half-precision tokens never exist in full precision as a whole.
    """

    @staticmethod
    def forward(ctx: Any, back_BHD: Tensor, *parts: Tensor) -> Tensor:
        mean_BHD = back_BHD.new_empty(back_BHD.shape)
        weights_BHn = back_BHD.new_empty(*back_BHD.shape[:2], parts[0].shape[1])
        for rows, x_bnD in _chunks(parts, back_BHD.dtype):
            weights_BHn[rows] = torch.bmm(back_BHD[rows], x_bnD.mT).softmax(dim=-1)
            torch.bmm(weights_BHn[rows], x_bnD, out=mean_BHD[rows])
        ctx.save_for_backward(weights_BHn, *parts)
        return mean_BHD

    @staticmethod
    def backward(ctx: Any, grad_BHD: Tensor) -> tuple[Tensor | None, ...]:
        weights_BHn, *parts = ctx.saved_tensors
        back_grad_BHD = grad_BHD.new_empty(grad_BHD.shape)
        for rows, x_bnD in _chunks(parts, grad_BHD.dtype):
            weights = weights_BHn[rows]
            pulled = torch.bmm(grad_BHD[rows], x_bnD.mT) * weights
            pulled -= weights * pulled.sum(dim=-1, keepdim=True)
            torch.bmm(pulled, x_bnD, out=back_grad_BHD[rows])
        return (back_grad_BHD, *(None for _ in parts))


_CHUNK_BYTES = 3_000_000  # tokens that a thread works on at a time: they should stay in its cache


def _chunks(
    parts: list[Tensor] | tuple[Tensor, ...], dtype: torch.dtype
) -> Iterator[tuple[slice, Tensor]]:
    """Yield tokens of a few images at a time as `dtype`, and which rows of the whole they are."""
    _, tokens, width = parts[0].shape
    per_thread = max(1, _CHUNK_BYTES // (tokens * width * dtype.itemsize))
    size = torch.get_num_threads() * per_thread
    buffer = torch.empty(size, tokens, width, dtype=dtype)
    start = 0
    for part in parts:
        for chunk in part.split(size):
            ready = chunk if chunk.dtype == dtype else buffer[: len(chunk)].copy_(chunk)
            yield slice(start, start + len(chunk)), ready
            start += len(chunk)


def tail_from_layer(
    *,
    norm1: nn.LayerNorm,
    attention: nn.Module,
    norm2: nn.LayerNorm,
    mlp: nn.Module,
    final_norm: nn.LayerNorm,
    scales: tuple[Tensor, Tensor] | None = None,
) -> ClsTail:
    """Build the tail from the parts of a pretrained transformer layer, copying its weights."""
    query, out = attention.get_submodule("q_proj"), attention.get_submodule("o_proj")
    assert isinstance(query, nn.Linear) and isinstance(out, nn.Linear)
    heads = attention.num_attention_heads
    assert isinstance(heads, int)
    tail = ClsTail(
        width=query.in_features,
        inner=query.out_features,
        heads=heads,
        mlp=mlp,
        final_norm=final_norm,
        norm_eps=norm2.eps,
        layer_scale=scales is not None,
    )
    with torch.no_grad():
        tail.gain.copy_(norm1.weight)
        tail.bias.copy_(norm1.bias)
        tail.norm2.load_state_dict(norm2.state_dict())
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "o")):
            _copy_linear(tail.get_submodule(ours), attention.get_submodule(f"{theirs}_proj"))
        if scales is not None and tail.scale1 is not None and tail.scale2 is not None:
            tail.scale1.copy_(scales[0])
            tail.scale2.copy_(scales[1])
    return tail


def _copy_linear(target: nn.Module, source: nn.Module) -> None:
    assert isinstance(target, nn.Linear) and isinstance(source, nn.Linear)
    target.weight.copy_(source.weight)
    if target.bias is not None:
        target.bias.copy_(source.bias if source.bias is not None else torch.zeros(()))


def zero_started_tail(
    width: int, inner: int, mlp_width: int, heads: int, rng: torch.Generator
) -> ClsTail:
    """Build a tail that begins as the identity on CLS, for trunks without a last block to train.

    Both residual branches end in zero weights, so the first feature of a convolutional trunk is
    its global average pool. `inner` and `mlp_width` are free, since nothing here is pretrained.
    """
    mlp = nn.Sequential(nn.Linear(width, mlp_width), nn.GELU(), nn.Linear(mlp_width, width))
    tail = ClsTail(width=width, inner=inner, heads=heads, mlp=mlp, final_norm=nn.Identity())
    for module in tail.modules():
        if isinstance(module, nn.Linear):
            with torch.no_grad():
                module.weight.normal_(std=module.in_features**-0.5, generator=rng)
                if module.bias is not None:
                    module.bias.zero_()
    for last in (tail.out, mlp[-1]):
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
    return tail


def normalise(hidden_BnD: Tensor, eps: float) -> Tokens:
    """Turn a trunk's hidden states (CLS first) into tokens: LayerNorm without gain and bias."""
    normalised = F.layer_norm(hidden_BnD, hidden_BnD.shape[-1:], eps=eps)
    return Tokens(normalised, hidden_BnD[:, 0])
