"""What ./fractus-verify found, as its JSON says it."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Witness:
    """The smallest input that shows the fault, and what came of it at its worst element."""

    property: str
    case: dict[str, Any]  # dims, dtype, fill, seed, ...: what was drawn, after shrinking
    text: str  # the fact, in one sentence
    broken: bool  # a crash, an exception or a broken clause, rather than a number
    tensor: str
    index: tuple[int, ...]  # of the worst element; empty where no number differs
    expected: float
    got: float
    radius: float  # how well `expected` is known
    tolerance: float  # what a correct kernel may miss it by
    fixture: str  # the file that holds the case; empty where it could not be written
    replay: str  # the command that shows it again


@dataclass(frozen=True)
class Property:
    """One of the plan's checks."""

    name: str
    proves: str
    verdict: str  # PASSED, DIFFERENT, FAILED, UNDECIDED, WAIVED, NOT ALGEBRAIC, NOT RUN
    planned: int
    cases: int
    elements: int
    undecidable: int
    worst_ratio: float  # the largest error, over its bound
    reason: str
    seconds: float
    witness: Witness | None


@dataclass(frozen=True)
class Mutants:
    """The known-wrong forms that went through the same plan."""

    measured: bool
    killed: int
    total: int
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A verdict. It is true as a condition where it is EQUIVALENT, and only there: UNDECIDED is not a yes."""

    verdict: str  # EQUIVALENT, DIFFERENT, UNDECIDED, MISTRUSTED or FAILED
    reasons: tuple[str, ...]
    kernel: str
    candidate: str
    plan_hash: str
    seed: int
    preset: str
    dtypes: tuple[str, ...]
    partial: bool
    waived: tuple[str, ...]
    seconds: float
    properties: tuple[Property, ...]
    mutants: Mutants
    text: str  # what the command printed
    json: dict[str, Any] = field(repr=False)  # all of it

    @property
    def equivalent(self) -> bool:
        return self.verdict == "EQUIVALENT"

    @property
    def witness(self) -> Witness | None:
        """Of the first property that broke."""
        return next((p.witness for p in self.properties if p.witness), None)

    @property
    def message(self) -> str:
        """The text below the table of properties: each witness or reason, and the verdict."""
        return self.text.split("\n\n", 2)[-1].rstrip("\n")

    def __bool__(self) -> bool:
        return self.equivalent

    def __str__(self) -> str:
        return self.text.rstrip("\n")


def result_from(json: dict[str, Any], text: str, program: str) -> Result:
    """`program` is how the command is called from here."""
    mutants = json["mutants"]
    return Result(verdict=json["verdict"], reasons=tuple(json["reasons"]), kernel=json["kernel"], candidate=json["candidate"],
                  plan_hash=json["plan_hash"], seed=json["seed"], preset=json["preset"], dtypes=tuple(json["dtypes"]),
                  partial=json["partial"], waived=tuple(json["waived"]), seconds=json["seconds"],
                  properties=tuple(_property(p, program) for p in json["properties"]),
                  mutants=Mutants(mutants["measured"], mutants["killed"], mutants["total"], tuple(mutants["survivors"])),
                  text=_called_from_here(text, program), json=json)


def _property(json: dict[str, Any], program: str) -> Property:
    # A number that is none is written as its name: "nan", "inf".
    return Property(json["name"], json["proves"], json["verdict"], json["planned"], json["cases"], json["elements"],
                    json["undecidable"], float(json["worst_ratio"]), json["reason"], json["seconds"],
                    _witness(json, program) if "witness" in json else None)


def _witness(json: dict[str, Any], program: str) -> Witness:
    witness, finding = json["witness"], json["finding"]
    return Witness(json["name"], witness["smallest"], finding["text"], finding["broken"], finding["tensor"], tuple(finding["index"]),
                   float(finding["expected"]), float(finding["got"]), float(finding["radius"]), float(finding["tolerance"]),
                   witness["fixture"], _called_from_here(witness["replay"], program))


def _called_from_here(text: str, program: str) -> str:
    """A replay is printed as for somebody who stands in the checkout."""
    return text.replace("./fractus-verify replay ", f"{program} replay ")
