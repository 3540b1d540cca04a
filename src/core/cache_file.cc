#include "src/core/cache_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "src/core/cache_schema.h"
#include "src/core/check.h"

namespace kvilt::core {
namespace {

// Reads one side; `name` is "k" or "v".
class SideLoader {
 public:
  SideLoader(const TensorFile& file, MetadataReader& metadata, std::string name, bool paged)
      : file_(file), metadata_(metadata), name_(std::move(name)), paged_(paged) {}

  Status Load(CacheSide& side) {
    KVILT_RETURN_IF_ERROR(LoadData(side));
    KVILT_RETURN_IF_ERROR(LoadScales(side));
    return LoadGlobal(side);
  }

 private:
  std::string Key(std::string_view field) const { return fmt::format("kvilt.{}.{}", name_, field); }

  Status LoadData(CacheSide& side) {
    const std::string tensor = name_ + ".data";
    side.data = file_.Find(tensor);
    if (!side.data.defined()) return Status::Invalid(tensor, "no such tensor in the file");
    const auto declared = metadata_.Text(Key("dtype"));
    const std::optional<DType> dtype = ParseDType(declared.value_or(""));
    if (!dtype || !IsCacheDType(*dtype)) {
      metadata_.Refuse(Key("dtype"),
                       declared ? fmt::format("'{}', accepted: {}", *declared, kCacheDTypes)
                                : fmt::format("missing, accepted: {}", kCacheDTypes));
      return metadata_.status();
    }
    // fp8 may lie in a U8 tensor, as writers without an fp8 type store it.
    const bool bytes = side.data.dtype == DType::kU8 && StorageBytes(*dtype) == 1;
    if (side.data.dtype != *dtype && !bytes) {
      return Status::Invalid(
          tensor + ".dtype",
          fmt::format("{} in the file, but metadata.{} says {}", SafetensorsName(side.data.dtype),
                      Key("dtype"), *declared));
    }
    side.data.dtype = *dtype;
    const int rank = paged_ ? 4 : 3;
    if (side.data.rank != rank) {
      return Status::Invalid(tensor + ".shape",
                             fmt::format("{}, expected rank {} for a {} cache",
                                         ShapeText(side.data), rank, paged_ ? "paged" : "ragged"));
    }
    const int layout = metadata_.Choice(Key("layout"), kLayouts);
    if (layout < 0) {
      metadata_.Refuse(Key("layout"), "missing, accepted: NHD, HND");
      return metadata_.status();
    }
    side.layout = static_cast<KvLayout>(layout);
    // Pages may be none, tokens, heads and rows not: an empty axis could have any length beside it.
    for (int dim = paged_ ? 1 : 0; dim < rank; ++dim) {
      const bool tokens = !paged_ && dim == (side.layout == KvLayout::kHND ? 1 : 0);
      if (side.data.shape[dim] < 1 && !tokens) {
        return Status::Invalid(fmt::format("{}.shape[{}]", tensor, dim), "0, expected >= 1");
      }
    }
    return Status::Ok();
  }

  Status LoadScales(CacheSide& side) {
    const std::string tensor = name_ + ".scales";
    side.scales = file_.Find(tensor);
    const bool nvfp4 = side.data.dtype == DType::kNVFP4;
    if (side.scales.defined() != nvfp4) {
      return Status::Invalid(tensor, nvfp4 ? "no such tensor in the file, required for nvfp4"
                                           : fmt::format("present, but dtype {} has no scales",
                                                         Name(side.data.dtype)));
    }
    const int layout = metadata_.Choice(Key("scale_layout"), kScaleLayouts);
    if (layout >= 0) side.scale_layout = static_cast<ScaleLayout>(layout);
    std::int64_t row_blocks = 0;
    metadata_.Read(Key("scale_row_blocks"), row_blocks);
    if (!nvfp4) {
      for (const char* field : {"scale_layout", "scale_row_blocks"}) {
        if (metadata_.Has(Key(field)))
          metadata_.Refuse(Key(field), "given for a side without scales");
      }
      return metadata_.status();
    }
    if (side.scales.dtype == DType::kU8) side.scales.dtype = DType::kE4M3;
    if (side.scales.dtype != DType::kE4M3) {
      return Status::Invalid(tensor + ".dtype", fmt::format("{}, expected F8_E4M3 or U8",
                                                            SafetensorsName(side.scales.dtype)));
    }
    if (row_blocks < 0 || row_blocks > 65536) {
      metadata_.Refuse(Key("scale_row_blocks"),
                       fmt::format("{}, expected head_dim / 16", row_blocks));
    }
    side.scale_row_blocks = static_cast<int>(row_blocks);
    return CheckScaleShape(side, tensor);
  }

