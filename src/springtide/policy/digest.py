"""A policy version proves itself by a hash over its tensors, the same wherever they live.

Invariants: the digest depends on names, dtypes, shapes and bytes, not on order, device, strides or how a tensor is
stored; of tensors that share storage only the first counts, so tied weights have one name.
"""

import hashlib
from collections.abc import Iterable, Iterator

import torch


def named_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that make up a policy, detached: parameters, then persistent buffers, tied ones once.

    This is what a trainer publishes, a checkpoint stores and both sides of a publication hash.
    """
    seen: set[int] = set()
    persistent = set(model.state_dict(keep_vars=True))
    for name, parameter in model.named_parameters():
        seen.add(id(parameter))
        yield name, parameter.detach()
    for name, buffer in model.named_buffers():
        if name in persistent and id(buffer) not in seen:
            yield name, buffer.detach()


def digest_tensors(named: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 (hex) over the tensors' names, dtypes, shapes and bytes."""
    seen: set[tuple[object, ...]] = set()
    leaves: list[tuple[str, bytes]] = []
    for name, tensor in named:
        identity = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if identity in seen and tensor.numel() > 0:
            continue
        seen.add(identity)
        leaves.append((name, _leaf(tensor)))
    root = hashlib.sha256()
    for name, leaf in sorted(leaves):
        root.update(name.encode() + b"\0" + leaf)
    return root.hexdigest()


def _leaf(tensor: torch.Tensor) -> bytes:
    header = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(header + hashlib.sha256(content.data).digest()).digest()
