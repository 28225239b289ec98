/* Whether the headers state the 2.28.9 level's facts. Never run: that it compiles, as C and as C++,
 * is the test. C99 has no static_assert, so a false fact is an array of negative size, and a wrong
 * signature is a pointer that does not convert. */
#include "nccl_device.h"
#ifdef __cplusplus
#include <type_traits>
#define HAS_TYPE(type, field, fieldType) std::is_same<decltype(type::field), fieldType>::value
#else
#define HAS_TYPE(type, field, fieldType) (sizeof(((type*)0)->field) == sizeof(fieldType))
#endif

#define FACT(what) (void)sizeof(char[(what) ? 1 : -1]);
#define CONSTANT(name, value) FACT((int)(name) == (int)(value))
#define LAYOUT(type, size) FACT(sizeof(type) == (size))
#define FIELD(type, field, fieldType, offset) \
  FACT(offsetof(type, field) == (offset)) FACT(HAS_TYPE(type, field, fieldType))
#define DEVICE_LAYOUT LAYOUT
#define DEVICE_FIELD FIELD
#define HOST(result, name, parameters)                     \
  {                                                        \
    result(*standard) parameters = nccl##name;             \
    result(*twin) parameters = pnccl##name;                \
    FACT(sizeof(standard) == sizeof(twin)) /* both used */ \
  }
#define DEVICE HOST

void stateFacts(ncclConfig_t* config, ncclSimInfo_t* simInfo);

void stateFacts(ncclConfig_t* config, ncclSimInfo_t* simInfo) {
  /* Every field is named by the initialisers: a missing one is a warning, and so an error. */
  ncclConfig_t unsetConfig = NCCL_CONFIG_INITIALIZER;
  ncclSimInfo_t unsetSimInfo = NCCL_SIM_INFO_INITIALIZER;
  ncclComm_t noComm = NCCL_COMM_NULL;
  void (*internal)(void) = ncclResetDebugInitInternal;
  cudaStream_t defaultStream = NULL;
  (void)noComm;
  (void)internal;
  (void)defaultStream;
  *config = unsetConfig;
  *simInfo = unsetSimInfo;

#include "functions.inc"
#include "layout.inc"
}
