"""The command `identity`, from outside. Each test says what it protects."""
import concurrent.futures
import json
import pathlib
import re
import tempfile
import unittest

from cli_test import ROOT, run

RATIONAL = ROOT / "tests" / "outside" / "rational.py"
OWN = ROOT / "tests" / "outside" / "unalgebraic.py"
MUTANTS = ROOT.parent / "shared" / "mutants" / "linear_attention.py"
# The outputs and gradients at one of which each fault of the algebra is first to be seen.
ALGEBRAIC = {
    "ragged_tail_lost_from_state": "S", "ragged_tail_padded_with_ones": "z", "carry_ignored": "y", "z0_forgotten": "y",
    "S0_transposed": "y", "exclusive_prefix": "y", "state_updated_before_read": "y", "S0_detached": "dS0",
    "dk_denominator_dropped": "dk", "1e_6_added_to_denominator": "y", "groups_after_last_eight_lose_carry": "y",
    "replays_cached_output": "y", "final_S_transposed": "S", "state_before_last_block": "S", "state_cotangent_ignored": "dk",
    "single_token_returns_v": "y"}


def by_two(f, items):
    """On both cores; the first exception is raised."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(f, items))


class Identity(unittest.TestCase):
    def asked(self, form, status, *options):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "identity.json"
            done = run("identity", form, "--preset", "smoke", "--json", file, *options)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return json.loads(file.read_text()), done.stdout

    def test_right_forms(self):
        """Protects right forms of any blocking, in C++ and Python; what is claimed has its probability beside it."""
        answer, text = self.asked("chunked:block=8", 0)
        self.assertEqual(answer["answer"], "IDENTICAL")
        self.assertRegex(text, r"a chance of at most \S+e-1[6-9]")
        self.assertGreater(answer["identity"]["bit_equal"], 1000)
        self.asked(f"{OWN}:other_device", 0, "--kernel", "linear_attention", "--dtype", "float64")

    def test_rational_kernels(self):
        """Protects the kernels that identity alone judges: right forms, and wrong ones with the tensor named."""
        wrong = {"matmul_loses_tail": "c", "matmul_half_adjoint": "db", "experts_bias_unweighted": "out", "experts_router_detached": "dweights",
                 "block_attention_level_zero": "S", "block_attention_mix_twice": "S"}
        kernels = ("block_attention", "matmul", "experts")
        branch = "matmul_of_positive"
        functions = re.findall(r"^def ([a-z]\w*)", RATIONAL.read_text(), re.M)
        self.assertGreater(len(functions), 12)
        answer, _ = self.asked(f"{RATIONAL}:{branch}", 1, "--kernel", "matmul", "--dtype", "float64")
        self.assertIn("another answer than at a generic point", answer["text"])

        def judged(function):
            kernel = next(k for k in kernels if function.startswith(k))
            answer, text = self.asked(f"{RATIONAL}:{function}", 1 if function in wrong else 0, "--kernel", kernel, "--dtype", "float64")
            self.assertEqual(answer["answer"], "DIFFERENT" if function in wrong else "IDENTICAL", function)
            if function in wrong:
                self.assertRegex(text, rf"over GF\(2\^61-1\), {wrong[function]}\(")

        by_two(judged, sorted(set(functions) - {branch}))

    @unittest.skipUnless(MUTANTS.is_file(), "the handed-out functions are not beside this checkout")
    def test_mutants(self):
        """Protects against a wrong kernel: every fault of the algebra is DIFFERENT by this alone, with its output named and a witness in floats."""
        def judged(mutant):
            answer, text = self.asked(f"{MUTANTS}:mutant_{mutant}", 1, "--dtype", "float64")
            self.assertRegex(answer["text"], rf"over GF\(2\^61-1\), {ALGEBRAIC[mutant]}\(")
            self.assertIn("replay", text)

        by_two(judged, ALGEBRAIC)
        controls = re.findall(r"^def (correct_\w+)", MUTANTS.read_text(), re.M)
        by_two(lambda control: self.asked(f"{MUTANTS}:{control}", 0, "--dtype", "float64"), controls)

    def test_witness_replays(self):
        """Protects the author: the float call that shows the fault is kept, and shows it again."""
        answer, _ = self.asked("wrong_dk_lacks_denominator", 1)
        self.assertEqual(run("replay", answer["identity"]["witness"]["fixture"]).returncode, 1)

    def test_compiled(self):
        """Protects forms that are compiled: what torch.compile was given is judged as it stands."""
        self.asked(f"{ROOT / 'tests' / 'outside' / 'compiled.py'}:matmul", 0, "--kernel", "matmul", "--dtype", "float64")

    def test_other_branches(self):
        """Protects against a form that is right where a generic point's comparisons lead, and not elsewhere."""
        for function in ("negative_doubled", "elsewhere"):
            answer, _ = self.asked(f"{OWN}:{function}", 1, "--kernel", "linear_attention", "--dtype", "float64")
            self.assertIn("another answer than at a generic point", answer["text"])

    def test_not_algebraic(self):
        """Protects from more being claimed than was seen: the operation is named with its place, forward and backward."""
        for function, words in {"exponential": "aten::exp at unalgebraic.py:33 in exponential", "in_backward": "aten::tanh at unalgebraic.py:",
                                "catches": "aten::round"}.items():
            answer, text = self.asked(f"{OWN}:{function}", 2, "--kernel", "linear_attention")
            self.assertEqual(answer["answer"], "NOT ALGEBRAIC")
            self.assertIn(words, text)

    def test_below_rounding(self):
        """Protects the rule that DIFFERENT takes a float witness: another algebra that no float shows is UNDECIDED."""
        answer, text = self.asked(f"{OWN}:below_rounding", 2, "--kernel", "linear_attention")
        self.assertEqual(answer["answer"], "UNDECIDED")
        self.assertIn("no float call was found that shows it", text)

    def test_verdict(self):
        """Protects the whole verdict: a form that is not algebraic is judged by the other properties, and the report has the audit."""
        with tempfile.TemporaryDirectory() as folder:
            done = run("--candidate", f"{OWN}:exponential", "--kernel", "linear_attention", "--preset", "smoke", "--report", folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"identity +NOT ALGEBRAIC")
            self.assertIn("aten::exp at unalgebraic.py:33 in exponential", (pathlib.Path(folder) / "report.md").read_text())

    def test_bad_usage(self):
        """Protects the user from an answer to another question."""
        for arguments, words in (((("identity", "chunked_ce")), "no rational function"), (("identity", "nothing_like_it"), "unknown form"),
                                 (("--candidate", f"{RATIONAL}:matmul_einsum", "--kernel", "matmul"), "identity FORM --kernel matmul"),
                                 (("battery", RATIONAL, "--kernel", "matmul"), "identity")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
