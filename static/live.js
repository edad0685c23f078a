// Made by `python -m tools.calculator` from the modules of live/: change those.
(() => {
"use strict";
const modules = {};
modules.table = (() => {
const TABLE = {
"limits": {"n":[2,16777216],"d":[8,65536]},
"gradient": {"inverse_d":[0.0,0.125],"root_log_n":[0.8325546111576977,4.078667960675236],"reach":30.0,"shape":[8,12,22],"unit":1e-05,"values":"-10928,-17107,-18987,3775,2278,-1174,-304,373,13,-114,14,35,-9,-12,4,5,-2,-2,1,1,-1,,24984,-2448,-3443,1298,1439,-774,-365,340,67,-133,-4,52,-5,-21,4,9,-3,-4,2,2,-1,-1,-13844,4528,689,-1073,-133,330,-74,-70,65,-3,-30,14,11,-11,-3,6,,-3,1,2,,-1,6287,-3237,230,454,-139,-10,48,-35,-5,21,-7,-7,7,1,-4,1,2,-1,-1,1,,-1,-2360,1396,-170,-108,49,-42,12,17,-15,,7,-4,-1,3,-1,-1,1,,-1,,,,719,-351,-3,13,16,11,-15,2,5,-4,1,2,-2,,1,-1,,,,,,,-181,20,49,-2,-19,3,3,-2,2,,-1,1,,-1,,,,,,,,,46,16,-27,2,6,-2,2,,-1,1,,-1,,,,,,,,,,,-17,-1,6,,,,-1,1,,,,,,,,,,,,,,,7,-3,,-1,-1,1,,,,,,,,,,,,,,,,,-2,2,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,-10514,-10887,2328,2082,-1456,-319,704,-96,-274,127,81,-79,-13,38,-4,-16,5,6,-3,-2,2,1,-4643,-4441,1941,1152,-1358,-237,757,-104,-334,146,116,-101,-27,54,-1,-25,6,10,-5,-4,2,2,1673,1490,-578,-195,234,-35,-23,41,-40,-8,39,-11,-22,14,8,-11,-2,6,-1,-3,1,2,-552,-520,74,45,43,-14,-59,32,24,-28,-1,15,-7,-5,6,,-4,2,2,-2,,2,95,150,58,-40,-42,27,13,-17,4,4,-6,2,3,-3,,2,-1,-1,1,,-1,1,33,-15,-50,19,14,-7,2,-2,-2,4,-1,-2,2,,-1,1,,-1,,,,,-32,-15,21,1,-4,-3,,4,-2,-1,2,,-1,1,,,,,,,,,12,12,-4,-6,2,3,-1,-1,1,,,,,,,,,,,,,,-2,-5,,3,,-1,,,,,,,,,,,,,,,,,,1,1,-1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,147,491,220,-344,-30,251,-89,-123,105,31,-72,10,36,-18,-13,14,2,-8,1,3,-1,-1,4,258,130,-326,14,277,-121,-148,138,41,-99,12,52,-25,-21,20,5,-12,1,6,-1,-3,-19,-90,-57,40,22,-4,-14,-15,20,12,-22,-2,17,-4,-10,6,4,-5,-1,3,,-2,13,10,7,20,-13,-22,19,9,-16,2,7,-6,-1,4,-2,-1,3,,-2,1,1,-1,6,22,5,-18,3,8,-3,-1,,-1,2,-1,-2,2,1,-1,,1,-1,,,,-5,-13,-6,5,3,-1,-3,1,3,-2,-1,1,,-1,1,,,,,,,,2,3,3,1,-3,-1,2,,-1,,,,,,,,,,,,,,,,-1,-2,1,1,,,,,,,,,,,,,,,,,,-1,,1,,-1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,-70,-79,-9,22,26,-30,-20,39,-1,-32,15,16,-17,-3,12,-3,-6,4,3,-3,-1,3,-50,-58,-12,25,31,-42,-23,54,-3,-45,22,23,-25,-6,19,-4,-10,6,4,-5,-1,4,25,26,-1,,1,-8,-1,12,-2,-12,7,8,-8,-3,7,,-5,2,3,-3,-1,3,6,9,2,-5,-3,6,2,-5,1,3,-2,,1,-1,,1,-1,,1,-1,-1,1,-4,-4,,,1,,-1,-1,1,1,-1,,1,,-1,1,,,,,,,,-1,-1,1,,-2,,1,-1,-1,1,,,,,,,,,,,,1,1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,29,37,1,-10,-2,3,5,-4,-6,7,3,-8,1,6,-4,-3,4,,-3,1,1,-2,31,39,,-11,-3,4,8,-6,-9,11,4,-12,2,9,-6,-4,6,,-4,2,2,-3,1,,-1,,-1,1,2,-2,-2,4,1,-5,1,4,-2,-2,3,,-2,1,1,-2,-4,-5,,1,,,-1,,1,,,,,,,,,,-1,,,,,,,,,,,1,,-1,,1,,,,,,,,,,,,1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,-10,-13,-1,4,,-2,,1,1,,-2,1,1,-2,,2,-1,-1,1,,-1,,-13,-17,-1,6,,-3,-1,1,2,-1,-3,2,2,-3,,3,-1,-2,2,,-1,1,-3,-4,,1,,-1,,,1,,-1,1,1,-2,,1,-1,-1,1,,-1,,1,1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,4,5,,-2,,1,,,,,,,-1,,1,,,,,,,,6,7,,-2,,1,,-1,,,,,-1,,1,-1,-1,1,,-1,,1,2,2,,-1,,1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,-2,-2,,1,,,,,,,,,,,,,,,,,,,-2,-3,,1,,-1,,,,,,,,,,,,,,,,-1,-1,-1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,"},
"output": {"n":[16,65536],"t":[0.0625,16.0],"shape":[9,44],"unit":1e-05,"values":"-198167,-186107,44575,31942,-24314,-4499,11438,-2071,-4338,2621,1002,-1687,221,763,-455,-201,339,-44,-171,104,52,-85,8,48,-26,-18,24,,-15,7,7,-7,-1,5,-2,-3,2,1,-2,,1,-1,-1,1,-130143,-117730,38700,17181,-22555,1690,10470,-5336,-3315,4303,-1,-2387,1012,912,-960,-109,596,-193,-263,227,56,-159,36,81,-57,-25,46,-5,-27,15,11,-14,-1,10,-4,-5,5,1,-4,1,2,-2,-1,2,-12417,-9205,6136,-580,-3411,2513,970,-2276,462,1347,-937,-484,836,-43,-527,250,235,-258,-44,182,-47,-96,69,33,-57,3,36,-16,-16,17,3,-13,3,7,-5,-3,5,,-3,1,2,-2,-1,2,-176,192,209,-433,96,408,-344,-202,419,-29,-339,178,190,-220,-51,184,-38,-117,74,53,-72,-9,53,-15,-31,22,12,-19,-1,13,-5,-7,6,3,-5,,3,-1,-2,2,1,-1,,1,8,2,-30,5,49,-32,-52,65,30,-83,6,78,-38,-54,55,24,-55,1,43,-17,-26,23,11,-21,-1,15,-5,-9,7,4,-6,,5,-1,-3,2,1,-2,,1,,-1,,,,-2,1,4,-4,-6,9,7,-14,-3,18,-3,-18,9,14,-14,-8,15,1,-14,4,10,-6,-6,7,2,-6,1,5,-2,-3,2,1,-2,,2,-1,-1,1,,-1,,,,,,,-1,-1,1,1,-2,-1,3,,-4,1,4,-3,-4,4,2,-4,-1,4,-1,-3,2,2,-2,-1,2,,-2,,1,-1,-1,1,,-1,,1,,,,,,,,,,,,,,1,,-1,,1,,-1,1,1,-1,-1,1,,-1,,1,,-1,1,,-1,,1,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,"},
"criteria": {"list":[{"name":"variance","meaning":"Logits of variance 1, as 1/√d gives them."},{"name":"annealed","meaning":"Largest gradient, by the approximation in the literature."},{"name":"typical","meaning":"Largest gradient of a typical row of random scores."},{"name":"freezing","meaning":"From here on a few keys hold the weight, however many there are."},{"name":"entropy","meaning":"As spread out as 512 keys are under 1/√d: the same mean entropy."}],"held":{"cosine":{"shape":[7],"unit":1e-07,"values":"57752077,303101,-26972,2762,-305,33,-3"},"dot product":{"shape":[7],"unit":1e-07,"values":"57427770,9321,449,-4,-1,,"}},"entropy":{"cosine":{"shape":[7,10],"unit":1e-05,"values":"179508,114788,3824,-823,222,-47,1,5,-4,1,107718,114569,5611,-1011,206,-27,-6,6,-2,,5605,7470,1214,-462,159,-40,2,5,-4,2,11,-59,-65,4,,,-1,,,,38,38,-6,-1,3,-2,1,,-1,,2,6,3,-1,,1,,,,,-3,-4,,1,,,,,,"},"dot product":{"shape":[7,10],"unit":1e-05,"values":"82804,13049,-1011,-381,314,-148,52,-9,-7,5,5314,5154,-513,-82,127,-84,42,-16,2,1,-62,-102,-18,20,-9,2,2,-2,2,-1,10,15,2,-2,1,,,,,,-2,-2,,,,,,,,,,,,,,,,,,,,,,,,,,,,"}},"typical":{"largest":65536,"inverse_log_n":[0.09016844005556021,1.4426950408889634],"cosine":{"shape":[3,5],"unit":0.0001,"values":"9402,562,15,-65,-40,-961,307,62,-34,26,83,-31,21,-25,-18"},"dot product":{"shape":[3,5],"unit":0.0001,"values":"10579,62,31,-42,9,165,-114,46,3,36,28,32,-9,-15,-36"}}},
"debye": [[1.0],[0.0,0.125,0.0,-0.208333333333333],[0.0,0.0,0.0703125,0.0,-0.401041666666667,0.0,0.334201388888889],[0.0,0.0,0.0,0.0732421875,0.0,-0.8912109375,0.0,1.84646267361111,0.0,-1.02581259645062],[0.0,0.0,0.0,0.0,0.112152099609375,0.0,-2.3640869140625,0.0,8.78912353515625,0.0,-11.207002616223,0.0,4.66958442342625],[0.0,0.0,0.0,0.0,0.0,0.227108001708984,0.0,-7.36879435947963,0.0,42.5349987453885,0.0,-91.81824154324,0.0,84.6362176746007,0.0,-28.2120725582002],[0.0,0.0,0.0,0.0,0.0,0.0,0.572501420974731,0.0,-26.4914304869516,0.0,218.190511744212,0.0,-699.579627376133,0.0,1059.990452528,0.0,-765.252468141182,0.0,212.570130039217]],
"arrivals": [0.7075,1.7327,2.3013,3.1964,3.4029,6.7866,6.7963,9.6055,10.1809,10.4814,11.0225,11.3347,12.2344,13.3081,15.1924,15.4145,18.5591,19.295,19.6434,20.5269,20.602,20.662,21.8856,22.6585,24.8545,25.3296,25.851,27.0317,27.5582,27.5804,27.8737,28.888,29.5227,30.9193,30.9276,31.8314,32.0817,32.4374,35.5122,36.9166,40.7121,42.4602,44.7032,44.8481,45.1507,45.3895,46.5377,47.761,47.8882,48.272,49.3399,49.4086,49.5068,50.3782,52.2522,54.9486,55.6547,56.9608,57.7243,58.6614,58.8062,61.3012,62.1855,63.0607,63.0871],
"policies": [{"name":"transformer","title":"Transformer","applied_to":"dot product","meaning":"Gives logits of variance 1 when the entries of q and k have variance 1.","rule":"inverse_root","constants":{}},{"name":"t5","title":"T5","applied_to":"dot product","meaning":"No scale at run time: the matrix of the queries starts 1/√d smaller instead.","rule":"inverse_root","constants":{}},{"name":"mup","title":"μP","applied_to":"dot product","meaning":"Keeps logits in bounds, as d grows, once training has aligned q and k.","rule":"over_dimension","constants":{"multiplier":8.0}},{"name":"u_mup","title":"u-μP, unit scaling","applied_to":"dot product","meaning":"As μP; the output is also divided by a fitted model of its standard deviation.","rule":"over_dimension","constants":{"multiplier":1.0}},{"name":"almost_scaled","title":"almost-scaled attention","applied_to":"dot product","meaning":"The Transformer's scale; the output is also multiplied by (n/e)^½.","rule":"inverse_root","constants":{}},{"name":"granite","title":"Granite","applied_to":"dot product","meaning":"A constant of the model's configuration, called attention_multiplier.","rule":"constant_scale","constants":{"scale":0.0078125}},{"name":"cerebras_gpt","title":"Cerebras-GPT","applied_to":"dot product","meaning":"As μP, with a multiplier to be tuned.","rule":"over_dimension","constants":{"multiplier":1.0}},{"name":"gemma_2","title":"Gemma 2, 27B","applied_to":"dot product","meaning":"The root of model width over heads instead of d = 128; then 50 tanh(x/50).","rule":"fixed_root","constants":{"scalar":144.0}},{"name":"gemma_3","title":"Gemma 3, 27B","applied_to":"dot product","meaning":"The root of model width over heads instead of d = 128.","rule":"fixed_root","constants":{"scalar":168.0}},{"name":"grok_1","title":"Grok-1","applied_to":"dot product","meaning":"The Transformer's scale at the model's head dimension; then 30 tanh(x/30).","rule":"fixed_root","constants":{"scalar":128.0}},{"name":"qknorm","title":"QKNorm","applied_to":"cosine","meaning":"Learned; starts at log₂ of the number of pairs in a long training text, n tokens.","rule":"pairs","constants":{}},{"name":"swin_v2","title":"Swin V2","applied_to":"cosine","meaning":"Learned by each head through its logarithm, and kept below 100.","rule":"clipped","constants":{"initial":10.0,"largest":100.0}},{"name":"qk_norm","title":"QK norm","applied_to":"cosine","meaning":"ViT-22B, OLMo 2, Qwen3: q and k of length √d, with learned gains; then 1/√d.","rule":"root","constants":{}},{"name":"ngpt","title":"nGPT","applied_to":"cosine","meaning":"√d on unit vectors, with a learned gain for each coordinate.","rule":"root","constants":{}},{"name":"x_transformers","title":"x-transformers","applied_to":"cosine","meaning":"A fixed number.","rule":"constant_scale","constants":{"scale":10.0}},{"name":"am_softmax","title":"AM-Softmax","applied_to":"cosine","meaning":"A loss over n classes; a fixed number.","rule":"constant_scale","constants":{"scale":30.0}},{"name":"cosface","title":"CosFace","applied_to":"cosine","meaning":"A loss over n classes; a fixed number, above a bound for the end of training.","rule":"constant_scale","constants":{"scale":64.0}},{"name":"arcface","title":"ArcFace","applied_to":"cosine","meaning":"A loss over n classes; a fixed number.","rule":"constant_scale","constants":{"scale":64.0}},{"name":"adacos","title":"AdaCos","applied_to":"cosine","meaning":"A loss over n classes; grows with their logarithm, and may adapt in training.","rule":"other_classes","constants":{}},{"name":"simcse","title":"SimCSE","applied_to":"cosine","meaning":"A loss over a batch of n sentences; a temperature of 0.05.","rule":"constant_scale","constants":{"scale":20.0}},{"name":"clip","title":"CLIP","applied_to":"cosine","meaning":"A loss over a batch of n pairs; learned through its logarithm t.","rule":"clipped","constants":{"initial":14.285714285714285,"largest":100.0}},{"name":"siglip","title":"SigLIP","applied_to":"cosine","meaning":"A sigmoid loss over a batch of n pairs; learned, with a learned bias.","rule":"constant_scale","constants":{"scale":10.0}},{"name":"chiang_cholak","title":"Chiang and Cholak","applied_to":"dot product","meaning":"Lets one key win against n others at any length.","rule":"log_length","constants":{}},{"name":"entropy_invariance","title":"entropy invariance","applied_to":"dot product","meaning":"The Transformer's scale at m keys; grows with log n, meant to hold the entropy.","rule":"entropy_invariance","constants":{"reference":512.0,"floor":16.0}},{"name":"qwen","title":"Qwen","applied_to":"dot product","meaning":"Entropy invariance beyond the training length L, at inference only.","rule":"log_position","constants":{"train_length":2048.0}},{"name":"gradient","title":"gradient","applied_to":"dot product","meaning":"Maximises α(1 − e^{α²}/n), an approximate gradient; W is Lambert's function.","rule":"best_normal","constants":{}},{"name":"gradient_cosine","title":"gradient, cosine","applied_to":"cosine","meaning":"The same for cosines in d dimensions, with log moment generating function κ.","rule":"best_cosine","constants":{}},{"name":"ssmax","title":"Scalable-Softmax","applied_to":"dot product","meaning":"Weights proportional to n^{sz} for logits z; s is learned by each head.","rule":"learned_log_length","constants":{"s":0.168}},{"name":"yarn","title":"YaRN","applied_to":"dot product","meaning":"q and k each get the factor c log(n/L) + 1 when a context L is extended to n.","rule":"yarn","constants":{"coefficient":0.1,"train_length":4096.0}},{"name":"deepseek_v3","title":"DeepSeek-V3","applied_to":"dot product","meaning":"YaRN with one extension s for every n; its heads have d = 192.","rule":"deepseek","constants":{"coefficient":0.1,"factor":40.0}},{"name":"longrope","title":"LongRoPE, Phi-3","applied_to":"dot product","meaning":"q and k each get the root of this factor when a context L is extended to n.","rule":"longrope","constants":{"train_length":4096.0}},{"name":"llama_4","title":"Llama 4","applied_to":"dot product","meaning":"Grows with the logarithm of the number of blocks so far; in layers without RoPE.","rule":"llama_4","constants":{"coefficient":0.1,"floor":8192.0}},{"name":"infoscale","title":"InfoScale","applied_to":"dot product","meaning":"Meant to hold the entropy as n grows beyond the training length L.","rule":"infoscale","constants":{"train_length":512.0}}],
};
return { TABLE };
})();
modules.chebyshev = (() => {
function unpack({ shape, unit, values }) {
return { shape, values: Float64Array.from(values.split(","), (text) => unit * Number(text)) };
}
function place(value, [low, high]) {
return Math.min(Math.max((2 * (value - low)) / (high - low) - 1, -1), 1);
}
function contract({ shape: [terms, ...shape], values }, x) {
const size = shape.reduce((product, count) => product * count, 1);
const result = new Float64Array(size);
for (let k = 0, before = x, now = 1; k < terms; k++) {
for (let i = 0; i < size; i++) result[i] += now * values[k * size + i];
[before, now] = [now, 2 * x * now - before];
}
return { shape, values: result };
}
function interpolate(f, count) {
const angles = Array.from({ length: count }, (_, i) => (Math.PI * (i + 0.5)) / count);
const heights = angles.map((angle) => f(Math.cos(angle)));
const values = Float64Array.from(angles, (_, k) => {
const sum = heights.reduce((total, y, i) => total + y * Math.cos(k * angles[i]), 0);
return ((k ? 2 : 1) * sum) / count;
});
return { shape: [count], values };
}
function evaluate(table, ...variables) {
return variables.reduce(contract, table).values[0];
}
return { unpack, place, contract, interpolate, evaluate };
})();
modules.laws = (() => {
const { contract, evaluate, interpolate, place, unpack } = modules.chebyshev;
const { TABLE } = modules.table;
const GRADIENT = unpack(TABLE.gradient);
const DEBYE = TABLE.debye.map((values) => ({
values,
slopes: values.slice(1).map((coefficient, i) => coefficient * (i + 1)),
}));
const LARGE_ORDER = 25;
const LARGEST_SHARE = TABLE.gradient.reach / (1 + TABLE.gradient.reach);
const FEW = 24;
const MASK_POINTS = 40;
function deviation(law) {
return law.kind === "cosine" ? 1 / Math.sqrt(law.d) : 1;
}
function root(f, low, high) {
for (let step = 0; step < 60; step++) {
const middle = (low + high) / 2;
if (f(middle) > 0) high = middle;
else low = middle;
}
return (low + high) / 2;
}
function polynomial(coefficients, x) {
return coefficients.reduceRight((sum, c) => sum * x + c, 0);
}
function cosineMoments(d, alpha) {
const order = d / 2 - 1;
const steps = Math.max(0, Math.ceil(LARGE_ORDER - order));
let mu = order + steps;
const x = alpha / mu;
const r = Math.hypot(1, x);
const p = 1 / r;
const delta = (x * x) / (1 + r);
let [value, slope, atOne] = [0, 0, 0];
for (const [k, u] of DEBYE.entries()) {
value += polynomial(u.values, p) / mu ** k;
slope += polynomial(u.slopes, p) / mu ** k;
atOne += polynomial(u.values, 1) / mu ** k;
}
let deficit = mu * ((delta + x) / (r + x) + Math.log1p(delta / 2));
deficit += Math.log(r) / 2 - Math.log(value / atOne);
const correction = ((-slope * x * p ** 3) / value - (x * p * p) / 2) / mu;
let first = x / (1 + r) + correction;
let complement = (1 + 1 / (r + x)) / (1 + r) - correction;
for (let step = 0; step < steps; step++, mu--) {
const turn = (2 * mu) / alpha;
const lower = 1 / (first + turn);
complement = (turn - complement) * lower;
deficit += Math.log(turn * lower);
first = lower;
}
return { deficit, first, complement };
}
function criticalAlpha(law, keys) {
const logKeys = Math.log(keys);
if (law.kind !== "cosine" || keys <= 1) return Math.sqrt(2 * logKeys);
const excess = (logAlpha) => {
const alpha = Math.exp(logAlpha);
const at = cosineMoments(law.d, alpha);
return at.deficit - alpha * at.complement - logKeys;
};
const low = Math.log(2 * logKeys) / 2;
return Math.exp(root(excess, low, Math.log(law.d) + 2 + (2 * logKeys) / (law.d - 1)));
}
function logRatio({ kind, d }, alpha) {
if (alpha === 0) return 0;
if (kind === "normal") return alpha * alpha;
if (kind === "cosine")
return 2 * cosineMoments(d, alpha).deficit - cosineMoments(d, 2 * alpha).deficit;
const share = (2 * alpha * alpha) / d;
return share < 1 ? (-d / 2) * Math.log1p(-share) : Infinity;
}
function annealedGradient(law, alpha, keys) {
return alpha === 0 ? 0 : -alpha * Math.expm1(logRatio(law, alpha) - Math.log(keys));
}
function annealedBestAlpha(law, keys) {
const logKeys = Math.log(keys);
if (law.kind === "normal")
return Math.sqrt(root((y) => y + Math.log1p(2 * y) - logKeys, 0, logKeys));
if (law.kind === "dot product") {
const balance = (y) => (law.d * y) / 2 + Math.log1p(law.d * Math.expm1(y)) - logKeys;
return Math.sqrt((-law.d / 2) * Math.expm1(-root(balance, 0, (2 * logKeys) / law.d)));
}
const balance = (logAlpha) => {
const alpha = Math.exp(logAlpha);
const [one, two] = [cosineMoments(law.d, alpha), cosineMoments(law.d, 2 * alpha)];
const rise = one.first < 0.5 ? two.first - one.first : one.complement - two.complement;
return 2 * one.deficit - two.deficit + Math.log1p(2 * alpha * rise) - logKeys;
};
const middle = Math.log(Math.sqrt(law.d));
return Math.exp(root(balance, middle - 7, Math.log(criticalAlpha(law, keys)) + 1));
}
function meanGradient(law, n) {
return gradientOf(law, seriesOf(law)(n), criticalAlpha(law, n));
}
function causalGradient(law, n) {
const series = seriesOf(law);
const rows = positions(n).map(({ keys, weight }) => ({
weight,
series: series(keys),
unit: criticalAlpha(law, keys),
}));
const unit = criticalAlpha(law, n);
const mean = interpolate((v) => {
const share = ((v + 1) / 2) * LARGEST_SHARE;
const x = share / (1 - share);
const add = (sum, row) => sum + row.weight * complement(row.series, (x * unit) / row.unit);
return Math.log((1 + x) * rows.reduce(add, 0));
}, MASK_POINTS);
return gradientOf(law, mean, unit);
}
function seriesOf(law) {
const { inverse_d, root_log_n } = TABLE.gradient;
const ofLaw = contract(GRADIENT, place(law.kind === "cosine" ? 1 / law.d : 0, inverse_d));
return (n) => contract(ofLaw, place(Math.sqrt(Math.log(n)), root_log_n));
}
function complement(series, x) {
const near = Math.min(x, TABLE.gradient.reach);
const logarithm = evaluate(series, place(near / (1 + near), [0, LARGEST_SHARE]));
return (Math.exp(logarithm) / (1 + near)) * (x > near ? near / x : 1);
}
function gradientOf(law, series, unit) {
const queries = law.kind === "dot product" ? queryLengths(law.d) : [{ length: 1, weight: 1 }];
return (alpha) => {
const add = (sum, { length, weight }) =>
sum + weight * complement(series, (alpha * length) / unit);
return alpha * queries.reduce(add, 0);
};
}
function queryLengths(d) {
const low = -9 / d - 4.2 / Math.sqrt(2 * d);
const high = 4.2 / Math.sqrt(2 * d);
const points = Array.from({ length: 29 }, (_, i) => low + ((high - low) * i) / 28);
const weights = points.map((w) => Math.exp(d * (w - Math.exp(2 * w) / 2 + 0.5)));
const total = weights.reduce((sum, weight) => sum + weight, 0);
return points.map((w, i) => ({ length: Math.exp(w), weight: weights[i] / total }));
}
function positions(n) {
const result = [];
for (let keys = 2; keys <= Math.min(n, FEW); keys++) result.push({ keys, weight: 1 / n });
if (n <= FEW) return result;
const [low, high] = [Math.log(FEW + 0.5), Math.log(n + 0.5)];
const steps = 2 * Math.ceil(2 * (high - low)); // Simpson's rule wants an even number
for (let i = 0; i <= steps; i++) {
const keys = Math.exp(low + ((high - low) * i) / steps);
const part = i === 0 || i === steps ? 1 : i % 2 ? 4 : 2;
result.push({ keys, weight: ((part * (high - low)) / (3 * steps)) * (keys / n) });
}
return result;
}
return { deviation, root, cosineMoments, criticalAlpha, annealedGradient, annealedBestAlpha, meanGradient, causalGradient };
})();
modules.criteria = (() => {
const { evaluate, place, unpack } = modules.chebyshev;
const { annealedBestAlpha, criticalAlpha, deviation } = modules.laws;
const { TABLE } = modules.table;
const { held, entropy, typical } = TABLE.criteria;
const [HELD, ENTROPY, TYPICAL] = [held, entropy, typical].map((tables) => ({
cosine: unpack(tables.cosine),
"dot product": unpack(tables["dot product"]),
}));
const EULER_GAMMA = 0.5772156649015329;
function effectiveKeys(n, causal) {
if (!causal) return n;
let sum = 0;
if (n < 1000) for (let k = n; k > 0; k--) sum += 1 / k;
else sum = Math.log(n) + EULER_GAMMA + 1 / (2 * n) - 1 / (12 * n * n);
return n / sum;
}
function criteria(law, n, causal) {
const keys = effectiveKeys(n, causal);
const alphas = {
variance: 1 / deviation(law),
annealed: annealedBestAlpha(law, keys),
typical: typicalAlpha(law, keys),
freezing: criticalAlpha(law, keys),
entropy: entropyAlpha(law, Math.max(2, Math.round(keys))),
};
return TABLE.criteria.list.map((criterion) => ({ ...criterion, alpha: alphas[criterion.name] }));
}
function inTable(law) {
const { inverse_d } = TABLE.gradient;
return law.kind === "normal"
? { kind: "cosine", u: place(0, inverse_d) }
: { kind: law.kind, u: place(1 / law.d, inverse_d) };
}
function typicalAlpha(law, keys) {
const { largest } = TABLE.criteria.typical;
const rounded = Math.max(2, Math.round(keys));
const count = Math.min(rounded, largest);
const { kind, u } = inTable(law);
const ratio = evaluate(TYPICAL[kind], u, place(1 / Math.log(count), typical.inverse_log_n));
return ratio * criticalAlpha(law, rounded < largest ? count : keys);
}
function entropyAlpha(law, n) {
const { kind, u } = inTable(law);
const wanted = evaluate(HELD[kind], u);
const excess = Math.log(n) - wanted;
if (excess <= 0) return null;
const v = place(excess / (Math.log(TABLE.limits.n[1]) - wanted), [0, 1]);
return Math.sqrt(excess * Math.exp(evaluate(ENTROPY[kind], u, v))) / deviation(law);
}
return { effectiveKeys, criteria };
})();
modules.policies = (() => {
const { annealedBestAlpha } = modules.laws;
const { TABLE } = modules.table;
const POLICIES = TABLE.policies;
const extension = (n, length) => Math.max(n / length, 1);
const RULES = {
inverse_root: ({ d }) => 1 / Math.sqrt(d),
root: ({ d }) => Math.sqrt(d),
over_dimension: ({ d, multiplier }) => multiplier / d,
constant_scale: ({ scale }) => scale,
clipped: ({ initial, largest }) => Math.min(initial, largest),
fixed_root: ({ scalar }) => 1 / Math.sqrt(scalar),
pairs: ({ n }) => Math.log2(Math.max(n, 2)) + Math.log2(Math.max(n, 2) - 1),
other_classes: ({ n }) => Math.SQRT2 * Math.log(Math.max(n, 2) - 1),
log_length: ({ n, d }) => Math.log(n) / Math.sqrt(d),
entropy_invariance: ({ n, d, reference, floor }) =>
Math.log(Math.max(n, floor)) / Math.log(reference) / Math.sqrt(d),
log_position: ({ d, position, train_length }) =>
Math.max(Math.log(position + 1) / Math.log(train_length), 1) / Math.sqrt(d),
best_normal: ({ n, d }) => annealedBestAlpha({ kind: "normal", d }, n) / Math.sqrt(d),
best_cosine: ({ n, d }) => annealedBestAlpha({ kind: "cosine", d }, n),
learned_log_length: ({ n, d, s }) => (s * Math.log(n)) / Math.sqrt(d),
yarn: ({ n, d, coefficient, train_length }) =>
(coefficient * Math.log(extension(n, train_length)) + 1) ** 2 / Math.sqrt(d),
deepseek: ({ d, coefficient, factor }) =>
(coefficient * Math.log(factor) + 1) ** 2 / Math.sqrt(d),
longrope: ({ n, d, train_length }) =>
(1 + Math.log(extension(n, train_length)) / Math.log(train_length)) / Math.sqrt(d),
llama_4: ({ d, position, coefficient, floor }) =>
(1 + coefficient * Math.log1p(Math.floor((position + 1) / floor))) / Math.sqrt(d),
infoscale: ({ n, d, train_length }) => {
const share = (length) => -Math.expm1((-2 * Math.log(length)) / d);
return Math.sqrt(share(n) / share(train_length)) / Math.sqrt(d);
},
};
function policyScale(policy, n, d) {
return RULES[policy.rule]({ n, d, position: n - 1, ...policy.constants });
}
function policyAlpha(policy, n, d) {
const scale = policyScale(policy, n, d);
return policy.applied_to === "cosine" ? scale / Math.sqrt(d) : scale * Math.sqrt(d);
}
return { POLICIES, policyScale, policyAlpha };
})();
modules.rows = (() => {
const { TABLE } = modules.table;
const KEPT = TABLE.arrivals.length - 1;
const STEPS = 1600;
function sampleRow(law, n) {
const grid = density(law);
const S = TABLE.arrivals;
const total = n < S.length ? S[n] : S[KEPT - 1] + n + 1 - KEPT;
const count = Math.min(n, KEPT);
const scores = Array.from({ length: count }, (_, k) => quantile(grid, S[k] / total));
const others = { scores: [], masses: [] };
if (n > count) {
const edge = scores[count - 1];
let missing = n * (1 - S[count - 1] / total);
for (let i = 0; grid.scores[i] < edge; i++) {
others.scores.push(grid.scores[i]);
others.masses.push(n * grid.masses[i]);
missing -= n * grid.masses[i];
}
others.scores.push(edge); // what the last step of the grid has too much or too little
others.masses.push(missing);
}
return { n, scores, others };
}
function weigh({ n, scores, others }, alpha) {
const powers = scores.map((s) => Math.exp(alpha * (s - scores[0])));
const rest = others.scores.map((s) => Math.exp(alpha * (s - scores[0])));
const sum = (terms) => terms.reduce((a, b) => a + b, 0);
const Z = sum(powers) + sum(rest.map((power, i) => others.masses[i] * power));
const squares = sum(powers.map((p) => p * p)) + sum(rest.map((p, i) => others.masses[i] * p * p));
const collision = squares / (Z * Z);
return {
n,
weights: powers.map((power) => power / Z),
collision,
gradient: alpha * (1 - collision),
};
}
function density({ kind, d }) {
const cosine = kind === "cosine";
const reach = cosine ? Math.sqrt(60 / (d - 1)) + 30 / (d - 1) : 8;
const points = Array.from({ length: STEPS + 1 }, (_, i) => reach * ((2 * i) / STEPS - 1));
const heights = points.map((v) =>
cosine ? Math.exp((1 - d) * Math.log(Math.cosh(v))) : Math.exp((-v * v) / 2),
);
const total = heights.reduce((a, b) => a + b, 0);
const masses = heights.map((height) => height / total);
const above = new Float64Array(STEPS + 1);
for (let i = STEPS - 1; i >= 0; i--) above[i] = above[i + 1] + (masses[i] + masses[i + 1]) / 2;
return { scores: cosine ? points.map(Math.tanh) : points, masses, above };
}
function quantile({ scores, above }, chance) {
let [low, high] = [0, STEPS - 1];
while (high - low > 1) {
const middle = (low + high) >> 1;
if (above[middle] > chance) low = middle;
else high = middle;
}
const part = Math.log(above[low] / chance) / Math.log(above[low] / above[high]);
return scores[low] + part * (scores[high] - scores[low]);
}
return { sampleRow, weigh };
})();
modules.drawing = (() => {
const SVG = "http://www.w3.org/2000/svg";
function fill(node, attributes, children) {
for (const [name, value] of Object.entries(attributes)) {
if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
else if (value !== false && value !== undefined)
node.setAttribute(name, value === true ? "" : value);
}
node.append(...children);
return node;
}
function html(tag, attributes = {}, ...children) {
return fill(document.createElement(tag), attributes, children);
}
function svg(tag, attributes = {}, ...children) {
return fill(document.createElementNS(SVG, tag), attributes, children);
}
function digits(value, count = 3) {
if (!Number.isFinite(value)) return "∞";
if (value === 0) return "0";
const size = Math.floor(Math.log10(Math.abs(value)));
if (size >= count) return grouped(Math.round(value));
return value.toFixed(Math.min(Math.max(count - 1 - size, 0), 20));
}
function grouped(value) {
return value < 1e4 ? String(value) : String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}
function percent(share) {
return `${share < 0.995 ? digits(100 * share, 2) : "100"}\u00a0%`;
}
function ticks(from, to, count = 5) {
const raw = (to - from) / count;
const power = 10 ** Math.floor(Math.log10(raw));
const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
const first = Math.ceil(from / step - 1e-9);
const last = Math.floor(to / step + 1e-9);
return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}
function chart({ x, y, width = 420, height = 280, name }) {
const box = { left: 76, right: width - 14, top: 12, bottom: height - 52 };
const X = (value) => box.left + ((box.right - box.left) * (value - x.from)) / (x.to - x.from);
const Y = (value) => box.bottom - ((box.bottom - box.top) * (value - y.from)) / (y.to - y.from);
const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
const add = (tag, attributes, ...children) => {
const node = svg(tag, attributes, ...children);
root.append(node);
return node;
};
const pairs = (list) => list.map((tick) => (Array.isArray(tick) ? tick : [tick, short(tick)]));
add("path", {
class: "axis",
d: `M${box.left} ${box.top}V${box.bottom}H${box.right}`,
});
for (const [value, text] of pairs(x.ticks)) {
add("path", { class: "axis", d: `M${X(value).toFixed(1)} ${box.bottom}v5` });
add("text", { x: X(value), y: box.bottom + 21, "text-anchor": "middle" }, text);
}
for (const [value, text] of pairs(y.ticks)) {
add("path", { class: "axis", d: `M${box.left} ${Y(value).toFixed(1)}h-5` });
add("text", { x: box.left - 9, y: Y(value) + 5, "text-anchor": "end" }, text);
}
const middle = (box.top + box.bottom) / 2;
add("text", { x: (box.left + box.right) / 2, y: height - 9, "text-anchor": "middle" }, x.name);
add(
"text",
{ x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})` },
y.name,
);
const inside = (value) => Number.isFinite(value) && value >= y.from && value <= y.to;
const pair = (a, b) => `${X(a).toFixed(1)} ${Y(b).toFixed(1)}`;
const edge = ([a, b], [c, d]) => {
const border = d < y.from ? y.from : y.to;
return pair(a + ((border - b) / (d - b)) * (c - a), border);
};
return {
root,
box,
X,
Y,
add,
curve(points, style) {
let path = "";
for (const [i, point] of points.entries()) {
const before = points[i - 1];
const [now, then] = [inside(point[1]), before && inside(before[1])];
if (now && before && !then) path += `M${edge(point, before)}`;
if (now) path += `${before ? "L" : "M"}${pair(...point)}`;
if (then && !now) path += `L${edge(before, point)}`;
}
return add("path", { class: style, d: path || "M0 0" });
},
dot(a, b, style) {
return add("circle", { class: style, cx: X(a), cy: Y(b), r: 5 });
},
upright(a, style) {
return add("path", { class: style, d: `M${X(a).toFixed(1)} ${box.top}V${box.bottom}` });
},
label(a, b, text, style = "") {
return add("text", { x: X(a), y: Y(b), class: style }, text);
},
};
}
function short(value) {
return value >= 1e4 ? grouped(Math.round(value)) : String(Number(value.toPrecision(6)));
}
function legend(lines) {
const sample = (style) =>
svg(
"svg",
{ class: "live-key", viewBox: "0 0 40 8", "aria-hidden": "true" },
svg("path", { class: style, d: "M0 4H40" }),
);
return html(
"ul",
{ class: "live-legend" },
...lines.map(([style, name]) => html("li", {}, sample(style), name)),
);
}
function bars(weights, { name, highest = 1, shown = 24 }) {
const view = chart({
x: { from: 0, to: shown, name: "keys of the row, largest weight first", ticks: [] },
y: { from: 0, to: highest, name: "weight", ticks: [0, highest / 2, highest] },
name,
});
const gap = (view.box.right - view.box.left) / shown;
for (const [k, weight] of weights.slice(0, shown).entries())
view.add("rect", {
class: "bar",
x: (view.box.left + gap * (k + 0.12)).toFixed(1),
y: view.Y(weight).toFixed(1),
width: (0.76 * gap).toFixed(1),
height: Math.max(view.box.bottom - view.Y(weight), 0).toFixed(1),
});
return view;
}
return { html, svg, digits, grouped, percent, ticks, chart, legend, bars };
})();
modules.controls = (() => {
const { html } = modules.drawing;
let fields = 0;
function numberField({ label, hint, from, to, step, scale = "linear", check, use }) {
const id = `live-${++fields}`;
const logarithmic = scale === "logarithmic";
const forward = logarithmic ? Math.log2 : (value) => value;
const backward = (place) => {
const value = logarithmic ? 2 ** place : place;
return step >= 1 ? Math.round(value) : Number(value.toPrecision(4));
};
const entry = html("input", {
id,
type: "number",
inputmode: "decimal",
step: step >= 1 ? step : "any",
"aria-describedby": hint ? `${id}-hint ${id}-problem` : `${id}-problem`,
});
const slider = html("input", { type: "range", "aria-label": `${label}, slider` });
const problem = html("p", { id: `${id}-problem`, class: "live-problem", "aria-live": "polite" });
const say = (text) => {
problem.textContent = text;
entry.setAttribute("aria-invalid", String(text !== ""));
};
const place = (value) => {
slider.value = forward(value);
slider.setAttribute("aria-valuetext", String(value));
};
const range = (low, high) => {
slider.min = forward(low);
slider.max = forward(high);
slider.step = logarithmic ? 1 / 16 : step;
};
const show = (value) => {
entry.value = value;
place(value);
say("");
};
const take = () => {
const text = entry.value.trim();
const value = Number(text);
const wrong =
text === "" || !Number.isFinite(value) ? "This is not a number." : check(value) || "";
say(wrong);
if (wrong) return;
place(value);
use(value);
};
range(from, to);
entry.addEventListener("input", take);
slider.addEventListener("input", () => {
const value = backward(Number(slider.value));
show(value);
use(value);
});
const element = html(
"div",
{ class: "live-field" },
html("label", { for: id }, label),
html("div", { class: "live-entry" }, entry, slider),
...(hint ? [html("p", { id: `${id}-hint`, class: "live-hint" }, hint)] : []),
problem,
);
return { element, show, range, entry, slider, say, take };
}
function choice({ legend, name, options, use }) {
const problem = html("p", { class: "live-problem", "aria-live": "polite" });
const buttons = options.map(([value, text]) => {
const input = html("input", { type: "radio", name, value, onchange: () => use(value) });
return { value, input, element: html("label", {}, input, " ", text) };
});
return {
element: html(
"fieldset",
{ class: "live-choice" },
html("legend", {}, legend),
...buttons.map(({ element }) => element),
problem,
),
show(value) {
for (const button of buttons) button.input.checked = button.value === value;
},
say(text) {
problem.textContent = text;
},
};
}
function once(work) {
let waiting = false;
return () => {
if (waiting) return;
waiting = true;
requestAnimationFrame(() => {
waiting = false;
work();
});
};
}
function player({ label, seconds = 7, move, results }) {
let start = null;
let part = 0;
const button = html("button", { type: "button", class: "live-button" }, label);
const stop = () => {
start = null;
button.textContent = label;
results.setAttribute("aria-live", "polite");
move(part);
};
const frame = (time) => {
if (start === null) return;
start ||= time;
part = Math.min((time - start) / (1000 * seconds), 1);
move(part);
if (part < 1) requestAnimationFrame(frame);
else stop();
};
button.addEventListener("click", () => {
if (start !== null) return stop();
start = 0;
part = 0;
button.textContent = "Stop";
results.setAttribute("aria-live", "off");
return requestAnimationFrame(frame);
});
return button;
}
function mount(id, build) {
const figure = document.getElementById(id);
const still = figure?.querySelector("img");
const shown = still?.closest("a") ?? still;
if (!shown || shown.classList.contains("live-still")) return;
const stage = html("div", { class: "live" }, ...build());
shown.classList.add("live-still");
shown.before(stage);
}
function readings(pairs) {
return pairs.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]);
}
return { numberField, choice, once, player, mount, readings };
})();
modules.jacobian = (() => {
const { numberField, player, readings } = modules.controls;
const { chart, digits, html, percent, svg, ticks } = modules.drawing;
const OTHERS = [-1.5, -1.08, -0.66, -0.24, 0.18, 0.6];
const LARGEST_ALPHA = 20;
const CELL = 30;
function softmax(scores, alpha) {
const largest = Math.max(...scores);
const powers = scores.map((s) => Math.exp(alpha * (s - largest)));
const total = powers.reduce((a, b) => a + b, 0);
return powers.map((power) => power / total);
}
function jacobian(p, alpha) {
return p.map((a, i) => p.map((b, j) => alpha * ((i === j ? a : 0) - a * b)));
}
function gradient(p, alpha) {
return alpha * p.reduce((sum, a) => sum + a * (1 - a), 0);
}
function jacobianFigure() {
const state = { alpha: 3, gap: 0.2 };
const pictures = html("div", { class: "live-pictures" });
const values = html("dl", { class: "live-readings", "aria-live": "polite" });
const draw = () => {
const scores = [...OTHERS, 1, 1 + state.gap];
const p = softmax(scores, state.alpha);
const matrix = jacobian(p, state.alpha);
pictures.replaceChildren(matrixPicture(p, matrix), curvePicture(scores, state));
values.replaceChildren(
...readings([
["gradient g = α(1 − Σp²)", digits(gradient(p, state.alpha))],
["largest entry of J", digits(Math.max(...matrix.flat()))],
["no entry exceeds α/4", digits(state.alpha / 4)],
["largest weight", percent(Math.max(...p))],
]),
);
};
const change = (part) => {
Object.assign(state, part);
draw();
};
const alpha = numberField({
label: "Scale α",
from: 0,
to: LARGEST_ALPHA,
step: 0.1,
check: (value) => (value < 0 || value > LARGEST_ALPHA ? "Here α goes from 0 to 20." : ""),
use: (value) => change({ alpha: value }),
});
const gap = numberField({
label: "Gap of the two largest scores",
from: 0,
to: 1,
step: 0.01,
check: (value) => (value < 0 || value > 1 ? "Here the gap goes from 0 to 1." : ""),
use: (value) => change({ gap: value }),
});
const play = player({
label: "Let α grow",
results: values,
move: (part) => {
const value = Number((LARGEST_ALPHA * part).toFixed(1));
alpha.show(value);
change({ alpha: value });
},
});
alpha.show(state.alpha);
gap.show(state.gap);
draw();
return [
html("div", { class: "live-fields" }, alpha.element, gap.element, play),
pictures,
values,
];
}
function matrixPicture(p, matrix) {
const size = CELL * p.length;
const name = "The weights of eight keys as bars, above the matrix J as coloured squares.";
const root = svg("svg", {
viewBox: `-18 0 ${size + 36} ${size + 112}`,
role: "img",
"aria-label": name,
class: "live-square",
});
for (const [i, weight] of p.entries()) {
const height = 84 * weight;
root.append(
svg("rect", { class: "bar", x: CELL * i + 4, y: 90 - height, width: CELL - 8, height }),
);
}
root.append(svg("path", { class: "axis", d: `M0 90H${size}` }));
const strongest = Math.max(1e-9, ...matrix.flat().map(Math.abs));
for (const [i, line] of matrix.entries())
for (const [j, entry] of line.entries())
root.append(
svg("rect", {
class: entry >= 0 ? "positive" : "negative",
x: CELL * j + 1,
y: 100 + CELL * i + 1,
width: CELL - 2,
height: CELL - 2,
"fill-opacity": (Math.abs(entry) / Math.max(strongest, 0.25)).toFixed(3),
}),
);
root.append(svg("rect", { class: "frame", x: 0, y: 100, width: size, height: size }));
return root;
}
function curvePicture(scores, { alpha }) {
const points = Array.from({ length: 101 }, (_, i) => {
const a = (LARGEST_ALPHA * i) / 100;
return [a, gradient(softmax(scores, a), a)];
});
const highest = Math.max(1, ...points.map(([, g]) => g)) * 1.08;
const view = chart({
x: { from: 0, to: LARGEST_ALPHA, name: "scale α", ticks: ticks(0, LARGEST_ALPHA) },
y: { from: 0, to: highest, name: "gradient g", ticks: ticks(0, highest) },
name: "The gradient of this row against α, with a dot at the chosen α.",
});
view.curve(points, "line exact");
view.dot(alpha, gradient(softmax(scores, alpha), alpha), "dot exact");
return view.root;
}
return { softmax, jacobian, gradient, jacobianFigure };
})();
modules.freezing = (() => {
const { numberField, player, readings } = modules.controls;
const { bars, chart, digits, grouped, html, percent } = modules.drawing;
const { criticalAlpha } = modules.laws;
const { sampleRow, weigh } = modules.rows;
const { TABLE } = modules.table;
const NORMAL = { kind: "normal" };
const LARGEST_ALPHA = 6;
const [FEWEST, MOST] = TABLE.limits.n;
const PHASES = [
[0, "the formula holds for typical rows and in the mean"],
[1 / 2, "the formula holds in the mean only"],
[1 / Math.sqrt(3), "the formula fails; rare rows make the mean"],
[1, "frozen"],
];
function phase(alpha, n) {
const x = alpha / criticalAlpha(NORMAL, n);
return PHASES.findLast(([from]) => x >= from)[1];
}
function freezingFigure() {
const state = { alpha: 4, n: 16 };
const pictures = html("div", { class: "live-pictures" });
const values = html("dl", { class: "live-readings", "aria-live": "polite" });
const draw = () => {
const { alpha, n } = state;
const row = weigh(sampleRow(NORMAL, n), alpha);
const critical = criticalAlpha(NORMAL, n);
const formula = n / Math.exp(alpha * alpha);
pictures.replaceChildren(
plane(alpha, n),
bars(row.weights, { name: "The largest weights of a row." }).root,
);
values.replaceChildren(
...readings([
["critical scale √(2 log n)", digits(critical)],
["α in its units", digits(alpha / critical)],
["largest weight", percent(row.weights[0])],
["as many equal keys, 1/Σp²", digits(1 / row.collision)],
["by the formula, n/exp(α²)", formula < 1 ? "below 1" : digits(formula)],
["in the limit of many keys", phase(alpha, n)],
]),
);
};
const change = (part) => {
Object.assign(state, part);
draw();
};
const keys = numberField({
label: "Number of keys n",
from: FEWEST,
to: MOST,
step: 1,
scale: "logarithmic",
check: (value) =>
!Number.isInteger(value) || value < FEWEST || value > MOST
? `Here n is a whole number from 2 to ${grouped(MOST)}.`
: "",
use: (value) => change({ n: value }),
});
const scale = numberField({
label: "Scale α",
from: 0,
to: LARGEST_ALPHA,
step: 0.05,
check: (value) => (value < 0 || value > LARGEST_ALPHA ? "Here α goes from 0 to 6." : ""),
use: (value) => change({ alpha: value }),
});
const play = player({
label: "Let n grow",
results: values,
move: (part) => {
const value = Math.round(FEWEST * (MOST / FEWEST) ** part);
keys.show(value);
change({ n: value });
},
});
keys.show(state.n);
scale.show(state.alpha);
draw();
return [
html("div", { class: "live-fields" }, keys.element, scale.element, play),
pictures,
values,
];
}
function plane(alpha, n) {
const end = Math.log10(MOST);
const view = chart({
x: {
from: Math.log10(2),
to: end,
name: "number of keys n",
ticks: [
[1, "10"],
[3, "10³"],
[5, "10⁵"],
[7, "10⁷"],
],
},
y: { from: 0, to: 6.5, name: "scale α", ticks: [0, 2, 4, 6] },
name: "The plane of n and α with the boundaries of the phases, and a dot at the chosen n and α.",
});
const places = Array.from({ length: 60 }, (_, i) => Math.log10(2) + ((end - 0.30103) * i) / 59);
for (const [unit, style] of [
[1 / 2, "thin"],
[1 / Math.sqrt(3), "thin"],
[1, "line ink"],
])
view.curve(
places.map((x) => [x, unit * criticalAlpha(NORMAL, 10 ** x)]),
style,
);
view.label(1, 5, "frozen");
view.label(5.4, 3.6, "neither");
view.label(4.5, 0.9, "formula holds");
view.dot(Math.log10(n), alpha, "dot exact");
return view.root;
}
return { PHASES, phase, freezingFigure };
})();
modules.temperature = (() => {
const { evaluate, place, unpack } = modules.chebyshev;
const { numberField, player } = modules.controls;
const { chart, digits, grouped, html, legend } = modules.drawing;
const { TABLE } = modules.table;
const OUTPUT = unpack(TABLE.output);
const [FEWEST, MOST] = TABLE.output.n;
const [COLDEST, HOTTEST] = TABLE.output.t;
function outputDeviation(t, n) {
const ends = (range, f) => range.map(f);
const root = (count) => Math.sqrt(Math.log(count));
return Math.exp(
evaluate(
OUTPUT,
place(root(n), ends(TABLE.output.n, root)),
place(Math.log(t), ends(TABLE.output.t, Math.log)),
),
);
}
const RULES = [
["flat", "thin dotted", (t, n) => n ** -0.5],
["log-normal", "line approximation", (t, n) => Math.exp(t ** -2 / 2) / n ** 0.5],
["spike", "thin dashed", () => 1],
];
function temperatureFigure() {
const state = { t: 1, n: 4096 };
const pictures = html("div", { class: "live-pictures" });
const body = html("tbody");
const note = html("p", { class: "live-note", "aria-live": "polite" });
const draw = () => {
const { t, n } = state;
const exact = outputDeviation(t, n);
pictures.replaceChildren(picture(t, n));
body.replaceChildren(
...RULES.map(([name, , rule]) => {
const off = rule(t, n) / exact - 1;
return html(
"tr",
{},
html("th", { scope: "row" }, name),
html("td", {}, digits(rule(t, n))),
html("td", {}, wrongness(off)),
);
}),
);
const bound = Math.sqrt(1.5 / Math.log(n));
note.textContent =
`The exact standard deviation at t = ${digits(t)} and n = ${grouped(n)} is ${digits(exact)}. ` +
`The log-normal rule needs t well above √(3/(2 log n)) = ${digits(bound)}.`;
};
const change = (part) => {
Object.assign(state, part);
draw();
};
const temperature = numberField({
label: "Temperature t = 1/α",
from: COLDEST,
to: HOTTEST,
step: 0.001,
scale: "logarithmic",
check: (value) => (value < COLDEST || value > HOTTEST ? "Here t goes from 1/16 to 16." : ""),
use: (value) => change({ t: value }),
});
const keys = numberField({
label: "Number of keys n",
from: FEWEST,
to: MOST,
step: 1,
scale: "logarithmic",
check: (value) =>
!Number.isInteger(value) || value < FEWEST || value > MOST
? `Here n is a whole number from ${FEWEST} to ${grouped(MOST)}.`
: "",
use: (value) => change({ n: value }),
});
const play = player({
label: "Let it cool",
results: note,
move: (part) => {
const value = Number((HOTTEST * (COLDEST / HOTTEST) ** part).toPrecision(3));
temperature.show(value);
change({ t: value });
},
});
temperature.show(state.t);
keys.show(state.n);
draw();
return [
html("div", { class: "live-fields" }, temperature.element, keys.element, play),
legend([
["line exact", "exact"],
["thin dotted", "flat, n^(−½)"],
["line approximation", "log-normal, (exp(1/t²)/n)^½"],
["thin dashed", "spike, 1"],
]),
pictures,
note,
html(
"table",
{ class: "live-table" },
html(
"thead",
{},
html(
"tr",
{},
...["rule", "value", "off by"].map((text) => html("th", { scope: "col" }, text)),
),
),
body,
),
];
}
function wrongness(off) {
if (off > 9) return `${digits(1 + off, 2)} ×`;
const sign = off < 0 ? "−" : "+";
return Math.abs(off) < 0.0005 ? "0\u00a0%" : `${sign}${digits(100 * Math.abs(off), 2)}\u00a0%`;
}
function picture(t, n) {
const log = Math.log2;
const lowest = log(n ** -0.5) - 0.6;
const heights = [1, 1 / 4, 1 / 16, 1 / 64, 1 / 256].filter((value) => log(value) > lowest);
const view = chart({
x: {
from: log(COLDEST),
to: log(HOTTEST),
name: "temperature t",
ticks: [
[-4, "1/16"],
[-2, "1/4"],
[-1, "1/2"],
[0, "1"],
[2, "4"],
[4, "16"],
],
},
y: {
from: lowest,
to: 0.5,
name: "std of the output",
ticks: heights.map((value) => [log(value), value === 1 ? "1" : `1/${1 / value}`]),
},
name:
"The output’s standard deviation against temperature: the exact curve, three rules, " +
"and dots at the chosen temperature.",
});
const places = Array.from({ length: 121 }, (_, i) => -4 + (8 * i) / 120);
const draw = (rule, style) => {
view.curve(
places.map((x) => [x, log(rule(2 ** x, n))]),
style,
);
};
for (const [, style, rule] of RULES) draw(rule, style);
draw(outputDeviation, "line exact");
view.upright(log(t), "thin");
const inside = (value) => log(value) <= 0.5;
for (const [, , rule] of RULES)
if (inside(rule(t, n))) view.dot(log(t), log(rule(t, n)), "dot hollow");
view.dot(log(t), log(outputDeviation(t, n)), "dot exact");
return view.root;
}
return { outputDeviation, RULES, temperatureFigure };
})();
modules.calculator = (() => {
const { choice, numberField, once } = modules.controls;
const { criteria, effectiveKeys } = modules.criteria;
const { bars, chart, digits, grouped, html, legend, percent, svg, ticks } = modules.drawing;
const {
annealedGradient,
causalGradient,
criticalAlpha,
deviation,
meanGradient,
} = modules.laws;
const { POLICIES, policyAlpha, policyScale } = modules.policies;
const { sampleRow, weigh } = modules.rows;
const { TABLE } = modules.table;
const START = { n: 4096, d: 128, law: "dot product", causal: false, scale: "annealed", own: 1 };
const LAWS = [
["dot product", "dot products"],
["cosine", "cosines"],
["normal", "normal, as dot products for d → ∞"],
];
const POINTS = 90;
const OWN = "own";
const PAUSE = 400;
function problemOfN(value) {
const [fewest, most] = TABLE.limits.n;
if (!Number.isInteger(value)) return "n counts keys: it must be a whole number.";
if (value === 1) return "One key has all the weight at every scale: n must be at least 2.";
if (value < fewest) return "n counts keys: it must be at least 2.";
if (value > most)
return `The tables of this page end at n = ${grouped(most)}; attnlib has larger n.`;
return "";
}
function problemOfD(value) {
const [fewest, most] = TABLE.limits.d;
if (!Number.isInteger(value)) return "d counts dimensions: it must be a whole number.";
if (value < 1) return "d counts dimensions: it must be positive.";
if (value < fewest)
return `The tables of this page start at d = ${fewest}; attnlib has smaller d.`;
if (value > most) return `The tables of this page end at d = ${grouped(most)}.`;
return "";
}
function problemOfAlpha(value, largest) {
if (value < 0) return "A negative α would prefer the worst keys: α must be at least 0.";
if (value > largest)
return `Here α ends at ${digits(largest)}, ${TABLE.gradient.reach} times the freezing scale.`;
return "";
}
function readAddress(hash) {
const given = new URLSearchParams(hash.replace(/^#/, ""));
const state = { ...START };
const problems = {};
for (const [name, problemOf] of [
["n", problemOfN],
["d", problemOfD],
]) {
if (!given.has(name)) continue;
const text = given.get(name).trim();
const value = Number(text);
const problem =
text === "" || !Number.isFinite(value) ? "This is not a number." : problemOf(value);
if (problem) problems[name] = { text, problem };
else state[name] = value;
}
const law = given.get("law")?.replace(/[-_+]/g, " ");
if (law !== undefined && LAWS.some(([name]) => name === law)) state.law = law;
else if (law !== undefined) problems.law = { text: law, problem: `There is no law “${law}”.` };
state.causal = given.get("causal") === "1";
const scale = given.get("scale");
if (scale !== null) {
const known = [...TABLE.criteria.list, ...POLICIES].some(({ name }) => name === scale);
const value = scale.trim() === "" ? NaN : Number(scale);
const problem = problemOfAlpha(value, largestAlpha(state));
if (known) state.scale = scale;
else if (Number.isNaN(value))
problems.scale = { text: "", problem: `There is no scale “${scale}”.` };
else if (problem) problems.scale = { text: scale, problem };
else Object.assign(state, { scale: OWN, own: value });
}
return { state, problems };
}
function writeAddress({ n, d, law, causal, scale, own }) {
const values = { n, d, law: law.replace(" ", "-"), causal: causal ? 1 : 0 };
values.scale = scale === OWN ? Number(own.toPrecision(4)) : scale;
return `#${new URLSearchParams(values)}`;
}
function lawOf({ law, d }) {
return { kind: law, d };
}
function freezing(state) {
const law = lawOf(state);
return criticalAlpha(law, state.n) * deviation(law);
}
function largestAlpha(state) {
return TABLE.gradient.reach * freezing(state);
}
function scales(state) {
const { n, d, causal } = state;
const law = lawOf(state);
const cosine = law.kind === "cosine";
const target = {
applied_to: cosine ? "cosine" : "dot product",
factor: cosine ? Math.sqrt(d) : 1 / Math.sqrt(d),
};
const withScale = (alpha) => ({
alpha,
applied_to: target.applied_to,
scale: alpha === null ? null : alpha * target.factor,
});
const found = criteria(law, n, causal).map(({ name, meaning, alpha }) => ({
name,
title: name,
meaning,
...withScale(alpha === null ? null : alpha * deviation(law)),
}));
const inUse = POLICIES.map((policy) => ({
...policy,
alpha: policyAlpha(policy, n, d),
scale: policyScale(policy, n, d),
}));
const own = { name: OWN, title: "your own α", meaning: "", ...withScale(state.own) };
return { criteria: found, policies: inUse, own, keys: effectiveKeys(n, causal) };
}
function gradients(state) {
const law = lawOf(state);
const unit = deviation(law);
const keys = effectiveKeys(state.n, state.causal);
const exact = (state.causal ? causalGradient : meanGradient)(law, state.n);
const row = sampleRow(law, state.n);
return {
exact: (alpha) => unit * exact(alpha / unit),
approximation: (alpha) => unit * annealedGradient(law, alpha / unit, keys),
row: (alpha) => {
const seen = weigh(row, alpha / unit);
return { ...seen, gradient: unit * seen.gradient };
},
};
}
function code(chosen, state) {
const cosine = chosen.applied_to === "cosine";
const number = (value) => Number(value.toPrecision(4));
const call = (name, ...options) => [
`out = ${name}(`,
"    q, k, v,",
...options.filter(Boolean).map((option) => `    ${option},`),
")",
];
const causal = state.causal && "is_causal=True";
const torch = [
"import torch.nn.functional as F",
...(cosine ? ["q = F.normalize(q, dim=-1)", "k = F.normalize(k, dim=-1)"] : []),
...call("F.scaled_dot_product_attention", `scale=${number(chosen.scale)}`, causal),
];
const alpha = cosine ? chosen.scale : chosen.alpha; // attend's α multiplies the cosine itself
const what = "rule" in chosen ? `policy="${chosen.name}"` : `alpha=${number(alpha)}`;
const attnlib = [
"from attnlib.attention import attend",
...call("attend", what, cosine && "normalize_qk=True", causal),
];
return { torch: torch.join("\n"), attnlib: attnlib.join("\n") };
}
function calculator() {
let { state, problems } = readAddress(location.hash);
const results = {
criteria: html("tbody"),
policies: html("tbody"),
note: html("p", { class: "live-note" }),
pictures: html("div", { class: "live-pictures" }),
readings: html("p", { class: "live-note" }),
torch: html("code"),
attnlib: html("code"),
answer: html("p", { class: "live-answer" }),
spoken: html("p", { class: "live-spoken", role: "status" }),
scaleNote: html("p", { class: "live-problem", "aria-live": "polite" }),
};
let changed = false; // the address is the reader's until then
let typing = false; // leave the α field alone while its reader is at it
const change = (part) => {
state = { ...state, ...part };
changed = true;
results.scaleNote.textContent = "";
if (part.law) law.say("");
update();
};
const fields = {
n: numberField({
label: "Number of keys n",
hint: "Those that a query sees.",
from: TABLE.limits.n[0],
to: TABLE.limits.n[1],
step: 1,
scale: "logarithmic",
check: problemOfN,
use: (n) => change({ n }),
}),
d: numberField({
label: "Dimension d",
hint: "Of one head.",
from: TABLE.limits.d[0],
to: TABLE.limits.d[1],
step: 1,
scale: "logarithmic",
check: problemOfD,
use: (d) => change({ d }),
}),
alpha: numberField({
label: "Scale α",
from: 0,
to: 10,
step: 0.01,
check: (value) => problemOfAlpha(value, largestAlpha(state)),
use: (own) => {
typing = true;
change({ scale: OWN, own });
},
}),
};
const law = choice({
legend: "Scores of random q and k",
name: "live-law",
options: LAWS,
use: (value) => change({ law: value }),
});
const causal = html("input", {
type: "checkbox",
onchange: () => change({ causal: causal.checked }),
});
let known = {}; // what α does not change
const update = once(() => {
const found = scales(state);
const all = [...found.criteria, ...found.policies, found.own];
let chosen = all.find(({ name }) => name === state.scale);
if (chosen.alpha === null) {
results.scaleNote.textContent =
"So few keys cannot have the entropy of 512: α stays where it was.";
state = { ...state, scale: OWN };
chosen = scales(state).own;
}
if (!(chosen.alpha <= largestAlpha(state))) {
state = { ...state, scale: OWN, own: Number(largestAlpha(state).toPrecision(4)) };
results.scaleNote.textContent =
`α = ${digits(chosen.alpha)} is beyond ${TABLE.gradient.reach} times the freezing scale: ` +
"shown is what it does there.";
chosen = scales(state).own;
}
state.own = chosen.alpha;
show(found, chosen);
});
const show = (found, chosen) => {
const key = JSON.stringify([state.n, state.d, state.law, state.causal]);
if (key !== known.key) {
known = { key, curves: gradients(state) };
fillTables(found, known.curves.exact);
}
mark();
const { curves } = known;
const end = Math.min(Math.max(2.2 * freezing(state), 1.1 * chosen.alpha), largestAlpha(state));
if (!typing) {
fields.alpha.range(0, end);
fields.alpha.show(Number(chosen.alpha.toPrecision(4)));
}
typing = false;
if (end !== known.end) Object.assign(known, { end, points: pointsOf(curves, end) });
results.note.textContent = meaningOf(chosen);
const seen = curves.row(chosen.alpha);
results.pictures.replaceChildren(
picture(known, found, chosen),
bars(seen.weights, {
name: "The largest weights of a sample row, sorted.",
highest: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((top) => top >= seen.weights[0]),
}).root,
);
results.answer.textContent = answerOf(chosen, seen);
results.readings.textContent = measures(seen);
const lines = code(chosen, state);
results.torch.textContent = lines.torch;
results.attnlib.textContent = lines.attnlib;
clearTimeout(settling);
settling = setTimeout(settle, PAUSE);
};
let settling;
const settle = () => {
results.spoken.textContent = results.answer.textContent;
if (changed) history.replaceState(null, "", writeAddress(state));
};
const answerOf = (chosen, seen) =>
`For n = ${grouped(state.n)}, d = ${grouped(state.d)}, ${chosen.title}: multiply ` +
`${symbolOf(chosen)} by ${digits(chosen.scale, 4)}. Then the logits have standard deviation ` +
`α = ${digits(chosen.alpha)}, and the largest weight is ${percent(seen.weights[0])}.`;
const pick = (name) => change({ scale: name });
const fillTables = (found, mean) => {
const lines = (list) => list.map((scale) => tableLine(scale, mean, pick));
results.criteria.replaceChildren(...lines(found.criteria));
results.policies.replaceChildren(...lines(found.policies));
};
const mark = () => {
for (const input of root.querySelectorAll("input[name=live-scale]"))
input.checked = input.value === state.scale;
};
const meaningOf = (chosen) => {
const { name, title, meaning, rule } = chosen;
const masked = state.causal && rule === undefined && name !== OWN;
const last = state.causal && rule !== undefined;
const keys = digits(effectiveKeys(state.n, true));
return [
meaning && `${title}: ${meaning}`,
masked && `Under the mask it is one constant for all positions, that of ${keys} keys.`,
last && "Under the mask this is its value at the last position.",
]
.filter(Boolean)
.join(" ");
};
const measures = (seen) =>
`The largest key has ${percent(seen.weights[0])} of the weight, Σp² is ${digits(seen.collision)}, ` +
`as with ${digits(1 / seen.collision)} equal keys, and the row’s gradient is ${digits(seen.gradient)}.` +
(state.causal ? " It is the last row of the mask, which sees all keys." : "");
const root = page({ fields, law, causal, results });
const adopt = () => {
({ state, problems } = readAddress(location.hash));
fields.n.show(state.n);
fields.d.show(state.d);
law.show(state.law);
causal.checked = state.causal;
update();
for (const [name, field] of [
["n", fields.n],
["d", fields.d],
])
if (problems[name]) {
field.entry.value = problems[name].text;
field.say(problems[name].problem);
}
law.say(problems.law?.problem ?? "");
results.scaleNote.textContent = problems.scale?.problem ?? "";
root.querySelector("details").open ||= POLICIES.some(({ name }) => name === state.scale);
};
addEventListener("hashchange", () => {
if (location.hash.includes("=")) adopt();
});
adopt();
return [root];
}
function page({ fields, law, causal, results }) {
const columns = (first) =>
html(
"thead",
{},
html(
"tr",
{},
...[first, "α", "scale", "gradient"].map((text) => html("th", { scope: "col" }, text)),
),
);
const copy = (code) => {
const button = html("button", { type: "button", class: "live-button" }, "Copy");
button.addEventListener("click", async () => {
try {
await navigator.clipboard.writeText(code.textContent);
button.textContent = "Copied";
} catch {
getSelection().selectAllChildren(code);
button.textContent = "Selected";
}
setTimeout(() => (button.textContent = "Copy"), 1500);
});
return button;
};
const lines = (title, code) =>
html(
"div",
{ class: "live-code" },
html("p", {}, title, " ", copy(code)),
html("pre", { tabindex: 0 }, code),
);
return html(
"form",
{ class: "live-calculator", onsubmit: (event) => event.preventDefault() },
html(
"fieldset",
{},
html("legend", {}, "Your attention"),
html("div", { class: "live-fields" }, fields.n.element, fields.d.element),
law.element,
html("label", { class: "live-check" }, causal, " causal mask"),
),
results.answer,
results.spoken,
html(
"fieldset",
{},
html("legend", {}, "The scale"),
html("table", { class: "live-table" }, columns("criterion"), results.criteria),
html(
"details",
{},
html("summary", {}, `Scales in use (${POLICIES.length})`),
html("table", { class: "live-table" }, columns("in use"), results.policies),
),
),
results.note,
html("h3", {}, "What a scale does"),
html("div", { class: "live-fields" }, fields.alpha.element),
results.scaleNote,
legend([
["line exact", "exact mean; dots: criteria"],
["line approximation", "approximation"],
["line sample", "the sample row"],
]),
results.pictures,
results.readings,
html("h3", {}, "The code to paste"),
lines("PyTorch", results.torch),
lines("attnlib", results.attnlib),
html(
"p",
{ class: "live-note" },
"The address of this page holds your settings: share it, or keep it.",
),
);
}
function symbolOf({ applied_to }) {
return applied_to === "cosine" ? "cos" : "q·k";
}
function tableLine(scale, mean, pick) {
const none = scale.alpha === null;
const input = html("input", {
type: "radio",
name: "live-scale",
value: scale.name,
disabled: none,
onchange: () => pick(scale.name),
});
return html(
"tr",
{},
html("th", { scope: "row" }, html("label", { title: scale.meaning }, input, " ", scale.title)),
html("td", {}, none ? "none" : digits(scale.alpha)),
html("td", {}, none ? "—" : `${digits(scale.scale)} × ${symbolOf(scale)}`),
html("td", {}, none ? "—" : digits(mean(scale.alpha))),
);
}
function pointsOf(gradients, end) {
const alphas = Array.from({ length: POINTS + 1 }, (_, i) => (end * i) / POINTS);
const points = (gradient) => alphas.map((alpha) => [alpha, gradient(alpha)]);
return {
exact: points(gradients.exact),
approximation: points(gradients.approximation),
sample: points((alpha) => gradients.row(alpha).gradient),
};
}
function picture({ curves, points, end }, found, chosen) {
const { exact, approximation, sample } = points;
const highest = 1.08 * Math.max(...[...exact, ...sample].map(([, g]) => g));
const view = chart({
x: { from: 0, to: end, name: "scale α", ticks: ticks(0, end) },
y: { from: 0, to: highest, name: "gradient G", ticks: ticks(0, highest) },
name:
"The gradient against α: the approximation, the exact mean and the sample row, " +
"with the criteria as dots on the exact mean and a line at the chosen α.",
});
view.upright(chosen.alpha, "thin");
view.curve(sample, "line sample");
view.curve(approximation, "line approximation");
view.curve(exact, "line exact");
for (const { alpha, title } of found.criteria)
if (alpha !== null && alpha <= end) {
const dot = view.dot(alpha, curves.exact(alpha), "dot hollow");
dot.append(svg("title", {}, `${title}: α = ${digits(alpha)}`));
}
view.dot(chosen.alpha, curves.exact(chosen.alpha), "dot exact");
return view.root;
}
return { problemOfN, problemOfD, problemOfAlpha, readAddress, writeAddress, scales, gradients, code, calculator };
})();
modules.main = (() => {
const { calculator } = modules.calculator;
const { mount } = modules.controls;
const { freezingFigure } = modules.freezing;
const { jacobianFigure } = modules.jacobian;
const { temperatureFigure } = modules.temperature;
mount("fig-calculator", calculator);
mount("fig-live-jacobian", jacobianFigure);
mount("fig-live-freezing", freezingFigure);
mount("fig-live-temperature", temperatureFigure);
})();
})();
