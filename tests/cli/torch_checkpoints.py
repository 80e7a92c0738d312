"""Writes checkpoints with torch.save into a folder, and prints as JSON what torch.load reads from each."""
import collections
import json
import pathlib
import sys

import torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool, torch.complex64, torch.complex128, torch.complex32, torch.uint16, torch.uint32, torch.uint64,
          torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
# Of each: bits of a NaN, then of an infinity where there is one.
NOT_FINITE = {torch.float32: (torch.int32, 0x7fc00001, 0x7f800000), torch.float64: (torch.int64, 0x7ff0000000000001, 0x7ff0000000000000),
              torch.float16: (torch.int16, 0x7e00, 0x7c00), torch.bfloat16: (torch.int16, 0x7fc0, 0x7f80),
              torch.float8_e4m3fn: (torch.uint8, 0x7f), torch.float8_e5m2: (torch.uint8, 0x7d, 0x7c),
              torch.float8_e4m3fnuz: (torch.uint8, 0x80), torch.float8_e5m2fnuz: (torch.uint8, 0x80),
              torch.float8_e8m0fnu: (torch.uint8, 0xff)}
CONFIG = {"d_model": 32, "n_layers": 2, "rate": 1e-3, "name": "tiny \u00e9", "flags": [True, None, {"deep": (1, 2)}], "negative": -2**40,
          "seed": 2**64 - 1, "dtype": torch.float32, "device": torch.device("cpu")}


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 4)
        self.head = torch.nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.norm = torch.nn.LayerNorm(4)
        self.register_buffer("level_offsets", torch.arange(3.0))
        self.register_buffer("passing", torch.zeros(2), persistent=False)


def states():
    yield "dtypes", {str(dtype): torch.zeros(2, 3, dtype=torch.float32 if dtype.is_floating_point else torch.uint8).to(dtype)
                     for dtype in DTYPES}, {}
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    yield "views", {"whole": base, "part": base[1, :, 1:3], "turned": base.permute(3, 0, 2, 1), "repeated": torch.ones(1).expand(7),
                    "scalar": torch.tensor(3), "empty": torch.zeros(0, 4), "first": torch.arange(10)[:5], "conj": torch.ones(2, dtype=torch.complex64).conj(),
                    "halves": torch.arange(8.0)[:4], "big_stride": base[..., 0]}, {}
    yield "module", Tied().state_dict(), {}
    yield "compiled", torch.compile(Tied()).state_dict(), {}
    yield "parameters", dict(Tied().named_parameters(remove_duplicate=False)), {}
    with_attribute = torch.ones(3)
    with_attribute.note = "x"
    yield "attribute", {"w": with_attribute}, {}
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model.norm(torch.ones(4)).sum().backward()
    optimizer.step()
    yield "optimizer", model.state_dict(), {"optimizer": optimizer.state_dict(), "step": 7, "counter": collections.Counter("abca")}
    for protocol in (3, 4, 5):
        yield f"protocol_{protocol}", model.state_dict(), {"protocol": protocol}


def ties(state):
    """Names whose tensors have a byte in common, directly or by way of another."""
    spans = []
    for name, tensor in state.items():
        if tensor.numel():
            reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
            begin = tensor.data_ptr()
            spans.append((begin, begin + (reach + 1) * tensor.element_size(), name))
    groups, end = [], None
    for begin, its_end, name in sorted(spans):
        if end is not None and begin < end:
            groups[-1].append(name)
            end = max(end, its_end)
        else:
            groups.append([name])
            end = its_end
    return sorted(sorted(group) for group in groups if len(group) > 1)


def described(path, weights_only):
    loaded = torch.load(path, weights_only=weights_only)
    state = {name.removeprefix("_orig_mod."): tensor for name, tensor in loaded["model_state"].items()}
    return {"tensors": {name: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in state.items()},
            "tied": ties(state)}


def main(folder):
    expected = {}
    for name, state, more in states():
        protocol = more.pop("protocol", 2)
        torch.save({"model_state": state, "config": CONFIG, **more}, folder / f"{name}.pt", pickle_protocol=protocol)
        expected[name] = described(folder / f"{name}.pt", weights_only=protocol < 4)  # torch's restricted reader ends at 3

    finite = {}
    for dtype, (bits, *patterns) in NOT_FINITE.items():
        for kind, pattern in zip(("nan", "inf"), patterns):
            raw = torch.zeros(4, 5, dtype=bits)
            raw[2, 3] = pattern if bits != torch.uint8 else torch.tensor(pattern, dtype=bits)
            value = raw.view(dtype)
            finite[f"{kind}.{dtype}"] = bool(torch.isfinite(value.to(torch.float64)).all())
            torch.save({"model_state": {"w": value}, "config": {}}, folder / f"{kind}.{dtype}.pt")
    torch.save({"model_state": {"w": torch.tensor([1, complex(0, float("nan"))])}, "config": {}}, folder / "nan.complex.pt")

    torch.save({"model_state": {"w": torch.ones(2)}, "config": {}}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    with torch.serialization.skip_data():  # the file is as long as its data, and has holes in its place
        torch.save({"model_state": {"big": torch.empty(2**30 + 2**20), "small": torch.empty(3)}, "config": {}}, folder / "huge.pt")
    torch.save({"model_state": {"w": torch.zeros(2**24)}, "config": {}}, folder / "64MB.pt")
    print(json.dumps({"expected": expected, "finite": finite}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
