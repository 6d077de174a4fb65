import ctypes
import logging
import subprocess

import pytest
import torch

from springtide.engines import native
from springtide.engines.native import decode_kernel
from springtide.engines.storage import LayerShape, PlaneShape

BLOCK = 512


@pytest.fixture
def _compiler() -> None:
    if decode_kernel(LayerShape(PlaneShape(2, 8), PlaneShape(2, 8)), 4) is None:
        pytest.skip("no C compiler here")


def _case(sharing: int, key: int, value: int) -> tuple[LayerShape, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = LayerShape(PlaneShape(2, key), PlaneShape(2, value))
    query = 3 * torch.randn(4, 2 * sharing, key, generator=generator)
    keys, values = (torch.randn(8 * BLOCK * 2 * width, generator=generator) for width in (key, value))
    return shape, query, keys, values


@pytest.mark.usefixtures("_compiler")
@pytest.mark.parametrize(("sharing", "key", "value"), [(1, 8, 8), (2, 32, 32), (3, 20, 12), (7, 64, 64)])
def test_each_row_attends_to_its_own_tokens(sharing: int, key: int, value: int) -> None:
    shape, query, keys, values = _case(sharing, key, value)
    offset, length = torch.tensor([0, 3 * 256, 2 * BLOCK, 5 * BLOCK]), torch.tensor([256, 256, BLOCK, BLOCK])
    first, last = torch.tensor([0, 10, 0, 300]), torch.tensor([1, 37, 511, 512])
    kernel = decode_kernel(shape, 2 * sharing)
    assert kernel is not None
    result = kernel.attend(query, keys, values, (offset, length, first, last), 0.4)
    for row in range(4):
        n, start = int(length[row]), int(offset[row])
        block = [
            plane[start * 2 * width : (start + n) * 2 * width].view(2, n, width)[:, first[row] : last[row]].double()
            for plane, width in ((keys, key), (values, value))
        ]
        for head in range(2 * sharing):
            k, v = block[0][head // sharing], block[1][head // sharing]
            expected = ((k @ query[row, head].double() * 0.4).softmax(0) @ v).float()
            torch.testing.assert_close(result[row, head], expected, atol=2e-6, rtol=2e-5)


@pytest.mark.usefixtures("_compiler")
def test_extreme_scores_stay_finite_and_nan_stays_nan() -> None:
    shape, query, keys, values = _case(2, 32, 32)
    places = tuple(torch.tensor([number] * 4) for number in (0, BLOCK, 0, 400))
    kernel = decode_kernel(shape, 4)
    assert kernel is not None
    assert torch.isfinite(kernel.attend(query * 1000, keys, values, places, 1.0)).all()  # type: ignore[arg-type]
    keys[5] = float("nan")
    assert kernel.attend(query, keys, values, places, 1.0)[:, :2].isnan().all()  # type: ignore[arg-type]


def _kernel_here() -> object:
    return decode_kernel.__wrapped__(LayerShape(PlaneShape(1, 8), PlaneShape(1, 8)), 2)


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
        (ctypes, "CDLL", OSError("decode.so: failed to map segment from shared object")),
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
