"""Guesses from the names of a C function and of its parameters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gradcheck.implementations.manifest.operation import Parameter, Prototype
from gradcheck.spec.operator import CORE, OpSpec


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


BACKWARD: Final = _set("backward bwd back bw grad grads gradient vjp backprop bprop")
FORWARD: Final = _set("forward fwd fw fprop")
NOISE: Final = _set(
    "f f16 f32 f64 fp16 bf16 fp32 fp64 float double float32 float64 half cpu kernel naive "
    "impl op ref inplace"
)
OPERATORS: Final = {
    "swish": "silu", "residual": "add", "embedding": "get_rows", "embed": "get_rows",
    "lookup": "get_rows", "linear": "matmul", "dense": "matmul", "fc": "matmul",
    "mse": "square_error", "bce": "binary_cross_entropy", "xent": "softmax_cross_entropy",
    "softmaxxent": "softmax_cross_entropy", "crossentropysoftmax": "softmax_cross_entropy",
    "kldiv": "kl_divergence", "maxpool": "max_pool_2d", "avgpool": "avg_pool_2d",
}  # fmt: skip
"""Other names of operators, without underscores."""
OUTPUTS: Final = _set("out output outputs y o z dst dest res result top loss losses out_data ret")
COTANGENTS: Final = _set("ct cotangent upstream delta g gy go dz")
PRIMALS: Final = {
    "x": "inp input in src a data h hidden act bottom inp1 x1",
    "w": "weight weights gamma kernel filter wt scale",
    "b": "bias biases beta",
    "y": "b other rhs target inp2 x2",
    "q": "query", "k": "key", "v": "value",
    "logits": "x inp input acts scores", "targets": "target labels label tgt ids y t",
    "tokens": "ids idx indices inp input", "rows": "ids idx index indices tokens inp",
    "index": "idx indices ids", "p": "probs prob pred", "gate": "h1 a", "up": "h3 b",
    "wte": "weight table emb", "mask": "keep",
}  # fmt: skip
"""Other names of primals."""
ATTRIBUTES: Final = {
    "eps": "epsilon", "negative_slope": "slope alpha leak", "heads": "nh n_head n_heads num_heads",
    "ignore_index": "ignore ignored", "smoothing": "label_smoothing", "groups": "n_groups g",
    "base": "theta freq_base", "offset": "pos start", "cap": "softcap limit", "p": "prob rate",
}  # fmt: skip
AXES: Final = {
    "o": "oc out_features out_dim n_out", "i": "c ic in_features in_dim n_in k",
    "v": "vocab vocab_size", "c": "channels embd n_embd d dim", "t": "seq seq_len seqlen n_tokens",
    "h": "nh heads n_heads num_heads", "d": "head_dim hs hd",
}  # fmt: skip
"""Other names of axes, by the letter that signatures have for them."""
_RSTD = "rstd inv_std invstd inv_rms rms_inv rrms scale"
_OF_SQUARES = "mean(x * x, -1)"
RESIDUALS: Final = {
    "rms_norm": {_RSTD: f"1 / sqrt({_OF_SQUARES} + eps)", "rms": f"sqrt({_OF_SQUARES} + eps)"},
    "layer_norm": {
        "mean mu": "mean(x, -1)",
        _RSTD: f"1 / sqrt({_OF_SQUARES} - mean(x, -1) ** 2 + eps)",
    },
}
"""Residuals that forwards usually save per row, as expressions of the primals."""
COUNTS: Final = _set("n size len length count numel total num n_elem ne0 elements")
ROWS: Final = _set("n m r b t bt nt rows n_rows nrows num_rows batch tokens seq outer")
COLUMNS: Final = _set(
    "d c v h k n cols ncols n_cols columns dim dims hidden channels features vocab width size "
    "inner hidden_size vocab_size"
)


@dataclass(frozen=True, slots=True)
class NamedOperator:
    """The operator that a function's name suggests, and which of its functions it is."""

    operator: str
    backward: bool
    rest: tuple[str, ...] = ()
    """Words that say neither: perhaps a dialect."""


def operator_of(symbol: str, operators: Collection[str]) -> NamedOperator | None:
    """The operator that a function's name suggests; None where it suggests none.

    >>> operator_of("my_rmsnorm_backward_f32", ["rms_norm"])
    NamedOperator(operator='rms_norm', backward=True, rest=('my',))
    """
    words = _words(symbol)
    backward = any(word in BACKWARD for word in words)
    core = [word for word in words if word not in BACKWARD | FORWARD | NOISE]
    known = {**_other_names(operators), **{name.replace("_", ""): name for name in operators}}
    runs = [core[i:j] for i in range(len(core)) for j in range(len(core), i, -1)]
    for run in sorted(runs, key=len, reverse=True):
        if "".join(run) in known:
            rest = tuple(word for word in core if word not in run)
            return NamedOperator(known["".join(run)], backward, rest)
    near = difflib.get_close_matches("".join(core), known, n=1, cutoff=0.85)
    return NamedOperator(known[near[0]], backward) if near else None


