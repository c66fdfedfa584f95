// The messages between the page's modules: set-ups, runs, films, claims, lectures.

/** One assumption of the theorems, checked on the set-up. */
export interface Assumption {
  name: string;
  statement: string;
  value: number | "inf" | "-inf" | null;
  threshold: number | "inf" | "-inf" | null;
  met: boolean;
  note: string;
  weaker: string;  // The name of a weaker assumption that suffices; empty without one.
}

/** A word that attention turns to. */
export interface Attended {
  word: string;
  attention: number | "inf" | "-inf" | null;
  z: number | "inf" | "-inf" | null;
  count: number | "inf" | "-inf" | null;  // Per thousand words of text, without a context.
  votes: Vote[];  // Entries of its row of Y.
}

/** Classes by weights per token and class. */
export interface Bars {
  vocab_size: number;  // M.
  words?: Record<string, string> | null;  // How tokens read, by their number; the others read as their number.
  classes: BarsOfClass[];  // One entry per class.
}

/** A class by weights, which need not sum to 1. */
export interface BarsOfClass {
  query: number;  // The last token of its sequences.
  next_token: number;  // What follows.
  p_class?: number | null;  // How often the class occurs, unnormalised; for all classes or none.
  tokens: number[];  // Tokens of its context.
  weights: number[];  // How often each of them occurs, unnormalised.
}

/** One step of a lecture: a run, a stretch of it, and one sentence. */
export interface Beat {
  setup: Setup;  // A preset's name, or a table of set-up fields; preset in it names one to start from.
  marks: BeatMark[];  // Changes of the rates on the way.
  against: Setup | null;  // A second run to draw over it, given as setup is.
  from: number;  // The step the beat begins at.
  to: number;  // The step it plays to; the same one: it stands still.
  seconds: number;  // How long that takes, paced by ln(t + 1).
  sentence: string;  // What is to be seen, in large type; η_Y and e^{4z} are lowered and raised.
  highlight: Highlight;  // What to look at.
  curve: "loss" | "entropy" | "growth" | "log chi" | "logits";  // The one curve beside the stage.
  theory: Theory[];  // What was predicted of it; drawn as far as the run has come.
  predict: Predict | null;  // A question to ask first; the sentence follows the reveal.
}

/** Everything there is to set. */
export interface Catalogue {
  version: string;
  limits: Record<string, number>;
  controls: ControlSpec[];
  presets: Preset[];
  class_presets: ClassPreset[];
  default: Setup;  // Of the first run.
  scenes: Scene[];  // Of the tour.
  decks: Deck[];  // Lectures; that of a lecture's own file first.
  lecture: boolean;  // Whether the file opens with the first of them.
  lab: { lens: boolean; probe: boolean; verify: boolean } | null;  // What the server behind the page offers; a file has none.
  applies: { textbook: Setup; changes: Record<string, Record<string, any>>; commands: Record<string, string> };  // Where claims apply.
}

/** What a set-up means. */
export interface SetupSummary {
  setup: Setup;  // Every key filled in.
  classes: ClassesSummary;
  theory: TheorySummary;
  note: string;  // What of a file the page does not show; empty: nothing.
}

/** An assumption a claim rests on. */
export interface ClaimAssumption {
  name: string;
  value: number | "inf" | "-inf" | null;
  threshold: number | "inf" | "-inf" | null;
  met: boolean;
}

/** What a claim compares. */
export interface ClaimCurve {
  x_label: string;
  y_label: string;
  x: (number | "inf" | "-inf" | null)[];
  measured: (number | "inf" | "-inf" | null)[];
  predicted: (number | "inf" | "-inf" | null)[] | null;
  log_x: boolean;
  log_y: boolean;
}

/** A statement of ours that holds where the paper's fails, on the same run and axes. */
export interface ClaimInstead {
  name: string;
  reference: string;
  statement: string;
  status: "holds" | "fails" | "undecided" | "not applicable";
  words: string;  // Whether it does hold and up to when.
  off: number | "inf" | "-inf" | null;  // How far its curve is from what was measured, relative.
  theirs: number | "inf" | "-inf" | null;  // How far that of the failing statement is.
  x: (number | "inf" | "-inf" | null)[] | null;
  y: (number | "inf" | "-inf" | null)[] | null;
}