  Status CheckScaleShape(const CacheSide& side, const std::string& tensor) {
    constexpr std::int64_t kBytesPerBlock = kBlockElements / 2;
    TensorView expected = side.data;
    std::int64_t& row = expected.shape[expected.rank - 1];
    if (row % kBytesPerBlock != 0) {
      return Status::Invalid(
          fmt::format("{}.data.shape[{}]", name_, expected.rank - 1),
          fmt::format("{} bytes of codes, expected a multiple of {} (16 elements)", row,
                      kBytesPerBlock));
    }
    row /= kBytesPerBlock;
    if (side.scales.rank != expected.rank ||
        !std::equal(expected.shape, expected.shape + expected.rank, side.scales.shape)) {
      return Status::Invalid(
          tensor + ".shape",
          fmt::format("{}, expected {}: one scale for each 16 elements of {}.data",
                      ShapeText(side.scales), ShapeText(expected), name_));
    }
    return Status::Ok();
  }

  Status LoadGlobal(CacheSide& side) {
    metadata_.Read(Key("global"), side.global.value);
    metadata_.Read(Key("allow_unusual_scale"), side.global.allow_unusual);
    const std::string tensor = name_ + ".global";
    const TensorView global = file_.Find(tensor);
    if (!global.defined()) return metadata_.status();
    if (metadata_.Has(Key("global")))
      metadata_.Refuse(Key("global"), "given beside the tensor " + tensor);
    const std::int64_t heads = AxesOf(side.data, side.layout).heads;
    if (global.dtype != DType::kF32 || global.rank != 1 ||
        (global.shape[0] != 1 && global.shape[0] != heads)) {
      return Status::Invalid(
          tensor, fmt::format("{} {}, expected F32 [1] or [{}]", SafetensorsName(global.dtype),
                              ShapeText(global), heads));
    }
    side.global.array = static_cast<const float*>(global.data);
    side.global.array_size = global.shape[0];
    return metadata_.status();
  }

