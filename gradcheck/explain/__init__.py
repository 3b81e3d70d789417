"""Why a gradient is wrong: the likeliest known mistake that predicts what the code returned.

In: findings that fail, and the code behind them, which is asked again at a few other points. Out:
the same findings, each with a `Diagnosis` (a class of defects, a sentence, and the evidence), or,
for a model, with the stages to blame. Passing code is never asked.

From a finding to its diagnosis:

- `case_diagnosis` (with a spec) and `findings.explained` (without: `gradcheck.check`) are called
  with findings. The first imports the rest when something fails.
- `operator_probes` and `function_probes` ask the code at other points. Each point is a `Probe`
  (`probe`): what came back, and the true VJP, which can be evaluated with other cotangents, primals
  and attributes. Truth is the spec's own VJP, or central differences of forward.
- `hypotheses` holds what may be wrong, a module per kind of mistake. A rule proposes hypotheses
  (`hypothesis`). `hypotheses.terms` changes the spec's own text, recorded as a list of operations.
- `engine` lists all rules in order, and takes the first hypothesis that holds at every probe. Where
  none does, it describes the residual instead.

Two users of that engine:

- `shrink` makes a failing input small, as long as the failure and its diagnosis stay.
- `model_blame` names the stages of a model that are at fault. `blame` decides which stages may be,
  from the gradients that are wrong; `stage_defects` says what is wrong with one stage, and
  `reproduce` which defect of which stage gives all the gradients that were returned. A stage's
  defects are computed before anything is compared, since most of its gradients are never seen.
"""
