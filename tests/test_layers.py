"""Imports point backwards, at the top of a module, in a function, and for type checkers alike."""

import ast
import sys
from pathlib import Path

import gradcheck_cases
import pytest

import gradcheck

ENGINE = Path(gradcheck.__file__).parent
CASES = Path(gradcheck_cases.__file__).parent

# From the bottom up; a package's own `__init__` stands under its modules.
LAYERS = (
    "gradcheck",  # holds the version; its public names load on use: it imports nothing itself
    "inert excerpt interrupts installed descriptors reading disk errors families selection",
    "draw spec_checks difference difference.arrays label spec rule",
    "config_file user_modules",
    "dtypes exact arithmetic fifty_digits program model suite loading rounding narrow",
    "highprecision highprecision.refusal highprecision.numbers highprecision.ufuncs",
    "highprecision.functions highprecision.linear highprecision.fourier highprecision.array",
    "highprecision.scipy highprecision.rebound highprecision.windows highprecision.routines",
    "highprecision.jax_primitives highprecision.jax highprecision.torch_operators",
    "highprecision.torch highprecision.frameworks highprecision.forward",
    "keyword_expression choice",
    "difference.watch",
    "difference.evaluate difference.structure difference.noise difference.ladder",
    "difference.scales difference.sparse difference.oracle difference.jacobian",
    "difference.projection difference.line",
    "difference.residuals difference.rungs",
    "verdict expectation finding",
    "required",
    "difference.drawn difference.pages difference.screen difference.truth difference.direction",
    "difference.bundle difference.abreast difference.taylor",
    "foreign foreign.ending foreign.frames foreign.script foreign.budget foreign.group",
    "foreign.witness foreign.cause",
    "foreign.child foreign.memory foreign.floats foreign.signals",
    "foreign.worker foreign.native foreign.clues",
    "manifest manifest.operation manifest.mistake manifest.schema manifest.syntax",
    "manifest.prototype",
    "manifest.expression manifest.meaning manifest.agree manifest.function manifest.declared",
    "manifest.entry manifest.read manifest.build manifest.symbols manifest.debug",
    "manifest.sanitizer",
    "manifest.vocabulary manifest.guess manifest.parameters manifest.written",
    "manifest.suggest",
    "protocol protocol.message protocol.folder protocol.levels protocol.session",
    "protocol.oneshot protocol.index",
    "workers workers.nursery workers.feed workers.pool workers.collect contract",
    "contract.determinism contract.purity contract.returned",
    "contract.loss",
    "contract.memory contract.resize",
    "binding binding.source binding.reference binding.keywords binding.into binding.tensors",
    "binding.process binding.npz binding.answers",
    "binding.native binding.native.element binding.native.layout binding.native.plan",
    "binding.native.call binding.native.fitting binding.native.memory",
    "binding.native.blame binding.native.calls binding.native.case binding.native.exchange",
    "binding.native.library",
    "binding.wire",
    "binding.handle binding.isolated",
    "binding.differentiated binding.jax_op binding.jax binding.torch_call binding.torch_op",
    "binding.torch",
    "binding.model binding.frameworks binding.recipe binding.python binding.load binding.host",
    "judge judge.heat judge.compare judge.cotangents judge.on_kinks judge.declared",
    "judge.gradient",
    "judge.probe judge.lowprecision judge.dispersion judge.impostors judge.narrowing",
    "judge.certificate",
    "judge.remainder",
    "judge.value",
    "judge.operator judge.evidence",
    "contract.asking contract.differing contract.subject contract.zero contract.subsets",
    "contract.accumulates contract.written",
    "contract.aliases contract.attributes contract.layouts contract.linear contract.form",
    "contract.owned contract.pure contract.repeatable contract.scaling contract.stateless",
    "contract.bounds contract.sizes contract.battery",
    "judge.locate judge.strike judge.projection judge.steps judge.ask_rule judge.rule",
    "judge.ask_model judge.propagated judge.tied judge.model_truth judge.stage judge.model",
    "judge.promise judge.leg judge.training",
    "protocol.broken protocol.check",
    "protocol.probe protocol.probe_oneshot",  # they judge what they ask for
    "judge.arbiter",
    "judge.beside judge.conditioning judge.function judge.low_function judge.handed",
    "judge.large",
    "judge.directional judge.pairs judge.second judge.double",
    "judge.forward_mode judge.contract",
    "power power.mutant power.mutate power.fault power.planted power.registry power.equivalence power.attack",
    "power.narrow power.narrow_model power.narrow_table",
    "power.score power.run power.rule power.contract",
    "explain explain.reach explain.evidence explain.blame explain.same explain.hypothesis",
    "explain.pattern explain.naming explain.reproduce",
    "explain.probe explain.suspicion explain.byelement explain.rules explain.rules.slots",
    "explain.quantity explain.rules.cotangent",
    "explain.rules.factor explain.rules.scale explain.rules.shares explain.rules.measures",
    "explain.rules.narrowed explain.rules.nonfinite explain.rules.unnamed_slope",
    "explain.rules.attributes explain.rules.earlier explain.rules.residual",
    "explain.rules.elsewhere explain.rules.nearest explain.rules.moves",
    "explain.rules.places explain.rules.memory",
    "explain.interrogate",
    "explain.recall explain.owed",
    "explain.shrink_domain explain.shrink_candidate explain.shrink_trial explain.shrink_shapes",
    "explain.shrink_values",
    "explain.differenced",
    "explain.text explain.text.tape explain.rules.subset explain.rules.local",
    "explain.text.run",
    "explain.rules.argument",
    "explain.rules.keeps explain.rules.contributions explain.rules.orientation",
    "explain.rules.pairs explain.rules.truncated explain.rules.duplicates",
    "explain.rules.support",
    "explain.text.source explain.text.named explain.text.glossary",
    "explain.rules.terms.weighing explain.rules.terms.scales explain.rules.terms.reductions",
    "explain.rules.terms.masks",
    "explain.rules.terms.uses",
    "explain.rules.terms.functions explain.rules.terms.factors explain.rules.terms.places",
    "explain.rules.terms.slopes explain.rules.terms",
    "explain.rules.kin explain.rules.kinks explain.rules.mask",
    "explain.rules.flushed explain.rules.precision explain.rules.zeros",
    "explain.rules.conditions",
    "explain.rules.somewhere explain.rules.table",
    "explain.unknown explain.diagnose explain.stage explain.guilt explain.form",
    "explain.diagnoses explain.why",
    "explain.shrink explain.black_box",
    "power.model",  # asks whether blame falls on what was planted
    "power.caught power.small power.narrow_named power.diagnosis power.tally",
    "record time_limit cutoff shards plan recorded",
    "workers.cost workers.unit workers.assembly ready",
    "judging workers.remote",
    "cluster cluster.identity cluster.process cluster.slot cluster.connect cluster.feeding",
    "cluster.work",
    "workers.executor run export",
    "report",  # finds its renderers by name, so that each is loaded alone
    "report.rows report.places report.words report.run_words report.taylor_words",
    "report.failure_words report.diagnosed report.printed report.outline report.failures",
    "report.remarks report.models",
    "report.model_words report.page report.model_tables report.sections",
    "report.fitted report.model_catalogue report.rule_catalogue",
    "report.catalogue",
    "report.axis report.vcurve report.heat report.remainder report.kills report.sketch",
    "report.findings report.marked report.capped report.model_markdown report.figures",
    "baseline baseline.today baseline.condition baseline.entry baseline.file baseline.scope",
    "baseline.match baseline.ratchet baseline.apply baseline.text baseline.change",
    "stored stored.plain stored.log stored.parts stored.read",
    "report.html_matrix report.html_details report.html_evidence report.html_page",
    "diff diff.change diff.decide diff.compare",
    "stored.described stored.schema",
    "stored.merge",
    "stored.failed",
    "report.smoke report.spread report.told_failures report.concise",
    "report.terminal report.markdown report.html report.json report.jsonl report.junit",
    "report.github report.gitlab report.summary report.badge",
    "report.diff_words report.diff_terminal report.diff_markdown report.diff_json",
    "report.diff_github report.diff_html report.diff",
    "report.power report.rule_power report.contract_power report.diagnosis_power report.narrow",
    "report.fault",
    "report.probe",
    "repro repro.name repro.literal repro.point repro.pieces repro.python repro.c_literal",
    "repro.c_pieces repro.c_calls repro.c repro.artifacts repro.export report.repro",
    "config_table config demo demo.kernels",
    "library_elements library_check library_complex library_convention",
    "library library_model",  # a Result prints itself as a report
    "console commands commands.flags commands.outcome commands.examples commands.parsing",
    "commands.project commands.progress",
    "commands.power",
    "commands.gate commands.planned commands.published commands.watch commands.run",
    "commands.report commands.merge",
    "commands.listing",
    "commands.workflow commands.init",
    "commands.probe commands.export commands.repro commands.baseline",
    "commands.diff",
    "commands.demo commands.completion",
    "commands.schema",
    "testing testing.inputs testing.failure testing.given testing.own_case testing.suite_case",
    "testing.parametrize",
    "testing.settled testing.session testing.items testing.own testing.told testing.heard",
    "testing.lost",
    "cli pytest_plugin __main__",
)
ORDER = [f"gradcheck.{n}".removesuffix(".gradcheck") for line in LAYERS for n in line.split()]
# By whom a dependency may be imported; one that is not named here, by nobody.
OUTSIDE = {
    "numpy": ("dtypes", "exact", "arithmetic", "fifty_digits", "rounding", "narrow", "draw",
              "spec_checks", "spec", "program", "model", "rule", "suite", "difference", "manifest",
              "contract", "binding", "judge", "protocol.probe", "power", "explain", "plan",
              "highprecision", "cluster.identity", "run", "repro", "demo.kernels", "library",
              "library_check", "library_elements", "library_complex", "library_convention",
              "library_model", "testing"),
    "msgspec": ("manifest.mistake", "manifest.schema", "protocol", "stored.read", "config_table",
              "stored.schema", "plan", "run", "repro", "demo.kernels", "library", "library_check",
              "library_elements", "library_model", "testing", "stored.parts", "stored.plain"),
    "mpmath": ("fifty_digits", "highprecision.numbers"),
    "ml_dtypes": ("dtypes",),
    "torch": ("binding.tensors", "highprecision.torch", "highprecision.torch_operators"),
    "jax": ("binding.jax_op", "highprecision.jax"),
    "tabulate": ("report",),
    "shtab": ("commands.completion",),
    "elftools": ("manifest.symbols",),
    "pycparser": ("manifest.prototype",),
    "simpleeval": ("manifest.expression", "baseline.condition"),
    "dask": ("cluster.connect",),
    "distributed": ("cluster.connect", "cluster.feeding"),
    "jinja2": ("report.html", "report.html_evidence", "report.html_page"),
    "markupsafe": ("report.html", "report.html_evidence", "report.html_page", "report.diff_html"),
    "pytest": ("pytest_plugin", "testing.session", "testing.items", "testing.own", "testing.told",
              "testing.heard", "testing.settled", "testing.lost"),
}  # fmt: skip