/** The verdict on one statement. */
export interface Claim {
  name: string;
  reference: string;
  statement: string;
  status: "holds" | "fails" | "undecided" | "not applicable";
  kind: string;  // What the verdict rests on: measured, identity, formula, by definition; dependent, proof step and ours are measured too, but no independent statements of the paper.
  relation: string;  // What it follows from or repeats; empty where it is independent.
  quantity: string;
  measured: number | "inf" | "-inf" | null;
  predicted: number | "inf" | "-inf" | null;
  margin: number | "inf" | "-inf" | null;  // 1: exact, 0: at the tolerance, below: fails.
  tolerance: number | "inf" | "-inf" | null;
  why: string;
  assumptions: ClaimAssumption[];
  curve: ClaimCurve | null;
  instead: ClaimInstead | null;
}

/** Classes to start from, and their settings. */
export interface ClassPreset {
  name: string;
  title: string;
  explain: string;
  settings: ControlSpec[];
}

/** One class as it runs. */
export interface ClassSummary {
  query: number;  // ψ, the last token.
  next_token: number;  // m(n), what follows.
  p_class: number;  // How often the class occurs.
  tokens: number[];  // Tokens of its context, ascending.
  p: number[];  // P(l|n) of each.
  kinds: ("distinct" | "common")[];  // Among all classes.
  local: ("distinct" | "common")[];  // Among the classes of the same query.
  dominant: number | null;  // The distinct token that leads at step 0.
}

/** Weights drawn by hand. */
export interface ClassesByBars {
  bars: Bars;  // The bars of any set-up are in the ``classes`` of a check or run: tokens and p.
}

/** A text whose words are counted: a class is a pair of words that it has twice or more. */
export interface ClassesByText {
  text: string;  // Sentences end at . ! ? and at the end of a line.
  pairs?: any[][] | null;  // The classes, as pairs of last word and next word; left out: up to six of the most frequent.
}

/** The classes of a set-up. */
export interface ClassesSummary {
  vocab_size: number;  // M.
  n_classes: number;  // K.
  queries: number[];  // Tokens that are queries.
  common: number[];  // Tokens of more than one class.
  classes: ClassSummary[];  // One entry per class.
  words: Record<string, string> | null;  // How tokens read.
}

/** One value a user can set. */
export interface ControlSpec {
  name: string;
  label: string;
  symbol: string;
  explain: string;  // One line on what it does.
  kind: "number" | "integer" | "choice" | "flag" | "text";
  default: any;
  least: number | "inf" | "-inf" | null;  // Refused below; null: nothing is.
  most: number | "inf" | "-inf" | null;  // Refused above.
  low: number | "inf" | "-inf" | null;  // Lower end of the slider; null: there is none.
  high: number | "inf" | "-inf" | null;  // Upper end of the slider.
  log: boolean;  // Whether the slider is logarithmic.
  options: string[] | null;
  words: Record<string, string>;  // Values allowed besides numbers, and how they read.
  live: boolean;  // May change in the middle of a run.
  [key: string]: any;
}

/** Closed forms on a grid from 0 to ``last``, dense at the start. */
export interface ClosedFormsRequest {
  setup: Setup;
  last: number;  // Last step of the grid.
  points?: number;  // How many steps of it.
  c0?: number | null;  // C₀; left out, from the overlaps of the classes at Z = 0: 1/C₀ = mean over n of Σ_{n'≠n} (f_nᵀf_n')².
}

/** Closed forms. The theory's t counts batch-size-1 SGD steps. A step on the mean gradient of a mini-batch moves as far as one of those, so t = step, whatever the batch; momentum μ acts as both rates divided by 1 − μ. */
export interface ClosedForms {
  t: number[];
  growth: ((number | "inf" | "-inf" | null)[])[];  // Per class: p_n · ¼ ln(1 + 4Γ/C₀).
  chi_lower: ((number | "inf" | "-inf" | null)[])[];  // Per class, as ln χ.
  chi_upper: ((number | "inf" | "-inf" | null)[])[];  // Per class, as ln χ.
  gamma: (number | "inf" | "-inf" | null)[];
  t_scan: number | "inf" | "-inf" | null;
  t_snap: number | "inf" | "-inf" | null;
  c0: number | "inf" | "-inf" | null;
}

