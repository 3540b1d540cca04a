#include "kvilt/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace kvilt {
namespace {

using Ids = std::vector<SequenceId>;
using Counts = std::vector<std::int64_t>;

PagePool MakePool(std::int64_t pages, std::int64_t page_size) {
  return PagePool::Create(pages, page_size).value();
}

TEST(PagePool, CreateRefusesNonsense) {
  EXPECT_EQ(PagePool::Create(-1, 16).status().field(), "pages");
  EXPECT_EQ(PagePool::Create(std::int64_t{1} << 31, 16).status().field(), "pages");
  EXPECT_EQ(PagePool::Create(4, 0).status().field(), "page_size");
  EXPECT_EQ(PagePool::Create(4, std::int64_t{1} << 62).status().field(), "page_size");
  EXPECT_TRUE(PagePool::Create(0, 1).ok());
  // A pool costs memory by use, so its size is no danger.
  EXPECT_TRUE(PagePool::Create(std::numeric_limits<std::int32_t>::max(), 16).ok());
}

TEST(PagePool, AppendTakesWholePages) {
  PagePool pool = MakePool(8, 4);
  const SequenceId a = pool.Create().value();
  std::vector<PageCopy> copies;
  ASSERT_TRUE(pool.Append(Ids{a}, Counts{5}, &copies).ok());
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(pool.page_ids(a).value(), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(pool.length(a).value(), 5);
  EXPECT_EQ(pool.free_pages(), 6);
  ASSERT_TRUE(pool.Append(Ids{a}, Counts{0}, &copies).ok());
  EXPECT_EQ(pool.free_pages(), 6);
}

TEST(PagePool, ForkSharesAndTheFirstWriterCopies) {
  PagePool pool = MakePool(8, 4);
  const SequenceId a = pool.Create().value();
  std::vector<PageCopy> copies;
  ASSERT_TRUE(pool.Append(Ids{a}, Counts{6}, &copies).ok());
  const SequenceId b = pool.Fork(a).value();
  EXPECT_EQ(pool.owners(0), 2);
  EXPECT_EQ(pool.owners(1), 2);
  EXPECT_EQ(pool.free_pages(), 6);
  // Both write in one call: one gets a copy, the other is then the only owner.
  ASSERT_TRUE(pool.Append(Ids{a, b}, Counts{1, 1}, &copies).ok());
  EXPECT_EQ(copies, (std::vector<PageCopy>{{1, 2, 2}}));
  EXPECT_EQ(pool.page_ids(a).value(), (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(pool.page_ids(b).value(), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(pool.owners(1), 1);
  EXPECT_EQ(pool.free_pages(), 5);
}

TEST(PagePool, ForkAtAPageBoundaryCopiesNothing) {
  PagePool pool = MakePool(8, 4);
  const SequenceId a = pool.Create().value();
  std::vector<PageCopy> copies;
  ASSERT_TRUE(pool.Append(Ids{a}, Counts{4}, &copies).ok());
  const SequenceId b = pool.Fork(a).value();
  ASSERT_TRUE(pool.Append(Ids{b}, Counts{4}, &copies).ok());
  EXPECT_TRUE(copies.empty());
  // A truncated child sees the shared page as its partial last one.
  ASSERT_TRUE(pool.Truncate(b, 5).ok());
  ASSERT_TRUE(pool.Append(Ids{b}, Counts{1}, &copies).ok());
  EXPECT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].from, 0);
  EXPECT_EQ(copies[0].rows, 3);
}

TEST(PagePool, ExhaustedSaysWhatIsNeededAndChangesNothing) {
  PagePool pool = MakePool(3, 4);
  const SequenceId a = pool.Create().value();
  const SequenceId b = pool.Create().value();
  std::vector<PageCopy> copies;
  ASSERT_TRUE(pool.Append(Ids{a}, Counts{6}, &copies).ok());
  const Status status = pool.Append(Ids{a, b}, Counts{1, 5}, &copies);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("need 2 more pages, 1 of 3 are free"), std::string::npos)
      << status.message();
  EXPECT_EQ(pool.length(a).value(), 6);
  EXPECT_EQ(pool.free_pages(), 1);
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(pool.Append(Ids{a}, Counts{huge}, &copies).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.Append(Ids{a, b}, Counts{1, huge}, &copies).code(),
            StatusCode::kResourceExhausted);
}

TEST(PagePool, BadInputIsNamed) {
  PagePool pool = MakePool(3, 4);
  const SequenceId a = pool.Create().value();
  std::vector<PageCopy> copies;
  EXPECT_EQ(pool.Append(Ids{a}, Counts{1}, nullptr).field(), "copies");
  EXPECT_EQ(pool.Append(Ids{a}, Counts{}, &copies).field(), "tokens");
  EXPECT_EQ(pool.Append(Ids{a}, Counts{-1}, &copies).field(), "tokens[0]");
  EXPECT_EQ(pool.Append(Ids{a, a}, Counts{1, 1}, &copies).field(), "sequences[1]");
  EXPECT_EQ(pool.Append(Ids{a, 77}, Counts{1, 1}, &copies).field(), "sequences[1]");
  EXPECT_EQ(pool.Fork(-1).status().field(), "parent");
  EXPECT_EQ(pool.Truncate(a, 1).field(), "tokens");
  EXPECT_EQ(pool.Truncate(a, -1).field(), "tokens");
  EXPECT_EQ(pool.MakeTable(Ids{a, 5}).status().field(), "sequences[1]");
  EXPECT_EQ(pool.free_pages(), 3);
  ASSERT_TRUE(pool.Free(a).ok());
  EXPECT_EQ(pool.Free(a).field(), "sequence");  // Not twice.
  const SequenceId b = pool.Create().value();   // Takes the slot of a, under another id.
  EXPECT_NE(b, a);
  EXPECT_FALSE(pool.length(a).ok());
  EXPECT_EQ(pool.owners(-1), 0);
  EXPECT_EQ(pool.owners(99), 0);
}

TEST(PagePool, TableOfEmptySequencesIsDefined) {
  PagePool pool = MakePool(3, 4);
  const SequenceId a = pool.Create().value();
  const PagePool::Table table = pool.MakeTable(Ids{a}).value();
  const PageTable view = table.view();
  EXPECT_TRUE(view.indices.defined());
  EXPECT_EQ(view.indices.size, 0);
  EXPECT_EQ(view.indptr.size, 2);
  EXPECT_EQ(view.kv_len[0], 0);
}

// The truth beside the pool: what each sequence must read, token by token, and a memory of pages
// that only the pool's page ids and copies address.
class Model {
 public:
  Model(std::int64_t pages, std::int64_t page_size)
      : pool_(MakePool(pages, page_size)),
        memory_(static_cast<std::size_t>(pages * page_size), -1) {}

  bool empty() const { return truth_.empty(); }
  SequenceId Pick() {
    auto it = truth_.begin();
    std::advance(it, *rc::gen::inRange<std::size_t>(0, truth_.size()));
    return it->first;
  }

  void Create() { RC_ASSERT(truth_.emplace(pool_.Create().value(), Counts{}).second); }
  void Fork() {
    const SequenceId parent = Pick();
    RC_ASSERT(truth_.emplace(pool_.Fork(parent).value(), truth_.at(parent)).second);
  }
  void Free() {
    const SequenceId id = Pick();
    RC_ASSERT(pool_.Free(id).ok());
    truth_.erase(id);
  }
  void Truncate() {
    const SequenceId id = Pick();
    Counts& tokens = truth_.at(id);
    const auto drop = *rc::gen::inRange<std::size_t>(0, tokens.size() + 1);
    RC_ASSERT(pool_.Truncate(id, static_cast<std::int64_t>(drop)).ok());
    tokens.resize(tokens.size() - drop);
  }
  void Append() {
    Ids ids;
    Counts counts;
    for (const auto& [id, tokens] : truth_) {
      if (!*rc::gen::arbitrary<bool>()) continue;
      ids.push_back(id);
      counts.push_back(*rc::gen::inRange(0, 10));
    }
    const std::int64_t free_before = pool_.free_pages();
    std::vector<PageCopy> copies;
    const Status status = pool_.Append(ids, counts, &copies);
    if (!status.ok()) {
      RC_ASSERT(status.code() == StatusCode::kResourceExhausted);
      RC_ASSERT(copies.empty());
      RC_ASSERT(pool_.free_pages() == free_before);
      return;  // Check() proves that nothing else changed.
    }
    for (const PageCopy& copy : copies) {
      RC_ASSERT(copy.rows > 0 && copy.rows < pool_.page_size());
      for (std::int64_t row = 0; row < copy.rows; ++row) At(copy.to, row) = At(copy.from, row);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) Write(ids[i], counts[i]);
  }

  void Check() {
    std::map<std::int64_t, std::int64_t> owners;
    for (const auto& [id, tokens] : truth_) {
      const auto pages = pool_.page_ids(id).value();
      const auto length = static_cast<std::int64_t>(tokens.size());
      RC_ASSERT(pool_.length(id).value() == length);
      RC_ASSERT(static_cast<std::int64_t>(pages.size()) ==
                (length + pool_.page_size() - 1) / pool_.page_size());
      for (std::int64_t t = 0; t < length; ++t) {
        RC_ASSERT(At(pages[static_cast<std::size_t>(t / pool_.page_size())],
                     t % pool_.page_size()) == tokens[static_cast<std::size_t>(t)]);
      }
      for (const std::int32_t page : pages) ++owners[page];
    }
    for (std::int64_t page = 0; page < pool_.pages(); ++page) {
      RC_ASSERT(pool_.owners(page) == (owners.count(page) != 0 ? owners[page] : 0));
    }
    RC_ASSERT(pool_.free_pages() == pool_.pages() - static_cast<std::int64_t>(owners.size()));
  }

 private:
  std::int64_t& At(std::int64_t page, std::int64_t row) {
    return memory_.at(static_cast<std::size_t>(page * pool_.page_size() + row));
  }
  void Write(SequenceId id, std::int64_t count) {
    const auto pages = pool_.page_ids(id).value();
    Counts& tokens = truth_.at(id);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto t = static_cast<std::int64_t>(tokens.size());
      const std::int64_t value = next_value_++;
      At(pages[static_cast<std::size_t>(t / pool_.page_size())], t % pool_.page_size()) = value;
      tokens.push_back(value);
    }
  }

  PagePool pool_;
  std::vector<std::int64_t> memory_;
  std::map<SequenceId, Counts> truth_;
  std::int64_t next_value_ = 0;
};

RC_GTEST_PROP(PagePoolModel, NoOwnerEverSeesAnothersWrite, ()) {
  Model model(*rc::gen::inRange(1, 24), *rc::gen::inRange(1, 6));
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    // Appends and forks are the interesting steps.
    const int kind = *rc::gen::inRange(0, 9);
    if (model.empty() || kind == 0) {
      model.Create();
    } else if (kind <= 2) {
      model.Fork();
    } else if (kind == 3) {
      model.Free();
    } else if (kind == 4) {
      model.Truncate();
    } else {
      model.Append();
    }
    model.Check();
  }
}

}  // namespace
}  // namespace kvilt
