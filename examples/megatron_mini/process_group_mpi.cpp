#include "process_group_mpi.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/util/BFloat16.h>
#include <mpi.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace megatron_mini {

namespace {

constexpr char kName[] = "mpi";
constexpr int kKeepOrder = 0;  // of the ranks in what is split

// MPI's default error handler ends the job, so return codes are not looked at.

// inout[i] = round(in[i] + inout[i]); the signature is MPI_User_function's.
void add_bf16(void* in, void* inout, int* length, MPI_Datatype* /*type*/) {
  const auto* addend = static_cast<const c10::BFloat16*>(in);
  auto* sum = static_cast<c10::BFloat16*>(inout);
  for (int i = 0; i < *length; ++i) {
    sum[i] = c10::BFloat16(static_cast<float>(addend[i]) + static_cast<float>(sum[i]));
  }
}

// MPI has no bf16: its type and its sum.
class Bf16 {
 public:
  Bf16() {
    MPI_Type_contiguous(sizeof(c10::BFloat16), MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
    constexpr int kCommutes = 1;
    MPI_Op_create(&add_bf16, kCommutes, &sum_);
  }
  ~Bf16() {
    MPI_Op_free(&sum_);
    MPI_Type_free(&type_);
  }
  Bf16(const Bf16&) = delete;  // owns MPI handles
  Bf16& operator=(const Bf16&) = delete;

  [[nodiscard]] MPI_Datatype type() const { return type_; }
  [[nodiscard]] MPI_Op sum() const { return sum_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op sum_ = MPI_OP_NULL;
};

// Copies between a device and the host, unseen by whoever observes the program's operators, as
// those of a backend that reads device memory are.
class HiddenCopies {
 private:
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  at::DisableRecordFunctionGuard unobserved_;
};

// A tensor's values where MPI finds them: its own memory, or a copy on the host.
class HostValues {
 public:
  enum class Use { kRead, kWrite, kReadAndWrite };

  HostValues(const at::Tensor& tensor, Use use) : tensor_(tensor), host_(tensor), use_(use) {
    if (!tensor.is_cpu()) {
      const HiddenCopies hidden;
      host_ = use == Use::kWrite ? at::empty_like(tensor, at::kCPU) : tensor.to(at::kCPU);
    }
  }
  [[nodiscard]] void* data() const { return host_.data_ptr(); }
  // Once MPI has written.
  void hand_over() const {
    if (use_ != Use::kRead && !tensor_.is_cpu()) {
      const HiddenCopies hidden;
      tensor_.copy_(host_);
    }
  }

 private:
  at::Tensor tensor_;
  at::Tensor host_;
  Use use_;
};

// A message or collective under way; its tensors live as long as this. Requires: wait() is called
// once.
class PendingWork : public c10d::Work {
 public:
  PendingWork(c10d::OpType op, std::vector<HostValues> values)
      : Work(-1, op), values_(std::move(values)) {}

  bool wait(std::chrono::milliseconds /*timeout*/) override {
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
    for (const auto& values : values_) {
      values.hand_over();
    }
    finish();
    return true;
  }
  [[nodiscard]] void* data(std::size_t index) const { return values_.at(index).data(); }
  [[nodiscard]] MPI_Request* request() { return &request_; }

 private:
  std::vector<HostValues> values_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// Messages that were begun together. Requires: wait() is called once.
class CoalescedWork : public c10d::Work {
 public:
  CoalescedWork() : Work(-1, c10d::OpType::COALESCED) {}

  void add(c10::intrusive_ptr<PendingWork> work) { parts_.push_back(std::move(work)); }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& part : parts_) {
      part->wait(timeout);
    }
    finish();
    return true;
  }

 private:
  std::vector<c10::intrusive_ptr<PendingWork>> parts_;
};

int checked_count(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(),
              "an MPI collective got a strided tensor of shape ",
              tensor.sizes(),
              "; pass tensor.contiguous()");
  TORCH_CHECK(tensor.numel() <= std::numeric_limits<int>::max(),
              "an MPI collective takes at most 2^31-1 elements, got ",
              tensor.numel());
  return static_cast<int>(tensor.numel());
}

// Where the ranks' rows lie in one tensor, in elements.
struct Splits {
  // `rows`: of each rank, along dimension 0.
  Splits(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, int ranks) {
    checked_count(tensor);
    const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    TORCH_CHECK(static_cast<int>(rows.size()) == ranks && total == tensor.size(0),
                "splits ",
                rows,
                " do not fit ",
                ranks,
                " ranks and a tensor of shape ",
                tensor.sizes());
    const int row = total == 0 ? 0 : static_cast<int>(tensor.numel() / total);
    int start = 0;
    for (const std::int64_t count : rows) {
      counts.push_back(static_cast<int>(count) * row);
      starts.push_back(start);
      start += counts.back();
    }
  }

