"""Views of a result, shards put together, and the schema, by the command line and by other readers of the formats. Each
test says what it protects.

It needs junitparser, markdown-it-py and jsonschema, so it is run by .venv's Python."""
import copy
import html.parser
import json
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import jsonschema
import junitparser
from markdown_it import MarkdownIt

from cli_test import ROOT, run

SMOKE = ("--kernel", "moe_gate", "--preset", "smoke", "--dtype", "float32")
SCHEMA = json.loads((ROOT / "docs" / "result.schema.json").read_text())
HOSTILE = ["<script>alert(1)</script>", "<img src=http://x.invalid/y onerror=z>", "a | b", "![x](http://x.invalid/i.png)", "[l](http://x.invalid)",
           "https://x.invalid/", "`code` ``", "**bold** __it__ ~~no~~", "# heading", "1. one", "- item", "&lt;b&gt;", "@all", "</details>", "]]>",
           "\x1b[31m", "--- | ---", "'\"quoted"]


def closed(schema):
    """The schema where a member that it does not name is an error."""
    if isinstance(schema, dict):
        schema = {key: closed(value) for key, value in schema.items()}
        if "properties" in schema and "type" in schema and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
    elif isinstance(schema, list):
        schema = [closed(item) for item in schema]
    return schema


def faults(result, schema=SCHEMA):
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(result)]