def _other_names(operators: Collection[str]) -> dict[str, str]:
    return {short: name for short, name in OPERATORS.items() if name in operators}


def _words(symbol: str) -> list[str]:
    """rmsNormBackward, RMSNorm_backward and rmsnormbackward: their words in lower case."""
    text = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3_\2", symbol).lower()
    found: list[str] = []
    for word in filter(None, text.split("_")):
        end = next((e for e in sorted(BACKWARD | FORWARD, key=len, reverse=True)
                    if len(e) > 2 and word.endswith(e) and word != e), "")  # fmt: skip
        found += [word.removesuffix(end), end] if end else [word]
    return found


@dataclass(frozen=True, slots=True)
class Guess:
    """A guess, and whether it hardly needs to be confirmed."""

    text: str
    sure: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A function that is taken to be one of an operator's, whose parameters are to be guessed.

    `indices` are the operator's primals that are whole numbers, `saved` the residuals that the
    function's forward leaves.
    """

    spec: OpSpec
    prototype: Prototype
    backward: bool
    indices: frozenset[str]
    dialect: str = ""
    saved: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The operator, or operator/dialect."""
        return f"{self.spec.name}/{self.dialect}" if self.dialect else self.spec.name

    @property
    def key(self) -> tuple[str, str]:
        """Operator (with its dialect) and dtype."""
        return self.name, dtype_of(self.prototype)

    @property
    def floats(self) -> list[str]:
        absent = self.spec.dialect(self.dialect).without if self.dialect else ()
        return [n for n in self.spec.primals if n not in self.indices and n not in absent]

    @property
    def elements(self) -> tuple[str, ...]:
        """The C types of tensors: 16-bit integers may be floats, where there are no others."""
        bases = {p.ctype.base for p in self.prototype.parameters if p.ctype.pointer}
        return ("float32", "float64") if bases & {"float32", "float64"} else ("uint16",)

    @property
    def by_rows(self) -> bool:
        """Whether it treats its first primal row by row."""
        return self.spec.core_ranks[0] == 1


def parameters_of(asked: Candidate) -> dict[str, Guess | None]:
    """The likely meaning of each parameter, in the words of `bind`; None without a guess."""
    found: dict[str, Guess | None] = {}
    for parameter in asked.prototype.parameters:
        if parameter.ctype.pointer:
            found[parameter.name] = _pointer(parameter, asked)
    _fill(found, asked)
    sizes = [p for p in asked.prototype.parameters if not p.ctype.pointer]
    for parameter in sizes:
        found[parameter.name] = _scalar(parameter, sizes, asked)
    return {p.name: found[p.name] for p in asked.prototype.parameters}


def _pointer(parameter: Parameter, asked: Candidate) -> Guess | None:
    name, ctype = _plain(parameter.name), parameter.ctype
    if ctype.base == "char":
        return _text(name, asked)
    if ctype.base == "void" and name in ("stream", "queue", "reserved"):
        return Guess("unused", sure=False)
    if ctype.base not in (*asked.elements, "void", "opaque"):
        return _whole_numbers(name, asked)
    base = _gradient(name)
    if asked.backward and base is not None:
        cotangent = base in OUTPUTS or not base or name in COTANGENTS
        primal = _primal(base, asked.floats)
        if cotangent and (ctype.const or primal is None or _is_cotangent(parameter, asked)):
            return Guess("cotangent")
        if primal is not None and not ctype.const:
            return Guess(f"grad:{primal}", sure=base == primal)
    primal = _primal(name, asked.floats)
    if primal is not None and (ctype.const or asked.backward or name not in OUTPUTS):
        return Guess(f"in:{primal}", sure=name == primal)
    if name in OUTPUTS and (ctype.const == asked.backward or not asked.backward):
        return Guess("out")
    if asked.backward and residual_of(asked.spec, name):
        return _residual(parameter, asked)
    if parameter.name in asked.saved or (not asked.backward and not ctype.const and name):
        return _residual(parameter, asked)
    return None


