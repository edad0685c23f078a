// Lines of code for a scale: with PyTorch alone, and with attnlib.

/** α of the rules that have one for each query, n = 1, 2, … the keys that it sees. */
const BY_QUERY = {
  log_length: ({ s }) =>
    s ? [`alpha = ${s} * n.log()  # ${s}, where training starts`] : ["alpha = n.log()"],
  entropy_invariance: ({ reference, floor }) => [
    `alpha = n.clamp(min=${floor}).log() / math.log(${reference})`,
  ],
  log_position: ({ train_length }) => [
    `alpha = (n.log() / math.log(${train_length})).clamp(min=1)`,
  ],
  log_place: ({ start }) => [
    "place = (n - 1).clamp(min=1)",
    `alpha = (place.log() / math.log(${start})).clamp(min=1)`,
  ],
  llama_4: ({ coefficient, floor }) => [`alpha = 1 + ${coefficient} * torch.log1p(n // ${floor})`],
  ministral_3: ({ coefficient, floor }) => [
    `alpha = 1 + ${coefficient} * torch.log1p((n - 1) // ${floor})`,
  ],
  infoscale: ({ train_length }) => [
    "d = q.shape[-1]",
    `share = 1 - ${train_length} ** (-2 / d)`,
    "alpha = ((1 - n ** (-2 / d)) / share) ** 0.5",
  ],
  best_normal: () => null, // no short formula
  best_cosine: () => null,
};

/** Return whether a scale has a number of its own for each query of a causal mask. */
export function isByQuery({ rule }) {
  return rule in BY_QUERY;
}

const number = (value) => Number(value.toPrecision(4));

function call(name, ...options) {
  const lines = options.filter(Boolean).map((option) => `    ${option},`);
  return [`out = ${name}(`, "    q, k, v,", ...lines, ")"];
}

/**
 * Return lines of code for a scale at n keys. Under a causal mask a rule by length or position has a
 * number for each query; what goes by the length of the whole context, as YaRN and LongRoPE, or by
 * what is no key of the query, has one. `changed` are constants of the rule that are not published.
 */
export function code(chosen, { n, d, causal }) {
  const cosine = chosen.applied_to === "cosine";
  const masked = causal && "is_causal=True";
  const byQuery = causal && isByQuery(chosen);
  const whole = causal && chosen.varies && !byQuery;
  const changes = Object.entries(chosen.changed ?? {});
  const settings = changes.map(([name, value]) => `${name}=${value}`).join(", ");
  const looked = [
    "from attnlib.policies import POLICIES",
    `rule = POLICIES["${chosen.name}"]`,
    ...(settings ? [`rule = rule.with_constants(${settings})`] : []),
  ];
  const scale = whole ? `float(rule.scale(n=${n}, d=${d}))` : number(chosen.scale);
  const policy = settings ? "policy=rule" : `policy="${chosen.name}"`;
  const attnlib = [
    "from attnlib.attention import attend",
    ...(whole || settings ? looked : []),
    ...call(
      "attend",
      "rule" in chosen && !whole ? policy : `scale=${scale}`,
      cosine && "normalize_qk=True",
      masked,
    ),
  ];
  const unit = cosine ? ["q = F.normalize(q, dim=-1)", "k = F.normalize(k, dim=-1)"] : [];
  const torch = byQuery
    ? queries(chosen, unit, masked)
    : [
        "import torch.nn.functional as F",
        ...(whole ? [`# one number for the whole context, n = ${n}`] : []),
        ...unit,
        ...call("F.scaled_dot_product_attention", `scale=${number(chosen.scale)}`, masked),
      ];
  return { torch: torch.join("\n"), attnlib: attnlib.join("\n") };
}

/** Return lines with a factor on each query. */
function queries({ name, rule, constants }, unit, masked) {
  const lines = BY_QUERY[rule](constants);
  const imports = [
    ...(lines?.some((line) => line.includes("math.")) ? ["import math"] : []),
    "import torch",
    "import torch.nn.functional as F",
    ...(lines ? [] : ["from attnlib.policies import POLICIES"]),
  ];
  const factor = lines ? "alpha" : "scale";
  const found = lines ?? [
    "# no short formula: its numbers are attnlib's",
    `rule = POLICIES["${name}"]`,
    "scale = torch.tensor(rule.scale(n.numpy(), q.shape[-1]))",
  ];
  return [
    ...imports,
    ...unit,
    "# keys that each query sees",
    "n = torch.arange(1, q.shape[-2] + 1).double()",
    ...found,
    `q = q * ${factor}[:, None].to(q)`,
    ...call("F.scaled_dot_product_attention", !lines && "scale=1.0", masked),
  ];
}