  std::vector<int> counts;
  std::vector<int> starts;
};

// Collectives block until they are done, unless the caller asks for an asynchronous one, and then
// return no work, as NCCL's do.
constexpr std::nullptr_t kDone = nullptr;

class MpiBackend : public c10d::Backend {
 public:
  // Owns `communicator`; `bf16` outlives the backend.
  MpiBackend(MPI_Comm communicator, int rank, int size, const Bf16& bf16)
      : Backend(rank, size), communicator_(communicator), bf16_(bf16) {}
  ~MpiBackend() override { MPI_Comm_free(&communicator_); }
  MpiBackend(const MpiBackend&) = delete;  // owns a communicator
  MpiBackend& operator=(const MpiBackend&) = delete;

  const std::string getBackendName() const override { return kName; }  // NOLINT: c10d's signature

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const at::Tensor& tensor = only(tensors);
    const HostValues values(tensor, HostValues::Use::kReadAndWrite);
    MPI_Allreduce(MPI_IN_PLACE,
                  values.data(),
                  checked_count(tensor),
                  type_of(tensor),
                  operation(tensor, options.reduceOp),
                  communicator_);
    values.hand_over();
    return kDone;
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output,
                                                 at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    check_sizes(output, input);
    const int count = checked_count(input);
    const HostValues sent(input, HostValues::Use::kRead);
    const HostValues received(output, HostValues::Use::kWrite);
    if (options.asyncOp) {
      auto work = c10::make_intrusive<PendingWork>(c10d::OpType::_ALLGATHER_BASE,
                                                   std::vector<HostValues>{received, sent});
      MPI_Iallgather(sent.data(),
                     count,
                     type_of(input),
                     received.data(),
                     count,
                     type_of(output),
                     communicator_,
                     work->request());
      return work;
    }
    MPI_Allgather(
        sent.data(), count, type_of(input), received.data(), count, type_of(output), communicator_);
    received.hand_over();
    return kDone;
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    check_sizes(input, output);
    const HostValues addends(input, HostValues::Use::kRead);
    const HostValues sums(output, HostValues::Use::kWrite);
    MPI_Reduce_scatter_block(addends.data(),
                             sums.data(),
                             checked_count(output),
                             type_of(output),
                             operation(input, options.reduceOp),
                             communicator_);
    sums.hand_over();
    return kDone;
  }

  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output,
                                               at::Tensor& input,
                                               std::vector<std::int64_t>& received,
                                               std::vector<std::int64_t>& sent,
                                               const c10d::AllToAllOptions& /*options*/) override {
    const Splits to(input, sent, getSize());
    const Splits from(output, received, getSize());
    const HostValues there(input, HostValues::Use::kRead);
    const HostValues here(output, HostValues::Use::kWrite);
    MPI_Alltoallv(there.data(),
                  to.counts.data(),
                  to.starts.data(),
                  type_of(input),
                  here.data(),
                  from.counts.data(),
                  from.starts.data(),
                  type_of(output),
                  communicator_);
    here.hand_over();
    return kDone;
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = only(tensors);
    const HostValues values(tensor, HostValues::Use::kReadAndWrite);
    MPI_Bcast(values.data(),
              checked_count(tensor),
              type_of(tensor),
              static_cast<int>(options.rootRank),
              communicator_);
    values.hand_over();
    return kDone;
  }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors,
                                      int destination,
                                      int tag) override {
    const at::Tensor& tensor = only(tensors);
    auto work = c10::make_intrusive<PendingWork>(
        c10d::OpType::SEND, std::vector<HostValues>{{tensor, HostValues::Use::kRead}});
    MPI_Isend(work->data(0),
              checked_count(tensor),
              type_of(tensor),
              destination,
              tag,
              communicator_,
              work->request());
    return begun(std::move(work));
  }

  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors,
                                      int source,
                                      int tag) override {
    const at::Tensor& tensor = only(tensors);
    auto work = c10::make_intrusive<PendingWork>(
        c10d::OpType::RECV, std::vector<HostValues>{{tensor, HostValues::Use::kWrite}});
    MPI_Irecv(work->data(0),
              checked_count(tensor),
              type_of(tensor),
              source,
              tag,
              communicator_,
              work->request());
    return begun(std::move(work));
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& /*options*/) override {
    MPI_Barrier(communicator_);
    return kDone;
  }

  // Messages in between are waited for together, by what endCoalescing() returns.
  void startCoalescing() override { coalesced_ = c10::make_intrusive<CoalescedWork>(); }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override { return std::move(coalesced_); }

 private:
  c10::intrusive_ptr<c10d::Work> begun(c10::intrusive_ptr<PendingWork> work) {
    if (coalesced_) {
      coalesced_->add(work);
    }
    return work;
  }

  static const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
    TORCH_CHECK(tensors.size() == 1, "this call takes one tensor, but got ", tensors.size());
    return tensors.front();
  }

  // `large` holds one `small` per rank.
  void check_sizes(const at::Tensor& large, const at::Tensor& small) const {
    TORCH_CHECK(large.scalar_type() == small.scalar_type() &&
                    checked_count(large) == checked_count(small) * getSize(),
                "shapes ",
                large.sizes(),
                " and ",
                small.sizes(),
                " do not fit ",
                getSize(),
                " ranks");
  }

  [[nodiscard]] MPI_Datatype type_of(const at::Tensor& tensor) const {
    switch (tensor.scalar_type()) {
      case at::kDouble:
        return MPI_DOUBLE;
      case at::kFloat:
        return MPI_FLOAT;
      case at::kBFloat16:
        return bf16_.type();
      case at::kLong:
        return MPI_INT64_T;
      default:
        TORCH_CHECK(false, "MPI has no type for ", tensor.scalar_type());
    }
  }

  [[nodiscard]] MPI_Op operation(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
    const bool is_bf16 = tensor.scalar_type() == at::kBFloat16;
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
      case c10d::ReduceOp::SUM:
        return is_bf16 ? bf16_.sum() : MPI_SUM;
      case c10d::ReduceOp::MAX:
        TORCH_CHECK(!is_bf16, "the maximum of bf16 tensors is not implemented");
        return MPI_MAX;
      default:
        TORCH_CHECK(false, "only sums and maxima are implemented");
    }
  }

  MPI_Comm communicator_;
  const Bf16& bf16_;
  c10::intrusive_ptr<CoalescedWork> coalesced_;
};

}  // namespace

