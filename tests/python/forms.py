"""Functions for the tests of the package. They import no torch: the process that calls `check` needs none."""
import functools


def right(q, k, v, S0=None, z0=None):
    """Right: one lower-triangular score matrix."""
    return _attention(q, k, v, S0, z0)


def forgets_z0(q, k, v, S0=None, z0=None):
    """Wrong: the returned z starts from zero."""
    y, S, z = _attention(q, k, v, S0, z0)
    return y, S, k.sum(1)


def raises(q, k, v, S0=None, z0=None):
    raise ValueError("no kernel today")


def _attention(q, k, v, S0, z0):
    G, _, D = q.shape
    S = v.new_zeros(G, D, D) if S0 is None else S0
    z = k.new_zeros(G, D) if z0 is None else z0
    w = (q @ k.mT).tril()
    den = w.sum(-1, keepdim=True) + q @ z.unsqueeze(-1)
    keep = den.abs() > 1e-10
    return ((w @ v + q @ S) / (den + 1e-20).where(keep, 1)).where(keep, 0), S + k.mT @ v, z + k.sum(1)


def logged(function):
    @functools.wraps(function)
    def inner(*arguments, **named):
        return function(*arguments, **named)
    return inner


def bare(function):
    def inner(*arguments, **named):
        return function(*arguments, **named)
    return inner


@logged
def decorated(q, k, v, S0=None, z0=None):
    return right(q, k, v, S0, z0)


@bare
def decorated_bare(q, k, v, S0=None, z0=None):
    return right(q, k, v, S0, z0)


decorated_elsewhere = logged(right)
on_one_line = lambda q, k, v, S0=None, z0=None: right(q, k, v, S0, z0)  # noqa: E731


def make():
    def nested(q, k, v, S0=None, z0=None):
        return right(q, k, v, S0, z0)
    return nested


class Forms:
    def method(self, q, k, v, S0=None, z0=None):
        return right(q, k, v, S0, z0)

    @staticmethod
    def static(q, k, v, S0=None, z0=None):
        return right(q, k, v, S0, z0)