/** A lecture. */
export interface Deck {
  name: string;  // How it is asked for: a shipped one's name, or that of its file.
  title: string;  // Of the talk.
  author: string;  // Who gives it.
  beat: Beat[];  // In the order of the talk.
}

/** Entropy during training. */
export interface EntropyAt {
  step: number;
  entropy: number | "inf" | "-inf" | null;
}

/** A film as one file holds it. */
export interface FilmSummary {
  run: RunSummary;
  marks: RateChange[];
  n: number;  // Frames.
  floats: number;  // Values per frame.
  steps: string;  // base64 of uint32[n].
  data: string;  // base64 of float32[n·floats].
}

/** The T → ∞ flow from Y = Z = 0 at the effective rates, or what attention does of it to first order. */
export interface FlowRequest {
  setup: Setup;
  last: number;  // Last step of the grid.
  points?: number;  // How many steps of it.
  by?: "flow" | "response";  // ``flow``: integrated exactly; ``response``: the linear response around frozen attention.
}

/** The flow, or the response as far as it is trusted, in the layout of the frames. */
export interface FlowCurves {
  t: number[];
  loss: (number | "inf" | "-inf" | null)[];  // The response has none.
  entropy: ((number | "inf" | "-inf" | null)[])[];  // Per class.
  log_chi: ((number | "inf" | "-inf" | null)[])[];  // Per class.
  growth: ((number | "inf" | "-inf" | null)[])[];  // Per class.
  attention: (((number | "inf" | "-inf" | null)[])[])[];  // Per class and token.
  z: (((number | "inf" | "-inf" | null)[])[])[];  // Per query and token.
  trusted_until: number | "inf" | "-inf" | null;  // The step from which the response leaves out more than a tenth; null of the flow, which leaves out nothing.
  seconds: number;  // What it took.
}

/** Where a quantity lies in a frame. */
export interface FrameField {
  name: string;
  offset: number;
  size: number;
}

/** How to read a frame. */
export interface FrameLayout {
  floats: number;  // Values per frame.
  fields: FrameField[];  // loss, entropy, growth, log_chi, attention, z.
  tokens: number[][];  // Per class, the order within "attention": its tokens, and the query where the model looks at it.
  query_tokens: number[][];  // Per query, the order within "z".
  queries: number[];  // Tokens that are queries.
  class_query: number[];  // Index into ``queries``, per class.
}

/** What to look at; the rest is dimmed or left out. */
export interface Highlight {
  views: ("bars" | "history" | "curve")[];  // Of bars, history (the heat map) and curve those that count.
  classes: number[];  // The classes on the stage; left out, all of them.
  tokens: (number | string)[];  // Tokens whose bars stay bright: numbers, words, or all that are common or distinct.
}

/** What a text model does with a query word. */
export interface LensAnswer {
  query: string;
  entropy: number | "inf" | "-inf" | null;
  uniform_entropy: number | "inf" | "-inf" | null;
  exact: boolean;
  attended: Attended[];  // Ranked by z.
  votes: Vote[];  // Next words with their probability.
  entropy_over_training: EntropyAt[];  // Empty where the training did not measure it.
}

/** Where attention ends up over the rates: 81 runs that differ in η_Y and η_Z only. */
export interface RateMap {
  eta_y: number[];  // Rates of the rows.
  eta_z: number[];  // Rates of the columns.
  share: (number | null)[][];  // Attention on common tokens, mean over classes weighted by their probability; null where the run diverged or is not computed yet.
  failed_step: (number | null)[][];  // The step where the numbers left the float range.
  known: number;  // Runs that are computed.
}

/** New rates from a step on. */
export interface BeatMark {
  step: number;  // The step they change at.
  eta_y: number | null;  // η_Y from then on; left out, as it was.
  eta_z: number | null;  // η_Z from then on; left out, as it was.
}

