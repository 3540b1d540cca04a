#include "src/core/safetensors_header.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "src/core/check.h"

namespace kvilt::core {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, DType>, 8> kTypes = {{
    {"F32", DType::kF32},
    {"BF16", DType::kBF16},
    {"F16", DType::kF16},
    {"F8_E4M3", DType::kE4M3},
    {"F8_E5M2", DType::kE5M2},
    {"U8", DType::kU8},
    {"I32", DType::kI32},
    {"I64", DType::kI64},
}};

std::optional<DType> ParseType(std::string_view name) {
  for (const auto& [type_name, dtype] : kTypes) {
    if (type_name == name) return dtype;
  }
  return std::nullopt;
}

// Reads the header as a stream, so that nothing deeper or larger than the format is ever built.
class HeaderReader : public json::json_sax_t {
 public:
  explicit HeaderReader(std::int64_t data_bytes) : data_bytes_(data_bytes) {}

  Status status;
  SafetensorsHeader header;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return Unexpected(fmt::format("the number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(fmt::format("the number {}", QuoteFileText(text)));
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShapeItem && place_ != Place::kOffsetItem) {
      return Unexpected(fmt::format("the number {}", value));
    }
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return Fail(Field(), fmt::format("{} does not fit 63 bits", value));
    }
    const std::size_t most = place_ == Place::kShapeItem ? kMaxRank : 2;
    if (numbers_.size() == most) {
      return Fail(Field(),
                  fmt::format("more than {} numbers, expected {}", most,
                              place_ == Place::kShapeItem ? "a rank up to that" : "[begin, end]"));
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataValue) {
      header.metadata[key_] = std::move(value);
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ != Place::kDType)
      return Unexpected(fmt::format("the text '{}'", QuoteFileText(value)));
    const std::optional<DType> dtype = ParseType(value);
    if (!dtype) {
      std::string accepted;
      for (const auto& type : kTypes)
        accepted += accepted.empty() ? type.first : fmt::format(", {}", type.first);
      return Fail(Field(), fmt::format("'{}', accepted: {}", QuoteFileText(value), accepted));
    }
    header.tensors.back().dtype = *dtype;
    place_ = Place::kTensor;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kMetadataObject) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTensorObject) {
      place_ = Place::kTensor;
    } else {
      return Unexpected("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    key_ = std::move(name);
    if (place_ == Place::kTop) return TopKey();
    if (place_ == Place::kMetadata) {
      if (header.metadata.contains(key_)) return Fail(Field(), "given twice");
      place_ = Place::kMetadataValue;
      return true;
    }
    return TensorKey();
  }

  bool end_object() override {
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
    } else if (place_ == Place::kMetadata) {
      place_ = Place::kTop;
      tensor_name_.clear();
    } else {
      return EndTensor();
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kShape) {
      place_ = Place::kShapeItem;
    } else if (place_ == Place::kOffsets) {
      place_ = Place::kOffsetItem;
    } else {
      return Unexpected("an array");
    }
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kShapeItem) {
      header.tensors.back().shape = numbers_;
    } else {
      if (numbers_.size() != 2) {
        return Fail(Field(), fmt::format("{} numbers, expected [begin, end]", numbers_.size()));
      }
      header.offsets.back() = {numbers_[0], numbers_[1]};
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail("header", fmt::format("not JSON at byte {} of the header", position));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kEnd,
    kMetadataObject,
    kMetadata,
    kMetadataValue,
    kTensorObject,
    kTensor,
    kDType,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetItem,
  };
  enum Seen : unsigned { kSeenDType = 1, kSeenShape = 2, kSeenOffsets = 4, kSeenAll = 7 };

  bool Fail(std::string field, std::string problem) {
    if (status.ok()) status = Status::Invalid(std::move(field), std::move(problem));
    return false;
  }

  std::string Field() const {
    if (tensor_name_.empty()) return key_.empty() ? "header" : "header." + QuoteFileText(key_);
    std::string field = QuoteFileText(tensor_name_);
    if (place_ != Place::kTensorObject && place_ != Place::kMetadataObject)
      field += "." + QuoteFileText(key_);
    return field;
  }

  bool Unexpected(const std::string& found) {
    const char* expected = "an object of tensors";
    switch (place_) {
      case Place::kStart:
      case Place::kEnd:
      case Place::kTop:
        break;
      case Place::kMetadataObject:
      case Place::kMetadata:
        expected = "an object of texts";
        break;
      case Place::kMetadataValue:
        expected = "a text";
        break;
      case Place::kTensorObject:
      case Place::kTensor:
        expected = "an object with dtype, shape, data_offsets";
        break;
      case Place::kDType:
        expected = "a dtype name";
        break;
      case Place::kShape:
      case Place::kShapeItem:
        expected = "an array of whole numbers >= 0";
        break;
      case Place::kOffsets:
      case Place::kOffsetItem:
        expected = "[begin, end], whole numbers >= 0";
        break;
    }
    return Fail(Field(), fmt::format("{}, expected {}", found, expected));
  }

  bool TopKey() {
    tensor_name_ = key_;
    if (!names_.insert(key_).second) return Fail(QuoteFileText(key_), "given twice in the header");
    if (key_ == kMetadataName) {
      place_ = Place::kMetadataObject;
      return true;
    }
    if (key_.empty()) return Fail("header", "a tensor with an empty name");
    place_ = Place::kTensorObject;
    seen_ = 0;
    TensorEntry& entry = header.tensors.emplace_back();
    entry.name = key_;
    entry.header_order = static_cast<std::int64_t>(header.tensors.size()) - 1;
    header.offsets.emplace_back();
    return true;
  }

  bool TensorKey() {
    unsigned bit = 0;
    if (key_ == "dtype") {
      place_ = Place::kDType;
      bit = kSeenDType;
    } else if (key_ == "shape") {
      place_ = Place::kShape;
      bit = kSeenShape;
    } else if (key_ == "data_offsets") {
      place_ = Place::kOffsets;
      bit = kSeenOffsets;
    } else {
      return Fail(Field(), "unknown, expected dtype, shape, data_offsets");
    }
    if (seen_ & bit) return Fail(Field(), "given twice");
    seen_ |= bit;
    return true;
  }

  // All three fields are there: size and range, before anything is made of them.
  bool EndTensor() {
    const TensorEntry& entry = header.tensors.back();
    const std::string name = QuoteFileText(entry.name);
    if (seen_ != kSeenAll) {
      const char* missing = !(seen_ & kSeenDType)   ? ".dtype"
                            : !(seen_ & kSeenShape) ? ".shape"
                                                    : ".data_offsets";
      return Fail(name + missing, "missing");
    }
    std::int64_t bytes = StorageBytes(entry.dtype);
    for (const std::int64_t extent : entry.shape) {
      if (__builtin_mul_overflow(bytes, extent, &bytes)) {
        return Fail(name + ".shape",
                    fmt::format("[{}] needs more than 2^63 bytes", fmt::join(entry.shape, ", ")));
      }
    }
    const auto [begin, end] = header.offsets.back();
    if (begin > end || end > data_bytes_) {
      return Fail(name + ".data_offsets",
                  fmt::format("[{}, {}], expected begin <= end <= {}, the bytes behind the header",
                              begin, end, data_bytes_));
    }
    if (end - begin != bytes) {
      return Fail(name + ".data_offsets",
                  fmt::format("[{}, {}] holds {} bytes, but dtype {} and shape [{}] need {}", begin,
                              end, end - begin, SafetensorsName(entry.dtype),
                              fmt::join(entry.shape, ", "), bytes));
    }
    place_ = Place::kTop;
    tensor_name_.clear();
    return true;
  }

  std::int64_t data_bytes_;
  Place place_ = Place::kStart;
  unsigned seen_ = 0;
  std::string tensor_name_;
  std::string key_;
  std::vector<std::int64_t> numbers_;
  std::unordered_set<std::string> names_;
};

}  // namespace

std::string_view SafetensorsName(DType dtype) {
  const DType stored = dtype == DType::kNVFP4 ? DType::kU8 : dtype;
  for (const auto& [name, type] : kTypes) {
    if (type == stored) return name;
  }
  return "unknown dtype";
}

std::string QuoteFileText(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string quoted;
  for (const char c : text.substr(0, kLongest)) {
    quoted += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  return text.size() > kLongest ? quoted + "..." : quoted;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, std::int64_t data_bytes) {
  HeaderReader reader(data_bytes);
  const bool complete = json::sax_parse(text.begin(), text.end(), &reader);
  if (!reader.status.ok()) return reader.status;
  KVILT_CHECK(complete);
  return std::move(reader.header);
}

}  // namespace kvilt::core
