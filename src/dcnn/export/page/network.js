// The networks of dcnn/ops/reference.py and dcnn/predictor.py for one sentence, and the attribution of
// dcnn/inspection/attribution.py, in float64. Axes are map, row, position: a value of map o, row r and
// position t of shape (maps, rows, length) is at (o * rows + r) * length + t.

// k at a layer (1 to depth), from the sentence's own length: Eq. 4 with an integer ceiling.
function dynamicK(length, layer, depth, kTop) {
  return Math.max(kTop, Math.floor((length * (depth - layer) + depth - 1) / depth));
}

// (n, d, s) * (o, n, d, m) -> (o, d, s + m - 1): at column t the m-gram that ends at word t.
function wideConvolution(x, filters) {
  const [maps, mapsBelow, rows, width] = filters.shape;
  const length = x.length;
  const columns = length + width - 1;
  const c = new Float64Array(maps * rows * columns);
  for (let o = 0; o < maps; o++) {
    for (let n = 0; n < mapsBelow; n++) {
      for (let r = 0; r < rows; r++) {
        const weights = ((o * mapsBelow + n) * rows + r) * width;
        const to = (o * rows + r) * columns;
        const from = (n * rows + r) * length;
        for (let i = 0; i < width; i++) {
          const weight = filters.data[weights + i];
          const start = to + width - 1 - i; // weight i meets word t at column t + m - 1 - i
          for (let t = 0; t < length; t++) c[start + t] += weight * x.values[from + t];
        }
      }
    }
  }
  return { values: c, maps, rows, length: columns };
}

// Rows i and i + d/2 are summed.
function fold({ values, maps, rows, length }) {
  const half = rows / 2;
  const folded = new Float64Array(maps * half * length);
  for (let o = 0; o < maps; o++) {
    for (let r = 0; r < half; r++) {
      const first = (o * rows + r) * length;
      const second = first + half * length;
      for (let t = 0; t < length; t++) folded[(o * half + r) * length + t] = values[first + t] + values[second + t];
    }
  }
  return { values: folded, maps, rows: half, length };
}

// Columns of the k largest values of a row, in their original order; among equals the leftmost.
function kMax(row, k) {
  const least = row.slice().sort()[row.length - k]; // the k-th largest
  let equals = k; // of those equal to it, how many are kept
  for (const value of row) if (value > least) equals--;
  const columns = [];
  row.forEach((value, t) => {
    if (value > least || (value === least && equals-- > 0)) columns.push(t);
  });
  return columns;
}

// Wide convolution, folding, k-max pooling, bias and tanh; gains are tanh(z)/z.
function layerPass(x, filters, bias, k, foldRows) {
  const convolved = wideConvolution(x, filters);
  const c = foldRows ? fold(convolved) : convolved;
  const size = c.maps * c.rows * k;
  const pass = { maps: c.maps, rows: c.rows, length: k, below: x, filters };
  Object.assign(pass, { values: new Float64Array(size), gains: new Float64Array(size), positions: new Int32Array(size) });
  for (let row = 0; row < c.maps * c.rows; row++) {
    const columns = kMax(c.values.subarray(row * c.length, (row + 1) * c.length), k);
    columns.forEach((column, j) => {
      const z = c.values[row * c.length + column] + bias.data[row];
      const at = row * k + j;
      pass.values[at] = Math.tanh(z);
      pass.gains[at] = z ? pass.values[at] / z : 1;
      pass.positions[at] = column;
    });
  }
  return pass;
}

function softmax(logits) {
  const largest = Math.max(...logits);
  const exponentials = logits.map((logit) => Math.exp(logit - largest));
  const total = exponentials.reduce((a, b) => a + b, 0);
  return exponentials.map((value) => value / total);
}

const sigmoid = (logits) => logits.map((logit) => (logit < 0 ? Math.exp(logit) / (1 + Math.exp(logit)) : 1 / (1 + Math.exp(-logit))));

// Bytes per value, and the values of bytes.
const READERS = {
  float32: [4, (bytes) => new Float32Array(bytes.buffer)],
  float16: [2, (bytes) => Float32Array.from(new Uint16Array(bytes.buffer), fromHalf)],
  int8: [1, (bytes) => new Int8Array(bytes.buffer)],
  bool: [1 / 8, (bytes, size) => Float32Array.from({ length: size }, (_, i) => (bytes[i >> 3] >> (i & 7)) & 1)],
};

