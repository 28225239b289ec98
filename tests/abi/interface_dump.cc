// Prints what a header declares, one fact a line. Built once with our headers and once with the
// CUDA toolkit's; a test compares the two outputs.
#include <stddef.h>  // first: the toolkit's nccl_device.h takes it for granted
#include <stdint.h>

#include <cstdio>
#include <typeinfo>

#include "nccl_device.h"

namespace {

template <typename T>
const char* typeName() {
  return typeid(T).name();  // the mangled name: full, and the same for equal types
}

void printFunctions() {
// A cast picks the C function where a header overloads its name, and fails to compile where there
// is none of that type; decltype alone then tells what is declared under names not overloaded.
#define HOST(result, name, parameters) \
  std::printf("function nccl" #name " %s\n", typeName<decltype(nccl##name)>());
#define DEVICE(result, name, parameters)     \
  std::printf("function nccl" #name " %s\n", \
              typeName<decltype(static_cast<result(*) parameters>(nccl##name))>());
#include "functions.inc"
#undef HOST
#undef DEVICE
#define HOST(result, name, parameters) \
  std::printf("function pnccl" #name " %s\n", typeName<decltype(pnccl##name)>());
#define DEVICE(result, name, parameters)
#include "functions.inc"
}

void printLayouts() {
#define CONSTANT(name, value)                                               \
  std::printf("constant %s %lld %s\n", #name, static_cast<long long>(name), \
              typeName<decltype(name)>());
#define LAYOUT(type, size) \
  std::printf("layout %s %s %zu %zu\n", #type, typeName<type>(), sizeof(type), alignof(type));
#define FIELD(type, field, fieldType, offset)                                           \
  std::printf("field %s.%s %s %zu\n", #type, #field, typeName<decltype(type::field)>(), \
              offsetof(type, field));
#define DEVICE_LAYOUT LAYOUT
#define DEVICE_FIELD FIELD
#include "layout.inc"
}

void printBytes(const char* name, const void* bytes, size_t size) {
  std::printf("bytes %s", name);
  for (size_t i = 0; i < size; ++i) {
    std::printf(" %02x", static_cast<const unsigned char*>(bytes)[i]);
  }
  std::printf("\n");
}

void printInitialisers() {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  printBytes("NCCL_CONFIG_INITIALIZER", &config, sizeof(config));  // has no padding
  const ncclSimInfo_t simInfo = NCCL_SIM_INFO_INITIALIZER;
  printBytes("NCCL_SIM_INFO_INITIALIZER", &simInfo,
             offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float));
  std::printf("text NCCL_SUFFIX \"%s\"\n", NCCL_SUFFIX);
}

}  // namespace

int main() {
  printFunctions();
  printLayouts();
  printInitialisers();
  return 0;
}
