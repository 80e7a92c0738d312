"""Writes a .pt file, a pickled dict of names to tensors as torch.save lays it out, without torch."""
import collections
import io
import pickle
import struct
import sys
import types
import zipfile


class FloatStorage:
    pass


class DoubleStorage:
    pass


def _rebuild_tensor_v2(*_):
    raise NotImplementedError("only its name is pickled")


def _modules():
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage, torch.DoubleStorage, torch._utils = FloatStorage, DoubleStorage, utils
    FloatStorage.__module__ = DoubleStorage.__module__ = "torch"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    _rebuild_tensor_v2.__module__ = "torch._utils"
    return {"torch": torch, "torch._utils": utils}


class Storage:
    def __init__(self, key, kind, count):
        self.persistent = ("storage", kind, str(key), "cpu", count)


class Tensor:
    def __init__(self, storage, offset, shape, strides):
        self.arguments = (storage, offset, shape, strides, False, collections.OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.arguments


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        return thing.persistent if isinstance(thing, Storage) else None


def contiguous(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def write(path, tensors):
    """tensors: name -> (shape, values), and where they are not the obvious ones, strides, offset and the number of values
    that the file claims to hold; a name that ends in _f64 is float64. Anything else than such a tuple is pickled as it
    is."""
    entries, content = [], {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, tuple):
            content[name] = tensor
            continue
        shape, values = tensor[:2]
        strides, offset, count = (*tensor[2:], *(contiguous(shape), 0, len(values))[len(tensor) - 2:])
        double = name.endswith("_f64")
        storage = Storage(len(entries), DoubleStorage if double else FloatStorage, count)
        entries.append(struct.pack(f"<{len(values)}{'d' if double else 'f'}", *values))
        content[name] = Tensor(storage, offset, tuple(shape), strides)
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update(_modules())
    try:
        pickled = io.BytesIO()
        Pickler(pickled, protocol=2).dump(content)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        archive.writestr("archive/byteorder", "little")
        for key, values in enumerate(entries):
            archive.writestr(f"archive/data/{key}", values)
        archive.writestr("archive/version", "3\n")


# G = T = D = 1 with every input 1 and no carry: y, S and z are 1, and with cotangents of 1 dnum = 1 and dden = -1.
ONE_TOKEN = {**{name: ((1, 1, 1), [1.0]) for name in ("q", "k", "v", "gy", "gS", "y", "S")},
             "S0": ((1, 1, 1), [0.0]), "z0": ((1, 1), [0.0]), "gz": ((1, 1), [1.0]), "z": ((1, 1), [1.0]),
             "dq": ((1, 1, 1), [0.0]), "dk": ((1, 1, 1), [2.0]), "dv": ((1, 1, 1), [2.0]), "dS0": ((1, 1, 1), [2.0]),
             "dz0": ((1, 1), [0.0])}
ONE_TOKEN.update({f"{name}_f64": ONE_TOKEN[name] for name in ("y", "S", "z", "dq", "dk", "dv", "dS0", "dz0")})