def _is_cotangent(parameter: Parameter, asked: Candidate) -> bool:
    """Whether `dy` is the cotangent though y is a primal: nothing else is, and nothing is const."""
    others = [p for p in asked.prototype.parameters if p.ctype.pointer and p is not parameter]
    names = ((_gradient(_plain(p.name)), _plain(p.name)) for p in others)
    taken = any(base in OUTPUTS or name in COTANGENTS for base, name in names)
    return not taken and not any(p.ctype.const for p in others)


def _residual(parameter: Parameter, asked: Candidate) -> Guess | None:
    if not asked.by_rows:
        return None
    return Guess(f"saved:{parameter.name}[rows({asked.spec.primals[0]})]", sure=False)


def residual_of(spec: OpSpec, name: str) -> str:
    """The expression of what a forward usually saves under this name; empty for another name."""
    for names, text in RESIDUALS.get(spec.name, {}).items():
        if _plain(name) in names.split():
            return text
    return ""


def _fill(found: dict[str, Guess | None], asked: Candidate) -> None:
    """The one parameter that is left is the one primal, gradient or cotangent that is left."""
    if not asked.backward:
        return
    const = {p.name: p.ctype.const for p in asked.prototype.parameters
             if p.ctype.base in asked.elements}  # fmt: skip
    have = {guess.text for guess in found.values() if guess is not None}
    needed = [name for name in asked.floats if name not in asked.spec.optional]
    grads = [name for name in needed if f"grad:{name}" not in have]
    inputs = [name for name in needed if f"in:{name}" not in have]
    left = [name for name, guess in found.items() if guess is None and name in const]
    written = [name for name in left if not const[name]]
    read = [name for name in left if const[name]]
    if len(grads) == 1 and len(written) == 1:
        found[written[0]] = Guess(f"grad:{grads[0]}", sure=False)
    if len(read) == 1 and "cotangent" not in have:
        found[read[0]] = Guess("cotangent", sure=False)
    elif len(read) == 1 and len(inputs) == 1:
        found[read[0]] = Guess(f"in:{inputs[0]}", sure=False)
    _in_place(found, asked)


def _in_place(found: dict[str, Guess | None], asked: Candidate) -> None:
    """Where no parameter is the cotangent, the one gradient begins as it."""
    texts = {name: guess.text for name, guess in found.items() if guess is not None}
    grads = [name for name, text in texts.items() if text.startswith("grad:")]
    if "cotangent" not in texts.values() and len(grads) == 1 and not _is_loss(asked.spec):
        found[grads[0]] = Guess(f"cotangent -> {texts[grads[0]]}", sure=False)


def _is_loss(spec: OpSpec) -> bool:
    """Whether the output is a number for every row, or one: often no cotangent is passed."""
    right = CORE.findall(spec.signature.partition("->")[2])
    return any(spec.core_ranks) and all(len(core.split(",")) < 2 and core.strip() in ("", "t")
                                        for core in right)  # fmt: skip


def _text(name: str, asked: Candidate) -> Guess | None:
    texts = [n for n, value in asked.spec.defaults.items() if isinstance(value, str)]
    if name in texts:
        return Guess(name)
    return Guess(texts[0], sure=False) if len(texts) == 1 else None


def _whole_numbers(name: str, asked: Candidate) -> Guess | None:
    index = _primal(name, asked.indices)
    if index is not None:
        return Guess(f"in:{index}", sure=name == index)
    first = asked.spec.primals[0]
    if name in ("ne", "dims", "shape", "sizes", "ne0"):
        reverse = name.startswith("ne")
        return Guess(f"reversed(dims({first}))" if reverse else f"dims({first})", sure=False)
    if len(asked.indices) == 1:
        return Guess(f"in:{next(iter(asked.indices))}", sure=False)
    return None


def _gradient(name: str) -> str | None:
    """The name whose gradient a name is: "x" for dx, d_x, grad_x, x_grad; "" for grad."""
    if name in COTANGENTS or name in BACKWARD:
        return ""
    for pattern in (r"(?:grad|g)_(\w+)", r"grad(\w+)", r"(\w+)_(?:grad|diff|d|bar)", r"d_?(\w+)"):
        found = re.fullmatch(pattern, name)
        if found:
            return found[1]
    return None


def _primal(name: str, primals: Collection[str]) -> str | None:
    """The primal that a name means, by its own name or a usual alternative."""
    if name in primals:
        return name
    for primal in primals:
        if name in PRIMALS.get(primal, "").split():
            return primal
    return None