function fromHalf(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
  return bits & 0x8000 ? -size : size;
}

// The digits of Python's base64.b85encode, with a comma for "<"; five of them are four bytes.
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

function fromBase85(text) {
  const valueOf = new Uint8Array(128);
  for (let i = 0; i < DIGITS.length; i++) valueOf[DIGITS.charCodeAt(i)] = i;
  const bytes = new DataView(new ArrayBuffer((text.length / 5) * 4));
  for (let i = 0; i < text.length; i += 5) {
    let number = 0;
    for (let j = i; j < i + 5; j++) number = 85 * number + valueOf[text.charCodeAt(j)];
    bytes.setUint32((i / 5) * 4, number);
  }
  return new Uint8Array(bytes.buffer);
}

async function readTensors({ tensors, n_bytes, base85 }) {
  const compressed = new Blob([fromBase85(base85).subarray(0, n_bytes)]);
  const inflated = compressed.stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(inflated).arrayBuffer());
  let start = 0;
  return Object.fromEntries(tensors.map(({ name, dtype, shape }) => {
    const [width, read] = READERS[dtype];
    const size = shape.reduce((a, b) => a * b, 1);
    const own = bytes.slice(start, (start += Math.ceil(width * size)));
    return [name, { data: read(own, size), shape }];
  }));
}

// A trained model: predict and explain take a text.
class Model {
  static async read({ tensors, n_bytes, base85, ...described }) {
    return new Model({ ...described, tensors: await readTensors({ tensors, n_bytes, base85 }) });
  }

  constructor(described) {
    Object.assign(this, described);
    this.multiLabel = this.thresholds !== null;
    this.tokenizer = new Tokenizer(this.encoder, this.patterns);
    this.ids = new Map(this.encoder.vocabulary.map((word, i) => [word, i + 1]));
    this.explainable = this.network.kind === "dcnn";
    const used = this.tensors["ngrams.used"];
    if (used) { // which row a bucket has; those that training never reached have none
      let row = 0;
      this.rowOfBucket = Int32Array.from(used.data, (there) => (there ? row++ : -1));
    }
  }

  // (1, d, s): the vectors of the words, one per column.
  sentenceMatrix(tokens) {
    const { dim } = this.network;
    const length = Math.max(tokens.length, 1);
    const values = new Float64Array(dim * length);
    const vectors = new Map(); // words repeat
    for (let t = 0; t < length; t++) {
      const vector = vectors.get(tokens[t]) ?? this.vector(tokens[t]);
      vectors.set(tokens[t], vector);
      for (let r = 0; r < dim; r++) values[r * length + t] = vector[r];
    }
    return { values, maps: 1, rows: dim, length };
  }

  // The vector of a word; an empty text is one unknown word.
  vector(token) {
    const id = this.ids.get(token) ?? UNKNOWN;
    const { embeddings, ngrams } = this.tensors;
    const vector = row(embeddings, this.tensors["embeddings.scale"], id);
    if (id !== UNKNOWN || token === undefined || !ngrams) return vector;
    return compose(vector, buckets(this.encoder.char_ngrams, token), (bucket) => {
      const at = this.rowOfBucket[bucket];
      return at < 0 ? null : row(ngrams, this.tensors["ngrams.scale"], at);
    });
  }

  forward(tokens) {
    const { kind, depth, fold: foldRows, k_top: kTop } = this.network;
    const matrix = this.sentenceMatrix(tokens);
    const passes = [];
    let features;
    if (kind === "dcnn") {
      for (let layer = 1, x = matrix; layer <= depth; layer++, x = passes.at(-1)) {
        const { [`layers.${layer - 1}.filters`]: filters, [`layers.${layer - 1}.bias`]: bias } = this.tensors;
        passes.push(layerPass(x, filters, bias, dynamicK(matrix.length, layer, depth, kTop), foldRows));
      }
      features = passes.at(-1).values;
    } else if (kind === "max-tdnn") {
      features = this.maxTdnn(matrix);
    } else {
      const rows = Array.from({ length: matrix.rows }, (_, r) => matrix.values.subarray(r * matrix.length, (r + 1) * matrix.length));
      features = rows.map((values) => Math.tanh(values.reduce((a, b) => a + b, 0)));
    }
    const { "head.weight": weight, "head.bias": bias } = this.tensors;
    const logits = this.classes.map((_, number) => {
      let logit = bias.data[number];
      features.forEach((value, i) => { logit += weight.data[number * features.length + i] * value; });
      return logit;
    });
    return { matrix, passes, logits, probabilities: this.multiLabel ? sigmoid(logits) : softmax(logits) };
  }

