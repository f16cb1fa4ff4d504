"""The spectral kernel computes what the dense convolution does, for every shape, forward and backward."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dsfcnn
from dsfcnn.groups import parse_group
from dsfcnn.kernels import backend, bank, calls, library
from dsfcnn.layers import GConv2d, MaxPool
from dsfcnn.testing import assert_equivariant

pytestmark = pytest.mark.skipif(library.load().functions is None, reason=f"dense here, because {library.load().reason}")


def kernels():
    """Files of the kernel, for AVX-512 and for AVX2, that this processor can run."""
    return [file for file in library.built() if ctypes.CDLL(str(file)).dsfcnn_supported()]


@pytest.fixture(autouse=True, params=kernels(), ids=lambda file: file.name.partition(".")[0])
def kernel(request, monkeypatch):
    """The usual choice of backend, with each kernel in turn."""
    functions = ctypes.CDLL(str(request.param))
    library.declare(functions)
    monkeypatch.setattr(library, "load", lambda: library.Library(functions, ""))
    monkeypatch.setattr(backend, "_chosen", None)
    return request.param


def relative(found, wanted):
    return ((found - wanted).abs().max() / wanted.abs().max()).item()


def both(layer, x, gradient):
    """(output, gradient to x, to weights, to bias) by the spectral kernel, and by dense convolutions in float64."""
    results = []
    for name, dtype in (("spectral", torch.float32), ("dense", torch.float64)):
        dsfcnn.set_backend(name)
        layer, leaf = layer.to(dtype), x.detach().to(dtype, copy=True).requires_grad_()
        layer.zero_grad()
        y = layer(leaf)
        y.backward(gradient.to(dtype))
        results.append([y.detach(), leaf.grad, *(parameter.grad.clone() for parameter in layer.parameters())])
    return results


SHAPES = st.tuples(
    st.sampled_from(["C2", "C4", "C6", "C8", "C12", "C16", "D2", "D4", "D8"]),
    st.sampled_from(bank.KERNEL_SIZES),
    st.integers(1, 9),  # fields read
    st.integers(1, 15),  # fields written
    st.integers(1, 3),  # images
    st.integers(1, 19),  # height
    st.integers(1, 35),  # width
    st.booleans(),  # bias
    st.booleans(),  # memory in another order
)


NARROW_BATCHES = st.tuples(
    st.sampled_from(["C4", "C8", "C12", "C16", "D4"]),
    st.sampled_from(bank.KERNEL_SIZES),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(4, 19),  # images: 8 share a vector, and the last ones leave some of it empty
    st.integers(1, 12),
    st.integers(1, 16),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(SHAPES | NARROW_BATCHES)
def test_random_shapes_agree_with_dense(shape):
    group, kernel_size, fields, out, images, height, width, bias, transposed = shape
    torch.manual_seed(0)
    layer = GConv2d(fields, out, kernel_size, group=group, bias=bias)
    size = layer.group.size
    x, gradient = torch.randn(images, fields, size, height, width), torch.randn(images, out, size, height, width)
    if transposed:
        x = x.transpose(3, 4).contiguous().transpose(3, 4)
    assert backend.possible([x], layer.weight, kernel_size, layer.group)
    found, wanted = both(layer, x, gradient)
    assert relative(found[0], wanted[0]) < 1e-5
    for ours, theirs in zip(found[1:], wanted[1:]):
        assert relative(ours, theirs) < 1e-4


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 20), st.integers(0, 4), st.booleans())
def test_max_pooling_is_torchs(images, half_height, half_width, levels, has_nan):
    """Few distinct numbers, so that many are equal: the first of them gets the gradient, as in torch."""
    torch.manual_seed(0)
    x = torch.randint(-levels, levels + 1, (images, 2, 2 * half_height, 2 * half_width)).float().requires_grad_()
    if has_nan:
        x.data[0, 0, 0, 1] = float("nan")
    gradient = torch.randn(images, 2, half_height, half_width)
    results = []
    for name in ("spectral", "dense"):
        dsfcnn.set_backend(name)
        y = MaxPool()(x)
        results.append((y.detach(), *torch.autograd.grad(y, x, gradient)))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("height", [1, 2, 9])
@pytest.mark.parametrize(("images", "width"), [*((2, width) for width in (5, 9, 17, 24, 65, 73)), (9, 1), (7, 6), (13, 11)])
def test_what_an_earlier_call_left_in_memory_reaches_no_result(images, height, width):
    """Scratch space is kept from call to call: filled with what is no number, it must not be read where it was not written again."""
    dsfcnn.set_backend("spectral")
    before, layer = GConv2d(9, 9, 9, group="C8"), GConv2d(2, 3, 7, group="C8")
    with torch.no_grad():
        before(torch.full((1, 9, 8, 16, 80), float("nan")))
    x = torch.randn(images, 2, 8, height, width, requires_grad=True)
    y = layer(x)
    for found in (y, *torch.autograd.grad(y.sum(), (x, layer.weight))):
        assert found.isfinite().all()


@pytest.mark.parametrize("size", [(2, 30, 21), (18, 11, 6)])
def test_the_number_of_threads_changes_no_bit(size):
    torch.manual_seed(0)
    dsfcnn.set_backend("spectral")
    images, *sides = size
    layer, x, gradient = GConv2d(5, 7), torch.randn(images, 5, 8, *sides, requires_grad=True), torch.randn(images, 7, 8, *sides)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 17):  # 17: more than parts of the work
            torch.set_num_threads(threads)
            y = layer(x)
            results.append([y.detach(), *torch.autograd.grad(y, (x, layer.weight), gradient)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


@pytest.mark.parametrize("group", ["C4", "C8", "C12", "C16", "D4", "D12"])
def test_quarter_turns_commute_to_float_precision(group):
    torch.manual_seed(0)
    dsfcnn.set_backend("spectral")
    layer = GConv2d(3, 4, group=group)
    assert_equivariant(layer, torch.randn(1, 3, parse_group(group).size, 21, 18), group, rtol=1e-5)


def test_frozen_weights_and_inputs_without_gradient():
    torch.manual_seed(0)
    dsfcnn.set_backend("spectral")
    layer, x = GConv2d(2, 3, 5), torch.randn(1, 2, 8, 9, 9, requires_grad=True)
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert x.grad.abs().sum() > 0
    assert layer.weight.grad is None
    layer.weight.requires_grad_(True)
    layer(x.detach()).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("group", "kernel_size", "dtype", "filters", "spectral_wanted"),
    [
        ("C8", 7, torch.float32, "steerable", True),
        ("C8", 7, torch.float64, "steerable", False),
        ("C3", 7, torch.float32, "steerable", False),
        ("D4", 7, torch.float32, "steerable", True),
        ("D3", 7, torch.float32, "steerable", False),
        ("C8", 11, torch.float32, "steerable", False),
        ("C8", 7, torch.float32, "rotated", False),
    ],
)
def test_what_cannot_be_spectral_is_dense(group, kernel_size, dtype, filters, spectral_wanted, monkeypatch):
    dsfcnn.set_backend("spectral")
    called = []
    monkeypatch.setattr(calls, "convolve", lambda *a, **k: called.append(1) or torch.zeros(1, 4, 4, 9, 9))
    layer = GConv2d(2, 2, kernel_size, group=group, filters=filters).to(dtype)
    layer(torch.randn(1, 2, layer.group.size, 9, 9, dtype=dtype))
    assert bool(called) == spectral_wanted


class OwnKernel(GConv2d):
    def kernel(self):
        return super().kernel().tanh()


class OwnBasis(GConv2d):
    def basis(self):
        basis = super().basis()
        return basis._replace(moved=2 * basis.moved)


@pytest.mark.parametrize("kind", [OwnKernel, OwnBasis])
def test_filters_of_ones_own_are_what_is_applied(kind):
    layer, x = kind(2, 3, 5), torch.randn(1, 2, 8, 9, 9)
    dsfcnn.set_backend("spectral")
    found = layer(x)
    dsfcnn.set_backend("dense")
    torch.testing.assert_close(found, layer(x), atol=1e-5, rtol=1e-5)


def test_weights_of_another_basis_are_not_read():
    layer, x = GConv2d(2, 3, 5), torch.randn(1, 2, 8, 9, 9)
    assert backend.possible([x], layer.weight, 5, layer.group)
    layer.weight = torch.nn.Parameter(layer.weight.detach()[..., :-1])
    assert not backend.possible([x], layer.weight, 5, layer.group)


def test_backends_by_name_and_by_environment(monkeypatch):
    monkeypatch.setenv("DSFCNN_BACKEND", "dense")
    assert backend.get_backend() == "dense"
    dsfcnn.set_backend("spectral")
    assert backend.get_backend() == "spectral"
    with pytest.raises(dsfcnn.errors.UsageError, match="use one of auto, dense, spectral"):
        dsfcnn.set_backend("fast")
    monkeypatch.setattr(backend, "_chosen", None)
    monkeypatch.setenv("DSFCNN_BACKEND", "fast")
    with pytest.raises(dsfcnn.errors.UsageError, match="DSFCNN_BACKEND"):
        backend.get_backend()


def test_the_cost_model_prefers_dense_where_the_bank_saves_little():
    """C2 needs 4 K^2 multiplications, C8 64 K^2."""
    assert backend.faster((1, 14, 14, 7, 8, 64, 64), training=True) == "spectral"
    assert backend.faster((1, 1, 32, 3, 2, 64, 64), training=True) == "dense"


def test_the_cost_model_counts_the_columns_that_the_kernel_computes():
    """Images of 24 and 12 columns, alone, side by side and in lanes of their own: vectors of 8."""
    assert backend.work("spectral", (1, 1, 1, 7, 8, 1, 24))[3] == 24 * 8 * 127
    assert backend.work("spectral", (1, 1, 1, 7, 8, 1, 12))[3] == 16 * 8 * 127
    assert backend.work("spectral", (3, 1, 1, 5, 8, 1, 12))[3] == 40 * 8 * 33  # 3 images and 2 gaps of 2 columns
    assert backend.work("spectral", (8, 1, 1, 7, 8, 1, 12))[3] == 8 * 12 * 8 * 127
    assert backend.work("spectral", (15, 1, 1, 7, 8, 1, 12))[3] == 16 * 12 * 8 * 127


SANITIZED = """
import ctypes, sys, torch
from dsfcnn.kernels import calls, library
from dsfcnn.kernels.tables import plan
functions = ctypes.CDLL(sys.argv[1])
library.declare(functions)
library.load = lambda: library.Library(functions, "")
torch.manual_seed(0)
for n, kernel_size in ((2, 3), (4, 9), (6, 5), (8, 7), (16, 5)):
    for fields, more, out, images, height, width in (
        (1, 0, 1, 1, 1, 1), (2, 1, 14, 2, 9, 17), (3, 2, 7, 1, 16, 31), (9, 0, 6, 1, 7, 81), (1, 0, 1, 3, 4, 6), (1, 0, 1, 1, 4, 38),
        (2, 1, 3, 11, 5, 6), (1, 0, 1, 8, 1, 1), (1, 0, 9, 7, 9, 13),
    ):
        tables = plan(n, kernel_size)
        maps = [torch.randn(images, count, n, height, width) for count in (fields, more) if count]
        weight, gradient = torch.randn(out, fields + more, n, tables.rows), torch.randn(images, out, n, height, width)
        for activation in (None, calls.Activation(*torch.randn(3, fields + more))):
            calls.convolve(maps, weight, tables, activation, torch.randn(out))
            calls.convolve_back(gradient, maps, weight, tables, activation, weight_too=True)
        numbers = torch.randn(3, fields)
        calls.moments(maps[0]), calls.affine(maps[0], *numbers[:2])
        calls.activate_back(maps[0], maps[0], calls.Activation(*numbers))
        if height % 2 == width % 2 == 0:
            calls.max_pool(maps[0], calls.max_pool(maps[0]))
print("clean")
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_sanitizers_find_nothing(tmp_path, kernel):
    """No access outside of any buffer and no undefined behaviour, over odd shapes."""
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("no AddressSanitizer")
    (tmp_path / "banks.h").write_text(bank.write_banks())
    sources = [Path(bank.__file__).with_name(f"{name}.c") for name in ("gconv", "fields", "weights", "pool", "threads")]
    flags = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread"]
    march = [f"-march=x86-64-{'v4' if 'avx512' in kernel.name else 'v3'}"] if os.uname().machine == "x86_64" else []
    built = tmp_path / "gconv.so"
    subprocess.run(["gcc", *flags, *march, f"-I{tmp_path}", *sources, "-o", built], check=True, timeout=1200)
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SANITIZED, built], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "clean"