class Page(html.parser.HTMLParser):
    """A page read as strictly as its grammar is: every tag closed in its order, and what it would fetch or run."""

    VOID = {"meta", "br", "wbr", "img", "link", "input", "hr"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.faults, self.text = [], set(), [], ""
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append(f"not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        names = [name for name, _ in attributes]
        if len(names) != len(set(names)):
            self.faults.append(f"{tag} has an attribute twice")
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action", "data", "poster", "background") or name.startswith("on"):
                self.faults.append(f"{tag} has {name}={value}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> where it does not belong")

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "style" and ("url(" in data or "@import" in data):
            self.faults.append("the style fetches something")


def hostile(result, text):
    """The result with the text wherever a candidate or its author may have put it."""
    result = copy.deepcopy(result)
    result["candidate"] = result["summary"] = text
    result["reasons"] = [text]
    result["complaints"] = [text]
    result["candidate_output"] = text + "\n" + text
    result["machine"]["cpu"] = text
    result["shared_edges"] = {text: text}
    for p in result["properties"]:
        p["notes"], p["reason"] = [text], text
    p = result["properties"][0]
    case = {"kernel": text, "property": text, "variant": text, "dtype": "float32", "dims": {text: 3}, "fill": text, "seed": 1, "absent": [text],
            "frozen": [], "cotangents": [text], "pieces": [], "settings": {text: 1}, "layouts": {}}
    p["finding"] = {"kind": "value", "tensor": text, "text": text, "broken": False, "waiver": "", "index": [1], "expected": 1, "radius": 0,
                    "tolerance": 0, "got": "nan"}
    p["witness"] = {"found": case, "smallest": case, "shrink_steps": 1, "fixture": text, "replay": text}
    p["histograms"][text], p["held"] = [1] * 13, [{"series": text, "symbol": text, "extent": e, "bytes": e, "allowed": None} for e in (1, 2)]
    for kill in result["mutants"]["table"]:
        kill["name"] = kill["summary"] = kill["case"] = kill["tensor"] = text
    if result["mutants"]["measured"]:
        result["mutants"]["survivors"] = [k["name"] for k in result["mutants"]["table"] if not k["killed"]]
    return result


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.whole = cls.judged("whole", "--candidate", "gate_cosine", status=0)
        cls.wrong = cls.judged("wrong", "--candidate", "wrong_weights_reversed", status=1)
        cls.held = cls.judged("held", "--candidate", "gate_cosine", "--reference", "gate_rotated", "--only", "rounding,memory", status=2)

    @classmethod
    def judged(cls, name, *arguments, status):
        done = run(*SMOKE, *arguments, "--report", cls.folder / name)
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads((cls.folder / name / "report.json").read_text())

    def rendered(self, file, kind, status=0):
        done = run("report", "render", file, "--as", kind)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def stored(self, result, name="given.json"):
        path = self.folder / name
        path.write_text(json.dumps(result))
        return path


class Views(Reports):
    def test_stored_result_gives_the_same_pages(self):
        """Protects: a page made later from the numbers says what the page of the run said."""
        for name in ("whole", "wrong", "held"):
            for kind, file in (("md", "report.md"), ("html", "report.html"), ("junit", "junit.xml"), ("json", "report.json")):
                self.assertEqual(self.rendered(self.folder / name / "report.json", kind), (self.folder / name / file).read_text(), (name, kind))
        out = self.folder / "out.html"
        self.assertEqual(run("report", "render", self.folder / "whole" / "report.json", "--as", "html", "-o", out).returncode, 0)
        self.assertEqual(out.read_text(), (self.folder / "whole" / "report.html").read_text())

    def test_schema(self):
        """Protects readers that are not ours: each result is what the schema says, and the schema says all of it."""
        for result in (self.whole, self.wrong, self.held):
            self.assertEqual(faults(result), [])
            self.assertEqual(faults(result, closed(SCHEMA)), [])
        for member in SCHEMA["required"]:
            self.assertNotEqual(faults({k: v for k, v in self.whole.items() if k != member}), [], member)
        for member, value in (("verdict", "FINE"), ("seed", -1), ("properties", {}), ("format", "fractus-verify result 2")):
            self.assertNotEqual(faults({**self.whole, member: value}), [], member)
        self.assertNotEqual(faults({**self.whole, "later": 1}, closed(SCHEMA)), [])

    def test_junit(self):
        """Protects the pipeline, by a reader that is not ours."""
        for name, bad in (("whole", 0), ("wrong", 1), ("held", 1)):
            suites = junitparser.JUnitXml.fromfile(str(self.folder / name / "junit.xml"))
            cases = [case for suite in suites for case in suite]
            self.assertEqual(suites.tests, len(cases))
            red = [case for case in cases if any(isinstance(r, (junitparser.Failure, junitparser.Error)) for r in case.result)]
            self.assertEqual(suites.failures + suites.errors, len(red))
            self.assertEqual(bool(red), bool(bad), name)
            self.assertLessEqual({"verdict", "rounding"}, {suite.name for suite in suites})

    def test_markdown(self):
        """Protects the merge request: tables are tables, and the verdict is the first line."""
        for name, result in (("whole", self.whole), ("wrong", self.wrong), ("held", self.held)):
            page = (self.folder / name / "report.md").read_text()
            self.assertLess(len(page.encode()), 60_001)
            self.assertTrue(page.startswith(f"# {result['verdict']}: moe_gate `"))
            tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)
            kinds = [token.type for token in tokens]
            self.assertEqual(kinds.count("table_open"), page.count("\n|---"))
            self.assertGreaterEqual(kinds.count("table_open"), 4)
            # Nothing of a table's rows was left over as text: each line that begins with a bar became a row.
            self.assertEqual(kinds.count("tr_open"), sum(line.startswith("|") and not line.startswith("|---") for line in page.splitlines()))
            rows = [i for i, kind in enumerate(kinds) if kind == "tr_open"]
            self.assertGreater(len(rows), len(result["mutants"]["table"]))
            for word in ("What was proven", "Worst error over bound", "Coverage", "Not covered", "How to repeat it"):
                self.assertIn(word, page)

    def test_html(self):
        """Protects who opens the page: it fetches and runs nothing, and its tags close."""
        for name in ("whole", "wrong", "held"):
            page = Page((self.folder / name / "report.html").read_text())
            self.assertEqual(page.faults, [])
            self.assertLessEqual({"svg", "table", "style"}, page.tags)
            self.assertFalse(page.tags & {"script", "img", "link", "iframe", "object", "base", "form"})
        self.assertNotEqual(Page("<p><b>x</p></b>").faults, [])  # the reader can fail
        self.assertNotEqual(Page("<a href=x></a>").faults, [])
        self.assertNotEqual(Page("<table>").faults, [])

    def test_hostile_text(self):
        """Protects every page from what a candidate calls itself, says, or had written into its result."""
        markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        plain_kinds = {t.type for t in markdown.parse((self.folder / "wrong" / "report.md").read_text())}
        for text in HOSTILE:
            path = self.stored(hostile(self.wrong, text))
            page = Page(self.rendered(path, "html"))
            self.assertEqual(page.faults, [], text)
            self.assertFalse(page.tags & {"script", "img", "a", "u"}, text)
            self.assertIn(text.replace("\x1b", "\\x1b"), page.text)
            suites = xml.etree.ElementTree.fromstring(self.rendered(path, "junit"))
            self.assertIn(text.replace("\x1b", "\\x1b"), suites.find(".//failure").get("message"))
            shown = self.rendered(path, "md")
            tokens = markdown.parse(shown)
            inline = {child.type for token in tokens for child in token.children or []}
            self.assertLessEqual({token.type for token in tokens} - plain_kinds, {"code_block"}, text)
            self.assertFalse(inline & {"link_open", "image", "html_inline", "s_open", "em_open"}, (text, inline))
            blocks = {token.content.strip().split("\n")[0] for token in tokens if token.type == "html_block"}
            self.assertLessEqual(blocks, {"<details>", "</details>"}, text)
            self.assertNotIn("\x1b", shown + self.rendered(path, "text"))

    def test_what_is_no_result(self):
        """Protects: an error names the file and what is wrong in it, with the status of bad usage."""
        for given, words in (({**self.whole, "format": "fractus-verify result 9"}, "format: wanted 'fractus-verify result 1'"),
                             ({k: v for k, v in self.whole.items() if k != "lines"}, "lines: the member is missing"),
                             ([], "wanted a result"), ({**self.whole, "partial": "no"}, "partial: wanted true or false")):
            done = run("report", "render", self.stored(given), "--as", "md")
            self.assertEqual((done.returncode, done.stdout), (64, ""), done.stderr)
            self.assertIn("given.json", done.stderr)
            self.assertIn(words, done.stderr)
        self.assertEqual(run("report", "render", self.folder / "whole" / "report.md", "--as", "md").returncode, 64)
        self.assertEqual(run("report", "render", self.folder / "none", "--as", "md").returncode, 64)
        self.assertEqual(run("report", "render", self.folder / "whole" / "report.json", "--as", "pdf").returncode, 64)
        self.assertEqual(run("report").returncode, 64)


class Merge(Reports):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.a = cls.judged("a", "--candidate", "gate_cosine", "--only", "contract,domain,choices,power", status=2)
        cls.b = cls.judged("b", "--candidate", "gate_cosine", "--skip", "domain,choices", status=2)

    def merged(self, *names):
        return run("report", "merge", *(self.folder / name / "report.json" for name in names), "--json", self.folder / "m.json", "--report",
                   self.folder / "m")

    def test_shards_are_parts_of_the_whole(self):
        self.assertEqual({self.whole["plan_hash"]}, {r["plan_of"] for r in (self.whole, self.a, self.b)})
        self.assertIn("partial: domain, choices was left out", self.b["reasons"][0])
        self.assertEqual(self.b["left_out"], ["domain", "choices"])

    def test_two_shards_are_the_whole_run(self):
        """Protects a matrix of jobs: what they find together is what one job would have found. Both have contract, which sees most
        known-wrong forms early; its classes of cases count twice, so coverage is compared by name."""
        done = self.merged("a", "b")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        together = json.loads((self.folder / "m.json").read_text())
        self.assertEqual(faults(together, closed(SCHEMA)), [])
        self.assertEqual(together["shards"], [self.a["plan_hash"], self.b["plan_hash"]])
        for member in ("verdict", "reasons", "plan_hash", "partial", "largest", "known_good", "left_out", "lines"):
            self.assertEqual(together[member], self.whole[member], member)
        self.assertEqual(together["coverage"].keys(), self.whole["coverage"].keys())
        self.assertEqual({k["name"] for k in together["mutants"]["table"]}, {k["name"] for k in self.whole["mutants"]["table"]})
        self.assertEqual(together["mutants"]["killed"], self.whole["mutants"]["total"])
        for its, other in zip(together["properties"], self.whole["properties"], strict=True):
            for member in ("name", "verdict", "cases", "planned", "elements", "undecidable", "histograms"):
                self.assertEqual(its[member], other[member], (its["name"], member))
        for file in ("report.md", "report.html", "junit.xml", "report.json"):
            self.assertTrue((self.folder / "m" / file).exists())

    def test_a_part_alone_stays_partial(self):
        done = self.merged("a")
        self.assertEqual(done.returncode, 2)
        self.assertIn("partial: no shard has repeat, rounding, gradients, memory", done.stdout)

    def test_what_does_not_fit_is_refused(self):
        """Protects: both values are named, and nothing is written."""
        self.judged("other", "--candidate", "gate_cosine", "--only", "rounding,power", "--seed", 5, status=2)
        (self.folder / "m.json").unlink(missing_ok=True)
        done = self.merged("a", "other")
        self.assertEqual((done.returncode, done.stdout), (64, ""))
        self.assertRegex(done.stderr, r"seed: 1 in \S+a/report.json, 5 in \S+other/report.json")
        self.assertFalse((self.folder / "m.json").exists())
        done = self.merged("a", "wrong")
        self.assertEqual(done.returncode, 64)
        self.assertIn("not results of different candidates", done.stderr)

    def test_skip(self):
        """Protects: what is left out is named, spelled right, and something is left."""
        for words, *arguments in (("did you mean rounding", "--skip", "roundin"), ("'choices' is given twice", "--skip", "choices,choices"),
                                  ("leaves no case", "--only", "choices", "--skip", "choices")):
            done = run(*SMOKE, "--candidate", "gate_cosine", *arguments)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
