#include "hooks/write/sink.h"

#include <utility>

namespace ttrace {
namespace {

class RankSinks : public Sink {
 public:
  explicit RankSinks(std::vector<std::unique_ptr<Sink>> ranks) : ranks_(std::move(ranks)) {}

  void begin_step(std::int64_t step, std::uint64_t began) override {
    for (const auto& rank : ranks_) {
      rank->begin_step(step, began);
    }
  }
  void append(Record record, std::span<const std::byte> bytes) override {
    append_of_rank(0, std::move(record), bytes);
  }
  void append_of_rank(std::size_t rank, Record record, std::span<const std::byte> bytes) override {
    ranks_[rank]->append(std::move(record), bytes);
  }
  void note(std::string remark) override { ranks_.front()->note(std::move(remark)); }
  void not_seen(NotSeen fact) override { ranks_.front()->not_seen(std::move(fact)); }
  void sum(const RoundedSum& sum) override { ranks_.front()->sum(sum); }
  void edge(const Edge& edge) override { ranks_.front()->edge(edge); }
  void code(CodeRole role, const std::string& path, const std::string& text) override {
    ranks_.front()->code(role, path, text);
  }
  void flush() override {
    for (const auto& rank : ranks_) {
      rank->flush();
    }
  }
  void end_step(bool whole) override {
    for (const auto& rank : ranks_) {
      rank->end_step(whole);
    }
  }

 private:
  std::vector<std::unique_ptr<Sink>> ranks_;
};

}  // namespace

std::unique_ptr<Sink> make_rank_sinks(std::vector<std::unique_ptr<Sink>> ranks) {
  return std::make_unique<RankSinks>(std::move(ranks));
}

}  // namespace ttrace
