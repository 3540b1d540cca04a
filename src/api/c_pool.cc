// The C ABI of PagePool and CopyPages.
#include <algorithm>
#include <vector>

#include "kvilt/kvilt_c.h"
#include "kvilt/page_pool.h"
#include "src/api/c_convert.h"
#include "src/api/c_guard.h"

struct kvilt_pool {
  kvilt::PagePool pool;
};

using kvilt::Status;
using kvilt::api::Array;
using kvilt::api::Guard;
using kvilt::api::HandOut;
using kvilt::api::NotNull;

kvilt_status kvilt_pool_create(int64_t pages, int64_t page_size, kvilt_pool** pool) {
  return Guard([&] { return HandOut(kvilt::PagePool::Create(pages, page_size), "pool", pool); });
}

void kvilt_pool_destroy(kvilt_pool* pool) { delete pool; }

kvilt_status kvilt_pool_new_sequence(kvilt_pool* pool, int64_t* sequence) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(pool, "pool"));
    KVILT_RETURN_IF_ERROR(NotNull(sequence, "sequence"));
    const auto id = pool->pool.Create();
    if (id.ok()) *sequence = *id;
    return id.status();
  });
}

kvilt_status kvilt_pool_fork(kvilt_pool* pool, int64_t parent, int64_t* sequence) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(pool, "pool"));
    KVILT_RETURN_IF_ERROR(NotNull(sequence, "sequence"));
    const auto id = pool->pool.Fork(parent);
    if (id.ok()) *sequence = *id;
    return id.status();
  });
}

kvilt_status kvilt_pool_append(kvilt_pool* pool, const int64_t* sequences, const int64_t* tokens,
                               int64_t count, kvilt_page_copy* copies, int64_t* copy_count) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(pool, "pool"));
    KVILT_RETURN_IF_ERROR(NotNull(copy_count, "copy_count"));
    const auto ids = Array(sequences, count, "sequences");
    if (!ids.ok()) return ids.status();
    const auto counts = Array(tokens, count, "tokens");
    if (!counts.ok()) return counts.status();
    if (count > 0) KVILT_RETURN_IF_ERROR(NotNull(copies, "copies"));
    std::vector<kvilt::PageCopy> made;
    KVILT_RETURN_IF_ERROR(pool->pool.Append(*ids, *counts, &made));
    for (std::size_t i = 0; i < made.size(); ++i) {
      copies[i] = {made[i].from, made[i].to, made[i].rows};
    }
    *copy_count = static_cast<std::int64_t>(made.size());
    return Status();
  });
}

kvilt_status kvilt_pool_truncate(kvilt_pool* pool, int64_t sequence, int64_t tokens) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(pool, "pool"));
    return pool->pool.Truncate(sequence, tokens);
  });
}

kvilt_status kvilt_pool_free(kvilt_pool* pool, int64_t sequence) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(pool, "pool"));
    return pool->pool.Free(sequence);
  });
}

kvilt_status kvilt_pool_length(const kvilt_pool* pool, int64_t sequence, int64_t* tokens) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(pool, "pool"));
    KVILT_RETURN_IF_ERROR(NotNull(tokens, "tokens"));
    const auto length = pool->pool.length(sequence);
    if (length.ok()) *tokens = *length;
    return length.status();
  });
}

int64_t kvilt_pool_free_pages(const kvilt_pool* pool) {
  return pool == nullptr ? 0 : pool->pool.free_pages();
}

int64_t kvilt_pool_owners(const kvilt_pool* pool, int64_t page) {
  return pool == nullptr ? 0 : pool->pool.owners(page);
}

kvilt_status kvilt_pool_table(const kvilt_pool* pool, const int64_t* sequences, int64_t count,
                              int64_t* indptr, int64_t* kv_len, int32_t* indices, int64_t capacity,
                              int64_t* page_count) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(pool, "pool"));
    KVILT_RETURN_IF_ERROR(NotNull(page_count, "page_count"));
    const auto ids = Array(sequences, count, "sequences");
    if (!ids.ok()) return ids.status();
    const auto table = pool->pool.MakeTable(*ids);
    if (!table.ok()) return table.status();
    *page_count = static_cast<std::int64_t>(table->indices.size());
    if (*page_count > capacity) {
      return Status::Exhausted("indices", "room for " + std::to_string(capacity) +
                                              " page ids, the sequences hold " +
                                              std::to_string(*page_count));
    }
    KVILT_RETURN_IF_ERROR(NotNull(indptr, "indptr"));
    if (count > 0) KVILT_RETURN_IF_ERROR(NotNull(kv_len, "kv_len"));
    if (*page_count > 0) KVILT_RETURN_IF_ERROR(NotNull(indices, "indices"));
    std::copy(table->indptr.begin(), table->indptr.end(), indptr);
    std::copy(table->kv_len.begin(), table->kv_len.end(), kv_len);
    std::copy(table->indices.begin(), table->indices.end(), indices);
    return Status();
  });
}

kvilt_status kvilt_copy_pages(const kvilt_device* device, const kvilt_segment* cache,
                              const kvilt_page_copy* copies, int64_t count, void* stream) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(device, "device"));
    const auto given = Array(copies, count, "copies");
    if (!given.ok()) return given.status();
    kvilt::Segment segment;
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(cache, "cache", segment));
    std::vector<kvilt::PageCopy> list(given->size());
    std::transform(given->begin(), given->end(), list.begin(), [](const kvilt_page_copy& copy) {
      return kvilt::PageCopy{copy.from, copy.to, copy.rows};
    });
    return kvilt::CopyPages(device->device, segment, list, {stream});
  });
}
