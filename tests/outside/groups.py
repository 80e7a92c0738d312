"""Functions that say how they were called (tests/harness/groups_test.cpp)."""


def _one(value):
    return str(list(value.shape)) if hasattr(value, "shape") else f"{type(value).__name__} {value}"


def _said(arguments):
    raise ValueError("; ".join(f"{name}: " + (", ".join(f"{k} {_one(v)}" for k, v in value.items()) if isinstance(value, dict) else _one(value))
                               for name, value in arguments.items()))


def says_moe(h, phases, params, top_k, kappa, temperature):
    _said(locals())


def says_block(h, S0, z0, params, config):
    _said(locals())


def tensors_apart(h, phases, expert_phases, w1, w2, b1, b2, top_k, kappa, temperature):
    """As a function of single tensors would take them, which is no contract's."""
    _said(locals())