  // Narrow convolution, maximum over time, tanh.
  maxTdnn(matrix) {
    const { "layers.0.filters": filters, "layers.0.bias": bias } = this.tensors;
    const width = filters.shape[3];
    const c = wideConvolution(matrix, filters);
    return Array.from({ length: c.rows }, (_, r) => {
      let largest = -Infinity; // of the m-grams inside the sentence, or inside its padding up to m words
      for (let t = width - 1; t < Math.max(matrix.length, width); t++) largest = Math.max(largest, c.values[r * c.length + t]);
      return Math.tanh(largest + bias.data[r]);
    });
  }

  // All labels by probability, those that the text gets, and why it may get none.
  predict(text) {
    const tokens = this.tokenizer.tokens(text);
    const trace = this.forward(tokens);
    const order = [...trace.probabilities.keys()].sort((a, b) => trace.probabilities[b] - trace.probabilities[a] || a - b);
    const best = order[0];
    const { threshold, out_of_scope: outside } = this.abstention;
    const abstained = !this.multiLabel && threshold != null && (trace.probabilities[best] < threshold || (outside !== null && String(this.classes[best]) === String(outside)));
    const over = (i) => (this.multiLabel ? Math.fround(trace.probabilities[i]) >= this.thresholds[i] : i === best && !abstained);
    const ranked = order.map((i) => ({ number: i, label: this.classes[i], probability: trace.probabilities[i], given: over(i) }));
    return { tokens, trace, ranked, abstained, best, labels: ranked.filter((one) => one.given).map((one) => one.label) };
  }

  // The attribution of every word for a class, by default the most probable: words, and the biases of
  // all nodes and of the root, add up to the logit.
  explain(text, ofClass, prediction = this.predict(text)) {
    const number = ofClass ?? prediction.best;
    const logit = prediction.trace.logits[number];
    const known = prediction.tokens.map((token) => this.ids.has(token));
    if (!this.explainable || !prediction.tokens.length) return { ...prediction, number, logit, known, attributions: null };
    const attributions = wordAttributions(prediction.trace, this.tensors["head.weight"], number);
    return { ...prediction, number, logit, known, attributions, biases: logit - attributions.reduce((a, b) => a + b, 0) };
  }
}

// A row of a table of weights, which may have a scale per row.
function row(table, scales, index) {
  const dim = table.shape[1];
  const scale = scales ? scales.data[index] : 1;
  return Float64Array.from(table.data.subarray(index * dim, (index + 1) * dim), (value) => value * scale);
}

// The unknown word's vector plus the sum of the n-grams' over the root of their number.
function compose(vector, found, rowOf) {
  const factor = 1 / Math.sqrt(Math.max(found.length, 1));
  for (const bucket of found) rowOf(bucket)?.forEach((value, r) => { vector[r] += factor * value; });
  return vector;
}

// With its gain a node is linear in its inputs. One pass from the root takes coefficients, what one
// unit of a node's value contributes to the logit, from the nodes of a layer to those that they read.
function wordAttributions({ matrix, passes }, headWeight, number) {
  const features = passes.at(-1).values.length;
  let coefficients = headWeight.data.subarray(number * features, (number + 1) * features);
  for (const pass of [...passes].reverse()) coefficients = backwardStep(pass, coefficients);
  const attributions = new Array(matrix.length).fill(0);
  coefficients.forEach((value, i) => { attributions[i % matrix.length] += value * matrix.values[i]; });
  return attributions;
}

function backwardStep({ rows, length, below, filters, positions, gains }, above) {
  const coefficients = new Float64Array(below.values.length);
  const width = filters.shape[3];
  above.forEach((value, node) => {
    const o = Math.floor(node / length / rows);
    const passed = value * gains[node];
    const first = positions[node] - width + 1; // the word that weight 0 meets
    for (let n = 0; n < below.maps; n++) {
      for (let r = Math.floor(node / length) % rows; r < below.rows; r += rows) { // its row, and the folded one
        const weights = ((o * below.maps + n) * below.rows + r) * width;
        const from = (n * below.rows + r) * below.length;
        for (let i = Math.max(0, -first); i < width && first + i < below.length; i++) {
          coefficients[from + first + i] += passed * filters.data[weights + i];
        }
      }
    }
  });
  return coefficients;
}