struct MpiRuntime::Impl {
  Bf16 bf16;
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;  // the registry only refers to them
  Group world;
  int local_rank = 0;
  int local_size = 1;
  c10::DeviceType device = c10::DeviceType::CPU;
  BackendMaker make;
};

MpiRuntime::MpiRuntime(int* argc, char*** argv) {
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided);
  TORCH_CHECK(provided >= MPI_THREAD_SERIALIZED, "this MPI does not offer MPI_THREAD_SERIALIZED");
  impl_ = std::make_unique<Impl>();
  impl_->world = split("world", 0);
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, kKeepOrder, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &impl_->local_rank);
  MPI_Comm_size(machine, &impl_->local_size);
  MPI_Comm_free(&machine);
}

MpiRuntime::~MpiRuntime() {
  if (std::uncaught_exceptions() > 0) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (const auto& group : impl_->groups) {
    c10d::unregister_process_group(group->getGroupName());
    if (group->getBackend(impl_->device)->getBackendName() != kName) {
      group->getBackend(impl_->device)->shutdown();
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);  // nobody may still want the first rank's store
  impl_.reset();                // frees communicators, which must precede MPI_Finalize
  MPI_Finalize();
}

const Group& MpiRuntime::world() const {
  return impl_->world;
}

int MpiRuntime::local_rank() const {
  return impl_->local_rank;
}

bool MpiRuntime::is_one_machine() const {
  return impl_->local_size == impl_->world.size;
}

void MpiRuntime::serve(c10::DeviceType device, BackendMaker make) {
  impl_->device = device;
  impl_->make = std::move(make);
  for (const auto& group : impl_->groups) {
    add_backend(*group);
  }
}

void MpiRuntime::add_backend(c10d::ProcessGroup& group) const {
  if (impl_->device == c10::DeviceType::CPU) {
    return;
  }
  if (!impl_->make || group.getSize() == 1) {
    group.setBackend(impl_->device,
                     c10d::ProcessGroup::BackendType::CUSTOM,
                     group.getBackend(c10::DeviceType::CPU));
    return;
  }
  group.setBackend(impl_->device,
                   c10d::ProcessGroup::BackendType::NCCL,
                   impl_->make(group.getGroupDesc(), group.getRank(), group.getSize()));
}

Group MpiRuntime::split(const std::string& name, int color) {
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, color, kKeepOrder, &communicator);
  Group result{.name = name};
  MPI_Comm_rank(communicator, &result.rank);
  MPI_Comm_size(communicator, &result.size);

  const auto backend =
      c10::make_intrusive<MpiBackend>(communicator, result.rank, result.size, impl_->bf16);
  const auto store = c10::make_intrusive<c10d::HashStore>();  // required by the type, never asked
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, result.rank, result.size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  group->setGroupName(name);
  int lowest = impl_->world.rank;
  MPI_Bcast(&lowest, 1, MPI_INT, 0, communicator);
  group->setGroupDesc(name + "-" + std::to_string(lowest));  // no other group has it
  add_backend(*group);
  c10d::register_process_group(name, group);
  impl_->groups.push_back(std::move(group));
  return result;
}

}  // namespace megatron_mini
