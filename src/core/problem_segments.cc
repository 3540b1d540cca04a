#include "src/core/problem_segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "src/core/problem_text.h"

namespace kvilt::core {
namespace {

constexpr std::int32_t kMaxOwner = 1 << 20;

// One attribute of a segment: a dtype, a pair of them, a cache kind or a page size.
std::string ParseAttribute(std::string_view text, SegmentSpec* segment) {
  constexpr const char* kExpected =
      "after the length a dtype (bf16), two of them (nvfp4/e4m3: K/V), paged, ragged or page=N";
  if (text == "paged" || text == "ragged") {
    segment->cache = text == "paged" ? CacheKind::kPaged : CacheKind::kRagged;
    return "";
  }
  if (text.starts_with("page=")) {
    const auto page_size = ParseInteger(text.substr(5));
    if (!page_size || *page_size < 1) return "page=N with N >= 1";
    segment->page_size = *page_size;
    return "";
  }
  const auto names = SplitText(text, '/');
  DType k{}, v{};
  if (names.size() > 2 || !ParseCacheDType(names.front(), &k).empty() ||
      !ParseCacheDType(names.back(), &v).empty()) {
    return kExpected;
  }
  segment->k_dtype = k;
  segment->v_dtype = v;
  return "";
}

std::string ParseAttributes(std::span<const std::string_view> fields, SegmentSpec* segment) {
  for (std::string_view field : fields) {
    if (std::string expected = ParseAttribute(field, segment); !expected.empty()) return expected;
  }
  return "";
}

std::string FormatAttributes(const SegmentSpec& segment) {
  std::string text;
  if (segment.k_dtype && segment.v_dtype) {
    text += fmt::format(":{}", Name(*segment.k_dtype));
    if (*segment.v_dtype != *segment.k_dtype) text += fmt::format("/{}", Name(*segment.v_dtype));
  }
  if (segment.cache) text += *segment.cache == CacheKind::kPaged ? ":paged" : ":ragged";
  if (segment.page_size) text += fmt::format(":page={}", *segment.page_size);
  return text;
}

// "0-7+9" -> 0..7, 9; strictly increasing.
std::string ParseOwners(std::string_view text, std::vector<std::int32_t>* owners) {
  constexpr const char* kExpected = "owners such as 0-7 or 0-3+5, increasing";
  for (std::string_view field : SplitText(text, '+')) {
    const auto ends = SplitText(field, '-');
    const auto first = ParseInteger(ends.front());
    const auto last = ParseInteger(ends.back());
    if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first || *last > kMaxOwner) {
      return kExpected;
    }
    if (!owners->empty() && *first <= owners->back()) return kExpected;
    for (std::int64_t r = *first; r <= *last; ++r) {
      owners->push_back(static_cast<std::int32_t>(r));
    }
  }
  return "";
}

std::string FormatOwners(const std::vector<std::int32_t>& owners) {
  std::string text;
  for (std::size_t i = 0; i < owners.size();) {
    std::size_t end = i + 1;
    while (end < owners.size() && owners[end] == owners[end - 1] + 1) ++end;
    if (!text.empty()) text += "+";
    text += fmt::format("{}", owners[i]);
    if (end - i > 1) text += fmt::format("-{}", owners[end - 1]);
    i = end;
  }
  return text;
}

bool Owns(const SegmentSpec& segment, std::int64_t request) {
  return std::binary_search(segment.owners.begin(), segment.owners.end(),
                            static_cast<std::int32_t>(request));
}

}  // namespace

std::string ParsePrivateSegments(std::string_view text, std::vector<SegmentSpec>* segments) {
  int rests = 0;
  for (std::string_view entry : SplitText(text, ',')) {
    const auto fields = SplitText(entry, ':');
    SegmentSpec segment;
    if (fields[0] == "rest") {
      ++rests;
    } else {
      const auto length = ParseInteger(fields[0]);
      if (!length || *length < 0) return "each segment to begin with a length or `rest`";
      segment.length = *length;
    }
    const auto attributes = std::span(fields).subspan(1);
    if (std::string expected = ParseAttributes(attributes, &segment); !expected.empty()) {
      return expected;
    }
    segments->push_back(std::move(segment));
  }
  return rests == 1 ? "" : "exactly one segment of length `rest`";
}

std::string FormatPrivateSegments(const std::vector<SegmentSpec>& segments) {
  std::string text;
  for (const SegmentSpec& segment : segments) {
    if (!segment.owners.empty()) continue;
    if (!text.empty()) text += ",";
    text += segment.length < 0 ? "rest" : fmt::format("{}", segment.length);
    text += FormatAttributes(segment);
  }
  return text;
}

std::string ParseSharedSegments(std::string_view text, std::vector<SegmentSpec>* segments) {
  for (std::string_view entry : SplitText(text, ',')) {
    const auto fields = SplitText(entry, ':');
    const auto length = ParseInteger(fields[0]);
    if (fields.size() < 2 || !length || *length < 0) {
      return "each shared segment as length:owners, such as 512:0-7";
    }
    SegmentSpec segment;
    segment.length = *length;
    if (std::string expected = ParseOwners(fields[1], &segment.owners); !expected.empty()) {
      return expected;
    }
    const auto attributes = std::span(fields).subspan(2);
    if (std::string expected = ParseAttributes(attributes, &segment); !expected.empty()) {
      return expected;
    }
    segments->push_back(std::move(segment));
  }
  return "";
}

std::string FormatSharedSegments(const std::vector<SegmentSpec>& segments) {
  std::string text;
  for (const SegmentSpec& segment : segments) {
    if (segment.owners.empty()) continue;
    if (!text.empty()) text += ",";
    text += fmt::format("{}:{}", segment.length, FormatOwners(segment.owners));
    text += FormatAttributes(segment);
  }
  return text;
}

std::int64_t SegmentLength(const Problem& problem, std::int64_t request, std::int64_t segment) {
  std::int64_t left = problem.kv_len[static_cast<std::size_t>(request)];
  if (problem.segments.empty()) return left;
  // Shared segments take theirs first, then the fixed private ones in order; the rest remains.
  std::int64_t rest = 0;
  std::vector<std::int64_t> lengths;
  for (const SegmentSpec& spec : problem.segments) {
    const bool present = spec.owners.empty() || Owns(spec, request);
    const std::int64_t wanted = present ? std::max<std::int64_t>(spec.length, 0) : 0;
    lengths.push_back(std::clamp<std::int64_t>(wanted, 0, std::max<std::int64_t>(left, 0)));
    left -= lengths.back();
    if (spec.length < 0) rest = static_cast<std::int64_t>(lengths.size()) - 1;
  }
  lengths[static_cast<std::size_t>(rest)] += left;
  return lengths[static_cast<std::size_t>(segment)];
}

}  // namespace kvilt::core
