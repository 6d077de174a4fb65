import ctypes
import logging
import subprocess
from types import SimpleNamespace

import pytest
import torch

from springtide.engines import native
from springtide.engines.blocks import Block
from springtide.engines.group import AttentionOptions, Row
from springtide.engines.native import attention_kernel
from springtide.engines.native_rows import NativeRows
from springtide.engines.storage import LayerShape, PlaneShape

BLOCK = 512


@pytest.fixture
def _compiler() -> None:
    if attention_kernel(LayerShape(PlaneShape(2, 8), PlaneShape(2, 8)), 4) is None:
        pytest.skip("no C compiler here")


SHAPES = [(1, 8, 8), (2, 32, 32), (3, 20, 12), (7, 64, 64), (40, 8, 8)]


def _shape(key: int, value: int) -> LayerShape:
    return LayerShape(PlaneShape(2, key), PlaneShape(2, value))


def _attend(
    shape: LayerShape,
    query: torch.Tensor,
    planes: tuple[torch.Tensor, torch.Tensor],
    rows: list[Row],
    window: int | None,
) -> torch.Tensor:
    kernel = attention_kernel(shape, query.shape[1])
    assert kernel is not None
    storage = SimpleNamespace(device=torch.device("cpu"))
    return NativeRows(rows, storage, [kernel]).attend(0, query, *planes, AttentionOptions(scale=0.4, window=window))


@pytest.mark.usefixtures("_compiler")
@pytest.mark.parametrize("window", [None, 1, 7, 100])
@pytest.mark.parametrize(("sharing", "key", "value"), SHAPES)
def test_each_token_attends_to_its_own_row_up_to_itself(sharing: int, key: int, value: int, window: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [
        Row(Block(0, 256), 0, 1),
        Row(Block(3 * 256, 256), 36, 1),
        Row(Block(2 * BLOCK, BLOCK), 0, 150),
        Row(Block(3 * BLOCK, BLOCK), 511, 1),
        Row(Block(5 * BLOCK, BLOCK), 300, 2),
        Row(Block(6 * BLOCK, BLOCK), 63, 33),
    ]
    tokens = sum(row.new for row in rows)
    query = 3 * torch.randn(tokens, 2 * sharing, key, generator=generator)
    keys, values = (torch.randn(8 * BLOCK * 2 * width, generator=generator) for width in (key, value))
    result = _attend(_shape(key, value), query, (keys, values), rows, window)
    packed = 0
    for row in rows:
        offset, n = row.block
        own = [
            plane[offset * 2 * width : (offset + n) * 2 * width].view(2, n, width).double()
            for plane, width in ((keys, key), (values, value))
        ]
        for position in range(row.start, row.start + row.new):
            seen = slice(0 if window is None else max(0, position + 1 - window), position + 1)
            k, v = (part[:, seen].repeat_interleave(sharing, 0) for part in own)
            scores = torch.einsum("hd,hnd->hn", query[packed].double() * 0.4, k)
            expected = torch.einsum("hn,hnd->hd", scores.softmax(-1), v).float()
            torch.testing.assert_close(result[packed], expected, atol=1e-5, rtol=2e-5)
            packed += 1


@pytest.mark.usefixtures("_compiler")
@pytest.mark.parametrize("new", [1, 40])
def test_extreme_scores_stay_finite_and_nan_stays_in_its_row(new: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2 * new, 4, 32, generator=generator)
    keys, values = (torch.randn(2 * BLOCK * 2 * 32, generator=generator) for _ in range(2))
    rows = [Row(Block(number * BLOCK, BLOCK), 360, new) for number in range(2)]
    for scale in (1e3, -1e3):
        assert torch.isfinite(_attend(_shape(32, 32), query * scale, (keys, values), rows, None)).all()
    for plane in (keys, values):
        broken = plane.clone()
        broken[5] = float("nan")
        planes = (broken, values) if plane is keys else (keys, broken)
        result = _attend(_shape(32, 32), query, planes, rows, None)
        # Token 0 of the first KV head, which two query heads share; in a value, only one component.
        assert result[:new, :2].isnan().all() if plane is keys else result[:new, :2, 5].isnan().all()
        assert result[new:].isfinite().all()
        assert result[:new, 2:].isfinite().all()
    # Beyond a row's own tokens lies what an earlier sequence has left.
    poisoned = keys.view(2, 2, BLOCK, 32).clone()
    poisoned[:, :, 360 + new :] = float("nan")
    assert torch.isfinite(_attend(_shape(32, 32), query, (poisoned.flatten(), values), rows, None)).all()


def _kernel_here() -> object:
    return attention_kernel.__wrapped__(LayerShape(PlaneShape(1, 8), PlaneShape(1, 8)), 2)


def test_without_a_compiler_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    assert _kernel_here() is None


def _refuse(error: Exception) -> object:
    def raising(*arguments: object, **options: object) -> object:
        raise error

    return raising


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        (subprocess, "run", subprocess.TimeoutExpired("cc", 60)),
        (subprocess, "run", PermissionError(13, "Permission denied")),
        (native.tempfile, "TemporaryDirectory", FileNotFoundError(2, "No usable temporary directory found")),
        (ctypes, "CDLL", OSError("attention.so: failed to map segment from shared object")),
    ],
    ids=["a compiler that hangs", "one that may not run", "no temporary folder", "one that forbids execution"],
)
def test_where_the_kernel_cannot_be_made_or_loaded_there_is_none_and_one_line_says_why(
    module: object, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda name: "/bin/true")
    if name == "CDLL":
        monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0))
    monkeypatch.setattr(module, name, _refuse(error))
    with caplog.at_level(logging.INFO, logger="springtide"):
        assert _kernel_here() is None
    (line,) = caplog.messages
    assert "PyTorch's operators" in line
    assert str(error) in line


def test_with_a_broken_compiler_there_is_no_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda name: "/bin/false")
    with caplog.at_level(logging.INFO, logger="springtide"):
        assert _kernel_here() is None
    assert len(caplog.messages) == 1
