#include "process_group_nccl.h"

#include "error.h"

#ifdef USE_C10D_NCCL

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <unistd.h>

namespace megatron_mini {

namespace {

// Where the first rank's store listens; its bytes go to the other ranks.
struct Address {
  std::array<char, 248> host{};  // ends with a zero
  std::int64_t port = 0;
};

Address own_address(const MpiRuntime& runtime, std::uint16_t port) {
  Address address{.port = port};
  if (runtime.is_one_machine()) {
    std::strcpy(address.host.data(), "127.0.0.1");  // needs no name server
  } else {
    gethostname(address.host.data(), address.host.size() - 1);
  }
  return address;
}

Address from_first_rank(const Address& mine, const Group& world) {
  const at::Tensor numbers = at::zeros({sizeof(Address) / sizeof(std::int64_t)}, at::kLong);
  std::memcpy(numbers.mutable_data_ptr(), &mine, sizeof(Address));
  broadcast(numbers, world, 0);
  Address address;
  std::memcpy(&address, numbers.const_data_ptr(), sizeof(Address));
  return address;
}

c10::intrusive_ptr<c10d::Store> common_store(const MpiRuntime& runtime) {
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;  // the others do not know the port yet
  c10::intrusive_ptr<c10d::TCPStore> store;
  Address address;
  if (runtime.world().rank == 0) {
    options.port = 0;  // any that is free
    options.isServer = true;
    store = c10::make_intrusive<c10d::TCPStore>("0.0.0.0", options);
    address = own_address(runtime, store->getPort());
  }
  address = from_first_rank(address, runtime.world());
  if (runtime.world().rank > 0) {
    options.port = static_cast<std::uint16_t>(address.port);
    store = c10::make_intrusive<c10d::TCPStore>(address.host.data(), options);
  }
  return store;
}

}  // namespace

BackendMaker nccl_backends(const MpiRuntime& runtime) {
  return [store = common_store(runtime)](const std::string& name, int rank, int size) {
    c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>(name, store), rank, size);
    backend->setGroupUid(name);
    backend->setGroupDesc(name);
    return backend;
  };
}

void check_has_nccl() {}

}  // namespace megatron_mini

#else

namespace megatron_mini {

void check_has_nccl() {
  fail<UsageError>(
      "--backend nccl needs NCCL, but this program was built without it; build it with `./dev "
      "build "
      "--cuda` and a torch that has CUDA, or use --backend mpi");
}

BackendMaker nccl_backends(const MpiRuntime& /*runtime*/) {
  check_has_nccl();
  return nullptr;
}

}  // namespace megatron_mini

#endif
