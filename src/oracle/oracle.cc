#include "src/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/oracle/decode.h"
#include "src/oracle/keys.h"
#include "src/oracle/rows.h"

namespace kvilt::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Scores that are kept at a time: 128 MB.
constexpr std::int64_t kMaxScores = std::int64_t{1} << 24;

// A query row that is asked for: row i of the request, entry `at` of the reference.
struct Wanted {
  std::int64_t i = 0;
  std::int64_t at = 0;
};

std::vector<std::int64_t> SelectRows(std::int64_t total, std::int64_t max_rows) {
  std::vector<std::int64_t> rows;
  if (max_rows <= 0 || max_rows >= total) {
    for (std::int64_t row = 0; row < total; ++row) rows.push_back(row);
    return rows;
  }
  for (std::int64_t n = 0; n < max_rows; ++n) {
    rows.push_back(max_rows == 1 ? total - 1 : n * (total - 1) / (max_rows - 1));
  }
  return rows;
}

class RequestAttention {
 public:
  RequestAttention(const AttentionRequest& request, const Lengths& lengths,
                   const std::vector<KeyPlace>& keys, Reference& reference)
      : request_(request),
        lengths_(lengths),
        keys_(keys),
        reference_(reference),
        frequencies_(Frequencies(request)) {}

  // The query heads [first, first + group) share KV head `kv_head`.
  void Run(const std::vector<Wanted>& rows, std::int64_t kv_head, std::int64_t group) {
    kv_head_ = kv_head;
    group_ = group;
    const std::int64_t per_row = std::max<std::int64_t>(1, group * lengths_.kv_len);
    const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, kMaxScores / per_row));
    for (std::size_t begin = 0; begin < rows.size(); begin += step) {
      rows_.assign(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                   rows.begin() + static_cast<std::ptrdiff_t>(std::min(begin + step, rows.size())));
      ComputeScores();
      for (std::size_t n = 0; n < rows_.size(); ++n) {
        for (std::int64_t g = 0; g < group; ++g) Softmax(n, g);
      }
      SumValues();
    }
  }

 private:
  std::size_t Lane(std::size_t n, std::int64_t g) const {
    return n * static_cast<std::size_t>(group_) + static_cast<std::size_t>(g);
  }
  std::int64_t Head(std::int64_t g) const { return kv_head_ * group_ + g; }
  std::size_t Entry(std::size_t n, std::int64_t g) const {
    return static_cast<std::size_t>(rows_[n].at * reference_.q_heads + Head(g));
  }

  // scores_[lane][j], -inf where the row does not see the key.
  void ComputeScores() {
    std::vector<std::vector<double>> queries;
    for (const Wanted& row : rows_) {
      for (std::int64_t g = 0; g < group_; ++g) {
        const std::int64_t in_batch = request_.q_indptr[lengths_.request] + row.i;
        queries.push_back(QueryRow(request_, in_batch, Head(g)));
        Rotate(request_, frequencies_, RowPosition(request_, lengths_, row.i), queries.back());
      }
    }
    scores_.assign(queries.size(),
                   std::vector<double>(static_cast<std::size_t>(lengths_.kv_len), -kInfinity));
    for (std::int64_t j = 0; j < lengths_.kv_len; ++j) {
      std::vector<double> key;  // Read only if somebody sees it.
      for (std::size_t n = 0; n < rows_.size(); ++n) {
        if (!Sees(request_, lengths_, rows_[n].i, j)) continue;
        if (key.empty()) {
          key = KeyRow(keys_[static_cast<std::size_t>(j)], kv_head_);
          Rotate(request_, frequencies_, KeyPosition(request_, lengths_, j), key);
        }
        for (std::int64_t g = 0; g < group_; ++g) {
          const std::vector<double>& query = queries[Lane(n, g)];
          double dot = 0;
          for (std::size_t d = 0; d < key.size(); ++d) dot += query[d] * key[d];
          scores_[Lane(n, g)][static_cast<std::size_t>(j)] =
              Score(request_, lengths_, Head(g), rows_[n].i, j, dot);
        }
      }
    }
  }

  // Scores become probabilities; writes lse.
  void Softmax(std::size_t n, std::int64_t g) {
    std::vector<double>& x = scores_[Lane(n, g)];
    double sink = -kInfinity;
    if (request_.sink.defined()) {
      sink = static_cast<const float*>(request_.sink.data)[Head(g) * request_.sink.stride[0]];
    }
    double largest = sink;
    for (double value : x) largest = std::max(largest, value);
    double sum = 0;
    if (largest > -kInfinity) {
      sum = std::exp(sink - largest);
      for (double value : x) sum += std::exp(value - largest);
    }
    for (double& value : x) value = sum > 0 ? std::exp(value - largest) / sum : 0;
    const double lse = sum > 0 ? largest + std::log(sum) : -kInfinity;
    reference_.lse[Entry(n, g)] = request_.lse_base == LseBase::kTwo ? lse / std::log(2.0) : lse;
  }

  void SumValues() {
    const auto head_dim = static_cast<std::size_t>(reference_.head_dim_vo);
    std::vector<std::vector<double>> magnitudes(scores_.size(), std::vector<double>(head_dim, 0));
    for (std::int64_t j = 0; j < lengths_.kv_len; ++j) {
      std::vector<double> value;
      for (std::size_t n = 0; n < rows_.size(); ++n) {
        if (!Sees(request_, lengths_, rows_[n].i, j)) continue;
        if (value.empty()) value = ValueRow(keys_[static_cast<std::size_t>(j)], kv_head_);
        for (std::int64_t g = 0; g < group_; ++g) {
          const double p = scores_[Lane(n, g)][static_cast<std::size_t>(j)];
          double* out = &reference_.out[Entry(n, g) * head_dim];
          for (std::size_t d = 0; d < head_dim; ++d) {
            out[d] += p * value[d];
            magnitudes[Lane(n, g)][d] += p * std::fabs(value[d]);
          }
        }
      }
    }
    for (std::size_t n = 0; n < rows_.size(); ++n) {
      for (std::int64_t g = 0; g < group_; ++g) {
        double squares = 0;
        for (double m : magnitudes[Lane(n, g)]) squares += m * m;
        reference_.magnitude[Entry(n, g)] = std::sqrt(squares);
      }
    }
  }

  const AttentionRequest& request_;
  const Lengths& lengths_;
  const std::vector<KeyPlace>& keys_;
  Reference& reference_;
  const std::vector<double> frequencies_;
  std::int64_t kv_head_ = 0;
  std::int64_t group_ = 1;
  std::vector<Wanted> rows_;
  std::vector<std::vector<double>> scores_;
};

