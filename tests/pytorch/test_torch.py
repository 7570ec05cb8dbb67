"""Exported, saved and compiled modules with PyTorch itself; skipped if it is not installed."""

from __future__ import annotations

import io
import json
import logging
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import DlcError, ModelError, UnsupportedError
from dlc.models.model_files import explore_file
from dlc.shapes.dims import is_static

torch = pytest.importorskip("torch")
nn = torch.nn
convert_exported_program = pytest.importorskip("dlc.pytorch.exported_programs").convert_exported_program


class Net(nn.Module):
    """A layer with a buffer, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: Any, mask: Any) -> dict[str, Any]:
        y = self.layer(x) * self.scale
        return {"y": torch.where(mask, y, 0), "rows": y.sum(1)}


def inputs(rows: int = 2) -> tuple[Any, Any]:
    return torch.randn(rows, 4), torch.rand(rows, 3) > 0.5


def close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def backend() -> Any:
    return pytest.importorskip("dlc.pytorch.backend").dlc


def test_a_module_is_a_model_of_named_inputs_and_outputs() -> None:
    net, (x, mask) = Net(), inputs()
    model = dlc.from_torch(net, (x,), {"mask": mask}, target="reference")
    assert [i.name for i in model.inputs] == ["x", "mask"] and [o.name for o in model.outputs] == ["y", "rows"]
    wanted = net(x, mask)
    with torch.no_grad():
        net.scale.mul_(2)
    for name, tensor in wanted.items():
        close(model(x, mask)[name], tensor)


# Bounds of the error of int8 weights, from above and from below.
ROUNDED = [
    ({"precision": "bf16"}, 1e-2),
    ({"precision": "f16"}, 1e-3),
    ({"weights": "int8"}, 1e-2),
    ({"weights": "int4", "group": 64}, 0.2),
]


@pytest.mark.parametrize(("options", "most"), ROUNDED)
def test_weight_only_quantization(options: dict[str, Any], most: float) -> None:
    layer, x = nn.Linear(128, 128, bias=False), torch.randn(4, 128)
    wanted = layer(x).detach().numpy()

    def off(got: Any) -> float:
        return float(np.abs(np.asarray(got) - wanted).max() / np.abs(wanted).max())

    assert 1e-5 < off(dlc.from_torch(layer, (x,), **options)(x)["output"]) < most
    backend = pytest.importorskip("dlc.pytorch.backend").dlc
    with torch.no_grad():
        assert 1e-5 < off(torch.compile(layer, backend=backend, options=options)(x)) < most


def test_progress_is_reported() -> None:
    told: list[str] = []
    dlc.from_torch(nn.ReLU(), (torch.ones(3),), cache=False, progress=lambda doing: told.append(str(doing)))
    assert told


def test_symbolic_sizes() -> None:
    net, n = Net(), torch.export.Dim("n")
    model = dlc.from_torch(net, inputs(3), dynamic_shapes=({0: n}, {0: n}))
    assert not is_static(model.inputs[0].shape)
    for rows in (1, 5):
        given = inputs(rows)
        close(model(*given)["y"], net(*given)["y"])


def test_results_that_are_numbers() -> None:
    class Numbers(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1, 3, 2.5, None, x.shape[0] * 2, x.shape[0] > 2, x.sum().item()

    class Named(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1, "rows"

    model = dlc.from_torch(Numbers(), (torch.ones(3, 2),), dynamic_shapes=({0: torch.export.Dim("n", min=3)},))
    for rows in (3, 5):
        x = torch.randn(rows, 2)
        wanted = [torch.as_tensor(number) for number in Numbers()(x) if number is not None]
        for got, number in zip(model(x).values(), wanted, strict=True):
            assert np.asarray(got).dtype.kind == number.numpy().dtype.kind
            close(got, number)
    with pytest.raises(UnsupportedError, match="its result output1 is a str; expected tensors, numbers and None only"):
        dlc.from_torch(Named(), (torch.ones(2),))


class Counted(nn.Module):
    """Sizes that are elements of a tensor."""

    def forward(self, x: Any, k: Any) -> Any:
        rows, times = k.tolist()
        torch._check(rows >= 0)
        torch._check(rows <= x.shape[0])
        torch._check(times >= 0)
        repeated = torch.repeat_interleave(x, k, dim=1)
        chosen = torch.cond(k.sum() > 3, lambda x: x[x > 0].sum(), lambda x: torch.nonzero(x).sum().float(), (x,))
        return x[:rows] + rows, torch.zeros(times, rows), repeated, torch.bincount(k), x * (k - 2).sum().item(), chosen


def test_data_dependent_sizes() -> None:
    x, net = torch.randn(3, 2), Counted()
    model = dlc.from_torch(net, (x, torch.tensor([1, 2])))
    for k in ([2, 1], [3, 4], [0, 0]):
        given = x, torch.tensor(k)
        for got, wanted in zip(model(*given).values(), net(*given), strict=True):
            assert got.shape == wanted.shape
            close(got, wanted)


def test_negative_indices() -> None:
    class Cuts(nn.Module):
        def forward(self, x: Any, k: Any) -> Any:
            n = k.item()
            return x[n], x[:n], x[n:]

    x = torch.arange(5.0)
    model = dlc.from_torch(Cuts(), (x, torch.tensor(1)))
    for k in (0, 3, -2):
        for got, wanted in zip(model(x, torch.tensor(k)).values(), Cuts()(x, torch.tensor(k)), strict=True):
            assert got.shape == wanted.shape
            close(got, wanted)


@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_compiled_calls_with_data_dependent_sizes(backend: Any) -> None:
    def chosen(x: Any, k: Any) -> Any:
        n = k.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0])
        return (x[:n] * x[:n]).sum(1), x[x > 0] * 2, torch.zeros(n, 2).mT, n

    compiled = torch.compile(chosen, backend=backend, fullgraph=True)
    for n in (2, 0, 3):
        x, k = torch.randn(3, 4, requires_grad=True), torch.tensor(n)
        results = compiled(x, k)
        *wanted, _ = chosen(x, k)
        assert results[-1] == n
        for got, expected in zip(results, wanted, strict=False):
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got, expected)
        sums = (values[0].sum() + values[1].sum() for values in (results, wanted))
        one, other = (torch.autograd.grad(total, x)[0] for total in sums)
        torch.testing.assert_close(one, other)


def test_unsupported_modules() -> None:
    class Decides(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    class Special(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.airy_ai(x) + torch.linalg.ldl_factor(torch.diag(x))[0][0]

    class Indivisible:
        def run_decompositions(self, table: Any) -> Any:
            raise RuntimeError("a size that is data")

    with pytest.raises(ModelError, match="run_decompositions: "):
        convert_exported_program(Indivisible(), "m")
    with pytest.raises(ModelError, match=r"torch\.export"):
        dlc.from_torch(Decides(), (torch.ones(2),))
    with pytest.raises(UnsupportedError, match=r"special_airy_ai: test_torch.py:\d+\n  linalg_ldl"):
        dlc.from_torch(Special(), (torch.ones(2),))


def test_a_saved_program(tmp_path: Path) -> None:
    net, n, file = Net(), torch.export.Dim("n"), tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, inputs(3), dynamic_shapes=({0: n}, {0: n})), file)
    given = inputs(2)
    model = dlc.compile_model(file, target="reference", input_shapes={"x": (2, None)})
    assert model.inputs[1].shape == (2, 3)
    close(model(*given)["rows"], net(*given)["rows"])


def test_a_saved_program_is_explored(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net(), inputs()), file)
    assert "<title>net" in explore_file(file).html


def test_unsafe_file_is_rejected(tmp_path: Path) -> None:
    file, ran = tmp_path / "net.pt2", tmp_path / "ran"
    torch.export.save(torch.export.export(Net(), inputs()), file)

    class Runs:
        def __reduce__(self) -> Any:
            return (Path.touch, (ran,))

    def damaged(ending: str, change: Any) -> None:
        with zipfile.ZipFile(file) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        found = [name for name in entries if name.endswith(ending)]
        assert found
        for name in found:
            entries[name] = change(entries[name])
        other = tmp_path / "other.pt2"
        with zipfile.ZipFile(other, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, content)
        with pytest.raises(ModelError, match=r"other\.pt2"):
            dlc.compile_model(other, cache=False)
        assert not ran.exists()

    def pickled(_: bytes) -> bytes:
        buffer = io.BytesIO()
        torch.save(Runs(), buffer)
        return buffer.getvalue()

    def with_text(old: str, new: str) -> Any:
        return lambda content: content.decode().replace(old, new).encode()

    damaged("sample_inputs/model.pt", pickled)
    damaged("sample_inputs/model.pt", lambda _: pickle.dumps(Runs()))
    damaged("weights_config.json", with_text('"use_pickle": false', '"use_pickle": true'))
    damaged("models/model.json", with_text("torch.ops.aten.mul.Tensor", "torch.hub.os.system"))
    expression = json.dumps({"as_expr": {"expr_str": "__import__('os').system('true')", "hint": None}})
    damaged("models/model.json", with_text('"sizes": [{"as_int": 2}', f'"sizes": [{expression}'))
    damaged("models/model.json", lambda content: content[:100])
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(ModelError, match="not an archive"):
        dlc.compile_model(file)


def test_compiled_calls_and_changed_parameters(backend: Any) -> None:
    net, given = Net(), inputs()
    compiled = torch.compile(net, backend=backend, options={"target": "reference"})
    with torch.no_grad():
        for _ in range(2):
            close(compiled(*given)["y"], net(*given)["y"])
        net.layer.weight.mul_(2)
        close(compiled(*given)["y"], net(*given)["y"])
        net.layer.weight = nn.Parameter(torch.ones(3, 4))
        close(compiled(*given)["y"], net(*given)["y"])
        for rows in (3, 5):
            given = inputs(rows)
            close(compiled(*given)["rows"], net(*given)["rows"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_parameters(backend: Any, dtype: Any) -> None:
    layer = nn.Linear(1 << 12, 2100).to(dtype).requires_grad_(False)
    x = torch.randn(2, 1 << 12).to(dtype)
    torch.testing.assert_close(torch.compile(layer, backend=backend)(x), layer(x), rtol=2e-2, atol=1e-4)
    layer.weight.zero_()
    torch.testing.assert_close(torch.compile(layer, backend=backend)(x), layer(x), rtol=2e-2, atol=1e-4)


def test_tensors_that_are_made_in_a_call(backend: Any) -> None:
    layer, x = nn.Linear(4, 4), torch.randn(3, 4)

    def picked(x: Any) -> Any:
        return layer(x)[torch.tensor([0, 2, 2])].flip(0)

    torch.compile(picked, backend=backend, options={"target": "reference"})(x).sum().backward()
    got = layer.weight.grad
    layer.zero_grad()
    picked(x).sum().backward()
    close(got, layer.weight.grad)


def test_result_strides(backend: Any) -> None:
    def turned(x: Any) -> Any:
        y = (x * 2).transpose(0, 1)
        return y, y.reshape(-1)

    x = torch.randn(3, 4)
    for got, wanted in zip(torch.compile(turned, backend=backend, options={"target": "reference"})(x), turned(x), strict=True):
        assert got.stride() == wanted.stride()
        close(got, wanted)


def test_strides_of_tensors_without_elements(backend: Any) -> None:
    x = torch.zeros(0, 4, 5)
    assert torch.compile(lambda x: x * 2, backend=backend)(x).stride() == (x * 2).stride() == (20, 5, 1)


def test_training_loss_matches_pytorch(backend: Any) -> None:
    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.head(torch.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1))

    def losses(compile: bool) -> list[float]:
        torch.manual_seed(1)
        net = Images()
        run = torch.compile(net, backend=backend) if compile else net
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        images, classes, found = torch.randn(16, 1, 6, 6), torch.randint(0, 3, (16,)), []
        for _ in range(100):
            loss = nn.functional.cross_entropy(run(images), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return [*found, float(net.norm.running_var.sum())]

    np.testing.assert_allclose(losses(True), losses(False), atol=1e-4)


def test_recomputation_draws_the_same_values(backend: Any) -> None:
    def squares(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(lambda x: nn.functional.dropout(x, 0.5) ** 2, x, use_reentrant=False)

    x = torch.linspace(1, 2, 50, requires_grad=True)
    y = torch.compile(squares, backend=backend, options={"target": "reference"})(x)
    y.sum().backward()
    assert 0 < (y > 0).sum() < 50
    close(x.grad, 2 * y / x)


def test_mixed_precision_training(backend: Any) -> None:
    first, norm, second = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def loss(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = norm(first(x)) ** 2
            return nn.functional.cross_entropy(second(y).float(), torch.arange(3))

    x, found = torch.randn(3, 4), []
    for run in (loss, torch.compile(loss, backend=backend, options={"target": "reference"})):
        run(x).backward()
        found.append(first.weight.grad.clone())
        first.zero_grad()
    np.testing.assert_allclose(found[1], found[0], atol=0.02 * float(found[0].abs().max()))


def test_half_precision_norms_with_float32_parameters(backend: Any) -> None:
    norms = nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4)

    def function(x: Any) -> Any:
        return torch.stack([norm(x) for norm in norms])

    x = torch.randn(5, 4).bfloat16()
    found = torch.compile(function, backend=backend, options={"target": "reference"})(x)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.detach().float(), function(x).detach().float(), atol=0.02)


def test_fully_masked_query_is_zero(backend: Any) -> None:
    def function(x: Any, mask: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(x, x, x, mask)

    x, sees = torch.randn(1, 2, 5, 4), torch.ones(5, 5, dtype=torch.bool)
    sees[2] = False
    compiled = torch.compile(function, backend=backend, options={"target": "reference"})
    for mask in (sees, torch.where(sees, 0.5, -torch.inf)):
        close(compiled(x, mask), function(x, mask))


def test_fully_masked_queries_in_training(backend: Any) -> None:
    """A left-padded sample of a decoder, and a sample that is all padding."""
    heads, layer = nn.MultiheadAttention(8, 2, batch_first=True), nn.TransformerEncoderLayer(8, 2, 16, 0, batch_first=True)
    is_padding = torch.tensor([[True, False, False], [True, True, True]])
    attends = torch.ones(3, 3, dtype=torch.bool).tril() & ~is_padding[:, None, None]
    cases: list[tuple[Any, list[Any]]] = [
        (lambda x: heads(x, x, x, key_padding_mask=is_padding, need_weights=False)[0], list(heads.parameters())),
        (lambda x: layer(x, src_key_padding_mask=is_padding), list(layer.parameters())),
    ]

    def attended(x: Any, mask: Any) -> Any:
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in (x, x * 2, x * 3))
        return nn.functional.scaled_dot_product_attention(q, k, v, mask)

    for mask in (attends, torch.where(attends, 0.0, -torch.inf)):
        cases.append((lambda x, mask=mask: attended(x, mask), []))
    for function, parameters in cases:
        x = torch.randn(2, 3, 8, requires_grad=True)
        compiled = torch.compile(function, backend=backend, options={"target": "reference"})
        weights = torch.randn(function(x).shape)
        got, wanted = (torch.autograd.grad((f(x) * weights).sum(), [x, *parameters]) for f in (compiled, function))
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (5, 3)])
def test_causal_mask_is_aligned_with_the_first_key(backend: Any, queries: int, keys: int) -> None:
    def function(q: Any, k: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)

    q, k = torch.randn(1, 2, queries, 4), torch.randn(1, 2, keys, 4)
    close(torch.compile(function, backend=backend, options={"target": "reference"})(q, k), function(q, k))


@pytest.mark.parametrize("foreach", [False, True])
def test_optimizer_steps_are_compiled(backend: Any, foreach: bool) -> None:
    found = []
    for compile in (False, True):
        weights = [torch.linspace(-1, 1, 6, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
        optimizer = torch.optim.AdamW(weights, 1e-2, foreach=foreach)
        step = torch.compile(optimizer.step, backend=backend, options={"target": "reference"}) if compile else optimizer.step
        for _ in range(3):
            for weight in weights:
                weight.grad = weight.detach() * 0.1 + 1
            step()
        found.append(torch.cat([w.detach().flatten() for w in weights]))
    close(found[1], found[0])


def test_fused_layers(backend: Any) -> None:
    """In inference a transformer layer is one operator; flex_attention takes functions as arguments."""
    flexible = pytest.importorskip("torch.nn.attention.flex_attention")
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True), 1).eval()
    x, slopes = torch.randn(2, 5, 8), torch.tensor([0.5, 0.25])
    seen = flexible.create_block_mask(lambda b, h, i, j: i >= j, 1, 2, 5, 5, device="cpu")

    def attended(x: Any) -> Any:
        q = encoder(x).reshape(2, 5, 2, 4).transpose(1, 2)
        return flexible.flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + slopes[h] * (i - j), block_mask=seen)

    with torch.no_grad():
        got = torch.compile(attended, backend=backend, options={"target": "reference"})(x)
        close(got, attended(x))


def test_fallback(backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    def special(x: Any) -> Any:
        return torch.special.airy_ai(x * 2) + x.relu()

    x = torch.randn(5)
    with pytest.raises(Exception, match=r"(?s)UnsupportedError.*special_airy_ai: test_torch.py:\d+"):
        torch.compile(special, backend=backend)(x)
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "dlc.pytorch"):
        got = torch.compile(special, backend=backend, options={"fallback": "eager", "target": "reference"})(x)
    close(got, special(x))
    assert "special_airy_ai at test_torch.py" in caplog.text

    bag, indices = nn.EmbeddingBag(4, 3, scale_grad_by_freq=True), torch.tensor([[0, 1, 1]])
    (expected,) = torch.autograd.grad((bag(indices) ** 2).sum(), bag.weight)
    with caplog.at_level(logging.WARNING, "dlc.pytorch"):
        compiled = torch.compile(bag, backend=backend, options={"fallback": "eager", "target": "reference"})
        (gradient,) = torch.autograd.grad((compiled(indices) ** 2).sum(), bag.weight)
    close(gradient, expected)
    assert "dlc cannot compile the graph" in caplog.text and "scale_grad_by_freq=True" in caplog.text

    def spectrum(x: Any) -> Any:
        return torch.fft.fft(x).to(torch.complex32).to(torch.complex64)

    with caplog.at_level(logging.WARNING, "dlc.pytorch"):
        got = torch.compile(spectrum, backend=backend, options={"fallback": "eager", "target": "reference"})(x)
    close(got, spectrum(x))
    assert "cannot compile the graph: torch.complex32" in caplog.text
    with pytest.raises(Exception, match="fallbck"):
        torch.compile(lambda x: x + 1, backend=backend, options={"fallbck": "eager"})(x)


def test_dropout_depends_on_the_seed(backend: Any) -> None:
    layer = torch.compile(nn.Dropout(0.5), backend=backend, options={"target": "reference"})
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(layer(torch.ones(100)))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert set(drawn[0].tolist()) == {0.0, 2.0}


def test_tensors_of_bfloat16_are_read() -> None:
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    got = dlc.from_torch(nn.ReLU(), (x,), target="reference")(x)["output"]
    assert got.dtype == "bfloat16" and got.tolist() == [1.5, 0]
    assert dlc.jit(lambda x: x * 2, target="reference")(x).tolist() == [3, -4]


def test_unsupported_tensors() -> None:
    with pytest.raises(DlcError, match="complex32"):
        dlc.from_torch(nn.Identity(), (torch.ones(2, dtype=torch.complex32),))


def test_gradients_of_decompositions(backend: Any) -> None:
    """Graphs of decompositions contain PyTorch's assertions, whose effect tokens are not tensors."""

    def loss(x: Any) -> Any:
        return torch.linalg.inv(x).sum() + torch.linalg.det(x) + torch.linalg.solve(x, x[:, :1].sin()).sum()

    mine = (torch.randn(3, 3) + 2 * torch.eye(3)).requires_grad_()
    its = mine.detach().clone().requires_grad_()
    torch.compile(loss, backend=backend, options={"target": "reference"})(mine).backward()
    loss(its).backward()
    close(mine.grad, its.grad)


def test_an_unsupported_dtype_is_named() -> None:
    class Narrow(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(torch.float8_e8m0fnu).to(torch.float32)

    with pytest.raises(UnsupportedError, match=r"torch.float8_e8m0fnu is not supported"):
        dlc.from_torch(Narrow(), (torch.ones(2),), cache=False)