  const TensorFile& file_;
  MetadataReader& metadata_;
  std::string name_;
  bool paged_;
};

Status CheckSidesAgree(const CacheSide& k, const CacheSide& v) {
  const Axes a = AxesOf(k.data, k.layout);
  const Axes b = AxesOf(v.data, v.layout);
  if (a.pages == b.pages && a.tokens == b.tokens && a.heads == b.heads) return Status::Ok();
  return Status::Invalid(
      "v.data.shape",
      fmt::format("{} as {} means {} pages x {} tokens x {} heads, but k.data {} as {} "
                  "means {} x {} x {}",
                  ShapeText(v.data), kLayouts[static_cast<int>(v.layout)], b.pages, b.tokens,
                  b.heads, ShapeText(k.data), kLayouts[static_cast<int>(k.layout)], a.pages,
                  a.tokens, a.heads));
}

Status LoadTable(const TensorFile& file, PageTable& table) {
  const bool csr = file.Find("page_table.indptr").defined();
  const auto read = [&](const char* name, int rank, IndexArray& array) {
    Result<IndexArray> found = file.FindIndex(name, rank);
    if (!found.ok()) return found.status();
    array = *found;
    return Status::Ok();
  };
  KVILT_RETURN_IF_ERROR(read("page_table.indptr", 1, table.indptr));
  KVILT_RETURN_IF_ERROR(read("page_table.indices", csr ? 1 : 2, table.indices));
  KVILT_RETURN_IF_ERROR(read("page_table.kv_len", 1, table.kv_len));
  KVILT_RETURN_IF_ERROR(read("page_table.last_page_len", 1, table.last_page_len));
  if (!file.Find("page_table.indices").defined()) {
    return Status::Invalid("page_table.indices", "no such tensor in the file");
  }
  if (!csr) table.row_stride = file.Find("page_table.indices").shape[1];
  if (file.Find("page_table.kv_len").defined() == file.Find("page_table.last_page_len").defined()) {
    return Status::Invalid(
        "page_table.kv_len",
        "expected exactly one of page_table.kv_len and page_table.last_page_len");
  }
  return Status::Ok();
}

Status CheckPageSize(MetadataReader& metadata, const CacheSide& k) {
  std::int64_t page_size = -1;
  metadata.Read("kvilt.page_size", page_size);
  const std::int64_t stored = AxesOf(k.data, k.layout).tokens;
  if (!metadata.Has("kvilt.page_size")) {
    metadata.Refuse("kvilt.page_size", "missing, required for a paged cache");
  } else if (page_size != stored) {
    metadata.Refuse(
        "kvilt.page_size",
        fmt::format("{}, but k.data {} as {} has pages of {}: page size or layout is wrong",
                    page_size, ShapeText(k.data), kLayouts[static_cast<int>(k.layout)], stored));
  }
  return metadata.status();
}

// "0,2,5"
void ReadOwners(MetadataReader& metadata, std::vector<std::int32_t>& owners) {
  const auto text = metadata.Text("kvilt.owners");
  if (!text) return;
  std::int64_t value = 0;
  for (std::size_t begin = 0; begin <= text->size();) {
    const std::size_t end = std::min(text->find(',', begin), text->size());
    const Metadata item = {{"kvilt.owners", text->substr(begin, end - begin)}};
    MetadataReader reader(item);
    reader.Read("kvilt.owners", value);
    if (!reader.status().ok() || value < 0 || value > INT32_MAX) {
      return metadata.Refuse("kvilt.owners",
                             fmt::format("'{}', expected request numbers as in 0,2,5", *text));
    }
    owners.push_back(static_cast<std::int32_t>(value));
    begin = end + 1;
  }
}

}  // namespace

Result<Segment> SegmentOf(const TensorFile& file) {
  KVILT_RETURN_IF_ERROR(CheckSchema(file.metadata()));
  MetadataReader metadata(file.metadata());
  const int kind = metadata.Choice("kvilt.cache", kCacheKinds);
  if (kind < 0) {
    metadata.Refuse("kvilt.cache", "missing, accepted: paged, ragged");
    return metadata.status();
  }
  const bool paged = kind == 0;
  PagedKv cache;
  KVILT_RETURN_IF_ERROR(SideLoader(file, metadata, "k", paged).Load(cache.k));
  KVILT_RETURN_IF_ERROR(SideLoader(file, metadata, "v", paged).Load(cache.v));
  KVILT_RETURN_IF_ERROR(CheckSidesAgree(cache.k, cache.v));
  Segment segment;
  ReadOwners(metadata, segment.owners);
  if (paged) {
    KVILT_RETURN_IF_ERROR(CheckPageSize(metadata, cache.k));
    KVILT_RETURN_IF_ERROR(LoadTable(file, cache.table));
    segment.kv = cache;
  } else {
    if (metadata.Has("kvilt.page_size"))
      metadata.Refuse("kvilt.page_size", "given for a ragged cache");
    Result<IndexArray> indptr = file.FindIndex("indptr");
    if (!indptr.ok()) return indptr.status();
    if (!indptr->defined())
      return Status::Invalid("indptr", "no such tensor in the file, required for a ragged cache");
    segment.kv = RaggedKv{cache.k, cache.v, *indptr};
  }
  KVILT_RETURN_IF_ERROR(metadata.status());
  return segment;
}

Result<CacheFile> LoadCacheFile(const std::string& path) {
  Result<TensorFile> file = TensorFile::Load(path);
  if (!file.ok()) return file.status();
  Result<Segment> segment = SegmentOf(*file);
  if (!segment.ok()) return Status(segment.status().code(), path, segment.status().message());
  return CacheFile{std::move(*file), std::move(*segment)};
}

}  // namespace kvilt::core