def _plain(name: str) -> str:
    """`gradOutput`, `p_dx`, `x_ptr`: the word itself, in lower case."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_")
    return text.removeprefix("p_").removesuffix("_ptr").removesuffix("_data")


# ── scalars ──────────────────────────────────────────────────────────────────────────────────


def _scalar(parameter: Parameter, sizes: list[Parameter], asked: Candidate) -> Guess | None:
    name = _plain(parameter.name)
    attribute = _attribute(name, asked.spec)
    if attribute is not None:
        return attribute
    if parameter.ctype.base in ("float32", "float64", "bool"):
        scalars = [n for n, rank in zip(asked.spec.primals, asked.spec.core_ranks, strict=True)
                   if name == n and rank == 0]  # fmt: skip
        return Guess(f"item({scalars[0]})", sure=False) if scalars else None
    whole = [p.name for p in sizes if p.ctype.base not in ("float32", "float64", "bool")
             and _attribute(_plain(p.name), asked.spec) is None]  # fmt: skip
    return _size(name, whole.index(parameter.name), len(whole), asked)


def _attribute(name: str, spec: OpSpec) -> Guess | None:
    if name in spec.defaults:
        return Guess(name)
    for attribute, others in ATTRIBUTES.items():
        if attribute in spec.defaults and name in others.split():
            return Guess(attribute, sure=False)
    return None


def _size(name: str, place: int, count: int, asked: Candidate) -> Guess | None:
    """A size: of an element-wise operator all elements, else rows, columns or a named axis."""
    first, rank = asked.spec.primals[0], asked.spec.core_ranks[0]
    if rank == 0:
        known = name in COUNTS
        return Guess(f"size({first})", sure=known and count == 1) if known or count == 1 else None
    axis = _axis(name, asked.spec)
    ids = [n for n in asked.spec.primals if n in asked.indices]
    if ids and rank == 2 and name in COUNTS and axis is None:
        return Guess(f"size({ids[0]})", sure=False)
    if rank == 1:
        last, rows = f"dim({first}, -1)", f"rows({first})"
        if count == 1:
            return Guess(last, sure=False)
        if count == 2:
            sure = name in (ROWS if place == 0 else COLUMNS)
            swapped = name in (COLUMNS if place == 0 else ROWS) and not sure
            sure = sure or name in ("rows", "cols")
            return Guess(last if (place == 1) != swapped else rows, sure=sure)
        if count == 3 and axis is None:
            return Guess({0: "1", 1: rows, 2: last}[place], sure=False)
    if axis is not None:
        return Guess(axis, sure=False)
    if rank == 2 and name in ("rows", "n_rows", "nrows", "m", "bt", "nt"):
        return Guess(f"rows({first})", sure=False)
    if name in ("b", "batch", "n", "bs") and place == 0 and rank > 1:
        if ids:
            return Guess(f"rows({ids[0]})", sure=False)
        core = " * ".join(f"dim({first}, {i})" for i in range(-rank, 0))
        return Guess(f"size({first}) // max({core}, 1)", sure=False)
    return None


def _axis(name: str, spec: OpSpec) -> str | None:
    """The axis of a primal that the operator's signature calls by this letter, or a word for it."""
    left = spec.signature.partition("->")[0]
    for word in (name, *(letter for letter, others in AXES.items() if name in others.split())):
        for primal, core in zip(spec.primals, CORE.findall(left), strict=True):
            letters = [letter.strip() for letter in core.split(",") if letter.strip()]
            if word in letters:
                return f"dim({primal}, {letters.index(word) - len(letters)})"
    return None


def dtype_of(prototype: Prototype) -> str:
    """The dtype of its first tensor, as far as its type says it."""
    bases = (p.ctype.base for p in prototype.parameters if p.ctype.pointer)
    return next((base for base in bases if base in ("float32", "float64")), "")


def lacking(spec: OpSpec, guesses: Mapping[str, Guess | None]) -> Iterator[str]:
    """Attributes that no parameter is: they may be fixed in the code at another value."""
    said = {guess.text for guess in guesses.values() if guess is not None}
    return (name for name in spec.defaults if name not in said)


def required(spec: OpSpec, guesses: Mapping[str, Guess | None]) -> str:
    """The condition under which the sizes that a function takes are all that there are, or "".

    A function of rows that takes their length alone does one row a call.
    """
    first = spec.primals[0]
    said = [guess.text for guess in guesses.values() if guess is not None]
    axes = [text for text in said if text.startswith("dim(")]
    if not axes or any(text.startswith(("size(", "rows(", "reversed(", "dims(")) for text in said):
        return ""
    own = [text for text in axes if text.startswith(f"dim({first},")]
    return f"size({first}) == {' * '.join(dict.fromkeys(own))}" if own else ""