def modules(root):
    """Names of the modules below a package, and their files."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


ENGINE_MODULES, CASE_MODULES = dict(modules(ENGINE)), dict(modules(CASES))
BOTH = {**ENGINE_MODULES, **CASE_MODULES}


def typed(name):
    """The modules that a module imports for type checkers alone."""
    for node in ast.parse(BOTH[name].read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (n.module for n in node.body if isinstance(n, ast.ImportFrom))


def imports(name):
    """The modules that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(BOTH[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: write imports in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in BOTH else node.module


def test_every_module_has_its_place():
    assert sorted(ORDER) == sorted(ENGINE_MODULES)


@pytest.mark.parametrize("name", ENGINE_MODULES)
def test_imports_point_backwards(name):
    ours = [m for m in imports(name) if m in ENGINE_MODULES]
    if name == "gradcheck":
        assert not [m for m in ours if m not in typed(name)]
    else:
        above = [m for m in ours if ORDER.index(m) >= ORDER.index(name)]
        assert above == [], f"{name} imports what lies above it"


@pytest.mark.parametrize("name", ENGINE_MODULES)
def test_the_engine_knows_no_cases(name):
    assert not [m for m in imports(name) if m.startswith("gradcheck_cases")]
    assert "gradcheck_cases" not in ENGINE_MODULES[name].read_text()


@pytest.mark.parametrize("name", ENGINE_MODULES)
def test_dependencies_stay_where_they_belong(name):
    inside = name.removeprefix("gradcheck.")
    for module in imports(name):
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "gradcheck":
            rooms = OUTSIDE.get(top, ())
            assert any(f"{inside}.".startswith(f"{room}.") for room in rooms), f"{name}: {top}"


@pytest.mark.parametrize("name", CASE_MODULES)
def test_a_case_file_sees_specs_alone(name):
    allowed = {
        f"gradcheck.{m}"
        for m in ("arithmetic", "draw", "families", "spec", "program", "model", "rule", "suite")
    }
    if ".faults" in name:
        allowed |= {f"gradcheck.power.{m}" for m in ("fault", "mutate")}
    if ".mutants" in name:
        allowed |= {f"gradcheck.power.{m}" for m in ("mutant", "mutate", "rule", "contract")}
    peers = {framework for framework in ("torch", "jax") if f".peers.{framework}" in name}
    for module in imports(name):
        top = module.partition(".")[0]
        known = {*sys.stdlib_module_names, "numpy", "gradcheck_cases", *peers}
        assert top in known or module in allowed, f"{name} imports {module}"
        assert peers or not module.startswith("gradcheck_cases.peers")


@pytest.mark.parametrize("name", BOTH)
def test_every_module_says_what_it_is_for(name):
    text = ast.get_docstring(ast.parse(BOTH[name].read_text()))
    assert text
    assert text.partition("\n\n")[0].endswith((".", "?"))
