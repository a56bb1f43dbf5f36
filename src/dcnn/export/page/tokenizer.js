// Splitting a text into tokens, as dcnn/text/tokenizer.py does. The patterns are those of that file,
// with the characters that Python means by \w and \s listed.

const GAP = "\u2423"; // a visible token for a space
const CONTINUES = "##"; // before a subword inside a word
const LONG_TEXT = 1000; // above it, runs of combining marks are cut
const GRAPHEME_JOINER = "\u034f";
const MAX_WORD_LENGTH = 64;
const MAX_SPELLED = 64; // code points of a word that have n-grams
const UNKNOWN = 0;
const UNKNOWN_PENALTY = 10;

// From strings to tokens: values are those of a model folder's tokenizer.json.
class Tokenizer {
  constructor(values, patterns) {
    this.preset = values.preset;
    this.lowercase = values.lowercase;
    this.patterns = Object.fromEntries(
      Object.entries(patterns).map(([name, pattern]) => [name, new RegExp(pattern, "gu")]),
    );
    this.longRun = new RegExp(`(${patterns.mark}{30})(?=${patterns.mark})`, "gu");
    if (values.merges) {
      this.splitPart = (part) => splitBpe(this.ranks, part);
      this.ranks = new Map(values.merges.map((pair, rank) => [pair, rank]));
    }
    if (values.pieces) {
      const scores = new Map(values.pieces.map((line) => [line.split(" ")[0], Number(line.split(" ")[1])]));
      let least = scores.size ? Infinity : 0;
      let longest = 1;
      for (const [piece, score] of scores) {
        least = Math.min(least, score);
        longest = Math.max(longest, [...piece].length);
      }
      this.splitPart = (part) => splitUnigram(scores, least - UNKNOWN_PENALTY, longest, part);
    }
  }

  // The tokens of a text in order; an empty or blank text has none.
  tokens(text) {
    text = this.composed(text);
    const { token, link, mention, repeated, joiner, gaps } = this.patterns;
    const words = (of) => of.replaceAll("\u2019", "'").match(token) ?? [];
    switch (this.preset) {
      case "whitespace":
        return this.cased(text).match(token) ?? [];
      case "characters": {
        const gapped = this.cased(text).replace(joiner, "").replaceAll("\u2019", "'").replace(gaps, GAP);
        return [...gapped.replace(/^\u2423+|\u2423+$/g, "")];
      }
      case "tweet": {
        const masked = text.replace(link, " URL ").replace(mention, " USER ").replace(repeated, "$1$1");
        const lower = (word) => word.toLowerCase().replace(repeated, "$1$1");
        return words(masked).map((word) => (word === "USER" || word === "URL" ? word : lower(word)));
      }
      case "words":
        return words(this.cased(text));
      default:
        return words(this.cased(text)).flatMap((word) => this.splitWord(word));
    }
  }

  // What a token adds to a text: a word has a space before it.
  spell(token) {
    if (this.preset === "characters") return token.replaceAll(GAP, " ");
    const continues = this.splitPart && token.length > CONTINUES.length && token.startsWith(CONTINUES);
    return continues ? token.slice(CONTINUES.length) : ` ${token}`;
  }

  composed(text) {
    if ([...text].length > LONG_TEXT) text = text.replace(this.longRun, `$1${GRAPHEME_JOINER}`);
    return text.replace(/\p{Surrogate}/gu, " ").normalize("NFC");
  }

  cased(text) {
    return this.lowercase ? this.composed(text.toLowerCase()) : text;
  }

  // The subwords of one word.
  splitWord(word) {
    const letters = [...word];
    const found = [];
    for (let at = 0; at < letters.length; at += MAX_WORD_LENGTH) {
      found.push(...this.splitPart(letters.slice(at, at + MAX_WORD_LENGTH)));
    }
    return found.map((subword, i) => (i ? CONTINUES + subword : subword));
  }
}

// Byte-pair encoding: the most important pair is merged until none is left.
function splitBpe(ranks, letters) {
  const parts = [...letters];
  while (parts.length > 1) {
    let best = Infinity;
    let at = -1;
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
      if (rank < best) [best, at] = [rank, i];
    }
    if (at < 0) break;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
  }
  return parts;
}

// The subwords whose probabilities have the largest product (Viterbi).
function splitUnigram(scores, unknown, longest, letters) {
  const best = [0, ...letters.map(() => -Infinity)]; // score of the first n code points
  const cameFrom = best.map(() => 0);
  for (let start = 0; start < letters.length; start++) {
    for (let end = start + 1; end <= Math.min(start + longest, letters.length); end++) {
      const piece = letters.slice(start, end).join("");
      const score = best[start] + (scores.get(piece) ?? (end === start + 1 ? unknown : -Infinity));
      if (score > best[end]) [best[end], cameFrom[end]] = [score, start];
    }
  }
  const parts = [];
  for (let end = letters.length; end; end = cameFrom[end]) parts.push(letters.slice(cameFrom[end], end).join(""));
  return parts.reverse();
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

function crc32(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = CRC_TABLE[(value ^ byte) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

// The bucket of every character n-gram of a word: CRC-32 of its UTF-8 bytes.
function buckets({ shortest, longest, n_buckets }, word) {
  const text = ["<", ...[...word].slice(0, MAX_SPELLED), ">"];
  const encoder = new TextEncoder();
  const found = [];
  for (let n = shortest; n <= longest; n++) {
    for (let at = 0; at + n <= text.length; at++) {
      found.push(crc32(encoder.encode(text.slice(at, at + n).join(""))) % n_buckets);
    }
  }
  return found;
}
