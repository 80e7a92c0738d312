"""fractus_verify.field: forms of Python on the device, as they are. Each test says what it protects."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

from environment import ROOT, plain

STUBS = str(ROOT / "build" / "release" / "cuda-stubs")
if STUBS not in os.environ.get("LD_LIBRARY_PATH", "").split(":"):  # torch needs it from the start, without the libraries of CUDA
    os.environ["LD_LIBRARY_PATH"] = STUBS
    os.execv(sys.executable, [sys.executable, *sys.argv])

sys.path.insert(0, str(ROOT / "python"))
import torch
from torch.utils.checkpoint import checkpoint

from fractus_verify import field


def forms():
    """The handed-out forms of linear_attention, where the checkout has them beside it; else two of our own."""
    path = ROOT.parent / "shared" / "mutants" / "linear_attention.py"
    if path.is_file():
        spec = importlib.util.spec_from_file_location("handed_forms", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return {name: getattr(module, name) for name in dir(module) if name.startswith(("correct_", "mutant_"))}
    return {"correct_looped": looped, "correct_scores": scores, "mutant_exclusive_prefix": lambda *a: scores(*a, diagonal=-1)}


def _carry(q, S, z):
    G, _, D = q.shape
    return (q.new_zeros(G, D, D) if S is None else S), (q.new_zeros(G, D) if z is None else z)


def looped(q, k, v, S0=None, z0=None):
    S, z = _carry(q, S0, z0)
    ys = []
    for t in range(q.shape[1]):
        S, z = S + k[:, t, :, None] * v[:, t, None], z + k[:, t]
        ys.append((q[:, t, None] @ S)[:, 0] / ((q[:, t] * z).sum(-1, keepdim=True) + 1e-20))
    return torch.stack(ys, 1), S, z


def scores(q, k, v, S0=None, z0=None, diagonal=0):
    S, z = _carry(q, S0, z0)
    w = torch.tril(q @ k.mT, diagonal)
    y = (w @ v + q @ S) / (w.sum(-1) + (q @ z.unsqueeze(-1)).squeeze(-1) + 1e-20).unsqueeze(-1)
    return y, S + k.mT @ v, z + k.sum(1)


def answers(form, bits, G=2, T=70, D=3, dtype=None):
    """Residues of the outputs and of the gradients of all inputs, for cotangents on all outputs."""
    field.use(bits)
    shapes = [(G, T, D)] * 3 + [(G, D, D), (G, D)]
    inputs = [field.random(*shape, seed=i, dtype=dtype).requires_grad_() for i, shape in enumerate(shapes)]
    outputs = form(*inputs)
    cotangents = [field.random(*y.shape, seed=9 + i, dtype=y.dtype) for i, y in enumerate(outputs)]
    gradients = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
    return [field.residues(x) for x in outputs] + [None if g is None else field.residues(g) for g in gradients]


def same(a, b):
    return all(x is y or (x is not None and y is not None and torch.equal(x, y)) for x, y in zip(a, b, strict=True))


class Forms(unittest.TestCase):
    """Protects the author of a form: what is right agrees to the last bit, gradients by torch's autograd included, and what is wrong does
    not."""

    def test_right_forms_agree(self):
        right = {name: form for name, form in forms().items() if name.startswith("correct_")}
        self.assertGreaterEqual(len(right), 2)
        for bits in (31, 61):
            wanted = answers(next(iter(right.values())), bits)
            for name, form in right.items():
                self.assertTrue(same(answers(form, bits), wanted), f"{name} over GF(2^{bits}-1)")

    def test_wrong_forms_do_not(self):
        """The negative control of the one above."""
        named = forms()
        algebraic = [name for name in named if name in (
            "mutant_exclusive_prefix", "mutant_carry_ignored", "mutant_z0_forgotten", "mutant_S0_detached", "mutant_S0_transposed",
            "mutant_dk_denominator_dropped", "mutant_ragged_tail_lost_from_state", "mutant_state_updated_before_read",
            "mutant_1e_6_added_to_denominator", "mutant_state_cotangent_ignored", "mutant_final_S_transposed")]
        self.assertTrue(algebraic)
        wanted = answers(named["correct_looped"], 61)
        for name in algebraic:
            self.assertFalse(same(answers(named[name], 61), wanted), name)

    def test_checkpoint_and_function(self):
        """Both kinds of recomputation, and a backward by hand that asks for twice of it."""
        class Cubed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x ** 3

            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return 3 * x * x * g

        field.use(61)
        x, w = field.random(4, 4, seed=1).requires_grad_(), field.random(4, 4, seed=2)

        def program(x):
            return (Cubed.apply(x @ w) / (x + 2)).mean()

        wanted, = torch.autograd.grad(program(x), x)
        plainly, = torch.autograd.grad((((x @ w) ** 3) / (x + 2)).mean(), x)
        self.assertTrue(same([field.residues(wanted)], [field.residues(plainly)]))
        for reentrant in (True, False):
            x.grad = None
            checkpoint(program, x, use_reentrant=reentrant).backward()
            self.assertTrue(same([field.residues(x.grad)], [field.residues(wanted)]), reentrant)
        first, = torch.autograd.grad(program(x), x, create_graph=True)
        second, = torch.autograd.grad(first.sum(), x, retain_graph=True)
        again, = torch.autograd.grad(first.sum(), x)
        self.assertTrue(same([field.residues(second)], [field.residues(again)]))

    def test_module_and_optimizer_step(self):
        """Modules move to the device, and the foreach operations of an optimizer come apart into known ones."""
        field.use(31)
        layer = torch.nn.Linear(3, 2).requires_grad_(False)
        layer.weight.copy_(torch.tensor([[1., 2., 3.], [4., 5., 6.]]))
        layer.bias.copy_(torch.tensor([1., -1.]))
        layer.to("field").requires_grad_(True)
        layer(torch.ones(1, 3).to("field")).sum().backward()
        torch.optim.SGD(layer.parameters(), lr=0.5).step()
        self.assertEqual(field.residues(layer.weight * 2).tolist(), [[1, 3, 5], [7, 9, 11]])


class Device(unittest.TestCase):
    """Protects what a program sees of the device."""

    def test_constants_and_printing(self):
        field.use(31)
        x = torch.tensor([1 / 3, 0.1, -2.0]).to("field")
        self.assertEqual(field.residues(x * 30).tolist(), [10, 3, 2**31 - 1 - 60])
        self.assertIn("GF(2^31-1)", repr(x))
        self.assertIn("device='field'", repr(x))
        self.assertIn("True", repr(x > 0))
        self.assertIn("requires_grad=True", f"{x.requires_grad_()}")
        self.assertEqual(torch.zeros(2, device="field").device.type, "field")
        self.assertEqual(torch.arange(3, device="field").tolist(), [0, 1, 2])

    def test_remarks_have_places(self):
        field.use(61)
        field.forget()
        x = field.random(3, seed=1)
        keep = x.abs() > 1e-10
        if keep.all():
            x.to(torch.bfloat16)
        found = {(each["kind"], each["operation"]): each["place"] for each in field.remarks()}
        self.assertEqual(set(found), {("comparison", "aten::abs"), ("comparison", "aten::gt"), ("branch", "aten::item"), ("cast", "aten::_to_copy")})
        for place in found.values():
            self.assertRegex(place, r"^field_test\.py:\d+ in test_remarks_have_places$")

    def test_errors(self):
        """The operation and the line, for what is not algebraic; another draw, for a pole; and a process that goes on."""
        field.use(61)
        x = field.random(3, seed=1)
        with self.assertRaisesRegex(RuntimeError, r"aten::exp at field_test\.py:\d+ in test_errors: not algebraic"):
            torch.exp(x)
        with self.assertRaisesRegex(RuntimeError, "residues"):
            x.cpu()
        with self.assertRaisesRegex(RuntimeError, "drawn again"):
            x / (x - x)
        with self.assertRaisesRegex(RuntimeError, "random draw"):
            torch.rand(3, device="field")
        with self.assertRaisesRegex(RuntimeError, "31 or 61"):
            field.use(8)
        self.assertEqual(field.residues(x - x).tolist(), [0, 0, 0])
        torch.manual_seed(3)

    def test_random_is_seeded(self):
        field.use(61)
        self.assertTrue(same([field.residues(field.random(5, seed=3))], [field.residues(field.random(5, seed=3))]))
        self.assertFalse(same([field.residues(field.random(5, seed=3))], [field.residues(field.random(5, seed=4))]))
        self.assertFalse(same([field.residues(field.random(5))], [field.residues(field.random(5))]))

    def test_the_package_alone_needs_no_torch(self):
        """Protects who has none: only the name fractus_verify.field loads it."""
        code = "import sys, fractus_verify; assert 'torch' not in sys.modules; fractus_verify.field; assert 'torch' in sys.modules"
        environment = {**plain(os.environ), "PYTHONPATH": str(ROOT / "python"), "LD_LIBRARY_PATH": STUBS}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)


class Docs(unittest.TestCase):
    """Protects the reader of docs/identity.md: what it shows runs."""

    def test_example(self):
        field.use(31)
        example = (ROOT / "docs" / "identity.md").read_text().partition("```python\n")[2].partition("```")[0]
        exec(compile(example, "docs/identity.md", "exec"), {})


if __name__ == "__main__":
    unittest.main()