std::int64_t MaskBytes(const AttentionRequest& request, const Lengths& lengths) {
  if (request.mask == MaskMode::kCustom) return (lengths.q_len * lengths.kv_len + 7) / 8;
  if (request.mask == MaskMode::kTree) return (lengths.q_len * lengths.q_len + 7) / 8;
  return 0;
}

}  // namespace

Reference Attention(const AttentionRequest& request, std::int64_t max_rows) {
  Reference reference;
  const std::int64_t batch = request.batch();
  const std::int64_t total = request.q_indptr[batch];
  reference.rows = SelectRows(total, max_rows);
  reference.q_heads = request.q.shape[1];
  reference.head_dim_vo = request.out.shape[2];
  const std::size_t entries = reference.rows.size() * static_cast<std::size_t>(reference.q_heads);
  reference.out.assign(entries * static_cast<std::size_t>(reference.head_dim_vo), 0);
  reference.lse.assign(entries, 0);
  reference.magnitude.assign(entries, 0);

  const std::int64_t kv_heads = KvHeads(request);
  const std::int64_t group = reference.q_heads / kv_heads;
  Lengths lengths;
  std::size_t next = 0;
  for (std::int64_t r = 0; r < batch; ++r) {
    const std::vector<KeyPlace> keys = KeysOf(request, r);
    lengths.request = r;
    lengths.q_len = request.q_indptr[r + 1] - request.q_indptr[r];
    lengths.kv_len = static_cast<std::int64_t>(keys.size());
    if (request.mask_indptr.defined()) lengths.mask_byte = request.mask_indptr[r];
    std::vector<Wanted> rows;
    for (; next < reference.rows.size() && reference.rows[next] < request.q_indptr[r + 1]; ++next) {
      rows.push_back({reference.rows[next] - request.q_indptr[r], static_cast<std::int64_t>(next)});
    }
    RequestAttention attention(request, lengths, keys, reference);
    for (std::int64_t head = 0; head < kv_heads; ++head) attention.Run(rows, head, group);
    lengths.keys_before += lengths.kv_len;
    lengths.mask_byte += MaskBytes(request, lengths);
  }
  return reference;
}

}  // namespace kvilt::oracle