/** Rates changed at this step. */
export interface RateChange {
  step: number;
  eta_y: number;
  eta_z: number;
}

/** Two words that follow each other twice or more. */
export interface WordPair {
  query: string;  // The last word.
  next: string;  // The next word.
  count: number;  // How often.
  chosen: boolean;  // Whether it is a class.
}

/** A question before the beat plays: which bar wins? The reveal measures it. */
export interface Predict {
  question: string;  // What the audience is asked.
  class: number;  // The class whose bars may be clicked.
  by: "attention" | "logits";  // What the winner has most of at the last step: attention, or gain of its logit z since the first.
}

/** A set-up to start from. */
export interface Preset {
  name: string;
  title: string;
  question: string;  // Headline over the run, where it has one.
  commentary: string;
  setup: Setup;
}

/** The files of --probe; the report of a file is at /probe?file=NAME. */
export interface ProbeFiles {
  files: string[];
}

/** A run: its set-up, its classes, and how to read its frames. */
export interface RunSummary {
  setup: Setup;  // Every key filled in.
  classes: ClassesSummary;
  theory: TheorySummary;
  layout: FrameLayout;
  steps: number;  // The last step.
  marks: RateChange[];  // Changes of the rates so far.
}

/** One scene of the tour. */
export interface Scene {
  name: string;
  title: string;
  commentary: string;
  setup: Setup;
  seconds: number;  // How long it plays, paced by ln(t + 1).
  watch: ("attention" | "heatmap" | "z" | "loss" | "entropy" | "growth" | "y" | "claims")[];  // Views to look at.
  overlay: Setup | null;  // Set-up of a second run to pin for comparison.
  until: number;  // The step where it pauses.
  question: string;
  answer: string;
  try: Record<string, any>;  // Changes of the set-up that answer the question.
  at: number | null;  // The step they are made at, in the middle of the scene's run; null: a new run.
}

/** Everything a run is made of; all keys but ``classes`` are optional, unknown ones are refused. */
export interface Setup {
  [key: string]: any;
}

/** A trained text model in the folder of --folder. */
export interface TextModel {
  name: string;
  title: string;
}

/** What the lens can look through. */
export interface TextModels {
  models: TextModel[];
}

/** A predicted curve, drawn beside the measured one. */
export interface Theory {
  name: string;  // Whose it is, in a few words.
  holds: boolean;  // Whether it is what was measured; decides the colour.
  points: number[][];  // Pairs of a step and a value, in the order of the steps; between them the line is straight.
}

/** What the theory says of a set-up before it runs. */
export interface TheorySummary {
  applies: boolean;  // Whether the theorems speak of this run.
  why: string;  // The reason where they do not.
  eta_y: number | "inf" | "-inf" | null;  // Effective rate: η/(1 − μ).
  eta_z: number | "inf" | "-inf" | null;  // Effective rate: η/(1 − μ).
  ratio: number | "inf" | "-inf" | null;  // η_Y/η_Z.
  t_scan: number | "inf" | "-inf" | null;  // t₀′ in steps.
  t_snap: number | "inf" | "-inf" | null;  // t₀ in steps.
  c0: number | "inf" | "-inf" | null;  // C₀, from the overlaps of the classes at Z = 0.
  clock: string;  // One sentence on steps and t.
  assumptions: Assumption[];  // Empty where a rate is 0.
}

/** A word and the vote for it. */
export interface Vote {
  word: string;
  vote: number | "inf" | "-inf" | null;
}

/** A text to count words in. */
export interface WordsRequest {
  text?: any;  // As it was pasted.
  pairs?: any;  // The pairs chosen as classes; left out: the server chooses.
}

/** What a text gives to make classes of. */
export interface TextSummary {
  words: number;  // In the text.
  different: number;
  sentences: number;
  pairs: WordPair[];  // The most frequent first, some 60 of them at most; those chosen are always here.
  classes: ClassesByText | ClassesByBars | null;  // For a set-up: the text or the counts, whichever is shorter to share; null where the pairs make no classes.
  refusal: string;  // Why they make none, in one sentence.
}
